"""What the traces of a query come to, added up from the digests of all traces: by agent, model and day, and the tools.

Medians and 95th percentiles are exact, interpolated between the two nearest as NumPy does.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from itertools import pairwise, takewhile
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from journeyman.core.trace import MIRROR, OWN
from journeyman.stats import share_interval
from journeyman.stores.base import utc
from journeyman.stores.engine import Database
from journeyman.stores.tables import micros, moment
from journeyman.stores.traces.base import AGENTS, MOST_STEPS, STEPS_FROM, Query, Statistics, StatisticsGroup, ToolStatistics
from journeyman.stores.traces.digests import DIGESTED, NAMED, Name, blocks_of, body_of, kept_digests, make
from journeyman.stores.traces.query import conditions
from journeyman.stores.traces.tables import DIGEST_BLOCK, TRACE_DIGESTS, TRACES

Column = npt.NDArray[Any]
Table = dict[str, Column]
"""Columns of one length, by name."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Traces that are listed, in the order of their `seq`, with what each model and each tool did in them, and the candidates
    that they were served."""

    traces: Table
    models: Table
    tools: Table
    candidates: Table
    names: Mapping[str, Sequence[Name]]

    @property
    def tables(self) -> tuple[Table, ...]:
        return self.traces, self.models, self.tools, self.candidates


@dataclass(frozen=True, eq=False)
class _KnownDigests:
    """Digests put together, and of each block its stamp and its part of the whole."""

    stamps: Mapping[int, int]
    pieces: Mapping[int, Columns]
    whole: Columns

    def within(self, columns: Columns) -> "_KnownDigests":
        """The same as views of columns that begin with them: what is known is in memory once."""
        (whole,) = _split(columns, {0: self.whole}, (0,))
        return _KnownDigests(self.stamps, dict(zip(self.stamps, _split(whole, self.pieces, self.stamps), strict=True)), whole)

    @cached_property
    def unmirrored(self) -> int:
        source = self.whole.traces["source"]
        return int((source != _place(self.whole.names["source"], MIRROR)).sum())


class DigestCache:
    """What was read of the digests of one database, for several threads."""

    def __init__(self) -> None:
        self._known = _KnownDigests({}, {}, _together(()))
        self._last: tuple[tuple[object, ...], Columns] = ((), self._known.whole)
        """What was last put together, and what it came to: mostly nothing has happened since."""

    def read(self, connection: sa.Connection) -> Columns:
        """Of every trace: what is known already, digests that were made since, and where there is none the tables."""
        stamps = {block: stamp for block, stamp in connection.execute(kept_digests(TRACE_DIGESTS.c.format))}
        blocks = blocks_of(connection)
        first = list(takewhile(stamps.__contains__, blocks))
        known = self._complete(connection, {block: stamps[block] for block in first})
        rest = [body_of(connection, block) for block in blocks[len(first) :]]
        told = (known, *rest)
        last, columns = self._last
        if last != told:
            columns = _together([known.whole, *map(_unpacked, rest)])
            self._known = known = known.within(columns)
            self._last = (known, *told[1:]), columns
        return columns

    def count(self, connection: sa.Connection) -> int | None:
        """How many traces there are, mirrored ones left out; `None` where that would have to be read."""
        known, blocks = self._known, blocks_of(connection)
        stamps = {block: stamp for block, stamp in connection.execute(kept_digests(TRACE_DIGESTS.c.format))}
        if not known.stamps or known.stamps != stamps or stamps.keys() != set(blocks[:-1]):
            return None
        newest = (*conditions(connection, Query()), TRACES.c.seq >= blocks[-1] << DIGEST_BLOCK)
        return known.unmirrored + int(connection.scalar(sa.select(sa.func.count()).select_from(TRACES).where(*newest)) or 0)

    def _complete(self, connection: sa.Connection, stamps: Mapping[int, int]) -> _KnownDigests:
        # Another thread may know more or less: each goes by what its own transaction sees.
        known = self._known
        if known.stamps != stamps:
            new = [block for block, stamp in stamps.items() if known.stamps.get(block) != stamp]
            rows = connection.execute(kept_digests(TRACE_DIGESTS.c.body).where(TRACE_DIGESTS.c.block.in_(new)))
            pieces = {**known.pieces, **{block: _unpacked(body) for block, body in rows}}
            whole = _together([pieces[block] for block in stamps])
            known = _KnownDigests(stamps, {block: pieces[block] for block in stamps}, whole)
        return known


def _split(whole: Columns, pieces: Mapping[int, Columns], order: Iterable[int]) -> Iterator[Columns]:
    """The parts that a whole was put together of, as views of it."""
    begins = [0] * len(DIGESTED)
    for block in order:
        ends = [begin + len(next(iter(table.values()))) for begin, table in zip(begins, pieces[block].tables, strict=True)]
        traces, models, tools, candidates = (
            {name: column[begin:end] for name, column in table.items()}
            for table, begin, end in zip(whole.tables, begins, ends, strict=True)
        )
        yield Columns(traces, models, tools, candidates, whole.names)
        begins = ends


def only(table: Table, which: Column) -> Table:
    """The rows of a table that a mask lets through, or that stand at these places."""
    return {name: column[which] for name, column in table.items()}


def _unpacked(body: bytes) -> Columns:
    at = body.index(b"\n") + 1
    head = json.loads(body[:at])
    found: list[Table] = []
    for (_, columns), count in zip(DIGESTED, head["rows"], strict=True):
        table: Table = {}
        for name, kind in columns.items():
            table[name] = np.frombuffer(body, kind, count, at)
            at += table[name].nbytes
        found.append(table)
    traces, models, tools, candidates = found
    return Columns(traces, models, tools, candidates, head["names"])


def _together(blocks: Sequence[Columns]) -> Columns:
    names: dict[str, dict[Name, int]] = {name: {} for name in NAMED}
    places: dict[int, Mapping[str, Column | None]] = {}
    for block in blocks:
        # Parts of one whole have their names in common.
        if id(block.names) not in places:
            places[id(block.names)] = _places(block.names, names)
    found: list[Table] = []
    for at, (_, columns) in enumerate(DIGESTED):
        table: Table = {}
        for name, kind in columns.items():
            parts = [block.tables[at][name] for block in blocks]
            if name in names:
                place = [places[id(block.names)][name] for block in blocks]
                parts = [part if each is None else each[part] for each, part in zip(place, parts, strict=True)]
            table[name] = np.concatenate([np.zeros(0, kind), *parts])
        found.append(table)
    traces, models, tools, candidates = found
    return Columns(traces, models, tools, candidates, {name: list(known) for name, known in names.items()})


def _places(names: Mapping[str, Sequence[Name]], into: Mapping[str, dict[Name, int]]) -> Mapping[str, Column | None]:
    """Where the names of one block stand among those of all; `None` where they stand at the same places."""
    found: dict[str, Column | None] = {}
    for kind, some in names.items():
        place = np.array([into[kind].setdefault(name, len(into[kind])) for name in some], "<i4")
        found[kind] = None if (place == np.arange(len(place))).all() else place
    return found


_DAY = timedelta(days=1) // timedelta(microseconds=1)
_ALL = "all"
Codes = npt.NDArray[np.int64]
"""Of each row, which group it belongs to."""
Mask = npt.NDArray[np.bool_]


def statistics(database: Database, digests: DigestCache, query: Query) -> Statistics:
    make(database)
    with database.read() as connection:
        columns = digests.read(connection)
        found = _summable(_only(columns, _meant(connection, query, columns)))
    traces, models, names = found.traces, found.models, found.names
    of_call = _rows_of(traces["seq"], models["trace"])
    agents, agent = _merged(names["agent"], traces["agent"])
    days, day = _steps_of(traces["at"], _DAY)
    named = [f"{moment(int(at) * _DAY):%Y-%m-%d}" for at in days]
    by_day = tuple(_groups(named, day, found, of_call))
    every = _step(traces["at"])
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
        by_agent=_most_first(_parted(agents, agent, found, of_call, everything)),
        by_model=_most_first(by_model),
        by_day=by_day,
        by_candidate=_most_first(_by_candidate(found, everything)),
        tools=_tools(found),
        by_time=by_day if every == _DAY else tuple(_in_steps(found, every)),
        every=timedelta(microseconds=every),
    )


_DENSE = 1 << 20
"""Steps, or numbers of traces, up to which one is looked up in an array with a place for each, and not searched for."""


def _rows_of(seqs: Codes, wanted: Codes) -> Codes:
    """Where numbers stand among others, which are in order; all of them do."""
    reach = int(seqs[-1] - seqs[0]) + 1 if len(seqs) else 0
    if not 0 < reach <= max(_DENSE, 4 * len(seqs)):
        return np.searchsorted(seqs, wanted)
    places = np.zeros(reach, np.int64)
    places[seqs - seqs[0]] = np.arange(len(seqs))
    found: Codes = places[wanted - seqs[0]]
    return found


def _steps_of(at: Codes, every: int) -> tuple[Codes, Codes]:
    """The steps in which there are moments, in order, and of each moment the place of its step among them."""
    step = at // every
    first, last = (int(step.min()), int(step.max())) if len(step) else (0, 0)
    if last - first >= _DENSE:
        return np.unique(step, return_inverse=True)
    there = np.bincount(step - first, minlength=last - first + 1) > 0
    return np.flatnonzero(there) + first if len(step) else step, (np.cumsum(there) - 1)[step - first]


_FINE = tuple(seconds * 1_000_000 for seconds in (10, 60, 300, 900, 3600, 3 * 3600))
_COARSE = (_DAY, 7 * _DAY, 28 * _DAY)
_FROM = micros(STEPS_FROM)


def _step(at: Column) -> int:
    """Microseconds."""
    known = at[at > 0]
    if not len(known):
        return _DAY
    first, last = int(known.min()) - _FROM, int(known.max()) - _FROM
    steps = (*_FINE, *_COARSE) if last - first < 3 * _DAY else _COARSE
    return next((step for step in steps if last // step - first // step < MOST_STEPS), _COARSE[-1])


def _in_steps(found: Columns, every: int) -> Iterator[StatisticsGroup]:
    timed = _only(found, found.traces["at"] > 0)
    steps, step = _steps_of(timed.traces["at"] - _FROM, every)
    form = "%Y-%m-%d" if every > _DAY else "%Y-%m-%dT%H:%M:%S" if every < _FINE[1] else "%Y-%m-%dT%H:%M"
    names = [f"{moment(int(at) * every + _FROM):{form}}" for at in steps]
    yield from _groups(names, step, timed, _rows_of(timed.traces["seq"], timed.models["trace"]))


MOST_CANDIDATES = 20
"""Of which the statistics are counted: those that most traces were served."""


def _by_candidate(found: Columns, everything: StatisticsGroup) -> list[StatisticsGroup]:
    """A trace may have been served several, a route and a playbook: it stands once for each."""
    names, served, seqs = found.names["candidate_id"], found.candidates, found.traces["seq"]
    counts = np.bincount(served["candidate_id"], minlength=len(names))
    most = [at for at in np.argsort(-counts, kind="stable")[:MOST_CANDIDATES] if counts[at] and names[at] is not None]
    place = np.full(len(names), -1)
    place[most] = range(len(most))
    code = place[served["candidate_id"]]
    if np.array_equal(served["trace"], seqs) and (code >= 0).all():
        # Mostly each was served one, and nothing has to be sorted or looked up.
        return _parted([str(names[at]) for at in most], code, found, _rows_of(seqs, found.models["trace"]), everything)
    # One candidate may stand twice with a trace. They come nearly in order, of which this sort makes the most.
    pairs = np.sort((served["trace"] * len(names) + code)[code >= 0], kind="stable")
    trace, code = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], len(names) or 1)
    begin, end = (np.searchsorted(found.models["trace"], trace, side=side) for side in ("left", "right"))
    of_call = np.repeat(np.arange(len(trace)), end - begin)
    # The rows of each pair one after another: a call's place among them, and where those of its trace begin.
    calls = np.arange(len(of_call)) + np.repeat(begin - np.cumsum(end - begin) + end - begin, end - begin)
    traces = only(found.traces, _rows_of(seqs, trace))
    by_pair = replace(found, traces=traces, models=only(found.models, calls))
    return _groups([str(names[at]) for at in most], code, by_pair, of_call)


def _most_first(groups: Iterable[StatisticsGroup]) -> tuple[StatisticsGroup, ...]:
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
            same = traces[name] == _place(names[name], wanted)
            if name == "source" and wanted == AGENTS:
                same = traces[name] != _place(names[name], OWN)
            # A trace that names no agent has none, or an empty name.
            meant &= same | (traces[name] == _place(names[name], None)) if name == "agent" and not wanted else same
    if query.source in (None, AGENTS):
        meant &= traces["source"] != _place(names["source"], MIRROR)
    flags = {"label": query.label, "person": query.labelled, "failed": query.failed, "error": query.ended_in_error}
    for name, flag in flags.items():
        if flag is not None:
            meant &= traces[name] == int(flag)
    for rows, name, wanted in ((columns.models, "model", query.model), (columns.tools, "tool", query.tool)):
        if wanted is not None:
            meant &= np.isin(traces["seq"], rows["trace"][rows[name] == _place(names[name], wanted)])
    return meant & _between(query, traces) & _looked_up(connection, query, traces["seq"])


def _between(query: Query, traces: Table) -> Mask:
    """What is unknown lies in no range: no comparison with NaN holds."""
    within = np.ones(len(traces["seq"]), np.bool_)
    if query.scored is not None:
        within &= np.isnan(traces["reward"]) != query.scored
    if query.min_reward is not None:
        within &= traces["reward"] >= query.min_reward
    if query.max_reward is not None:
        within &= traces["reward"] <= query.max_reward
    if query.since is not None:
        within &= traces["at"] >= micros(utc(query.since))
    if query.until is not None:
        within &= traces["at"] < micros(utc(query.until))
    return within


def _place(names: Sequence[Name], wanted: Name) -> int:
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
    models, tools, candidates = (only(rows, meant[_rows_of(seqs, rows["trace"])]) for rows in columns.tables[1:])
    return Columns(only(columns.traces, meant), models, tools, candidates, columns.names)


_OF_TRACES = ("tool_calls", "failed_tool_calls", "error", "label", "reward")
_OF_CALLS = ("input_tokens", "output_tokens", "uncounted", "unpriced")


def _summable(found: Columns) -> Columns:
    """The same, with what is added up as NumPy adds it up: each group would convert it anew."""
    traces = {name: found.traces[name].astype(np.float64) for name in ("tool_calls", "failed_tool_calls", "error")}
    models = {name: found.models[name].astype(np.float64) for name in ("calls", *_OF_CALLS)}
    return replace(found, traces=found.traces | traces, models=found.models | models)


def _groups(names: Sequence[str], code: Codes, found: Columns, of_call: Codes | None) -> list[StatisticsGroup]:
    """A group for each name.

    Args:
        code: Of each row of the traces, the place of its group's name.
        of_call: Of each row of the models, the row of its trace; `None` where the rows of both are the same.
    """
    traces, calls = found.traces, found.models
    code_of_call = code if of_call is None else code[of_call]

    def summed(places: Codes, what: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        # Of one group all is summed, which needs no places.
        found = np.array([what.sum()]) if len(names) == 1 else np.bincount(places, what, len(names))
        return found.astype(np.float64)

    def count(what: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        return summed(code, what)

    def of_calls(name: str) -> npt.NDArray[np.float64]:
        return summed(code_of_call, calls[name])

    rewarded = ~np.isnan(traces["reward"])
    sums = {
        "traces": np.bincount(code, minlength=len(names)),
        "tool_calls": count(traces["tool_calls"]),
        "failed_tool_calls": count(traces["failed_tool_calls"]),
        "errors": count(traces["error"]),
        "good": count(traces["label"] == 1),
        "bad": count(traces["label"] == 0),
        "timed": count(~np.isnan(traces["seconds"])),
        "model_calls": of_calls("calls"),
        "uncounted": of_calls("uncounted"),
        "unpriced": of_calls("unpriced"),
    }
    known = np.where(rewarded, traces["reward"], 0)
    reward, squares, of = count(known), count(known**2), count(rewarded)
    sums_of = zip(of.astype(int).tolist(), reward.tolist(), squares.tolist(), strict=True)
    ends = [share_interval(n, total, square) if n else (None, None) for n, total, square in sums_of]
    times = _quantiles(code, traces["seconds"], len(names))
    # Where all calls are without, nothing is known of the sum: unknown is not zero.
    of_known = {name: of_calls(name) for name in ("input_tokens", "output_tokens", "cost")}
    counted, priced = ((sums["model_calls"] == 0) | (sums[name] < sums["model_calls"]) for name in ("uncounted", "unpriced"))
    return [
        StatisticsGroup(
            name=name,
            **{each: int(found[at]) for each, found in sums.items()},
            input_tokens=int(of_known["input_tokens"][at]) if counted[at] else None,
            output_tokens=int(of_known["output_tokens"][at]) if counted[at] else None,
            cost=float(of_known["cost"][at]) if priced[at] else None,
            mean_reward=float(reward[at] / of[at]) if of[at] else None,
            rewarded=int(of[at]),
            reward_low=ends[at][0],
            reward_high=ends[at][1],
            median_seconds=times[at][0],
            p95_seconds=times[at][1],
            p99_seconds=times[at][2],
        )
        for at, name in enumerate(names)
    ]


def _parted(
    names: Sequence[str], code: Codes, found: Columns, of_call: Codes, everything: StatisticsGroup
) -> list[StatisticsGroup]:
    """A group for each name; where all traces are of one, it is what everything comes to."""
    if len(code) and (code == code[0]).all():
        return [replace(everything, name=names[code[0]])]
    return _groups(names, code, found, of_call)


def _quantiles(code: Codes, seconds: npt.NDArray[np.float64], groups: int) -> list[tuple[float | None, ...]]:
    """Of each group the median, the 95th and the 99th percentile of what is known."""
    known = ~np.isnan(seconds)
    code, seconds = code[known], seconds[known]
    if groups > 1:
        # Of 16 bits NumPy makes a radix sort.
        seconds = seconds[np.argsort(code.astype(np.uint16) if groups < 1 << 16 else code, kind="stable")]
    ends = [0, *np.cumsum(np.bincount(code, minlength=groups))]
    unknown: tuple[float | None, ...] = (None,) * len(_SHARES)
    return [_quantiles_of(seconds[begin:end]) if end > begin else unknown for begin, end in pairwise(ends)]


_SHARES = (0.5, 0.95, 0.99)


def _quantiles_of(values: npt.NDArray[np.float64]) -> tuple[float, ...]:
    places = [share * (len(values) - 1) for share in _SHARES]
    near = [min(int(place) + more, len(values) - 1) for place in places for more in (0, 1)]
    found = np.partition(values, near)[near].tolist()
    return tuple(low + (above - low) * (place % 1) for place, low, above in zip(places, found[::2], found[1::2], strict=True))


def _tools(found: Columns) -> tuple[ToolStatistics, ...]:
    names, rows = found.names["tool"], found.tools
    calls, failures, timed, seconds = (
        np.bincount(rows["tool"], rows[name], len(names)) for name in ("calls", "failures", "timed", "seconds")
    )
    uses = [
        ToolStatistics(
            tool=str(name),
            calls=int(calls[at]),
            failures=int(failures[at]),
            mean_seconds=float(seconds[at] / timed[at]) if timed[at] else None,
        )
        for at, name in enumerate(names)
        if calls[at]
    ]
    return tuple(sorted(uses, key=lambda use: (-use.calls, use.tool)))
