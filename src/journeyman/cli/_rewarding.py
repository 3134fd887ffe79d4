"""The work behind `journeyman rewards`, apart from its options."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from journeyman import embed, rewards
from journeyman.capture.jsonl import parse
from journeyman.errors import InputError, MissingExtra, TraceError
from journeyman.learn.playbook.files import check_writable, write_text
from journeyman.rewards import development, weights
from journeyman.rewards.learned import LearnedModel
from journeyman.task import Split
from journeyman.tasks.rows import Complaints, Row, read
from journeyman.trace import Trace

_LABELS = ("label", "success")
_Made = TypeVar("_Made")


def listed(*, quiet: bool) -> dict[str, Any]:
    """Every reward by name, and the components of `development`."""
    known = [(reward.name, reward.weight, type(reward).__doc__) for reward in rewards.defaults()]
    known.append(("learned:FILE", 1.0, "The probability of a success, learned from labels"))
    known.append(("development", 1.0, "The components below together, for agents that develop software"))
    parts = [(part.name, development.WEIGHTS[part.name], type(part).__doc__) for part in development.components()]
    if not quiet:
        for title, rows in (("rewards", known), ("components of development", parts)):
            click.echo(title)
            for name, weight, doc in rows:
                click.echo(f"  {name:18} {weight:4}  {_first_line(doc)}")
    return {
        kind: [{"name": name, "weight": weight, "what": _first_line(doc)} for name, weight, doc in rows]
        for kind, rows in (("rewards", known), ("development", parts))
    }


def train(paths: Iterable[Path], output: Path, embedder: str, *, quiet: bool) -> dict[str, Any]:
    """Teach a reward and write it; the report of its examination."""
    check_writable(output)
    try:
        from journeyman.rewards.teaching import Labelled, teach
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[code]'") from error
    found = list(_gathered(paths, "these rows are no labelled traces, and nothing was learned; mend or remove them", _labelled))
    if not found:
        raise InputError("there are no labelled traces to learn from")
    examples = [Labelled(trace, success, trace.task_id) for trace, success in found]
    model = teach(examples, embed.load(embedder) if embedder else None)
    write_text(output, json.dumps(model.json()) + "\n")
    if not quiet:
        click.echo(_told(model, output))
    return {"output": str(output), **model.report.json(), "silent": model.report.silence}


def fit(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Fit weights and write them; the comparison with the defaults."""
    output: Path | None = given["output"]
    if output is not None:
        check_writable(output)
    if not given["labels"] and given["target"] == "label" and _is_scored(given["scores"][0]):
        raise InputError(f"the labels in {given['scores'][0]} are the rewards' own; give the true ones: --labels FILE")
    labels = _labels(given["labels"], given["target"]) if given["labels"] else None
    complaint = "these rows are no scores with labels, and nothing was fitted; mend or remove them"
    found = list(_gathered(given["scores"], complaint, partial(_scored, labels=labels, target=given["target"])))
    rows = [row for row, _ in found if row is not None]
    result = weights.fit(rows, _defaults([defaults for _, defaults in found]))
    if output is not None:
        write_text(output, _weights(result.weights, result.verdict, output))
    if not quiet:
        for name in sorted(result.defaults):
            click.echo(f"{name:22} {result.defaults[name]:8.3f} -> {result.weights[name]:8.3f}")
        click.echo(result.verdict)
    return {**result.json(), "unlabelled": len(found) - len(rows), "output": str(output) if output else None}


def judged(paths: Iterable[Path], *, quiet: bool) -> dict[str, Any]:
    """How the opinions in files stand up to the labels beside them."""
    from journeyman.rewards.judge import stand

    found = list(_gathered(paths, "these rows are no opinions with labels; mend or remove them", _opinion))
    useful = [(value, label, group) for value, label, group in found if value is not None]
    standing = stand([each[0] for each in useful], [each[1] for each in useful], [each[2] for each in useful])
    if not quiet:
        numbers = (
            f"agreement {standing.agreement}, kappa {standing.kappa}, AUC {standing.auc}" if standing.auc else "no numbers"
        )
        click.echo(f"{len(useful)} opinions, {len(found) - len(useful)} of no use: {numbers}")
        click.echo(f"it may not weigh in: {standing.silence}" if standing.silence else "it may weigh in, calibrated")
    return {**standing.json(), "useless": len(found) - len(useful)}


def _gathered(paths: Iterable[Path], complaint: str, made: Callable[[Row], _Made]) -> Iterator[_Made]:
    """What `made` makes of each row; what it refuses is named at once."""
    bad = Complaints(complaint)
    found = []
    for path in paths:
        for row in read(path, bad):
            try:
                if row.value.get("split") == Split.HELD_OUT:
                    raise InputError("held out: nothing may be learned from it; leave such rows out")
                found.append(made(row))
            except (InputError, TraceError) as error:
                bad.add(row.where, str(error))
    bad.check()
    yield from found


def _labelled(row: Row) -> tuple[Trace, bool]:
    value = dict(row.value)
    inner = value.get("trace")
    labels = [value.pop(name) for name in _LABELS if name in value]
    recorded = parse(inner if isinstance(inner, dict) else value, name=row.where)
    if recorded.trace.held_out:
        raise InputError("held out: nothing may be learned from it; leave such rows out")
    label = labels[0] if labels else recorded.reward
    if label is None:
        raise InputError('no "label"; every row needs true or false, or 0 or 1')
    return recorded.trace, _number(label, "label") >= 0.5


def _opinion(row: Row) -> tuple[float | None, bool, str]:
    value = row.value.get("value")
    said = None if value is None else _number(value, "value")
    return said, _number(row.value.get("label"), "label") >= 0.5, str(row.value.get("task_id", row.where))


def _scored(row: Row, *, labels: Mapping[str, float] | None, target: str) -> tuple[weights.Scored | None, dict[str, float]]:
    """`None` where the labels' file says nothing of the trace; and the weights that the row tells."""
    verdicts = row.value.get("rewards")
    if not isinstance(verdicts, dict) or not verdicts:
        raise InputError('no "rewards"; a row is what `journeyman score --out` writes')
    values, defaults = {}, {}
    for name, verdict in verdicts.items():
        full = verdict if isinstance(verdict, dict) else {"score": verdict}
        values[name] = None if full.get("score") is None else _number(full["score"], f"the score of {name}")
        defaults[name] = _number(full.get("weight", 1.0), f"the weight of {name}", most=float("inf"))
    trace_id = str(row.value.get("trace_id", row.where))
    label = labels.get(trace_id) if labels is not None else _own_label(row.value, target)
    if label is None:
        return None, defaults
    return weights.Scored(values=values, label=label, group=str(row.value.get("task_id", trace_id))), defaults


def _is_scored(path: Path) -> bool:
    """Whether `journeyman score` wrote it: what it calls the label follows from the rewards."""
    first = next(iter(read(path, Complaints(""))), None)
    return first is not None and "score" in first.value and "rewards" in first.value


def _own_label(value: Mapping[str, Any], target: str) -> float:
    if target not in value:
        raise InputError(f"no {target!r}; name the field with --target, or give --labels")
    return _number(value[target], target)


def _labels(path: Path, target: str) -> dict[str, float]:
    def made(row: Row) -> tuple[str, float]:
        if "trace_id" not in row.value:
            raise InputError('no "trace_id"')
        return str(row.value["trace_id"]), _number(row.value.get(target), target)

    return dict(_gathered([path], "these rows are no labels; mend or remove them", made))


def _defaults(told: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The weights that the scores were made with."""
    found: dict[str, float] = {}
    for each in told:
        found.update(each)
    return found


def _number(value: Any, what: str, *, most: float = 1.0) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= most:
        span = "0 to 1" if most == 1 else "0 on"
        raise InputError(f"{what} is {json.dumps(value, default=str)[:40]}; it must be a number from {span}, or true or false")
    return float(value)


def _weights(found: Mapping[str, float], comment: str, output: Path) -> str:
    if output.suffix == ".json":
        return json.dumps({"rewards": {"weights": dict(found)}}, indent=2) + "\n"
    return weights.dumps(found, comment)


def _told(model: LearnedModel, output: Path) -> str:
    report = model.report
    counts = f"{report.successes} successes and {report.failures} failures of {report.groups} tasks"
    numbers = (
        f"on tasks not taught: AUC {report.auc}, calibration error {report.ece}, Brier {report.brier}" if report.auc else ""
    )
    verdict = f"it will not speak: {report.silence}" if report.silence else "it will speak"
    return "\n".join(line for line in (f"{output}: taught by {counts}", numbers, verdict) if line)


def _first_line(doc: str | None) -> str:
    return (doc or "").strip().partition("\n")[0].rstrip(".")
