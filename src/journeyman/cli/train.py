"""`journeyman train`: learn from tasks."""

from pathlib import Path
from typing import Any

import click

from journeyman.cli._shared import emit, json_option, options_named


@click.group()
def command() -> None:
    """Learn from tasks, and prove on held-out ones that it helps.

    \b
    Example:
      journeyman train playbook --dataset desk --domain oslo
    """


@command.command("playbook")
@click.option("--dataset", "dataset_name", help="gsm8k, custom, humaneval, mbpp or desk.  [default: gsm8k]")
@click.option(
    "--input", "input_path", metavar="FILE", help="The data set: GSM8K's JSON lines, or JSON with question and answer."
)
@click.option("--held-out-input", "held_out_path", metavar="FILE", help="Held-out tasks; else some are set apart from --input.")
@click.option("--split", "dataset_split", help="train or validation.  [default: train]")
@click.option("--domain", help="Only tasks of this domain; for the desk, the shop.")
@click.option("--num-examples", type=int, help="Training tasks.  [default: 100]")
@click.option("--model", "--generator-model", "generator_model", metavar="MODEL", help="Such as openai:gpt-5-mini.")
@click.option("--reflector-model", metavar="MODEL", help="Draws the insights.  [default: the same]")
@click.option("--base-url", metavar="URL", help="Another server for both models.")
@click.option("--initial-playbook", type=click.Path(path_type=Path), metavar="FILE", help="Go on from this playbook.")
@click.option("--output", "output_playbook_path", metavar="FILE", help="[default: playbooks/offline_trained.json]")
@click.option(
    "--metrics-output", "output_metrics_path", metavar="FILE", help="[default: metrics/offline_training_metrics.json]"
)
@click.option("--batch-size", "batch_merge_size", type=int, help="Tasks attempted and merged together.  [default: 10]")
@click.option("--epochs", type=int, help="Times through the tasks.  [default: 1]")
@click.option("--attempts", type=int, help="Attempts at each task; several are compared.  [default: 1]")
@click.option("--concurrency", type=int, help="Calls at once, fewer while the server is busy.  [default: 10]")
@click.option("--reflect-on", type=click.Choice(["all", "failures"]), help="[default: all]")
@click.option("--min-support", type=int, help="Tasks that must teach a bullet before it is shown.  [default: 1]")
@click.option("--similarity-threshold", type=float, help="Cosine from which two bullets are one.  [default: 0.8]")
@click.option("--embedder", help="hashing, or sentence (an extra).  [default: hashing]")
@click.option("--token-budget", type=int, help="Tokens of bullets in a prompt.  [default: 2000]")
@click.option(
    "--target-stage", type=click.Choice(["shadow", "production"]), help="Where it goes if it passes.  [default: shadow]"
)
@click.option("--force", is_flag=True, default=None, help="Go there even if it does not pass; this is recorded.")
@click.option("--no-evaluate", "evaluate", flag_value=False, default=None, help="Do not evaluate at the end.")
@click.option("--held-out", type=int, help="Held-out tasks to evaluate on, at most.  [default: 200]")
@click.option("--trials", type=int, help="Attempts at each held-out task.  [default: 1]")
@click.option("--checkpoint-interval", type=int, help="Examples between checkpoints.  [default: 50]")
@click.option("--no-checkpoints", "save_checkpoints", flag_value=False, default=None, help="Write no checkpoints.")
@click.option("--max-cost", type=float, metavar="USD", help="Stop cleanly once this is spent.")
@click.option("--seed", type=int, help="Of shuffles and samples.  [default: 0]")
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
@click.option("--rounds", type=int, help="Calls for one scenario: the first writes, others repair.  [default: 3]")
@json_option
def playbook(as_json: bool, dry_run: bool, resume: str | None, initial_playbook: Path | None, **given: Any) -> None:
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
    from journeyman.cli import _scenarios, _training

    options = {name: value for name, value in given.items() if value is not None}
    run = _scenarios.run if _scenarios.asked(options, resume) else _training.run
    with options_named():
        result = run(options, initial_playbook, resume=resume, dry_run=dry_run, quiet=as_json)
    emit(result, as_json=as_json)
