"""Training a playbook on scenarios: what `journeyman train playbook --scenarios` runs.

    trainer = ScenarioTrainer(ScenarioConfig(input_path="my_scenarios.yaml", generator_model="openai:gpt-5-mini"))
    result = trainer.train()

A scenario is a task, and the checks are its verifier, so that runs, journals, resuming, limits on cost and the gate are those
of any training run. What is added is an agent that writes code and runs it, and the file of results.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from journeyman import app, estimate, sandbox
from journeyman.agents.coder import ROUNDS, Coder
from journeyman.agents.workshop import ScenarioWorkshop
from journeyman.errors import InputError, SettingError
from journeyman.learn.playbook import files
from journeyman.learn.playbook.progress import Progress
from journeyman.learn.playbook.runs import Run
from journeyman.learn.playbook.trainer import Unwatched, Watcher
from journeyman.offline import OfflineTrainer
from journeyman.playbook import Playbook
from journeyman.results import Results, Row, row_of
from journeyman.rollout import Agent, Attempt
from journeyman.sandbox.base import Program, Sandbox
from journeyman.task import Split, Task
from journeyman.tasks.base import Dataset
from journeyman.tasks.scenarios import Scenario, builtin, load
from journeyman.trace import Step
from journeyman.training import TrainingConfig, TrainingResult

DATASET = "scenarios"
SKILLBOOK = "playbooks/skillbook.json"
REPLY = 900
"""Tokens of a small program with what is said about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioConfig(TrainingConfig):
    """What a training run on scenarios can be told, beyond what any can."""

    dataset_name: str = DATASET
    input_path: str = ""
    """The file of scenarios; without one the five that ship with the package."""
    held_out_path: str = ""
    """A file of scenarios to be examined on; each of them needs checks."""
    domain: str = ""
    """Only scenarios of this category."""
    num_examples: int = 100_000
    batch_merge_size: int = 1
    """One after the other, so that each begins with what the one before taught."""
    evaluate: bool = False
    """Needs `held_out_path`."""
    output_playbook_path: str = SKILLBOOK
    output_metrics_path: str = "metrics/scenario_training_metrics.json"
    rounds: int = ROUNDS
    """Calls at most for one attempt: the first writes, the others repair."""
    results: str = "results"
    """The folder of the results file."""

    def __post_init__(self) -> None:
        TrainingConfig.__post_init__(self)
        if not 1 <= self.rounds <= 20:
            raise SettingError("rounds", f"{{}} is {self.rounds}, and must be from 1 to 20")
        if self.evaluate and not self.held_out_path:
            raise InputError("an evaluation needs held-out scenarios: name a file of them (--held-out-input), or leave it out")


class ScenarioWatcher(Watcher, Protocol):
    """Whoever wants to see a run on scenarios."""

    def started(self, scenario: Scenario) -> None:
        """An attempt at it begins."""

    def scored(self, row: Row, done: int) -> None:
        """It is over and written down; `done` attempts are, with it."""


class _Unseen(Unwatched):
    def started(self, scenario: Scenario) -> None:
        pass

    def scored(self, row: Row, done: int) -> None:
        pass


class ScenarioTrainer(OfflineTrainer):
    """Trains a playbook on scenarios, and keeps a file of results as it goes."""

    config: ScenarioConfig

    def __init__(self, config: ScenarioConfig, *, watcher: ScenarioWatcher | None = None) -> None:
        super().__init__(config)
        self.seen: ScenarioWatcher = watcher or _Unseen()
        self.results: Results | None = None
        """Of the run, once it is under way."""
        self._workshop: ScenarioWorkshop | None = None
        self._agent = self._announced

    @property
    def workshop(self) -> ScenarioWorkshop:
        """Where the scenarios of this run are worked on."""
        _ = self.dataset
        assert self._workshop is not None
        return self._workshop

    @property
    def planned(self) -> int:
        """Attempts of the whole run."""
        return self.examples * self.config.attempts

    def work(self) -> estimate.Work:
        return replace(super().work(), calls=self.config.rounds, reply=REPLY)

    async def _finish(self, run: Run) -> TrainingResult:
        """Train from where the run is to its end. The file of results is written after every attempt."""
        # Not before the run is ours alone: another process may be writing its results.
        self.results = Results.of_run(run, Path(self.config.results), planned=self.planned)
        self.watcher = _Recording(self.seen, self.results, self.workshop)
        try:
            return await super()._finish(run)
        finally:
            await self.workshop.close()

    def _check(self) -> None:
        super()._check()
        files.check_writable(Path(self.config.results) / "results.json")
        if any(scenario.checks or scenario.runs for scenario in self.workshop.scenarios):
            asyncio.run(self._try_walls())

    async def _try_walls(self) -> None:
        """Find out that code can be run, before a model is asked for any."""
        walls = self._open()
        try:
            await walls.start()
            if any(check.kind == "pytest" for scenario in self.workshop.scenarios for check in scenario.checks):
                await walls.run(Program(code="def test_begin():\n    assert True\n", language="pytest"))
        finally:
            await walls.close()

    def _open(self) -> Sandbox:
        return sandbox.load(self.config.sandbox)

    def _of(self, path: str) -> tuple[Scenario, ...]:
        found = load(path) if path else builtin.examples()
        return tuple(scenario for scenario in found if self.config.domain in ("", scenario.category))

    def _selected(self) -> Dataset:
        train = self._of(self.config.input_path)[: self.config.num_examples]
        if not train:
            raise InputError(f"no scenario is of category {self.config.domain!r}; leave out --domain, or name another")
        held_out = self._of(self.config.held_out_path)[: self.config.held_out] if self.config.held_out_path else ()
        _provable(train, held_out, self.config.held_out_path)
        self._workshop = ScenarioWorkshop((*train, *held_out), self._open)
        tasks = (*(scenario.task() for scenario in train), *(scenario.task(Split.HELD_OUT) for scenario in held_out))
        return Dataset(name=DATASET, tasks=tasks, verifier=self._workshop)

    def _digest(self) -> str:
        """With the checks, which stand in no task."""
        told = json.dumps([asdict(scenario) for scenario in self.workshop.scenarios], sort_keys=True)
        return hashlib.sha256(f"{super()._digest()} {told}".encode()).hexdigest()[:16]

    def _announced(self, **made: Any) -> Agent:
        coder = Coder(workshop=self.workshop, rounds=self.config.rounds, **made)
        return _Announced(coder, lambda task: self.seen.started(self.workshop.scenario(task)))


@dataclass(frozen=True, slots=True)
class _Announced:
    """Says when an attempt at a training task begins."""

    agent: Agent
    begin: Callable[[Task], None]

    @property
    def candidate_id(self) -> str:
        return self.agent.candidate_id

    async def run(self, task: Task) -> AsyncIterator[Step]:
        if task.split is not Split.HELD_OUT:
            self.begin(task)
        async for step in self.agent.run(task):
            yield step


class _Recording:
    """Writes every attempt into the results, and lets another watcher see everything."""

    def __init__(self, seen: ScenarioWatcher, results: Results, workshop: ScenarioWorkshop) -> None:
        self._seen = seen
        self._results = results
        self._workshop = workshop

    def attempted(self, attempt: Attempt) -> None:
        row = row_of(attempt, self._workshop.scenario(attempt.task), at=app.now())
        self._results.add(row)
        self._seen.attempted(attempt)
        self._seen.scored(row, len(self._results.rows))

    def merged(self, playbook: Playbook, progress: Progress, tasks: int) -> None:
        self._results.learned(len(playbook.active), progress.reflector)
        self._seen.merged(playbook, progress, tasks)

    def evaluated(self, done: int, total: int) -> None:
        self._seen.evaluated(done, total)


def _provable(train: Sequence[Scenario], held_out: Sequence[Scenario], path: str) -> None:
    """Refuse held-out scenarios that would prove nothing."""
    known = {scenario.name.casefold() for scenario in train} | {scenario.brief for scenario in train}
    for scenario in held_out:
        if not scenario.checks:
            raise InputError(f"{path}: {scenario.name!r} has no checks, and what is only read proves nothing; give it some")
        if scenario.name.casefold() in known or scenario.brief in known:
            raise InputError(f"{path}: {scenario.name!r} is trained on too; held-out scenarios must be others")
