"""The list's filters: as fields of an address, and as a query of the store."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from journeyman.core.errors import InputError
from journeyman.stores.traces.base import Query

FIELDS = (
    "q", "agent", "model", "tool", "label", "error", "min_reward", "max_reward", "since", "until",
    "task", "session", "domain", "source", "candidate",
)  # fmt: skip
"""The first ten have a field in the form; the others come by links."""
_ANSWERS = {"yes": True, "no": False}
_LABELS = ("good", "bad", "none", "some")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def typed(fields: Mapping[str, str]) -> dict[str, str]:
    """The filters among the fields of an address, as they were typed: a blank behind a word that is looked for ends it."""
    return {key: fields[key].lstrip() if key == "q" else fields[key].strip() for key in FIELDS if fields.get(key, "").strip()}


def query(typed: Mapping[str, str], now: datetime) -> Query:
    """What the filters mean.

    Raises:
        InputError: One of them means nothing; the message names it.
    """
    label = typed.get("label")
    if label not in (None, *_LABELS):
        raise InputError(f"label: {label!r} is none of {', '.join(_LABELS)}")
    if typed.get("error") not in (None, *_ANSWERS):
        raise InputError(f"error: {typed['error']!r} is neither yes nor no")
    return Query(
        agent=typed.get("agent"),
        model=typed.get("model"),
        tool=typed.get("tool"),
        task_id=typed.get("task"),
        session=typed.get("session"),
        domain=typed.get("domain"),
        source=typed.get("source"),
        candidate_id=typed.get("candidate"),
        label={"good": True, "bad": False}.get(label or ""),
        labelled={"none": False, "some": True}.get(label or ""),
        min_reward=_number(typed, "min_reward"),
        max_reward=_number(typed, "max_reward"),
        failed=_ANSWERS.get(typed.get("error", "")),
        text=typed.get("q"),
        since=_moment(typed, "since", now),
        until=_moment(typed, "until", now),
    )


def _number(typed: Mapping[str, str], field: str) -> float | None:
    text = typed.get(field)
    if text is None:
        return None
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)", text, re.ASCII) or len(text) > 20:
        raise InputError(f"{field.replace('_', ' ')}: {text!r} is no number, such as 0.5")
    return float(text)


def _moment(typed: Mapping[str, str], field: str, now: datetime) -> datetime | None:
    """`7d` is that long ago; else a date or time, in UTC where it names no zone."""
    text = typed.get(field)
    if text is None:
        return None
    try:
        if ago := re.fullmatch(r"(\d{1,6})\s*([mhdw])", text, re.ASCII):
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InputError(
            f"{field}: {text!r} is no time, such as 2026-01-31, 2026-01-31 18:00 or 24h for the last day"
        ) from None
