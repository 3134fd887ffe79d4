"""Training a playbook on scenarios: what `journeyman train playbook --scenarios` runs.

    trainer = ScenarioTrainer(ScenarioConfig(input_path="my_scenarios.yaml", generator_model="openai:gpt-5-mini"))
    result = trainer.train()

A scenario is a task, and the checks are its verifier, so that runs, journals, resuming, limits on cost and the gate are those
of any training run. What is added is an agent that writes code and runs it, and the file of results.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from journeyman import sandbox
from journeyman.agents.attempt import Agent, Attempt
from journeyman.agents.coder import CHECKS, Coder, ScenarioWorkshop, last_files
from journeyman.core.errors import InputError, boundary
from journeyman.core.playbook import Playbook
from journeyman.core.task import Split, Task
from journeyman.core.trace import Step, total
from journeyman.experiments import wiring
from journeyman.experiments.playbook import cost_estimate
from journeyman.experiments.playbook.config import SCENARIOS, ScenarioConfig
from journeyman.experiments.playbook.training import OfflineTrainer, TrainingResult
from journeyman.io.atomic import write_json
from journeyman.io.files import check_writable
from journeyman.optimizers.playbook.run import PlaybookRun, Progress, Spent
from journeyman.optimizers.playbook.trainer import Unwatched, Watcher
from journeyman.sandbox.base import Program, Sandbox
from journeyman.tasks.base import Dataset
from journeyman.tasks.scenarios import Scenario, builtin, load

# The file of results that a training run on scenarios leaves: one row for each attempt, and sums.
#
# The fields that users of older systems know keep their names; what is not known is null, never 0.

Row = Mapping[str, Any]
"""One attempt, as it stands in the file; see docs/scenarios.md."""
PREVIEW = 500
"""Characters of the work."""


def row_of(attempt: Attempt, scenario: Scenario, *, at: datetime) -> Row:
    """One attempt as a row."""
    trace, reward = attempt.trace, attempt.score.rewards[0]
    checked = bool(scenario.checks)
    proven = reward.value is not None and reward.name == CHECKS
    success = reward.value >= 1 if reward.value is not None and proven else None
    work = "\n".join(last_files(trace).values()) or trace.reply
    return {
        "id": trace.id,
        "timestamp": at.isoformat(timespec="seconds"),
        "scenario": {"name": scenario.name, "goal": scenario.goal, "category": scenario.category},
        "success": success,
        "verified": success is True,
        "scored_by": "checks" if checked else "reading",
        "output_preview": work[:PREVIEW],
        "evidence": reward.evidence,
        "metadata": {
            "cost_usd": trace.cost if trace.calls else None,
            "tokens_used": total((trace.input_tokens, trace.output_tokens)) if trace.calls else None,
            "performance_score": reward.value,
            "skills_used": len(trace.shown),
            "skills_cited": len(trace.cited),
            "rounds": len(trace.calls),
        },
    }


class Results:
    """The rows of one run, written whole after each of them."""

    def __init__(self, path: Path, session_id: str, *, planned: int, skills: int) -> None:
        self.path = path
        self.session_id = session_id
        self.planned = planned
        self.skills = {"initial": skills, "final": skills}
        self.reflection = Spent()
        self._rows: dict[str, Row] = {}

    @classmethod
    def of_run(cls, run: PlaybookRun, folder: Path, *, planned: int) -> "Results":
        """Those of a run: begun, or, where the run was interrupted, gone on with in the same file.

        Raises:
            InputError: The file of an interrupted run is not what was written.
        """
        note = run.folder / "results.json"
        begun = not note.exists()
        if begun:
            path, session_id = _reserved(folder)
        else:
            with boundary(InputError, f"{note} is not what was written; restore it, or begin a new run"):
                said = json.loads(note.read_text(encoding="utf-8"))
                path, session_id = Path(said["path"]), str(said["session_id"])
        results = cls(path, session_id, planned=planned, skills=len(run.initial.active))
        results._rows = {} if begun else {row["id"]: row for row in _rows(path)}
        results.learned(len(run.playbook.active), run.progress.reflector)
        if begun:
            # Whole, since the run may be gone on with from another folder.
            write_json(note, {"session_id": session_id, "path": str(path.absolute())})
        return results

    @property
    def rows(self) -> Sequence[Row]:
        return tuple(self._rows.values())

    def add(self, row: Row) -> None:
        """Add one and write the file. An attempt that is made again, after an interruption, takes its own place."""
        self._rows[row["id"]] = row
        self._write()

    def learned(self, skills: int, reflection: Spent) -> None:
        """What the run has learned up to now, and what reflecting has cost in all."""
        self.skills["final"] = skills
        self.reflection = reflection
        self._write()

    def json(self) -> dict[str, Any]:
        """The whole file."""
        rows = self.rows
        return {"session_id": self.session_id, **summary(rows), **self._sums(), "results": list(rows)}

    def _sums(self) -> dict[str, Any]:
        rows = self.rows
        cost = total(
            [*(row["metadata"]["cost_usd"] for row in rows), None if self.reflection.unpriced else self.reflection.cost]
        )
        known = None if self.reflection.uncounted else self.reflection.input_tokens + self.reflection.output_tokens
        return {
            "planned": self.planned,
            "skills": dict(self.skills),
            "total_cost_usd": cost,
            "total_tokens": total([*(row["metadata"]["tokens_used"] for row in rows), known]),
            "avg_cost_usd": cost / len(rows) if cost is not None and rows else None,
            "reflection": {"cost_usd": None if self.reflection.unpriced else self.reflection.cost, "tokens_used": known},
        }

    def _write(self) -> None:
        write_json(self.path, self.json())


def _reserved(folder: Path) -> tuple[Path, str]:
    """A file of one's own, and the session that it is called after: two runs may begin in one second."""
    session_id = wiring.now().strftime("%Y%m%d_%H%M%S")
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        path = folder / f"training_results_{session_id}.json"
        try:
            path.open("x").close()
        except FileExistsError:
            session_id += "_2"
        else:
            return path, session_id


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Counts over rows, and over those of each category. Only what checks have proven is successful."""
    categories = dict.fromkeys(row["scenario"]["category"] for row in rows)
    return {
        "total_scenarios": len(rows),
        **_counts(rows),
        "by_category": {
            name: {"total": len(of), **_counts(of)}
            for name in categories
            for of in [[row for row in rows if row["scenario"]["category"] == name]]
        },
    }


def _counts(rows: Sequence[Row]) -> dict[str, int]:
    """They add up to the number of rows; `verified` is how many of the successful ones were proven, which is all of them."""
    reading = sum(row["scored_by"] == "reading" for row in rows)
    return {
        "successful": sum(row["success"] is True for row in rows),
        "failed": sum(row["success"] is False for row in rows),
        "unverified": reading,
        "unknown": sum(row["success"] is None for row in rows) - reading,
        "verified": sum(row["verified"] for row in rows),
    }


def _rows(path: Path) -> list[Row]:
    try:
        found: list[Row] = json.loads(path.read_text(encoding="utf-8"))["results"]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path} is not what was written; restore it, or move it away to go on without its rows") from None
    return found


REPLY = 900
"""Tokens of a small program with what is said about it."""


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

    def work(self) -> cost_estimate.TrainingWork:
        return replace(super().work(), calls=self.config.rounds, reply=REPLY)

    async def _finish(self, run: PlaybookRun) -> TrainingResult:
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
        check_writable(Path(self.config.results) / "results.json")
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
        return Dataset(name=SCENARIOS, tasks=tasks, verifier=self._workshop)

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
        row = row_of(attempt, self._workshop.scenario(attempt.task), at=wiring.now())
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
