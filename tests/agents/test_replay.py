"""A recorded request is asked again in its own dialect, with bullets where the gateway puts them, and no tool is run."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from journeyman.agents.answer import strategies
from journeyman.agents.replay import (
    CallBudget,
    NamedModel,
    NotAskable,
    RecordedRequest,
    RecordedServer,
    Replayer,
    WithinBudget,
    request_of,
)
from journeyman.agents.splice import RequestBody
from journeyman.core.errors import ModelBusy, ModelError, ModelRefused
from journeyman.core.playbook import Bullet
from journeyman.core.trace import Message, ModelCall, ToolCall, Trace
from journeyman.experiments.playbook.recorded_tasks import draw
from journeyman.io.retry import RetryPolicy
from journeyman.models import pricing
from journeyman.models.base import ModelRequest, PromptMessage
from journeyman.models.scripted import Scripted
from journeyman.tasks.recorded import TaskKind
from journeyman.tracing.evidence import evidence_of
from journeyman.tracing.redaction import shapes_only
from journeyman.tracing.wire.assembler import ConversationAssembler
from journeyman.tracing.wire.dialects import Dialect, Exchange
from tests.support.upstream import Asked, Reply, failed, ok, upstream

BULLETS = (Bullet(id="b-1", content="dates: like 05.09.2026", domain="oslo"),)
ARGUMENTS = {"date": "5", "city": "Oslo"}
REFUSAL = 'date: expected "05.09.2026", got "5"'
SCHEMA = {"type": "object", "properties": {"date": {"type": "string"}, "city": {"type": "string"}}, "required": ["date"]}
CHAT_TOOL = {"type": "function", "function": {"name": "order", "description": "Places an order", "parameters": SCHEMA}}


def _chat(**more: Any) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Two requests and their answers: a question and a call, the tool's refusal and an apology."""
    asked = {"id": "call_1", "type": "function", "function": {"name": "order", "arguments": json.dumps(ARGUMENTS)}}
    call = {"role": "assistant", "content": None, "tool_calls": [asked]}
    first: dict[str, Any] = {
        "model": "clerk",
        "messages": [{"role": "system", "content": "You are a clerk."}, {"role": "user", "content": "A mug to Oslo"}],
        "tools": [CHAT_TOOL],
        "temperature": 0.3,
        "stream": False,
        "user": "u1",
        **more,
    }
    second = {**first, "messages": [*first["messages"], call, {"role": "tool", "tool_call_id": "call_1", "content": REFUSAL}]}
    said = {"role": "assistant", "content": "I am sorry."}
    return [
        (first, {"choices": [{"message": call, "finish_reason": "tool_calls"}]}),
        (second, {"choices": [{"message": said}]}),
    ]


def _messages() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    call = {"type": "tool_use", "id": "toolu_1", "name": "order", "input": ARGUMENTS}
    first: dict[str, Any] = {
        "model": "clerk",
        "max_tokens": 300,
        "system": "You are a clerk.",
        "messages": [{"role": "user", "content": "A mug to Oslo"}],
        "tools": [{"name": "order", "description": "Places an order", "input_schema": SCHEMA}],
    }
    refused = {"type": "tool_result", "tool_use_id": "toolu_1", "content": REFUSAL, "is_error": True}
    second = {
        **first,
        "messages": [*first["messages"], {"role": "assistant", "content": [call]}, {"role": "user", "content": [refused]}],
    }
    return [
        (first, {"type": "message", "role": "assistant", "content": [call], "stop_reason": "tool_use"}),
        (second, {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "I am sorry."}]}),
    ]


def _responses() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    call = {"type": "function_call", "call_id": "fc_1", "id": "x", "name": "order", "arguments": json.dumps(ARGUMENTS)}
    first: dict[str, Any] = {
        "model": "clerk",
        "instructions": "You are a clerk.",
        "input": "A mug to Oslo",
        "tools": [{"type": "function", "name": "order", "parameters": SCHEMA}],
    }
    said = [{"role": "user", "content": "A mug to Oslo"}, call]
    second = {**first, "input": [*said, {"type": "function_call_output", "call_id": "fc_1", "output": REFUSAL}]}
    text = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I am sorry."}]}
    return [(first, {"output": [call], "status": "completed"}), (second, {"output": [text], "status": "completed"})]


CONVERSATIONS = {Dialect.CHAT: _chat(), Dialect.MESSAGES: _messages(), Dialect.RESPONSES: _responses()}


def recorded(
    dialect: Dialect, said: Sequence[tuple[dict[str, Any], dict[str, Any]]], base_url: str = "http://h/v1", **more: Any
) -> Trace:
    """The trace of a conversation, as the gateway records it. The tool's refusal is known as one, which the recorder's own rule
    for errors in prose cannot tell."""
    assembler = ConversationAssembler(price=lambda *_: None)
    for at, (request, answer) in enumerate(said):
        exchange = Exchange(
            id=f"e{at}",
            dialect=dialect,
            request=json.dumps(request).encode(),
            response=json.dumps(answer).encode(),
            status=200,
            started_at=datetime(2026, 1, 1, 0, at, tzinfo=UTC),
            seconds=1.0,
            base_url=base_url,
            labels={"session": "s", "domain": "oslo"},
            **more,
        )
        trace = assembler.join(exchange)
    steps = (replace(s, ok=False) if isinstance(s, ToolCall) and "expected" in s.result else s for s in trace.steps)
    return replace(trace, steps=tuple(steps))


RIGHT = {**ARGUMENTS, "date": "05.09.2026"}
ANSWERS: dict[str, Any] = {
    Dialect.CHAT: {
        "choices": [{"message": {"tool_calls": [{"id": "c", "function": {"name": "order", "arguments": json.dumps(RIGHT)}}]}}]
    },
    Dialect.MESSAGES: {"type": "message", "content": [{"type": "tool_use", "id": "c", "name": "order", "input": RIGHT}]},
    Dialect.RESPONSES: {
        "output": [{"type": "function_call", "call_id": "c", "name": "order", "arguments": json.dumps(RIGHT)}],
        "status": "completed",
    },
}


@pytest.mark.parametrize("dialect", [Dialect.CHAT, Dialect.MESSAGES, Dialect.RESPONSES])
def test_a_recorded_request_is_asked_again_as_it_was_with_the_bullets_where_the_gateway_puts_them(dialect: Dialect) -> None:
    with upstream() as server:
        server.answer = lambda _: ok(ANSWERS[dialect])
        drawn = draw([evidence_of(recorded(dialect, CONVERSATIONS[dialect], server.url))])
        (task,) = drawn.tasks
        assert task.kind is TaskKind.CALL

        async def ask() -> Any:
            served = RecordedServer(key=lambda _: "secret")
            agent = Replayer(ask=served, requests={task.task.id: task.request}, choose=lambda _: BULLETS)
            steps = [step async for step in agent.run(task.task)]
            await served.close()
            return steps

        call, asked = asyncio.run(ask())
    assert json.loads(asked.arguments) == RIGHT
    assert asked.result == ""
    assert call.shown == ("b-1",)
    (sent,) = server.asked
    first = CONVERSATIONS[dialect][0][0]
    body = json.loads(sent.body)
    as_client = json.dumps({**first, "temperature": 0.3} if dialect is Dialect.CHAT else first).encode()
    live = json.loads(RequestBody(as_client, dialect).edit(strategies(BULLETS), "system_end").of(as_client))
    system = {"instructions": "instructions", "system": "system"}
    for name in system:
        assert body.get(name) == live.get(name)
    assert body["tools"] == first["tools"]
    assert "stream" not in body
    assert "user" not in body
    if dialect is Dialect.CHAT:
        assert body["messages"] == live["messages"]
        assert body["temperature"] == 0.3
    assert sent.path == f"/v1{dialect.path}"
    key = sent.header("x-api-key") if dialect is Dialect.MESSAGES else sent.header("authorization")
    assert key in ("secret", "Bearer secret")


def test_bullets_of_then_are_taken_out_before_others_are_put_in() -> None:
    first, answer = _chat()[0]
    old = (Bullet(id="b-old", content="dates: like 5-mar", domain="oslo"),)
    body = json.dumps(first).encode()
    told = json.loads(RequestBody(body, Dialect.CHAT).edit(strategies(old), "system_end").of(body))
    trace = recorded(Dialect.CHAT, [(told, answer)], shown=("b-old",))
    request = request_of(trace, trace.calls[0])
    assert b"b-old" not in request.body(strategies(BULLETS))
    assert b"b-1" in request.body(strategies(BULLETS))
    plain = recorded(Dialect.CHAT, [(first, answer)])
    assert request.body() == request_of(plain, plain.calls[0]).body()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"tool_choice": "required"}, "forced"),
        ({"tool_choice": {"type": "function", "function": {"name": "order"}}}, "forced"),
        ({"tools": [CHAT_TOOL, {"type": "web_search"}]}, "run on the server"),
        ({"web_search_options": {}} | {"plugins": [{"id": "web"}]}, "run on the server"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}}]}
                ]
            },
            "pictures",
        ),
    ],
)
def test_what_would_have_an_effect_beyond_an_answer_is_left_out_and_counted(more: dict[str, Any], why: str) -> None:
    drawn = draw([evidence_of(recorded(Dialect.CHAT, _chat(**more)[:1]))])
    assert not drawn.tasks
    assert drawn.attempts == 1
    ((said, count),) = drawn.left_out.items()
    assert why in said
    assert count == 1


def test_answers_of_another_arm_and_of_held_out_tasks_are_left_out_and_counted() -> None:
    canary = recorded(Dialect.CHAT, _chat(), served={"release": [{"rollout": "r", "unit": "u", "arm": "canary"}]})
    production = recorded(Dialect.CHAT, _chat(), served={"release": [{"rollout": "r", "unit": "u", "arm": "production"}]})
    held_out = replace(recorded(Dialect.CHAT, _chat()), raw={"split": "held_out"})
    drawn = draw([evidence_of(each) for each in (canary, production, held_out)])
    assert len(drawn.tasks) == 1
    assert sum(drawn.left_out.values()) == 2


@pytest.mark.parametrize(("said", "kind"), [("Send mugs to Oslo", TaskKind.CALL), (f"Send mugs. {REFUSAL}", TaskKind.FORM)])
def test_what_a_refusal_echoes_of_the_customer_does_not_say_what_would_be_right(said: str, kind: TaskKind) -> None:
    asked = ModelCall(
        id="m0", model="m", prompt=said, reply="", messages=(Message(role="user", text=said),),
        raw={"dialect": Dialect.CHAT, "request": {"tools": ["order"]}, "tools": json.dumps([CHAT_TOOL])},
    )  # fmt: skip
    used = ToolCall(
        id="t0",
        parent="m0",
        tool="order",
        arguments=json.dumps(ARGUMENTS),
        ok=False,
        result=f"Error: not understood: {REFUSAL}",
    )
    trace = Trace(id="v", task_id="", candidate_id="base", started_at=datetime(2026, 1, 1, tzinfo=UTC), steps=(asked, used))
    (task,) = draw([evidence_of(trace)]).tasks
    assert task.kind is kind


def test_no_tool_is_executed_whatever_the_model_asks_for() -> None:
    with upstream() as server:
        server.answer = lambda asked: ok(ANSWERS[next(d for d in ANSWERS if asked.path.endswith(Dialect(d).path))])
        traces = [recorded(dialect, said, server.url) for dialect, said in CONVERSATIONS.items()]
        searching = recorded(
            Dialect.RESPONSES, [({**_responses()[0][0], "tools": [{"type": "web_search"}]}, _responses()[0][1])]
        )
        drawn = draw([evidence_of(each) for each in (*traces, searching)])

        async def ask() -> None:
            served = RecordedServer()
            agent = Replayer(ask=served, requests={each.task.id: each.request for each in drawn.tasks})
            for each in drawn.tasks:
                async for _ in agent.run(each.task):
                    pass
            await served.close()

        asyncio.run(ask())
        paths = {dialect.path for dialect in CONVERSATIONS}
        assert len(server.asked) == 3, "one request a task: what a tool would answer is never sent"
    # Whatever else than a model was asked would be a tool.
    assert {asked.path.removeprefix("/v1") for asked in server.asked} == paths
    assert sum(drawn.left_out.values()) == 1


def _request(url: str) -> RecordedRequest:
    return RecordedRequest(dialect=Dialect.CHAT, base_url=url, model="m", messages=({"role": "user", "content": "hi"},))


@pytest.mark.parametrize(("status", "error"), [(401, ModelRefused), (503, ModelBusy)])
def test_a_server_that_gives_no_answer_is_unknown_and_not_wrong(status: int, error: type[ModelError]) -> None:
    with upstream() as server:
        server.answer = lambda _: failed(status)

        async def ask() -> None:
            served = RecordedServer(key=lambda _: "secret", patience=RetryPolicy(retries=0))
            try:
                await served(_request(server.url), ())
            finally:
                await served.close()

        with pytest.raises(error) as raised:
            asyncio.run(ask())
    assert "secret" not in str(raised.value)


def test_a_server_that_is_gone_is_unknown() -> None:
    with pytest.raises(ModelBusy, match="is the server running"):
        asyncio.run(RecordedServer(patience=RetryPolicy(retries=0))(_request("http://127.0.0.1:9/v1"), ()))


def test_a_busy_server_is_asked_again() -> None:
    with upstream() as server:
        server.replies.extend([failed(503), ok(ANSWERS[Dialect.CHAT])])

        async def ask() -> Any:
            served = RecordedServer(patience=RetryPolicy(first_wait=0.01))
            steps = await served(_request(server.url), ())
            await served.close()
            return steps

        assert len(asyncio.run(ask())) == 2


@contextmanager
def hanging_up(answers: int) -> Iterator[str]:
    """The base URL of a server that promises to keep each connection, and closes it after so many answers."""
    body = json.dumps(ANSWERS[Dialect.CHAT]).encode()

    class Closing(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        served = 0

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            if self.served < answers:
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            self.served += 1
            self.close_connection = self.served > answers

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Closing) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


def test_a_server_that_closes_a_kept_connection_is_asked_again() -> None:
    async def ask(url: str) -> list[Any]:
        served = RecordedServer(patience=RetryPolicy(first_wait=0.01))
        found = [await served(_request(url), ()) for _ in range(3)]
        await served.close()
        return found

    with hanging_up(1) as url:
        assert [len(steps) for steps in asyncio.run(ask(url))] == [2, 2, 2]


def test_the_limit_on_calls_is_never_exceeded_by_one() -> None:
    with upstream() as server:
        server.answer = lambda _: Reply(pieces=(json.dumps(ANSWERS[Dialect.CHAT]).encode(),), wait=0.01)
        budget = CallBudget(max_calls=5)

        async def ask() -> list[Any]:
            served = RecordedServer(budget=budget, concurrency=8)
            found = await asyncio.gather(*(served(_request(server.url), ()) for _ in range(20)), return_exceptions=True)
            await served.close()
            return list(found)

        found = asyncio.run(ask())
    assert len(server.asked) == budget.calls == 5
    assert sum(isinstance(each, ModelRefused) for each in found) == 15


def test_the_limit_on_cost_is_never_exceeded_by_calls_that_run_together() -> None:
    budget = CallBudget(max_cost=1.0)
    taken = [budget.take(0.3) for _ in range(3)]
    with pytest.raises(ModelRefused, match="max-cost"):
        budget.take(0.3)
    budget.paid(taken[0], 0.05)
    budget.take(0.3)
    with pytest.raises(ModelRefused, match="known"):
        budget.take(None)


def test_what_nobody_says_the_price_of_may_have_cost_all_that_it_could() -> None:
    budget = CallBudget(max_cost=1.0)
    budget.paid(budget.take(0.6), None)
    with pytest.raises(ModelRefused, match="max-cost"):
        budget.take(0.6)


def test_a_call_waits_for_those_under_way_where_they_may_leave_room_for_it() -> None:
    budget = CallBudget(max_cost=1.0)

    async def ask() -> None:
        first = await budget.taken(0.9)
        second = asyncio.create_task(budget.taken(0.9))
        await asyncio.sleep(0)
        assert not second.done()
        budget.paid(first, 0.05)
        assert await second == 0.9
        with pytest.raises(ModelRefused):
            await budget.taken(0.96)

    asyncio.run(asyncio.wait_for(ask(), 5))


def test_a_model_whose_costs_are_limited_is_told_how_long_it_may_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pricing, "of", lambda _: pricing.PerMillion(input=1, output=8))
    model = Scripted("é", "é")
    model.deterministic = False
    asked = ModelRequest(messages=(PromptMessage("user", "é" * 1000),))
    budget = CallBudget(max_cost=0.05)
    asyncio.run(WithinBudget(model, budget).complete(asked))
    (told,) = model.requests
    assert told.max_tokens is not None
    assert budget._lost >= (2000 + 8 * told.max_tokens) / 1e6, "a byte may be a token, and this one's cost is unknown"
    asyncio.run(WithinBudget(model, CallBudget()).complete(asked))
    assert model.requests[1].max_tokens is None


@pytest.mark.parametrize("dialect", CONVERSATIONS)
def test_no_answer_costs_more_than_was_left_however_long_a_server_would_write(
    dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that writes as many tokens as it may, and a hundred thousand where nothing limits it; letters are tokens."""

    def price(_: str, __: str, sent: int | None, written: int | None, *___: Any) -> float | None:
        return None if sent is None or written is None else (sent + 8 * written) / 1e6

    def answer(asked: Asked) -> Reply:
        told = json.loads(asked.body)
        cap = next((told[name] for name in told if name.startswith("max_")), 100_000)
        names = ("prompt_tokens", "completion_tokens") if dialect is Dialect.CHAT else ("input_tokens", "output_tokens")
        usage = dict(zip(names, (len(asked.body), cap), strict=True))
        return Reply(pieces=(json.dumps({**ANSWERS[dialect], "usage": usage}).encode(),))

    monkeypatch.setattr(pricing, "cost", price)
    with upstream() as server:
        server.answer = answer
        budget = CallBudget(max_cost=0.1)

        async def ask() -> list[Any]:
            served = RecordedServer(budget=budget)
            request = replace(_request(server.url), dialect=dialect)
            found = await asyncio.gather(*(served(request, ()) for _ in range(12)), return_exceptions=True)
            await served.close()
            return list(found)

        found = asyncio.run(asyncio.wait_for(ask(), 30))
    assert 0.05 < budget.cost <= 0.1
    assert {type(each) for each in found if isinstance(each, Exception)} == {ModelRefused}


def test_a_terse_model_is_told_the_rules_and_its_json_is_the_call() -> None:
    model = Scripted(json.dumps({"name": "order", "arguments": RIGHT}), dialect="terse")
    trace = recorded(Dialect.CHAT, _chat())
    _call, asked = asyncio.run(NamedModel(model)(request_of(trace, trace.calls[0]), BULLETS))
    assert [(each.role, each.content) for each in model.requests[0].messages] == [
        ("system", "reply\n- dates: like 05.09.2026"),
        ("user", "A mug to Oslo"),
    ]
    assert isinstance(asked, ToolCall)
    assert json.loads(asked.arguments) == RIGHT


def test_a_request_can_be_aimed_at_another_model_in_chat_completions() -> None:
    trace = recorded(Dialect.MESSAGES, _messages())
    aimed = request_of(trace, trace.calls[0]).of_model("other", "http://h/v1")
    told = json.loads(aimed.body())
    assert told["model"] == "other"
    assert told["tools"] == [CHAT_TOOL]
    assert told["max_tokens"] == 300
    assert [each["role"] for each in told["messages"]] == ["system", "user"]


@pytest.mark.parametrize("dialect", [Dialect.CHAT, Dialect.MESSAGES, Dialect.RESPONSES])
def test_a_conversation_of_several_turns_is_built_anew_up_to_the_call(dialect: Dialect) -> None:
    trace = recorded(dialect, CONVERSATIONS[dialect])
    body = request_of(trace, trace.calls[1]).body().decode()
    assert body.count(json.dumps(REFUSAL)) == 1
    assert "I am sorry" not in body
    assert body.count("call_1" if dialect is Dialect.CHAT else "toolu_1" if dialect is Dialect.MESSAGES else "fc_1") == 2


def test_without_content_nothing_can_be_asked() -> None:
    trace = shapes_only(recorded(Dialect.CHAT, _chat()))
    with pytest.raises(NotAskable, match="no words"):
        request_of(trace, trace.calls[0])
