"""Values as a reader sees them. What is unknown is said so, and is never 0."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from journeyman.core.format import money as money
from journeyman.core.format import seconds as seconds

_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_PRETTY_UP_TO = 200_000
"""Characters of a JSON text that is set out in lines; a longer one is shown as it came."""


def visible(value: Any) -> Any:
    """A text in which nothing hides: control characters, marks that turn the direction of writing and halves of surrogate
    pairs are written as `[U+202E]`. Anything else passes as it is."""
    if type(value) is not str:
        return value
    return _HIDDEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", value.replace("\r\n", "\n"))


def count(value: float | None) -> str:
    """12,345; or `unknown`."""
    return "unknown" if value is None else f"{value:,.0f}"


def short(value: int | None) -> str:
    """12.3k; or `?`."""
    if value is None:
        return "?"
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}" if value < 999.5 * size else f"{value / size:.0f}{unit}"
    return str(value)


def share(value: float | None) -> str:
    """0.25 as 25%; or `?`."""
    return "?" if value is None else f"{value:.0%}" if value in (0, 1) or 0.01 <= value <= 0.99 else f"{value:.1%}"


def reward(value: float | None) -> str:
    """Two digits behind the point; or `unknown`."""
    return "unknown" if value is None else f"{value:.2f}"


def when(value: datetime, *, now: datetime | None = None) -> str:
    """A time in UTC: of today the hour, else the date as well. 1970 stands for a record that had no time."""
    moment = value.astimezone(UTC)
    if moment.timestamp() == 0:
        return "no time"
    if now is not None and moment.date() == now.astimezone(UTC).date():
        return f"{moment:%H:%M:%S}"
    return f"{moment:%Y-%m-%d %H:%M}"


def pretty(text: str) -> str:
    """JSON set out in lines; any other text as it is."""
    if text.lstrip()[:1] not in ("{", "[") or len(text) > _PRETTY_UP_TO:
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def raw(value: Any) -> str:
    """What a recorder noted beside, as JSON."""
    try:
        return json.dumps(
            value, indent=2, ensure_ascii=False, default=lambda odd: dict(odd) if isinstance(odd, Mapping) else str(odd)
        )
    except (ValueError, TypeError, RecursionError):
        return repr(value)


def one_line(text: str, most: int = 120) -> str:
    """The beginning of a text, its white space folded."""
    folded = " ".join(text[: 4 * most].split())
    return folded if len(folded) <= most and len(text) <= 4 * most else folded[: most - 1].rstrip() + "…"
