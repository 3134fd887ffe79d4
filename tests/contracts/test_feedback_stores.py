"""What the store promises of feedback, in each database."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import Unkeepable
from journeyman.core.feedback import ANSWER, NOTE, SUCCESS, Feedback, TargetKind
from journeyman.core.reward import Source
from journeyman.core.trace import ModelCall, Trace
from journeyman.stores.rollouts import RolloutStore, open_rollouts
from journeyman.stores.sql import SqlTraces
from journeyman.stores.tables import FEEDBACK
from journeyman.stores.traces import labels
from tests.support import postgres
from tests.support.examples import examples

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)


class Both(RolloutStore, SqlTraces):
    """Both sides of one database: what is said, and what it is said of."""


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Both]:
    with _opened(request.param, tmp_path) as opened:
        yield opened


@contextmanager
def _opened(kind: str, folder: Path) -> Iterator[Both]:
    if kind == "postgres":
        with postgres.database() as url, Both(url) as opened:
            yield opened
    else:
        with Both("memory:" if kind == "memory" else f"sqlite:///{folder / 'journeyman.db'}") as opened:
            yield opened


def word(
    target: str = "t1", value: float | None = 1.0, kind: TargetKind = TargetKind.TRACE, *, id: str = "", **more: Any
) -> Feedback:
    at = NOON + timedelta(minutes=more.pop("minutes", 0))
    return Feedback(
        id=id or f"{kind}/{target}/{value}/{at}/{more}", target_kind=kind, target=target, value=value, at=at, **more
    )


def served(id: str = "t1", *calls: str, session: str | None = "visit") -> Trace:
    """A conversation as the gateway leaves it: the trace has the id of its first request."""
    steps = tuple(ModelCall(id=each, model="m", prompt="user: Hi", reply="Hello") for each in (id, *calls))
    return Trace(
        id=id, task_id=f"task of {id}", candidate_id="base", started_at=NOON, steps=steps, session=session, source="gateway"
    )


def said(store: Both, id: str = "t1") -> tuple[bool | None, str | None]:
    line = store.line(id)
    assert line is not None
    return line.label, line.labelled_by


def test_what_is_said_comes_back_as_it_was_said(store: Both) -> None:
    tags = {"page": "checkout", "n": 3, "beta": True}
    more: dict[str, Any] = {"metric": "tone", "text": "too \x00 loud", "source": Source.JUDGE, "rater": "gpt", "tags": tags}
    whole = word("nul \x00 and half a pair \ud800", 0.25, TargetKind.TASK, **more)
    assert store.add_feedback([whole], now=NOON) == [False]
    assert store.feedback_of([(TargetKind.TASK, whole.target)]) == [whole]
    assert store.feedback_of([(TargetKind.TRACE, whole.target)]) == []
    assert store.add_feedback([], now=NOON) == []


def test_the_same_word_again_adds_nothing_and_another_with_its_id_is_refused_with_all_that_came_with_it(store: Both) -> None:
    first = word(id="f1")
    store.add_feedback([first, first], now=NOON)
    store.add_feedback([replace(first, at=NOON + timedelta(hours=1))], now=NOON)
    assert store.feedback_of([(TargetKind.TRACE, "t1")]) == [first]
    with pytest.raises(Unkeepable, match="feedback 'f1' is kept already, and says something else"):
        store.add_feedback([word("t2"), replace(first, value=0.0)], now=NOON)
    assert store.feedback_of([(TargetKind.TRACE, "t1"), (TargetKind.TRACE, "t2")]) == [first]


def test_of_one_rater_on_one_thing_the_last_word_counts_whenever_it_arrives(store: Both) -> None:
    mine: dict[str, Any] = {"rater": "ada", "source": Source.PERSON}
    late, early = word(value=0.0, minutes=9, **mine), word(value=1.0, minutes=1, **mine)
    others = [
        word(value=1.0, rater="bo", source=Source.PERSON),
        word(value=0.5, source=Source.USER),
        word(value=3, metric="stars"),
    ]
    store.add_feedback([late, *others, early], now=NOON)
    found = store.feedback_of([(TargetKind.TRACE, "t1")])
    assert sorted(each.id for each in found) == sorted(each.id for each in (late, *others))


def test_whether_a_target_is_known_is_said_of_each_kind(store: Both) -> None:
    store.add([served("t1", "r2", "r3"), replace(served("elsewhere"), source="otlp")])
    asked = [
        *(word(id, kind=TargetKind.REQUEST) for id in ("t1", "r2", "r3", "elsewhere", "r4")),
        *(word(id, kind=TargetKind.TRACE) for id in ("t1", "elsewhere", "r2")),
        *(word(id, kind=TargetKind.SESSION) for id in ("visit", "another")),
        *(word(id, kind=TargetKind.TASK) for id in ("task of t1", "t1")),
    ]
    known = store.add_feedback(asked, now=NOON)
    assert known == [True, True, True, False, False, True, True, False, True, False, True, False]
    assert store.add_feedback(asked, now=NOON) == known


@pytest.mark.parametrize("first", ["feedback", "trace"])
@pytest.mark.parametrize(("kind", "target"), [(TargetKind.TRACE, "t1"), (TargetKind.REQUEST, "t1"), (TargetKind.REQUEST, "r2")])
def test_a_word_on_a_trace_or_a_request_is_its_label_whichever_comes_first(
    store: Both, first: str, kind: TargetKind, target: str
) -> None:
    words = [word(target, 1.0, kind), word(target, 0.0, kind, source=Source.TRUTH, text="the refund was paid", minutes=-9)]
    trace = served("t1", "r2")
    if first == "trace":
        store.add([trace])
    store.add_feedback(words, now=NOON)
    store.add([trace])
    # It goes on, is told anew, and what was said is said again.
    store.add([served("t1", "r2", "r3")])
    store.add_feedback(words, now=NOON)
    assert said(store) == (False, "ground-truth")
    assert [(label.who, label.good) for label in store.labels("t1")] == [("ground-truth", False), ("end-user", True)]
    (given_,) = store.rewards("t1")
    assert (given_.reward.evidence, given_.reward.weight, given_.by) == ("the refund was paid", 0.0, "feedback (ground truth)")
    kept = store.get("t1")
    assert kept is not None
    assert (kept.verdict.good, kept.verdict.source) == (False, Source.TRUTH)


def test_whose_word_goes_before_whose_is_the_order_of_labels(store: Both) -> None:
    store.add([served()])
    store.add_feedback([word(value=0.0, source=Source.JUDGE)], now=NOON)
    assert said(store) == (None, None)
    trace = store.get("t1")
    assert trace is not None
    assert (trace.verdict.good, trace.verdict.source) == (False, Source.JUDGE)
    for at, (source, value) in enumerate(((Source.TRUTH, 1.0), (Source.PERSON, 0.0), (Source.USER, 0.0))):
        store.add_feedback([word(value=value, source=source, minutes=at)], now=NOON)
        assert said(store) == (True, "ground-truth")
    store.label("t1", False, who="ground-truth", at=NOON + timedelta(days=20))
    assert said(store) == (False, "ground-truth")
    store.add_feedback([word(value=1.0, source=Source.TRUTH, minutes=60 * 24 * 21)], now=NOON)
    assert said(store) == (True, "ground-truth")


def test_a_grade_is_good_as_the_one_rule_says_and_another_metric_decides_nothing(store: Both) -> None:
    store.add([served("t1"), served("t2"), served("t3")])
    store.add_feedback([word("t1", 0.7), word("t2", 0.7, source=Source.TRUTH)], now=NOON)
    assert (said(store, "t1"), said(store, "t2")) == ((True, "end-user"), (False, "ground-truth"))
    others = [word("t3", 0.0, metric="tone"), word("t3", 4, metric="stars"), word("t3", None, metric=ANSWER, text="Oslo")]
    store.add_feedback(others, now=NOON)
    trace = store.get("t3")
    assert trace is not None
    assert (trace.label, trace.verdict.good) == (None, None)
    found = {reward.name: (reward.value, reward.evidence) for reward in trace.rewards}
    assert found["tone (end user)"] == (0.0, "")
    assert found["stars (end user)"] == (None, "4")
    assert found[f"{ANSWER} (end user)"] == (None, "Oslo")
    line = store.line("t3")
    assert line is not None
    assert line.reward is None


def test_the_same_feedback_a_thousand_times_eight_at_a_time_is_one_row(store: Both) -> None:
    if store._database.name == "memory:":
        pytest.skip("one connection: nobody is at once")
    store.add([served()])
    again = [word(id="f1")] * 200
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: store.add_feedback([one] * 5, now=NOON), again))
    with store._database.read() as connection:
        assert connection.exec_driver_sql("select count(*) from feedback").scalar() == 1
    assert len(store.labels("t1")) == 1


def test_a_trace_that_comes_while_it_is_spoken_of_misses_no_word(store: Both) -> None:
    if store._database.name == "memory:":
        pytest.skip("one connection: nobody is at once")

    def say(number: int) -> None:
        store.add_feedback([word(f"r{number}", kind=TargetKind.REQUEST)], now=NOON)

    def tell(number: int) -> None:
        store.add([served(f"t{number}", f"r{number}")])

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(act, number) for number in range(40) for act in (say, tell)]
        for each in done:
            each.result()
    assert all(said(store, f"t{number}") == (True, "end-user") for number in range(40))


values = st.one_of(st.just((SUCCESS, 0.0)), st.just((SUCCESS, 1.0)), st.just(("tone", 0.5)))
words = st.lists(
    st.builds(
        lambda id, of, on, who, minutes: word(on[1], of[1], on[0], id=str(id), metric=of[0], source=who, minutes=minutes),
        st.integers(0, 50),
        values,
        st.sampled_from([(TargetKind.TRACE, "t1"), (TargetKind.REQUEST, "r2"), (TargetKind.REQUEST, "t1")]),
        st.sampled_from(list(Source)),
        st.integers(0, 5),
    ),
    max_size=8,
    unique_by=lambda each: each.id,
)


@examples(0.4)  # each opens two stores
@given(words, st.integers(0, 8), st.integers(0, 8))
def test_in_whatever_order_words_and_their_trace_come_the_same_holds(said_: list[Feedback], first: int, second: int) -> None:
    # Of words of one moment the one that came last holds, so each has its own here.
    timed = [replace(each, at=each.at + timedelta(seconds=place)) for place, each in enumerate(said_)]
    found = []
    for before, between in ((timed[:first], timed[first:]), (timed[second:], timed[:second])):
        with Both("memory:") as store:
            store.add_feedback(before, now=NOON)
            store.add([served("t1", "r2")])
            store.add_feedback(between, now=NOON)
            store.add_feedback(before, now=NOON)
            trace = store.get("t1")
            assert trace is not None
            found.append((said(store), trace.verdict.good, trace.verdict.source, len(store.labels()), len(store.rewards("t1"))))
    assert found[0] == found[1]


def test_many_words_are_kept_at_once_and_told_on_the_way(tmp_path: Path) -> None:
    with open_rollouts(tmp_path / "journeyman.db") as store:
        told: list[int] = []
        many = [word(f"s{number}", kind=TargetKind.SESSION) for number in range(1200)]
        assert len(store.add_feedback(many, now=NOON, told=told.append)) == 1200
        assert told == [500, 1000, 1200]
        assert len(store.feedback_of((TargetKind.SESSION, f"s{number}") for number in range(1200))) == 1200


def test_a_label_is_a_word_of_feedback_and_outlives_the_trace_that_is_told_anew(store: Both) -> None:
    store.add([served()])
    store.label("t1", True, who="ada", at=NOON)
    store.label("t1", True, who="ada", at=NOON)
    store.label("t1", False, who="ground-truth", at=NOON)
    store.label("t1", False, who="auto-labeler", at=NOON, probability=0.9)
    words = store.feedback_of([(TargetKind.TRACE, "t1")])
    assert [(each.source, each.rater, each.value) for each in words] == [(Source.PERSON, "ada", 1.0), (Source.TRUTH, None, 0.0)]
    assert [(label.who, label.good) for label in store.labels("t1")] == [
        ("ada", True), ("ground-truth", False), ("auto-labeler", False)
    ]  # fmt: skip
    store.label("t1", None, who="ground-truth", at=NOON + timedelta(minutes=1))
    assert said(store) == (True, "ada")
    score = word(value=0.5, metric="score", source=Source.PERSON, rater="ada")
    store.add_feedback([score, replace(score, id="another", source=Source.USER)], now=NOON)
    assert store.ratings_by_people() == [score]


def test_a_label_came_when_the_clock_that_the_store_was_handed_says(tmp_path: Path) -> None:
    with SqlTraces(f"sqlite:///{tmp_path / 'journeyman.db'}", clock=lambda: NOON) as store:
        store.add([served()])
        store.label("t1", True, who="ada", at=NOON - timedelta(hours=1))
        with store._database.read() as connection:
            assert list(connection.scalars(sa.select(FEEDBACK.c.received_at))) == [NOON]


def test_a_label_from_before_it_was_feedback_holds_as_it_did(store: Both) -> None:
    store.add([served()])
    with store._database.write() as connection:
        labels.add_label(connection, "t1", {"good": False, "who": "ada", "at": NOON, "probability": None})
    assert said(store) == (False, "ada")
    store.label("t1", True, who="bo", at=NOON + timedelta(minutes=1))
    assert said(store) == (True, "bo")
    store.label("t1", None, who="bo", at=NOON + timedelta(minutes=2))
    assert said(store) == (False, "ada")
    store.label("t1", None, who="ada", at=NOON + timedelta(minutes=3))
    assert said(store) == (None, None)


@pytest.mark.parametrize("first", ["feedback", "trace"])
def test_of_several_raters_each_ones_last_word_holds_until_it_is_taken_back(store: Both, first: str) -> None:
    def says(rater: str, text: str | None, minutes: int) -> Feedback:
        return word(value=None, text=text, metric=ANSWER, source=Source.PERSON, rater=rater, minutes=minutes)

    words = [says("ada", "A", 1), says("bo", "B", 2), says("bo", "C", 3), says("cy", "D", 4), says("cy", None, 5)]
    if first == "trace":
        store.add([served()])
    store.add_feedback(words, now=NOON)
    store.add([served()])
    assert corrections(store) == ["A", "C"]
    store.add_feedback([says("bo", None, 6)], now=NOON)
    assert corrections(store) == ["A"]
    assert [each.text for each in store.feedback_of([(TargetKind.TRACE, "t1")])] == ["A"]
    assert len(store.feedback_of([(TargetKind.TRACE, "t1")], whole=True)) == 6


@pytest.mark.parametrize("source", [Source.USER, Source.TRUTH, Source.PERSON])
def test_who_takes_a_word_back_takes_back_none_of_anybody_else(store: Both, source: Source) -> None:
    def says(
        rater: str | None, value: float | None, minutes: int, target: str = "t1", kind: TargetKind = TargetKind.TRACE
    ) -> Feedback:
        return word(target, value, kind, source=source, rater=rater, minutes=minutes)

    one, other = (None, None) if source is Source.PERSON else ("u1", "u2")
    request = ("r2", TargetKind.REQUEST)
    store.add([served("t1", "r2")])
    store.add_feedback([says(one, 1.0, 1), says(other, None, 2, *request)], now=NOON)
    assert said(store)[0] is True
    store.add_feedback([says(other, 0.0, 4, *request)], now=NOON)
    assert said(store)[0] is False
    # It comes last and was said before: what stood then is another one.
    store.add_feedback([says(other, None, 5, *request), says(one, 0.0, 3), says(one, 1.0, 4)], now=NOON)
    assert said(store)[0] is True
    store.add([served("t1", "r2", "r3")])
    assert said(store)[0] is True
    store.add_feedback([says(one, None, 6)], now=NOON)
    assert said(store) == (None, None)


def corrections(store: Both) -> list[str]:
    trace = store.get("t1")
    assert trace is not None
    return [each.evidence for each in trace.rewards]


def test_what_stood_beside_a_label_goes_when_the_label_is_said_anew(store: Both) -> None:
    mine: dict[str, Any] = {"rater": "ada", "source": Source.PERSON}
    store.add([served()])
    store.add_feedback([word(value=0.7, text="nearly", **mine)], now=NOON)
    assert (said(store), corrections(store)) == ((False, "ada"), ["nearly"])
    store.label("t1", True, who="ada", at=NOON + timedelta(minutes=1))
    assert (said(store), corrections(store)) == ((True, "ada"), [])


def test_a_note_is_kept_and_found_and_is_no_reward(store: Both) -> None:
    note = word(value=None, text="ask the desk", metric=NOTE, source=Source.PERSON, rater="ada")
    store.add([served()])
    assert store.add_feedback([note], now=NOON) == [True]
    store.add([served("t1", "r2")])
    assert store.feedback_of([(TargetKind.TRACE, "t1")]) == [note]
    assert (list(store.rewards("t1")), corrections(store)) == ([], [])


def test_the_evidence_of_a_rollout_counts_the_last_word_of_each_and_nothing_that_was_taken_back(store: Both) -> None:
    raw = {"release": [{"rollout": "ro", "unit": "u", "arm": "canary"}]}
    steps = (ModelCall(id="t1", model="m", prompt="p", reply="r", raw=raw, started_at=NOON),)
    store.add([replace(served(), steps=steps)])
    ada: dict[str, Any] = {"rater": "ada", "source": Source.PERSON}
    store.add_feedback([word(value=value, metric="score", minutes=at, **ada) for at, value in enumerate((0.2, 0.8))], now=NOON)
    session = {"kind": TargetKind.SESSION, **ada}
    store.add_feedback([word("visit", value, minutes=at, **session) for at, value in enumerate((0.0, 1.0))], now=NOON)
    store.label("t1", True, who="bo", at=NOON)
    store.add_feedback([word(value=None, metric="score", minutes=1, rater="bo", source=Source.PERSON)], now=NOON)
    (opinions,) = store.served_sessions("ro", ["u"])["u"].said().values()
    assert sorted((each.reward.name, each.reward.value) for each in opinions) == [
        ("bo", 1.0), ("score (person)", 0.8), ("success (person)", 1.0)
    ]  # fmt: skip
