"""What was said of traces after they came in, and what of it holds."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any

import sqlalchemy as sa

from journeyman.core.errors import StoreError
from journeyman.core.feedback import NOTE, SUCCESS, Feedback, TargetKind, latest, standing
from journeyman.core.reward import Reward, Source, decide, source_of
from journeyman.stores.base import utc
from journeyman.stores.tables import FEEDBACK
from journeyman.stores.traces import codec
from journeyman.stores.traces.base import AUTO, RECORDER, Label
from journeyman.stores.traces.tables import PARTS, TRACE_CALLS, TRACE_LABELS, TRACE_REWARDS, TRACES

Row = sa.Row[Any]


def add_label(connection: sa.Connection, trace_id: str, label: Mapping[str, object]) -> None:
    """Add a row of a label, unless it is there, and weigh anew.

    Raises:
        StoreError: There is no such trace.
    """
    seq = known(connection, trace_id)
    if _add(connection, TRACE_LABELS, [{"trace": seq, **label}]):
        weigh(connection, [seq])


def add_rewards(connection: sa.Connection, trace_id: str, rewards: Iterable[Reward], *, by: str, at: datetime) -> None:
    """Add rows of rewards, those that are not there, and weigh anew.

    Raises:
        StoreError: There is no such trace.
    """
    seq = known(connection, trace_id)
    told = {"trace": seq, "by": by, "at": utc(at)}
    rows = [
        {**told, "name": each.name, "value": each.value, "evidence": each.evidence, "weight": each.weight} for each in rewards
    ]
    _add(connection, TRACE_REWARDS, rows)
    # Also where nothing is new: an earlier version took the mean of all rewards.
    weigh(connection, [seq])


_AT_ONCE = 5000
"""Ids that one statement may speak of."""


def join_feedback(connection: sa.Connection, traces: Mapping[str, int], requests: Mapping[str, int]) -> None:
    """Give traces that are new or changed what was said of them, and of their requests, before they came.

    Args:
        traces: The `seq` of each by its id.
        requests: The same by the ids of requests that are in a trace of another id.
    """
    if not connection.scalar(sa.select(sa.exists(sa.select(FEEDBACK.c.seq)))):
        return
    meant = {TargetKind.TRACE: traces, TargetKind.REQUEST: {**traces, **requests}}
    ids = [*traces, *requests]
    for begin in range(0, len(ids), _AT_ONCE):
        said = (FEEDBACK.c.target_kind.in_(meant), FEEDBACK.c.target.in_(ids[begin : begin + _AT_ONCE]))
        words = map(word_of, connection.execute(sa.select(FEEDBACK).where(*said).order_by(FEEDBACK.c.seq)))
        add_feedback(connection, [(seq, word) for word in words if (seq := meant[word.target_kind].get(word.target))])


def add_feedback(connection: sa.Connection, words: Iterable[tuple[int, Feedback]]) -> None:
    """Add what was said of traces to their labels and rewards, unless it is there, and weigh anew. What a label has no room for
    stands among the rewards, and counts for nothing there. A note stands in neither: what stands there may enter a prompt."""
    labels, rewards = dict[object, dict[str, object]](), dict[object, dict[str, object]]()
    touched, labelled = set[int](), set[int]()
    for seq, word in words:
        if word.metric == NOTE:
            continue
        touched.add(seq)
        reward, label, told = word.reward, word.label, {"trace": seq, "at": utc(word.at)}
        row: dict[str, object]
        if label is not None:
            labelled.add(seq)
        if label is not None and not word.is_taken_back:
            row = {**told, "good": label[0], "who": label[1], "probability": None}
            labels[tuple(row.values())] = row
        by = f"{FEEDBACK_OF}{f' of {word.rater}' if word.rater else ''} ({word.source})"
        row = {**told, "name": reward.name, "value": reward.value, "evidence": reward.evidence, "by": by}
        row["weight"] = reward.weight if label is None else 0.0
        if label is not None and not word.text and word.value in (0, 1, None):
            # The label says all of it, and what the same one said beside an earlier label holds no more.
            row |= {"value": None, "evidence": ""}
            if not _was_graded(connection, row, rewards.values()):
                continue
        rewards[tuple(row.values())] = row
    added = _add(connection, TRACE_LABELS, list(labels.values())) + _add(connection, TRACE_REWARDS, list(rewards.values()))
    if _take_back(connection, labelled) or added:
        weigh(connection, touched)


def _take_back(connection: sa.Connection, traces: Collection[int]) -> bool:
    """Have the label of each moment at which somebody took a word back say what of the same name still stood then; whether
    that was new. A name may stand for many, and for what was said of many requests. Words may come in any order."""
    wanted: dict[tuple[int, str, datetime], list[bool | None]] = {}
    for (seq, who), said in _label_words(connection, traces).items():
        for at in {word.at for word in said if word.is_taken_back}:
            left = [word.label for word in latest(word for word in said if word.at <= at)]
            stands = left[-1][0] if left and left[-1] else None
            # What was said in the same moment was said all the same; what stands comes last.
            spoken = dict.fromkeys(word.label[0] for word in said if word.at == at and word.label and not word.is_taken_back)
            wanted[seq, who, at] = [*(good for good in spoken if good is not stands), stands]
    changed = False
    for (seq, who, at), goods in wanted.items():
        same = _equal(TRACE_LABELS, {"trace": seq, "who": who, "at": at})
        kept = sa.select(TRACE_LABELS.c.good).where(*same).order_by(TRACE_LABELS.c.seq)
        if list(connection.scalars(kept)) != goods:
            connection.execute(sa.delete(TRACE_LABELS).where(*same))
            connection.execute(sa.insert(TRACE_LABELS), [{"trace": seq, "who": who, "at": at, "good": good} for good in goods])
            changed = True
    return changed


def standing_labels(connection: sa.Connection, seq: int, who: str) -> list[Feedback]:
    """What of a name still stands of a trace, and of requests in it."""
    return latest(_label_words(connection, [seq]).get((seq, who), ()))


def _label_words(connection: sa.Connection, traces: Collection[int]) -> dict[tuple[int, str], list[Feedback]]:
    """All that was ever said of traces, and of requests in them, that is a label: by trace and name, oldest first."""
    if not traces:
        return {}
    of_kind, target = FEEDBACK.c.target_kind, FEEDBACK.c.target
    requested = of_kind == TargetKind.REQUEST.value
    of_trace = sa.or_(of_kind == TargetKind.TRACE.value, sa.and_(requested, TRACES.c.source == "gateway"))
    rows = list[Row]()
    for seq, meant in (
        (TRACES.c.seq, sa.and_(target == TRACES.c.id, of_trace)),
        (TRACE_CALLS.c.trace, sa.and_(target == TRACE_CALLS.c.call_id, requested)),
    ):
        asked = sa.select(FEEDBACK, seq.label("trace")).join(seq.table, meant)
        rows += connection.execute(asked.where(seq.in_(traces), FEEDBACK.c.metric == SUCCESS))
    found: dict[tuple[int, str], list[Feedback]] = {}
    for row in sorted(rows, key=lambda row: (row.at, row.seq)):
        word = word_of(row)
        if word.label is not None:
            found.setdefault((row.trace, word.label[1]), []).append(word)
    return found


def _was_graded(connection: sa.Connection, row: Mapping[str, object], coming: Iterable[Mapping[str, object]]) -> bool:
    """Whether a reward says what somebody said beside their label."""
    same = {name: row[name] for name in ("trace", "name", "by")}
    found = sa.exists().where(*_equal(TRACE_REWARDS, same))
    return any(same.items() <= each.items() for each in coming) or bool(connection.scalar(sa.select(found)))


FEEDBACK_OF = "feedback"
"""How what computed a reward begins where somebody said it."""


def word_of(row: Row) -> Feedback:
    """What was said, as it is kept."""
    return Feedback(
        id=row.id,
        target_kind=TargetKind(row.target_kind),
        target=row.target,
        metric=row.metric,
        value=row.value,
        text=row.text,
        source=Source(row.source),
        rater=row.rater,
        tags=row.tags,
        at=row.at,
    )


def known(connection: sa.Connection, trace_id: str) -> int:
    """
    Raises:
        StoreError: There is no such trace.
    """
    seq: int | None = connection.scalar(sa.select(TRACES.c.seq).where(TRACES.c.id == trace_id))
    if seq is None:
        raise StoreError(f"no trace {trace_id!r} is in the store")
    return seq


def _add(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, object]]) -> int:
    """Add the rows that are not there; how many they were."""
    new = [row for row in rows if not connection.scalar(sa.select(sa.exists().where(*_equal(table, row))))]
    if new:
        connection.execute(sa.insert(table), new)
    return len(new)


def _equal(table: sa.Table, row: Mapping[str, object]) -> list[sa.ColumnElement[bool]]:
    return [table.c[name].is_not_distinct_from(value) for name, value in row.items()]


def weigh(connection: sa.Connection, traces: Collection[int]) -> None:
    """Write anew which label and reward hold."""
    if not traces:
        return
    labels, rewards = _labels(connection, traces), given(connection, traces)
    came_with = own_rewards(connection, rewards)
    own = sa.select(TRACES.c.seq, TRACES.c.own_label).where(TRACES.c.seq.in_(labels.keys() | rewards.keys()))
    for seq, label in connection.execute(own).all():
        holds, who = _in_force(label, labels.get(seq, ()))
        values: dict[str, object] = {"label": holds, "labelled_by": who}
        if seq in rewards:
            values["reward"] = decide(codec.in_force(came_with[seq], rewards[seq])).value
        connection.execute(sa.update(TRACES).where(TRACES.c.seq == seq).values(values))


def given(connection: sa.Connection, traces: Collection[int]) -> dict[int, list[Reward]]:
    """The rewards that traces were given here and that hold, oldest first; of traces that were given any."""
    found = dict[int, list[Reward]]()
    for seq, rows in given_rows(connection, traces).items():
        found[seq] = [reward_of(row) for row in rows]
    return found


def given_rows(connection: sa.Connection, traces: Collection[int]) -> dict[int, list[Row]]:
    """The rows of rewards that hold: of one name the latest, and of what several people say of one metric the latest of each,
    unless it was taken back."""
    return {seq: standing(rows, key_of, takes_back) for seq, rows in all_given(connection, traces).items()}


def all_given(connection: sa.Connection, traces: Collection[int]) -> dict[int, list[Row]]:
    """The rows of all rewards that traces were ever given, oldest first."""
    table, found = TRACE_REWARDS, dict[int, list[Row]]()
    for row in connection.execute(sa.select(table).where(table.c.trace.in_(traces)).order_by(table.c.at, table.c.seq)):
        found.setdefault(row.trace, []).append(row)
    return found


def key_of(row: Row) -> tuple[str, str]:
    """Of the rewards of a trace with the same one the last counts."""
    return row.name, row.by if row.by.startswith(FEEDBACK_OF) else ""


def takes_back(row: Row) -> bool:
    """Whoever says something says a number or a text."""
    return bool(row.by.startswith(FEEDBACK_OF) and row.value is None and not row.evidence)


def reward_of(row: Row) -> Reward:
    """Whose word it is stands in brackets behind what computed it, where the name does not say."""
    source = next((each for each in Source if row.by.endswith(f" ({each})")), None)
    return Reward(name=row.name, value=row.value, evidence=row.evidence, weight=row.weight, source=source)


def _labels(connection: sa.Connection, traces: Collection[int]) -> dict[int, list[tuple[str, bool | None]]]:
    table, found = TRACE_LABELS, dict[int, list[tuple[str, bool | None]]]()
    rows = sa.select(table.c.trace, table.c.who, table.c.good).where(table.c.trace.in_(traces))
    for trace, who, good in connection.execute(rows.order_by(table.c.at, table.c.seq)):
        found.setdefault(trace, []).append((who, good))
    return found


def _in_force(own: bool | None, said: Iterable[tuple[str, bool | None]]) -> tuple[bool | None, str | None]:
    """The label that holds, and whose it is: by the order of `Source`, and of all people the latest word not taken back."""
    left = dict(standing([(RECORDER, own), *said], lambda word: word[0], lambda word: word[1] is None))
    if not left:
        return None, None
    order = list(Source)
    # The last of those that stand first.
    who = min(reversed(left), key=lambda who: order.index(source_of(who)))
    return left[who], who


def own_rewards(connection: sa.Connection, traces: Collection[int]) -> dict[int, Sequence[Reward]]:
    """The rewards that each trace came with."""
    headers = sa.select(PARTS.c.trace, PARTS.c.body).where(PARTS.c.trace.in_(traces), PARTS.c.position == 0)
    return {seq: codec.own_rewards(codec.unpack(body)) for seq, body in connection.execute(headers)}


def said(labels: Iterable[Label]) -> dict[str, dict[str, bool]]:
    """The word of each on each trace, by who and trace: the latest, where it was not taken back. Labels come oldest first."""
    found: dict[str, dict[str, bool]] = {}
    for label in labels:
        if label.good is None:
            found.get(label.who, {}).pop(label.trace_id, None)
        else:
            found.setdefault(label.who, {})[label.trace_id] = label.good
    return found


# What an auto-labeler said, and what of it a person is asked about.

AUDIT = 0.05
"""Share of an auto-labeler's labels that a person is asked about."""


def ticket(trace_id: str) -> str:
    """The place of a trace in an order that has nothing to do with what it is: the same at any time, so that whoever draws the
    first of it draws at random and need not keep a list (permanent random numbers; E. Ohlsson, 1995)."""
    return blake2b(trace_id.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def proposed(history: Iterable[Label]) -> Mapping[str, bool]:
    """What the labeler said of the traces that a person spoke of after it: what it can be held to.

    Args:
        history: Every word that was given, oldest first.
    """
    stands, found, spoken = dict[str, bool](), dict[str, bool](), set[str]()
    for label in history:
        if label.who == AUTO:
            if label.good is None:
                stands.pop(label.trace_id, None)
            else:
                stands[label.trace_id] = label.good
        elif label.trace_id not in spoken and source_of(label.who) in (Source.PERSON, Source.TRUTH):
            spoken.add(label.trace_id)
            if label.trace_id in stands:
                found[label.trace_id] = stands[label.trace_id]
    return found


def to_audit(history: Sequence[Label], share: float = AUDIT) -> list[str]:
    """The traces that a person is asked about because the labeler labelled them, drawn by `ticket`, answered ones too."""
    last = {label.trace_id: label.good for label in history if label.who == AUTO}
    spoken = sorted((id for id, good in last.items() if good is not None), key=ticket)
    return spoken[: math.ceil(share * len(spoken))]
