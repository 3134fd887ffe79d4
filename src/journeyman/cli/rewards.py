"""`journeyman rewards`: look at the rewards, teach one, and fit the weights of all."""

from pathlib import Path
from typing import Any

import click

from journeyman.cli.shared import emit, json_option

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group()
def command() -> None:
    """Learn a reward from labels, fit the weights of rewards, and test a judge.

    \b
    Example:
      journeyman rewards train labelled.jsonl -o reward.json
    """


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the rewards, with their weights and what each looks at.

    \b
    Example:
      journeyman rewards list
    """
    from journeyman.cli.actions import score

    emit(score.listed(quiet=as_json), as_json=as_json)


@command.command()
@click.argument("labelled", nargs=-1, required=True, type=_FILE)
@click.option("-o", "--output", type=_FILE, metavar="FILE", required=True, help="Write the learned reward here, as JSON.")
@click.option("--embedder", metavar="NAME", default="", help="Look at the words, too: hashing:32, for instance.")
@json_option
def train(labelled: tuple[Path, ...], output: Path, embedder: str, as_json: bool) -> int:
    """Learn a reward from labelled attempts, and test it on other tasks.

    A row is a trace as `journeyman score` reads it, with "label" beside it or around it: {"trace": …, "label": true}. A run of
    tau-bench brings its own. All attempts at a task are learned from or tested on together. Exit code 1: it was written, and
    will not speak, since it was taught too little or cannot tell successes from failures.

    \b
    Example:
      journeyman traces export --label some --out labelled.jsonl
      journeyman rewards train labelled.jsonl -o reward.json
      journeyman score traces.jsonl --rewards learned:reward.json
    """
    from journeyman.cli.actions import score

    result = score.train(labelled, output, embedder, quiet=as_json)
    emit(result, as_json=as_json)
    return 1 if result["silent"] else 0


@command.command()
@click.argument("scores", nargs=-1, required=True, type=_FILE)
@click.option("--labels", type=_FILE, metavar="FILE", help="Rows of {trace_id, label}, when the scores have none.")
@click.option("--target", default="label", show_default=True, metavar="FIELD", help="What to agree with: label, success, …")
@click.option("-o", "--output", type=_FILE, metavar="FILE", help="Write the weights here: TOML, or JSON by its name.")
@json_option
def fit(as_json: bool, **given: Any) -> int:
    """Find weights that agree better with labels or later success.

    SCORES are what `journeyman score --out` writes. Agreement is measured on tasks that the weights were not fitted on, before
    and after. Exit code 0: better, and the weights are the fitted ones; 1: not shown to be better, and the weights stay.

    \b
    Example:
      journeyman score traces.jsonl --out scores.jsonl
      journeyman rewards fit scores.jsonl --labels labels.jsonl -o weights.toml
    """
    from journeyman.cli.actions import score

    result = score.fit(given, quiet=as_json)
    emit(result, as_json=as_json)
    return 0 if result["better"] else 1


@command.command()
@click.argument("opinions", nargs=-1, required=True, type=_FILE)
@json_option
def judge(opinions: tuple[Path, ...], as_json: bool) -> int:
    """Hold the opinions of a judge against labels: may it weigh in?

    A row is {"value": 0 to 1 or null, "label": true or false, "task_id": …}. Exit code 0: it may, 1: it may not.

    \b
    Example:
      journeyman rewards judge opinions.jsonl
    """
    from journeyman.cli.actions import score

    result = score.judged(opinions, quiet=as_json)
    emit(result, as_json=as_json)
    return 1 if result["silent"] else 0
