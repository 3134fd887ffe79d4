"""The program that trains weights: rows or tasks and a config in, an adapter and a report out.

It runs in a process of its own (`python -m journeyman.experiments.weights RUN`), so that running out of memory is a failed
job and not a dead platform, and so that `accelerate launch`, Ray and a shell script are the same to it.
"""
