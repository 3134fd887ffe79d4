"""Where the embedded model comes from: a program that trains it from scratch, `python -m journeyman.experiments.pretrain`."""
