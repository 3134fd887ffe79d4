"""The store that stays: SQLite in a file, or PostgreSQL by URL, from the same statements."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import datetime
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from journeyman.core.candidate import Candidate, Kind
from journeyman.core.errors import StoreError
from journeyman.core.release import Move, Release, Stage
from journeyman.core.task import Split
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
from journeyman.stores.engine import OnDatabase, starting
from journeyman.stores.tables import ATTEMPTS, CANDIDATES, EVALUATIONS, LOOKS, MOVES, RUN_MARKS, RUNS
from journeyman.stores.traces import attempts as among_traces
from journeyman.stores.traces import sql, writing

_PAGE = 500
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
        _COUNT().label("attempts"),
        _COUNT(ATTEMPTS.c.total).label("scored"),
        sa.func.avg(ATTEMPTS.c.total).label("mean_score"),
        sa.case((_COUNT(ATTEMPTS.c.tokens) == _COUNT(), _SUM(ATTEMPTS.c.tokens))).label("tokens"),
        sa.case((_COUNT(ATTEMPTS.c.cost) == _COUNT(), _SUM(ATTEMPTS.c.cost))).label("cost"),
    )
    .group_by(ATTEMPTS.c.split)
    .order_by(ATTEMPTS.c.split)
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
            for begin in range(0, len(traces), _PAGE):
                sql.forget(connection, traces[begin : begin + _PAGE])
            sql.forget_contents(connection)
            for table, which in ((EVALUATIONS, made), (RUN_MARKS, RUN_MARKS.c.run_id == run_id), (RUNS, RUNS.c.id == run_id)):
                connection.execute(sa.delete(table).where(which))
        return count

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
        self, *, candidate_id: str | None = None, held_out_id: str | None = None, newest_first: bool = False
    ) -> Iterator[EvaluationRecord]:
        where = _equal(EVALUATIONS, candidate_id=candidate_id, held_out_id=held_out_id)
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
            rows = [_move_row(release, len(release.moves) - len(new) + place, move) for place, move in enumerate(new)]
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
        while True:
            beyond = [] if seq is None else [table.c.seq < seq if newest_first else table.c.seq > seq]
            with self._database.read() as connection:
                page = sa.select(table).where(*beyond, *where).order_by(order).limit(_PAGE)
                rows = connection.execute(page).all()
            if rows:
                yield rows
            if len(rows) < _PAGE:
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
        attempts=row.attempts,
        unscored=row.attempts - row.scored,
        mean_score=row.mean_score,
        # PostgreSQL sums whole numbers to decimals.
        tokens=None if row.tokens is None else int(row.tokens),
        cost=row.cost,
    )


def _move_row(release: Release, number: int, move: Move) -> dict[str, Any]:
    told = {"stage": move.stage.value, "reason": move.reason, "forced": move.forced, "at": utc(move.at)}
    return {"candidate_id": release.candidate_id, "number": number, **told}
