import asyncio
import email.utils
import time
from collections.abc import Callable
from typing import Any

import pytest

from journeyman.core.errors import ModelBusy, ModelError, ModelRefused
from journeyman.core.messages import ToolUse
from journeyman.core.trace import OWN_AGENT
from journeyman.models import HOME, load
from journeyman.models.base import ModelRequest, PromptMessage, Reply, ToolOffer, ToolsRefused, takes_tools
from journeyman.models.openai import Ollama, OpenAI
from tests.support.llm_server import KEY, Answer, LLMServer, completion, error

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


def ask(text: str = "hi", **more: Any) -> ModelRequest:
    return ModelRequest(messages=(PromptMessage("system", "be brief"), PromptMessage("user", text)), **more)


async def once(server: LLMServer, request: ModelRequest | None = None, **options: Any) -> Reply:
    settings: dict[str, Any] = {"max_retries": 0, "timeout": 5.0, "api_key": KEY, **options}
    model = OpenAI("test-model", base_url=server.url, **settings)
    try:
        return await model.complete(request or ask())
    finally:
        await model.close()


async def test_a_reply_carries_text_tokens_and_why_it_stopped(server: LLMServer) -> None:
    reply = await once(server)
    assert (reply.text, reply.model, reply.finish) == ("hello", "test-model", "stop")
    assert (reply.input_tokens, reply.output_tokens, reply.cached_tokens) == (7, 3, None)
    assert reply.seconds is not None
    assert reply.seconds > 0
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


async def test_what_is_not_asked_for_is_not_sent(server: LLMServer) -> None:
    await once(server)
    assert server.bodies[0] == {
        "model": "test-model",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
    }


async def test_a_task_id_stays_here(server: LLMServer) -> None:
    await once(server, ask(task_id="gsm8k/held-out/17"))
    assert "held-out" not in str(server.bodies[0])


async def test_what_is_asked_for_is_sent(server: LLMServer) -> None:
    await once(server, ask(temperature=0.0, max_tokens=9, seed=4, schema=SCHEMA))
    sent = server.bodies[0]
    assert (sent["temperature"], sent["max_tokens"], sent["seed"]) == (0.0, 9, 4)
    assert sent["response_format"]["json_schema"] == {"name": "reply", "schema": SCHEMA, "strict": True}


async def test_an_open_schema_is_not_called_strict(server: LLMServer) -> None:
    inner = {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}}
    await once(server, ask(schema={**SCHEMA, "properties": {"a": inner}}))
    assert server.bodies[0]["response_format"]["json_schema"]["strict"] is False


async def test_counts_that_the_server_leaves_out_are_unknown_and_not_zero(server: LLMServer) -> None:
    server.answers.append(completion(usage=None))
    reply = await once(server)
    assert (reply.input_tokens, reply.output_tokens, reply.cost) == (None, None, None)


async def test_cached_tokens_are_told(server: LLMServer) -> None:
    server.answers.append(
        completion(usage={"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}})
    )
    assert (await once(server)).cached_tokens == 8


async def test_a_server_without_a_known_price_costs_unknown(server: LLMServer) -> None:
    server.answers.append(completion(model="gpt-4o-mini"))
    assert (await once(server)).cost is None


async def test_reasoning_is_not_taken_for_the_answer(server: LLMServer) -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "42"}]
    server.answers.append(completion(choices=[{"message": {"content": parts}, "finish_reason": "stop"}]))
    assert (await once(server)).text == "42"


async def test_a_refusal_in_words_is_an_answer(server: LLMServer) -> None:
    server.answers.append(completion(choices=[{"message": {"content": None, "refusal": "I cannot."}, "finish_reason": "stop"}]))
    assert (await once(server)).text == "I cannot."


UNUSABLE: dict[str, tuple[Answer, str]] = {
    "malformed JSON": (Answer(body='{"choices": [{"mess'), "no chat completion"),
    "no JSON at all": (Answer(body="<html>Bad gateway</html>", headers={"content-type": "text/html"}), "no chat completion"),
    "nothing": (Answer(body=""), "no chat completion"),
    "a list": (Answer(body="[]"), "no chat completion"),
    "an empty answer": (completion(""), "empty answer"),
    "no content": (completion(None), "empty answer"),
    "no choices": (completion(choices=[]), "without any choice"),
    "null choices": (completion(choices=None), "without any choice"),
    "all tokens spent on thinking": (
        completion(choices=[{"message": {"content": ""}, "finish_reason": "length"}]),
        "raise max_tokens",
    ),
    "an error with status 200": (Answer(body='{"error": {"message": "out of order"}}'), "out of order"),
}


@pytest.mark.parametrize("answer", UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_an_answer_that_cannot_be_used_is_a_model_error(server: LLMServer, answer: tuple[Answer, str]) -> None:
    server.answers.append(answer[0])
    with pytest.raises(ModelError, match=answer[1]) as caught:
        await once(server)
    assert type(caught.value) is ModelError
    assert "openai:test-model" in str(caught.value)


BUSY: dict[str, Answer] = {
    "rate limit": error(429, "slow down"),
    "server error": error(500, "oops"),
    "bad gateway": Answer(status=502, body="<html>"),
    "overloaded": error(529, "overloaded"),
    "connection cut": Answer(body=completion().body, cut=True),
    "slow": Answer(body=completion().body, delay=1.5),
    "busy gateway with status 200": Answer(body='{"error": {"message": "upstream", "code": 429}}'),
}


@pytest.mark.parametrize("answer", BUSY.values(), ids=BUSY.keys())
async def test_what_may_pass_is_busy(server: LLMServer, answer: Answer) -> None:
    server.answers.append(answer)
    with pytest.raises(ModelBusy, match="openai:test-model"):
        await once(server, timeout=0.3)


@pytest.mark.service
@pytest.mark.parametrize("answer", [BUSY["server error"], BUSY["connection cut"], BUSY["slow"]], ids=["500", "cut", "slow"])
async def test_the_client_retries_by_itself(server: LLMServer, answer: Answer) -> None:
    server.answers.append(answer)
    assert (await once(server, max_retries=1, timeout=1.0)).text == "hello"
    assert len(server.bodies) == 2


@pytest.mark.service
async def test_retry_after_is_waited_for(server: LLMServer) -> None:
    server.answers.append(error(429, "slow down", headers={"retry-after": "1"}))
    started = time.perf_counter()
    assert (await once(server, max_retries=1)).text == "hello"
    assert time.perf_counter() - started >= 1.0


async def test_retry_after_is_handed_on_in_seconds_or_as_a_date(server: LLMServer) -> None:
    server.answers.append(error(429, "slow down", headers={"retry-after": "7.5"}))
    with pytest.raises(ModelBusy) as caught:
        await once(server)
    assert caught.value.retry_after == 7.5
    date = email.utils.formatdate(time.time() + 60, usegmt=True)
    server.answers.append(error(503, "maintenance", headers={"retry-after": date}))
    with pytest.raises(ModelBusy) as caught:
        await once(server)
    assert caught.value.retry_after is not None
    assert 50 < caught.value.retry_after <= 60
    server.answers.append(error(503, "maintenance", headers={"retry-after": "soon"}))
    with pytest.raises(ModelBusy) as caught:
        await once(server)
    assert caught.value.retry_after is None


REFUSED: dict[str, tuple[Answer, str]] = {
    "no such model": (error(404, "The model does not exist"), "is not there"),
    "bad request": (error(400, "context length exceeded"), "context length exceeded"),
    "forbidden": (error(403, "country not supported"), "country not supported"),
    "no credit": (error(429, "You exceeded your current quota", code="insufficient_quota"), "no credit"),
}


@pytest.mark.parametrize("answer", REFUSED.values(), ids=REFUSED.keys())
async def test_what_will_not_pass_is_refused(server: LLMServer, answer: tuple[Answer, str]) -> None:
    server.answers.append(answer[0])
    with pytest.raises(ModelRefused, match=answer[1]):
        await once(server)


async def test_a_wrong_key_is_refused_once_and_never_repeated(server: LLMServer) -> None:
    server.key = KEY
    with pytest.raises(ModelRefused, match="OPENAI_API_KEY") as caught:
        await once(server, api_key="sk-proj-wrong-0123456789", max_retries=2)
    assert "wrong" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert len(server.bodies) == 1


@pytest.mark.parametrize("status", [400, 403, 500])
async def test_a_key_that_the_server_quotes_is_blotted_out(server: LLMServer, status: int) -> None:
    secret = "a-key-of-no-usual-shape"
    server.default = lambda body: error(status, f"no rights for {secret}, nor for sk-proj-abc***xyz")
    with pytest.raises(ModelError) as caught:
        await once(server, api_key=secret)
    assert secret not in str(caught.value)
    assert "sk-proj" not in str(caught.value)


@pytest.mark.parametrize("quoted", ["mykey-abcd****", "mykey-", "mykey-abcd…wxyz", "mykey-abcdefghijklmnop/qrst+uvwxyz"])
async def test_a_key_of_which_the_server_quotes_the_beginning_is_blotted_out(server: LLMServer, quoted: str) -> None:
    server.default = lambda body: error(403, f"the key '{quoted}' has no rights here")
    with pytest.raises(ModelRefused, match=r"the key '\*\*\*' has no rights") as caught:
        await once(server, api_key="mykey-abcdefghijklmnop/qrst+uvwxyz")
    assert "mykey" not in str(caught.value)


async def test_a_gateway_that_quotes_the_key_with_status_200_is_blotted_out(server: LLMServer) -> None:
    server.answers.append(Answer(body=f'{{"error": {{"message": "bad key {KEY}"}}}}'))
    with pytest.raises(ModelError) as caught:
        await once(server)
    assert KEY not in str(caught.value)


async def test_a_server_that_is_not_there_is_named() -> None:
    model = OpenAI("m", base_url="http://user:secret@127.0.0.1:9/v1", max_retries=0)
    with pytest.raises(ModelBusy, match="is the server running") as caught:
        await model.complete(ask())
    await model.close()
    assert "127.0.0.1:9" in str(caught.value)
    assert "secret" not in str(caught.value)


def picky(*refused: str, code: str | None = "unsupported_parameter") -> Callable[[dict[str, Any]], Answer]:
    """A server that knows no such parameters."""

    def answer(body: dict[str, Any]) -> Answer:
        for name in refused:
            if name in body:
                return error(400, f"Unsupported parameter: '{name}' is not supported with this model.", param=name, code=code)
        return completion()

    return answer


@pytest.mark.parametrize(
    "refused", [("response_format",), ("temperature",), ("seed",), ("response_format", "temperature", "seed")]
)
async def test_what_a_model_does_not_take_is_left_out_and_remembered(server: LLMServer, refused: tuple[str, ...]) -> None:
    server.default = picky(*refused)
    model = OpenAI("test-model", base_url=server.url, max_retries=0)
    request = ask(temperature=0.0, seed=1, schema=SCHEMA)
    assert (await model.complete(request)).text == "hello"
    assert len(server.bodies) == 1 + len(refused)
    await model.complete(request)
    await model.close()
    assert len(server.bodies) == 2 + len(refused)
    assert not set(refused) & set(server.bodies[-1])


@pytest.mark.parametrize("refused", ["max_tokens", "max_completion_tokens"])
async def test_a_token_limit_is_sent_under_the_name_that_the_server_knows(server: LLMServer, refused: str) -> None:
    server.default = picky(refused)
    await once(server, ask(max_tokens=5))
    (other,) = {"max_tokens", "max_completion_tokens"} - {refused}
    assert server.bodies[-1][other] == 5


async def test_a_server_that_refuses_schemas_in_its_own_words_still_answers(server: LLMServer) -> None:
    server.default = lambda body: error(400, "grammar backend missing") if "response_format" in body else completion()
    assert (await once(server, ask(schema=SCHEMA))).text == "hello"


async def test_a_schema_that_is_not_to_blame_is_kept(server: LLMServer) -> None:
    model = OpenAI("test-model", base_url=server.url, max_retries=0)
    server.default = lambda body: error(400, "prompt is too long")
    with pytest.raises(ModelRefused, match="too long"):
        await model.complete(ask(schema=SCHEMA))
    server.default = lambda body: completion()
    await model.complete(ask(schema=SCHEMA))
    await model.close()
    assert "response_format" in server.bodies[-1]


async def test_one_reply_that_missed_the_schema_does_not_end_schemas(server: LLMServer) -> None:
    model = OpenAI("test-model", base_url=server.url, max_retries=0)
    server.answers.append(error(400, "Failed to generate JSON", code="json_validate_failed"))
    await model.complete(ask(schema=SCHEMA))
    await model.complete(ask(schema=SCHEMA))
    await model.close()
    assert ["response_format" in body for body in server.bodies] == [True, False, True]


async def test_a_temperature_out_of_range_is_an_error_and_not_dropped(server: LLMServer) -> None:
    server.default = lambda body: error(400, "temperature must be at most 2", param="temperature", code="invalid_value")
    with pytest.raises(ModelRefused, match="at most 2"):
        await once(server, ask(temperature=3.0))
    assert len(server.bodies) == 1


async def test_a_model_without_a_system_role_gets_the_same_words_as_a_user(server: LLMServer) -> None:
    server.answers.append(
        error(400, "Unsupported value: 'messages[0].role' does not support 'system' with this model.", code="unsupported_value")
    )
    await once(server)
    assert [message["role"] for message in server.bodies[-1]["messages"]] == ["user", "user"]


def test_one_client_serves_one_loop_after_another(server: LLMServer) -> None:
    model = OpenAI("test-model", base_url=server.url, max_retries=0)

    async def use() -> str:
        try:
            return (await model.complete(ask())).text
        finally:
            await model.close()

    assert [asyncio.run(use()), asyncio.run(use())] == ["hello", "hello"]


async def test_a_prompt_that_cannot_be_sent_is_a_model_error(server: LLMServer) -> None:
    with pytest.raises(ModelError):
        await once(server, ask("\ud800"))


def test_no_key_is_said_before_anything_is_asked() -> None:
    with pytest.raises(ModelRefused, match="OPENAI_API_KEY"):
        OpenAI("gpt-5-mini")


def test_a_server_of_ones_own_needs_no_key() -> None:
    for url in ("http://localhost:8000/v1", "http://192.168.1.7:8000/v1", "http://[::1]:80/v1", "http://vllm:8000/v1"):
        OpenAI("m", base_url=url)


async def test_the_environment_is_read(server: LLMServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY + "\n")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    model = OpenAI("test-model", max_retries=0)
    await model.complete(ask())
    await model.close()
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert model.name == f"openai:test-model@{server.url}"


async def test_ollama_is_not_sent_a_key_meant_for_somebody_else(server: LLMServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    model = Ollama("qwen3:4b", base_url=server.url, max_retries=0)
    await model.complete(ask())
    await model.close()
    assert KEY not in str(server.headers[0])
    assert Ollama("qwen3:4b").name == "ollama:qwen3:4b"


@pytest.mark.parametrize(("key_env", "sent"), [("", None), ("OWN_KEY", "own-key-0123456789"), ("OPENAI_API_KEY", KEY)])
async def test_a_server_is_sent_the_key_that_is_named_and_no_other(
    server: LLMServer, monkeypatch: pytest.MonkeyPatch, key_env: str, sent: str | None
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OWN_KEY", "own-key-0123456789")
    model = load(f"openai:m@{server.url}", key_env=key_env, max_retries=0)
    await model.complete(ask())
    await model.close()
    assert server.headers[0]["authorization"].removeprefix("Bearer ") == (sent or "none")


def test_openai_itself_gets_its_key_whoever_named_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelRefused, match="set OPENAI_API_KEY"):
        OpenAI("m", base_url=f"{HOME}/", key_env="")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert OpenAI("m", base_url=f"{HOME}/", key_env="").name == "openai:m"


def test_a_server_far_away_for_which_no_key_is_named_says_where_to_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(ModelRefused, match=r"key_env = .* beside its base_url in journeyman\.toml"):
        OpenAI("m", base_url="https://models.example.com/v1", key_env="")
    with pytest.raises(ModelRefused, match="needs a key: set THEIR_KEY"):
        OpenAI("m", base_url="https://models.example.com/v1", key_env="THEIR_KEY")
    OpenAI("m", base_url="https://models.example.com/v1")


async def test_a_gateway_is_told_that_these_calls_are_journeymans_own(server: LLMServer) -> None:
    model = OpenAI("test-model", base_url=server.url, max_retries=0)
    await model.complete(ask())
    await model.close()
    assert server.headers[0]["x-journeyman-agent"] == OWN_AGENT
    assert server.headers[0]["x-journeyman-releases"] == "off"


OFFER = ToolOffer(name="look", description="Looks.", parameters={"type": "object", "properties": {}})


async def test_tools_are_offered_and_calls_read_also_where_a_server_leaves_out_ids(server: LLMServer) -> None:
    asked = [{"function": {"name": "look", "arguments": {"at": 1}}}, {"id": "c2", "type": "function", "function": None}]
    message = {"role": "assistant", "content": None, "tool_calls": asked}
    server.answers.append(completion(None, choices=[{"index": 0, "message": message, "finish_reason": "tool_calls"}]))
    reply = await once(server, ask(tools=(OFFER,)))
    assert reply.calls == (ToolUse("look", '{"at": 1}', "call_0"), ToolUse("", "{}", "c2"))
    said = (
        PromptMessage("user", "hi"),
        PromptMessage("assistant", "", calls=reply.calls[:1]),
        PromptMessage("tool", "nothing there", call_id="call_0"),
    )
    await once(server, ModelRequest(messages=said, tools=(OFFER,)))
    assert server.bodies[0]["tools"][0]["function"]["name"] == "look"
    assert server.bodies[1]["messages"][1:] == [
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "call_0", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}]},
        {"role": "tool", "content": "nothing there", "tool_call_id": "call_0"},
    ]  # fmt: skip


async def test_a_server_without_tools_says_so_once_and_what_went_wrong_in_a_call_is_something_else(server: LLMServer) -> None:
    server.answers.append(error(500, "error parsing tool call: raw='{', err=unexpected end of JSON input"))
    with pytest.raises(ModelBusy):
        await once(server, ask(tools=(OFFER,)))
    model = OpenAI("m", base_url=server.url, api_key=KEY, max_retries=0)
    assert model.tools
    server.answers.append(error(400, "m does not support tools"))
    with pytest.raises(ToolsRefused, match="takes no tools"):
        await model.complete(ask(tools=(OFFER,)))
    assert not takes_tools(model)
    assert (await model.complete(ask())).text == "hello"
    await model.close()
