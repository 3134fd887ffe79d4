"""Learning in the weights, wired: data sets, verifiers and stores on one side, the training program on the other."""
