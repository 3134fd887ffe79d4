"""Whichever provider's words a part of a message is in, the same comes of it."""

from typing import Any

import pytest

from journeyman.core.messages import ToolUse, Turn, Usage, arguments_text, joined
from journeyman.tracing import conversation


@pytest.mark.parametrize(
    "part",
    [
        {"type": "tool_use", "id": "c1", "name": "find", "input": {"id": 7}},
        {"type": "tool_call", "id": "c1", "name": "find", "arguments": {"id": 7}},
        {"type": "function_call", "id": "fc", "call_id": "c1", "name": "find", "arguments": '{"id": 7}'},
        {"type": "tool-call", "toolCallId": "c1", "toolName": "find", "input": {"id": 7}},
        {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"id": 7}'}},
        {"functionCall": {"id": "c1", "name": "find", "args": {"id": 7}}},
        {"toolUse": {"toolUseId": "c1", "name": "find", "input": {"id": 7}}},
    ],
)
def test_a_tool_call_is_the_same_in_every_dialect_and_no_text(part: dict[str, Any]) -> None:
    assert list(conversation.part_calls([part])) == [ToolUse("find", '{"id": 7}', "c1")]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "lost"}]},
        {"type": "tool_call_response", "id": "c1", "response": "lost"},
        {"type": "function_call_output", "call_id": "c1", "output": "lost"},
        {"type": "tool-result", "toolCallId": "c1", "output": {"type": "text", "value": "lost"}},
        {"functionResponse": {"id": "c1", "response": "lost"}},
    ],
)
def test_a_tools_answer_is_the_same_in_every_dialect(part: dict[str, Any]) -> None:
    (turn,) = conversation.part_answers([part])
    assert (turn.role, turn.text, turn.answers, turn.failed) == ("tool", "lost", "c1", None)


def test_what_a_tool_answered_that_only_looks_like_parts_stays_as_it_is() -> None:
    assert conversation.answer_text([{"type": "flight", "id": 7}]) == '[{"type": "flight", "id": 7}]'


def test_thoughts_are_told_apart_from_the_text() -> None:
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"}, {"type": "text", "content": "sir"}]
    assert (conversation.content_text(parts), conversation.part_thoughts(parts)) == ("yes\nsir", ("hm",))


def test_arguments_are_json_whoever_parsed_them() -> None:
    assert [arguments_text(each) for each in ('{"a":1}', {"a": 1}, None)] == ['{"a":1}', '{"a": 1}', "{}"]


def test_the_cache_is_counted_once() -> None:
    assert Usage.beside_cache(10, 4, 200, 30) == Usage(240, 4, 200, 30)
    assert Usage.beside_cache(240, 4, 200, None, apart=False) == Usage(240, 4, 200, None)
    assert Usage.beside_cache(10, 4, 200, None, apart=False) == Usage(210, 4, 200, None)
    assert Usage.beside_cache(None, 4, 200, None).input is None
    assert Usage(input=None, output=0).known_or(Usage(5, 6)) == Usage(5, 0)


def test_pieces_of_one_reply_are_one_turn() -> None:
    find = ToolUse("find", "{}")
    pieces = [Turn("assistant", thought="hm"), Turn("assistant", "yes"), Turn("assistant", calls=(find,), finish="stop")]
    assert joined(pieces) == Turn("assistant", "yes", calls=(find,), thought="hm", finish="stop")
