"""A trace answers from what it holds, and what is not known stays so."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from journeyman.core.reward import Reward
from journeyman.core.trace import AgentCall, Message, ModelCall, Reasoning, Step, ToolCall, Trace, walk

START = datetime(2025, 1, 1, tzinfo=UTC)


def trace(*steps: Step) -> Trace:
    return Trace(id="t", task_id="task", candidate_id="base", started_at=START, steps=steps)


def call(id: str, *said: str, continues: str | None = None, reply: str = "") -> ModelCall:
    messages = tuple(Message(role="user", text=text) for text in said)
    return ModelCall(model="m", prompt="", reply=reply, id=id, messages=messages, continues=continues)


def test_a_conversation_is_what_was_continued_and_what_was_new() -> None:
    calls = (call("1", "a", reply="A"), call("2", "b", continues="1", reply="B"), call("3", "c", continues="2"))
    assert [message.text for message in trace(*calls).conversation(calls[2])] == ["a", "A", "b", "B", "c"]
    assert [message.text for message in trace(*calls).conversation(calls[0])] == ["a"]


def test_calls_that_say_they_continue_each_other_end() -> None:
    calls = (call("1", "a", continues="2"), call("2", "b", continues="1"))
    assert [message.text for message in trace(*calls).conversation(calls[1])] == ["a", "", "b"]


def test_every_step_is_walked_once_below_its_parent() -> None:
    steps: tuple[Step, ...] = (
        AgentCall(agent="a", id="1"),
        ToolCall(tool="t", arguments="", result="", id="3", parent="2"),
        call("2"),
        Reasoning(text="r", id="4", parent="1"),
        Reasoning(text="lost", parent="elsewhere"),
        Reasoning(text="ring", id="5", parent="6"),
        Reasoning(text="ring", id="6", parent="5"),
    )
    walked = [(depth, step.id) for depth, step in walk(steps)]
    assert walked == [(0, "1"), (1, "4"), (0, "2"), (1, "3"), (0, ""), (0, "5"), (1, "6")]


def test_what_was_asked_and_answered_is_found_without_being_recorded_apart() -> None:
    one = trace(call("1", "who?", reply="me"))
    assert (one.query, one.reply, one.seconds, one.input_tokens) == ("who?", "me", None, None)
    said = Trace(
        id="t", task_id="t", candidate_id="base", started_at=START, ended_at=START + timedelta(seconds=2), input="i", output="o"
    )
    assert (said.query, said.reply, said.seconds) == ("i", "o", 2.0)


def test_where_no_call_was_seen_it_is_unknown_what_was_taken_but_of_our_own_attempts() -> None:
    seen = Trace(id="t", task_id="t", candidate_id="base", started_at=START, source="hook")
    assert (seen.input_tokens, seen.output_tokens, seen.cost) == (None, None, None)
    own = replace(seen, source="run")
    assert (own.input_tokens, own.output_tokens, own.cost) == (0, 0, 0)


def test_rewards_of_earlier_systems_find_the_names_they_know() -> None:
    one = trace(call("1", "who?", reply="me"))
    assert (one.user_query, one.final_response, one.trace_id, one.total_cost) == ("who?", "me", "t", None)  # type: ignore[attr-defined]
    steps = (ToolCall(tool="find", arguments="{}", result="", ok=False), Reasoning(text="hm"))
    judged = replace(one, steps=steps, rewards=(Reward(name="a", value=1.0), Reward(name="b", value=0.5)))
    (used,) = judged.tool_calls
    assert (used.tool_name, used.success) == ("find", False)  # type: ignore[attr-defined]
    assert (judged.reasoning_steps, judged.reward_score, one.reward_score) == (steps[1:], 0.75, None)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="a tool call has no 'colour'"):
        used.colour  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="a trace has no 'colour'"):
        one.colour  # type: ignore[attr-defined]  # noqa: B018
