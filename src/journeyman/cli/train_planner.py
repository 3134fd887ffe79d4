"""`journeyman train planner`: learn to plan."""

from pathlib import Path
from typing import Any

import click

from journeyman.cli.options import options, provided
from journeyman.cli.shared import emit, json_option, options_named
from journeyman.experiments.planner.config import ReinforceConfig
from journeyman.optimizers.planner.config import PPOConfig, SupervisedConfig

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command("planner")
@click.option(
    "--phase", type=click.Choice(["1", "2"]), default="1", show_default=True, help="1: from examples; 2: by reinforcement."
)
@click.option(
    "--output-dir",
    type=_FOLDER,
    default=Path("checkpoints"),
    show_default=True,
    metavar="DIR",
    help="Checkpoints, metrics and the result.",
)
@click.option(
    "--config",
    "config_file",
    type=_FILE,
    metavar="FILE",
    help="Settings as YAML, as in training.phase1_supervised and training.phase2_rl.",
)
@click.option("--data", type=_FILE, metavar="FILE", help="Phase 1: examples; see `journeyman dataset planner`.")
@options(
    SupervisedConfig,
    leave_out=("seed",),
    helps={"patience": "Epochs without a better validation loss after which it stops; 0 for never."},
)
@click.option("--embedder", metavar="NAME", help="hashing, or sentence (an extra).  [default: hashing]")
@click.option(
    "--checkpoint",
    metavar="PLANNER",
    help="Phase 2: the planner to start from, a file or an id.  [default: phase1_best in --output-dir]",
)
@options(PPOConfig, only=("episodes",), helps={"episodes": "Phase 2: executions to learn from."})
@click.option(
    "--steps",
    type=click.Choice(["expert", "planner"]),
    help="Phase 2, live: whose steps are carried out, the desk's expert's or phase 1's own.  [default: expert]",
)
@click.option("--replay", type=_FILE, metavar="FILE", help="Phase 2: recorded outcomes to act on, instead of real workers.")
@click.option(
    "--reward",
    type=click.Choice(["utility", "documented"]),
    help="Phase 2: what it learns by; it is examined by the utility.  [default: utility]",
)
@click.option("--success-value", metavar="USD,SECONDS", help="What one more success is worth to you, in money and in time.")
@click.option("--explain-reward", is_flag=True, help="Show what the reward makes of your own logs (--logs), and train nothing.")
@click.option(
    "--logs", type=click.Path(path_type=Path, exists=True), metavar="PATH", help="Execution logs, for --explain-reward."
)
@options(ReinforceConfig)
@click.option("--tracker", type=click.Choice(["tensorboard", "wandb", "none"]), help="[default: tensorboard, where installed]")
@options(SupervisedConfig, only=("seed",))
@click.option("--resume", is_flag=True, help="Go on with the phase in --output-dir where it was stopped or killed.")
@click.option("--dry-run", is_flag=True, help="Read and check everything; train nothing.")
@json_option
def command(as_json: bool, **given: Any) -> int:
    """Learn to plan: from examples, then from what executions brought.

    Phase 1 learns subtasks, their order, their types and their workers from plans that succeeded. Phase 2 starts there and
    learns who should do what, with a reward for each real execution; what it learned is released only if it beats the planner
    of phase 1 and the best single model on held-out instructions. A killed run goes on with --resume and loses no epoch.

    \b
    Examples:
      journeyman train planner --phase 1 --data training_data.json --output-dir checkpoints/ --epochs 50 --batch-size 32
      journeyman train planner --phase 2 --checkpoint checkpoints/phase1_best --episodes 1000
      journeyman train planner --phase 2 --checkpoint checkpoints/phase1_best --replay outcomes.jsonl
      journeyman train planner --explain-reward --logs execution_logs/
    """
    from journeyman.cli.actions import train_planner

    with options_named():
        result = train_planner.run(provided(given), quiet=as_json)
    emit(result, as_json=as_json)
    return 1 if result.get("passed") is False else 0
