"""Two agents on tasks of repositories: who they are by name, what they did, and the gate's word on it."""

import asyncio
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from journeyman import models
from journeyman.agents.answer import nothing
from journeyman.agents.attempt import Agent, Attempt, attempt_all
from journeyman.agents.command import AgentUpstream, CommandAgent, beside, label
from journeyman.agents.mcp import McpServer
from journeyman.agents.replay import CallBudget, within
from journeyman.agents.repository import RepositoryAgent
from journeyman.agents.workshop import SUBMIT, PreparedAgent, RepositoryWorkshop, WorkLimits, left_in
from journeyman.core.candidate import BASE, Candidate
from journeyman.core.errors import InputError, JourneymanError
from journeyman.core.evaluation import Evaluation
from journeyman.core.gate import interval_of
from journeyman.core.playbook import Playbook
from journeyman.core.score import Score
from journeyman.core.task import Split, Task
from journeyman.core.trace import Trace, average, total
from journeyman.experiments import settings, wiring
from journeyman.experiments.agents import adapter_trained_on, candidate_of, see_answers
from journeyman.experiments.agents_config import COMMAND, KIND, NOTHING, OWN, REFERENCE, AgentsConfig
from journeyman.experiments.compare import EvaluateConfig, EvaluationReport, evaluate_agents
from journeyman.experiments.evaluator import HeldOutEvaluator, Look, Subject
from journeyman.experiments.run import Run
from journeyman.experiments.task_generation.generate import FOLDER, workplaces
from journeyman.io.executors import Spread
from journeyman.io.executors.jobs import JobItem, from_outside
from journeyman.io.files import sha256
from journeyman.models import embedders
from journeyman.models.base import takes_tools
from journeyman.optimizers.playbook.retrieval import chooser
from journeyman.rewards.development import DevelopmentReward, DevelopmentWork, WorkCheckResult
from journeyman.sandbox import environments
from journeyman.sandbox.base import Interpreter
from journeyman.stores import RunRecord, RunState, Store, open_store
from journeyman.stores.urls import MEMORY
from journeyman.tasks import repository
from journeyman.tasks.repository import RepositoryTask
from journeyman.tracing.importers.jsonl import line, parse
from journeyman.tracing.redaction import Redactor

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


class RepositoryBench:
    """What an evaluation works with: the tasks, their workshop, and the agents by name."""

    def __init__(
        self,
        config: AgentsConfig,
        store: Store,
        *,
        tasks: tuple[RepositoryTask, ...] = (),
        said: Callable[[str], None] = lambda _: None,
    ) -> None:
        """
        Args:
            tasks: Instead of those of the file.

        Raises:
            InputError: The file holds no task that is asked for.
        """
        self.config, self.store = config, store
        self.own = tasks or _chosen(config)
        self.budget = CallBudget(max_cost=config.max_cost)
        folder = Path(config.environments or FOLDER)
        self._agents_python = _agents_python(config, folder, said)
        shown = beside(self._agents_python)

        self.workshop = RepositoryWorkshop(
            self.own, *workplaces(folder, config.sandbox, shown), jobs=config.jobs, plugins=config.plugin
        )
        self._limits = WorkLimits(rounds=config.rounds, wall_seconds=config.timeout)
        self._mcp = _mcp_servers(config, self._limits)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """As an evaluator takes them, in clusters that can be told apart."""
        return repository.clustered(self.own, self.config.min_clusters)

    def contestant(self, name: str) -> Contestant:
        """An agent by its name.

        Raises:
            InputError: There is none of that name, or it lacks something.
            ModelError: Its model cannot be used.
        """
        if name in (REFERENCE, NOTHING):
            return self._prepared(name)
        if name.startswith(COMMAND):
            return self._command(name.removeprefix(COMMAND))
        if (run := self.store.run(name)) is not None:
            return self._of_run(run)
        own = name == OWN
        if own and not self.config.generator_model:
            raise InputError(f"{OWN} needs a model to work with: --model, or generator_model in [models] of journeyman.toml")
        return self._with_model(self.config.generator_model if own else name, self.config.playbook if own else "")

    def _prepared(self, name: str) -> Contestant:
        def changes(task: RepositoryTask) -> Mapping[str, str | None]:
            return task.reference if name == REFERENCE else {}

        agent = PreparedAgent(workshop=self.workshop, changes=changes, candidate_id=name)
        return Contestant(name=name, make=lambda: agent, deterministic=True)

    def _command(self, command: str) -> Contestant:
        why = "agents need no key of their own: calls of their models get it from OPENAI_API_KEY here"
        _see_no_secret(label(command), command, why)
        url = self.config.base_url or os.environ.get("OPENAI_BASE_URL", "")
        if not url:
            raise InputError(
                "a command needs the one server that its models answer at: --base-url, such as http://127.0.0.1:8080/v1 of "
                "`journeyman serve`"
            )
        key = os.environ.get(self.config.key_env or models.KEY, "").strip()
        packages = self._agents_python.prefix if self._agents_python else ""
        told = [command, self.config.generator_model, url, Path(packages).name]
        name = f"cmd:{label(command)}-{hashlib.sha256(repr(told).encode()).hexdigest()[:8]}"
        agent = CommandAgent(
            workshop=self.workshop,
            command=command,
            upstream=AgentUpstream(base_url=url.rstrip("/"), key=key),
            model=self.config.generator_model,
            environment=self._agents_python,
            candidate_id=name,
            limits=self._limits,
            budget=self.budget,
        )
        return Contestant(name=name, make=lambda: agent, settings=tuple(told))

    def _with_model(self, name: str, playbook: str) -> Contestant:
        config = self.config
        wiring.check(name, base_url=config.base_url, key_env=config.key_env)
        model = wiring.connect(name, base_url=config.base_url, key_env=config.key_env)
        if config.max_cost is not None:
            model = within(model, self.budget)
        learned = Playbook.load(playbook) if playbook else Playbook()
        candidate = candidate_of(learned)
        choose = chooser(learned, embedders.load(config.embedder)) if candidate else nothing
        agent = RepositoryAgent(
            model=model,
            workshop=self.workshop,
            candidate_id=candidate.id if candidate else BASE,
            limits=self._limits,
            choose=choose,
            calls=config.tool_calls == "auto",
            mcp=self._mcp,
        )
        calls = ("calls",) if agent.calls and takes_tools(model) else ()
        return Contestant(
            name=candidate.id if candidate else f"{BASE}@{model.name}",
            make=lambda: agent,
            settings=(model.name, config.rounds, *calls, *config.mcp),
            deterministic=model.deterministic and not config.mcp,
            learned=candidate,
            trained_on=learned.trained_on | adapter_trained_on(name),
            close=model.close,
        )

    def _of_run(self, run: RunRecord) -> Contestant:
        """An agent as it did in an earlier run.

        Raises:
            InputError: That run was another command's, or attempted other tasks.
        """
        if run.kind != KIND:
            raise InputError(f"the run {run.id} was of `journeyman {run.kind}`; --against takes a run of `journeyman {KIND}`")
        known = Known.of(self.store, run.id, "candidate", self.workshop)
        if missing := [task.id for task in self.own if task.id not in known.traces]:
            raise InputError(
                f"the run {run.id} has no attempt at {len(missing)} of these {len(self.own)} tasks; name one that attempted all"
            )
        last = next(iter(known.traces.values()))[0]
        agent = Repeated(known=known, fresh=None, candidate_id=last.candidate_id)
        return Contestant(name=f"{run.id}", make=lambda: agent, settings=(run.id,), deterministic=True)


def _chosen(config: AgentsConfig) -> tuple[RepositoryTask, ...]:
    if not config.tasks or not config.agent:
        raise InputError("--tasks FILE names the tasks, and --agent who is to do them; both are needed")
    found = [task for task in repository.read(Path(config.tasks)) if not config.category or task.category in config.category]
    if config.split == "held_out":
        found = [task for task in found if task.split is Split.HELD_OUT]
    if not found:
        asked = " ".join([*(f"--category {each}" for each in config.category), f"--split {config.split}"])
        raise InputError(f"{config.tasks} holds no task for {asked}")
    return tuple(found[: config.most])


def _mcp_servers(config: AgentsConfig, limits: WorkLimits) -> tuple[McpServer, ...]:
    servers = tuple(
        McpServer(command=command, variables=tuple(config.mcp_variable), seconds=limits.run_seconds) for command in config.mcp
    )
    if servers and all(each in (REFERENCE, NOTHING) or each.startswith(COMMAND) for each in (config.agent, config.against)):
        raise InputError("--mcp is for agents with a model: journeyman, or a model's name; a command brings tools of its own")
    for server in servers:
        _see_no_secret(label(server.command), server.command, "give it by --mcp-variable NAME, and set that variable here")
        if missing := [name for name in server.variables if name not in os.environ]:
            raise InputError(f"--mcp-variable {missing[0]}: there is no such variable in the environment")
    return servers


def _see_no_secret(name: str, command: str, instead: str) -> None:
    if Redactor(()).text(command) != command:
        raise InputError(f"the command {name} holds what looks like a secret, and it is kept with the run; {instead}")


def _agents_python(config: AgentsConfig, folder: Path, said: Callable[[str], None]) -> Interpreter | None:
    """The Python of a command's own packages, made where it is not there yet."""
    if not config.agent_package:
        return None
    if not (config.agent.startswith(COMMAND) or config.against.startswith(COMMAND)):
        raise InputError('--agent-package is for agents that are commands, as in cmd:"my_agent {workspace}"')
    needs = environments.PackageNeeds(name="agent", version="0", requirements=tuple(config.agent_package))
    return environments.build(folder, needs, said=said).interpreter


# Attempts that were made before.


@dataclass(frozen=True, slots=True)
class Known:
    """What a run attempted, by the ids of tasks. Each attempt is given once."""

    traces: dict[str, list[Trace]]

    @classmethod
    def of(cls, store: Store, run_id: str, side: str, workshop: RepositoryWorkshop) -> "Known":
        """Of one side of a run; the verdicts that were reached are told to the workshop, which does not reach them anew."""
        found: dict[str, list[Trace]] = {}
        ids = {task.id: task for task in workshop.tasks}
        for record in store.attempts(run_id=run_id):
            if f"/evaluation/{side}/" not in record.id or record.trace.error is not None or record.trace.task_id not in ids:
                continue
            found.setdefault(record.trace.task_id, []).append(record.trace)
            if record.score.total is not None:
                own = ids[record.trace.task_id]
                workshop.known[own.id, workshop.examined(own, record.trace).digest] = record.score.rewards[0]
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


def development_of(workshop: RepositoryWorkshop, attempts: Iterable[Attempt]) -> dict[str, Any]:
    """What the attempts that ended are worth as development work: the mean of the whole and of each component.

    Raises:
        MissingExtra: What measures code is not installed.
    """
    values: dict[str, list[float | None]] = {}
    for attempt in attempts:
        if attempt.trace.error is not None:
            continue
        work = development_work(workshop, attempt)
        found = DevelopmentReward(find=lambda _, work=work: work).compute(attempt.trace)  # type: ignore[misc]
        values.setdefault("development", []).append(found.score)
        for name, part in found.details.get("components", {}).items():
            values.setdefault(name, []).append(part["score"])
    return {
        name: {"mean": average([each for each in known if each is not None]), "unknown": known.count(None)}
        for name, known in values.items()
    }


def development_work(workshop: RepositoryWorkshop, attempt: Attempt) -> DevelopmentWork:
    """An attempt as the development rewards see it. Its verdict stands for the checks."""
    own = workshop.of(attempt.task)
    start = own.start(workshop.tree(own))
    left = start.changed(left_in(attempt.trace))
    tests = len(own.checks.fail_to_pass) + len(own.checks.pass_to_pass)
    passed = attempt.score.total
    check = WorkCheckResult(
        name="tests of the task",
        passed=None if passed is None else passed == 1.0,
        tests=max(1, tests),
        evidence=attempt.score.evidence,
    )
    # That it left what it left is no decision of its own.
    trace = replace(attempt.trace, steps=tuple(step for step in attempt.trace.steps if getattr(step, "tool", "") != SUBMIT))
    texts = [{path: tree.text(path) for path in tree.files if path.endswith(".py")} for tree in (start, left)]
    return DevelopmentWork(trace=trace, before=texts[0], after=texts[1], checks=(check,))


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryEvaluation:
    """Lets two agents attempt the tasks, asks the gate, and keeps all of it with a run."""

    bench: RepositoryBench
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
            await bench.workshop.start()
            for agent in (new.make(), old.make()):
                if isinstance(agent, CommandAgent):
                    agent.check()
                elif isinstance(agent, RepositoryAgent):
                    await agent.check()
            return await evaluator.evaluate(
                subject,
                measure,
                id=self.run.id,
                records=lambda found: [(old.name, found)],
                attempts=lambda found: self.run.records((*found.report.baseline_attempts, *found.report.candidate_attempts)),
                restore=AgentReport.restored,
            )
        finally:
            await bench.workshop.close()
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
            "verifier": "repository",
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
            self.bench.workshop,
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
        categories = {task.id: task.category for task in self.bench.own}
        return AgentReport(report=report, categories=by_category(report, categories), development=self._development(report))

    def _attempted_by(
        self, spread: Spread, sides: Mapping[str, Contestant], look: Look, done: Callable[[Attempt], None]
    ) -> None:
        """Have workers make the attempts that the run does not have yet, and keep each: they are repeated here.

        Raises:
            EvaluationStopped: Some were given up. The others are kept.
        """
        config, given_up = self.bench.config, list[str]()
        told = {n: v for n, v in asdict(config).items() if n not in _OF_THE_PLACE}
        tasks, wanted = {task.id: task for task in look.tasks}, list[dict[str, Any]]()
        for side, contestant in sides.items():
            if isinstance(agent := self._repeated(contestant, side), Repeated) and agent.fresh is None:
                continue
            known = agent.known.traces if isinstance(agent, Repeated) else {}
            for task in look.tasks:
                for trial in range(len(known.get(task.id, ())), config.attempts_per_task):
                    name = config.agent if side == "candidate" else config.against
                    prefix = f"{self.run.id}/evaluation/{side}/{trial}"
                    own = self.bench.workshop.of(task).as_json()
                    item = _AttemptItem(
                        task=own,
                        agent=name,
                        prefix=prefix,
                        folder=config.environments or str(FOLDER),
                        sandbox=config.sandbox,
                        config=json.loads(json.dumps(told)),
                    )
                    wanted.append(item.json_item())

        def failed(item: dict[str, Any], why: str) -> dict[str, Any]:
            given_up.append(f"{item['task'].get('id', item['prefix'])}: {why}")
            return {}

        for found in filter(None, spread.map(attempt_item, wanted, failed=failed)):
            trace = parse(found["trace"], name="").trace
            done(Attempt(tasks[trace.task_id], trace, _SCORE.validate_python(found["score"])))
        if given_up:
            raise EvaluationStopped(f"{len(given_up)} of {len(wanted)} attempts were given up; the first: {given_up[0]}")

    def _repeated(self, contestant: Contestant, side: str) -> Agent:
        agent = contestant.make()
        known = Known.of(self.run.store, self.run.id, side, self.bench.workshop)
        return Repeated(known=known, fresh=agent, candidate_id=agent.candidate_id) if known.traces else agent

    def _development(self, report: EvaluationReport) -> dict[str, Any]:
        if self.bench.config.rewards == "none":
            return {}
        sides = {"baseline": report.baseline_attempts, "candidate": report.candidate_attempts}
        return {side: development_of(self.bench.workshop, attempts) for side, attempts in sides.items()}


_SCORE = TypeAdapter(Score)


class _AttemptItem(JobItem):
    task: dict[str, Any]
    agent: str
    prefix: str
    folder: str
    sandbox: str
    config: dict[str, Any]
    """Of the evaluation, but for what says where things are kept."""


def attempt_item(item: dict[str, Any]) -> dict[str, Any]:
    """What an evaluation sends to workers: lets an agent attempt a task; the trace, and what it was worth.

    Raises:
        InputError: It came by way of a database, and is of another agent than `reference`, `nothing` or a model that the
            worker's own project names: its key goes nowhere else.
    """
    asked = _AttemptItem.read(item)
    said: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in asked.config.items()}
    config = AgentsConfig(**said)
    if from_outside():
        config = _ours(config, asked.agent)
    config = replace(config, environments=asked.folder, sandbox=asked.sandbox)
    task = repository.of_json(asked.task)

    async def attempted() -> Attempt:
        with open_store(MEMORY) as store:
            bench = RepositoryBench(config, store, tasks=(task,))
            contestant = bench.contestant(asked.agent)
            try:
                await bench.workshop.start()
                tasks = [each for each in bench.tasks if each.id == task.id]
                agent = contestant.make()
                (found,) = await attempt_all(agent, tasks, bench.workshop, prefix=asked.prefix, clock=wiring.now)
                return found
            finally:
                await bench.workshop.close()
                if contestant.close is not None:
                    await contestant.close()

    found = asyncio.run(attempted())
    return {"trace": json.loads(line(found.trace)), "score": _SCORE.dump_python(found.score, mode="json")}


def _ours(config: AgentsConfig, agent: str) -> AgentsConfig:
    """What counts of a configuration from outside: models, servers and keys are the worker's own, and nothing is installed."""
    own = settings.load().settings.models
    named = own.generator_model
    wanted = config.generator_model if agent == OWN else agent
    if agent not in (REFERENCE, NOTHING) and (agent.startswith(COMMAND) or config.playbook or wanted != named):
        raise InputError(
            f"a worker lets {REFERENCE}, {NOTHING} and the model that its own journeyman.toml names attempt tasks "
            f"({named or 'none'}), and not {label(agent)}; take local or ray"
        )
    ours: dict[str, Any] = {"generator_model": named, "base_url": own.base_url, "key_env": own.key_env}
    return AgentsConfig(agent=agent, rounds=config.rounds, timeout=config.timeout, plugin=config.plugin, **ours)


# Its run in the store: begun, and gone on with.


def begun(config: AgentsConfig, store: Store) -> Run:
    """A run of its own."""
    told = {name: value for name, value in asdict(config).items() if name not in _OF_THE_PLACE}
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
    kept |= {name: getattr(place, name) for name in _OF_THE_PLACE}
    if place.max_cost is not None:
        kept["max_cost"] = place.max_cost
    config = AgentsConfig(**kept)
    if _digest(config) != found.config["tasks_digest"]:
        raise InputError(
            f"{config.tasks} is not what it was when the run {found.id} began; bring it back, or begin another run"
        )
    return config, Run(id=found.id, kind=KIND, config=found.config, store=store)


_OF_THE_PLACE = ("project", "store")


def _digest(config: AgentsConfig) -> str:
    """Of the file of tasks: a run goes on with the same ones."""
    path = Path(config.tasks)
    return sha256(path) if path.is_file() else ""
