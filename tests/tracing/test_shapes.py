"""Without content: what was said is gone, and the rest is there."""

from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.reward import Reward
from journeyman.core.trace import AgentCall, Message, ModelCall, Reasoning, ToolCall, Trace
from journeyman.tracing.redaction import shapes_only

AT = datetime(2026, 1, 2, tzinfo=UTC)
WORDS = "WORDS that were said: yes"


def full(words: str = WORDS) -> Trace:
    raw = {
        words: 1,
        "usage of": {words: 2},
        "temperature": 0.5,
        "model": "m",
        "note": words,
        "stop": [words],
        "usage": {"n": 3, "said": words},
        "type": words,
    }
    said = (Message(role="user", text=words), Message(role="tool", text=words, answers="t1"))
    call = ModelCall(
        id="c1",
        model="gpt",
        prompt=words,
        reply=words,
        messages=said,
        input_tokens=5,
        cost=0.1,
        finish="stop",
        error=words,
        raw=raw,
    )
    return Trace(
        id="1", task_id="t", candidate_id="base", started_at=AT, session="s", agent="a", error=f"ValueError: {words}",
        input=words, output=words, tasks_created=(words,), rewards=(Reward(name="r", value=0.5, evidence=words),), raw=raw,
        steps=(
            call,
            ToolCall(id="t1", parent="c1", tool="find", arguments=words, result=words, ok=False, error=words, raw=raw),
            Reasoning(id="r1", text=words, raw=raw),
            AgentCall(id="a1", agent="writer", input=words, output=words, error=f"TimeoutError: {words}", raw=raw),
        ),
    )  # fmt: skip


def test_nothing_that_was_said_stays() -> None:
    assert "WORDS" in repr(full())
    assert "WORDS" not in repr(shapes_only(full()))


def test_names_ids_numbers_kinds_of_errors_and_lengths_stay() -> None:
    shape = shapes_only(full())
    call, tool, thought, agent = shape.steps
    assert isinstance(call, ModelCall)
    assert isinstance(tool, ToolCall)
    assert isinstance(agent, AgentCall)
    assert isinstance(thought, Reasoning)
    length = f"[{len(WORDS)} characters]"
    assert (call.model, call.input_tokens, call.cost, call.finish, call.reply) == ("gpt", 5, 0.1, "stop", length)
    assert [message.role for message in call.messages] == ["user", "tool"]
    assert (tool.tool, tool.ok, tool.parent, tool.arguments) == ("find", False, "c1", length)
    assert (shape.error, agent.error, tool.error) == ("ValueError", "TimeoutError", "Error")
    assert (shape.id, shape.session, shape.agent, agent.agent) == ("1", "s", "a", "writer")
    assert shape.raw == {"temperature": 0.5, "model": "m", "usage": {"n": 3}}
    assert [(reward.name, reward.value, reward.evidence) for reward in shape.rewards] == [("r", 0.5, length)]


def test_nothing_that_is_not_there_is_made_up() -> None:
    empty = Trace(id="1", task_id="t", candidate_id="base", started_at=AT, steps=(ModelCall(model="m", prompt="", reply=""),))
    assert shapes_only(empty) == empty


@given(st.text(max_size=50))
def test_twice_is_once(words: str) -> None:
    once = shapes_only(full(words))
    assert shapes_only(once) == once


def test_every_field_of_a_trace_and_its_steps_is_thought_of() -> None:
    """A field that is new and holds text must be named in `shapes`: here it would stay."""
    for record in (full(), *full().steps):
        texts = [each.name for each in fields(record) if isinstance(getattr(record, each.name), str)]
        marked: Any = replace(cast("Any", record), **{name: f"{WORDS} {name}" for name in texts})
        trace = marked if isinstance(marked, Trace) else replace(full(), steps=(marked,))
        shape = shapes_only(trace) if isinstance(marked, Trace) else shapes_only(trace).steps[0]
        stay = {name for name in texts if "WORDS" in str(getattr(shape, name))}
        assert stay <= {
            "id",
            "task_id",
            "candidate_id",
            "domain",
            "session",
            "agent",
            "source",
            "model",
            "finish",
            "tool",
            "parent",
        }
