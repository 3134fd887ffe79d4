"""What there is to do: tasks in their splits, and who verifies what was done. `experiments.wiring` loads a data set by name."""
