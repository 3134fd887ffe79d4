"""The work behind `journeyman runs`, `candidates`, `evaluations` and `releases`, apart from their options."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click
from rich.text import Text

from journeyman.cli.actions.traces_screen import dollars, plain, short
from journeyman.cli.console import Column, console, fitted
from journeyman.core.candidate import Candidate, Kind
from journeyman.core.evaluation import Pair
from journeyman.core.release import Move, Release, Stage
from journeyman.experiments import settings
from journeyman.stores.base import AttemptTotals, EvaluationRecord, RunRecord, RunState
from journeyman.stores.registry import Registry
from journeyman.stores.urls import as_url, redacted

_FIRST_LINES = 40
"""Lines of a candidate that are shown; `--json` has all of it."""
_SHORTEST, _LONGEST = 20, 40
"""Characters that the last column of a table keeps, and the others where they have as many."""
_HOW = {
    "runs": "To have one: journeyman train playbook, router, planner or weights",
    "candidates": "They come from journeyman train",
    "evaluations": "They come from journeyman train and journeyman evaluate",
    "releases": "They come from a training whose gate passes",
}


def runs(*, store: str | None, kind: str | None, state: str | None, limit: int, quiet: bool) -> dict[str, Any]:
    with _opened(store) as registry:
        found = registry.runs(kind=kind, state=RunState(state) if state else None, limit=limit)
    if not quiet:
        rows = [(run.id, run.kind, run.state.value, _minute(run.started_at), _took(run), _outcome(run)) for run in found]
        _listed("runs", ("id", "kind", "state", "begun", "took", "result"), rows, store)
    return {"runs": [_run_json(run) for run in found]}


def run(store: str | None, run_id: str, *, quiet: bool) -> dict[str, Any]:
    with _opened(store) as registry:
        found = registry.run(run_id)
    if not quiet:
        run = found.run
        _head(("run", run.id), ("kind", run.kind), ("state", run.state.value))
        _head(("begun", _minute(run.started_at)), ("took", _took(run)), ("result", _outcome(run)))
        for totals in found.attempts:
            _head(("attempts", _totals(totals)))
        for each in found.evaluations:
            _head(("evaluated", f"{'passed' if each.passed else 'not passed'}: {each.reason}"))
        _head(*((name, _value(value)) for name, value in _settings(run.config)))
    attempts = [asdict(totals) for totals in found.attempts]
    return {
        "run": _run_json(found.run),
        "attempts": attempts,
        "evaluations": [_evaluation_json(each) for each in found.evaluations],
    }


def runs_diff(store: str | None, before: str, after: str, *, quiet: bool) -> dict[str, Any]:
    with _opened(store) as registry:
        changes = registry.diff_runs(before, after)
    if not quiet:
        _table(("what", before, after), [(each.name, _value(each.before), _value(each.after)) for each in changes])
        if not changes:
            click.echo("the two runs have the same settings and the same result", err=True)
    return {"changes": [asdict(each) for each in changes]}


def run_removed(store: str | None, run_id: str, *, yes: bool, quiet: bool) -> dict[str, Any]:
    with _opened(store) as registry:
        found = registry.run(run_id)
        id, count = found.run.id, sum(totals.attempts for totals in found.attempts)
        with_it = f"{count} attempt{'' if count == 1 else 's'}"
        if not yes:
            click.confirm(f"Forget run {id} ({found.run.state.value}) with its {with_it} for good?", abort=True, err=True)
        removed = registry.remove_run(id)
    if not quiet:
        click.echo(f"run {id} and its {with_it} are forgotten", err=True)
    return {"run": id, "attempts": removed}


def candidates(*, store: str | None, kind: str | None, limit: int, quiet: bool) -> dict[str, Any]:
    with _opened(store) as registry:
        found = registry.candidates(kind=Kind(kind) if kind else None, limit=limit)
        stages = {release.candidate_id: release.stage.value for release in registry.releases()}
        passed = {each.candidate_id: each.passed for each in reversed(registry.evaluations())}
    if not quiet:
        rows = [
            (each.id, each.kind.value, stages.get(each.id, ""), _passed(passed.get(each.id)), " ".join(each.parents))
            for each in found
        ]
        _listed("candidates", ("id", "kind", "stage", "last evaluation", "parents"), rows, store)
    told = ({"stage": stages.get(each.id), "passed": passed.get(each.id)} for each in found)
    return {"candidates": [_candidate_json(each) | more for each, more in zip(found, told, strict=True)]}


def candidate(store: str | None, candidate_id: str, *, quiet: bool) -> dict[str, Any]:
    with _opened(store) as registry:
        found = registry.candidate(candidate_id)
    one = found.candidate
    if not quiet:
        _head(("candidate", one.id), ("kind", one.kind.value), ("stage", found.stage.value if found.stage else "not released"))
        _head(*((name, ", ".join(ids)) for name, ids in (("parents", one.parents), ("children", found.children)) if ids))
        for each in found.evaluations:
            _head(("evaluated", f"{'passed' if each.passed else 'not passed'} against {each.baseline_id}: {each.reason}"))
        lines = one.body.splitlines()
        for line in lines[:_FIRST_LINES]:
            console().print(Text(plain(line)), soft_wrap=True)
        if len(lines) > _FIRST_LINES:
            click.echo(f"{len(lines) - _FIRST_LINES} more lines; --json has them", err=True)
    return {
        "candidate": {**_candidate_json(one), "body": one.body},
        "children": list(found.children),
        "evaluations": [_evaluation_json(each) for each in found.evaluations],
        "release": _release_json(found.release) if found.release else None,
    }


def candidates_diff(store: str | None, before: str, after: str, *, quiet: bool) -> dict[str, Any]:
    with _opened(store) as registry:
        lines = registry.diff_candidates(before, after)
    if not quiet:
        for line in lines:
            console().print(Text(plain(line), style={"+": "green", "-": "red"}.get(line[:1], "")), soft_wrap=True)
        if not lines:
            click.echo("the two candidates hold the same", err=True)
    return {"diff": lines}


def evaluations(*, store: str | None, candidate: str | None, passed: bool | None, limit: int, quiet: bool) -> dict[str, Any]:
    with _opened(store) as registry:
        found = registry.evaluations(candidate_id=candidate, passed=passed, limit=limit)
    if not quiet:
        rows = [
            (each.id, each.candidate_id, each.baseline_id, _gain(each), _passed(each.passed), _minute(each.at))
            for each in found
        ]
        _listed("evaluations", ("id", "candidate", "baseline", "gain", "gate", "at"), rows, store)
    return {"evaluations": [_evaluation_json(each) for each in found]}


def evaluation(store: str | None, evaluation_id: str, *, everything: bool, quiet: bool) -> dict[str, Any]:
    with _opened(store) as registry:
        found = registry.evaluation(evaluation_id)
    one = found.evaluation
    if not quiet:
        _head(("evaluation", one.id), ("candidate", one.candidate_id), ("baseline", one.baseline_id))
        _head(("at", _minute(one.at)), ("gate", f"{_passed(one.passed)}: {one.reason}"))
        counts = f"{len(found.won)} won, {len(found.lost)} lost, {len(found.same)} the same"
        _head(("tasks", counts if found.pairs else "were not kept one by one with this evaluation"))
        shown = [*found.won, *found.lost, *(found.same if everything else ())]
        _table(("task", "before", "after", "change"), [_pair(each) for each in shown])
    pairs = {name: [asdict(each) for each in getattr(found, name)] for name in ("won", "lost", "same")}
    return {"evaluation": _evaluation_json(one), **pairs}


def releases(*, store: str | None, stage: str | None, limit: int, quiet: bool) -> dict[str, Any]:
    with _opened(store) as registry:
        found = registry.releases(stage=Stage(stage) if stage else None, limit=limit)
    if not quiet:
        rows = [(each.candidate_id, each.stage.value, _minute(each.moves[-1].at), _reason(each.moves[-1])) for each in found]
        _listed("releases", ("candidate", "stage", "since", "reason"), rows, store)
    return {"releases": [_release_json(each) for each in found]}


def release(store: str | None, candidate_id: str, *, quiet: bool) -> dict[str, Any]:
    with _opened(store) as registry:
        found = registry.release(candidate_id)
        stands_on = registry.evaluations(candidate_id=found.candidate_id)
    if not quiet:
        _head(("candidate", found.candidate_id), ("stage", found.stage.value))
        for each in stands_on:
            _head(("evaluated", f"{_passed(each.passed)}: {each.reason}"))
        _table(("stage", "at", "reason"), [(move.stage.value, _minute(move.at), _reason(move)) for move in found.moves])
    return {"release": _release_json(found), "evaluations": [_evaluation_json(each) for each in stands_on]}


def history(store: str | None, *, limit: int, quiet: bool) -> dict[str, Any]:
    with _opened(store) as registry:
        moves = [(release.candidate_id, move) for release in registry.releases() for move in reversed(release.moves)]
    # Sorting is stable: of two moves at one moment the later stays first.
    moves = sorted(moves, key=lambda each: each[1].at, reverse=True)[:limit]
    if not quiet:
        rows = [(id, move.stage.value, _minute(move.at), _reason(move)) for id, move in moves]
        _listed("releases", ("candidate", "stage", "at", "reason"), rows, store)
    return {"moves": [{"candidate_id": id, **_move_json(move)} for id, move in moves]}


@contextmanager
def _opened(url: str | None) -> Iterator[Registry]:
    with Registry.open(_where(url)) as registry:
        yield registry


def _where(url: str | None) -> str:
    return settings.load().store_url if url is None else as_url(url)


def _head(*rows: tuple[str, str]) -> None:
    for name, value in rows:
        if value:
            console().print(Text.assemble((f"{name:<10} ", "dim"), plain(value)), soft_wrap=True)


def _listed(what: str, names: Sequence[str], rows: Sequence[Sequence[str]], store: str | None) -> None:
    if rows:
        _table(names, rows)
    else:
        click.echo(f"There are no such {what} in {redacted(_where(store))}. {_HOW[what]}.", err=True)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table whose first column is never cut, as people copy it; of the others the last gives way first."""
    if not rows:
        return
    last = len(names) - 1
    columns = []
    for place, (name, cells) in enumerate(zip(names, zip(*rows, strict=True), strict=True)):
        told = [Text(short(cell, 300)) for cell in cells]
        longest = max(len(cell.plain) for cell in (Text(name), *told))
        least = longest if place == 0 else _SHORTEST if place == last else min(longest, _LONGEST)
        columns.append(Column(name=name, words=True, spare=place and last + 1 - place, least=least, cells=told))
    screen = console()
    screen.print(fitted(columns, screen.width))


def _minute(at: datetime) -> str:
    """On this machine's clock."""
    return f"{at.astimezone():%Y-%m-%d %H:%M}"


def _took(run: RunRecord) -> str:
    if run.ended_at is None:
        return ""
    minutes, seconds = divmod(round((run.ended_at - run.started_at).total_seconds()), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {seconds} s"


def _outcome(run: RunRecord) -> str:
    """What a run says of itself in one line: the gate's sentence, where it had one."""
    return str((run.result or {}).get("reason") or "")


def _totals(totals: AttemptTotals) -> str:
    score = "unknown" if totals.mean_score is None else f"{totals.mean_score:.3f}"
    unscored = f" ({totals.unscored} unscored)" if totals.unscored else ""
    tokens = "unknown" if totals.tokens is None else f"{totals.tokens:,}"
    return f"{totals.attempts} {totals.split.value}, mean score {score}{unscored}, {tokens} tokens, {dollars(totals.cost)}"


def _settings(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in config.items() if value not in (None, "", [], {}))


def _value(value: Any) -> str:
    return "—" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _passed(passed: bool | None) -> str:
    return "" if passed is None else "passed" if passed else "not passed"


def _gain(evaluation: EvaluationRecord) -> str:
    gain = evaluation.report.get("gain")
    return f"{gain:+.3f}" if isinstance(gain, float | int) else "unknown"


def _pair(pair: Pair) -> tuple[str, str, str, str]:
    return pair.task_id, f"{pair.baseline:.3f}", f"{pair.candidate:.3f}", f"{pair.difference:+.3f}"


def _reason(move: Move) -> str:
    return f"forced: {move.reason}" if move.forced else move.reason


def _run_json(run: RunRecord) -> dict[str, Any]:
    times = {"started_at": run.started_at.isoformat(), "ended_at": run.ended_at.isoformat() if run.ended_at else None}
    return {**asdict(run), **times, "state": run.state.value}


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    return {"id": candidate.id, "kind": candidate.kind.value, "parents": list(candidate.parents)}


def _evaluation_json(evaluation: EvaluationRecord) -> dict[str, Any]:
    report = _without_pairs(evaluation.report)
    if isinstance(inner := report.get("report"), Mapping):
        report["report"] = _without_pairs(inner)
    return {**asdict(evaluation), "run_id": evaluation.run_id, "report": report, "at": evaluation.at.isoformat()}


def _without_pairs(report: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if name != "pairs"}


def _move_json(move: Move) -> dict[str, Any]:
    return {"stage": move.stage.value, "reason": move.reason, "at": move.at.isoformat(), "forced": move.forced}


def _release_json(release: Release) -> dict[str, Any]:
    moves = [_move_json(move) for move in release.moves]
    return {"candidate_id": release.candidate_id, "stage": release.stage.value, "moves": moves}
