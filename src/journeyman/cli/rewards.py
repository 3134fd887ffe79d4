"""`journeyman rewards`: look at the rewards, teach one, and fit the weights of all."""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from journeyman.cli.shared import emit, json_option
from journeyman.core import registry
from journeyman.core.errors import InputError, JourneymanError, MissingExtra
from journeyman.core.format import counted
from journeyman.io.atomic import write_text
from journeyman.io.files import check_writable

if TYPE_CHECKING:
    from journeyman.rewards.learned import LearnedModel

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
    from journeyman import rewards
    from journeyman.rewards import development

    known: list[tuple[str, float | None, str | None]] = [
        (reward.name, reward.weight, type(reward).__doc__) for reward in rewards.defaults()
    ]
    known += _added()
    known.append(("learned:FILE", 1.0, "The probability of a success, learned from labels"))
    known.append(("development", 1.0, "The components below together, for agents that develop software"))
    parts = [(part.name, development.WEIGHTS[part.name], type(part).__doc__) for part in development.components()]
    if not as_json:
        for title, rows in (("rewards", known), ("components of development", parts)):
            click.echo(title)
            for name, weight, doc in rows:
                click.echo(f"  {name:18} {'   ?' if weight is None else format(weight, '4')}  {_first_line(doc)}")
    listed = {
        kind: [{"name": name, "weight": weight, "what": _first_line(doc)} for name, weight, doc in rows]
        for kind, rows in (("rewards", known), ("development", parts))
    }
    emit(listed, as_json=as_json)


def _added() -> Iterator[tuple[str, float | None, str | None]]:
    """Those of installed packages, by the names that `--rewards` takes; one that is broken says why."""
    from journeyman import rewards

    for name in registry.names("rewards"):
        if name in registry.KINDS["rewards"]:
            continue
        try:
            found = rewards.load(name)
        except JourneymanError as error:
            yield name, None, str(error)
        else:
            yield name, found.weight, type(found).__doc__


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
    from journeyman.experiments import scoring
    from journeyman.models import embedders

    check_writable(output)
    try:
        from journeyman.rewards.train_learned import LabelledAttempt
        from journeyman.rewards.train_learned import train as teach
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[code]'") from error
    complaint = "these rows are no labelled traces, and nothing was learned; mend or remove them"
    found = scoring.read_rows(labelled, complaint, scoring.labelled_trace)
    if not found:
        raise InputError("there are no labelled traces to learn from")
    examples = [LabelledAttempt(trace, success, trace.task_id) for trace, success in found]
    model = teach(examples, embedders.load(embedder) if embedder else None)
    write_text(output, json.dumps(model.json()) + "\n")
    if not as_json:
        click.echo(_summary(model, output))
    emit({"output": str(output), **model.report.json(), "silent": model.report.silence}, as_json=as_json)
    return 1 if model.report.silence else 0


@command.command()
@click.argument("scores", nargs=-1, required=True, type=_FILE)
@click.option("--labels", type=_FILE, metavar="FILE", help="Rows of {trace_id, label}, when the scores have none.")
@click.option("--target", default="label", show_default=True, metavar="FIELD", help="What to agree with: label, success, …")
@click.option("-o", "--output", type=_FILE, metavar="FILE", help="Write the weights here: TOML, or JSON by its name.")
@json_option
def fit(scores: tuple[Path, ...], labels: Path | None, target: str, output: Path | None, as_json: bool) -> int:
    """Find weights that agree better with labels or later success.

    SCORES are what `journeyman score --out` writes. Agreement is measured on tasks that the weights were not fitted on, before
    and after; beside each fitted weight stands its 95 % interval over resampled tasks. Exit code 0: better, and the weights are
    the fitted ones; 1: not shown to be better, and the weights stay.

    \b
    Example:
      journeyman score traces.jsonl --out scores.jsonl
      journeyman rewards fit scores.jsonl --labels labels.jsonl -o weights.toml
    """
    from journeyman.experiments import scoring
    from journeyman.rewards import weight_fitting

    if output is not None:
        check_writable(output)
    if labels is None and target == "label" and scoring.is_scored(scores[0]):
        raise InputError(f"the labels in {scores[0]} are the rewards' own; give the true ones: --labels FILE")
    known = scoring.read_labels(labels, target) if labels else None
    complaint = "these rows are no scores with labels, and nothing was fitted; mend or remove them"
    found = scoring.read_rows(scores, complaint, partial(scoring.scored_row, labels=known, target=target))
    rows = [row for row, _ in found if row is not None]
    result = weight_fitting.fit(rows, {name: weight for _, weights in found for name, weight in weights.items()})
    if output is not None:
        write_text(output, _written(result.weights, result.verdict, output))
    if not as_json:
        for name in sorted(result.defaults):
            low, high = result.intervals[name]
            fitted = f"fitted {result.fitted[name]:8.3f} [{low:.3f}, {high:.3f}]"
            click.echo(f"{name:22} {result.defaults[name]:8.3f} -> {result.weights[name]:8.3f}   {fitted}")
        click.echo(result.verdict)
    counts = {"unlabelled": len(found) - len(rows), "output": str(output) if output else None}
    emit({**result.json(), **counts}, as_json=as_json)
    return 0 if result.better else 1


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
    from journeyman.experiments import scoring
    from journeyman.rewards.learned import stand

    found = scoring.read_rows(opinions, "these rows are no opinions with labels; mend or remove them", scoring.judge_opinion)
    useful = [(value, label, group) for value, label, group in found if value is not None]
    standing = stand([each[0] for each in useful], [each[1] for each in useful], [each[2] for each in useful])
    if not as_json:
        numbers = (
            f"agreement {standing.agreement}, kappa {standing.kappa}, AUC {standing.auc}" if standing.auc else "no numbers"
        )
        click.echo(f"{counted(len(useful), 'opinion')}, {len(found) - len(useful)} of no use: {numbers}")
        click.echo(f"it may not weigh in: {standing.silence}" if standing.silence else "it may weigh in, calibrated")
    emit({**standing.json(), "useless": len(found) - len(useful)}, as_json=as_json)
    return 1 if standing.silence else 0


def _written(found: Mapping[str, float], comment: str, output: Path) -> str:
    if output.suffix == ".json":
        return json.dumps({"rewards": {"weights": dict(found)}}, indent=2) + "\n"
    from journeyman.rewards.weight_fitting import dumps

    return dumps(found, comment)


def _summary(model: "LearnedModel", output: Path) -> str:
    report = model.report
    counts = f"{report.successes} successes and {counted(report.failures, 'failure')} of {counted(report.groups, 'task')}"
    numbers = (
        f"on tasks not taught: AUC {report.auc}, calibration error {report.ece}, Brier {report.brier}" if report.auc else ""
    )
    verdict = f"it will not speak: {report.silence}" if report.silence else "it will speak"
    return "\n".join(line for line in (f"{output}: taught by {counts}", numbers, verdict) if line)


def _first_line(doc: str | None) -> str:
    return (doc or "").strip().partition("\n")[0].rstrip(".")
