"""What became of each task of a run, in order, from whatever it was recorded in."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from journeyman.errors import InputError
from journeyman.stores.base import AttemptRecord
from journeyman.task import Split
from journeyman.tasks import rows

_TOKENS = ("tokens", "tokens_used", "total_tokens")
_COST = ("cost", "cost_usd")
_SCORE = ("score", "performance_score")
_GROUP = ("category", "domain")
_HINT = 'a row is {"task_id": …, "score": 0 to 1 or null, "tokens": …, "cost": …, "category": …}, each but the first optional'


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One task. What is not known of it is `None`."""

    name: str
    group: str = ""
    """Its kind: like is compared with like."""
    success: bool | None = None
    score: float | None = None
    """0 to 1."""
    tokens: float | None = None
    """In and out."""
    cost: float | None = None
    """US dollars."""


def of_attempts(attempts: Iterable[AttemptRecord]) -> tuple[Point, ...]:
    """The attempts of a run in the order in which they began, without those at held-out tasks: nothing was learned there."""
    learning = sorted((a for a in attempts if a.split is not Split.HELD_OUT), key=lambda a: a.trace.started_at)
    return tuple(
        Point(
            name=attempt.trace.task_id,
            group=attempt.trace.domain,
            success=None if attempt.score.total is None else attempt.score.total >= 1,
            score=attempt.score.total,
            tokens=attempt.tokens if attempt.trace.calls else None,
            cost=attempt.trace.cost if attempt.trace.calls else None,
        )
        for attempt in learning
    )


def read(path: Path) -> tuple[Point, ...]:
    """The points in a file: a `training_results_*.json`, or rows as JSON lines or a JSON list, in the order of the file.

    Raises:
        InputError: It is neither, or rows of it cannot be used; they are named.
    """
    bad = rows.Complaints(f"{path} holds rows that cannot be used; {_HINT}")
    results = rows_of(path)
    if results is None:
        found = [(row.where, row.value) for row in rows.read(path, bad)]
    else:
        found = [(f"{path}: results[{number}]", row) for number, row in enumerate(results)]
    points = [_point(row, where, bad) for where, row in found]
    bad.check()
    if not points:
        raise InputError(f"{path} holds no tasks: there is nothing to draw")
    return tuple(points)


def rows_of(path: Path) -> Sequence[Any] | None:
    """The rows of a results file, flat; `None` when it is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        # Told better by who reads it line by line.
        return None
    listed = found.get("results") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        return None
    return [_flat(row) if isinstance(row, dict) else {} for row in listed]


def _flat(row: Mapping[str, Any]) -> Mapping[str, Any]:
    scenario, metadata = row.get("scenario"), row.get("metadata")
    named = {"task_id": scenario.get("name"), "category": scenario.get("category")} if isinstance(scenario, dict) else {}
    return {**row, **named, **(metadata if isinstance(metadata, dict) else {})}


def _point(row: Mapping[str, Any], where: str, bad: rows.Complaints) -> Point:
    score = _number(row, _SCORE, where, bad)
    if score is not None and score > 1:
        bad.add(where, f"score is {score:g}, and must be between 0 and 1, or null")
    success = row.get("success")
    if success is None:
        success = None if score is None else score >= 1
    elif not isinstance(success, bool):
        bad.add(where, f"success is {success!r}, and must be true, false or null")
    name = row.get("task_id")
    if not isinstance(name, str | int) or name == "":
        bad.add(where, "no task_id")
    return Point(
        name=str(name),
        group=str(_first(row, _GROUP) or ""),
        success=success,
        score=score,
        tokens=_tokens(row, where, bad),
        cost=_number(row, _COST, where, bad),
    )


def _tokens(row: Mapping[str, Any], where: str, bad: rows.Complaints) -> float | None:
    if _first(row, _TOKENS) is not None:
        return _number(row, _TOKENS, where, bad)
    both = [_number(row, (name,), where, bad) for name in ("input_tokens", "output_tokens")]
    known = [count for count in both if count is not None]
    return sum(known) if len(known) == len(both) else None


def _number(row: Mapping[str, Any], names: Sequence[str], where: str, bad: rows.Complaints) -> float | None:
    value = _first(row, names)
    if value is None:
        return None
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        bad.add(where, f"{names[0]} is {value!r}, and must be a number from 0 on, or null")
        return None
    return float(value)


def _first(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)
