"""`journeyman train`: learn from tasks. Each way of learning is a file of its own, loaded when it is called."""

import click

from journeyman.cli.lazy import LazyGroup

COMMANDS = {
    "planner": "Learn to plan: from examples, then from what executions brought.",
    "playbook": "Learn a playbook from a data set, or from scenarios.",
    "router": "Learn which model answers which request, from what became of earlier ones.",
    "weights": "Learn in the weights: train a LoRA adapter, and prove it on held-out tasks.",
}


@click.group(
    cls=LazyGroup,
    lines=COMMANDS,
    homes={
        "planner": "train_planner",
        "router": "route:train",
        "playbook": "train_playbook",
        "weights": "train_weights",
    },
)
def command() -> None:
    """Learn from tasks, and prove on held-out ones that it helps.

    \b
    Examples:
      journeyman train playbook --dataset desk --domain oslo
      journeyman train weights --method grpo --tasks desk --domain oslo
      journeyman train planner --phase 1 --data training_data.json
      journeyman train router --outcomes outcomes.jsonl --objective "quality - 20*cost"
    """
