"""`journeyman train playbook`: learn a playbook from a data set, or from scenarios."""

from pathlib import Path
from typing import Any

import click

from journeyman.cli.options import options, provided
from journeyman.cli.shared import emit, json_option, options_named
from journeyman.core.errors import SettingError
from journeyman.experiments.playbook.config import ScenarioConfig, TrainingConfig


@click.command("playbook")
@options(TrainingConfig, leave_out=("sandbox",))
@click.option("--initial-playbook", type=click.Path(path_type=Path), metavar="FILE", help="Go on from this playbook.")
@click.option(
    "--resume", is_flag=False, flag_value="", metavar="[RUN]", help="Go on with a run: the newest unfinished, or RUN."
)
@click.option("--dry-run", is_flag=True, help="Check the data and price the run; ask no model.")
@click.option("--scenarios", metavar="FILE", help="Train on scenarios instead: things to build, in YAML or JSON.")
@click.option("--examples", is_flag=True, default=None, help="Train on the five scenarios that ship with Journeyman.")
@click.option("--interactive", is_flag=True, default=None, help="Type scenarios in, and train on them.")
@click.option("--skillbook", metavar="FILE", help="Go on from this playbook if it is there, and write to it.")
@click.option("--ptc-url", metavar="URL", help="Run the programs of scenarios, humaneval or mbpp at this code service.")
@click.option("--unsafe-local", is_flag=True, default=None, help="Run them without walls. For code that you trust.")
@options(ScenarioConfig, only=("max_repairs",))
@click.option("--rounds", type=int, hidden=True, help="As it was: the calls for a scenario, the first among them.")
@json_option
def command(as_json: bool, dry_run: bool, resume: str | None, initial_playbook: Path | None, **given: Any) -> None:
    """Learn a playbook from a data set, or from scenarios.

    Attempts the tasks, reflects on what went wrong, merges the insights after each batch, and at the end compares agent with
    and without the playbook on held-out tasks. A playbook that does not pass stays in shadow.

    \b
    Examples:
      journeyman train playbook --dataset desk --domain oslo --output playbooks/oslo.json
      journeyman train playbook --dataset gsm8k --input train.jsonl --model openai:gpt-5-mini --dry-run
      journeyman train playbook --scenarios my_scenarios.yaml --model openai:gpt-5-mini
      journeyman train playbook --resume
    """
    from journeyman.cli.actions import scenarios, train_playbook

    typed = provided(given)
    run = scenarios.run if scenarios.asked(typed, resume) else train_playbook.run
    with options_named():
        if (rounds := typed.pop("rounds", None)) is not None:
            if not 1 <= rounds <= 20:
                raise SettingError("rounds", f"{{}} is {rounds}, and must be from 1 to 20")
            typed["max_repairs"] = rounds - 1
        result = run(typed, initial_playbook, resume=resume, dry_run=dry_run, quiet=as_json)
    emit(result, as_json=as_json)
