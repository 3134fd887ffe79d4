"""What the store promises of turns of learning, in each database."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from journeyman.core.errors import InputError, ReleaseError
from journeyman.core.trace import ModelCall, ToolCall, Trace
from journeyman.core.turn import LearnSubject, LearnTurn, TurnEvent, TurnSpent, TurnState
from journeyman.stores.traces import open_traces
from journeyman.stores.turns import LEASE, LearnOrder, TurnStore, open_turns
from tests.support import postgres

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "postgres":
        with postgres.database() as found:
            yield found
    else:
        yield f"sqlite:///{tmp_path}/journeyman.db"


@pytest.fixture
def store(url: str) -> Iterator[TurnStore]:
    with open_turns(url) as opened:
        opened.lease(LEASE, "us", NOON, 60)
        yield opened


def turn(id: str = "t1", at: datetime = NOON, domain: str = "oslo", **more: object) -> LearnTurn:
    event = TurnEvent(number=0, state=TurnState.RUNNING, at=at, spent=TurnSpent(cost=None, cpu_seconds=30.0, looks=1))
    told = {"trigger": "50 new traces", "data_digest": "d", "seen": 50, "before": {"files": {"a": None}}, **more}
    return LearnTurn(id=id, subject=LearnSubject("playbook", "desk", domain), began=at, events=(event,), **told)  # type: ignore[arg-type]


def test_a_turn_comes_back_as_it_was_kept_with_all_that_happened_to_it(store: TurnStore) -> None:
    begun = turn(parent="t0")
    store.begin(begun, "us")
    assert store.turns() == [begun]
    ended = begun.then(
        TurnState.LEARNED, NOON + timedelta(seconds=5), spent=TurnSpent(cost=0.1, cpu_seconds=3.5), candidate="c",
        reason="better\x00 by half", report={"slots": [{"verdict": "checked"}]},
    )  # fmt: skip
    store.keep(ended, "us")
    assert store.turn("t1") == ended
    with pytest.raises(InputError, match="nearest are t1; journeyman learn history shows them"):
        store.turn("t2")


def test_of_two_who_keep_the_same_event_one_does(store: TurnStore) -> None:
    begun = turn()
    store.begin(begun, "us")
    store.keep(begun.then(TurnState.LEARNED, NOON), "us")
    with pytest.raises(ReleaseError, match="something else happened"):
        store.keep(begun.then(TurnState.FAILED, NOON))
    assert store.turn("t1").state is TurnState.LEARNED


def test_without_the_lease_nobody_begins_or_goes_on_with_a_turn(store: TurnStore) -> None:
    begun = turn()
    store.begin(begun, "us")
    late = NOON + timedelta(seconds=61)
    with pytest.raises(ReleaseError, match="its lease is over"):
        store.keep(begun.then(TurnState.LEARNED, late), "us")
    store.lease(LEASE, "others", late, 60)
    with pytest.raises(ReleaseError, match="us does not carry out turns"):
        store.begin(turn("t2", late), "us")
    assert [each.id for each in store.turns()] == ["t1"]
    assert store.held_by(LEASE, late) == "others"
    assert store.held_by(LEASE, late + timedelta(seconds=61)) == ""


def test_what_counts_for_a_budget_is_what_is_young_unfinished_or_the_last_of_its_subject(store: TurnStore) -> None:
    old = NOON - timedelta(days=40)
    store.lease(LEASE, "us", old, 1e8)
    for number, (at, domain, ends) in enumerate(
        [(old, "oslo", True), (old, "oslo", True), (old, "lima", False), (NOON, "rome", True)]
    ):
        made = turn(f"t{number}", at, domain)
        store.begin(made, "us")
        if ends:
            store.keep(made.then(TurnState.NOTHING, at))
    assert [each.id for each in store.turns(since=NOON - timedelta(days=30))] == ["t1", "t2", "t3"]
    assert [each.id for each in store.turns(limit=2)] == ["t2", "t3"]


def test_experience_is_what_others_made_and_another_when_something_is_said_of_it(store: TurnStore, url: str) -> None:
    def trace(id: str, **more: object) -> Trace:
        call = ModelCall(model="m", prompt="user: Hi", reply="Hello")
        told = {"agent": "desk", "domain": "oslo", "source": "gateway", **more}
        return Trace(id=id, task_id=id, candidate_id="base", started_at=NOON, steps=(call,), **told)  # type: ignore[arg-type]

    with open_traces(url) as traces:
        traces.add([trace("a"), trace("b"), trace("c", source="run"), trace("d", agent="journeyman"), trace("e", agent=None)])
        before = store.experience()
        assert {slot: each.seen for slot, each in before.items()} == {("desk", "oslo"): 2, (None, "oslo"): 1}
        assert store.experience() == before
        refused = ToolCall(tool="order", arguments="{}", result="Error: no", ok=False)
        traces.add([replace(trace("b"), steps=(*trace("b").steps, refused))])
        after = store.experience()
    assert after["desk", "oslo"].seen == 2
    assert after["desk", "oslo"].digest != before["desk", "oslo"].digest
    assert after[None, "oslo"] == before[None, "oslo"]


def test_the_last_order_holds(store: TurnStore) -> None:
    assert store.last_order("stop") is None
    for verb in ("pause", "stop", "resume"):
        store.order(LearnOrder(verb, "ada", "why", NOON))
    assert store.last_order("pause", "resume") == LearnOrder("resume", "ada", "why", NOON)
    assert store.last_order("stop") == LearnOrder("stop", "ada", "why", NOON)
