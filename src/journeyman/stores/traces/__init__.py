"""Where captured traces, their labels and their rewards are kept."""
