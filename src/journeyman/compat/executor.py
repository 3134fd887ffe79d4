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
from collections import OrderedDict
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from journeyman import sandbox
from journeyman.agents.answer import Answer, MakeAgent
from journeyman.agents.attempt import attempt
from journeyman.agents.coder import ROUNDS, Coder, ScenarioWorkshop, last_files, tries
from journeyman.core.candidate import BASE
from journeyman.core.errors import InputError, JourneymanError
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.reward import Source
from journeyman.core.score import Experience, Reward, Score
from journeyman.core.task import Split, Task
from journeyman.core.trace import ModelCall, Step, Trace, total
from journeyman.experiments import wiring
from journeyman.experiments.agents import candidate_of
from journeyman.io.files import check_writable
from journeyman.models import embedders
from journeyman.models.base import Model
from journeyman.models.embedders import Cached
from journeyman.optimizers.playbook import edit
from journeyman.optimizers.playbook.curator import Curator
from journeyman.optimizers.playbook.retrieval import Chooser
from journeyman.optimizers.playbook.run import Spent
from journeyman.optimizers.playbook.trainer import Learner, LearningStats, Lessons
from journeyman.sandbox.base import Sandbox
from journeyman.tasks.base import Verifier
from journeyman.tasks.scenarios import Acceptance, Scenario, TaskType
from journeyman.tracing.collector import Collector

if TYPE_CHECKING:
    from journeyman.serving.ingest.in_process import StoreReleases
    from journeyman.serving.releases.context import SessionArm

# What an executor is told, and what it answers.


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorConfig:
    """Everything that an executor can be told."""

    ptc_base_url: str = ""
    """The code service where code is run; without one it is run in the sandbox of this machine."""
    skillbook_path: str | Path = "playbooks/skillbook.json"
    """The playbook that is used and that grows. It need not be there yet, and other processes may learn into it too."""
    async_learning: bool = True
    """Learn behind the answer. Without, an answer is returned once what it teaches is in the file."""
    model: str = "openai:gpt-5-mini"
    """What does the work."""
    reflector_model: str = ""
    """What draws the lessons. Unless it is named, it is openai:gpt-5-nano beside the default model, and else `model` itself."""
    base_url: str = ""
    """Another server for models named without one."""
    key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds the key for `base_url`; empty when it needs none."""
    task_type: TaskType = TaskType.CODE_INTERPRET
    """What kind of work a goal is that is given as text."""
    domain: str = "general"
    """Whose bullets are shown and learned. Training on scenarios learns in "general"."""
    agent: str | MakeAgent | None = None
    """What the agent is called: in its runs' records, and where something is released for it. Or `make_agent`."""
    make_agent: MakeAgent | None = None
    """Who does the work, instead of the agent that writes code and runs it."""
    releases: bool = False
    """Serve what is released for the agent and the domain, and learn into a candidate beside the skillbook, which stays as it
    is; see docs/executor.md. Without, what is learned is used at once."""
    store: str | Path = ""
    """With `releases`, where they are kept, and the runs that count for them: a URL or a path. Without one the project's."""
    verifier: Verifier | None = None
    """Judges every result. Without one, checks do, and where a goal has none nobody does (see `Execution.success`)."""
    rounds: int = ROUNDS
    """Calls at most for one goal: the first one writes, the others repair."""
    queue_size: int = 100
    """Experiences that may wait to be learned from. When it is full the oldest gives way, and is counted."""
    token_budget: int = 2000
    """Tokens of bullets in a prompt."""
    min_support: int = 1
    """Different goals whose reflection must have written a bullet before it is shown."""
    similarity_threshold: float = 0.8
    """Cosine from which two bullets are one."""
    embedder: str = "hashing"
    concurrency: int = 10
    """Calls in flight at once: of goals, and of lessons beside them."""
    collector: Collector | None = None
    """Gets the trace of every goal, with the bullets that were shown and what it was found worth. With `releases`, and where
    none is given, the store does."""

    def __post_init__(self) -> None:
        for name in ("rounds", "queue_size", "token_budget", "min_support", "concurrency"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}, and must be at least 1")
        if self.ptc_base_url and not self.ptc_base_url.startswith(("http://", "https://")):
            raise InputError(f"ptc_base_url is {self.ptc_base_url!r}, and must begin with http:// or https://")
        if self.task_type not in set(TaskType):
            raise InputError(f"task_type is {self.task_type!r}, and must be one of {', '.join(TaskType)}")
        if self.releases and not self.name:
            raise InputError('releases=True lacks the name of the agent: say agent="desk", as in releases start --agent desk')
        if self.releases and self.min_support > 1:
            raise InputError("min_support is not for releases=True, where a gate says what is shown; leave it out")

    @property
    def name(self) -> str:
        """The agent's; empty where it has none."""
        return self.agent if isinstance(self.agent, str) else ""

    @property
    def maker(self) -> MakeAgent | None:
        """Who makes the agent; `None` for the usual one."""
        return self.make_agent if isinstance(self.agent, str) else self.agent or self.make_agent

    @property
    def learned_path(self) -> Path:
        """The playbook file that what is learned goes into: the skillbook, or with `releases` the candidate beside it."""
        path = Path(self.skillbook_path)
        return path.with_name(f"{path.stem}.candidate{path.suffix}") if self.releases else path

    @property
    def models(self) -> tuple[str, str]:
        """Who does the work and who draws the lessons, with the defaults filled in."""
        default = "openai:gpt-5-nano" if self.model == "openai:gpt-5-mini" else self.model
        return self.model, self.reflector_model or default


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What became of one goal."""

    task: Task
    trace: Trace
    score: Score
    bullets: tuple[Bullet, ...] = ()
    """The strategies that stood in the prompt."""

    @property
    def output(self) -> str:
        """The agent's last word; nothing when it broke off before it said any."""
        return self.trace.reply

    @property
    def files(self) -> Mapping[str, str]:
        """The files that it wrote, by relative path."""
        return last_files(self.trace)

    @property
    def success(self) -> bool | None:
        """Whether checks or a verifier found everything right. `None` when nobody could tell: code that ran to its end has not
        been shown to do what was asked."""
        return self.score.verdict.good

    @property
    def error(self) -> str | None:
        """Why it broke off, as `ErrorName: message`."""
        return self.trace.error

    @property
    def cost(self) -> float | None:
        """US dollars; `None` as soon as one call's price is not known."""
        return self.trace.cost

    @property
    def tokens(self) -> int | None:
        """In and out; `None` as soon as one call's are not known."""
        return total((self.trace.input_tokens, self.trace.output_tokens))

    @property
    def metadata(self) -> Mapping[str, float | int | None]:
        """The same under the names of a results file."""
        return {
            "cost_usd": self.cost,
            "tokens_used": self.tokens,
            "performance_score": self.score.total,
            "skills_used": len(self.bullets),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorStats:
    """What an executor has done so far."""

    goals: int = 0
    succeeded: int = 0
    failed: int = 0
    """Judged, and not right."""
    unjudged: int = 0
    """Nobody could tell. They teach when somebody gives feedback."""
    broke_off: int = 0
    """Of the unjudged, those that a model or sandbox failed."""
    generator: Spent = field(default_factory=Spent)
    learning: LearningStats = field(default_factory=LearningStats)


log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

FLUSH = 30.0
"""Seconds that `aclose` gives to what is still to be learned."""
_ARMS = 8
"""Playbooks for which it is remembered how to choose from them."""


def create_ace_executor(**settings: Any) -> "Executor":
    """An executor from the fields of `ExecutorConfig`.

    Raises:
        InputError: A setting cannot be, or the skillbook is of another system's format.
        ModelError: A model's name is none, or its key is missing.
    """
    unknown = set(settings) - {field.name for field in fields(ExecutorConfig)}
    if unknown:
        raise InputError(
            f"there is no setting {sorted(unknown)[0]!r} of an executor; see journeyman.compat.executor.ExecutorConfig"
        )
    return Executor(ExecutorConfig(**settings))


class Executor:
    """Does what it is asked with the help of a playbook, and learns from what became of it."""

    def __init__(self, config: ExecutorConfig) -> None:
        for name in config.models:
            wiring.check(name, base_url=config.base_url, key_env=config.key_env)
        self.config = config
        self._skillbook = _Skillbook(Path(config.skillbook_path))
        if config.releases:
            # What is learned goes there: a file that cannot take it is said before anything is.
            _Skillbook(config.learned_path)
        self._released = _released(config) if config.releases else None
        self._collector = config.collector or (self._released.collector if self._released else None)
        self._embedder = Cached(embedders.load(config.embedder))
        self._choosers: OrderedDict[str, Chooser] = OrderedDict()
        self._loop = _Loop()
        self._closed = False
        self._stats = ExecutorStats()
        self._taught: set[str] = set()
        """Ids of the attempts that were judged: each counts once."""
        self._open_models: dict[tuple[str, str], Model] = {}
        self._walls: Sandbox | None = None
        self._learner: Learner | None = None
        self._under_way: set[asyncio.Task[Any]] = set()
        """Goals and feedback that somebody waits for: in vain, if they were left behind on a loop that has ended."""

    @property
    def stats(self) -> ExecutorStats:
        """What was done and learned so far."""
        return replace(self._stats, learning=self._learner.stats if self._learner else LearningStats())

    @property
    def releases(self) -> Mapping[str, Any]:
        """What is served, as the gateway's `/health` says it; nothing without `releases`."""
        return self._released.state() if self._released else {}

    async def aforward(
        self, goal: str | Scenario | Task, *, checks: Sequence[str | Acceptance] = (), session: str | None = None
    ) -> Execution:
        """Do what is asked. A model or sandbox that fails gives an execution with an `error`, not an exception.

        Args:
            goal: What is wanted, in words; a scenario with its own files and checks; or a task, which is answered in one call.
            checks: What must hold of the result: shell commands, or `Acceptance`s. The agent never sees them.
            session: Whose visit it belongs to. With `releases` all goals of a session are served the same; goals without one
                are of one session where they say the same.

        Raises:
            InputError: The session is no text, or empty.
        """
        return await asyncio.wrap_future(self._submit(self._forward(goal, checks, session)))

    def forward(
        self, goal: str | Scenario | Task, *, checks: Sequence[str | Acceptance] = (), session: str | None = None
    ) -> Execution:
        """`aforward`, for a program without an event loop."""
        return self._submit(self._forward(goal, checks, session)).result()

    async def afeedback(self, execution: Execution, reward: float, evidence: str = "") -> None:
        """Say what an execution that nobody had judged was worth: 1 (or True) all right, 0 all wrong. It is learned from then.

        Args:
            evidence: What was found, in a sentence; the reflector reads it.

        Raises:
            InputError: The reward lies outside 0 to 1, or the execution was judged before.
            StoreError: With `releases`, the store does not take it; nothing was learned, and it may be said again.
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

    async def _forward(self, goal: str | Scenario | Task, checks: Sequence[str | Acceptance], session: str | None) -> Execution:
        if session is not None and not (isinstance(session, str) and session.strip()):
            raise InputError(f'the session is {session!r:.40}, and must be a text, as in session="s-17"')
        scenario, task = self._taken(goal, checks)
        playbook, candidate_id, where = await self._served(task, session)
        workshop = ScenarioWorkshop([scenario] if scenario else [], self._sandbox)
        usual = partial(Coder, workshop=workshop, rounds=self.config.rounds) if scenario else Answer
        make: MakeAgent = self.config.maker or usual
        choose = self._chooser(candidate_id if where else "").of(playbook)
        agent = make(model=self._model(self.config.model, "goals"), choose=choose, candidate_id=candidate_id)
        trace = await attempt(agent, task, id=f"{task.id}/{uuid.uuid4().hex}", clock=wiring.now)
        score = Score(trace_id=trace.id, rewards=(await self._judged(task, trace, scenario, workshop),))
        shown = tuple(bullet for bullet in playbook.bullets if bullet.id in trace.shown)
        execution = Execution(task=task, trace=trace, score=score, bullets=shown)
        self._count(execution)
        self._keep(execution, where, session)
        if execution.success is not None or _stumbled(execution):
            await self._learn(execution)
        return execution

    async def _served(self, task: Task, session: str | None) -> "tuple[Playbook, str, SessionArm | None]":
        """The playbook, its id, and the arm of the session. Where nothing is released, the skillbook is what there is."""
        found, where = await self._released.serves(task, session) if self._released else (None, None)
        return (found.playbook, found.candidate_id, where) if found else (*self._skillbook.newest(), where)

    def _chooser(self, name: str) -> Chooser:
        """Of what is shown: one for each arm, as it follows a playbook from revision to revision, and arms alternate."""
        if name not in self._choosers:
            config = self.config
            self._choosers[name] = Chooser(self._embedder, budget=config.token_budget, min_support=config.min_support)
        self._choosers.move_to_end(name)
        if len(self._choosers) > _ARMS:
            self._choosers.popitem(last=False)
        return self._choosers[name]

    def _keep(self, execution: Execution, where: "SessionArm | None", session: str | None) -> None:
        trace = replace(execution.trace, rewards=execution.score.rewards, session=session, agent=self.config.name or None)
        if self._released:
            trace = replace(trace, input=execution.task.question, ended_at=wiring.now())
            if where:
                self._released.ended(where, failed=trace.error is not None)
                trace = replace(trace, steps=_on_arm(execution, where, self.config.model))
        if self._collector is not None:
            self._collector.keep(replace(trace, raw={**trace.raw, "split": execution.task.split.value}))

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
            # It weighs nothing: nobody was to tell, and whoever tells later is heard.
            return Reward(name="unjudged", value=None, evidence=_history(trace), weight=0.0)
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
        if self._released:
            await self._released.turned_out(execution.trace.id, float(reward))
        found = "\n".join(filter(None, (evidence, execution.score.evidence)))
        verdict = Reward(name="feedback", value=float(reward), evidence=found, source=Source.TRUTH)
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
                path=self.config.learned_path,
                reflector=self._model(self.config.models[1], "lessons"),
                curator=Curator(self._embedder, self.config.similarity_threshold),
                stamp=lambda: wiring.now().isoformat(timespec="seconds"),
                name="executor",
                base=self._in_production if self._released else Playbook,
            )
            self._learner = Learner(lessons, most_waiting=self.config.queue_size)
        return self._learner

    def _in_production(self) -> Playbook:
        """What a candidate comes after."""
        found = self._released.production() if self._released else None
        return found or self._skillbook.newest()[0]

    def _model(self, name: str, what_for: str) -> Model:
        # A goal must not wait for its turn behind lessons of the same model.
        if (name, what_for) not in self._open_models:
            self._open_models[name, what_for] = wiring.connect(
                name, concurrency=self.config.concurrency, base_url=self.config.base_url, key_env=self.config.key_env
            )
        return self._open_models[name, what_for]

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
        if self._released:
            await asyncio.to_thread(self._released.close)


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


def _on_arm(execution: Execution, where: "SessionArm", model: str) -> tuple[Step, ...]:
    """The steps as a gateway records them: each call says where its session is. What broke off has a call that failed."""
    trace = execution.trace
    steps: list[Step] = list(trace.steps)
    if trace.error is not None and not any(call.error for call in trace.calls):
        steps.append(ModelCall(model=model, prompt=execution.task.question, reply="", error=trace.error))
    named = [replace(step, id=step.id or f"{trace.id}/{number}") for number, step in enumerate(steps)]
    release = {"release": dict(where.labels)}
    return tuple(replace(step, raw={**step.raw, **release}) if isinstance(step, ModelCall) else step for step in named)


def _released(config: ExecutorConfig) -> "StoreReleases":
    # Without releases nobody needs what reads a store.
    from journeyman.serving.ingest.in_process import StoreReleases

    return StoreReleases(config.store, agent=config.name, domain=config.domain)


class _Skillbook:
    """A playbook file that others write to."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            InputError: It could not be written, or is of another system's format.
            PlaybookError: It holds no playbook.
        """
        self.path = path
        check_writable(path)
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
