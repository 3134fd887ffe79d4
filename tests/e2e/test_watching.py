"""What a user does on the first day: point an agent here, look, label, export. All of it with real processes."""

import json
import os
import subprocess
import sys
import time
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.gateway.test_process import served, stopped
from tests.support.upstream import Asked, Reply, Upstream, events, upstream

pytestmark = pytest.mark.service
KEY = "sk-proj-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGH"
ASKED = [f"Where is order {number}?" for number in range(5)]
AGENT = """
import json, os, sys
from openai import OpenAI
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

client = OpenAI()
tools = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
provider = TracerProvider()
if "OTEL_EXPORTER_OTLP_ENDPOINT" in os.environ:
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
tracer = provider.get_tracer("its-own")


def told(role, *parts):
    return json.dumps([{"role": role, "parts": list(parts)}])


def answered(messages, heard):
    text, calls = "", []
    with tracer.start_as_current_span("chat small") as span:
        for chunk in client.chat.completions.create(model="small", messages=messages, tools=tools, stream=True):
            said = chunk.choices[0].delta
            text += said.content or ""
            calls += [call.model_dump(exclude={"index"}) for call in said.tool_calls or []]
        parts = [{"type": "tool_call", "id": call["id"], "name": "find", "arguments": {}} for call in calls]
        span.set_attributes({
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "small",
            "gen_ai.response.id": chunk.id, "gen_ai.input.messages": told(messages[-1]["role"], heard),
            "gen_ai.output.messages": told("assistant", *parts, *([{"type": "text", "content": text}] if text else [])),
        })
    return text, calls


for question in sys.argv[1:]:
    about = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "desk"}
    with tracer.start_as_current_span("invoke_agent desk", attributes=about):
        messages = [{"role": "user", "content": question}]
        text, (call,) = answered(messages, {"type": "text", "content": question})
        found = '{"city": "Oslo"}'
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": found},
        ]
        text, _ = answered(messages, {"type": "tool_call_response", "id": call["id"], "response": found})
    print(text)
provider.shutdown()
"""
"""Asks with OpenAI's SDK, in streams and with a tool; says so to OpenTelemetry where an address for it is given."""


def answer(asked: Asked) -> Reply:
    """As a model that looks an order up, and then says where it is; in pieces."""
    if asked.header("authorization") != f"Bearer {KEY}":
        return Reply(status=401)
    messages = json.loads(asked.body)["messages"]
    base = {"id": f"c{zlib.crc32(asked.body)}", "object": "chat.completion.chunk", "created": 1, "model": "small"}
    call = {"index": 0, "id": "call1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    last = messages[-1]["role"] == "tool"
    deltas = [{"content": "In "}, {"content": "Oslo."}] if last else [{"role": "assistant", "tool_calls": [call]}]
    chunks = [{**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop" if last else "tool_calls"}]})
    return events(*map(json.dumps, chunks), "[DONE]")


@pytest.fixture
def model() -> Iterator[Upstream]:
    with upstream() as server:
        server.answer = answer
        yield server


def ran(questions: list[str], base_url: str, **env: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", AGENT, *questions],
        env={**os.environ, "OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": KEY, **env},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def journeyman(folder: Path, *arguments: str, typed: str = "") -> Any:
    command = [sys.executable, "-m", "journeyman", *arguments, "--json"]
    done = subprocess.run(command, cwd=folder, input=typed, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def page(url: str, wanted: str) -> str:
    """The list, as soon as something stands in it."""
    deadline = time.monotonic() + 20
    while True:
        with urllib.request.urlopen(f"{url}/traces", timeout=10) as answer:
            text: str = answer.read().decode()
        if wanted in text:
            return text
        assert time.monotonic() < deadline, text
        time.sleep(0.05)


def test_an_agent_is_watched_labelled_exported_and_comes_in_again(tmp_path: Path, model: Upstream) -> None:
    with served(tmp_path, "--upstream", model.url) as (url, process):
        assert ran(ASKED, f"{url}/v1") == ["In Oslo."] * 5, "it gets what the model server said"
        assert all(asked in page(url, ASKED[-1]) for asked in ASKED)
        listed = journeyman(tmp_path, "traces", "list")["traces"]
        assert [(each["title"], each["model_calls"], each["tool_calls"]) for each in listed] == [
            (asked, 2, 1) for asked in reversed(ASKED)
        ]
        said = journeyman(tmp_path, "traces", "label", "--who", "ada", typed="y\nn\nn\nn\nn\n")
        assert (said["good"], said["bad"], said["left"]) == (1, 4, 0)
        assert stopped(process) == 0

    assert journeyman(tmp_path, "traces", "export", "--label", "bad", "--format", "chat", "--out", "train.jsonl")["lines"] == 4
    conversation = json.loads((tmp_path / "train.jsonl").read_text().splitlines()[0])["messages"]
    assert [message["role"] for message in conversation] == ["user", "assistant", "tool", "assistant"]

    journeyman(tmp_path, "traces", "export", "--out", "all.jsonl")
    assert journeyman(tmp_path, "collect", "all.jsonl", "--store", "other.db")["traces"] == 5
    journeyman(tmp_path, "traces", "export", "--store", "other.db", "--out", "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "all.jsonl").read_bytes()
    assert KEY not in (tmp_path / "all.jsonl").read_text()
    assert journeyman(tmp_path, "score", "--store", "--rewards", "tool_success")["traces"] == 5


@pytest.mark.parametrize("through_the_gateway", [False, True])
def test_an_agent_with_opentelemetry_counts_once_also_through_the_gateway(
    tmp_path: Path, model: Upstream, through_the_gateway: bool
) -> None:
    with served(tmp_path, "--upstream", model.url) as (url, process):
        base = f"{url}/v1" if through_the_gateway else model.url
        assert ran(ASKED[:1], base, OTEL_EXPORTER_OTLP_ENDPOINT=url) == ["In Oslo."]
        page(url, ASKED[0])
        assert stopped(process) == 0
    (one,) = journeyman(tmp_path, "traces", "list")["traces"]
    assert (one["title"], one["model_calls"], one["tool_calls"]) == (ASKED[0], 2, 1)
    trace = journeyman(tmp_path, "traces", "show", one["id"])["trace"]
    (call,) = [step for step in trace["steps"] if step["kind"] == "tool"]
    assert (call["tool"], json.loads(call["result"])) == ("find", {"city": "Oslo"})
