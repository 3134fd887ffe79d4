"""Phase 2: who does which subtask, learned from what executions brought; released if it beats phase 1 and each model alone."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from journeyman import app
from journeyman.agents.orchestrator import Orchestrator
from journeyman.bench import landmarks
from journeyman.candidate import Candidate
from journeyman.errors import InputError
from journeyman.examination import Report
from journeyman.gate import BetterOnHeldOut
from journeyman.learn.planner import checkpoints, ppo, reinforced
from journeyman.learn.planner.ppo import PPOConfig, Update
from journeyman.learn.planner.predict import LearnedPlanner
from journeyman.learn.planner.reinforced import ReinforcedPlanner, selector_for
from journeyman.learn.planner.replay import Choose, Chosen
from journeyman.learn.planner.utility import Runs, Utility
from journeyman.plan_result import ExecutionResult
from journeyman.planning.collecting import Asked
from journeyman.planning.courses import courses
from journeyman.planning.live import LiveEnvironment, compared, greedy
from journeyman.release import Release, Stage
from journeyman.stores import EvaluationRecord, RunRecord, RunState, Store
from journeyman.task import Task
from journeyman.tasks.base import digest


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinforceConfig:
    """How phase 2 learns and is examined."""

    ppo: PPOConfig = field(default_factory=PPOConfig.measured)
    dollars_per_success: float | None = None
    """What one more success is worth, in the operator's money; a default when it is not said."""
    seconds_per_success: float | None = None
    evaluate: bool = True
    gate: BetterOnHeldOut = field(default_factory=BetterOnHeldOut)
    target_stage: Stage = Stage.SHADOW
    force: bool = False

    def json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where it learns: instructions to practise on and others to be examined on, and who carries plans out."""

    practice: Sequence[Asked]
    held_out: Sequence[Asked]
    orchestrator: Orchestrator
    """Carries the plans out; each instruction judges what came of it."""
    heard: Callable[[ExecutionResult], None] = lambda _: None


@dataclass(frozen=True, kw_only=True)
class Side:
    """A way of choosing workers, on the held-out instructions."""

    utilities: tuple[float, ...]
    success: float
    """Share that was right."""
    cost: float | None
    """Mean US dollars."""
    seconds: float | None
    """Mean of the critical path."""

    @property
    def utility(self) -> float:
        return float(np.mean(self.utilities))


@dataclass(frozen=True, kw_only=True)
class Reinforced:
    """What came of phase 2."""

    path: Path
    """The planner's file."""
    candidate: Candidate
    updates: tuple[Update, ...]
    utility: Utility
    sides: Mapping[str, Side] = field(default_factory=dict)
    """"reinforced", "supervised", and each model alone."""
    reports: Mapping[str, Report] = field(default_factory=dict)
    """Against "supervised", and against the best single model by its name."""
    passed: bool = False
    forced: bool = False
    reason: str = "not examined, so not proven"
    stage: Stage = Stage.SHADOW

    def json(self) -> dict[str, Any]:
        return {
            "planner": str(self.path),
            "policy": self.candidate.id,
            "episodes": self.updates[-1].episodes if self.updates else 0,
            "utility": asdict(self.utility),
            "sides": {
                name: {"utility": side.utility, "success": side.success, "cost": side.cost, "seconds": side.seconds}
                for name, side in self.sides.items()
            },
            "passed": self.passed,
            "forced": self.forced,
            "reason": self.reason,
            "stage": self.stage.value,
            "reports": {name: report.json() for name, report in self.reports.items()},
        }


def utility_of(planner: LearnedPlanner, config: ReinforceConfig) -> Utility:
    """The utility with the medians of the executions that phase 1 learned from as references."""
    examples = planner.model.encoder.memory.examples
    runs = Runs(
        workers=("",) * len(examples),
        success=np.asarray([np.nan if each.success is None else each.success for each in examples]),
        cost=np.asarray([np.nan if each.cost is None else each.cost for each in examples]),
        seconds=np.asarray([np.nan if each.seconds is None else each.seconds for each in examples]),
        subtasks=np.asarray([float(len(each.plan.subtasks)) for each in examples]),
    )
    return Utility.of(runs, dollars_per_success=config.dollars_per_success, seconds_per_success=config.seconds_per_success)


@dataclass(frozen=True, kw_only=True)
class Reinforcement:
    """Phase 2 from phase 1's file."""

    start: Path
    planner: LearnedPlanner
    ground: Ground
    folder: Path
    config: ReinforceConfig = field(default_factory=ReinforceConfig)

    def run(
        self,
        store: Store,
        keep: Callable[[Path], Candidate],
        *,
        heard: Callable[[Update], None] = lambda _: None,
        examined: Callable[[str], None] = lambda _: None,
    ) -> Reinforced:
        """Learn, prove, and keep what was learned.

        A folder that holds a run of the same settings is gone on with: what was paid for is not paid for again.

        Args:
            keep: Puts the planner's file among the artifacts.
            heard: Is told of each update.
            examined: Is told which side is examined next.

        Raises:
            InputError: Phase 1 knows fewer than two models, or the folder holds a run of other settings.
        """
        workers = self.planner.model.models.names
        if len(workers) < 2:
            raise InputError(
                f"the planner knows {len(workers)} models, and there is a choice to learn from two on: collect executions"
                " with --models A,B, and train phase 1 on them"
            )
        run_id = f"planner-{app.now():%Y%m%d-%H%M%S-%f}"
        store.add_run(RunRecord(id=run_id, kind="train planner", config=self.config.json(), started_at=app.now()))
        store.mark_run(run_id, RunState.RUNNING, app.now())
        try:
            made = self._learned(keep, heard)
            made = self._proven(made, store, run_id, examined) if self.config.evaluate else made
        except BaseException:
            store.mark_run(run_id, RunState.STOPPED, app.now())
            raise
        self._release(made, store, run_id)
        store.mark_run(run_id, RunState.FINISHED, app.now(), made.json())
        return made

    def _learned(self, keep: Callable[[Path], Candidate], heard: Callable[[Update], None]) -> Reinforced:
        selector = selector_for(self.planner.model, seed=self.config.ppo.seed)
        with asyncio.Runner() as runner:
            environment = self._environment(self.ground.practice, runner)
            if not len(environment):
                raise InputError("there is no instruction to practise on; collect some, or give more of them")
            updates = ppo.train(environment, selector, self.config.ppo, folder=self.folder / "phase2", heard=heard)
        path = self.folder / f"phase2_best{checkpoints.SUFFIX}"
        reinforced.save(path, self.start, selector, {"episodes": updates[-1].episodes, "config": self.config.json()})
        return Reinforced(path=path, candidate=keep(path), updates=updates, utility=environment.reward)

    def _environment(self, asked: Sequence[Asked], runner: asyncio.Runner) -> LiveEnvironment:
        plans = self.planner.plans([each.text for each in asked]) if asked else []
        return LiveEnvironment(
            courses=courses(asked, plans, self.planner.model, self.ground.orchestrator),
            workers=self.planner.model.models.names,
            reward=utility_of(self.planner, self.config),
            heard=self.ground.heard,
            # One loop for all of it: clients keep their connections in the loop that they were opened in.
            run=runner.run,
        )

    def _proven(self, made: Reinforced, store: Store, run_id: str, examined: Callable[[str], None]) -> Reinforced:
        """Everybody does the held-out instructions; the gate compares with phase 1, and with whom it finds best alone."""
        ids, marks = _examined(self.ground.held_out)
        learned = reinforced.load(made.path, self.planner.model.encoder.embedder)
        assert isinstance(learned, ReinforcedPlanner)
        at = app.now()
        look = max((store.record_look(mark, made.candidate.id, at, ids) for mark in marks), default=1)
        ways: dict[str, Choose] = {
            "reinforced": greedy(lambda state: learned.selector.probabilities([state])[0]),
            "supervised": greedy(lambda state: state.prior.astype(np.float64)),
        }
        for place, name in enumerate(self.planner.model.models.names):
            ways[name] = _always(place)
        sides: dict[str, Side] = {}
        with asyncio.Runner() as runner:
            environment = self._environment(self.ground.held_out, runner)
            for name, choose in ways.items():
                examined(name)
                sides[name] = _side(*environment.utilities(choose))
        best = max(self.planner.model.models.names, key=lambda name: sides[name].utility)
        known = [course.id for course in environment.courses]
        reports = {}
        for rival in ("supervised", best):
            evaluation = compared(known, sides[rival].utilities, sides["reinforced"].utilities, environment.reward)
            evaluation = replace(evaluation, looks=look - 1)
            reports[rival] = Report(evaluation=evaluation, decision=self._gate(environment.reward).decide(evaluation))
        refused = [f"against {rival}: {report.reason}" for rival, report in reports.items() if not report.passed]
        said = refused or [f"against {rival}: {report.reason}" for rival, report in reports.items()]
        made = replace(made, sides=sides, reports=reports, passed=not refused, reason="; ".join(said))
        forced = self.config.force and not made.passed
        made = replace(made, forced=forced, stage=self.config.target_stage if made.passed or forced else Stage.SHADOW)
        store.add_candidate(made.candidate)
        for rival, report in reports.items():
            store.add_evaluation(
                EvaluationRecord(
                    id=f"{run_id}/{made.candidate.id}/{rival}/{ids}/{look}",
                    candidate_id=made.candidate.id,
                    baseline_id=rival,
                    held_out_id=ids,
                    passed=report.passed,
                    reason=report.reason,
                    report=report.json(),
                    at=at,
                )
            )
        return made

    def _gate(self, utility: Utility) -> BetterOnHeldOut:
        """The gate for scores of 0 to 1; the gain it asks for is in successes."""
        low, high = utility.bounds
        return replace(self.config.gate, least_gain=self.config.gate.least_gain / (high - low))

    def _release(self, made: Reinforced, store: Store, run_id: str) -> None:
        if (made.passed or made.forced) and store.release(made.candidate.id) is None:
            reason = f"{made.reason} ({run_id})"
            store.add_release(Release.begin(made.candidate.id, made.stage, reason, app.now(), forced=made.forced))


def _always(place: int) -> Choose:
    return lambda _: Chosen(action=place, log_prob=0.0)


def _side(utilities: Sequence[float], results: Sequence[ExecutionResult]) -> Side:
    costs, waits = ([getattr(result, name) for result in results] for name in ("total_cost", "critical_path_seconds"))
    return Side(
        utilities=tuple(utilities),
        success=float(np.mean([result.success is True for result in results])),
        cost=None if None in costs else float(np.mean(costs)),
        seconds=None if None in waits else float(np.mean(waits)),
    )


def _examined(asked: Sequence[Asked]) -> tuple[str, list[str]]:
    """A name for the held-out instructions, and the marks by which looks at them are counted."""
    tasks = [Task(id=each.id, question=each.text) for each in asked]
    return digest(tasks), landmarks(tasks)
