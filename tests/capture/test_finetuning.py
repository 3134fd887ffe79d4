"""Traces as lines for fine-tuning: what is read again says the same, and what is held out never gets there."""

import json
from datetime import UTC, datetime
from typing import Any

from journeyman.capture import chat, jsonl
from journeyman.capture.finetuning import Losses, lines
from journeyman.capture.shapes import shapes_only
from journeyman.trace import ModelCall, ToolCall, Trace

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
    steps = chat.steps(turn for message in SAID for turn in chat.Message.model_validate(message).turns)
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
