"""An executor in production: it serves what is released, what it learns is a candidate, and its runs decide what becomes of it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from journeyman import create_ace_executor
from journeyman.compat.executor import Executor
from journeyman.core.errors import InputError, StoreError
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.rollout import PRODUCTION, Slot, SlotKind
from journeyman.core.task import Task
from journeyman.models import KEY
from journeyman.optimizers.playbook import files
from journeyman.stores.rollouts import open_rollouts
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import Query
from journeyman.tasks.answers import Number
from tests.support.llm_server import LLMServer, serving
from tests.support.pupil import REFLECTOR, RULE, over_http, sums, write_sums

pytestmark = pytest.mark.service
SLOT = "context:desk/fruit"
OLD = "Count plums before pears."
PLAN = {
    "steps": [0.5],
    "step_sessions": [10],
    "step_hours": [0],
    "step_worst": [1.0],
    "min_sessions": 10,
    "holdback": 0,
    "settle_seconds": 1,
    "primary": {"name": "success", "margin": 0.3, "window_seconds": 1},
    "guardrails": [{"name": "failed_requests", "tolerance": 0.01}],
}
Make = Callable[..., Executor]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LLMServer]:
    monkeypatch.setenv(KEY, "sk-test")
    monkeypatch.setenv("JOURNEYMAN_USER", "ada")
    monkeypatch.chdir(tmp_path)
    files.save(Playbook(bullets=(Bullet(id="b-old", content=OLD, domain="fruit"),)), tmp_path / "skillbook.json")
    with serving() as started:
        started.default = over_http
        yield started


@pytest.fixture
def make(server: LLMServer) -> Make:
    """Makes executors in the working folder whose models are the pupil behind the server."""

    def made(**settings: Any) -> Executor:
        name = f"openai:pupil@{server.url}"
        given = {"model": name, "reflector_model": name, "skillbook_path": "skillbook.json", "verifier": Number()}
        return create_ace_executor(**{**given, "agent": "desk", "domain": "fruit", "releases": True, **settings})

    return made


def journeyman(*arguments: str, code: int = 0) -> dict[str, Any]:
    command = [sys.executable, "-m", "journeyman", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ)
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def contents(path: str | Path) -> set[str]:
    return {bullet.content for bullet in files.load(path).active}


def asked(server: LLMServer) -> list[dict[str, Any]]:
    """Goals that the model was given, without what the reflector was."""
    return [body for body in server.bodies if REFLECTOR not in str(body["messages"])]


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.02)


def slot(executor: Executor) -> dict[str, Any]:
    found: dict[str, Any] = executor.releases["slots"].get(SLOT, {})
    return found


async def test_what_was_learned_is_tried_on_sessions_and_promoted_by_what_they_came_to(make: Make, server: LLMServer) -> None:
    production = Path("skillbook.json").read_bytes()
    first, second = sums(2)
    async with make(async_learning=False) as executor:
        # It is learned, and nobody is served it.
        assert [(await executor.aforward(task, session="before")).success for task in (first, second)] == [False, False]
        before = asked(server)[-1]
        assert OLD in str(before)
        assert contents("skillbook.candidate.json") > {OLD, RULE}
        assert Path("skillbook.json").read_bytes() == production

        # The gate, on held-out tasks, then half of the sessions.
        write_sums(Path("sums.json"))
        examined = ("--playbook", "skillbook.candidate.json", "--against", "skillbook.json", "--model", executor.config.model)
        data = ("--dataset", "custom", "--input", "sums.json", "--domain", "fruit")
        report = await asyncio.to_thread(journeyman, "evaluate", *examined, *data)
        assert report["passed"]
        Path("plan.json").write_text(json.dumps(PLAN))
        where = ("--agent", "desk", "--domain", "fruit")
        start = ("releases", "start", "skillbook.candidate.json", *where, "--plan", "plan.json")
        rollout = (await asyncio.to_thread(journeyman, *start))["rollout"]
        candidate = rollout["arms"][0]["candidate_id"]
        await until(lambda: slot(executor).get("rollout") == rollout["id"])

        # Each session is on one arm, and what it got decides.
        seen: dict[str, set[tuple[bool | None, str, bool]]] = {}
        while slot(executor).get("rollout"):
            session = f"s-{len(seen)}"
            server.bodies.clear()
            results = [await executor.aforward(task, session=session) for task in (first, second)]
            given = [RULE in str(body) for body in asked(server)]
            seen[session] = {(each.success, each.trace.candidate_id, rule) for each, rule in zip(results, given, strict=True)}
            assert len(seen) < 300
            if len(seen) % 10 == 0:
                await asyncio.sleep(1.2)
                await asyncio.to_thread(journeyman, "monitor", "--once")
        assert all(len(each) == 1 for each in seen.values())
        told = (await asyncio.to_thread(journeyman, "releases", "show", rollout["id"]))["rollout"]
        assert (told["state"], told["events"][-2]["kind"], told["events"][-2]["cause"]["actor"]) == (
            "concluded", "promote", "monitor",
        )  # fmt: skip
        base = next(each.trace.candidate_id for each in results if each.trace.candidate_id != candidate) if False else None
        assert base is None

        # In production now, out of the store; and back again, to the byte.
        after = await executor.aforward(second, session="after")
        assert (after.success, after.trace.candidate_id) == (True, candidate)
        assert RULE in str(asked(server)[-1])
        assert Path("skillbook.json").read_bytes() == production
        await asyncio.to_thread(journeyman, "releases", "undo", SLOT, "--reason", "to see what was there")
        await until(lambda: not slot(executor))
        assert not (await executor.aforward(second, session="after")).success
        assert asked(server)[-1] == before
    assert Path("skillbook.json").read_bytes() == production
