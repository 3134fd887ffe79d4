"""Two agents on tasks that are run or checked: what they attempted, the gate's word on it, and the run that keeps all of it.

Which tasks, and who the agents are by name, is a bench's to say: `repository_agents` has tasks of repositories, `benchmarks`
those of public benchmarks.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from pydantic import TypeAdapter

from journeyman.agents.attempt import Agent, Attempt
from journeyman.agents.replay import CallBudget, within
from journeyman.core.candidate import Candidate
from journeyman.core.errors import InputError, JourneymanError, ModelError
from journeyman.core.evaluation import Evaluation
from journeyman.core.gate import interval_of
from journeyman.core.score import Reward, Score
from journeyman.core.task import Task
from journeyman.core.trace import Trace, total
from journeyman.experiments import wiring
from journeyman.experiments.agents import see_answers
from journeyman.experiments.agents_config import KIND, AgentsConfig
from journeyman.experiments.compare import EvaluateConfig, EvaluationReport, evaluate_agents
from journeyman.experiments.evaluator import HeldOutEvaluator, Look, Subject
from journeyman.experiments.run import Run
from journeyman.io.executors import Spread
from journeyman.io.files import sha256
from journeyman.models.base import Model
from journeyman.stores import RunRecord, RunState, Store
from journeyman.tasks.base import Verifier
from journeyman.tracing.importers.jsonl import parse

_OVER = "--max-cost"
"""What a refusal for want of money speaks of."""


class EvaluationStopped(JourneymanError):
    """It was not come to an end, and can be gone on with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """An agent that takes part."""

    name: str
    """Its id in the store, which holds no secret."""
    make: Callable[[], Agent]
    settings: tuple[object, ...] = ()
    """What it is, for a look to be known again."""
    deterministic: bool = False
    learned: Candidate | None = None
    trained_on: frozenset[str] = frozenset()
    close: Callable[[], Any] | None = None


class Bench(Protocol):
    """What an evaluation works with: the tasks, what tells whether they were done, and the agents by name."""

    @property
    def config(self) -> AgentsConfig: ...

    @property
    def tasks(self) -> tuple[Task, ...]: ...

    @property
    def categories(self) -> Mapping[str, str]:
        """By task."""

    @property
    def verifier(self) -> Verifier: ...

    @property
    def kind(self) -> str:
        """Of its tasks, for a look to be known again."""

    @property
    def job(self) -> Callable[[dict[str, Any]], dict[str, Any]]:
        """What workers do with an `item`: let the agent attempt it, and give the trace and what it was worth."""

    def contestant(self, name: str) -> Contestant: ...

    async def start(self, agents: Iterable[Agent]) -> None:
        """See that these agents can attempt the tasks, and that somebody can tell what it was worth.

        Raises:
            JourneymanError: One cannot, or nobody can.
        """

    async def close(self) -> None: ...

    def item(self, task: Task, agent: str, prefix: str) -> dict[str, Any]:
        """An attempt of an agent at a task as a worker is sent it.

        Raises:
            InputError: Workers do not know tasks of this kind.
        """

    def recall(self, task: Task, trace: Trace, verdict: Reward) -> None:
        """Take in a verdict that was reached before."""

    def development(self, attempts: Iterable[Attempt]) -> Mapping[str, Any]:
        """What is told of the attempts as development work."""


def connected(config: AgentsConfig, name: str, budget: CallBudget) -> Model:
    """A model by name, which keeps to the budget where there is one.

    Raises:
        ModelError: It cannot be used.
    """
    wiring.check(name, base_url=config.base_url, key_env=config.key_env)
    model = wiring.connect(name, base_url=config.base_url, key_env=config.key_env)
    return within(model, budget) if config.max_cost is not None else model


def of_run(bench: Bench, store: Store, run: RunRecord, *, whole: bool = True) -> Contestant:
    """An agent as it did in an earlier run.

    Args:
        whole: It must have attempted all the tasks; else what it did not is unknown, as where its model refused an answer.

    Raises:
        InputError: That run was another command's, or attempted other tasks.
    """
    if run.kind != KIND:
        raise InputError(f"the run {run.id} was of `journeyman {run.kind}`; --against takes a run of `journeyman {KIND}`")
    known, tasks = Known.of(store, run.id, "candidate", bench), bench.tasks
    missing = [task.id for task in tasks if task.id not in known.traces]
    if missing and (whole or not known.traces):
        raise InputError(
            f"the run {run.id} has no attempt at {len(missing)} of these {len(tasks)} tasks; name one that attempted all"
        )
    last = next(iter(known.traces.values()))[0]
    agent = Repeated(known=known, fresh=None, candidate_id=last.candidate_id)
    return Contestant(name=f"{run.id}", make=lambda: agent, settings=(run.id,), deterministic=True)


# Attempts that were made before.


@dataclass(frozen=True, slots=True)
class Known:
    """What a run attempted, by the ids of tasks. Each attempt is given once."""

    traces: dict[str, list[Trace]]

    @classmethod
    def of(cls, store: Store, run_id: str, side: str, bench: Bench) -> "Known":
        """Of one side of a run; the verdicts that were reached are told to the bench, which need not reach them anew."""
        found: dict[str, list[Trace]] = {}
        ids = {task.id: task for task in bench.tasks}
        for record in store.attempts(run_id=run_id):
            if f"/evaluation/{side}/" not in record.id or record.trace.error is not None or record.trace.task_id not in ids:
                continue
            found.setdefault(record.trace.task_id, []).append(record.trace)
            if record.score.total is not None:
                bench.recall(ids[record.trace.task_id], record.trace, record.score.rewards[0])
        return cls(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """An agent, but for attempts that are known: those are taken as they were. Implements `attempt.Agent`."""

    known: Known
    fresh: Agent | None
    candidate_id: str

    async def run(self, task: Task) -> Any:
        """Its steps."""
        traces = self.known.traces.get(task.id, [])
        if self.fresh is None and not traces:
            raise ModelError("the earlier run was not answered here either")
        if self.fresh is None:
            # Of an earlier run there are as many attempts as it made, and more are asked for in turn.
            traces.append(traces[0])
        if traces:
            for step in traces.pop(0).steps:
                yield step
            return
        assert self.fresh is not None
        async for step in self.fresh.run(task):
            yield step


# What was found.


@dataclass(frozen=True, kw_only=True)
class AgentReport:
    """An evaluation, what it is by category, and what was measured of the work besides."""

    report: EvaluationReport
    categories: tuple[Mapping[str, Any], ...] = ()
    development: Mapping[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return self.report.passed

    @property
    def reason(self) -> str:
        return self.report.reason

    def json(self) -> dict[str, Any]:
        """The JSON of the evaluation, and below "categories" the same by category."""
        more = {"development": dict(self.development)} if self.development else {}
        return {**self.report.json(), "categories": [dict(each) for each in self.categories], **more}

    def record(self) -> dict[str, Any]:
        """As it is kept."""
        return {**self.report.record(), **{k: v for k, v in self.json().items() if k in ("categories", "development")}}

    @classmethod
    def restored(cls, record: Mapping[str, Any]) -> "AgentReport":
        """The report that `record` made, but for its attempts."""
        return cls(
            report=EvaluationReport.restored(record),
            categories=tuple(record.get("categories", ())),
            development=record.get("development", {}),
        )


def by_category(report: EvaluationReport, categories: Mapping[str, str]) -> tuple[dict[str, Any], ...]:
    """What an evaluation is in each category of its tasks, with the interval of one look.

    Args:
        categories: By task.
    """
    pairs = report.evaluation.pairs
    attempted = {attempt.task.id for attempt in (*report.baseline_attempts, *report.candidate_attempts)}
    wanted = Counter(categories[id] for id in attempted)
    return tuple(
        {
            "category": category,
            "unknown": wanted[category] - sum(categories[pair.task_id] == category for pair in pairs),
            **_of_part(replace(report.evaluation, pairs=tuple(p for p in pairs if categories[p.task_id] == category))),
            "cost": {
                side: total(attempt.trace.cost for attempt in attempts if categories[attempt.task.id] == category)
                for side, attempts in (("baseline", report.baseline_attempts), ("candidate", report.candidate_attempts))
            },
        }
        for category in sorted(wanted)
    )


def _of_part(part: Evaluation) -> dict[str, Any]:
    low, high = interval_of(part) if part.pairs else (None, None)
    found = {"tasks": part.tasks, "baseline": part.baseline, "candidate": part.candidate, "gain": part.gain}
    return {**found, "low": low, "high": high, "clusters": len(set(part.clusters)) or None}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchEvaluation:
    """Lets two agents attempt the tasks, asks the gate, and keeps all of it with a run."""

    bench: Bench
    run: Run
    done: Callable[[int, int], None] = lambda _, __: None
    """Told after each attempt how many are done, and of how many."""
    spread: Spread | None = None
    """Whoever makes the attempts, where that is not this process. The gate's word on them is this one's."""

    async def evaluate(self) -> AgentReport:
        """
        Raises:
            EvaluationStopped: The money was spent. What was attempted is kept, and the run can be gone on with.
            InputError: An agent cannot be had.
            ModelRefused: A model said no for good to every attempt.
            SandboxError: A sandbox cannot run.
        """
        bench, config = self.bench, self.bench.config
        new, old = bench.contestant(config.agent), bench.contestant(config.against)
        subject = Subject(
            candidate=new.name,
            baseline=old.name,
            tasks=bench.tasks,
            settings=self._settings(new, old),
            deterministic=new.deterministic and old.deterministic,
            trained_on=new.trained_on | old.trained_on,
            learned=new.learned,
        )

        async def measure(look: Look) -> AgentReport:
            return await self._measured(new, old, look)

        # A run that is gone on with looks at what it has not seen yet: that is the same look.
        evaluator = HeldOutEvaluator(store=self.run.store, clock=self.run.clock, nonce=lambda: self.run.id)
        try:
            await bench.start((new.make(), old.make()))
            return await evaluator.evaluate(
                subject,
                measure,
                id=self.run.id,
                records=lambda found: [(old.name, found)],
                attempts=lambda found: self.run.records((*found.report.baseline_attempts, *found.report.candidate_attempts)),
                restore=AgentReport.restored,
            )
        finally:
            await bench.close()
            for each in (new, old):
                if each.close is not None:
                    await each.close()

    def _settings(self, new: Contestant, old: Contestant) -> dict[str, object]:
        config = self.bench.config
        return {
            "agents": [[each.name, *each.settings] for each in (new, old)],
            "gate": repr(config.gate),
            "trials": config.attempts_per_task,
            "timeout": config.timeout,
            "verifier": self.bench.kind,
        }

    async def _measured(self, new: Contestant, old: Contestant, look: Look) -> AgentReport:
        config, finished = self.bench.config, [0]

        def done(attempt: Attempt) -> None:
            finished[0] += 1
            if attempt.trace.error is None:
                # As soon as it is there: a run that is killed loses what is under way, and nothing else.
                self.run.keep([attempt])
            self.done(finished[0], 2 * config.attempts_per_task * len(look.tasks))

        if self.spread is not None:
            self._attempted_by(self.spread, {"baseline": old, "candidate": new}, look, done)
            finished[0] = 0
        report = await evaluate_agents(
            self._repeated(new, "candidate"),
            self._repeated(old, "baseline"),
            look.tasks,
            self.bench.verifier,
            gate=config.gate,
            config=EvaluateConfig(
                attempts_per_task=config.attempts_per_task,
                looks=look.before,
                contaminated=look.contaminated,
                prefix=f"{self.run.id}/evaluation",
                clock=self.run.clock,
                done=done,
            ),
        )
        attempts = (*report.baseline_attempts, *report.candidate_attempts)
        if spent := next((each.trace.error for each in attempts if _OVER in (each.trace.error or "")), None):
            ended = sum(each.trace.error is None for each in attempts)
            raise EvaluationStopped(f"{ended} of {len(attempts)} attempts were made: {spent}")
        see_answers(report)
        by = by_category(report, self.bench.categories)
        return AgentReport(report=report, categories=by, development=self._development(report))

    def _attempted_by(
        self, spread: Spread, sides: Mapping[str, Contestant], look: Look, done: Callable[[Attempt], None]
    ) -> None:
        """Have workers make the attempts that the run does not have yet, and keep each: they are repeated here.

        Raises:
            EvaluationStopped: Some were given up. The others are kept.
        """
        config, given_up = self.bench.config, list[str]()
        tasks, wanted = {task.id: task for task in look.tasks}, list[dict[str, Any]]()
        for side, contestant in sides.items():
            if isinstance(agent := self._repeated(contestant, side), Repeated) and agent.fresh is None:
                continue
            known = agent.known.traces if isinstance(agent, Repeated) else {}
            for task in look.tasks:
                for trial in range(len(known.get(task.id, ())), config.attempts_per_task):
                    name = config.agent if side == "candidate" else config.against
                    wanted.append(self.bench.item(task, name, f"{self.run.id}/evaluation/{side}/{trial}"))

        def failed(item: dict[str, Any], why: str) -> dict[str, Any]:
            given_up.append(f"{item['prefix'].rpartition('/evaluation/')[2]} {item['task'].get('id', '')}: {why}")
            return {}

        for found in filter(None, spread.map(self.bench.job, wanted, failed=failed)):
            trace = parse(found["trace"], name="").trace
            done(Attempt(tasks[trace.task_id], trace, SCORE.validate_python(found["score"])))
        if given_up:
            raise EvaluationStopped(f"{len(given_up)} of {len(wanted)} attempts were given up; the first: {given_up[0]}")

    def _repeated(self, contestant: Contestant, side: str) -> Agent:
        agent = contestant.make()
        known = Known.of(self.run.store, self.run.id, side, self.bench)
        return Repeated(known=known, fresh=agent, candidate_id=agent.candidate_id) if known.traces else agent

    def _development(self, report: EvaluationReport) -> dict[str, Any]:
        if self.bench.config.rewards == "none":
            return {}
        sides = {"baseline": report.baseline_attempts, "candidate": report.candidate_attempts}
        return {side: dict(self.bench.development(attempts)) for side, attempts in sides.items()}


SCORE = TypeAdapter(Score)
"""As workers send it."""


# Its run in the store: begun, and gone on with.


def begun(config: AgentsConfig, store: Store) -> Run:
    """A run of its own."""
    told = {name: value for name, value in asdict(config).items() if name not in OF_THE_PLACE}
    return Run.new("agents", kind=KIND, config={**told, "tasks_digest": _digest(config)}, store=store)


def reopened(store: Store, run_id: str, place: AgentsConfig) -> tuple[AgentsConfig, Run]:
    """A run that is not over, and what it was told.

    Args:
        run_id: Empty for the one that began last.
        place: What says where things are kept, and what may be spent from now on.

    Raises:
        InputError: There is none, or the tasks are not what they were.
    """
    over = (RunState.FINISHED, RunState.FAILED)
    found = next((run for run in store.runs(KIND, newest_first=True) if run_id in ("", run.id) and run.state not in over), None)
    if found is None:
        raise InputError(
            f"there is no unfinished run {run_id}".rstrip() + f" of `journeyman {KIND}`; begin one without --resume"
        )
    told = {name: value for name, value in found.config.items() if name != "tasks_digest"}
    kept: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}
    kept |= {name: getattr(place, name) for name in OF_THE_PLACE}
    if place.max_cost is not None:
        kept["max_cost"] = place.max_cost
    config = AgentsConfig(**kept)
    if _digest(config) != found.config["tasks_digest"]:
        raise InputError(
            f"{config.tasks} is not what it was when the run {found.id} began; bring it back, or begin another run"
        )
    return config, Run(id=found.id, kind=KIND, config=found.config, store=store)


OF_THE_PLACE = ("project", "store")
"""What says where things are kept, and not what is done."""


def _digest(config: AgentsConfig) -> str:
    """Of the file of tasks: a run goes on with the same ones."""
    path = Path(config.tasks)
    if path.is_dir():
        return ",".join(sha256(each) for each in sorted(path.rglob("*")) if each.is_file())
    return sha256(path) if path.is_file() else ""
