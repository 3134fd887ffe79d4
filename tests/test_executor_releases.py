"""An executor in production: it serves what is released, what it learns is a candidate, and its runs count in the test."""

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from journeyman import create_ace_executor
from journeyman.compat.executor import Execution, Executor
from journeyman.core.errors import InputError, PlaybookError, StoreError
from journeyman.core.playbook import Add, Batch, Bullet, Playbook, Retire
from journeyman.core.rollout import PRODUCTION
from journeyman.core.task import Task
from journeyman.experiments import wiring
from journeyman.experiments.agents import candidate_of
from journeyman.models import KEY
from journeyman.optimizers.playbook import edit, files
from journeyman.serving.monitor import Monitor
from journeyman.stores.rollouts import RolloutStore, open_rollouts
from journeyman.tasks.answers import Number
from tests.support import warm
from tests.support.llm_server import Answer, LLMServer, error, serving
from tests.support.pupil import REFLECTOR, RULE, over_http, sums, write_sums

ROOT = Path(__file__).parent.parent
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
    done = warm.run("-m", "journeyman", *arguments, "--json", timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def contents(path: str | Path) -> set[str]:
    return {bullet.content for bullet in files.load(path).active}


def asked(server: LLMServer) -> list[dict[str, Any]]:
    """Goals that the model was given, without what the reflector was."""
    return [body for body in server.bodies if REFLECTOR not in str(body["messages"])]


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.02)


def slot(executor: Executor) -> dict[str, Any]:
    found: dict[str, Any] = executor.releases["slots"].get(SLOT, {})
    return found


@pytest.fixture
def store(server: LLMServer) -> Iterator[RolloutStore]:
    with open_rollouts(Path(".journeyman") / "journeyman.db") as opened:
        yield opened


@pytest.fixture
def taught() -> Playbook:
    """A playbook that makes the pupil right."""
    bullets = (Bullet(id="b-old", content=OLD, domain="fruit"), Bullet(id="b-rule", content=RULE, domain="fruit"))
    files.save(Playbook(bullets=bullets), Path("taught.json"))
    return Playbook(bullets=bullets)


async def started(executor: Executor, file: str, *more: str) -> dict[str, Any]:
    """A rollout of a playbook to half of the sessions, as the executor sees it."""
    Path("plan.json").write_text(json.dumps(PLAN))
    where = ("--agent", "desk", "--domain", "fruit", "--plan", "plan.json", *more)
    rollout: dict[str, Any] = (await asyncio.to_thread(journeyman, "releases", "start", file, *where))["rollout"]
    await until(lambda: slot(executor).get("rollout") == rollout["id"])
    return rollout


FORCED = ("--force", "--reason", "to see what becomes of it")


async def kept(store: RolloutStore, rollout: str, calls: int) -> None:
    """Wait until the records of so many calls are in the store."""

    def found() -> bool:
        sessions = store.served_sessions(rollout, [each.unit for each in store.assignments(rollout)])
        return sum(len(each.calls) for each in sessions.values()) >= calls

    await until(found)


async def test_what_was_learned_passes_the_gate_is_tried_on_sessions_and_promoted_by_what_they_came_to(
    make: Make, server: LLMServer, store: RolloutStore
) -> None:
    production = Path("skillbook.json").read_bytes()
    first, second = sums(2)
    async with make(async_learning=False) as executor:
        # It is learned, and nobody is served it.
        assert [(await executor.aforward(task, session="before")).success for task in (first, second)] == [False, False]
        before = asked(server)[-1]
        assert OLD in str(before)
        assert contents("skillbook.candidate.json") > {OLD, RULE}
        assert Path("skillbook.json").read_bytes() == production

        write_sums(Path("sums.json"))
        examined = ("--playbook", "skillbook.candidate.json", "--against", "skillbook.json", "--model", executor.config.model)
        data = ("--dataset", "custom", "--input", "sums.json", "--domain", "fruit")
        assert (await asyncio.to_thread(journeyman, "evaluate", *examined, *data))["passed"]
        rollout = await started(executor, "skillbook.candidate.json")
        candidate = rollout["arms"][0]["candidate_id"]
        assert rollout["verdict"] == "passed"

        # What its own sessions came to decides.
        monitor, sessions = Monitor(store, clock=lambda: wiring.now() + timedelta(seconds=10)), 0
        while slot(executor).get("rollout"):
            assert sessions < 300
            for _ in range(10):
                sessions += 1
                await executor.aforward(second, session=f"s-{sessions}")
            await kept(store, rollout["id"], sessions)
            if any(each.acted for each in monitor.once() or ()):
                await until(lambda: not slot(executor).get("rollout"))
        last = store.rollouts()[-1].events[-2]
        assert (last.kind, last.cause.actor) == ("promote", "monitor")

        # In production now, out of the store; and back again, to the byte.
        after = await executor.aforward(second, session="after")
        assert (after.success, after.trace.candidate_id) == (True, candidate)
        assert RULE in str(asked(server)[-1])
        assert Path("skillbook.json").read_bytes() == production
        against = ("evaluate", "--playbook", "skillbook.json", "--against", SLOT, "--model", executor.config.model, *data)
        report = await asyncio.to_thread(lambda: journeyman(*against, code=1))
        assert (report["baseline"], report["candidate"]) == (1.0, 0.0)
        await asyncio.to_thread(journeyman, "releases", "undo", SLOT, "--reason", "to see what was there")
        await until(lambda: not slot(executor))
        assert not (await executor.aforward(second, session="after")).success
        assert asked(server)[-1] == before
    assert Path("skillbook.json").read_bytes() == production


async def test_a_session_is_on_one_arm_and_its_record_says_which_until_it_is_rolled_back(
    make: Make, server: LLMServer, store: RolloutStore, taught: Playbook
) -> None:
    first, second = sums(2)
    async with make(verifier=None) as executor:
        before = await executor.aforward(first)
        prompt = asked(server)[-1]
        rollout = await started(executor, "taught.json", *FORCED)
        found: dict[str, set[str]] = {}
        for task in (first, second):
            for number in range(20):
                result = await executor.aforward(task, session=f"s-{number}")
                assert (RULE in str(asked(server)[-1])) == ([each.id for each in result.bullets] == ["b-old", "b-rule"])
                found.setdefault(f"s-{number}", set()).add(result.trace.candidate_id)
        await executor.afeedback(result, 0.0, "the crate had no pears")
        await kept(store, rollout["id"], 40)
        arms = {each.unit: each.arm for each in store.assignments(rollout["id"])}
        assert (len(arms), set(arms.values())) == (20, {PRODUCTION, "canary"})
        told = [candidate for each in found.values() for candidate in each]
        assert len(told) == 20
        assert set(told) == {before.trace.candidate_id, rollout["arms"][0]["candidate_id"]}
        assert told.count(before.trace.candidate_id) == list(arms.values()).count(PRODUCTION)
        served = store.served_sessions(rollout["id"], list(arms))
        assert [len(each.calls) for each in served.values()] == [2] * 20
        # Nobody judged it at first; what turned out later is on record.
        words = [
            word.reward for each in served.values() for said in each.said().values() for word in said if word.reward.weight
        ]
        assert [(word.told_by, word.value) for word in words] == [("ground truth", 0.0)]

        # A goal without a session is one by its words, and all are served as before once it is rolled back.
        alone = [(await executor.aforward(second)).trace.candidate_id for _ in range(3)]
        assert len(set(alone)) == 1
        await asyncio.to_thread(journeyman, "releases", "rollback", rollout["id"], "--reason", "it was only a try")
        await until(lambda: not slot(executor))
        for number in range(20):
            await executor.aforward(first, session=f"s-{number}")
            assert asked(server)[-1] == prompt


async def test_an_arm_whose_goals_break_off_is_stopped_by_the_executor_itself(
    make: Make, server: LLMServer, store: RolloutStore, taught: Playbook
) -> None:
    def answer(body: dict[str, Any]) -> Answer:
        return error(400, "no such strategy") if RULE in str(body) else over_http(body)

    server.default = answer
    async with make(verifier=None) as executor:
        rollout = await started(executor, "taught.json", *FORCED)
        results: list[Execution] = []
        # How many goals there are until it has told the store is a matter of the machine.
        async with asyncio.timeout(60):
            while slot(executor):
                results.append(await executor.aforward(sums(1)[0], session=f"s-{len(results)}"))
        assert 3 <= sum(each.error is not None for each in results) <= 40
    ended = store.rollout(rollout["id"])
    assert ended is not None
    assert (ended.state, ended.events[-1].cause.actor) == ("rolled_back", "brake")
    calls = [call for each in store.served_sessions(ended.id, [a.unit for a in store.assignments(ended.id)]).values()
             for call in each.calls]  # fmt: skip
    assert sum(call.failed for call in calls) == sum(each.error is not None for each in results)


async def test_while_the_store_is_away_production_is_served_and_nobody_counts(
    make: Make, server: LLMServer, store: RolloutStore, taught: Playbook
) -> None:
    async with make(verifier=None) as executor:
        rollout = await started(executor, "taught.json", *FORCED)
        known = {f"s-{number}": (await executor.aforward(sums(1)[0], session=f"s-{number}")).bullets for number in range(10)}
        assert len({len(each) for each in known.values()}) == 2
        await kept(store, rollout["id"], 10)
        with closing(sqlite3.connect(".journeyman/journeyman.db", isolation_level=None)) as other:
            other.execute("begin immediate")
            for session, bullets in known.items():
                assert (await executor.aforward(sums(1)[0], session=session)).bullets == bullets
            new = [await executor.aforward(sums(1)[0], session=f"new-{number}") for number in range(12)]
            other.execute("rollback")
        assert {len(each.bullets) for each in new} == {1}
        assert executor.releases["degraded_sessions"] == 12
    counted = [each for each in store.assignments(rollout["id"]) if each.why == "drawn"]
    assert len(counted) == 10


async def test_a_candidate_holds_what_is_in_production_and_what_was_learned_since(
    make: Make, server: LLMServer, taught: Playbook
) -> None:
    async with make(async_learning=False) as executor:
        await executor.aforward(sums(1)[0])
        learned = contents("skillbook.candidate.json")
        assert OLD in learned
        # Something else comes into production, in which what was there before is retired.
        other = Bullet(id="b-other", content="Peel nothing.", domain="fruit")
        after = taught.apply(Batch(id="by hand", deltas=(Add(bullet=other), Retire(bullet_id="b-old", reason="it is clear"))))
        files.save(after, Path("other.json"))
        rollout = await started(executor, "other.json", *FORCED)
        await asyncio.to_thread(journeyman, "releases", "promote", rollout["id"], "--reason", "it is only a word")
        await until(lambda: slot(executor).get("rollout") is None)
        # A failure teaches; it had more to say before than it has now.
        result = await executor.aforward(sums(3)[2])
        assert result.success
    held = contents("skillbook.candidate.json")
    assert held >= {*(learned - {OLD}), other.content}
    assert OLD not in held


KILLED = """
import os, sys
from journeyman import create_ace_executor
from journeyman.tasks.answers import Number
from tests.support.pupil import sums

model = sys.argv[1]
given = {"model": model, "reflector_model": model, "skillbook_path": "skillbook.json", "verifier": Number()}
executor = create_ace_executor(**given, agent="desk", domain="fruit", releases=True)
said = 0
for task in sums(10_000):
    executor.forward(task)
    learning = executor.stats.learning
    if learning.learned > said:
        said = learning.learned
        print(said, flush=True)
"""


@pytest.mark.parametrize("after", [1, 4, 9])
def test_an_executor_that_is_killed_loses_no_bullet_that_was_merged(make: Make, server: LLMServer, after: int) -> None:
    """Each lesson of the pupil is of another goal, which its bullet names among those that wrote it."""
    production = Path("skillbook.json").read_bytes()
    command = [sys.executable, "-c", KILLED, f"openai:pupil@{server.url}"]
    # It imports what stands in this file, from another folder.
    found = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "src")))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **found}) as process:
        assert process.stdout is not None
        said = 0
        for _ in range(after):
            said = int(process.stdout.readline())
        process.kill()
        rest = process.stdout.read().split()
    said = int(rest[-1]) if rest else said
    held = files.load("skillbook.candidate.json")
    assert len({task for bullet in held.bullets for task in bullet.provenance.tasks}) >= said >= after
    assert edit.revisions(Path("skillbook.candidate.json"))
    assert Path("skillbook.json").read_bytes() == production
    # Whoever comes next goes on from there.
    with make(async_learning=False) as executor:
        executor.forward(sums(1, start=20_000)[0])
    after_that = files.load("skillbook.candidate.json")
    assert {bullet.id for bullet in after_that.bullets} >= {bullet.id for bullet in held.bullets}
    assert candidate_of(after_that) != candidate_of(held)


async def test_what_cannot_be_used_is_said_in_a_sentence(make: Make, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="releases=True lacks the name of the agent: say agent="):
        make(agent=None)
    with pytest.raises(InputError, match="no / in the agent's name"):
        make(agent="desk/oslo")
    with pytest.raises(InputError, match="min_support is not for releases=True"):
        make(min_support=2)
    with pytest.raises(InputError, match="what is released must be kept"):
        make(store="memory:")
    Path("other.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match=r"what is released cannot be read: .*other\.db"):
        make(store="other.db")
    shutil.copy("other.db", "skillbook.candidate.json")
    with pytest.raises(PlaybookError, match=r"skillbook\.candidate\.json"):
        make()
    Path("skillbook.candidate.json").unlink()
    unusable: Any = (17, "", " ")
    async with make() as executor:
        for session in unusable:
            with pytest.raises(InputError, match=r"the session is .*, and must be a text"):
                await executor.aforward(Task(id="t", question="What?"), session=session)
