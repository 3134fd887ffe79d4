"""An agent at work that goes on learning: what `create_ace_executor` makes.

    async with create_ace_executor(ptc_base_url="http://localhost:8002", skillbook_path="playbooks/skillbook.json") as executor:
        result = await executor.aforward("Build a function that validates e-mail addresses")
        print(result.output, result.cost)

The answer is returned as soon as it is there; what it teaches is learned behind it. Everything runs in one event loop, in a
thread of the executor's own, so that it may be used from any number of loops, or from none (`forward`).
"""

import asyncio
import concurrent.futures
import hashlib
import logging
import threading
import uuid
from collections.abc import Coroutine, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from journeyman import app, embed, sandbox
from journeyman.agents.answer import Answer, MakeAgent
from journeyman.agents.coder import Coder, tries
from journeyman.agents.workshop import ScenarioWorkshop
from journeyman.candidate import BASE
from journeyman.embed.cache import Cached
from journeyman.errors import InputError, JourneymanError
from journeyman.execution import Execution, ExecutorConfig, ExecutorStats
from journeyman.experiments.agents import candidate_of
from journeyman.learn.playbook import edit, files
from journeyman.learn.playbook.background import Learner, LearningStats, Lessons
from journeyman.learn.playbook.choose import Chooser
from journeyman.learn.playbook.curate import Curator
from journeyman.learn.playbook.progress import Spent
from journeyman.models.base import Model
from journeyman.playbook import Playbook
from journeyman.rollout import attempt
from journeyman.sandbox.base import Sandbox
from journeyman.score import Experience, Reward, Score
from journeyman.task import Split, Task
from journeyman.tasks.base import Verifier
from journeyman.tasks.scenarios import Acceptance, Scenario
from journeyman.trace import Trace

__all__ = ["Execution", "Executor", "ExecutorConfig", "ExecutorStats", "create_ace_executor"]

log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

FLUSH = 30.0
"""Seconds that `aclose` gives to what is still to be learned."""


def create_ace_executor(**settings: Any) -> "Executor":
    """An executor from the fields of `ExecutorConfig`.

    Raises:
        InputError: A setting cannot be, or the skillbook is of another system's format.
        ModelError: A model's name is none, or its key is missing.
    """
    unknown = set(settings) - {field.name for field in fields(ExecutorConfig)}
    if unknown:
        raise InputError(f"there is no setting {sorted(unknown)[0]!r} of an executor; see journeyman.execution.ExecutorConfig")
    return Executor(ExecutorConfig(**settings))


class Executor:
    """Does what it is asked with the help of a playbook, and learns from what became of it."""

    def __init__(self, config: ExecutorConfig) -> None:
        for name in config.models:
            app.check(name, base_url=config.base_url, key_env=config.key_env)
        self.config = config
        self._skillbook = _Skillbook(Path(config.skillbook_path))
        self._embedder = Cached(embed.load(config.embedder))
        self._chooser = Chooser(self._embedder, budget=config.token_budget, min_support=config.min_support)
        self._loop = _Loop()
        self._closed = False
        self._stats = ExecutorStats()
        self._taught: set[str] = set()
        """Ids of the attempts that were judged: each counts once."""
        self._open_models: dict[str, Model] = {}
        self._walls: Sandbox | None = None
        self._learner: Learner | None = None
        self._under_way: set[asyncio.Task[Any]] = set()
        """Goals and feedback that somebody waits for: in vain, if they were left behind on a loop that has ended."""

    @property
    def stats(self) -> ExecutorStats:
        """What was done and learned so far."""
        return replace(self._stats, learning=self._learner.stats if self._learner else LearningStats())

    async def aforward(self, goal: str | Scenario | Task, *, checks: Sequence[str | Acceptance] = ()) -> Execution:
        """Do what is asked. A model or sandbox that fails gives an execution with an `error`, not an exception.

        Args:
            goal: What is wanted, in words; a scenario with its own files and checks; or a task, which is answered in one call.
            checks: What must hold of the result: shell commands, or `Acceptance`s. The agent never sees them.
        """
        return await asyncio.wrap_future(self._submit(self._forward(goal, checks)))

    def forward(self, goal: str | Scenario | Task, *, checks: Sequence[str | Acceptance] = ()) -> Execution:
        """`aforward`, for a program without an event loop."""
        return self._submit(self._forward(goal, checks)).result()

    async def afeedback(self, execution: Execution, reward: float, evidence: str = "") -> None:
        """Say what an execution that nobody had judged was worth: 1 (or True) all right, 0 all wrong. It is learned from then.

        Args:
            evidence: What was found, in a sentence; the reflector reads it.

        Raises:
            InputError: The reward lies outside 0 to 1, or the execution was judged before.
        """
        await asyncio.wrap_future(self._submit(self._feedback(execution, reward, evidence)))

    def feedback(self, execution: Execution, reward: float, evidence: str = "") -> None:
        """`afeedback`, for a program without an event loop."""
        self._submit(self._feedback(execution, reward, evidence)).result()

    async def aclose(self, timeout: float = FLUSH) -> None:
        """Finish what is under way and learn from what is waiting, for `timeout` seconds at most, and give everything back.

        A goal that is not done by then is cancelled, and whoever waits for it gets a `CancelledError`. Never raises for what
        is not learned: it is counted in `stats.learning`.
        """
        if not self._closed:
            self._closed = True
            await asyncio.wrap_future(self._loop.submit(self._end(timeout)))
            await asyncio.to_thread(self._loop.stop)

    def close(self, timeout: float = FLUSH) -> None:
        """`aclose`, for a program without an event loop."""
        asyncio.run(self.aclose(timeout))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _submit(self, work: Coroutine[Any, Any, _Result]) -> "concurrent.futures.Future[_Result]":
        if self._closed:
            work.close()
            raise InputError("the executor was closed; make another")
        return self._loop.submit(self._watched(work))

    async def _watched(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            return await work
        finally:
            self._under_way.discard(task)

    async def _forward(self, goal: str | Scenario | Task, checks: Sequence[str | Acceptance]) -> Execution:
        scenario, task = self._taken(goal, checks)
        playbook, candidate_id = self._skillbook.newest()
        workshop = ScenarioWorkshop([scenario] if scenario else [], self._sandbox)
        usual = partial(Coder, workshop=workshop, rounds=self.config.rounds) if scenario else Answer
        make: MakeAgent = self.config.agent or usual
        agent = make(model=self._model(self.config.model), choose=self._chooser.of(playbook), candidate_id=candidate_id)
        trace = await attempt(agent, task, id=f"{task.id}/{uuid.uuid4().hex}", clock=app.now)
        score = Score(trace_id=trace.id, rewards=(await self._judged(task, trace, scenario, workshop),))
        shown = tuple(bullet for bullet in playbook.bullets if bullet.id in trace.shown)
        execution = Execution(task=task, trace=trace, score=score, bullets=shown)
        self._count(execution)
        if self.config.collector is not None:
            self.config.collector.keep(replace(trace, rewards=score.rewards, raw={**trace.raw, "split": task.split.value}))
        if execution.success is not None or _stumbled(execution):
            await self._learn(execution)
        return execution

    def _taken(self, goal: str | Scenario | Task, checks: Sequence[str | Acceptance]) -> tuple[Scenario | None, Task]:
        """The goal as a task, and as the scenario that it was made of."""
        if isinstance(goal, Task):
            if checks:
                raise InputError("checks go with a goal or a scenario; a task is judged by the executor's verifier")
            return None, goal
        wanted = tuple(_acceptance(check, number) for number, check in enumerate(checks, start=1))
        if isinstance(goal, str):
            name = "goal-" + hashlib.sha256(goal.encode()).hexdigest()[:12]
            goal = Scenario(name=name, goal=goal, task_type=self.config.task_type)
        scenario = replace(goal, checks=(*goal.checks, *wanted))
        return scenario, replace(scenario.task(), domain=self.config.domain)

    async def _judged(self, task: Task, trace: Trace, scenario: Scenario | None, workshop: ScenarioWorkshop) -> Reward:
        if trace.error is not None:
            return Reward(name="finished", value=None, evidence=trace.error)
        judge: Verifier | None = workshop if scenario and scenario.checks else self.config.verifier
        if judge is None:
            return Reward(name="unjudged", value=None, evidence=_history(trace))
        try:
            return await judge.verify(task, trace)
        except Exception as error:  # noqa: BLE001 - the boundary: the answer is there, whatever becomes of the verdict
            log.warning("the verifier failed: %s: %s", type(error).__name__, error)
            return Reward(name="verified", value=None, evidence=f"the verifier failed: {type(error).__name__}: {error}")

    async def _feedback(self, execution: Execution, reward: float, evidence: str) -> None:
        if not 0 <= reward <= 1:
            raise InputError(f"the reward is {reward}, and must be between 0 and 1")
        if execution.success is not None or execution.trace.id in self._taught:
            raise InputError(f"what became of {execution.trace.id} is known already, and one attempt counts once")
        found = "\n".join(filter(None, (evidence, execution.score.evidence)))
        verdict = Reward(name="feedback", value=float(reward), evidence=found)
        await self._learn(replace(execution, score=Score(trace_id=execution.trace.id, rewards=(verdict,))))

    async def _learn(self, execution: Execution) -> None:
        if execution.task.split is Split.HELD_OUT:
            return
        if execution.success is not None:
            self._taught.add(execution.trace.id)
        done = self._teacher.offer(Experience(execution.task, execution.trace, execution.score), execution.bullets)
        if not self.config.async_learning:
            await asyncio.shield(done)

    @property
    def _teacher(self) -> Learner:
        if self._learner is None:
            lessons = Lessons(
                path=self._skillbook.path,
                reflector=self._model(self.config.models[1]),
                curator=Curator(self._embedder, self.config.similarity_threshold),
                stamp=lambda: app.now().isoformat(timespec="seconds"),
                name="executor",
            )
            self._learner = Learner(lessons, most_waiting=self.config.queue_size)
        return self._learner

    def _model(self, name: str) -> Model:
        if name not in self._open_models:
            self._open_models[name] = app.connect(
                name, concurrency=self.config.concurrency, base_url=self.config.base_url, key_env=self.config.key_env
            )
        return self._open_models[name]

    def _sandbox(self) -> Sandbox:
        if self._walls is None:
            self._walls = sandbox.load(self.config.ptc_base_url) if self.config.ptc_base_url else sandbox.load()
        return self._walls

    def _count(self, execution: Execution) -> None:
        self._stats = replace(
            self._stats,
            goals=self._stats.goals + 1,
            succeeded=self._stats.succeeded + (execution.success is True),
            failed=self._stats.failed + (execution.success is False),
            unjudged=self._stats.unjudged + (execution.success is None),
            broke_off=self._stats.broke_off + (execution.error is not None),
            generator=self._stats.generator + Spent.of(execution.trace.calls),
        )

    async def _end(self, patience: float) -> None:
        until = asyncio.get_running_loop().time() + patience
        if self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=patience)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        if self._learner:
            await self._learner.close(max(0.0, until - asyncio.get_running_loop().time()))
        for resource in (self._walls, *self._open_models.values()):
            if resource is not None:
                await resource.close()


def _acceptance(check: str | Acceptance, number: int) -> Acceptance:
    return check if isinstance(check, Acceptance) else Acceptance(name=f"check {number}", kind="shell", text=check)


def _stumbled(execution: Execution) -> bool:
    """Whether something in it failed for certain, so that there is something to learn from although nobody judged the end."""
    return execution.error is None and any(findings.passed is False for _, findings in tries(execution.trace))


def _history(trace: Trace) -> str:
    """What the sandbox said in each round, for a reflector."""
    return "\n".join(
        f"round {number}: {findings.text}" for number, (_, findings) in enumerate(tries(trace), start=1) if findings.text
    )


class _Skillbook:
    """A playbook file that others write to."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            InputError: It could not be written, or is of another system's format.
            PlaybookError: It holds no playbook.
        """
        self.path = path
        files.check_writable(path)
        self._seen: tuple[int, int, int] | None = None
        self._newest = (Playbook(), BASE)
        self._read()

    def newest(self) -> tuple[Playbook, str]:
        """What it holds now, and the id of that; empty while there is no file. One that was broken meanwhile is as it was."""
        try:
            self._read()
        except JourneymanError as error:
            log.warning("the skillbook is used as it was before: %s", error)
        return self._newest

    def _read(self) -> None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return
        seen = (found.st_mtime_ns, found.st_size, found.st_ino)
        if seen != self._seen:
            self._seen = seen
            playbook = edit.editable(self.path)
            candidate = candidate_of(playbook)
            self._newest = (playbook, candidate.id if candidate else BASE)


class _Loop:
    """An event loop in a thread of its own, begun when it is first needed."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._beginning = threading.Lock()

    def submit(self, work: Coroutine[Any, Any, _Result]) -> "concurrent.futures.Future[_Result]":
        with self._beginning:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="journeyman executor", daemon=True)
                self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        if self._loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._loop.shutdown_default_executor(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
