"""What every trace store promises of traces that it is told to forget: they, and all that was said of them, are gone."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.feedback import Feedback, TargetKind
from journeyman.core.reward import Reward, Source
from journeyman.core.score import Score
from journeyman.core.task import Split
from journeyman.core.trace import ModelCall, Trace
from journeyman.stores import AttemptRecord, RunRecord, open_store, open_traces
from journeyman.stores.rollouts import RolloutStore, open_rollouts
from journeyman.stores.traces.base import Query, SpanRow
from tests.support import postgres
from tests.support.examples import examples

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)
KINDS = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))


@contextmanager
def url_of(kind: str, folder: Path) -> Iterator[str]:
    if kind == "postgres":
        with postgres.database() as url:
            yield url
    else:
        yield str(folder / "journeyman.db")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with url_of(request.param, tmp_path) as found:
        yield found


def asked(id: str, words: str, *, session: str | None = "s", calls: tuple[str, ...] = ()) -> Trace:
    steps = tuple(ModelCall(id=call, model="m", prompt=f"{words} {call}", reply=f"about {words}") for call in calls or (id,))
    return Trace(id=id, task_id="t", candidate_id="base", started_at=NOON, steps=steps, session=session, source="gateway")


def word(id: str, kind: TargetKind, target: str) -> Feedback:
    return Feedback(
        id=id, target_kind=kind, target=target, value=0.0, text=f"{id} was bad", source=Source.USER, rater="ada", at=NOON
    )


def said_of(rollouts: RolloutStore, *targets: tuple[TargetKind, str]) -> list[str]:
    return [each.id for each in rollouts.feedback_of(targets)]


def test_a_trace_is_forgotten_with_its_spans_contents_words_labels_and_rewards(url: str) -> None:
    with open_traces(url) as store:
        store.add([asked("ada", "refund " * 400), asked("bob", "lamp " * 400)])
        store.add_spans([SpanRow(trace_id=id, span_id="1", at=NOON, body=b"{}") for id in ("ada", "bob", "unread")])
        for id in ("ada", "bob"):
            store.label(id, True, who="eve", at=NOON)
            store.reward(id, [Reward(name="sold", value=1.0, evidence=f"{id} paid")], by="till", at=NOON)
        would = store.forget(["ada", "unread", "nobody"], dry_run=True)
        assert store.count(Query()) == 2
        went = store.forget(["ada", "unread", "nobody"])
        assert (would.traces, went.traces, went.spans, went.kept) == (1, 1, 2, 0)
        assert went.bytes > 0
        assert store.get("ada") is None
        assert store.count(Query(text="refund")) == 0
        assert store.spans(["ada", "unread"]) == {}
        assert {label.trace_id for label in store.labels()} == {"bob"}
        assert [given.reward.evidence for given in store.rewards("bob")] == ["bob paid"]
        assert store.count(Query(text="lamp")) == 1
        assert len(store.spans(["bob"])["bob"]) == 1


def test_what_was_said_of_it_is_forgotten_also_where_it_was_said_of_a_request_in_it(url: str) -> None:
    kinds = {
        "f1": (TargetKind.TRACE, "ada"), "f2": (TargetKind.REQUEST, "ada-2"), "f3": (TargetKind.TRACE, "bob"),
        "f4": (TargetKind.TRACE, "lost"), "f5": (TargetKind.TASK, "t"),
    }  # fmt: skip
    with open_traces(url) as store, open_rollouts(url) as rollouts:
        store.add([asked("ada", "refund", calls=("ada-1", "ada-2")), asked("bob", "lamp")])
        rollouts.add_feedback([word(id, *target) for id, target in kinds.items()], now=NOON)
        store.forget(["ada", "lost"])
        assert said_of(rollouts, *kinds.values()) == ["f3", "f5"]
        # What was said before its trace came must not come back with it either.
        store.add([asked("lost", "again")])
        assert store.labels("lost") == []


def test_what_was_said_of_a_session_goes_with_its_last_trace(url: str) -> None:
    session = TargetKind.SESSION, "s"
    with open_traces(url) as store, open_rollouts(url) as rollouts:
        store.add([asked("one", "a"), asked("two", "b"), asked("other", "c", session="u")])
        rollouts.add_feedback([word("f", *session), word("g", TargetKind.SESSION, "u")], now=NOON)
        store.forget(["one"])
        assert said_of(rollouts, session) == ["f"]
        store.forget(["two"])
        assert said_of(rollouts, session, (TargetKind.SESSION, "u")) == ["g"]


def test_what_tells_the_same_calls_is_forgotten_with_it_whichever_is_named(url: str) -> None:
    call = ModelCall(model="m", prompt="the words", reply="r", response_id="r1")
    whole = Trace(id="whole", task_id="t", candidate_id="base", started_at=NOON, steps=(call, replace(call, response_id="r2")))
    twice = replace(whole, id="twice", steps=(call,), started_at=NOON + timedelta(hours=1))
    for named in ("whole", "twice"):
        with open_traces(url) as store:
            store.add([whole, twice, asked("bob", "lamp")])
            assert store.forget([named], dry_run=True).traces == store.forget([named]).traces == 2
            assert [line.id for line in store.page(Query()).lines] == ["bob"]
            assert store.count(Query(text="words")) == 0


def test_what_a_run_attempted_stays_and_is_counted(url: str) -> None:
    trace = replace(asked("1", "refund"), source="run")
    with open_store(url) as runs, open_traces(url) as store:
        runs.add_run(RunRecord(id="run", kind="evaluate", config={}, started_at=NOON))
        runs.add_attempts(
            [AttemptRecord(run_id="run", split=Split.HELD_OUT, trace=trace, score=Score(trace_id=trace.id, rewards=()))]
        )
        store.add([asked("ada", "refund")])
        ids = [line.id for line in store.page(Query(text="refund")).lines]
        would, went = store.forget(ids, dry_run=True), store.forget(ids)
        assert (would.traces, would.kept) == (went.traces, went.kept) == (1, 1)
        assert [line.id for line in store.page(Query()).lines] == ["run:1"]
        assert len(list(runs.attempts(run_id="run"))) == 1


@given(named=st.sets(st.sampled_from([f"t{at}" for at in range(8)])), twice=st.booleans())
@examples(0.3)
def test_exactly_what_is_named_goes_once_and_the_rest_is_as_it_was(named: set[str], twice: bool) -> None:
    traces = [asked(f"t{at}", f"word{at}", session=f"s{at % 3}") for at in range(8)]
    with open_traces("memory:") as store:
        store.add(traces)
        kept = {trace.id: store.get(trace.id) for trace in traces if trace.id not in named}
        assert store.forget(named).traces == len(named)
        if twice:
            assert store.forget(named).traces == 0
        assert {trace.id: trace for trace in store.traces()} == kept
        for at in range(8):
            assert store.count(Query(text=f"word{at}")) == (f"t{at}" not in named)


def test_more_than_one_statement_holds_are_forgotten(tmp_path: Path) -> None:
    with open_traces(tmp_path / "journeyman.db") as store:
        store.add(asked(f"t{at}", f"word{at}", session=None) for at in range(450))
        assert store.forget(f"t{at}" for at in range(449)).traces == 449
        assert [line.id for line in store.page(Query()).lines] == ["t449"]
