"""Phase 2: who does which subtask, learned from what executions brought; released if it beats phase 1 and each model alone."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from journeyman import app
from journeyman.candidate import Candidate
from journeyman.errors import InputError
from journeyman.examination import Report
from journeyman.experiments.evaluator import landmarks
from journeyman.gate import BetterOnHeldOut
from journeyman.learn.planner import checkpoints, ppo, reinforced
from journeyman.learn.planner.ppo import PPOConfig, Update
from journeyman.learn.planner.reinforced import selector_for
from journeyman.learn.planner.replay import Choose, Chosen
from journeyman.learn.planner.selector import ModelSelector
from journeyman.learn.planner.utility import Reward, Utility
from journeyman.planning.arenas import Arena, Side
from journeyman.planning.live import compared, greedy, scored
from journeyman.release import Release, Stage
from journeyman.stores import EvaluationRecord, RunRecord, RunState, Store
from journeyman.task import Task
from journeyman.tasks.base import digest


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinforceConfig:
    """How phase 2 learns and is examined."""

    ppo: PPOConfig = field(default_factory=PPOConfig.measured)
    reward: Reward | None = None
    """What it learns by, where that is not the utility. It is examined by the utility in any case."""
    dollars_per_success: float | None = None
    """What one more success is worth, in the operator's money; a default when it is not said."""
    seconds_per_success: float | None = None
    evaluate: bool = True
    gate: BetterOnHeldOut = field(default_factory=BetterOnHeldOut)
    target_stage: Stage = Stage.SHADOW
    force: bool = False

    def json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Reinforced:
    """What came of phase 2."""

    path: Path
    """The planner's file."""
    candidate: Candidate
    selector: ModelSelector
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


@dataclass(frozen=True, kw_only=True)
class Reinforcement:
    """Phase 2 from phase 1's file."""

    start: Path
    arena: Arena
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
        workers = self.arena.planner.model.models.names
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
            store.add_candidate(made.candidate)
            made = self._proven(made, store, run_id, examined) if self.config.evaluate else made
        except BaseException:
            store.mark_run(run_id, RunState.STOPPED, app.now())
            raise
        self._release(made, store, run_id)
        store.mark_run(run_id, RunState.FINISHED, app.now(), made.json())
        return made

    def _learned(self, keep: Callable[[Path], Candidate], heard: Callable[[Update], None]) -> Reinforced:
        utility = Utility.of(
            self.arena.runs,
            dollars_per_success=self.config.dollars_per_success,
            seconds_per_success=self.config.seconds_per_success,
        )
        environment = self.arena.practice(self.config.reward or utility)
        if not len(environment):
            raise InputError("there is no instruction to practise on; collect some, or give more of them")
        selector = selector_for(self.arena.planner.model, seed=self.config.ppo.seed)
        source = f"{checkpoints.digest(checkpoints.resolve(self.start))} {self.arena.source}"
        updates = ppo.train(environment, selector, self.config.ppo, folder=self.folder / "phase2", source=source, heard=heard)
        path = self.folder / f"phase2_best{checkpoints.SUFFIX}"
        reinforced.save(path, self.start, selector, {"episodes": updates[-1].episodes, "config": self.config.json()})
        return Reinforced(path=path, candidate=keep(path), selector=selector, updates=updates, utility=utility)

    def _proven(self, made: Reinforced, store: Store, run_id: str, examined: Callable[[str], None]) -> Reinforced:
        """Everybody does the held-out instructions; the gate compares with phase 1, and with whom it finds best alone."""
        tasks = [Task(id=id, question=text) for id, text in self.arena.held_out]
        ids, at = digest(tasks), app.now()
        look = max((store.record_look(mark, made.candidate.id, at, ids) for mark in landmarks(tasks)), default=1)
        models = self.arena.planner.model.models.names
        ways = {
            "reinforced": greedy(lambda state: made.selector.probabilities([state])[0]),
            "supervised": greedy(lambda state: state.prior.astype(np.float64)),
            **{name: _always(place) for place, name in enumerate(models)},
        }
        sides: dict[str, Side] = {}
        for name, choose in ways.items():
            examined(name)
            sides[name] = self.arena.examine(choose, made.utility)
        best = max(models, key=lambda name: sides[name].utility)
        reports = {}
        for rival in ("supervised", best):
            pairs = compared([task.id for task in tasks], sides[rival].utilities, sides["reinforced"].utilities, made.utility)
            evaluation = replace(pairs, looks=look - 1)
            reports[rival] = Report(evaluation=evaluation, decision=scored(self.config.gate, made.utility).decide(evaluation))
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
        return self._decided(replace(made, sides=sides, reports=reports))

    def _decided(self, made: Reinforced) -> Reinforced:
        """It passes when it is better than all of its rivals."""
        refused = {rival: report for rival, report in made.reports.items() if not report.passed}
        reason = "; ".join(f"against {rival}: {report.reason}" for rival, report in (refused or made.reports).items())
        forced = self.config.force and bool(refused)
        stage = Stage.SHADOW if refused and not forced else self.config.target_stage
        return replace(made, passed=not refused, forced=forced, reason=reason, stage=stage)

    def _release(self, made: Reinforced, store: Store, run_id: str) -> None:
        if (made.passed or made.forced) and store.release(made.candidate.id) is None:
            reason = f"{made.reason} ({run_id})"
            store.add_release(Release.begin(made.candidate.id, made.stage, reason, app.now(), forced=made.forced))


def _always(place: int) -> Choose:
    return lambda _: Chosen(action=place, log_prob=0.0)
