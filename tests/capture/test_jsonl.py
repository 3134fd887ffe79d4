import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.capture.base import NO_TIME
from journeyman.capture.jsonl import line, parse
from journeyman.errors import TraceError
from journeyman.trace import ModelCall, Reasoning, Step, ToolCall, Trace

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)
COUNT = st.none() | st.integers(0, 10**6)
CALLS = st.builds(ModelCall, model=TEXT, prompt=TEXT, reply=TEXT, input_tokens=COUNT, finish=st.none() | TEXT)
TOOLS = st.builds(ToolCall, tool=TEXT, arguments=TEXT, result=TEXT, ok=st.booleans(), id=TEXT)
STEPS: st.SearchStrategy[Step] = CALLS | TOOLS | st.builds(Reasoning, text=TEXT, parent=st.none() | TEXT)
TRACES = st.builds(
    Trace,
    id=TEXT,
    task_id=TEXT,
    candidate_id=TEXT,
    started_at=st.datetimes(timezones=st.just(UTC)),
    steps=st.lists(STEPS, max_size=5).map(tuple),
    error=st.none() | TEXT,
)

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Where is order 7?"}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"order": 7}'}},
            {"id": "c2", "type": "function", "function": {"name": "find", "arguments": {"order": 8}}},
        ],
    },
    {"role": "tool", "tool_call_id": "c2", "content": "Error: no order 8"},
    {"role": "tool", "tool_call_id": "c1", "content": "in Oslo"},
    {"role": "assistant", "content": "In Oslo.", "usage": {"prompt_tokens": 9, "completion_tokens": 3}},
    {"role": "user", "content": "Thanks"},
]


@given(TRACES)
def test_a_trace_that_was_written_is_read_as_it_was(trace: Trace) -> None:
    assert parse(json.loads(line(trace)), name="x").trace == trace
    assert "\n" not in line(trace)


def test_messages_become_steps_and_answers_find_their_calls() -> None:
    trace = parse({"messages": CHAT, "model": "gpt"}, name="chats.jsonl:1").trace
    asked, first, second, answered = trace.steps
    assert asked == ModelCall(model="gpt", prompt="system: Be brief.\n\nuser: Where is order 7?", reply="")
    assert first == ToolCall(tool="find", arguments='{"order": 7}', result="in Oslo", id="c1")
    assert second == ToolCall(tool="find", arguments='{"order": 8}', result="Error: no order 8", id="c2")
    assert isinstance(answered, ModelCall)
    assert (answered.reply, answered.input_tokens, answered.output_tokens) == ("In Oslo.", 9, 3)
    assert answered.prompt == "tool: Error: no order 8\n\ntool: in Oslo"
    assert (trace.id, trace.task_id, trace.started_at) == ("chats.jsonl:1", "chats.jsonl:1", NO_TIME)


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None}, {"prompt_tokens": True}, {"prompt_tokens": -1}])
def test_tokens_that_were_not_counted_are_unknown(usage: object) -> None:
    (step,) = parse({"messages": [{"role": "assistant", "content": "x", "usage": usage}]}, name="x").trace.steps
    assert isinstance(step, ModelCall)
    assert (step.input_tokens, step.output_tokens) == (None, None)


def test_parts_that_are_no_text_are_left_out() -> None:
    parts = [{"type": "image_url", "image_url": {}}, {"type": "text", "text": None}, {"type": "text", "text": "in Oslo"}]
    assert parse({"messages": [{"role": "assistant", "content": parts}]}, name="x").trace.reply == "in Oslo"


def test_answers_without_ids_belong_to_the_calls_in_their_order() -> None:
    call = {"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": "{}"}}
    messages = [call, {"role": "function", "name": "f", "content": "1"}, call, {"role": "function", "content": "2"}]
    steps = parse({"messages": messages}, name="x").trace.steps
    assert [step.result for step in steps if isinstance(step, ToolCall)] == ["1", "2"]


def test_a_call_that_was_never_answered_did_not_go_well() -> None:
    *_, call = parse({"messages": CHAT[:3]}, name="x").trace.steps
    assert isinstance(call, ToolCall)
    assert (call.ok, call.result) == (False, "")


def test_what_stands_beside_the_messages_is_kept() -> None:
    row = {
        "messages": CHAT,
        "id": 7,
        "task_id": "t",
        "started_at": "2026-01-02T03:04:05Z",
        "finish_reason": "length",
        "error": "E: x",
    }
    trace = parse(row, name="x").trace
    assert (trace.id, trace.task_id, trace.error) == ("7", "t", "E: x")
    assert trace.started_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert trace.calls[-1].finish == "length"
    assert trace.calls[0].finish is None


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, 'neither "steps" nor "messages" nor "traj"'),
        ({"messages": 3}, "messages: "),
        ({"messages": [{"content": "x"}]}, "messages.0.role: "),
        ({"steps": []}, "id: "),
        ({"id": "a", "task_id": "a", "candidate_id": "b", "started_at": "soon", "steps": []}, "started_at: "),
        ({"id": "a", "stepz": [], "steps": []}, "a trace has no field 'stepz'"),
        ({"traj": [], "task_id": 1}, "reward: "),
    ],
)
def test_what_is_no_trace_is_named_by_its_field(record: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        parse(record, name="x")


@given(st.dictionaries(st.sampled_from(["messages", "traj", "steps", "id", "reward"]), st.none() | TEXT | st.lists(TEXT)))
def test_any_record_is_a_trace_or_a_sentence(record: dict[str, Any]) -> None:
    with suppress(TraceError):
        assert parse(record, name="x").trace.task_id is not None
