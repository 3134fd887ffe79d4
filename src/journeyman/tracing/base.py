"""What is captured: what others recorded, as traces."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from journeyman.core.trace import Trace

NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands for the time of a trace whose record has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTrace:
    """A trace, and what else its record held that is not part of what the agent did."""

    trace: Trace
    reward: float | None = None
    """What the recorder says it was worth. No reward of ours may read it."""
    goal: tuple[tuple[str, Mapping[str, Any]], ...] = field(default=())
    """The tool calls that solve the task, where the record tells them."""
    name: str = ""
    """What the record itself calls it, which need not be unique: the id of its trace then is."""
    where: str = ""
    """Of what was read from a file, the file and line."""
    format: str = ""
    """Of what was read from a file, its format. A trace of our own format keeps the `source` that it came in by at first."""


def has_failed(said: bool | None, result: str) -> bool:
    """Whether a tool failed: as its record says (`said`), and where that says nothing as its answer does."""
    return failed(result) if said is None else said


_WORDS = ("error", "exception", "traceback", "fatal:")
_FALSE = ("success", "ok")


def failed(result: str) -> bool:
    """Whether a tool's answer says that it failed.

    It does when it begins with "Error", "Exception", "Traceback" or "fatal:", or is a JSON object with a true "error" or
    "is_error", a false "success" or "ok", or the status "error" or "failed". Anything else is taken for an answer.
    """
    text = result.lstrip()
    if text[:10].lower().startswith(_WORDS):
        return True
    if not text.startswith("{") or len(text) > 100_000:
        return False
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return (
        any(answer.get(key) for key in ("error", "is_error", "isError"))
        or any(answer.get(key) is False for key in _FALSE)
        or str(answer.get("status")).lower() in ("error", "failed", "failure")
    )
