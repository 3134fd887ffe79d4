"""Plans as JSON: in files, in logs, on traces.

    {"instruction": "…",
     "subtasks": [{"id": "read", "text": "…"}, {"id": "sum", "text": "…", "after": ["read"], "worker": "…"}]}

What is as it is by default is left out.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from journeyman.errors import PlanError
from journeyman.plan import Plan, Subtask

_TEXTS = ("id", "text", "type", "tool", "worker")
_LISTS = ("after", "takes", "gives")


def written(plan: Plan) -> dict[str, Any]:
    """The plan as a JSON object."""
    return {"instruction": plan.instruction, "subtasks": [_row(subtask) for subtask in plan.subtasks]}


def read(value: Any) -> Plan:
    """The plan that a JSON object tells of; its subtasks may come in any order.

    Raises:
        PlanError: It is none; the message names the subtask and field.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("instruction"), str):
        raise PlanError('a plan is an object with "instruction", a text, and "subtasks", a list')
    rows = value.get("subtasks")
    if not isinstance(rows, list | tuple):
        raise PlanError('subtasks: a plan has a list of objects with at least "id" and "text"')
    return Plan.of(value["instruction"], [_subtask(row, at) for at, row in enumerate(rows, start=1)])


def _row(subtask: Subtask) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for field in fields(Subtask):
        value = getattr(subtask, field.name)
        default = {} if field.default is MISSING else field.default
        if value != default:
            row[field.name] = dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
    return row


def _subtask(row: Any, number: int) -> Subtask:
    if not isinstance(row, Mapping):
        raise PlanError(f"subtask {number} is no object")
    where = f"subtask {row.get('id', number)!r}"
    if strange := set(row) - {field.name for field in fields(Subtask)}:
        raise PlanError(f"{where} has a field {min(map(str, strange))!r}, which no subtask has")
    for name in _TEXTS:
        if not isinstance(row.get(name, None if name in ("id", "text") else ""), str):
            raise PlanError(f"{where}: {name} is missing, or no text")
    for name in _LISTS:
        value = row.get(name, ())
        if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
            raise PlanError(f"{where}: {name} is no list of texts")
    if not isinstance(row.get("arguments", {}), Mapping):
        raise PlanError(f"{where}: arguments is no object")
    lists = {name: tuple(row[name]) for name in _LISTS if name in row}
    return Subtask(**{**row, **lists})
