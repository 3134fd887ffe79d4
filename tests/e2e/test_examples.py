"""The examples are watched, taught and released as their README says, with the libraries that are installed.

A server on loopback stands for the model. It says *support* until its prompt names the teams; how well it learns says nothing
of any other. Libraries that are not beside Journeyman are looked for in the environment of a Python that
JOURNEYMAN_EXAMPLES_PYTHON names.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.llm_server import KEY, Answer, LLMServer, completion, serving
from tests.support.pupil import REFLECTOR

pytestmark = pytest.mark.service

EXAMPLES = Path(__file__).parents[2] / "examples"
LIBRARIES = {
    "openai_sdk": "openai",
    "anthropic_sdk": "anthropic",
    "langgraph_graph": "langgraph",
    "openai_agents_sdk": "agents",
    "pydantic_ai_agent": "pydantic_ai",
    "dspy_program": "dspy",
    "smolagents_agent": "smolagents",
}
"""What each imports."""
RULE = "Answer with the team alone: FIN for invoices, LOG for parcels, SEC for passwords."
TEAMS = {"invoice": "FIN", "parcel": "LOG", "password": "SEC"}
ASKED = "Where is my parcel? I wrote to {} before."
"""Each asks in words of its own, so that its trace is told from the others."""


def house(body: dict[str, Any]) -> Answer:
    """A model that knows the teams where it was told them, in each of the APIs that the libraries speak."""
    text = json.dumps(body, ensure_ascii=False)
    if REFLECTOR in text:
        return completion(json.dumps({"insights": [{"verdict": "helpful", "content": RULE, "about": ""}], "shown": []}))
    turns = body["messages"] if "messages" in body else body["input"]
    last = turns if isinstance(turns, str) else json.dumps(turns[-1])
    team = next((code for word, code in TEAMS.items() if word in last), "support") if RULE in text else "support"
    usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    if "input" in body:
        part = {"type": "output_text", "text": team, "annotations": []}
        said = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        told = {"id": "r", "object": "response", "created_at": 1, "model": body["model"], "status": "completed", "tools": [],
                "output": [said], "parallel_tool_calls": False, "tool_choice": "auto", "usage": usage | details}  # fmt: skip
        return Answer(body=json.dumps(told))
    if "system" in body:
        told = {"id": "a", "type": "message", "role": "assistant", "model": body["model"], "stop_reason": "end_turn",
                "stop_sequence": None, "content": [{"type": "text", "text": team}], "usage": usage}  # fmt: skip
        return Answer(body=json.dumps(told))
    if "[[ ## team ## ]]" in text:
        return completion(f"[[ ## team ## ]]\n{team}\n\n[[ ## completed ## ]]")
    if any(tool["function"]["name"] == "final_answer" for tool in body.get("tools", ())):
        call = {"id": "c", "type": "function", "function": {"name": "final_answer", "arguments": json.dumps({"answer": team})}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return completion(choices=[{"index": 0, "message": message, "finish_reason": "tool_calls"}])
    return completion(team)


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """What came of the README's walk."""

    before: Mapping[str, str]
    """What each example said before anything was learned, by its name."""
    after: Mapping[str, str]
    gate: str
    recorded: int
    """Traces, when all had been watched once."""


def pythons() -> Mapping[str, str]:
    """The Python that has the library of each example; examples without one are left out."""
    other = os.environ.get("JOURNEYMAN_EXAMPLES_PYTHON", "")
    found = {name: sys.executable for name, library in LIBRARIES.items() if importlib.util.find_spec(library)}
    if other:
        there = "import importlib.util, sys; print(*[each for each in sys.argv[1:] if importlib.util.find_spec(each)])"
        known = subprocess.run(
            [other, "-c", there, *LIBRARIES.values()], capture_output=True, text=True, check=True
        ).stdout.split()
        found |= {name: other for name, library in LIBRARIES.items() if library in known and name not in found}
    return found


@pytest.fixture(scope="module")
def model() -> Iterator[LLMServer]:
    with serving() as server:
        server.default = house
        yield server


@pytest.fixture(scope="module")
def walked(model: LLMServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    folder = tmp_path_factory.mktemp("examples")
    (folder / "journeyman.toml").touch()
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("OPENAI_", "ANTHROPIC_", "JOURNEYMAN_"))}
    env = {**kept, "OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY, "JOURNEYMAN_USER": "ana", "DO_NOT_TRACK": "1"}

    def typed(*words: str) -> str:
        command = [sys.executable, "-m", "journeyman", *words]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    serve = [sys.executable, "-m", "journeyman", "serve", "--port", "0", "--json", "--upstream", f"mine={model.url}"]
    quiet: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(serve, cwd=folder, env=env, **quiet) as gateway:
        try:
            assert gateway.stdout is not None
            told = json.loads(gateway.stdout.readline())
            there = {**env, "OPENAI_BASE_URL": told["openai_base_url"], "ANTHROPIC_BASE_URL": told["anthropic_base_url"]}
            found = {name: partial(_said, python, name, folder, there) for name, python in pythons().items()}
            yield _walk(typed, lambda: {name: ask() for name, ask in found.items()}, model.url, folder / "plan.json")
        finally:
            gateway.terminate()


def _walk(typed: Callable[..., str], ask: Callable[[], Mapping[str, str]], url: str, plan: Path) -> Walked:
    before = ask()
    until = time.monotonic() + 30
    while (count := json.loads(typed("traces", "list", "--json").splitlines()[0])["count"]) < len(before):
        assert time.monotonic() < until, f"{count} of {len(before)} requests were recorded"
    gate = typed("train", "playbook", str(EXAMPLES / "mails.csv"), "--model", f"openai:mine@{url}", "--output", "mails.json")
    # One session in twenty would stay as it was, and there is one each.
    plan.write_text(json.dumps({"holdback": 0.0}), encoding="utf-8")
    typed("releases", "start", "mails.json", "--plan", str(plan))
    typed("releases", "promote", "context:*/*", "--reason", "the gate let it pass")
    # What is released is served within two seconds.
    time.sleep(2.5)
    return Walked(before=before, after=ask(), gate=gate, recorded=count)


def _said(python: str, name: str, folder: Path, env: Mapping[str, str]) -> str:
    command = [python, str(EXAMPLES / f"{name}.py"), ASKED.format(name)]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{name}: {done.stderr[-2000:]}"
    return done.stdout.strip()


@pytest.mark.parametrize("name", sorted(LIBRARIES))
def test_an_agent_that_knows_the_gateways_address_alone_is_watched_taught_and_released(walked: Walked, name: str) -> None:
    if name not in walked.before:
        pytest.skip(f"{LIBRARIES[name]} is not installed here, nor where JOURNEYMAN_EXAMPLES_PYTHON is")
    assert (walked.before[name], walked.after[name]) == ("support", "LOG")
    assert walked.recorded >= len(walked.before)
    assert re.search(r"0\.0% without the playbook, 100\.0% with it", walked.gate), walked.gate


@pytest.mark.unit
def test_every_example_is_short_walked_and_knows_nothing_of_journeyman() -> None:
    files = {path.stem: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")}
    assert files.keys() == LIBRARIES.keys()
    for name, text in files.items():
        assert len(text.splitlines()) <= 30, name
        assert "import journeyman" not in text
        assert f"({name}.py)" in (EXAMPLES / "README.md").read_text(encoding="utf-8")
