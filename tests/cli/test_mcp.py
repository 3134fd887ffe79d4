"""`journeyman mcp`: a real process, spoken to by the protocol's own client."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.trace import Message, ModelCall, Trace
from journeyman.io.processes import start_time
from journeyman.optimizers.playbook import files
from journeyman.stores.traces import open_traces
from tests.support.secrets import planted

pytest.importorskip("mcp")
pytestmark = pytest.mark.service

SECRET_TEXT, SECRET = planted()["openai project"]
LOOKS = {
    "search_traces", "show_trace", "trace_statistics", "list_playbooks", "show_playbook", "show_candidate", "list_runs",
    "show_run", "evaluation_status",
}  # fmt: skip
WRITES = {"give_feedback", "start_evaluation", "stop_evaluation"}


def trace(id: str, said: str, reply: str) -> Trace:
    call = ModelCall(model="m", prompt=f"user: {said}", messages=(Message(role="user", text=said),), reply=reply)
    return Trace(id=id, task_id="t", candidate_id="base", started_at=datetime.now(UTC), steps=(call,), agent="desk")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "journeyman.toml").write_text("")
    with open_traces(tmp_path / ".journeyman" / "journeyman.db") as store:
        store.add([trace("aa11", "A table in Oslo?", "At six."), trace("bb22", f"My key: {SECRET_TEXT}", f"I saw {SECRET}.")])
    files.save(Playbook(bullets=(Bullet(id="b-1", content="Say the city."),)), tmp_path / "playbooks" / "desk.json")
    rows = [{"question": f"What is {n} and {n}?", "answer": str(2 * n)} for n in range(60)]
    (tmp_path / "sums.json").write_text(json.dumps(rows))
    return tmp_path


class Told:
    """Calls tools, and reads what they say."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def __call__(self, name: str, **arguments: Any) -> str:
        answer = await self.client.call_tool(name, arguments)
        assert not answer.is_error, answer.content
        return str(answer.content[0].text)

    async def json(self, name: str, **arguments: Any) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(await self(name, **arguments))
        return told

    async def refused(self, name: str, **arguments: Any) -> str:
        answer = await self.client.call_tool(name, arguments)
        assert answer.is_error
        (part,) = answer.content
        return str(part.text)

    async def ended(self, id: str) -> dict[str, Any]:
        for _ in range(300):
            if (found := await self.json("evaluation_status", id=id))["state"] != "running":
                return found
            time.sleep(0.2)
        raise AssertionError("it does not end")


@asynccontextmanager
async def connected(project: Path, *options: str) -> AsyncIterator[Told]:
    from mcp import Client, StdioServerParameters, stdio_client

    words = ["-m", "journeyman", "mcp", "--project", str(project), *options]
    env = {name: value for name, value in os.environ.items() if name in ("PYTHONPATH", "PATH")}
    told = StdioServerParameters(command=sys.executable, args=words, env={**env, "JOURNEYMAN_USER": "ada"})
    async with Client(stdio_client(told), read_timeout_seconds=60) as client:
        yield Told(client)


async def test_an_agent_finds_reads_and_judges_traces_and_reads_what_was_learned(project: Path) -> None:
    async with connected(project) as told:
        tools = {tool.name: tool for tool in (await told.client.list_tools()).tools}
        assert set(tools) == LOOKS | WRITES
        limits = tools["search_traces"].input_schema["properties"]["limit"]
        assert limits == {"type": "integer", "description": "Show so many at most. [default: 20]"}
        assert tools["show_trace"].input_schema["required"] == ["trace_id"]
        assert {name for name, tool in tools.items() if not tool.annotations.read_only_hint} == WRITES

        found = await told.json("search_traces", text="table oslo", limit=5)
        assert [each["id"] for each in found["traces"]] == ["aa11"]
        shown = await told("show_trace", trace_id="aa")
        assert "A table in Oslo?" in shown
        assert "At six." in shown
        first = await told.json("search_traces", limit=1)
        rest = await told.json("search_traces", limit=1, after=first["next"])
        assert {each["id"] for each in first["traces"] + rest["traces"]} == {"aa11", "bb22"}

        await told("give_feedback", target="aa11", value=False, text="no city")
        await told("give_feedback", target="aa11", value=1, source="person", rater="ada")
        assert "rater" in await told.refused("give_feedback", target="aa11", value=1, source="person")
        judged = (await told.json("search_traces", label="good"))["traces"]
        assert [each["id"] for each in judged] == ["aa11"]

        assert (await told.json("list_playbooks"))["files"] == ["playbooks/desk.json"]
        playbook = await told.json("show_playbook", file="playbooks/desk.json")
        assert [bullet["content"] for bullet in playbook["bullets"]] == ["Say the city."]
        assert (await told.json("list_runs"))["runs"] == []
        assert (await told.json("trace_statistics", agent="desk"))["all"]["traces"] == 2


async def test_no_secret_leaves_the_server_in_an_answer_or_in_an_error(project: Path) -> None:
    async with connected(project) as told:
        for name, arguments in (("show_trace", {"trace_id": "bb22", "full": True}), ("search_traces", {"text": "key"})):
            answer = await told(name, **arguments)
            assert SECRET not in answer
            assert "redacted" in answer
        assert SECRET not in await told.refused("show_trace", trace_id=SECRET)


CASES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("show_trace", {"trace_id": "zz"}, "zz"),
    ("show_trace", {}, "Missing argument"),
    ("search_traces", {"limit": 0}, "--limit"),
    ("search_traces", {"limt": 3}, "search_traces has no limt"),
    ("show_trace", {"trace_id": "aa", "full": "yes"}, "must be true or false"),
    ("show_playbook", {"file": "nowhere.json"}, "nowhere.json"),
    ("show_playbook", {"file": "--help"}, "--help"),
    ("no_such_tool", {}, "is no tool"),
    ("evaluation_status", {"id": "../../x"}, "no evaluation"),
    ("start_evaluation", {"model": "mine:Own"}, "import code"),
    ("start_evaluation", {"dataset": "mine:rows"}, "import code"),
    ("start_evaluation", {"model": "openai:m@http://evil.example/v1"}, "a server elsewhere"),
    ("start_evaluation", {"dataset": "custom", "input": "nowhere.csv", "model": "scripted:4"}, "nowhere.csv"),
)


async def test_what_cannot_be_done_is_one_sentence_and_the_server_goes_on(project: Path) -> None:
    async with connected(project) as told:
        for name, arguments, words in CASES:
            said = await told.refused(name, **arguments)
            assert words in said, (name, arguments)
            assert "Traceback" not in said
            assert "\n" not in said
        assert (await told.json("search_traces"))["count"] == 2


async def test_a_server_that_only_reads_offers_nothing_else(project: Path) -> None:
    async with connected(project, "--read-only") as told:
        assert {tool.name for tool in (await told.client.list_tools()).tools} == LOOKS
        assert "--read-only" in await told.refused("give_feedback", target="aa11", value=True)
        assert (await told.json("search_traces"))["count"] == 2


async def test_an_evaluation_outlives_the_client_that_began_it_and_another_one_reads_its_verdict(project: Path) -> None:
    given = {"playbook": "playbooks/desk.json", "dataset": "custom", "input": "sums.json", "model": "scripted:4"}
    async with connected(project) as told:
        began = await told.json("start_evaluation", **given)
        assert began["state"] in ("running", "not passed")
    async with connected(project) as told:
        found = await told.ended(began["id"])
        assert found["state"] == "not passed", found
        assert found["result"]["tasks"] > 0
        (listed,) = (await told.json("evaluation_status"))["evaluations"]
        assert listed["id"] == began["id"]
        assert "does not run" in await told.refused("stop_evaluation", id=began["id"])


async def test_an_evaluation_that_goes_on_can_be_stopped(project: Path) -> None:
    # A server that takes a connection and never answers.
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        model = f"openai:m@http://127.0.0.1:{silent.getsockname()[1]}/v1"
        async with connected(project) as told:
            began = await told.json("start_evaluation", dataset="custom", input="sums.json", model=model)
            assert began["state"] == "running"
            stopped = await told.json("stop_evaluation", id=began["id"])
            if stopped["state"] == "running":
                stopped = await told.ended(began["id"])
            assert stopped["state"] == "stopped"
            job = json.loads((project / ".journeyman" / "mcp" / began["id"] / "job.json").read_text())
            assert start_time(job["process"]["pid"]) is None


def test_nothing_but_the_protocol_is_on_stdout_and_the_end_of_stdin_ends_it(project: Path) -> None:
    asked: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "search_traces", "arguments": {"limit": 1}}},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "list_runs", "arguments": {}}},
    ]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "journeyman", "mcp"],
        cwd=project,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        answers = []
        for message in asked:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            if "id" in message:
                answers.append(json.loads(process.stdout.readline()))
        out, err = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert [answer["id"] for answer in answers] == [1, 2, 3]
    assert all("error" not in answer for answer in answers)
    assert (process.returncode, out, err) == (0, "", "")


def test_what_clients_need_to_know_of_it_can_be_printed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = Path.cwd()
    try:
        assert main(["mcp", "--config", "--read-only", "--project", str(project)]) == 0
    finally:
        os.chdir(here)
    told = capsys.readouterr()
    entry = json.loads(told.out)["mcpServers"]["journeyman"]
    assert entry["args"][-4:] == ["mcp", "--project", str(project), "--read-only"]
    assert Path(entry["command"]).exists()
    assert "claude mcp add journeyman" in told.err
