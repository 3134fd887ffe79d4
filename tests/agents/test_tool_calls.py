"""Tools that a model calls, in OpenAI's shape over HTTP, and tools of MCP servers: what goes over the wire and comes of it."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from journeyman.agents.attempt import attempt
from journeyman.agents.mcp import McpServer, McpServerError, McpSession
from journeyman.agents.repository import OFFERS, TOOLS, RepositoryAgent
from journeyman.agents.workshop import SUBMIT, RepositoryWorkshop, WorkLimits
from journeyman.core.errors import InputError
from journeyman.core.messages import ToolUse
from journeyman.core.playbook import Bullet
from journeyman.core.trace import Trace
from journeyman.models.base import Reply
from journeyman.models.openai import OpenAI
from journeyman.models.scripted import Scripted
from journeyman.tasks.repository import RepositoryTask
from tests.support import mcp_server, repository_tasks
from tests.support.llm_server import Answer, LLMServer, completion, error, serving

pytestmark = pytest.mark.service

Bench = tuple[RepositoryWorkshop, tuple[RepositoryTask, ...]]
OLD, NEW = "    return ZONES.get(country, 4)\n", "    return ZONES.get(country.upper(), 4)\n"
EDIT = {"path": "parcels/rates.py", "old": OLD, "new": NEW}


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("environments")
    return folder, repository_tasks.environment(folder)


@pytest.fixture
async def bench(environments: tuple[Path, str], tmp_path: Path) -> AsyncIterator[Bench]:
    folder, digest = environments
    tasks = repository_tasks.tasks_of(repository_tasks.kept_package(tmp_path, folder), digest)
    made = repository_tasks.workshop(tasks, folder)
    yield made, tasks
    await made.close()


@pytest.fixture
def server() -> Iterator[LLMServer]:
    with serving() as made:
        yield made


def calls(*asked: tuple[str, Any], text: str | None = None) -> Answer:
    """A completion that asks for tools. Arguments that are text are sent as they are."""
    told = [
        {"id": f"c-{at}-{name}", "type": "function", "function": {
            "name": name, "arguments": given if isinstance(given, str) else json.dumps(given)}}
        for at, (name, given) in enumerate(asked)
    ]  # fmt: skip
    message = {"role": "assistant", "content": text, "tool_calls": told}
    return completion(None, choices=[{"index": 0, "message": message, "finish_reason": "tool_calls"}])


async def tried(bench: Bench, server: LLMServer, *answers: Answer, **more: Any) -> tuple[Trace, list[dict[str, Any]]]:
    """The attempt, and what the server was asked."""
    server.answers.extend(answers)
    model = OpenAI("m", base_url=server.url, api_key="", max_retries=0)
    agent = RepositoryAgent(model=model, workshop=bench[0], **more)
    trace = await attempt(agent, bench[1][0].task(), id="t", clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    await model.close()
    return trace, server.bodies


def told(body: dict[str, Any]) -> list[str]:
    """What the tools said, in the last request."""
    return [message["content"] for message in body["messages"] if message["role"] == "tool"]


async def test_a_task_is_solved_by_calls_and_each_is_answered_by_its_id(bench: Bench, server: LLMServer) -> None:
    look = calls(("search", {"text": "def zone"}), ("read", {"path": "./parcels/rates.py", "lines": "1-20"}))
    mend = calls(("edit", EDIT), ("run", {"text": "python -m pytest -q 2>&1 | tail -1"}), text="I mend it.")
    trace, asked = await tried(bench, server, look, mend, calls(("done", {"text": "mended"})))
    assert trace.error is None
    assert [(step.tool, step.ok) for step in trace.tool_calls] == [
        *(("search", True), ("read", True), ("edit", True), ("run", True), ("done", True), (SUBMIT, True))
    ]
    assert (await bench[0].verify(bench[1][0].task(), trace)).value == 1.0
    assert [tool["function"]["name"] for tool in asked[0]["tools"]] == list(TOOLS)
    assert "```" not in asked[0]["messages"][0]["content"]
    roles = [message["role"] for message in asked[2]["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "assistant", "tool", "tool"]
    said, *results = asked[1]["messages"][2:]
    assert said["content"] is None
    assert [call["id"] for call in said["tool_calls"]] == [each["tool_call_id"] for each in results]
    assert "passed" in told(asked[2])[-1]
    # What a call was and what came of it stand in the trace, each under the reply that asked for it.
    assert [step.parent for step in trace.tool_calls[:-1]] == ["call 1", "call 1", "call 2", "call 2", "call 3"]


async def test_a_call_that_cannot_be_carried_out_is_answered_and_changes_nothing(bench: Bench, server: LLMServer) -> None:
    wrong = calls(
        ("edit", {"path": "parcels/rates.py", "old": "nowhere", "new": "x"}),
        ("create", {"path": "../out.py", "text": "x"}),
        ("create", {"path": "tests/test_rates.py", "text": "def test_x(): pass"}),
        ("read", '{"path": "parcels/ra'),
        ("read", {"file": "parcels/rates.py"}),
        ("launch", {"to": "moon"}),
        ("edit", {"path": "parcels/rates.py", "old": "", "new": "x"}),
    )
    trace, asked = await tried(bench, server, wrong, calls(("done", {"text": ""})))
    assert not any(step.ok for step in trace.tool_calls[:7])
    parts = ["occur 0 times", "no path that can be used", "may not be changed", "no JSON object", "needs path"]
    for part, text in zip([*parts, "no tool launch", "0 times"], told(asked[1]), strict=True):
        assert part in text
    assert trace.tool_calls[-1].result.endswith("0 files changed")


async def test_rounds_and_tokens_end_it_as_with_blocks(bench: Bench, server: LLMServer) -> None:
    server.default = lambda _: calls(("read", {"path": "."}))
    trace, asked = await tried(bench, server, limits=WorkLimits(rounds=3))
    assert len(trace.calls) == len(asked) == 3
    assert "(1 replies are left)" in told(asked[2])[-1]
    server.bodies.clear()
    trace, asked = await tried(bench, server, limits=WorkLimits(tokens=15))
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "registry.ollama.ai/library/gemma:2b does not support tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (404, "No endpoints found that support tool use."),
        (500, "tools param requires --jinja flag"),
    ],
)
async def test_a_server_without_tools_is_asked_for_blocks_and_not_again_for_tools(
    bench: Bench, server: LLMServer, status: int, said: str
) -> None:
    blocks = completion(f"```edit path=parcels/rates.py\n<<<<<<< SEARCH\n{OLD}=======\n{NEW}>>>>>>> REPLACE\n```\n```done\n```")
    trace, asked = await tried(bench, server, error(status, said), blocks)
    assert trace.error is None
    assert (await bench[0].verify(bench[1][0].task(), trace)).value == 1.0
    assert ["tools" in body for body in asked] == [True, False]
    assert "```read path=" in asked[1]["messages"][0]["content"]


async def test_a_server_that_passes_no_tools_on_is_told_how_to_write_them(bench: Bench, server: LLMServer) -> None:
    silent = completion("I would look at the file.")
    trace, asked = await tried(bench, server, silent, silent, completion("```read path=.\n```"), completion("```done\n```"))
    assert ["tools" in body for body in asked] == [True, True, False, False]
    assert "```read path=" in asked[2]["messages"][0]["content"]
    assert [step.tool for step in trace.tool_calls] == ["read", "done", SUBMIT]


async def test_once_tools_were_called_text_is_an_answer_and_no_block(bench: Bench, server: LLMServer) -> None:
    look, talk = calls(("read", {"path": "."})), completion("For example:\n```run\nrm -r .\n```")
    trace, asked = await tried(bench, server, look, talk, calls(("done", {"text": ""})))
    assert [step.tool for step in trace.tool_calls] == ["read", "done", SUBMIT]
    assert asked[2]["messages"][-1]["content"].startswith("You called no tool.")
    assert all("tools" in body for body in asked)


async def test_bullets_that_are_named_in_the_last_call_are_cited(bench: Bench, server: LLMServer) -> None:
    rule = Bullet(id="b-1", content="Look at the zones first.", domain="bug_fix")
    last = calls(("done", {"text": "mended\nUsed: b-1"}))
    trace, asked = await tried(bench, server, calls(("read", {"path": "."})), last, choose=lambda _: (rule,))
    assert rule.content in asked[0]["messages"][0]["content"]
    assert trace.shown == trace.cited == {"b-1"}


async def test_whoever_wants_blocks_gets_blocks(bench: Bench, server: LLMServer) -> None:
    _, asked = await tried(bench, server, completion("```done\n```"), calls=False)
    assert "tools" not in asked[0]


# Tools of MCP servers.


def served(way: str = "", **more: Any) -> McpServer:
    return McpServer(command=f"{sys.executable} {mcp_server.__file__} {way}", **more)


async def test_tools_of_a_server_stand_beside_its_own_and_hide_none(bench: Bench, server: LLMServer) -> None:
    first = calls(("zones_of", {"country": "de"}), ("read_2", {}), ("read", {"path": "parcels/rates.py"}), ("zones_of", {}))
    trace, asked = await tried(bench, server, first, calls(("done", {"text": ""})), mcp=(served("noisy"),))
    assert [tool["function"]["name"] for tool in asked[0]["tools"]] == [*TOOLS, "zones_of", "read_2", "secrets"]
    assert asked[0]["tools"][len(TOOLS)]["function"]["parameters"]["required"] == ["country"]
    zone, page, lines, without = told(asked[1])
    assert zone == "DE is in zone 2"
    assert "capital letters" in page
    assert "def zone" in lines
    assert without == "which country?"
    assert [step.ok for step in trace.tool_calls] == [True, True, True, False, True, True]


async def test_a_model_without_tools_writes_those_of_a_server_as_blocks(bench: Bench) -> None:
    model = Scripted('```zones_of\n{"country": "fr"}\n```\n```zones_of\nfr\n```', "```done\n```")
    agent = RepositoryAgent(model=model, workshop=bench[0], mcp=(served(),))
    trace = await attempt(agent, bench[1][0].task(), id="t", clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    assert '"required": ["country"]' in model.requests[0].text
    assert next((step.result, step.ok) for step in trace.tool_calls) == ("FR is in zone 2", True)
    assert "no JSON" in trace.tool_calls[1].result


async def test_a_server_sees_of_the_environment_what_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-model")
    monkeypatch.setenv("ZONES_TOKEN", "for it")
    async with McpSession(served(variables=("ZONES_TOKEN",))) as session:
        text, ok = await session.call("secrets", {})
    assert ok
    assert "ZONES_TOKEN" in text
    assert "OPENAI_API_KEY" not in text
    assert text.endswith("[image image/png]")


@pytest.mark.parametrize(
    ("way", "said"), [("dies", "no licence for zones found"), ("silent", "no answer to its beginning within 1 s")]
)
async def test_a_server_that_does_not_answer_is_named_with_its_last_word(way: str, said: str) -> None:
    with pytest.raises(McpServerError, match=said):
        async with McpSession(served(way, seconds=1.0)):
            pass


async def test_what_a_server_refuses_is_told_to_the_model() -> None:
    async with McpSession(served("refuses")) as session:
        assert await session.call("secrets", {}) == ("unknown tool", False)


async def test_a_server_by_the_protocols_own_library_is_understood(tmp_path: Path) -> None:
    program = tmp_path / "zones.py"
    program.write_text(
        "from mcp.server.mcpserver import MCPServer\n\nserver = MCPServer('zones')\n\n\n@server.tool()\n"
        "def zone(country: str) -> str:\n    'The zone of a country.'\n"
        "    if country == 'xx':\n        raise ValueError('no such country')\n    return f'{country} is in zone 2'\n\n\n"
        "server.run()\n"
    )
    async with McpSession(McpServer(command=f"{sys.executable} {program}")) as session:
        (offer,) = session.offers
        assert (offer.name, offer.description) == ("zone", "The zone of a country.")
        assert offer.parameters["required"] == ["country"]
        assert await session.call("zone", {"country": "DE"}) == ("DE is in zone 2", True)
        said, ok = await session.call("zone", {"country": "xx"})
    assert not ok
    assert "zone" in said


async def test_no_server_is_left_behind(tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    child.write_text(
        f"import subprocess, sys, runpy\nsub = subprocess.Popen(['sleep', '600'])\nopen({str(tmp_path / 'pid')!r}, 'w')"
        f".write(str(sub.pid))\nsys.argv = ['x']\nrunpy.run_path({mcp_server.__file__!r}, run_name='__main__')\nsub.wait()\n"
    )
    async with McpSession(McpServer(command=f"{sys.executable} {child}")) as session:
        assert len(session.offers) == 3
    state = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    # Killed is killed, though whoever adopts the orphan may take a moment to bury it.
    until = time.monotonic() + 10
    while state.exists() and state.read_text().split()[2] != "Z" and time.monotonic() < until:
        await asyncio.sleep(0.02)
    assert not state.exists() or state.read_text().split()[2] == "Z"


async def test_a_command_that_is_none_is_named() -> None:
    for command, said in (("", "needs the command"), ("'a", "no command"), ("no-such-program-here x", "cannot be started")):
        with pytest.raises(InputError, match=said):
            async with McpSession(McpServer(command=command)):
                pass


async def test_a_scripted_model_that_takes_tools_calls_them(bench: Bench) -> None:
    done = Reply(text="", model="s", calls=(ToolUse("done", '{"text": "nothing to do"}', "1"),))
    model = Scripted(done, tools=True)
    agent = RepositoryAgent(model=model, workshop=bench[0])
    trace = await attempt(agent, bench[1][0].task(), id="t", clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    assert model.requests[0].tools == OFFERS
    assert trace.tool_calls[-1].result == "nothing to do\n0 files changed"
