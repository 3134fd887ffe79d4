"""Figures over many traces: counted at most a small share of the time, and drawn over time."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from time import monotonic
from typing import Any, Generic, Self, TypeVar

from journeyman.core.errors import InputError
from journeyman.serving.dashboard.charts import Chart, ChartPoint, Series
from journeyman.serving.dashboard.layout import count, encoded, money, reward, seconds, share
from journeyman.stores.traces.base import MOST_STEPS, STEPS_FROM, Query, Statistics, StatisticsGroup

Value = TypeVar("Value")
SHARE = 20
"""A value is shown for this many times as long as it took to count: counting takes a twentieth of the time at most."""
LONGEST = 60.0
"""Seconds, after which it is counted again whatever it took."""
KEPT = 64


@dataclass(frozen=True, slots=True)
class Counted(Generic[Value]):
    """A value, and how old it may get."""

    value: Value
    at: datetime
    until: float


class SharedCache(Generic[Value]):
    """Values by key, for several threads: of those who want the same one at once, one counts and the others wait."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[object, Counted[Value]] = OrderedDict()
        self._locks: dict[object, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: object, count: Callable[[], Value]) -> Counted[Value]:
        """The value of a key, counted now or a short while ago."""
        with self._lock:
            turn = self._locks.setdefault(key, threading.Lock())
        with turn:
            known = self._known.get(key)
            if known is not None and self._clock() < known.until:
                return known
            began = self._clock()
            value = count()
            now = self._clock()
            counted = Counted(value, datetime.now(UTC), now + min(LONGEST, SHARE * (now - began)))
            with self._lock:
                self._known[key] = counted
                self._known.move_to_end(key)
                while len(self._known) > KEPT:
                    self._locks.pop(self._known.popitem(last=False)[0], None)
            return counted


class VersionedCache(Generic[Value]):
    """Values by key, each counted again only when another version is there of what it is made of: what is shown holds now."""

    def __init__(self) -> None:
        self._known: dict[object, tuple[object, Value]] = {}

    def get(self, key: object, version: object, count: Callable[[], Value]) -> Value:
        """The value of a key. `version` was read before: what changes meanwhile has another one the next time."""
        known = self._known.get(key)
        if known is None or known[0] != version:
            self._known[key] = known = (version, count())
        return known[1]


# Tables of statistics.

FIRST, ROWS = 10, 50
"""Rows of each of several tables on a page, and of one that stands alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePart(Generic[Value]):
    """The rows of a table that a page has room for."""

    rows: Sequence[Value]
    first: int
    """How many stand before them."""
    next: int | None
    """How many stand before those of the next page; `None` where there is none."""
    total: int | None
    """How many there are; `None` where nobody has counted."""

    @classmethod
    def of(cls, rows: Sequence[Value], after: str = "", *, many: int = ROWS, total: int | None = None) -> Self:
        """
        Args:
            rows: All of them, or as many as `needed` says.
            after: How many to leave out, as an address says it; where there are no others, the last ones are given.
        """
        first = min(_number(after), max(0, len(rows) - 1) // many * many)
        following = first + many if len(rows) > first + many else None
        return cls(rows=rows[first : first + many], first=first, next=following, total=total)


def needed(after: str) -> int:
    """How many rows of a table tell all of a part, and whether there are others."""
    return _number(after) + ROWS + 1


def _number(after: str) -> int:
    return int(after) if after.isascii() and after.isdecimal() and len(after) < 9 else 0


def table_parts(found: Statistics, alone: str, after: str) -> Mapping[str, TablePart[Any]]:
    """The beginning of each table of statistics by its name; of one that is asked for alone, a whole page of it.

    Raises:
        InputError: There is no table of that name.
    """
    tables: Mapping[str, Sequence[Any]] = {
        "candidate": found.by_candidate, "agent": found.by_agent, "model": found.by_model, "tool": found.tools,
        "day": found.by_day[::-1],
    }  # fmt: skip
    if alone and alone not in tables:
        raise InputError(f"table: one of {', '.join(tables)}")
    return {
        name: TablePart.of(rows, after if alone else "", many=ROWS if alone else FIRST, total=len(rows))
        for name, rows in tables.items()
        if rows and alone in ("", name)
    }


# Statistics over time.

NO_DAY = "1970-01-01"
"""Stands for records that had no time."""
DAY = timedelta(days=1)


def over_time(groups: Sequence[StatisticsGroup], typed: Mapping[str, str], query: Query, every: timedelta = DAY) -> list[Chart]:
    """Traces with errors marked, the score with its interval, cost and time, step by step; the last ones where there are very
    many. Steps without traces have a place too; what is not known of a step is a gap."""
    steps = _steps([group for group in groups if group.name != NO_DAY], every)
    if not steps:
        return []
    number, unit = next((every // each, name) for each, name in _UNITS if not every % each)
    of = f"by {unit}" if number == 1 else f"every {number} {unit}s"

    meant = [
        (_named(begin, every), "/traces" + encoded({**typed, **of_step(group.name, query, every)}) if group else "")
        for begin, group in steps
    ]

    def points(value: _Of, write: Callable[[StatisticsGroup], str] | None, **more: _Of) -> tuple[ChartPoint, ...]:
        return tuple(
            _point(float((begin - STEPS_FROM) // every), group, value, write, more, called)
            for (begin, group), called in zip(steps, meant, strict=True)
        )

    def chart(title: str, label: Callable[[float], str], *series: Series, **more: Any) -> Chart:
        says = f"{title}, {_named(steps[0][0], every)} to {_named(steps[-1][0], every)}"
        known = any(point.y is not None for each in series for point in each.points)
        says = says if known else f"{title}: unknown"
        return Chart(title=title, says=says, series=series, label=label, x_label=partial(_step_label, every=every), **more)

    traces = points(lambda g: g.traces, _with_errors, part=lambda g: g.errors)
    score = points(lambda g: g.mean_reward, _scored, low=lambda g: g.reward_low, high=lambda g: g.reward_high)
    cost = points(lambda g: g.cost, lambda g: money(g.cost))
    times = points(lambda g: g.p95_seconds, lambda g: f"median {seconds(g.median_seconds)}, p95 {seconds(g.p95_seconds)}")
    charts = [
        chart(f"Traces {of}, with errors marked", count, Series(name="traces", points=traces), kind="bars", whole=True),
        chart("Score", share, Series(name="score", points=score), kind="whiskers", low=0.0, high=1.0),
        chart(f"Cost {of}", money, Series(name="cost", points=cost), kind="bars"),
        chart(
            "Latency",
            seconds,
            Series(name="p95", points=times),
            Series(name="median", points=points(lambda g: g.median_seconds, None), style="baseline"),
            low=0.0,
        ),
    ]
    return [each for each in charts if each.title != "Score" or each.drawings]


_Of = Callable[[StatisticsGroup], float | None]
_MINUTE = timedelta(minutes=1)
_UNITS = (
    (timedelta(weeks=1), "week"), (DAY, "day"), (60 * _MINUTE, "hour"), (_MINUTE, "minute"), (timedelta(seconds=1), "second")
)  # fmt: skip


def _with_errors(group: StatisticsGroup) -> str:
    return count(group.traces) + (f", {count(group.errors)} with errors" if group.errors else "")


def _scored(group: StatisticsGroup) -> str:
    said = reward(group.mean_reward)
    interval = f" ({reward(group.reward_low)} … {reward(group.reward_high)}) of {group.rewarded} scored"
    return said if group.reward_low is None else said + interval


def _named(begin: datetime, every: timedelta) -> str:
    if every < DAY:
        return f"{begin:%Y-%m-%d} {_clock(begin, every)}"
    last = min(begin, datetime.max.replace(tzinfo=UTC) - every) + every - DAY
    return f"{begin:%Y-%m-%d}" if every == DAY else f"{begin:%Y-%m-%d} to {last:%Y-%m-%d}"


@lru_cache(maxsize=1024)
def _step_label(number: float, *, every: timedelta) -> str:
    begin = STEPS_FROM + int(number) * every
    return _clock(begin, every) if every < DAY else f"{begin:%b %-d}" if every <= 7 * DAY else f"{begin:%b %Y}"


def _clock(begin: datetime, every: timedelta) -> str:
    return f"{begin:%H:%M:%S}" if every < _MINUTE else f"{begin:%H:%M}"


def _steps(groups: Sequence[StatisticsGroup], every: timedelta) -> list[tuple[datetime, StatisticsGroup | None]]:
    found = {datetime.fromisoformat(group.name).replace(tzinfo=UTC): group for group in groups[-MOST_STEPS:]}
    if not found:
        return []
    first = max(min(found), max(found) - (MOST_STEPS - 1) * every)
    begins = (first + step * every for step in range((max(found) - first) // every + 1))
    return [(begin, found.get(begin)) for begin in begins]


def _point(
    x: float,
    group: StatisticsGroup | None,
    value: _Of,
    write: Callable[[StatisticsGroup], str] | None,
    more: Mapping[str, _Of],
    meant: tuple[str, str],
) -> ChartPoint:
    if write is None:
        return ChartPoint(x=x, y=None if group is None else value(group))
    named, link = meant
    if group is None:
        return ChartPoint(x=x, y=None, says=f"{named}: no traces")
    beside = {name: of(group) for name, of in more.items()}
    return ChartPoint(x=x, y=value(group), says=f"{named}: {write(group)}", link=link, count=group.traces, **beside)


def of_step(name: str, query: Query, every: timedelta = DAY) -> dict[str, str]:
    """The filters that leave, of the traces of a query, those of a step."""
    begin = datetime.fromisoformat(name).replace(tzinfo=UTC)
    since = begin if query.since is None else max(begin, query.since.astimezone(UTC))
    found = {"since": name if since == begin else since.isoformat()}
    if begin <= datetime.max.replace(tzinfo=UTC) - every:
        end = begin + every
        before = query.until is not None and query.until < end
        whole = end.date().isoformat() if every >= DAY else f"{end:%Y-%m-%d}T{_clock(end, every)}"
        found["until"] = query.until.astimezone(UTC).isoformat() if query.until is not None and before else whole
    return found
