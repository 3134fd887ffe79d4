"""Statistics as rows of bars, drawn here as SVG: no style stands in the page, so none can be injected."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from journeyman.dashboard import words
from journeyman.stores.traces.base import Group

DAYS = 60
"""Shown at most, the last ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One day of a chart. Heights are of 100."""

    name: str
    x: float
    width: float
    height: float
    part: float
    """How much of the height, from below, is marked."""
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    title: str
    top: str
    """What the full height stands for."""
    columns: tuple[Column, ...]
    first: str
    last: str


def by_day(groups: Sequence[Group]) -> list[Chart]:
    """Traces with errors marked, cost, and time, a column a day. Days without traces have a place too."""
    days = _days(groups)
    if not days:
        return []
    return [
        _chart("Traces", days, lambda g: g.traces, lambda g: g.errors, words.count, "with errors"),
        _chart("Cost", days, lambda g: g.cost, None, lambda v: words.money(v or 0.0), ""),
        _chart("Seconds, p95", days, lambda g: g.p95_seconds, lambda g: g.median_seconds, words.seconds, "median"),
    ]


def _days(groups: Sequence[Group]) -> list[tuple[str, Group | None]]:
    found = {group.name: group for group in groups[-DAYS:]}
    if not found:
        return []
    try:
        last = date.fromisoformat(max(found))
        first = max(date.fromisoformat(min(found)), last - timedelta(days=DAYS - 1))
    except ValueError:
        return list(found.items())
    names = [(first + timedelta(days=day)).isoformat() for day in range((last - first).days + 1)]
    return [(name, found.get(name)) for name in names]


def _chart(
    title: str,
    days: Sequence[tuple[str, Group | None]],
    of: Callable[[Group], float | None],
    part: Callable[[Group], float | None] | None,
    write: Callable[[float | None], str],
    part_name: str,
) -> Chart:
    values = [of(group) if group else None for _, group in days]
    top = max((value for value in values if value), default=0.0)
    step = 100 / max(len(days), 7)
    columns = []
    for place, ((name, group), value) in enumerate(zip(days, values, strict=True)):
        marked = part(group) if part and group else None
        says = f"{name}: {write(value) if group else 'no traces'}"
        if part_name and marked:
            says += f", {part_name} {write(marked)}"
        columns.append(
            Column(
                name=name,
                x=round(place * step, 3),
                width=round(step * 0.82, 3),
                height=_height(value, top),
                part=_height(marked, top),
                says=says,
            )
        )
    return Chart(title=title, top=write(top), columns=tuple(columns), first=days[0][0], last=days[-1][0])


def _height(value: float | None, top: float) -> float:
    """What is there is seen, however little."""
    return 0.0 if not value or top <= 0 else round(max(1.5, 100 * value / top), 2)
