"""From live traces to a candidate and on to live traffic: `serve`, stock clients whose tool refuses, two commands."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from journeyman.core.task import Task
from journeyman.experiments.playbook.from_traces import gather
from journeyman.optimizers.playbook.evidence import EvidenceGroup, evidence_groups
from journeyman.optimizers.playbook.safeguards import cut_echoes
from journeyman.stores.traces import open_traces
from tests.serving.gateway.test_process import served, stopped, until
from tests.support.clerk import clerk
from tests.support.desk_customers import NAMES, SCHEMA, SYSTEM, answer_of, orders, visits

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def up() -> Iterator[str]:
    """A clerk that knows what each customer wants, and no house's ways."""
    with clerk() as url:
        yield url


def run(folder: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    command = [sys.executable, "-m", "journeyman", *arguments, "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, env=os.environ)
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.training
def test_what_an_api_refused_becomes_rules_that_are_checked_and_served(tmp_path: Path, up: str) -> None:
    tasks = orders("oslo", 130)
    with served(tmp_path, "--upstream", f"{up}/v1", "--no-pages") as (url, process):
        taken = visits(url, "oslo", tasks[:110], customers=110)
        assert sum(taken) < 0.2 * len(taken)
        assert until(lambda: sum(len(trace.calls) == 2 for trace in gathered(tmp_path)) == 110)

        planned = run(tmp_path, "train", "playbook", "--from", "traces", "--reflector-model", "embedded", "--dry-run")
        (slot,) = planned["slots"]
        assert (slot["agent"], slot["domain"], slot["traces"]) == ("desk", "oslo", 110)
        assert slot["examined"]["attempts"] >= 30

        learned = run(tmp_path, "train", "playbook", "--from", "traces", "--reflector-model", "embedded", "--no-leave-one-out")
        (slot,) = learned["slots"]
        assert slot["verdict"] == "checked", slot["reason"]
        assert slot["examination"]["candidate"] >= 0.95
        assert slot["calls"] <= sum(planned["slots"][0]["calls"].values())
        rows = json.loads((tmp_path / slot["playbook_path"]).read_text())["bullets"]
        assert {row["content"] for row in rows} == {
            "dates: day first, with dots", "prices: in cents", "address: call the field place", "cities: capital letters",
            "rush: high or low",
        }  # fmt: skip
        known = {trace.id for trace in gathered(tmp_path)}
        for row in rows:
            told = row["provenance"]
            assert told["origin"] == "environment"
            assert told["principals"] >= 3
            assert len(told["traces"]) >= 3
            assert set(told["traces"]) <= known

        # Nothing is new: nobody is asked again.
        (again,) = run(tmp_path, "train", "playbook", "--from", "traces", "--reflector-model", "embedded")["slots"]
        assert (again["calls"], again["candidate"], again["verdict"]) == (0, slot["candidate"], "checked")

        # What is checked may be shown to a share of new sessions; here to all of them.
        about = ("--agent", "desk", "--domain", "oslo", "--share", "1")
        run(tmp_path, "releases", "start", slot["candidate"], *about, "--reason", "the API's refusals taught it")
        assert until(lambda: sum(visits(url, "oslo", tasks[110:114], customers=4, first=1000)) == 4)
        assert sum(visits(url, "oslo", tasks[114:], customers=16, first=2000)) >= 15
        assert stopped(process) == 0


def gathered(folder: Path) -> list[Any]:
    with open_traces(str(folder / ".journeyman/journeyman.db"), make=False) as store:
        return list(store.traces())


# The same from every wire.


def groups_of(folder: Path) -> list[EvidenceGroup]:
    with open_traces(str(folder / ".journeyman/journeyman.db"), make=False) as store:
        (found,) = gather(store.traces())
    assert all(attempt.principal_known for attempt in found.attempts)
    return evidence_groups(found.attempts, cut=cut_echoes)


def told_by(groups: list[EvidenceGroup]) -> list[tuple[str, str, str, int, int]]:
    return sorted((g.tool, g.argument, g.template, len(g.principals), len(g.members)) for g in groups)


def reported(url: str, up: str, tasks: list[Task]) -> None:
    """An instrumented agent, which does not go through the gateway."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{url}/v1/traces")))
    tracer = provider.get_tracer("its-own")
    tools: Any = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in NAMES]
    for number, task in enumerate(tasks):
        shared = {
            "gen_ai.operation.name": "chat", "gen_ai.request.model": "clerk", "gen_ai.tool.definitions": json.dumps(tools),
            "user.id": f"customer-{number % 5}", "gen_ai.conversation.id": f"conversation-{number}",
        }  # fmt: skip
        heard = [{"role": "user", "parts": [{"type": "text", "content": task.question}]}]
        with openai.OpenAI(base_url=f"{up}/v1", api_key="key", max_retries=0) as client:
            about = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "desk", "journeyman.domain": "oslo"}
            with tracer.start_as_current_span("invoke_agent desk", attributes=about):
                with tracer.start_as_current_span("chat clerk", attributes=shared) as span:
                    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task.question}]
                    completion = client.chat.completions.create(model="clerk", messages=messages, tools=tools)
                    use: Any = next(iter(completion.choices[0].message.tool_calls or ()))
                    arguments = json.loads(use.function.arguments)
                    part = {"type": "tool_call", "id": use.id, "name": use.function.name, "arguments": arguments}
                    asked = [{"role": "assistant", "parts": [part]}]
                    span.set_attribute("gen_ai.input.messages", json.dumps(heard))
                    span.set_attribute("gen_ai.output.messages", json.dumps(asked))
                result = answer_of(task, use.function.name, arguments)
                with tracer.start_as_current_span("chat clerk", attributes=shared) as span:
                    part = {"type": "tool_call_response", "id": use.id, "response": result}
                    more = [*heard, *asked, {"role": "tool", "parts": [part]}]
                    said = [{"role": "assistant", "parts": [{"type": "text", "content": "Done."}]}]
                    span.set_attribute("gen_ai.input.messages", json.dumps(more))
                    span.set_attribute("gen_ai.output.messages", json.dumps(said))
    provider.shutdown()


@pytest.mark.parametrize("wire", ["stream", "messages", "responses", "otlp"])
def test_every_wire_gives_the_same_evidence(tmp_path: Path, up: str, wire: str) -> None:
    tasks = list(orders("oslo", 30))
    found = {}
    for each in ("chat", wire):
        folder = tmp_path / each
        folder.mkdir()
        with served(folder, "--upstream", up if each == "messages" else f"{up}/v1", "--no-pages") as (url, process):
            if each == "otlp":
                reported(url, up, tasks)
            else:
                visits(url, "oslo", tasks, wire=each, customers=5)
            assert stopped(process) == 0
        found[each] = told_by(groups_of(folder))
    assert found["chat"]
    assert found[wire] == found["chat"]
