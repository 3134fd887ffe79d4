"""Learning curves: how success, score, tokens and cost went from task to task, and whether they got better."""
