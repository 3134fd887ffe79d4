import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.rewards.static import ToolSuccessReward
from journeyman.tracing.base import failed
from tests.support.traces import done, reply, used

REWARD = ToolSuccessReward()


def test_without_a_tool_call_it_is_unknown() -> None:
    assert REWARD.compute(done(reply("I called every tool, and all went well."))).score is None


def test_all_well_is_one() -> None:
    found = REWARD.compute(done(used("a"), used("b")))
    assert (found.score, found.is_binary, found.details["calls"]) == (1.0, True, 2)


@pytest.mark.parametrize("call", [used("a", ok=False), used("a", "Error: no such user"), used("a", '{"error": "no"}')])
def test_a_call_that_stays_failed_is_zero_and_the_evidence_names_the_tool(call: object) -> None:
    found = REWARD.compute(done(used("b"), call, used("b")))  # type: ignore[arg-type]
    assert found.score == 0.0
    assert found.details["evidence"].startswith("a failed: ")


def test_a_failure_that_another_try_mends_is_forgiven_unless_it_shall_not_be() -> None:
    trace = done(used("a", "Error: typo"), used("b"), used("a"))
    assert REWARD.compute(trace).score == 1.0
    assert ToolSuccessReward(mending=False).compute(trace).score == 0.0
    assert REWARD.version != ToolSuccessReward(mending=False).version


def test_another_tools_success_mends_nothing() -> None:
    assert REWARD.compute(done(used("a", "Error"), used("b"))).score == 0.0


@pytest.mark.parametrize(
    "answer",
    [
        "Error: user not found",
        "  error: lower case",
        "Traceback (most recent call last):\n…",
        "fatal: not a git repository",
        '{"error": {"code": 404}}',
        '{"is_error": true, "content": []}',
        '{"success": false}',
        '{"ok": false, "message": "no"}',
        '{"status": "Failed"}',
    ],
)
def test_an_answer_that_says_it_failed_is_a_failure(answer: str) -> None:
    assert failed(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "done",
        "No error was found",
        '{"error": null, "data": 1}',
        '{"errors": []}',
        '{"status": "available"}',
        "[1]",
        "{",
        "0",
    ],
)
def test_any_other_answer_is_an_answer(answer: str) -> None:
    assert not failed(answer)


@given(st.text())
def test_any_answer_can_be_looked_at(answer: str) -> None:
    assert failed(answer) in (True, False)
    assert failed("{" + answer) in (True, False)
