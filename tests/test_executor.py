"""An executor answers at once, learns behind the answer, and never lets a failure to learn reach whoever asked."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from journeyman import create_ace_executor
from journeyman.compat.executor import Executor, ExecutorConfig
from journeyman.core.errors import InputError, ModelRefused
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.task import Split
from journeyman.models import KEY
from journeyman.optimizers.playbook import edit, files
from journeyman.tasks.answers import Number
from journeyman.tasks.scenarios import TaskType
from journeyman.tracing.collector import Collector
from tests.support import pupil
from tests.support.llm_server import Answer, LLMServer, completion, error, serving
from tests.support.pupil import REFLECTOR, RULE, over_http, sums

Make = Callable[..., Executor]


@pytest.fixture(scope="module")
def started() -> Iterator[LLMServer]:
    with serving() as server:
        yield server


@pytest.fixture
def server(started: LLMServer, monkeypatch: pytest.MonkeyPatch) -> LLMServer:
    started.reset()
    started.default = over_http
    monkeypatch.setenv(KEY, "sk-test")
    return started


@pytest.fixture
def skillbook(tmp_path: Path) -> Path:
    return tmp_path / "skillbook.json"


@pytest.fixture
def make(server: LLMServer, skillbook: Path) -> Make:
    """Makes executors whose models are the pupil behind the server, and whose tasks are verified by their number."""

    def made(**settings: Any) -> Executor:
        name = f"openai:pupil@{server.url}"
        given = {"model": name, "reflector_model": name, "skillbook_path": skillbook, "verifier": Number(), "domain": "fruit"}
        return create_ace_executor(**{**given, **settings})

    return made


def reflecting(body: dict[str, Any]) -> bool:
    return REFLECTOR in str(body["messages"])


def held_reflector(release: threading.Event) -> Callable[[dict[str, Any]], Answer]:
    def answer(body: dict[str, Any]) -> Answer:
        said = over_http(body)
        return Answer(body=said.body, once=release) if reflecting(body) else said

    return answer


def contents(path: Path) -> list[str]:
    return [bullet.content for bullet in files.load(path).active]


async def test_what_one_goal_taught_helps_with_the_next(make: Make, skillbook: Path) -> None:
    first, second = sums(2)
    async with make(async_learning=False) as executor:
        before = await executor.aforward(first)
        after = await executor.aforward(second)
    assert (before.success, after.success) == (False, True)
    assert before.bullets == ()
    assert RULE in [bullet.content for bullet in after.bullets]
    assert RULE in contents(skillbook)
    assert (executor.stats.goals, executor.stats.succeeded, executor.stats.failed) == (2, 1, 1)
    assert executor.stats.learning.learned == 2


async def test_the_answer_is_there_while_the_reflector_still_thinks(make: Make, server: LLMServer, skillbook: Path) -> None:
    release = threading.Event()
    server.default = held_reflector(release)
    async with make() as executor:
        result = await executor.aforward(sums(1)[0])
        assert result.success is False
        assert not release.is_set()
        assert not skillbook.exists()
        assert executor.stats.learning.waiting == 1
        release.set()
    assert RULE in contents(skillbook)
    assert (executor.stats.learning.waiting, executor.stats.learning.learned) == (0, 1)


async def test_with_learning_in_front_the_answer_waits_for_it(make: Make, server: LLMServer, skillbook: Path) -> None:
    release = threading.Event()
    server.default = held_reflector(release)
    async with make(async_learning=False) as executor:
        answering = asyncio.create_task(executor.aforward(sums(1)[0]))
        while not any(map(reflecting, server.bodies)):
            await asyncio.sleep(0.005)
        assert not answering.done()
        release.set()
        await answering
        assert RULE in contents(skillbook)


async def test_a_reflector_that_fails_is_counted_and_no_answer_suffers(
    make: Make, server: LLMServer, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(body: dict[str, Any]) -> Answer:
        return error(400, "no such model") if reflecting(body) else over_http(body)

    server.default = answer
    with caplog.at_level(logging.WARNING):
        async with make(async_learning=False) as executor:
            result = await executor.aforward(sums(1)[0])
    assert result.success is False
    assert (executor.stats.learning.failed, executor.stats.learning.learned) == (1, 0)
    assert "no such model" in executor.stats.learning.last_failure
    assert "nothing was learned from 1 experiences" in caplog.text


async def test_a_skillbook_that_is_broken_meanwhile_is_counted_and_no_answer_suffers(make: Make, skillbook: Path) -> None:
    async with make(async_learning=False) as executor:
        first, second, third = sums(3)
        await executor.aforward(first)
        await executor.aforward(second)
        skillbook.write_text("no playbook at all")
        result = await executor.aforward(third)
    assert result.success, "it goes on with the skillbook as it was"
    assert executor.stats.learning.failed == 1


async def test_when_the_queue_is_full_the_oldest_gives_way_and_is_counted(make: Make, server: LLMServer) -> None:
    release = threading.Event()
    server.default = held_reflector(release)
    async with make(queue_size=2) as executor:
        await executor.aforward(sums(1)[0])
        while not any(map(reflecting, server.bodies)):
            await asyncio.sleep(0.005)
        for task in sums(4, start=1):
            await executor.aforward(task)
        found = executor.stats.learning
        assert (found.offered, found.waiting, found.dropped) == (5, 3, 2)
        release.set()
    asked = [json.dumps(body) for body in server.bodies if reflecting(body)]
    assert [number for number in range(5) if any(f"holds {number} plums" in text for text in asked)] == [0, 3, 4]
    assert executor.stats.learning.learned == 3


async def test_closing_waits_no_longer_than_it_was_told_and_counts_what_is_lost(make: Make, server: LLMServer) -> None:
    release = threading.Event()
    server.default = held_reflector(release)
    executor = make()
    for task in sums(3):
        await executor.aforward(task)
    await executor.aclose(timeout=0.1)
    assert (executor.stats.learning.abandoned, executor.stats.learning.waiting) == (3, 0)
    release.set()
    with pytest.raises(InputError, match="was closed"):
        await executor.aforward(sums(1)[0])


async def test_closing_waits_for_a_goal_that_is_under_way_and_cancels_it_when_time_is_up(make: Make, server: LLMServer) -> None:
    release = threading.Event()
    server.default = lambda _: Answer(body=completion("Answer: 1").body, once=release)
    patient, hasty = make(), make()
    try:
        answered, cancelled = (asyncio.create_task(one.aforward(sums(1)[0])) for one in (patient, hasty))
        async with asyncio.timeout(10):
            while len(server.bodies) < 2:
                await asyncio.sleep(0.005)
        await hasty.aclose(timeout=0.1)
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        closing = asyncio.create_task(patient.aclose())
        await asyncio.sleep(0.1)
        assert not closing.done()
    finally:
        release.set()
    await closing
    assert (await answered).output == "Answer: 1"


async def test_what_nobody_judged_is_neither_success_nor_failure_and_teaches_nothing(make: Make, server: LLMServer) -> None:
    async with make(verifier=None, async_learning=False, task_type=TaskType.TEXT_GENERATION) as executor:
        result = await executor.aforward(pupil.question(3))
    assert result.output
    assert result.success is None
    assert result.metadata["performance_score"] is None
    assert not any(map(reflecting, server.bodies))
    assert (executor.stats.unjudged, executor.stats.learning.offered) == (1, 0)


async def test_feedback_is_learned_from_once(make: Make, skillbook: Path) -> None:
    files.save(Playbook(bullets=(Bullet(id="b-1", content="Count twice.", domain="fruit"),)), skillbook)
    async with make(verifier=None, async_learning=False, task_type=TaskType.TEXT_GENERATION) as executor:
        result = await executor.aforward(pupil.question(3))
        assert not edit.journal_of(skillbook).exists()
        await executor.afeedback(result, True)
        (bullet,) = [bullet for bullet in files.load(skillbook).bullets if bullet.id == "b-1"]
        assert (bullet.shown, bullet.helpful) == (1, 1)
        with pytest.raises(InputError, match="one attempt counts once"):
            await executor.afeedback(result, False)
        with pytest.raises(InputError, match="between 0 and 1"):
            await executor.afeedback(result, 7)


async def test_a_model_that_says_no_is_an_execution_with_an_error(make: Make, server: LLMServer) -> None:
    server.default = lambda _: error(400, "no such model")
    async with make() as executor:
        result = await executor.aforward(sums(1)[0])
    assert result.success is None
    assert result.error is not None
    assert result.error.startswith("ModelRefused: ")
    assert (executor.stats.broke_off, executor.stats.learning.offered) == (1, 0)


async def test_a_verifier_that_breaks_costs_the_verdict_and_not_the_answer(make: Make) -> None:
    class Broken:
        async def verify(self, task: object, trace: object) -> Any:
            raise RuntimeError("the oracle is out")

    async with make(verifier=Broken()) as executor:
        result = await executor.aforward(sums(1)[0])
    assert result.success is None
    assert "the oracle is out" in result.score.evidence


async def test_nothing_is_learned_from_a_held_out_task(make: Make, skillbook: Path) -> None:
    async with make(async_learning=False) as executor:
        result = await executor.aforward(sums(1, split=Split.HELD_OUT)[0])
    assert result.success is False
    assert not skillbook.exists()


async def test_cost_and_tokens_are_unknown_when_the_server_does_not_count(make: Make, server: LLMServer) -> None:
    server.default = lambda _: completion("Answer: 1", usage=None)
    async with make() as executor:
        result = await executor.aforward(sums(1)[0])
    assert (result.tokens, result.cost) == (None, None)
    assert result.metadata == {"cost_usd": None, "tokens_used": None, "performance_score": 0.0, "skills_used": 0}


def test_a_program_without_a_loop_uses_it_too(make: Make, skillbook: Path) -> None:
    with make() as executor:
        assert executor.forward(sums(1)[0]).success is False
    assert RULE in contents(skillbook)


def test_it_lives_on_from_one_event_loop_to_the_next(make: Make) -> None:
    executor = make(async_learning=False)
    first, second = (asyncio.run(executor.aforward(task)) for task in sums(2))
    asyncio.run(executor.aclose())
    assert (first.success, second.success) == (False, True)


async def test_many_goals_at_once_all_teach(make: Make) -> None:
    async with make() as executor:
        results = await asyncio.gather(*(executor.aforward(task) for task in sums(20)))
    assert len({result.trace.id for result in results}) == 20
    assert executor.stats.learning.learned == 20


async def test_it_uses_what_another_process_has_learned_meanwhile(make: Make, skillbook: Path) -> None:
    async with make() as executor:
        files.save(Playbook(bullets=(Bullet(id="b-1", content=RULE, domain="fruit"),)), skillbook)
        result = await executor.aforward(sums(1)[0])
    assert result.success is True
    assert [bullet.id for bullet in result.bullets] == ["b-1"]


def test_what_is_wrong_is_said_before_anything_is_done(make: Make, tmp_path: Path) -> None:
    foreign = tmp_path / "cheatsheet.txt"
    foreign.write_text("<cheatsheet>\n<memory_item>\nCount twice.\n</memory_item>\n</cheatsheet>\n")
    with pytest.raises(InputError, match="no setting 'skilbook' of an executor"):
        make(skilbook="x")
    with pytest.raises(InputError, match="queue_size is 0"):
        make(queue_size=0)
    with pytest.raises(InputError, match="ptc_base_url is 'localhost'"):
        make(ptc_base_url="localhost")
    with pytest.raises(InputError, match="is not a playbook file: bring it in with `journeyman playbook import"):
        make(skillbook_path=foreign)


@pytest.mark.parametrize(
    ("settings", "reflector"),
    [
        ({"model": "ollama:qwen3"}, "ollama:qwen3"),
        ({}, "openai:gpt-5-nano"),
        ({"model": "ollama:qwen3", "reflector_model": "openai:gpt-5-nano"}, "openai:gpt-5-nano"),
    ],
)
def test_whoever_names_one_model_needs_the_key_of_no_other(settings: dict[str, str], reflector: str) -> None:
    assert ExecutorConfig(**settings).models[1] == reflector  # type: ignore[arg-type]


def test_a_missing_key_is_said_at_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ModelRefused, match=KEY):
        make(model="openai:gpt-5-mini")


async def test_a_collector_gets_what_was_done_with_the_bullets_that_were_shown(make: Make) -> None:
    collector = Collector()
    first, second = sums(2)
    async with make(async_learning=False, collector=collector) as executor:
        await executor.aforward(first)
        after = await executor.aforward(second)
    before, helped = collector.traces
    assert (before.shown, helped.shown) == (frozenset(), frozenset(bullet.id for bullet in after.bullets))
    assert helped.shown
    assert [trace.rewards[0].value for trace in collector.traces] == [0.0, 1.0]
