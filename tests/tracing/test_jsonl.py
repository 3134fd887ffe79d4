import json
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import TraceError
from journeyman.core.reward import Reward
from journeyman.core.trace import AgentCall, Message, ModelCall, Reasoning, Step, ToolCall, Trace, spoken
from journeyman.tracing.base import NO_TIME
from journeyman.tracing.importers.jsonl import VERSION, line, parse

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)
COUNT = st.none() | st.integers(0, 10**6)
TIME = st.none() | st.datetimes(timezones=st.just(UTC))
NUMBER = st.none() | st.floats(0, 1e9)
MAYBE = st.none() | TEXT
RAW = st.dictionaries(TEXT, st.recursive(st.none() | st.booleans() | TEXT | st.integers(), st.lists, max_leaves=4), max_size=2)
COMMON = {"started_at": TIME, "seconds": NUMBER, "id": TEXT, "parent": MAYBE, "raw": RAW}
MESSAGES = st.lists(st.builds(Message, role=TEXT, text=TEXT, answers=MAYBE), max_size=2).map(tuple)
NAMES = st.lists(TEXT, max_size=2).map(tuple)
CALLS: dict[str, st.SearchStrategy[Any]] = {
    "messages": MESSAGES,
    "continues": MAYBE,
    "model": TEXT,
    "prompt": TEXT,
    "reply": TEXT,
    "input_tokens": COUNT,
    "output_tokens": COUNT,
    "cached_tokens": COUNT,
    "cost": NUMBER,
    "first_token_seconds": NUMBER,
    "finish": MAYBE,
    "error": MAYBE,
    "response_id": MAYBE,
    "shown": NAMES,
    "cited": NAMES,
    **COMMON,
}
TOOLS = {"tool": TEXT, "arguments": TEXT, "result": TEXT, "ok": st.booleans(), "error": MAYBE, "cost": NUMBER, **COMMON}
THOUGHTS = {"text": TEXT, **COMMON}
PARTS = {"agent": TEXT, "input": TEXT, "output": TEXT, "error": MAYBE, **COMMON}
MADE: dict[type[Step], dict[str, st.SearchStrategy[Any]]] = {
    ModelCall: CALLS,
    ToolCall: TOOLS,
    Reasoning: THOUGHTS,
    AgentCall: PARTS,
}
STEPS: st.SearchStrategy[Step] = st.one_of([st.builds(made, **given) for made, given in MADE.items()])
REWARDS = st.builds(Reward, name=TEXT, value=st.none() | st.floats(0, 1), evidence=TEXT, weight=st.floats(0, 10))
TRACES = st.builds(
    Trace,
    id=TEXT,
    task_id=TEXT,
    candidate_id=TEXT,
    started_at=st.datetimes(timezones=st.just(UTC)),
    steps=st.lists(STEPS, max_size=5).map(tuple),
    error=MAYBE,
    domain=TEXT,
    other_candidates=NAMES,
    session=MAYBE,
    agent=MAYBE,
    ended_at=TIME,
    input=MAYBE,
    output=MAYBE,
    tasks_created=NAMES,
    tasks_completed=NAMES,
    tasks_failed=NAMES,
    label=st.none() | st.booleans(),
    rewards=st.lists(REWARDS, max_size=2).map(tuple),
    source=TEXT,
    raw=RAW,
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


def test_every_field_of_a_step_is_tried() -> None:
    for made, tried in MADE.items():
        assert {field.name for field in fields(made)} == set(tried)


def test_half_a_character_is_written_as_json_can() -> None:
    trace = Trace(id="\ud83d", task_id="t", candidate_id="base", started_at=NO_TIME, raw={"\ud800": "\ud83d"})
    line(trace).encode()
    assert parse(json.loads(line(trace)), name="x").trace == trace


def test_what_json_has_no_number_for_is_unknown() -> None:
    trace = Trace(id="a", task_id="t", candidate_id="base", started_at=NO_TIME, raw={"x": [float("nan"), 1.5, float("inf")]})
    assert json.loads(line(trace))["raw"] == {"x": [None, 1.5, None]}


def test_what_is_as_by_default_is_left_out() -> None:
    step = Reasoning(text="so")
    trace = Trace(id="a", task_id="t", candidate_id="base", started_at=NO_TIME, steps=(step,))
    assert json.loads(line(trace)) == {
        "version": VERSION,
        "id": "a",
        "task_id": "t",
        "candidate_id": "base",
        "started_at": "1970-01-01T00:00:00Z",
        "steps": [{"kind": "reasoning", "text": "so"}],
    }


NATIVE: dict[str, Any] = {"id": "a", "task_id": "t", "candidate_id": "base", "started_at": "2026-01-02T03:04:05", "steps": []}


def test_what_a_later_minor_version_has_added_is_kept() -> None:
    later = NATIVE | {
        "version": "1.7",
        "mood": "calm",
        "steps": [
            {"kind": "reasoning", "text": "so", "depth": 3},
            {"kind": "dream", "about": "sheep", "id": "d"},
        ],
    }
    trace = parse(later, name="x").trace
    assert trace.raw["unknown"] == {"mood": "calm"}
    thought, dream = trace.steps
    assert thought.raw["unknown"] == {"depth": 3}
    assert (dream.id, dream.raw["unknown"]["about"]) == ("d", "sheep")
    assert trace.started_at.tzinfo is UTC


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "2.0"}, "version: 2.0 is newer than this Journeyman reads"),
        ({"version": 1}, "version: 1 is none"),
        ({"version": VERSION, "mood": "calm"}, "a trace has no field 'mood'"),
        (
            {"steps": [{"kind": "reasoning", "text": "so", "depth": 3}]},
            "steps.0: a step of the kind reasoning has no field 'depth'",
        ),
        ({"steps": [{"kind": "dream"}]}, "steps.0: is no step; its kind is one of model, tool, reasoning, agent"),
        ({"steps": [{"text": "so"}, {"text": 3}]}, "steps.1.text: "),
        ({"steps": [4]}, "steps.0: is no object"),
    ],
)
def test_what_is_wrong_with_a_line_of_ours_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        parse(NATIVE | change, name="x")


def test_a_step_of_before_there_were_kinds_is_known_by_what_it_must_have() -> None:
    steps = [
        {"model": "m", "prompt": "p", "reply": "r"},
        {"tool": "t", "arguments": "{}", "result": ""},
        {"text": "so"},
        {"agent": "a"},
    ]
    trace = parse(NATIVE | {"steps": steps}, name="x").trace
    assert [type(step) for step in trace.steps] == [ModelCall, ToolCall, Reasoning, AgentCall]


def test_messages_become_steps_and_answers_find_their_calls() -> None:
    trace = parse({"messages": CHAT, "model": "gpt"}, name="chats.jsonl:1").trace
    asked, first, second, answered = trace.steps
    said = (Message(role="system", text="Be brief."), Message(role="user", text="Where is order 7?"))
    assert asked == ModelCall(model="gpt", prompt=spoken(said), reply="", messages=said, id="m3")
    assert first == ToolCall(tool="find", arguments='{"order": 7}', result="in Oslo", id="c1", parent="m3")
    assert second == ToolCall(tool="find", arguments='{"order": 8}', result="Error: no order 8", ok=False, id="c2", parent="m3")
    assert isinstance(asked, ModelCall)
    assert asked.prompt == "system: Be brief.\n\nuser: Where is order 7?"
    assert isinstance(answered, ModelCall)
    assert (answered.reply, answered.input_tokens, answered.output_tokens) == ("In Oslo.", 9, 3)
    assert answered.prompt == "tool: Error: no order 8\n\ntool: in Oslo"
    assert [message.answers for message in answered.messages] == ["c2", "c1"]
    assert (answered.continues, [message.role for message in trace.conversation(answered)]) == (
        "m3",
        ["system", "user", "assistant", "tool", "tool"],
    )
    assert (trace.id, trace.task_id, trace.started_at) == ("chats.jsonl:1", "chats.jsonl:1", NO_TIME)


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None}, {"prompt_tokens": True}, {"prompt_tokens": -1}])
def test_tokens_that_were_not_counted_are_unknown(usage: object) -> None:
    (step,) = parse({"messages": [{"role": "assistant", "content": "x", "usage": usage}]}, name="x").trace.steps
    assert isinstance(step, ModelCall)
    assert (step.input_tokens, step.output_tokens) == (None, None)


def test_parts_that_are_no_text_are_named_in_brackets() -> None:
    picture = "data:image/png;base64," + "A" * 4000
    parts = [
        {"type": "image_url", "image_url": {"url": picture}},
        {"type": "image_url", "image_url": {"url": "https://example.com/map.png"}},
        {"type": "image_url", "image_url": {}},
        {"type": "text", "text": None},
        {"type": "text", "text": "in Oslo"},
    ]
    told = "[image/png, 3 kB]\n[image https://example.com/map.png]\n[image]\nin Oslo"
    assert parse({"messages": [{"role": "assistant", "content": parts}]}, name="x").trace.reply == told


def test_the_blocks_of_anthropics_messages_are_calls_answers_and_thoughts() -> None:
    messages = [
        {"role": "user", "content": "How is Oslo?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Weather, then."},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "no such city", "is_error": True}],
        },
        {"role": "assistant", "content": "I cannot tell."},
    ]
    first, thought, use, last = parse({"messages": messages}, name="x").trace.steps
    assert isinstance(first, ModelCall)
    assert isinstance(last, ModelCall)
    assert (first.reply, last.prompt) == ("I look.", "tool: no such city")
    assert thought == Reasoning(text="Weather, then.", id=f"{first.id}.thought", parent=first.id)
    assert isinstance(use, ToolCall)
    assert (use.arguments, use.result, use.ok, use.parent) == ('{"city": "Oslo"}', "no such city", False, first.id)


def test_an_id_that_a_transcript_uses_twice_is_no_ring() -> None:
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]}
    steps = parse({"messages": [call, {"role": "tool", "tool_call_id": "c", "content": "1"}, call]}, name="x").trace.steps
    assert len({step.id for step in steps}) == len(steps) == 4


def test_answers_without_ids_belong_to_the_calls_in_their_order() -> None:
    call = {"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": "{}"}}
    messages = [call, {"role": "function", "name": "f", "content": "1"}, call, {"role": "function", "content": "2"}]
    steps = parse({"messages": messages}, name="x").trace.steps
    assert [step.result for step in steps if isinstance(step, ToolCall)] == ["1", "2"]


def test_a_call_that_was_never_answered_did_not_go_well() -> None:
    *_, call = parse({"messages": CHAT[:3]}, name="x").trace.steps
    assert isinstance(call, ToolCall)
    assert (call.ok, call.result, call.error) == (False, "", "there is no answer to this call")


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
