"""What the traces of a query come to, added up from the digests of all traces: by agent, model and day, and the tools.

Medians and 95th percentiles are exact, interpolated between the two nearest as NumPy does.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from journeyman.stores.base import utc
from journeyman.stores.database import Database
from journeyman.stores.traces import digests
from journeyman.stores.traces.base import Group, Query, Statistics, ToolUse
from journeyman.stores.traces.digests import Columns, Name, Table, only
from journeyman.stores.traces.query import conditions
from journeyman.stores.traces.tables import TRACES, micros, moment

_DAY = timedelta(days=1) // timedelta(microseconds=1)
_ALL = "all"
Codes = npt.NDArray[np.int64]
"""Of each row, which group it belongs to."""
Mask = npt.NDArray[np.bool_]


def statistics(database: Database, query: Query) -> Statistics:
    digests.make(database)
    with database.read() as connection:
        columns = digests.read(connection)
        found = _only(columns, _meant(connection, query, columns))
    traces, models, names = found.traces, found.models, found.names
    of_call = np.searchsorted(traces["seq"], models["trace"])
    agents, agent = _merged(names["agent"], traces["agent"])
    days, day = np.unique(traces["at"] // _DAY, return_inverse=True)
    named = [f"{moment(int(at) * _DAY):%Y-%m-%d}" for at in days]
    (everything,) = _groups([_ALL], np.zeros(len(agent), np.int64), found, of_call)
    callers = only({name: traces[name] for name in _OF_TRACES}, of_call)
    by_model = _groups(
        [str(name) for name in names["model"]],
        models["model"],
        replace(found, traces=callers | {"seconds": models["seconds"]}),
        None,
    )
    return Statistics(
        all=everything,
        by_agent=_most_first(_groups(agents, agent, found, of_call)),
        by_model=_most_first(by_model),
        by_day=tuple(_groups(named, day, found, of_call)),
        tools=_tools(found),
    )


def _most_first(groups: Sequence[Group]) -> tuple[Group, ...]:
    return tuple(sorted((group for group in groups if group.traces), key=lambda each: (-each.traces, each.name)))


def _merged(names: Sequence[Name], code: Codes) -> tuple[list[str], Codes]:
    """No agent, and one without a name, are one group."""
    merged: dict[str, int] = {}
    places = [merged.setdefault(name or "", len(merged)) for name in names]
    return list(merged), np.array(places, np.int64)[code]


def _meant(connection: sa.Connection, query: Query, columns: Columns) -> Mask:
    traces, names = columns.traces, columns.names
    meant = np.ones(len(traces["seq"]), np.bool_)
    for name in ("agent", "domain", "source"):
        if (wanted := getattr(query, name)) is not None:
            meant &= traces[name] == _place(names[name], wanted)
    for name, flag in (("label", query.label), ("person", query.labelled), ("failed", query.failed)):
        if flag is not None:
            meant &= traces[name] == int(flag)
    for rows, name, wanted in ((columns.models, "model", query.model), (columns.tools, "tool", query.tool)):
        if wanted is not None:
            meant &= np.isin(traces["seq"], rows["trace"][rows[name] == _place(names[name], wanted)])
    return meant & _between(query, traces) & _looked_up(connection, query, traces["seq"])


def _between(query: Query, traces: Table) -> Mask:
    """What is unknown lies in no range: no comparison with NaN holds."""
    within = np.ones(len(traces["seq"]), np.bool_)
    if query.min_reward is not None:
        within &= traces["reward"] >= query.min_reward
    if query.max_reward is not None:
        within &= traces["reward"] <= query.max_reward
    if query.since is not None:
        within &= traces["at"] >= micros(utc(query.since))
    if query.until is not None:
        within &= traces["at"] < micros(utc(query.until))
    return within


def _place(names: Sequence[Name], wanted: str) -> int:
    return names.index(wanted) if wanted in names else -1


def _looked_up(connection: sa.Connection, query: Query, seqs: npt.NDArray[np.int64]) -> Mask:
    """What of the query the digests do not know is asked of the tables."""
    unknown = Query(task_id=query.task_id, session=query.session, candidate_id=query.candidate_id, text=query.text)
    if unknown == Query():
        return np.ones(len(seqs), np.bool_)
    rest = replace(unknown, since=query.since, until=query.until)
    found = connection.scalars(sa.select(TRACES.c.seq).where(*conditions(connection, rest)))
    return np.isin(seqs, np.fromiter(found, np.int64))


def _only(columns: Columns, meant: Mask) -> Columns:
    if meant.all():
        return columns
    seqs = columns.traces["seq"]
    models, tools = (only(rows, meant[np.searchsorted(seqs, rows["trace"])]) for rows in (columns.models, columns.tools))
    return Columns(only(columns.traces, meant), models, tools, columns.names)


_OF_TRACES = ("tool_calls", "failed_tool_calls", "error", "label", "reward")
_OF_CALLS = ("input_tokens", "output_tokens", "uncounted", "unpriced")


def _groups(names: Sequence[str], code: Codes, found: Columns, of_call: Codes | None) -> list[Group]:
    """A group for each name.

    Args:
        code: Of each row of the traces, the place of its group's name.
        of_call: Of each row of the models, the row of its trace; `None` where the rows of both are the same.
    """
    traces, calls = found.traces, found.models
    code_of_call = code if of_call is None else code[of_call]

    def count(what: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        return np.bincount(code, what, len(names)).astype(np.float64)

    def of_calls(name: str) -> npt.NDArray[np.float64]:
        return np.bincount(code_of_call, calls[name], len(names)).astype(np.float64)

    rewarded = ~np.isnan(traces["reward"])
    sums = {
        "traces": np.bincount(code, minlength=len(names)),
        "tool_calls": count(traces["tool_calls"]),
        "failed_tool_calls": count(traces["failed_tool_calls"]),
        "errors": count(traces["error"]),
        "good": count(traces["label"] == 1),
        "bad": count(traces["label"] == 0),
        "model_calls": of_calls("calls"),
        **{name: of_calls(name) for name in _OF_CALLS},
    }
    cost, reward, of = of_calls("cost"), count(np.where(rewarded, traces["reward"], 0)), count(rewarded)
    times = _quantiles(code, traces["seconds"], len(names))
    return [
        Group(
            name=name,
            **{each: int(found[at]) for each, found in sums.items()},
            cost=float(cost[at]),
            mean_reward=float(reward[at] / of[at]) if of[at] else None,
            median_seconds=times[at][0],
            p95_seconds=times[at][1],
        )
        for at, name in enumerate(names)
    ]


def _quantiles(code: Codes, seconds: npt.NDArray[np.float64], groups: int) -> list[tuple[float | None, float | None]]:
    """Of each group the median and the 95th percentile of what is known."""
    known = ~np.isnan(seconds)
    code, seconds = code[known], seconds[known]
    if groups > 1:
        # Of 16 bits NumPy makes a radix sort.
        seconds = seconds[np.argsort(code.astype(np.uint16) if groups < 1 << 16 else code, kind="stable")]
    ends = [0, *np.cumsum(np.bincount(code, minlength=groups))]
    return [_quantiles_of(seconds[begin:end]) if end > begin else (None, None) for begin, end in pairwise(ends)]


def _quantiles_of(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    places = [share * (len(values) - 1) for share in (0.5, 0.95)]
    near = [min(int(place) + more, len(values) - 1) for place in places for more in (0, 1)]
    low, above_low, high, above_high = (float(value) for value in np.partition(values, near)[near])
    return low + (above_low - low) * (places[0] % 1), high + (above_high - high) * (places[1] % 1)


def _tools(found: Columns) -> tuple[ToolUse, ...]:
    names, rows = found.names["tool"], found.tools
    calls, failures, timed, seconds = (
        np.bincount(rows["tool"], rows[name], len(names)) for name in ("calls", "failures", "timed", "seconds")
    )
    uses = [
        ToolUse(
            tool=str(name),
            calls=int(calls[at]),
            failures=int(failures[at]),
            mean_seconds=float(seconds[at] / timed[at]) if timed[at] else None,
        )
        for at, name in enumerate(names)
        if calls[at]
    ]
    return tuple(sorted(uses, key=lambda use: (-use.calls, use.tool)))
