"""When a turn of learning is due, and that no budget is ever exceeded, whatever happens when."""

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.turn import (
    DAY,
    LEAST_CPU,
    MONTH,
    LearnExperience,
    LearnRules,
    LearnSubject,
    LearnTurn,
    Situation,
    TurnEvent,
    TurnPlan,
    TurnSpent,
    TurnState,
    allowance,
    plan,
)

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)
US = LearnSubject("playbook", "desk", "oslo")
RULES = LearnRules(every=timedelta(hours=1), min_new=50, alerts=("drift",))


def turn(number: int = 0, *, ago: float = 2.0, state: TurnState = TurnState.LEARNED, **more: object) -> LearnTurn:
    """One that took a minute, so many hours ago."""
    began = NOON - timedelta(hours=ago)
    spent = more.pop("spent", TurnSpent())
    made = LearnTurn(
        **{
            "id": f"t{number}",
            "subject": US,
            "began": began,
            "trigger": "50 new traces",
            "data_digest": "old",
            "seen": 50,
            **more,
        },  # type: ignore[arg-type]
        events=(TurnEvent(number=0, state=TurnState.RUNNING, at=began, spent=spent),),  # type: ignore[arg-type]
    )
    if state is TurnState.RUNNING:
        return made
    return made.then(state, began + timedelta(minutes=1), spent=spent, reason="because")


def only(*turns: LearnTurn, seen: int = 120, digest: str = "new", rules: LearnRules = RULES, **more: object) -> TurnPlan:
    found = Situation(**{"now": NOON, "experience": {US: LearnExperience(seen, digest)}, "turns": turns, **more})  # type: ignore[arg-type]
    (said,) = plan(found, rules)
    return said


def test_enough_that_is_new_after_the_time_between_two_turns_is_a_turn() -> None:
    assert only(seen=50).trigger == "50 new traces"
    assert only(seen=49).why_not == "49 of 50 new traces"
    assert only(turn(), seen=100).trigger == "50 new traces"
    assert only(turn(), seen=99).why_not == "49 of 50 new traces"
    assert "not before" in only(turn(ago=0.5), seen=200).why_not
    assert only(seen=0).why_not == "there is no experience yet"


def test_where_nothing_is_new_nothing_is_spent_however_long_ago_the_last_turn_was() -> None:
    assert only(turn(ago=400), digest="old", seen=1000).why_not == "nothing is new since t0"
    undone = turn().then(TurnState.UNDONE, NOON)
    assert only(undone, digest="old").why_not == "nothing is new since t0"


def test_an_alert_makes_a_turn_due_at_once_and_once() -> None:
    now = {"drift": NOON - timedelta(minutes=1)}
    assert only(turn(ago=0.5), seen=51, firing=now).trigger == "the alert drift fires"
    assert not only(turn(ago=0.5), seen=51, firing={"latency": NOON}).is_due
    assert not only(turn(ago=0.5), seen=51, firing={"drift": NOON - timedelta(hours=1)}).is_due
    assert only(turn(ago=0.5), digest="old", firing=now).why_not == "nothing is new since t0"


@pytest.mark.parametrize(
    ("hours", "due"), [((2, 6), False), ((11, 13), True), ((22, 6), False), ((22, 13), True), ((12, 11), True)]
)
def test_turns_begin_within_the_time_of_day_that_may_go_over_midnight(hours: tuple[int, int], due: bool) -> None:
    said = only(rules=replace(RULES, at=(time(hours[0]), time(hours[1]))))
    assert said.is_due is due
    assert due or said.why_not.startswith("turns begin from")


@pytest.mark.parametrize("state", [TurnState.LOST, TurnState.STOPPED])
def test_what_was_broken_off_is_gone_on_with_at_once(state: TurnState) -> None:
    said = only(turn(ago=0.1, state=state), digest="old")
    assert (said.parent, said.is_due) == ("t0", True)


def test_what_fails_is_tried_after_longer_and_longer_and_then_only_with_other_data() -> None:
    failed = [turn(number, ago=0.9 - number / 100, state=TurnState.FAILED) for number in range(6)]
    assert "again at" in only(*failed[:1], digest="old").why_not
    assert only(replace(failed[0], events=failed[0].events[:1]).then(TurnState.FAILED, NOON - timedelta(hours=1.1))).is_due
    assert not only(replace(failed[0], events=failed[0].events[:1]).then(TurnState.FAILED, NOON - timedelta(hours=0.9))).is_due
    old = [turn(number, ago=100 - number, state=TurnState.FAILED) for number in range(5)]
    assert "only other data" in only(*old, digest="old").why_not
    assert only(*old, digest="new").is_due


def test_what_is_lost_again_and_again_is_a_failure() -> None:
    lost = [turn(number, ago=0.9 - number / 10, state=TurnState.LOST) for number in range(3)]
    assert only(*lost[:2], digest="old").parent == "t1"
    assert "again at" in only(*lost, digest="old").why_not


def test_while_something_is_brought_to_live_traffic_no_turn_begins_there() -> None:
    assert only(occupied={US: "the rollout r is open there"}).why_not == "the rollout r is open there"


def test_of_several_the_one_with_an_alert_comes_first_and_then_the_one_with_most_that_is_new() -> None:
    few, many, none = (LearnSubject("playbook", "desk", name) for name in ("a", "b", "c"))
    there = {few: LearnExperience(60, "x"), many: LearnExperience(600, "x"), none: LearnExperience(3, "x")}
    found = Situation(now=NOON, experience=there, turns=())
    assert [each.subject for each in plan(found, RULES)] == [many, few, none]


def test_a_turn_of_which_nobody_knows_what_it_cost_cost_what_it_might_have() -> None:
    rules = replace(RULES, cost_per_day=1.0, cost_per_turn=0.4)
    known, unknown = turn(spent=TurnSpent(cost=0.1)), turn(1, spent=TurnSpent(cost=None))
    assert allowance([known], NOON, rules).cost == pytest.approx(0.9)
    assert allowance([known, unknown], NOON, rules).cost == pytest.approx(0.5)
    assert allowance([known, unknown], NOON, rules).cost_of_turn == pytest.approx(0.4)
    assert "no turn is begun" in only(known, unknown, turn(2, spent=TurnSpent(cost=None)), rules=rules).why_not


def test_a_turn_that_was_undone_has_spent_what_it_spent() -> None:
    spent = TurnSpent(cpu_seconds=30.0, looks=2)
    undone = turn(ago=30, spent=spent).then(TurnState.UNDONE, NOON - timedelta(hours=1))
    rules = replace(RULES, cpu_seconds_per_day=100, looks_per_month=10)
    assert allowance([undone], NOON, rules)[1:3] == (100.0, 8)


ENDS = sorted(set(TurnState) - {TurnState.RUNNING, TurnState.UNDONE})
amounts = st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.integers(0, 2), st.sampled_from(ENDS))


@given(st.lists(amounts, max_size=40), st.integers(0, 39))
def test_in_no_window_wherever_it_begins_more_is_spent_than_the_budget(
    steps: list[tuple[float, float, float, int, TurnState]], start: int
) -> None:
    """Whatever turns take of what they are allowed, and whatever becomes of them."""
    rules = replace(RULES, cost_per_day=1.0, cost_per_turn=0.3, cpu_seconds_per_day=100.0, looks_per_month=5)
    now, turns = NOON, list[LearnTurn]()
    for wait, share, length, looks, state in steps:
        now += timedelta(hours=20 * wait)
        left = allowance(turns, now, rules)
        if left.gone:
            continue
        assert left.cpu_seconds is not None
        assert left.looks is not None
        assert left.cost_of_turn is not None
        spent = TurnSpent(cost=share * left.cost_of_turn, cpu_seconds=share * left.cpu_seconds, looks=min(looks, left.looks))
        made = turn(len(turns), spent=spent, state=TurnState.RUNNING)
        made = replace(made, began=now, events=(replace(made.events[0], at=now),))
        now += timedelta(hours=5 * length)
        turns.append(made.then(state, now, spent=spent))
    if not turns:
        return
    begin = turns[start % len(turns)].began

    def within(length: timedelta) -> list[TurnSpent]:
        # All of a turn that lies within the window.
        return [each.last.spent for each in turns if each.began >= begin and each.last.at <= begin + length]

    assert sum(each.cost or 0.0 for each in within(DAY)) <= 1.0 + 1e-6
    assert sum(each.cpu_seconds for each in within(DAY)) <= 100.0 + 1e-6
    assert sum(each.looks for each in within(MONTH)) <= 5


def test_no_turn_begins_with_less_cpu_than_it_takes_to_load_what_it_needs() -> None:
    rules = replace(RULES, cpu_seconds_per_day=100.0)
    nearly = turn(spent=TurnSpent(cpu_seconds=100.0 - LEAST_CPU + 0.1))
    assert "less than 10 s of CPU" in only(nearly, rules=rules).why_not
    assert only(turn(spent=TurnSpent(cpu_seconds=100.0 - LEAST_CPU)), rules=rules).is_due
