"""The one loop that every way of learning goes through: learn, evaluate, decide, release.

loop.py           `improve`, and what an optimizer is
run.py            a run in the store: running, stopped, finished
evaluator.py      held-out tasks: looks are counted, what was trained on is left out, what was found is kept
agents.py         two agents on the held-out tasks of a data set
release_policy.py how far what passed, or was forced, is released
"""
