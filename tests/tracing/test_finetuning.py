"""Traces as lines for fine-tuning: what is read again says the same, and what is held out never gets there."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.feedback import ANSWER
from journeyman.core.reward import Reward, Source
from journeyman.core.trace import Message, ModelCall, ToolCall, Trace
from journeyman.tracing import builder
from journeyman.tracing.importers import chat, jsonl
from journeyman.tracing.importers.finetuning import Losses, lines, parts
from journeyman.tracing.redaction import shapes_only

SAID = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Where is order 7?"},
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"id": 7}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "Oslo"},
    {"role": "assistant", "content": "In Oslo."},
]


def trace(**more: Any) -> Trace:
    steps = builder.steps(turn for message in SAID for turn in chat.ChatMessage.model_validate(message).turns)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Trace(id="t", task_id="t", candidate_id="base", started_at=at, steps=steps, **more)


def test_a_transcript_that_was_read_is_written_as_it_was() -> None:
    losses = Losses()
    (line,) = lines(trace(), losses)
    assert json.loads(line)["messages"] == SAID
    assert list(losses) == ["1 conversations with tools whose definitions were not recorded"]
    again = jsonl.parse(json.loads(line), name="again").trace
    assert [type(step) for step in again.steps] == [ModelCall, ToolCall, ModelCall]
    assert (again.query, again.reply) == ("Where is order 7?", "In Oslo.")


def test_an_attempt_at_a_held_out_task_is_left_out_and_that_is_said() -> None:
    losses = Losses()
    assert list(lines(trace(raw={"split": "held_out"}), losses)) == []
    assert list(losses) == ["1 attempts at held-out tasks, from which nobody may learn: left out"]


def test_what_is_held_out_stays_so_without_its_content_and_in_a_file() -> None:
    kept = trace(raw={"split": "held_out"})
    assert shapes_only(kept).held_out
    assert jsonl.parse(json.loads(jsonl.line(kept)), name="").trace.held_out


@pytest.mark.parametrize("mark", ["", "calls "])
def test_a_tool_call_that_the_record_has_in_brackets_is_told_as_one_where_it_is_answered(mark: str) -> None:
    heard = (
        Message(role="user", text="Where is order 7?"),
        Message(role="assistant", text=f'I look.\n[{mark}find {{"id": [7]}}]\n[{mark}ping ]'),
        Message(role="tool", text="Oslo", answers="c1"),
        Message(role="tool", text="pong", answers="c2"),
        Message(role="user", text="Sure?"),
    )
    losses = Losses()
    call = ModelCall(model="m", prompt="", reply="Yes.", messages=heard)
    (line,) = lines(replace(trace(), steps=(call,)), losses)
    asked, found, pong, sure, yes = json.loads(line)["messages"][1:]
    assert asked["content"] == "I look."
    assert [(each["id"], each["function"]) for each in asked["tool_calls"]] == [
        ("c1", {"name": "find", "arguments": '{"id": [7]}'}),
        ("c2", {"name": "ping", "arguments": ""}),
    ]
    assert (found["content"], pong["tool_call_id"], sure["content"], yes["content"]) == ("Oslo", "c2", "Sure?", "Yes.")


def test_brackets_that_nothing_answers_or_that_are_no_call_stay_text() -> None:
    for text in ('[find {"id": 7}]', "[find {no json}]", 'see [find {"id": 7}] there', '[find {"id": 7}] and more'):
        answers = (Message(role="tool", text="x", answers="c"),) if text != '[find {"id": 7}]' else ()
        heard = (
            Message(role="user", text="hi"),
            Message(role="assistant", text=text),
            *answers,
            Message(role="user", text="ok"),
        )
        (line,) = lines(replace(trace(), steps=(ModelCall(model="m", prompt="", reply="y", messages=heard),)), Losses())
        assert json.loads(line)["messages"][1] == {"role": "assistant", "content": text}


@given(text=st.text(alphabet='[]{}"ab: \n1', max_size=30))
def test_whatever_an_assistant_said_can_be_told(text: str) -> None:
    heard = (Message(role="assistant", text=text), Message(role="tool", text="x", answers="c"))
    for part in parts(heard):
        assert part.calls or not part.text


def test_where_somebody_said_what_should_have_been_answered_that_is_preferred_for_each_trainer() -> None:
    person = Reward(name=ANSWER, value=None, evidence="In Bergen.", source=Source.PERSON)
    rows = {
        name: json.loads(*lines(trace(rewards=(person,)), Losses(), name)) for name in ("dpo", "dpo-axolotl", "dpo-sharegpt")
    }
    chosen, rejected = ({"role": "assistant", "content": text} for text in ("In Bergen.", "In Oslo."))
    assert rows["dpo"] == {"prompt": SAID[:-1], "chosen": [chosen], "rejected": [rejected]}
    assert rows["dpo-axolotl"] == {"messages": SAID[:-1], "chosen": chosen, "rejected": rejected}
    shared = rows["dpo-sharegpt"]
    assert [each["from"] for each in shared["conversations"]] == ["human", "function_call", "observation"]
    assert shared["system"] == "Be brief."
    assert (shared["chosen"], shared["rejected"]) == (
        {"from": "gpt", "value": "In Bergen."},
        {"from": "gpt", "value": "In Oslo."},
    )


@pytest.mark.parametrize("format", ["dpo", "dpo-axolotl", "dpo-sharegpt"])
def test_no_preference_is_made_up(format: str) -> None:
    losses = Losses()
    judge = Reward(name=ANSWER, value=None, evidence="In Bergen.", source=Source.JUDGE)
    same = Reward(name=ANSWER, value=None, evidence="In Oslo.", source=Source.PERSON)
    assert [list(lines(trace(rewards=each), losses, format)) for each in ((), (judge,), (same,))] == [[], [], []]
    assert "2 traces whose answer nobody corrected: left out, as nothing else is known to be preferred to it" in list(losses)
    assert "1 corrections that say what was answered: left out" in list(losses)
