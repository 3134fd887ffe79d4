"""What the traces of a query come to: added up by the database, by agent and day at once, and put together here.

Medians and 95th percentiles are exact, interpolated between the two nearest as NumPy does; they need every duration.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import sqlalchemy as sa

from journeyman.stores.traces.base import Group, Statistics, ToolUse
from journeyman.stores.traces.tables import TRACE_MODELS, TRACE_TOOLS, TRACES, moment

_DAY = timedelta(days=1) // timedelta(microseconds=1)
_ALL = "all"
Sums = dict[str, float]
Name = tuple[str, str]
"""What is grouped by, and which one: ("agent", "desk")."""


def statistics(connection: sa.Connection, where: Sequence[sa.ColumnElement[bool]]) -> Statistics:
    sums: dict[Name, Sums] = defaultdict(lambda: defaultdict(float))
    times: dict[Name, list[float]] = defaultdict(list)
    _add_traces(connection, where, sums, times)
    _add_models(connection, where, sums, times)
    groups = {name: _group(name[1], found, times[name]) for name, found in sums.items()}
    return Statistics(
        all=groups.get((_ALL, _ALL)) or _group(_ALL, defaultdict(float), []),
        by_agent=_of("agent", groups),
        by_model=_of("model", groups),
        by_day=tuple(sorted(_of("day", groups), key=lambda group: group.name)),
        tools=_tools(connection, where),
    )


def _of(kind: str, groups: Mapping[Name, Group]) -> tuple[Group, ...]:
    return tuple(
        sorted((group for name, group in groups.items() if name[0] == kind), key=lambda each: (-each.traces, each.name))
    )


def _day() -> sa.ColumnElement[int]:
    # Rounded down, also before 1970.
    at = sa.type_coerce(TRACES.c.started_at, sa.BigInteger)
    return (at - ((at % _DAY) + _DAY) % _DAY).label("day")


def _names(agent: str | None, day: int) -> tuple[Name, ...]:
    return (_ALL, _ALL), ("agent", agent or ""), ("day", f"{moment(int(day)):%Y-%m-%d}")


def _count(what: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
    return sa.func.sum(sa.case((what, 1), else_=0))


_OF_TRACES: Mapping[str, sa.ColumnElement[Any]] = {
    "traces": sa.func.count(),
    "tool_calls": sa.func.sum(TRACES.c.tool_calls),
    "failed_tool_calls": sa.func.sum(TRACES.c.failed_tool_calls),
    "errors": sa.func.count(TRACES.c.error),
    "good": _count(TRACES.c.label.is_(True)),
    "bad": _count(TRACES.c.label.is_(False)),
    "reward": sa.func.sum(TRACES.c.reward),
    "rewarded": sa.func.count(TRACES.c.reward),
}
_OF_MODELS: Mapping[str, sa.ColumnElement[Any]] = {
    "model_calls": sa.func.sum(TRACE_MODELS.c.calls),
    "input_tokens": sa.func.sum(TRACE_MODELS.c.input_tokens),
    "output_tokens": sa.func.sum(TRACE_MODELS.c.output_tokens),
    "uncounted": sa.func.sum(TRACE_MODELS.c.uncounted),
    "cost": sa.func.sum(TRACE_MODELS.c.cost),
    "unpriced": sa.func.sum(TRACE_MODELS.c.unpriced),
}


def _add_traces(connection: sa.Connection, where: Any, sums: dict[Name, Sums], times: dict[Name, list[float]]) -> None:
    day = _day()
    for agent, at, *found in connection.execute(
        sa.select(TRACES.c.agent, day, *_OF_TRACES.values()).where(*where).group_by(TRACES.c.agent, day)
    ):
        for name in _names(agent, at):
            _add(sums[name], _OF_TRACES, found)
    known = sa.select(TRACES.c.agent, day, TRACES.c.seconds).where(*where, TRACES.c.seconds.is_not(None))
    names: dict[tuple[str | None, int], tuple[Name, ...]] = {}
    for agent, at, seconds in connection.execute(known):
        key = (agent, at)
        for name in names.get(key) or names.setdefault(key, _names(agent, at)):
            times[name].append(seconds)


def _add_models(connection: sa.Connection, where: Any, sums: dict[Name, Sums], times: dict[Name, list[float]]) -> None:
    day = _day()
    joined = TRACE_MODELS.join(TRACES, TRACES.c.seq == TRACE_MODELS.c.trace)
    both = {**_OF_TRACES, **_OF_MODELS}
    grouped = (TRACE_MODELS.c.model, TRACES.c.agent, day)
    for model, agent, at, *found in connection.execute(
        sa.select(*grouped, *both.values()).select_from(joined).where(*where).group_by(*grouped)
    ):
        _add(sums["model", model], both, found)
        for name in _names(agent, at):
            _add(sums[name], _OF_MODELS, found[len(_OF_TRACES) :])
    known = sa.select(TRACE_MODELS.c.model, TRACE_MODELS.c.seconds).select_from(joined)
    for model, seconds in connection.execute(known.where(*where, TRACE_MODELS.c.seconds.is_not(None))):
        times["model", model].append(seconds)


def _add(to: Sums, names: Iterable[str], found: Sequence[float | None]) -> None:
    for name, value in zip(names, found, strict=True):
        to[name] += float(value or 0)


def _group(name: str, sums: Sums, seconds: Sequence[float]) -> Group:
    counts = {each: int(sums[each]) for each in _COUNTS}
    median, p95 = (float(at) for at in np.quantile(seconds, (0.5, 0.95))) if seconds else (None, None)
    mean = sums["reward"] / sums["rewarded"] if sums["rewarded"] else None
    return Group(name=name, **counts, mean_reward=mean, cost=float(sums["cost"]), median_seconds=median, p95_seconds=p95)


_COUNTS = (
    *("traces", "model_calls", "tool_calls", "failed_tool_calls", "errors", "good", "bad"),
    *("input_tokens", "output_tokens", "uncounted", "unpriced"),
)


def _tools(connection: sa.Connection, where: Sequence[sa.ColumnElement[bool]]) -> tuple[ToolUse, ...]:
    tool = TRACE_TOOLS.c
    sums = (sa.func.sum(column) for column in (tool.calls, tool.failures, tool.timed, tool.seconds))
    of_these = tool.trace.in_(sa.select(TRACES.c.seq).where(*where))
    rows = connection.execute(sa.select(tool.tool, *sums).where(of_these).group_by(tool.tool))
    uses = [
        ToolUse(
            tool=name, calls=int(calls), failures=int(failures), mean_seconds=float(seconds) / int(timed) if timed else None
        )
        for name, calls, failures, timed, seconds in rows
    ]
    return tuple(sorted(uses, key=lambda use: (-use.calls, use.tool)))
