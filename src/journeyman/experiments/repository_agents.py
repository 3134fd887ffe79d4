"""Agents on tasks of repositories: who they are by name, and what was measured of their work besides."""

import asyncio
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from journeyman import models
from journeyman.agents.answer import nothing
from journeyman.agents.attempt import Agent, Attempt, attempt_all
from journeyman.agents.command import AgentUpstream, CommandAgent, beside, label
from journeyman.agents.mcp import McpServer
from journeyman.agents.replay import CallBudget
from journeyman.agents.repository import RepositoryAgent
from journeyman.agents.workshop import SUBMIT, PreparedAgent, RepositoryWorkshop, WorkLimits, left_in
from journeyman.core.candidate import BASE
from journeyman.core.errors import InputError
from journeyman.core.playbook import Playbook
from journeyman.core.score import Reward
from journeyman.core.task import Split, Task
from journeyman.core.trace import Trace, average
from journeyman.experiments import settings, wiring
from journeyman.experiments.agent_evaluation import OF_THE_PLACE, SCORE, Contestant, connected, of_run
from journeyman.experiments.agents import adapter_trained_on, candidate_of
from journeyman.experiments.agents_config import COMMAND, NOTHING, OWN, REFERENCE, AgentsConfig
from journeyman.experiments.task_generation.generate import FOLDER, workplaces
from journeyman.io.executors.jobs import JobItem, from_outside
from journeyman.models import embedders
from journeyman.models.base import takes_tools
from journeyman.optimizers.playbook.retrieval import chooser
from journeyman.rewards.development import DevelopmentReward, DevelopmentWork, WorkCheckResult
from journeyman.sandbox import environments
from journeyman.sandbox.base import Interpreter
from journeyman.stores import Store, open_store
from journeyman.stores.urls import MEMORY
from journeyman.tasks import repository
from journeyman.tasks.repository import RepositoryTask
from journeyman.tracing.importers.jsonl import line
from journeyman.tracing.redaction import Redactor


class RepositoryBench:
    """A bench of tasks of repositories. Implements `Bench`."""

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

    @property
    def categories(self) -> Mapping[str, str]:
        return {task.id: task.category for task in self.own}

    @property
    def verifier(self) -> RepositoryWorkshop:
        return self.workshop

    kind = "repository"

    @property
    def job(self) -> Callable[[dict[str, Any]], dict[str, Any]]:
        return attempt_item

    async def start(self, agents: Iterable[Agent]) -> None:
        await self.workshop.start()
        for agent in agents:
            if isinstance(agent, CommandAgent):
                agent.check()
            elif isinstance(agent, RepositoryAgent):
                await agent.check()

    async def close(self) -> None:
        await self.workshop.close()

    def item(self, task: Task, agent: str, prefix: str) -> dict[str, Any]:
        told = {n: v for n, v in asdict(self.config).items() if n not in OF_THE_PLACE}
        return _AttemptItem(
            task=self.workshop.of(task).as_json(),
            agent=agent,
            prefix=prefix,
            folder=self.config.environments or str(FOLDER),
            sandbox=self.config.sandbox,
            config=json.loads(json.dumps(told)),
        ).json_item()

    def recall(self, task: Task, trace: Trace, verdict: Reward) -> None:
        own = self.workshop.of(task)
        self.workshop.known[own.id, self.workshop.examined(own, trace).digest] = verdict

    def development(self, attempts: Iterable[Attempt]) -> Mapping[str, Any]:
        return development_of(self.workshop, attempts)

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
            return of_run(self, self.store, run)
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
        model = connected(config, name, self.budget)
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
    return {"trace": json.loads(line(found.trace)), "score": SCORE.dump_python(found.score, mode="json")}


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
