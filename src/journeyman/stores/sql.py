"""The stores that stay, of runs and of traces: SQLite in a file, or PostgreSQL by URL, from the same statements."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime
from itertools import chain, groupby, repeat
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from journeyman.core.candidate import Candidate, Kind
from journeyman.core.errors import StoreError
from journeyman.core.feedback import label_word
from journeyman.core.release import Move, Release, Stage
from journeyman.core.reward import Reward, Source, source_of
from journeyman.core.task import Split
from journeyman.core.trace import Trace, total
from journeyman.stores.base import (
    AttemptRecord,
    AttemptTotals,
    EvaluationRecord,
    Listed,
    RunRecord,
    RunState,
    new_moves,
    other_moves,
    unknown_run,
    utc,
)
from journeyman.stores.engine import PATIENCE, OnDatabase, starting
from journeyman.stores.feedback import FeedbackStore, say
from journeyman.stores.tables import ATTEMPTS, CANDIDATES, EVALUATIONS, LOOKS, MOVES, RUN_MARKS, RUNS, escaped, unescaped
from journeyman.stores.traces import attempts as among_traces
from journeyman.stores.traces import codec, writing
from journeyman.stores.traces import labels as opinions
from journeyman.stores.traces import query as finding
from journeyman.stores.traces.base import Given, Label, Page, Pruned, Query, SpanRow, Statistics, TraceSession, TraceSummary
from journeyman.stores.traces.digests import make_blocks
from journeyman.stores.traces.query import (
    NEWEST_FIRST,
    OLDEST_FIRST,
    beyond,
    conditions,
    lines,
    mark,
    place_of,
    seqs,
)
from journeyman.stores.traces.tables import DIGEST_BLOCK, SCOPES, SPAN_TRACES, SPANS, TRACE_LABELS, TRACE_REWARDS, TRACES

if TYPE_CHECKING:
    from journeyman.stores.traces.statistics import DigestCache

# Raw spans, by their trace.


def pending(connection: sa.Connection, limit: int) -> list[str]:
    waiting = sa.select(SPAN_TRACES.c.id).where(writing.PENDING).order_by(SPAN_TRACES.c.since, SPAN_TRACES.c.seq).limit(limit)
    return list(connection.scalars(waiting))


def of_traces(connection: sa.Connection, trace_ids: Sequence[str]) -> Mapping[str, Sequence[SpanRow]]:
    """The spans of each trace that is known, in the order of their time."""
    numbers = sa.select(SPAN_TRACES.c.seq, SPAN_TRACES.c.id).where(SPAN_TRACES.c.id.in_(trace_ids))
    ids = {seq: id for seq, id in connection.execute(numbers)}
    columns = (SPANS.c.trace, SPANS.c.span_id, SPANS.c.at, SPANS.c.body, SPANS.c.scope)
    rows = connection.execute(sa.select(*columns).where(SPANS.c.trace.in_(ids)).order_by(SPANS.c.at, SPANS.c.seq)).all()
    used = sa.select(SCOPES.c.seq, SCOPES.c.body).where(SCOPES.c.seq.in_({row.scope for row in rows}))
    scopes = {seq: codec.unpack(body) for seq, body in connection.execute(used)}
    found: dict[str, list[SpanRow]] = {id: [] for id in ids.values()}
    for trace, span_id, at, body, scope in rows:
        span = SpanRow(trace_id=ids[trace], span_id=span_id, at=at, body=codec.unpack(body), scope=scopes[scope])
        found[span.trace_id].append(span)
    return found


# Traces that belong together, the latest first.

_COLUMNS = tuple(
    TRACES.c[name] for name in ("session", "title", "agent", "started_at", "input_tokens", "output_tokens", "cost", "error")
)
_LISTED = (TRACES.c.session.is_not(None), TRACES.c.duplicate_of.is_(None))


def page(connection: sa.Connection, limit: int, after: str | None) -> tuple[Sequence[TraceSession], str | None]:
    # Walked as a list is, from the latest on: the first trace that is met of a session is its last.
    name, began = sa.type_coerce(TRACES.c.session, sa.Text), sa.type_coerce(TRACES.c.started_at, sa.BigInteger)
    later = TRACES.alias("later")
    goes_on = sa.exists().where(
        later.c.session == TRACES.c.session, later.c.started_at > TRACES.c.started_at, later.c.duplicate_of.is_(None)
    )
    found = sa.select(name, began).distinct().where(*_LISTED, ~goes_on)
    if after is not None:
        last, session = _place(after)
        found = found.where(sa.or_(began < last, sa.and_(began == last, name < session)), began <= last)
    rows = connection.execute(found.order_by(began.desc(), name.desc()).limit(limit + 1)).all()
    listed = rows[:limit]
    more = f"{listed[-1][1]}.{unescaped(listed[-1][0])}" if len(rows) > limit else None
    return _sessions(connection, [unescaped(row[0]) for row in listed]), more


def _place(after: str) -> tuple[int, str]:
    began, _, session = after.partition(".")
    return place_of(f"{began}.0")[0], escaped(session)


def _sessions(connection: sa.Connection, ids: Sequence[str]) -> Sequence[TraceSession]:
    rows = connection.execute(
        sa.select(*_COLUMNS)
        .where(TRACES.c.session.in_(ids), *_LISTED)
        .order_by(TRACES.c.session, TRACES.c.started_at, TRACES.c.seq)
    )
    found = {id: _session(id, list(members)) for id, members in groupby(rows, key=lambda row: row.session)}
    return [found[id] for id in ids if id in found]


def _session(id: str, rows: Sequence[sa.Row[Any]]) -> TraceSession:
    return TraceSession(
        id=id,
        title=rows[0].title,
        traces=len(rows),
        agents=tuple(dict.fromkeys(row.agent for row in rows if row.agent is not None)),
        started_at=rows[0].started_at,
        last_at=rows[-1].started_at,
        input_tokens=total(row.input_tokens for row in rows),
        output_tokens=total(row.output_tokens for row in rows),
        cost=total(row.cost for row in rows),
        errors=sum(row.error is not None for row in rows),
    )


_AT_ONCE = 100
"""Whole traces read at a time."""


class SqlTraces(FeedbackStore):
    """Keeps traces in one database. May be used by several threads and processes at once; writers take turns."""

    def __init__(
        self, url: str, *, make: bool = True, clock: Callable[[], datetime] | None = None, patience: float = PATIENCE
    ) -> None:
        super().__init__(url, make=make, patience=patience)
        self._clock = clock or _now
        self._digests: DigestCache | None = None
        self._newest: int | None = None
        """The block that was filled when something was last added here."""

    def add(self, traces: Iterable[Trace]) -> int:
        prepared = writing.prepare(traces)
        with self._turn() as connection:
            added = writing.keep(connection, prepared, self._clock())
            newest = (connection.scalar(sa.select(TRACES.c.seq).order_by(TRACES.c.seq.desc()).limit(1)) or 0) >> DIGEST_BLOCK
        filled = range(newest if self._newest is None else self._newest, newest)
        self._newest = newest
        if filled:
            # Now, for a small share of what adding them took, and not when somebody waits for a page.
            make_blocks(self._database, filled)
        return added

    def add_spans(self, spans_: Sequence[SpanRow]) -> None:
        prepared = writing.prepare_spans(spans_)
        if prepared:
            with self._turn() as connection:
                writing.keep_spans(connection, prepared, self._clock())

    def pending(self, limit: int = 100) -> Sequence[str]:
        with self._database.read() as connection:
            return pending(connection, limit)

    def spans(self, trace_ids: Sequence[str]) -> Mapping[str, Sequence[SpanRow]]:
        with self._database.read() as connection:
            return of_traces(connection, trace_ids)

    def settle(self, read: Mapping[str, int], traces: Iterable[Trace]) -> None:
        prepared = writing.prepare(traces)
        with self._turn() as connection:
            writing.keep(connection, prepared, self._clock())
            writing.settle_spans(connection, read)

    def rebuild(self) -> int:
        with self._turn() as connection:
            return writing.rebuild_from_spans(connection, self._clock())

    def label(self, trace_id: str, good: bool | None, *, who: str, at: datetime, probability: float | None = None) -> None:
        if source_of(who) is Source.LABELER:
            # What nobody said, and stands only until somebody says something, is no word.
            said = {"good": good, "who": who, "at": utc(at), "probability": probability}
            with self._turn() as connection:
                opinions.add_label(connection, trace_id, said)
            return
        with self._turn() as connection:
            seq, words = opinions.known(connection, trace_id), [label_word(trace_id, good, who, at)]
            if good is None and words[0].source is Source.PERSON:
                # What the same person said of requests of the trace is their label, too.
                mine = opinions.standing_labels(connection, seq, who)
                words += [label_word(each.target, None, who, at, kind=each.target_kind) for each in mine]
            say(connection, words, self._clock())

    def reward(self, trace_id: str, rewards: Iterable[Reward], *, by: str, at: datetime) -> None:
        with self._turn() as connection:
            opinions.add_rewards(connection, trace_id, rewards, by=by, at=at)

    def get(self, trace_id: str) -> Trace | None:
        with self._database.read() as connection:
            known = writing.seqs(connection, [trace_id])
            return next(iter(among_traces.load(connection, list(known.values()))), None)

    def line(self, trace_id: str) -> TraceSummary | None:
        with self._database.read() as connection:
            places = seqs(connection, [TRACES.c.id == trace_id], NEWEST_FIRST, 1)
            return next(iter(lines(connection, places)), None)

    def starting(self, prefix: str, *, limit: int = 2) -> Sequence[str]:
        with self._database.read() as connection:
            return starting(connection, TRACES.c.id, escaped(prefix), limit)

    def page(self, query: Query, *, limit: int = 50, after: str | None = None) -> Page:
        with self._database.read() as connection:
            begin = () if after is None else (beyond(place_of(after)),)
            places = finding.first(connection, query, limit + 1, begin)
            more = mark(places[limit - 1]) if len(places) > limit else None
            return Page(lines=lines(connection, places[:limit]), next=more)

    def count(self, query: Query, *, most: int = 10_000) -> int:
        with self._database.read() as connection:
            if self._digests is not None and query == Query() and (found := self._digests.count(connection)) is not None:
                return min(found, most)
            return finding.count(connection, query, most)

    def traces(self, query: Query = Query()) -> Iterator[Trace]:  # noqa: B008 - frozen
        last: finding.Place | None = None
        while True:
            with self._database.read() as connection:
                where = conditions(connection, query)
                if last is not None:
                    where.append(beyond(last, newer=True))
                places = seqs(connection, where, OLDEST_FIRST, _AT_ONCE)
                found = among_traces.load(connection, [seq for _, seq in places])
            yield from found
            if len(places) < _AT_ONCE:
                return
            last = places[-1]

    def neighbours(self, trace_id: str, query: Query) -> tuple[str | None, str | None]:
        with self._database.read() as connection:
            here = next(iter(seqs(connection, (TRACES.c.id == trace_id,), OLDEST_FIRST, 1)), None)
            if here is None:
                return None, None
            where = conditions(connection, query, lazily=True)
            ids = sa.select(TRACES.c.id).limit(1)
            newer = ids.where(*where, beyond(here, newer=True)).order_by(*OLDEST_FIRST)
            older = ids.where(*where, beyond(here)).order_by(*NEWEST_FIRST)
            return connection.scalar(newer), connection.scalar(older)

    def labels(self, trace_id: str | None = None, *, by_several: bool = False) -> Sequence[Label]:
        told = sa.select(TRACES.c.id, TRACE_LABELS).join(TRACES, TRACES.c.seq == TRACE_LABELS.c.trace)
        if trace_id is not None:
            told = told.where(TRACES.c.id == trace_id)
        if by_several:
            raters = sa.func.count(sa.distinct(TRACE_LABELS.c.who))
            told = told.where(TRACE_LABELS.c.trace.in_(sa.select(TRACE_LABELS.c.trace).group_by("trace").having(raters > 1)))
        with self._database.read() as connection:
            rows = connection.execute(told.order_by(TRACE_LABELS.c.at, TRACE_LABELS.c.seq)).all()
        return [Label(trace_id=row.id, good=row.good, who=row.who, at=row.at, probability=row.probability) for row in rows]

    def rewards(self, trace_id: str) -> Sequence[Given]:
        told = sa.select(TRACE_REWARDS).join(TRACES, TRACES.c.seq == TRACE_REWARDS.c.trace).where(TRACES.c.id == trace_id)
        with self._database.read() as connection:
            rows = connection.execute(told.order_by(TRACE_REWARDS.c.at, TRACE_REWARDS.c.seq)).all()
        return [Given(reward=opinions.reward_of(row), by=row.by, at=row.at) for row in rows]

    def unlabelled(self, limit: int, query: Query = Query()) -> Sequence[TraceSummary]:  # noqa: B008 - frozen
        return self.page(replace(query, labelled=False), limit=limit).lines

    def sessions(self, *, limit: int = 50, after: str | None = None) -> tuple[Sequence[TraceSession], str | None]:

        with self._database.read() as connection:
            return page(connection, limit, after)

    def statistics(self, query: Query = Query()) -> Statistics:  # noqa: B008 - frozen
        # NumPy takes a tenth of a second to load, and nothing else here needs it.
        from journeyman.stores.traces import statistics

        self._digests = self._digests or statistics.DigestCache()
        return statistics.statistics(self._database, self._digests, query)

    def prune(
        self,
        *,
        before: datetime,
        keep_labelled: bool,
        dry_run: bool = False,
        told: Callable[[int], None] = lambda _: None,
    ) -> Pruned:
        return among_traces.prune(self._database, before, keep_labelled=keep_labelled, dry_run=dry_run, told=told)

    def forget(self, trace_ids: Iterable[str], *, dry_run: bool = False) -> Pruned:
        return among_traces.forget(self._database, trace_ids, dry_run=dry_run)

    @contextmanager
    def _turn(self) -> Iterator[sa.Connection]:
        """A transaction to write in, in which nobody else writes."""
        with self._database.write() as connection:
            writing.take_turn(connection)
            yield connection


def _now() -> datetime:
    return datetime.now(UTC)


# Runs, attempts, candidates, evaluations and releases.

_PAGES = (32, 128, 500)
"""Rows read at a time: a list of attempts is as long as a year, and no connection is held while a caller thinks."""
_TRIES = 100
"""So many processes would have to take the same number at once, each time, before a look is refused."""

_IDS: Mapping[Listed, sa.Column[str]] = {
    "runs": RUNS.c.id,
    "candidates": CANDIDATES.c.id,
    "evaluations": EVALUATIONS.c.id,
    "releases": MOVES.c.candidate_id,
}
_COUNT, _SUM = sa.func.count, sa.func.sum
_TOTALS = (
    sa.select(
        ATTEMPTS.c.split,
        sa.case((ATTEMPTS.c.split == Split.HELD_OUT.value, ATTEMPTS.c.candidate_id)).label("side"),
        _COUNT().label("attempts"),
        _COUNT(ATTEMPTS.c.total).label("scored"),
        sa.func.avg(ATTEMPTS.c.total).label("mean_score"),
        sa.case((_COUNT(ATTEMPTS.c.tokens) == _COUNT(), _SUM(ATTEMPTS.c.tokens))).label("tokens"),
        sa.case((_COUNT(ATTEMPTS.c.cost) == _COUNT(), _SUM(ATTEMPTS.c.cost))).label("cost"),
    )
    .group_by(ATTEMPTS.c.split, sa.text("side"))
    .order_by(ATTEMPTS.c.split, sa.func.min(ATTEMPTS.c.seq))
)

Row = sa.Row[Any]


class SqlStore(OnDatabase):
    """Keeps everything in one database. May be used by several threads and processes at once."""

    def add_run(self, run: RunRecord) -> None:
        row = {"id": run.id, "kind": run.kind, "config": dict(run.config), "started_at": utc(run.started_at)}
        with self._database.write() as connection:
            writing.insert(connection, RUNS, [row])
            if run.state is not RunState.RUNNING:
                writing.insert(connection, RUN_MARKS, [_mark(run.id, run.state, run.ended_at or run.started_at, run.result)])

    def mark_run(self, run_id: str, state: RunState, at: datetime, result: Mapping[str, Any] | None = None) -> None:
        mark = _mark(run_id, state, at, result)
        with self._database.write() as connection:
            self._must_know(connection, {run_id})
            writing.insert(connection, RUN_MARKS, [mark])

    def run(self, run_id: str) -> RunRecord | None:
        return next(self._runs(RUNS.c.id == run_id), None)

    def runs(self, kind: str | None = None, *, newest_first: bool = False) -> Iterator[RunRecord]:
        return self._runs(*_equal(RUNS, kind=kind), newest_first=newest_first)

    def remove_run(self, run_id: str) -> int:
        of_run = ATTEMPTS.c.run_id == run_id
        made = sa.func.substr(EVALUATIONS.c.id, 1, len(run_id) + 1) == f"{run_id}/"
        with self._database.write() as connection:
            writing.take_turn(connection)
            if connection.scalar(sa.select(RUNS.c.seq).where(RUNS.c.id == run_id)) is None:
                raise StoreError(f"no run {run_id!r} is in the store")
            released = sa.select(EVALUATIONS.c.candidate_id).where(
                made, sa.exists().where(MOVES.c.candidate_id == EVALUATIONS.c.candidate_id)
            )
            if (candidate_id := connection.scalars(released).first()) is not None:
                raise StoreError(f"the run {run_id} stays: the release of {candidate_id} stands on its evaluation")
            traces = list(connection.scalars(sa.select(ATTEMPTS.c.trace).where(of_run, ATTEMPTS.c.trace.is_not(None))))
            count = connection.execute(sa.delete(ATTEMPTS).where(of_run)).rowcount
            for begin in range(0, len(traces), _PAGES[-1]):
                among_traces.delete(connection, traces[begin : begin + _PAGES[-1]])
            among_traces.forget_contents(connection)
            for table, which in ((EVALUATIONS, made), (RUN_MARKS, RUN_MARKS.c.run_id == run_id), (RUNS, RUNS.c.id == run_id)):
                connection.execute(sa.delete(table).where(which))
        return count

    def count(self, what: Listed, *, kind: Kind | None = None) -> int:
        id = _IDS[what]
        where = () if kind is None else (CANDIDATES.c.kind == kind.value,)
        with self._database.read() as connection:
            return connection.scalar(sa.select(sa.func.count(sa.distinct(id))).where(*where)) or 0

    def starting(self, what: Listed, prefix: str, *, limit: int = 2) -> Sequence[str]:
        with self._database.read() as connection:
            return starting(connection, _IDS[what], prefix, limit)

    def _runs(self, *where: sa.ColumnElement[bool], newest_first: bool = False) -> Iterator[RunRecord]:
        for rows in self._pages(RUNS, *where, newest_first=newest_first):
            with self._database.read() as connection:
                of_these = RUN_MARKS.c.run_id.in_([row.id for row in rows])
                marks = connection.execute(sa.select(RUN_MARKS).where(of_these).order_by(RUN_MARKS.c.at, RUN_MARKS.c.seq))
                latest = {mark.run_id: mark for mark in marks}
            yield from (_run(row, latest.get(row.id)) for row in rows)

    def add_attempts(self, attempts: Iterable[AttemptRecord]) -> None:
        added = list(attempts)
        with self._database.write() as connection:
            self._add_attempts(connection, added)

    def _add_attempts(self, connection: sa.Connection, attempts: Sequence[AttemptRecord]) -> None:
        writing.take_turn(connection)
        self._must_know(connection, {attempt.run_id for attempt in attempts})
        among_traces.add(connection, attempts)

    def attempts(
        self,
        *,
        run_id: str | None = None,
        task_id: str | None = None,
        candidate_id: str | None = None,
        domain: str | None = None,
        split: Split | None = None,
    ) -> Iterator[AttemptRecord]:
        where = _equal(ATTEMPTS, run_id=run_id, task_id=task_id, candidate_id=candidate_id, domain=domain, split=split)
        for rows in self._pages(ATTEMPTS, *where):
            with self._database.read() as connection:
                found = among_traces.read(connection, rows)
            try:
                yield from found
            except StoreError as error:
                raise StoreError(f"{self._database.name}: {error}") from error

    def attempt_totals(self, run_id: str) -> Sequence[AttemptTotals]:
        with self._database.read() as connection:
            return [_totals(row) for row in connection.execute(_TOTALS.where(ATTEMPTS.c.run_id == run_id))]

    def add_candidate(self, candidate: Candidate) -> None:
        row = {"id": candidate.id, "kind": candidate.kind.value, "body": candidate.body, "parents": list(candidate.parents)}
        with self._database.write() as connection:
            writing.insert(connection, CANDIDATES, [row])

    def candidate(self, candidate_id: str) -> Candidate | None:
        return next(self._candidates(CANDIDATES.c.id == candidate_id), None)

    def candidates(self, kind: Kind | None = None, *, newest_first: bool = False) -> Iterator[Candidate]:
        return self._candidates(*_equal(CANDIDATES, kind=kind), newest_first=newest_first)

    def _candidates(self, *where: sa.ColumnElement[bool], newest_first: bool = False) -> Iterator[Candidate]:
        for rows in self._pages(CANDIDATES, *where, newest_first=newest_first):
            yield from (Candidate(kind=Kind(row.kind), body=row.body, parents=tuple(row.parents)) for row in rows)

    def add_evaluation(self, evaluation: EvaluationRecord, attempts: Iterable[AttemptRecord] = ()) -> None:
        row = {field.name: getattr(evaluation, field.name) for field in fields(evaluation)}
        row |= {"report": dict(evaluation.report), "at": utc(evaluation.at)}
        with self._database.write() as connection:
            if attempted := list(attempts):
                self._add_attempts(connection, attempted)
            writing.insert(connection, EVALUATIONS, [row])

    def evaluation(self, evaluation_id: str) -> EvaluationRecord | None:
        return next(self._evaluations(EVALUATIONS.c.id == evaluation_id), None)

    def evaluations(
        self,
        *,
        candidate_id: str | None = None,
        held_out_id: str | None = None,
        run_id: str | None = None,
        newest_first: bool = False,
    ) -> Iterator[EvaluationRecord]:
        where = _equal(EVALUATIONS, candidate_id=candidate_id, held_out_id=held_out_id)
        if run_id is not None:
            of_run = EVALUATIONS.c.id.startswith(f"{run_id}/", autoescape=True)
            where.append(sa.or_(EVALUATIONS.c.id == run_id, of_run))
        return self._evaluations(*where, newest_first=newest_first)

    def _evaluations(self, *where: sa.ColumnElement[bool], newest_first: bool = False) -> Iterator[EvaluationRecord]:
        for rows in self._pages(EVALUATIONS, *where, newest_first=newest_first):
            for row in rows:
                kept = row._asdict()
                del kept["seq"]
                yield EvaluationRecord(**kept)

    def record_look(self, held_out_id: str, candidate_id: str, at: datetime, evaluation_id: str = "") -> int:
        key = {"held_out_id": held_out_id, "candidate_id": candidate_id, "evaluation_id": evaluation_id}
        moment = utc(at)
        same = sa.select(LOOKS.c.number).where(*_equal(LOOKS, **key))
        last = sa.select(sa.func.coalesce(sa.func.max(LOOKS.c.number), 0)).where(LOOKS.c.held_out_id == held_out_id)
        for _ in range(_TRIES):
            with self._database.write() as connection:
                row = {**key, "number": connection.execute(last).scalar_one() + 1, "at": moment}
                writing.insert(connection, LOOKS, [row])
                # Another process may have taken the number, and then nothing was added: look again.
                number: int | None = connection.scalar(same)
            if number is not None:
                return number
        raise StoreError(
            f"{self._database.name}: the look at {held_out_id} could not be counted, too many others are; try again"
        )

    def looks(self, held_out_id: str) -> int:
        with self._database.read() as connection:
            count = sa.select(sa.func.count()).select_from(LOOKS).where(LOOKS.c.held_out_id == held_out_id)
            return int(connection.scalar(count) or 0)

    def add_release(self, release: Release) -> None:
        with self._database.write() as connection:
            kept = next(self._told(connection, MOVES.c.candidate_id == release.candidate_id), None)
            new = new_moves(kept, release)
            rows = [move_row(release, len(release.moves) - len(new) + place, move) for place, move in enumerate(new)]
            if rows:
                with _moved_meanwhile(release.candidate_id):
                    connection.execute(sa.insert(MOVES), rows)

    def release(self, candidate_id: str) -> Release | None:
        with self._database.read() as connection:
            return next(self._told(connection, MOVES.c.candidate_id == candidate_id), None)

    def releases(self, stage: Stage | None = None) -> Iterator[Release]:
        with self._database.read() as connection:
            told = list(self._told(connection))
        return (release for release in told if stage in (None, release.stage))

    def _told(self, connection: sa.Connection, *where: sa.ColumnElement[bool]) -> Iterator[Release]:
        first = (
            sa.select(MOVES.c.candidate_id, sa.func.min(MOVES.c.seq).label("born")).group_by(MOVES.c.candidate_id).subquery()
        )
        joined = sa.select(MOVES).join(first, first.c.candidate_id == MOVES.c.candidate_id).where(*where)
        rows = connection.execute(joined.order_by(first.c.born, MOVES.c.number))
        for candidate_id, moves in groupby(rows, key=lambda row: row.candidate_id):
            told = tuple(Move(Stage(row.stage), row.reason, row.at, row.forced) for row in moves)
            yield Release(candidate_id=candidate_id, moves=told)

    def _pages(self, table: sa.Table, *where: sa.ColumnElement[bool], newest_first: bool = False) -> Iterator[Sequence[Row]]:
        order, seq = (table.c.seq.desc(), None) if newest_first else (table.c.seq, 0)
        # Mostly the newest few are wanted, and a row of an evaluation is large.
        for size in chain(_PAGES, repeat(_PAGES[-1])):
            beyond = [] if seq is None else [table.c.seq < seq if newest_first else table.c.seq > seq]
            with self._database.read() as connection:
                page = sa.select(table).where(*beyond, *where).order_by(order).limit(size)
                rows = connection.execute(page).all()
            if rows:
                yield rows
            if len(rows) < size:
                return
            seq = rows[-1].seq

    def _must_know(self, connection: sa.Connection, run_ids: set[str]) -> None:
        known = set(connection.scalars(sa.select(RUNS.c.id).where(RUNS.c.id.in_(run_ids))))
        for run_id in sorted(run_ids - known):
            raise unknown_run(run_id)


@contextmanager
def _moved_meanwhile(candidate_id: str) -> Iterator[None]:
    # PostgreSQL lets two processes read the same last move, and then only one can add the next.
    try:
        yield
    except sa.exc.IntegrityError as error:
        raise other_moves(candidate_id) from error


def _equal(table: sa.Table, **wanted: str | None) -> list[sa.ColumnElement[bool]]:
    return [table.c[name] == str(value) for name, value in wanted.items() if value is not None]


def _mark(run_id: str, state: RunState, at: datetime, result: Mapping[str, Any] | None) -> dict[str, Any]:
    told = None if result is None else dict(result)
    return {"run_id": run_id, "state": state.value, "at": utc(at), "result": told}


def _run(row: Row, mark: Row | None) -> RunRecord:
    begun = RunRecord(id=row.id, kind=row.kind, config=row.config, started_at=row.started_at)
    if mark is None:
        return begun
    state = RunState(mark.state)
    if state is RunState.RUNNING:
        return replace(begun, process=(mark.result or {}).get("process"))
    return replace(begun, state=state, ended_at=mark.at, result=mark.result)


def _totals(row: Row) -> AttemptTotals:
    return AttemptTotals(
        split=Split(row.split),
        candidate_id=row.side,
        attempts=row.attempts,
        unscored=row.attempts - row.scored,
        mean_score=row.mean_score,
        # PostgreSQL sums whole numbers to decimals.
        tokens=None if row.tokens is None else int(row.tokens),
        cost=row.cost,
    )


def move_row(release: Release, number: int, move: Move) -> dict[str, Any]:
    told = {"stage": move.stage.value, "reason": move.reason, "forced": move.forced, "at": utc(move.at)}
    return {"candidate_id": release.candidate_id, "number": number, **told}
