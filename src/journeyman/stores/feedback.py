"""What was said of what was served: kept once, joined with the traces that it is about, and found again."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import sqlalchemy as sa

from journeyman.core.errors import Unkeepable
from journeyman.core.feedback import ANSWER, NOTE, SUCCESS, Feedback, TargetKind, latest
from journeyman.core.reward import Source
from journeyman.stores.base import utc
from journeyman.stores.engine import OnDatabase
from journeyman.stores.tables import FEEDBACK
from journeyman.stores.traces import labels
from journeyman.stores.traces.tables import TRACE_CALLS, TRACES
from journeyman.stores.traces.writing import insert, take_turn

Row = labels.Row

_WORDS = 500
"""Words of feedback that are written, or asked for, at once."""


def say(connection: sa.Connection, words: Sequence[Feedback], now: datetime) -> list[bool]:
    """Keep words, and have those of a trace, or of a request in one, count among its labels and rewards; whether what each is
    about is in the store. A word whose id is kept changes nothing.

    Raises:
        Unkeepable: One has the id of a word that says something else.
    """
    table = FEEDBACK
    kept = {row.id: labels.word_of(row) for row in connection.execute(sa.select(table).where(table.c.id.in_(_ids(words))))}
    new: list[Feedback] = []
    for word in words:
        if word.id not in kept:
            kept[word.id] = word
            new.append(word)
        elif kept[word.id].content != word.content:
            raise Unkeepable(f"feedback {word.id!r} is kept already, and says something else; what is new has an id of its own")
    at = {"received_at": utc(now)}
    told = (
        each.as_json() | {"target_kind": each.target_kind.value, "target": each.target, "tags": dict(each.tags)} for each in new
    )
    names = [column.name for column in table.c if column.name != "seq"]
    rows = [{name: row.get(name) for name in names} | at for row in told]
    insert(connection, table, [row | {"at": utc(word.at)} for row, word in zip(rows, new, strict=True)])
    found = _meant(connection, [(word.target_kind, word.target) for word in words])
    labels.add_feedback(connection, [(seq, word) for word in new if (seq := found.get((word.target_kind, word.target)))])
    return [(word.target_kind, word.target) in found for word in words]


def _ids(words: Iterable[Feedback]) -> list[str]:
    return [word.id for word in words]


def _meant(connection: sa.Connection, targets: Sequence[tuple[TargetKind, str]]) -> Mapping[tuple[TargetKind, str], int | None]:
    """What of it is in the store; for a trace, or a request, the trace."""
    found: dict[tuple[TargetKind, str], int | None] = {}
    passed, any_ = TRACES.c.source == "gateway", sa.true()
    for kind, names, seq, where in (
        (TargetKind.TRACE, TRACES.c.id, TRACES.c.seq, any_),
        (TargetKind.REQUEST, TRACES.c.id, TRACES.c.seq, passed),
        (TargetKind.REQUEST, TRACE_CALLS.c.call_id, TRACE_CALLS.c.trace, any_),
        (TargetKind.TASK, TRACES.c.task_id, sa.null(), any_),
        (TargetKind.SESSION, TRACES.c.session, sa.null(), any_),
    ):
        if ids := {id for each, id in targets if each is kind}:
            rows = connection.execute(sa.select(names, seq).where(names.in_(ids), where).distinct())
            found |= {(kind, id): trace for id, trace in rows}
    return found


class FeedbackStore(OnDatabase):
    """Keeps what is said. Of the same database as what it is said of."""

    def add_feedback(
        self, words: Sequence[Feedback], *, now: datetime, told: Callable[[int], None] | None = None
    ) -> Sequence[bool]:
        """Keep all of them or none; whether what each is about is in the store. A word whose id is kept changes nothing.

        What is said of a trace, or of a request in it, counts among its labels and rewards; where the trace comes later, then.

        Args:
            told: Called with how many were written, now and then.

        Raises:
            Unkeepable: One has the id of a word that says something else.
        """
        known: list[bool] = []
        with self._database.write() as connection:
            take_turn(connection)
            for begin in range(0, len(words), _WORDS):
                known += say(connection, words[begin : begin + _WORDS], now)
                if told is not None:
                    told(len(known))
        return known

    def known(self, targets: Sequence[tuple[TargetKind, str]]) -> Sequence[bool]:
        """Whether each is in the store."""
        with self._database.read() as connection:
            found = _meant(connection, targets)
        return [each in found for each in targets]

    def feedback_of(self, targets: Iterable[tuple[TargetKind, str]], *, whole: bool = False) -> Sequence[Feedback]:
        """What counts of what was said of them: of one rater on one thing the last word. Oldest first; `decide` tells what the
        rewards of them come to.

        Args:
            whole: All that was ever said, also what was said anew or taken back since.
        """
        table, wanted, rows = FEEDBACK, list(dict.fromkeys(targets)), list[Row]()
        with self._database.read() as connection:
            for kind in TargetKind:
                ids = [id for each, id in wanted if each is kind]
                for begin in range(0, len(ids), _WORDS):
                    some = (table.c.target_kind == kind.value, table.c.target.in_(ids[begin : begin + _WORDS]))
                    rows += connection.execute(sa.select(table).where(*some))
        words = map(labels.word_of, sorted(rows, key=lambda row: (row.at, row.seq)))
        return list(words) if whole else latest(words)

    def ratings_by_people(self) -> Sequence[Feedback]:
        """What counts of the numbers and names that people with a name gave traces, oldest first: no labels, notes, answers."""
        table = FEEDBACK
        theirs = (
            table.c.source == Source.PERSON.value,
            table.c.target_kind == TargetKind.TRACE.value,
            table.c.metric.not_in([SUCCESS, ANSWER, NOTE]),
        )
        with self._database.read() as connection:
            rows = connection.execute(sa.select(table).where(*theirs).order_by(table.c.at, table.c.seq))
            return latest(map(labels.word_of, rows))
