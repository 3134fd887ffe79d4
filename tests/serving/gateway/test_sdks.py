"""The makers' own SDKs against the gateway, with nothing changed but the base URL."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from pydantic import BaseModel

from journeyman.tracing.wire.dialects import Dialect
from tests.support.gateways import Running, gateway
from tests.support.upstream import EVENTS, Reply, Upstream, events, failed, ok

pytestmark = pytest.mark.service

USER: Any = [{"role": "user", "content": "hi"}]
TOOL: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def client(running: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="sk-mine", max_retries=0) as made:
        yield made


@pytest.fixture
def claude(running: Running) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=running.url, api_key="sk-ant-mine", max_retries=0) as made:
        yield made


def choice(index: int = 0, **message: object) -> dict[str, object]:
    return {"index": index, "finish_reason": "stop", "message": {"role": "assistant", "content": None, **message}}


def completion(*choices: dict[str, object]) -> dict[str, object]:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": list(choices), "usage": usage}


def test_chat_with_n_and_logprobs(client: openai.OpenAI, running: Running, up: Upstream) -> None:
    logprobs = {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}], "refusal": None}
    up.replies.append(ok(completion({**choice(content="a"), "logprobs": logprobs}, choice(1, content="b"))))
    got = client.chat.completions.create(model="m", messages=USER, n=2, logprobs=True, extra_body={"unknown": [1]})
    assert [each.message.content for each in got.choices] == ["a", "b"]
    assert got.choices[0].logprobs is not None
    assert got.choices[0].logprobs.content is not None
    assert got.choices[0].logprobs.content[0].logprob == -0.5
    sent = json.loads(up.asked[0].body)
    assert (sent["n"], sent["logprobs"], sent["unknown"]) == (2, True, [1])
    assert json.loads(running.memory.one().request) == sent


def test_tools_and_structured_output(client: openai.OpenAI, up: Upstream) -> None:
    class Answer(BaseModel):
        number: int

    call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    up.replies.append(ok(completion({**choice(tool_calls=[call]), "finish_reason": "tool_calls"})))
    up.replies.append(ok(completion(choice(content='{"number": 7}'))))
    got = client.chat.completions.create(model="m", messages=USER, tools=[TOOL])
    assert got.choices[0].message.tool_calls is not None
    assert got.choices[0].message.tool_calls[0].id == "t"
    parsed = client.chat.completions.parse(model="m", messages=USER, response_format=Answer)
    assert parsed.choices[0].message.parsed == Answer(number=7)
    assert json.loads(up.asked[1].body)["response_format"]["json_schema"]["strict"] is True


def test_a_stream_comes_piece_by_piece(client: openai.OpenAI, running: Running, up: Upstream) -> None:
    piece = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    said = [json.dumps({**piece, "choices": [{"index": 0, "delta": {"content": word}}]}) for word in ("one", " two")]
    up.replies.append(events(*said, "[DONE]", pause=0.02))
    with client.chat.completions.create(model="m", messages=USER, stream=True) as stream:
        assert "".join(each.choices[0].delta.content or "" for each in stream) == "one two"
    assert running.memory.one().streamed
    assert running.memory.one().response.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, openai.AuthenticationError), (429, openai.RateLimitError), (500, openai.InternalServerError)],
)
def test_errors_are_those_of_the_upstream(
    client: openai.OpenAI, up: Upstream, status: int, kind: type[openai.APIStatusError]
) -> None:
    up.replies.append(failed(status, None, (b"retry-after", b"9")))
    with pytest.raises(kind) as caught:
        client.chat.completions.create(model="m", messages=USER)
    assert caught.value.code == "its_code"
    assert caught.value.response.headers["retry-after"] == "9"


def test_embeddings_responses_and_models(client: openai.OpenAI, running: Running, up: Upstream) -> None:
    up.replies.append(ok({"object": "list", "model": "e", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}]}))
    assert client.embeddings.create(model="e", input="x", encoding_format="float").data[0].embedding == [0.5]
    message = {"type": "message", "id": "m1", "role": "assistant", "status": "completed"}
    text = {"type": "output_text", "text": "hello", "annotations": []}
    up.replies.append(ok({"id": "r", "object": "response", "model": "m", "output": [{**message, "content": [text]}]}))
    assert client.responses.create(model="m", input="hi").output_text == "hello"
    up.replies.append(ok({"object": "list", "data": [{"id": "m", "object": "model", "created": 1, "owned_by": "me"}]}))
    assert [each.id for each in client.models.list()] == ["m"]
    assert [each.dialect for each in running.memory.some(2)] == [Dialect.EMBEDDINGS, Dialect.RESPONSES]


MESSAGE: dict[str, Any] = {
    "id": "msg", "type": "message", "role": "assistant", "model": "c", "content": [], "stop_reason": None,
    "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": 1},
}  # fmt: skip


def test_messages_and_counting_of_tokens(claude: anthropic.Anthropic, running: Running, up: Upstream) -> None:
    up.replies.append(ok({**MESSAGE, "content": [{"type": "text", "text": "hello"}], "stop_reason": "end_turn"}))
    got = claude.messages.create(model="c", max_tokens=9, messages=USER)
    assert got.content[0].text == "hello"  # type: ignore[union-attr]
    up.replies.append(ok({"input_tokens": 12}))
    assert claude.messages.count_tokens(model="c", messages=USER).input_tokens == 12
    assert [each.path for each in up.asked] == ["/v1/messages", "/v1/messages/count_tokens"]
    assert "sk-ant-mine" in repr(up.asked[0].headers)
    assert running.memory.one().dialect is Dialect.MESSAGES


def test_messages_as_a_stream(claude: anthropic.Anthropic, running: Running, up: Upstream) -> None:
    said: list[dict[str, Any]] = [
        {"type": "message_start", "message": MESSAGE},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hel"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    pieces = tuple(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in said)
    up.replies.append(Reply(headers=(EVENTS,), pieces=pieces, pause=0.01))
    with claude.messages.stream(model="c", max_tokens=9, messages=USER) as stream:
        assert "".join(stream.text_stream) == "hello"
    assert running.memory.one().streamed


def test_an_error_of_ours_is_one_that_the_sdks_know() -> None:
    said = "journeyman: the upstream up cannot be reached"
    with (
        gateway("http://127.0.0.1:9/v1") as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="k", max_retries=0) as client,
        anthropic.Anthropic(base_url=running.url, api_key="k", max_retries=0) as claude,
    ):
        with pytest.raises(openai.InternalServerError, match=said):
            client.chat.completions.create(model="m", messages=USER)
        with pytest.raises(anthropic.InternalServerError, match=said):
            claude.messages.create(model="m", max_tokens=1, messages=USER)


def test_a_client_that_can_send_only_a_key_sends_the_token(up: Upstream) -> None:
    up.replies.append(ok(completion(choice(content="a"))))
    with (
        gateway(up.url, tokens=("a-token-of-the-gateway",)) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="a-token-of-the-gateway", max_retries=0) as client,
    ):
        assert client.chat.completions.create(model="m", messages=USER).choices[0].message.content == "a"
    assert up.asked[0].header("authorization") is None
