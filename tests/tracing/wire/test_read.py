"""What an exchange says is read from whatever came."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.messages import Usage
from journeyman.tracing.wire.assembler import ConversationAssembler
from journeyman.tracing.wire.dialects import CUT, Dialect, Exchange, ParsedExchange, read_exchange
from tests.support.examples import examples
from tests.tracing.wire.talk import BEGIN


def reading(
    dialect: Dialect, request: Any, response: Any, *, status: int | None = 200, error: str | None = None
) -> ParsedExchange:
    def body(value: Any) -> bytes:
        return value if isinstance(value, bytes) else json.dumps(value).encode()

    return read_exchange(
        Exchange(
            id="x",
            dialect=dialect,
            request=body(request),
            response=body(response),
            status=status,
            started_at=BEGIN,
            seconds=1.0,
            error=error,
        )
    )


def stream(*chunks: Any, end: bytes = b"") -> bytes:
    return b"".join(b"event: x\ndata: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + end


KEYS = (
    "messages role content type text tool_calls function name arguments choices message delta index finish_reason usage "
    "prompt_tokens prompt_tokens_details error output input item output_index source data image_url thinking id model "
    "response content_block tool_use_id call_id reasoning_content partial_json system instructions tools file audio "
    "executed_tools"
)
WORDS = (
    "assistant user tool text tool_use tool_result thinking function_call function_call_output message reasoning image_url "
    "message_start content_block_start content_block_delta message_delta input_json_delta response.output_item.added "
    "response.output_text.delta response.completed error data:image/png;base64,AAAA web_search_call mcp_call image"
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(WORDS.split())
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=5),
    max_leaves=30,
)
BODIES = (
    st.binary(max_size=60)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.lists(JSON, max_size=4).map(lambda chunks: stream(*chunks))
)


@examples(3)
@given(st.sampled_from(Dialect), BODIES, BODIES, st.sampled_from([None, 200, 500]))
def test_whatever_came_is_read_without_a_failure(dialect: Dialect, request: bytes, response: bytes, status: int | None) -> None:
    given = Exchange(id="x", dialect=dialect, request=request, response=response, status=status, started_at=BEGIN, seconds=1.0)
    trace = ConversationAssembler(price=lambda url, model, usage: None).join(given)
    assert [call.id for call in trace.calls] == ["x"]
    found = read_exchange(given)
    assert isinstance(found.reply.text, str)
    assert all(isinstance(turn.text, str) and isinstance(turn.role, str) for turn in found.turns)
    assert all(isinstance(call.arguments, str) for call in found.reply.calls)


def test_json_nested_too_deeply_is_an_error_of_the_call() -> None:
    found = reading(Dialect.CHAT, b"[" * 100_000, b'{"a":' * 100_000)
    assert found.error is not None


CHUNK: dict[str, Any] = {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {"content": "half a"}}]}


def test_a_stream_that_was_cut_gives_what_came_and_says_so() -> None:
    found = reading(Dialect.CHAT, {}, stream(CHUNK)[:-1] + b'\n\ndata: {"cho')
    assert (found.reply.text, found.response_id, found.error) == ("half a", "c1", CUT)
    start = {"type": "message_start", "message": {"id": "m1", "usage": {"input_tokens": 5, "cache_read_input_tokens": 2}}}
    block = {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "tool_use", "id": "t", "name": "look", "input": {}},
    }
    piece = {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"a": '}}
    found = reading(Dialect.MESSAGES, {}, stream(start, block, piece))
    assert [(call.tool, call.arguments) for call in found.reply.calls] == [("look", '{"a": ')]
    assert (found.usage.input, found.usage.cached, found.error) == (7, 2, CUT)
    added = {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "role": "assistant"}}
    text = {"type": "response.output_text.delta", "output_index": 0, "delta": "half a"}
    found = reading(Dialect.RESPONSES, {}, stream(added, text))
    assert (found.reply.text, found.error) == ("half a", CUT)


def test_what_broke_the_connection_is_told_rather_than_that_it_broke() -> None:
    found = reading(Dialect.CHAT, {}, stream(CHUNK), error="ClientGone: the client hung up")
    assert (found.reply.text, found.error) == ("half a", "ClientGone: the client hung up")
    assert reading(Dialect.CHAT, {}, b"", status=None, error="Refused: no upstream").error == "Refused: no upstream"


@pytest.mark.parametrize(
    ("dialect", "response", "said"),
    [
        (Dialect.CHAT, {"error": {"type": "rate_limit", "message": "slow down"}}, "rate_limit: slow down"),
        (Dialect.CHAT, {"error": "model is loading"}, "error: model is loading"),
        (Dialect.CHAT, {"object": "error", "message": "too long", "error": None}, "error: too long"),
        (Dialect.CHAT, {"detail": [{"msg": "field required"}]}, 'error: [{"msg": "field required"}]'),
        (Dialect.CHAT, b"<html>Bad Gateway</html>", "error: <html>Bad Gateway</html>"),
        (Dialect.CHAT, b"", "error: no reason was given"),
        (
            Dialect.MESSAGES,
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            "overloaded_error: Overloaded",
        ),
    ],
)
def test_a_refusal_is_told_in_the_servers_words(dialect: Dialect, response: Any, said: str) -> None:
    assert reading(dialect, {}, response, status=502).error == f"{said} (HTTP 502)"


def test_an_error_in_a_stream_is_the_calls_error() -> None:
    chat = reading(Dialect.CHAT, {}, stream(CHUNK, {"error": {"code": "server_error", "message": "gone"}}))
    assert (chat.reply.text, chat.error) == ("half a", "server_error: gone")
    anthropic = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    assert reading(Dialect.MESSAGES, {}, stream(anthropic)).error == "overloaded_error: Overloaded"
    failed = {
        "type": "response.failed",
        "response": {"id": "r", "status": "failed", "error": {"code": "server_error", "message": "no"}},
    }
    assert reading(Dialect.RESPONSES, {}, stream(failed)).error == "server_error: no"


def test_what_is_no_text_is_named_in_brackets() -> None:
    picture = "data:image/png;base64," + "A" * 4000
    content = [
        {"type": "text", "text": "look:"},
        {"type": "image_url", "image_url": {"url": picture}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.jpg"}},
        {"type": "input_audio", "input_audio": {"format": "wav", "data": "A" * 400}},
        {"type": "file", "file": {"filename": "plan.pdf", "file_data": "data:application/pdf;base64,AAAA"}},
    ]
    (turn,) = reading(Dialect.CHAT, {"messages": [{"role": "user", "content": content}]}, {}).turns
    assert turn.text.split("\n") == [
        "look:",
        "[image/png, 3 kB]",
        "[image https://example.org/a.jpg]",
        "[audio/wav, 300 B]",
        "[application/pdf plan.pdf, 3 B]",
    ]
    source = {"type": "base64", "media_type": "image/jpeg", "data": "A" * 400}
    sent = {"messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]}
    assert reading(Dialect.MESSAGES, sent, {}).turns[0].text == "[image/jpeg, 300 B]"
    sent = {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": picture}]}]}
    assert reading(Dialect.RESPONSES, sent, {}).turns[0].text == "[image/png, 3 kB]"
    document = {"type": "document_url", "document_url": "data:application/pdf;base64," + "A" * 4000}
    sent = {"messages": [{"role": "user", "content": [document]}]}
    assert reading(Dialect.CHAT, sent, {}).turns[0].text == "[application/pdf, 3 kB]"


def test_tool_calls_are_put_together_whatever_the_server_makes_of_their_indexes() -> None:
    def pieces(*found: dict[str, Any]) -> list[tuple[str, str, str]]:
        chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]} for piece in found]
        whole = reading(Dialect.CHAT, {}, stream(*chunks, end=b"data: [DONE]\n\n"))
        return [(call.id, call.tool, call.arguments) for call in whole.reply.calls]

    one, two = {"name": "f", "arguments": '{"a"'}, {"name": "g", "arguments": "{}"}
    rest = {"arguments": ": 1}"}
    both = [("i", "f", '{"a": 1}'), ("j", "g", "{}")]
    assert (
        pieces(
            {"index": 0, "id": "i", "function": one}, {"index": 1, "id": "j", "function": two}, {"index": 0, "function": rest}
        )
        == both
    )
    assert pieces({"id": "i", "function": one}, {"function": rest}, {"id": "j", "function": two}) == both
    assert (
        pieces(
            {"index": 0, "id": "i", "function": one}, {"index": 0, "function": rest}, {"index": 0, "id": "j", "function": two}
        )
        == both
    )


def test_tokens_of_the_cache_are_part_of_the_input() -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 30, "output_tokens": 4}
    assert reading(Dialect.MESSAGES, {}, {"usage": usage}).usage == Usage(240, 4, 200, 30)
    counted: dict[str, Any] = {"prompt_tokens": 240, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 200}}
    assert reading(Dialect.CHAT, {}, {"usage": counted}).usage == Usage(240, 4, 200)
    assert reading(Dialect.CHAT, {}, {"usage": {"prompt_tokens": -1}}).usage == Usage()


def test_parameters_are_kept_and_of_logprobs_the_numbers() -> None:
    request = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.5,
        "response_format": {"type": "json_object"},
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {}}}],
        "logprobs": True,
    }
    tokens = [{"token": "o", "logprob": -0.1, "top_logprobs": [{"token": "p", "logprob": -7.5}]}, {"token": "k", "logprob": -2}]
    answer = {"choices": [{"message": {"content": "ok"}, "logprobs": {"content": tokens}}]}
    raw = reading(Dialect.CHAT, request, answer).raw
    assert raw["request"] == {
        "temperature": 0.5,
        "response_format": {"type": "json_object"},
        "tools": ["look"],
        "logprobs": True,
    }
    assert raw["logprobs"] == [-0.1, -2.0]
    assert "-7.5" not in json.dumps(raw)


@pytest.mark.parametrize(
    "told", [None, {}, {"content": None}, {"content": [{"token": "ok"}]}, {"content": [{"logprob": "-1"}]}]
)
def test_logprobs_that_are_not_all_told_are_none(told: object) -> None:
    assert "logprobs" not in reading(Dialect.CHAT, {}, {"choices": [{"message": {"content": "ok"}, "logprobs": told}]}).raw


def test_the_logprobs_of_a_stream_are_put_together() -> None:
    chunks = [
        {"choices": [{"index": 0, "delta": {"content": each}, "logprobs": {"content": [{"token": each, "logprob": value}]}}]}
        for each, value in (("o", -0.1), ("k", -0.2))
    ]
    assert reading(Dialect.CHAT, {"stream": True}, stream(*chunks)).raw["logprobs"] == [-0.1, -0.2]


def test_what_the_server_did_itself_is_a_tool_call_with_its_result() -> None:
    content = [
        {"type": "text", "text": "I look."},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"type": "web_search_result", "title": "X"}]},
        {"type": "text", "text": "It is "},
        {"type": "text", "text": "X."},
    ]
    found = reading(Dialect.MESSAGES, {}, {"content": content})
    assert found.reply.text == "I look.\n\nIt is X."
    (call,) = found.reply.calls
    assert (call.tool, call.arguments, "X" in (call.result or "")) == ("web_search", '{"query": "x"}', True)
    item = {"type": "mcp_call", "id": "m1", "name": "roll", "arguments": '{"n": 2}', "output": "7", "status": "completed"}
    (call,) = reading(Dialect.RESPONSES, {}, {"output": [item]}).reply.calls
    assert (call.tool, call.arguments, call.result) == ("roll", '{"n": 2}', "7")


def test_reasoning_is_kept_apart_from_the_reply() -> None:
    chat = reading(Dialect.CHAT, {}, {"choices": [{"message": {"content": "4", "reasoning_content": "2 + 2"}}]})
    content = [{"type": "thinking", "thinking": "2 + 2", "signature": "x"}, {"type": "text", "text": "4"}]
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "2 + 2"}]}
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "4"}]}
    for found in (
        chat,
        reading(Dialect.MESSAGES, {}, {"content": content}),
        reading(Dialect.RESPONSES, {}, {"output": [summary, message]}),
    ):
        assert (found.reasoning, found.reply.text) == (("2 + 2",), "4")


LONG = "When a customer asks where an order is, tell the city. " * 100


@pytest.mark.parametrize(
    ("dialect", "request_"),
    [
        (Dialect.CHAT, {"messages": [{"role": "developer", "content": LONG}, {"role": "user", "content": "hi"}]}),
        (Dialect.RESPONSES, {"instructions": LONG, "input": "hi"}),
        (Dialect.MESSAGES, {"system": LONG, "messages": [{"role": "user", "content": "hi"}]}),
    ],
)
def test_instructions_that_are_said_in_every_call_are_in_memory_once(dialect: Dialect, request_: Any) -> None:
    first, second = (reading(dialect, request_, {}).turns[0] for _ in range(2))
    assert (first.role, first.text) == ("system", LONG)
    assert first.text is second.text
