"""What a hooked agent says to models through an SDK, and which of its own tools it uses, is in its trace."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import anthropic
import openai
import pytest

from journeyman import TraceCollector
from journeyman.cli import main
from journeyman.core.errors import InputError
from journeyman.core.trace import Trace
from journeyman.serving.ingest.hooks import hook_into_agent, traced_by
from journeyman.tracing.collector import Collector
from tests.support.upstream import EVENTS, Asked, Reply, Upstream, events, failed, ok, upstream
from tests.tracing.trees import drawn, only

pytestmark = pytest.mark.service

KEY = "sk-test-1234567890abcdefghijklmnop"


@pytest.fixture(scope="module")
def server() -> Iterator[Upstream]:
    with upstream() as started:
        yield started


@pytest.fixture(autouse=True)
def fresh(server: Upstream) -> None:
    server.replies.clear()
    server.asked.clear()
    server.answer = _sum


@pytest.fixture
def collector() -> Collector:
    return Collector()


def _chat(text: str | None, *, model: str = "gpt-5-mini", **message: Any) -> Reply:
    said = {"role": "assistant", "content": text, **message}
    finish = "tool_calls" if message else "stop"
    usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    choices = [{"index": 0, "message": said, "finish_reason": finish}]
    return ok(
        {"id": uuid4().hex, "object": "chat.completion", "created": 1, "model": model, "choices": choices, "usage": usage}
    )


def _sum(asked: Asked) -> Reply:
    """Adds the two numbers in the last message."""
    said = json.loads(asked.body)["messages"][-1]["content"]
    return _chat(str(sum(int(word) for word in said.split() if word.isdigit())))


def _tool(name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": "call_7", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


class Adder:
    """Asks a model through the openai SDK, and checks with a tool of its own."""

    name = "adder"

    def __init__(self, server: Upstream) -> None:
        self.url = server.url

    async def tool_check(self, total: int) -> bool:
        return total > 0

    def tool_schemas(self) -> list[str]:
        return ["check"]

    async def a_run(self, query: str) -> str:
        self.tool_schemas()
        system = {"role": "system", "content": "be brief"}
        said: Any = [system, {"role": "user", "content": query}]
        async with openai.AsyncOpenAI(base_url=self.url, api_key=KEY, max_retries=0) as client:
            answer = await client.chat.completions.create(model="gpt-5-mini", messages=said)
        total = int(answer.choices[0].message.content or "0")
        if not await self.tool_check(total):
            raise ValueError("nothing to add")
        return f"It is {total}."


def _rows(where: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in where.read_text().splitlines()]


async def test_from_a_hook_by_labels_to_a_dataset(server: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with TraceCollector() as collector:
        agent = Adder(server)
        hook_into_agent(agent, collector)
        sums = [f"what is {number} plus 30" for number in range(1, 7)]
        answers = await asyncio.gather(*map(agent.a_run, sums))
        with pytest.raises(ValueError, match="nothing to add"):
            await agent.a_run("what is nothing")
        assert answers == [f"It is {number + 30}." for number in range(1, 7)]
        known = collector.get_unlabeled_traces(limit=10)
        assert sorted(trace.query for trace in known) == sorted([*sums, "what is nothing"])
        for trace in known:
            assert drawn(trace) == ["gpt-5-mini", "tool_check"]
            assert (trace.input_tokens, trace.output_tokens) == (20, 5)
            assert trace.cost is None
            assert [message.role for message in trace.calls[0].messages] == ["system", "user"]
            collector.label_trace(trace.id, trace.error is None)
        statistics = collector.get_statistics()
        assert (statistics["model_calls"], statistics["tool_calls"], statistics["failed"]) == (7, 7, 1)
    assert main(["dataset", "build", "--method", "kto", "--out", "rows.jsonl"]) == 0
    rows = _rows(tmp_path / "rows.jsonl")
    assert sorted(row["label"] for row in rows) == [False, *[True] * 6]
    # The model asked for no tool: nobody may be taught that it did.
    assert {json.dumps(row["completion"]) for row in rows} >= {'[{"role": "assistant", "content": "31"}]'}
    assert not any("tool_calls" in message for row in rows for message in row["completion"])
    assert KEY not in "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())


def test_what_is_known_to_cost_is_priced(collector: Collector, server: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("journeyman.serving.ingest.hooks.price", lambda base_url, model, usage: _priced(base_url, server))

    class Agent:
        def run(self, query: str) -> str | None:
            said: Any = [{"role": "user", "content": query}]
            with openai.OpenAI(base_url=server.url, api_key=KEY) as client:
                return client.chat.completions.create(model="gpt-5-mini", messages=said).choices[0].message.content

    agent = Agent()
    hook_into_agent(agent, collector)
    assert agent.run("1 2") == "3"
    assert only(collector).cost == 0.25


def _priced(base_url: str, server: Upstream) -> float | None:
    return 0.25 if base_url == server.url else None


def test_a_tool_that_a_model_asks_for_and_the_agent_uses_is_one_step(collector: Collector, server: Upstream) -> None:
    class Agent:
        def __init__(self) -> None:
            self.client = openai.OpenAI(base_url=server.url, api_key=KEY)
            self.tools = {"find": self.look}

        def look(self, order: int) -> str:
            return f"order {order} is in Oslo"

        def run(self, query: str) -> str | None:
            said: list[Any] = [{"role": "user", "content": query}]
            first = self.client.chat.completions.create(model="m", messages=said).choices[0].message
            call = (first.tool_calls or [])[0]
            found = self.tools[call.function.name](**json.loads(call.function.arguments))  # type: ignore[union-attr]
            said += [first.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": found}]
            return self.client.chat.completions.create(model="m", messages=said).choices[0].message.content

    server.replies.extend([_chat(None, tool_calls=[_tool("find", order=7)]), _chat("In Oslo.")])
    agent = Agent()
    unhook = hook_into_agent(agent, collector)
    agent.run("Where is order 7?")
    trace = only(collector)
    assert drawn(trace) == ["gpt-5-mini", "  find", "gpt-5-mini"]
    (call,) = trace.tool_calls
    assert (call.arguments, call.result, call.ok) == ('{"order": 7}', "order 7 is in Oslo", True)
    assert call.seconds is not None
    assert call.seconds < 1
    assert trace.conversation(trace.calls[1])[0].text == "Where is order 7?"
    unhook()
    agent.client.close()
    assert agent.tools["find"] == agent.look
    assert not hasattr(agent.tools["find"], "__wrapped__")


def test_tools_are_named_where_their_names_do_not_tell(collector: Collector) -> None:
    class Agent:
        def find(self, order: int) -> str:
            return f"found {order}"

        def run(self, query: str) -> str:
            return self.find(7)

    agent = Agent()
    with pytest.raises(InputError, match="Agent has no method 'search' that could be a tool"):
        hook_into_agent(agent, collector, tools=["search"])
    hook_into_agent(agent, collector, tools=["find"])
    assert agent.run("?") == "found 7"
    assert [(call.tool, call.arguments, call.result) for call in only(collector).tool_calls] == [
        ("find", '{"order": 7}', "found 7")
    ]


def _chunk(**delta: Any) -> str:
    return json.dumps({"id": "c-2", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


_LAST = json.dumps({"id": "c-2", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
_COUNTED = json.dumps({"id": "c-2", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}})
STREAM = (_chunk(role="assistant", content="In "), _chunk(content="Oslo."), _LAST, _COUNTED, "[DONE]")


def _zipped() -> Reply:
    raw = gzip.compress("".join(f"data: {each}\n\n" for each in STREAM).encode())
    return Reply(headers=(EVENTS, (b"content-encoding", b"gzip")), pieces=(raw[:20], raw[20:]))


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("runs", ["sync", "async"])
async def test_a_stream_is_passed_on_and_recorded(collector: Collector, server: Upstream, runs: str, zipped: bool) -> None:
    class Agent:
        def run(self, query: str) -> str:
            with openai.OpenAI(base_url=server.url, api_key=KEY) as client:
                said: Any = [{"role": "user", "content": query}]
                pieces = client.chat.completions.create(model="m", messages=said, stream=True)
                return "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)

        async def arun(self, query: str) -> str:
            async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY) as client:
                said: Any = [{"role": "user", "content": query}]
                pieces = await client.chat.completions.create(model="m", messages=said, stream=True)
                return "".join([piece.choices[0].delta.content or "" async for piece in pieces if piece.choices])

    server.replies.append(_zipped() if zipped else events(*STREAM))
    agent = Agent()
    hook_into_agent(agent, collector)
    assert (agent.run("Where?") if runs == "sync" else await agent.arun("Where?")) == "In Oslo."
    (call,) = only(collector).calls
    assert (call.reply, call.input_tokens, call.output_tokens, call.error) == ("In Oslo.", 9, 2, None)
    assert call.first_token_seconds is not None


async def test_a_stream_that_nobody_reads_to_the_end_is_recorded_as_far_as_it_was_read(
    collector: Collector, server: Upstream
) -> None:
    class Agent:
        async def arun(self, query: str) -> str:
            async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY) as client:
                said: Any = [{"role": "user", "content": query}]
                async with await client.chat.completions.create(model="m", messages=said, stream=True) as pieces:
                    async for piece in pieces:
                        return piece.choices[0].delta.content or ""
            return ""

    server.replies.append(events(*STREAM, pause=0.05))
    agent = Agent()
    hook_into_agent(agent, collector)
    assert await agent.arun("Where?") == "In "
    (call,) = only(collector).calls
    assert call.reply == "In "
    assert call.error is not None
    assert call.input_tokens is None


def test_anthropics_sdk_and_the_responses_are_seen_too(collector: Collector, server: Upstream) -> None:
    class Agent:
        def run(self, query: str) -> str:
            with anthropic.Anthropic(base_url=server.url.removesuffix("/v1"), api_key=KEY) as client:
                answer = client.messages.create(model="claude", max_tokens=9, messages=[{"role": "user", "content": query}])
            with openai.OpenAI(base_url=server.url, api_key=KEY) as other:
                again = other.responses.create(model="gpt", input=query)
            return f"{answer.content[0].text} {again.output_text}"  # type: ignore[union-attr]

    said = {"id": "m1", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "end_turn"}
    told = {"type": "message", "id": "i", "status": "completed", "role": "assistant"}
    server.replies.extend(
        [
            ok({**said, "content": [{"type": "text", "text": "Oslo."}], "usage": {"input_tokens": 4, "output_tokens": 2}}),
            ok(
                {
                    "id": "r1", "object": "response", "created_at": 1, "model": "gpt", "status": "completed",
                    "output": [{**told, "content": [{"type": "output_text", "text": "Oslo!", "annotations": []}]}],
                    "usage": {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4},
                }
            ),
        ]
    )  # fmt: skip
    agent = Agent()
    hook_into_agent(agent, collector)
    assert agent.run("Where?") == "Oslo. Oslo!"
    assert [(call.model, call.reply, call.input_tokens) for call in only(collector).calls] == [
        ("claude", "Oslo.", 4),
        ("gpt", "Oslo!", 3),
    ]


def test_an_error_of_the_provider_reaches_the_agent_unchanged(collector: Collector, server: Upstream) -> None:
    class Agent:
        def run(self, query: str) -> str:
            with openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
                client.chat.completions.create(model="m", messages=[{"role": "user", "content": query}])
            return ""

    agent = Agent()
    hook_into_agent(agent, collector)
    server.replies.append(failed(400))
    with pytest.raises(openai.BadRequestError):
        agent.run("Where?")
    server.replies.append(Reply(silent=True))
    with pytest.raises(openai.APIConnectionError):
        agent.run("Where?")
    refused, broken = (trace.calls[0] for trace in collector.traces)
    assert refused.error == "its_type: as the upstream says (HTTP 400)"
    assert (refused.raw["status"], broken.raw["status"]) == (400, None)
    assert broken.error is not None
    assert (broken.input_tokens, collector.traces[1].cost) == (None, None)


def test_calls_outside_of_what_is_recorded_are_none_of_its_business(collector: Collector, server: Upstream) -> None:
    class Agent:
        def run(self, query: str) -> str:
            return query

    agent = Agent()
    hook_into_agent(agent, collector)
    with openai.OpenAI(base_url=server.url, api_key=KEY) as client:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "1 2"}])
    agent.run("Where?")
    assert only(collector).calls == ()


def _by_gateway(asked: Asked) -> Reply:
    answer = _sum(asked)
    return Reply(headers=(*answer.headers, (b"x-journeyman-request-id", b"1")), pieces=answer.pieces)


def test_what_a_gateway_records_is_not_recorded_twice(collector: Collector, server: Upstream) -> None:
    server.answer = _by_gateway
    agent = Adder(server)
    hook_into_agent(agent, collector)
    asyncio.run(agent.a_run("1 2"))
    assert drawn(only(collector)) == ["tool_check"]


def test_a_call_that_the_agent_tells_of_itself_counts_once(collector: Collector, server: Upstream) -> None:
    class Agent:
        @traced_by(kind="agent")
        def ask(self, query: str) -> str:
            with openai.OpenAI(base_url=server.url, api_key=KEY) as client:
                said: Any = [{"role": "user", "content": query}]
                return client.chat.completions.create(model="gpt-5-mini", messages=said).choices[0].message.content or ""

        def run(self, query: str) -> str:
            with collector.trace(query) as trace:
                reply = self.ask(query)
                trace.model_call(model="gpt-5-mini", prompt=query, reply=reply)
                return reply

    agent = Agent()
    hook_into_agent(agent, collector)
    assert agent.run("1 2") == "3"
    trace = only(collector)
    assert [(call.reply, call.input_tokens, call.output_tokens) for call in trace.calls] == [("3", 20, 5)]


def test_a_trace_without_a_call_of_a_model_is_one_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    class Agent:
        def run(self, query: str) -> str:
            return f"{query.removesuffix('?')}: in Oslo."

    with TraceCollector() as collector:
        agent = Agent()
        hook_into_agent(agent, collector)
        for number in range(4):
            agent.run(f"Where is order {number}?")
        for number, trace in enumerate(collector.get_unlabeled_traces()):
            assert (trace.input_tokens, trace.output_tokens, trace.cost) == (None, None, None)
            collector.label_trace(trace.id, number > 0)
    assert main(["dataset", "build", "--method", "kto", "--out", "rows.jsonl"]) == 0
    rows = _rows(tmp_path / "rows.jsonl")
    assert sorted(row["label"] for row in rows) == [False, True, True, True]
    assert {_words(row["prompt"]): _words(row["completion"]) for row in rows} == {
        f"Where is order {number}?": f"Where is order {number}: in Oslo." for number in range(4)
    }
    assert main(["traces", "list"]) == 0
    assert "$0.00" not in capsys.readouterr().out


def _words(said: Any) -> str:
    return said if isinstance(said, str) else " ".join(message["content"] for message in said)


def test_litellm_is_seen(collector: Collector, server: Upstream) -> None:
    litellm = pytest.importorskip("litellm", reason="litellm is not installed")

    class Agent:
        def run(self, query: str) -> str:
            said = [{"role": "user", "content": query}]
            answer = litellm.completion("openai/gpt-5-mini", said, api_base=server.url, api_key=KEY)
            return str(answer.choices[0].message.content)

    agent = Agent()
    hook_into_agent(agent, collector)
    assert agent.run("1 2") == "3"
    trace: Trace = only(collector)
    assert [(call.model, call.input_tokens) for call in trace.calls] == [("gpt-5-mini", 20)]
