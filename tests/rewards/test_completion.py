import json

import pytest

from journeyman.core.trace import Reasoning, Trace
from journeyman.rewards.static import Goal, TaskCompletionReward
from tests.support.traces import done, reply, used

REWARD = TaskCompletionReward()
BOOK = {"flight": "HAT136", "bags": 2}
GOAL = TaskCompletionReward(goals={"task": Goal(calls=(("book", BOOK),), only=frozenset({"book", "cancel"}))})


@pytest.mark.parametrize(
    "trace",
    [
        done(reply("calling"), used("save"), reply("done")),
        done(used("a", "Error"), used("b"), reply("done")),
        done(reply("handing over"), used("transfer")),
    ],
)
def test_an_attempt_that_ended_by_itself_is_complete(trace: Trace) -> None:
    assert REWARD.compute(trace).score == 1.0


def test_a_reply_alone_of_which_no_goal_is_known_is_nothing_to_measure() -> None:
    found = REWARD.compute(done(reply("the end")))
    assert (found.score, found.details.get("unreachable")) == (None, None)
    assert "no goal is known" in found.details["evidence"]


@pytest.mark.parametrize(
    ("trace", "evidence"),
    [
        (done(reply("working"), error="StepLimit: cut off after 62 messages"), "it broke off: StepLimit"),
        (done(reply("and so on"), error="ValueError: the agent's own"), "it broke off: ValueError"),
        (done(reply("and then", "length")), "cut at its length"),
        (done(reply("  ")), "the last reply is empty"),
        (done(used("save", "Error: disk full"), reply("I have saved it successfully.")), "save, failed: Error: disk full"),
    ],
)
def test_one_that_did_not_is_zero_and_the_evidence_says_why(trace: Trace, evidence: str) -> None:
    found = REWARD.compute(trace)
    assert found.score == 0.0
    assert evidence in found.details["evidence"]


@pytest.mark.parametrize(
    "trace",
    [done(), done(Reasoning(text="hm")), done(error="ModelBusy: rate limit"), done(reply("x"), error="SandboxError: gone")],
)
def test_what_the_agent_is_not_to_blame_for_is_unknown(trace: Trace) -> None:
    assert REWARD.compute(trace).score is None


def test_a_goal_is_reached_by_its_calls_whatever_order_their_arguments_have() -> None:
    made = used("book", arguments=json.dumps({"bags": 2.0, "flight": "HAT136"}))
    assert GOAL.compute(done(made, reply("booked"))).score == 1.0


@pytest.mark.parametrize(
    ("steps", "evidence"),
    [
        ([reply("I have booked it.")], 'book was not called with {"flight": "HAT136"'),
        ([used("book", "Error: full", arguments=json.dumps(BOOK))], "book was not called"),
        ([used("book", arguments="no json")], "book was not called"),
        ([used("book", arguments=json.dumps(BOOK))] * 2, "which nobody asked for"),
        ([used("book", arguments=json.dumps(BOOK)), used("cancel", arguments='{"flight": "HAT1"}')], "cancel was called with"),
    ],
)
def test_a_goal_that_is_missed_is_zero(steps: list[object], evidence: str) -> None:
    found = GOAL.compute(done(*steps, reply("done")))  # type: ignore[arg-type]
    assert found.score == 0.0
    assert evidence in found.details["evidence"]


def test_tools_that_change_nothing_may_be_called_freely() -> None:
    assert GOAL.compute(done(used("look"), used("book", arguments=json.dumps(BOOK)), used("look"))).score == 1.0


@pytest.mark.parametrize("arguments", ["[" * 100_000, "[" * 700 + "]" * 700, "{", "\x00"])
def test_arguments_that_nobody_can_read_are_no_call_that_was_asked_for(arguments: str) -> None:
    assert GOAL.compute(done(used("book", arguments=arguments))).score == 0.0


def test_the_version_knows_the_goals() -> None:
    other = TaskCompletionReward(goals={"task": Goal(calls=(("book", {"flight": "HAT1"}),))})
    assert len({REWARD.version, GOAL.version, other.version}) == 3
