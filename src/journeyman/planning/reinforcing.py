"""Phase 2: who does which subtask, learned from what executions brought; released if it beats phase 1 and each model alone."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from journeyman.candidate import Candidate
from journeyman.errors import InputError
from journeyman.examination import Report
from journeyman.experiments.evaluator import HeldOutEvaluator, Look, Subject, untrained
from journeyman.experiments.loop import Finding, Unproven, improve
from journeyman.experiments.release_policy import ReleasePolicy
from journeyman.experiments.run import Run, blocking
from journeyman.gate import BetterOnHeldOut
from journeyman.learn.planner import checkpoints, ppo, reinforced
from journeyman.learn.planner.ppo import PPOConfig, PPOUpdate
from journeyman.learn.planner.reinforced import selector_for
from journeyman.learn.planner.replay import Choose, Chosen
from journeyman.learn.planner.selector import ModelSelector
from journeyman.planning.arenas import Arena, Side
from journeyman.planning.live import compared, greedy, scored
from journeyman.planning.policies import trained_on
from journeyman.release import Stage
from journeyman.rewards.utility import RunReward, Utility
from journeyman.stores import Store
from journeyman.task import Task, fingerprints, packed


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinforceConfig:
    """How phase 2 learns and is examined."""

    ppo: PPOConfig = field(default_factory=PPOConfig.measured)
    reward: RunReward | None = None
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
    updates: tuple[PPOUpdate, ...]
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
        heard: Callable[[PPOUpdate], None] = lambda _: None,
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
        if self.config.evaluate:
            known = self.known | fingerprints(self.arena.practised)
            untrained([Task(id=id, question=text) for id, text in self.arena.held_out], known)
        run = Run.new("planner", kind="train planner", config=self.config.json(), store=store)
        optimizer = PlannerOptimizer(self, keep, heard, examined)
        with run.tracked():
            iteration = blocking(
                improve(
                    optimizer,
                    baseline=None,
                    run=run,
                    evaluate=partial(optimizer.evaluate, run=run),
                    releases=ReleasePolicy(target=self.config.target_stage, force=self.config.force),
                )
            )
            made = replace(
                optimizer.made,
                passed=iteration.passed,
                forced=iteration.forced,
                reason=iteration.reason,
                stage=iteration.stage,
            )
            run.end(made.json())
        return made

    @property
    def known(self) -> frozenset[str]:
        """`task.fingerprint`s of what the planner that it begins from was trained on."""
        _, said = checkpoints.load(checkpoints.resolve(self.start))
        return trained_on(self.arena.planner, said)

    def learned(self, keep: Callable[[Path], Candidate], heard: Callable[[PPOUpdate], None]) -> Reinforced:
        """Practise to the end, from where the folder is."""
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
        known = packed(self.known | fingerprints(self.arena.practised))
        about = {"episodes": updates[-1].episodes, "config": self.config.json(), "trained_on": known}
        reinforced.save(path, self.start, selector, about)
        return Reinforced(path=path, candidate=keep(path), selector=selector, updates=updates, utility=utility)

    def proven(self, made: Reinforced, look: Look, examined: Callable[[str], None]) -> Reinforced:
        """Everybody does the held-out instructions; the gate compares with phase 1, and with whom it finds best alone."""
        ids = [task.id for task in look.tasks]
        arena, models = self.arena.among(frozenset(ids)), self.arena.planner.model.models.names
        ways = {
            "reinforced": greedy(lambda state: made.selector.probabilities([state])[0]),
            "supervised": greedy(lambda state: state.prior.astype(np.float64)),
            **{name: _always(place) for place, name in enumerate(models)},
        }
        sides: dict[str, Side] = {}
        for name, choose in ways.items():
            examined(name)
            sides[name] = arena.examine(choose, made.utility)
        best = max(models, key=lambda name: sides[name].utility)
        reports = {}
        for rival in ("supervised", best):
            pairs = compared(ids, sides[rival].utilities, sides["reinforced"].utilities, made.utility)
            evaluation = look.at(pairs)
            reports[rival] = Report(evaluation=evaluation, decision=scored(self.config.gate, made.utility).decide(evaluation))
        return replace(made, sides=sides, reports=reports)


class PlannerOptimizer:
    """Learns who does what. Implements `experiments.loop.Optimizer`; none of its steps waits."""

    name = "planner"

    def __init__(
        self,
        phase: Reinforcement,
        keep: Callable[[Path], Candidate],
        heard: Callable[[PPOUpdate], None],
        examined: Callable[[str], None],
    ) -> None:
        self._phase, self._keep, self._heard, self._examined = phase, keep, heard, examined
        self.made: Reinforced
        """What came of it so far."""

    async def optimize(self, baseline: Candidate | None, run: Run) -> Candidate | None:
        self.made = self._phase.learned(self._keep, self._heard)
        run.store.add_candidate(self.made.candidate)
        return self.made.candidate

    async def evaluate(self, candidate: Candidate, baseline: Candidate | None, *, run: Run) -> Finding:
        """It passes when it is better than all of its rivals."""
        phase, made = self._phase, self.made
        if not phase.config.evaluate:
            return Unproven("not examined, so not proven")
        subject = Subject(
            candidate=candidate.id,
            baseline=f"supervised, {', '.join(phase.arena.planner.model.models.names)}",
            tasks=[Task(id=id, question=text) for id, text in phase.arena.held_out],
            settings={
                **phase.arena.settings,
                "phase 1": checkpoints.digest(checkpoints.resolve(phase.start)),
                "utility": repr(made.utility),
                "gate": repr(phase.config.gate),
            },
            deterministic=phase.arena.deterministic,
            trained_on=phase.known | fingerprints(phase.arena.practised),
        )
        self.made = await HeldOutEvaluator(store=run.store).evaluate(
            subject,
            lambda look: phase.proven(made, look, self._examined),
            id=run.id,
            records=lambda found: found.reports.items(),
        )
        return _Against(self.made.reports)


@dataclass(frozen=True, slots=True)
class _Against:
    """The findings against all rivals."""

    reports: Mapping[str, Report]

    @property
    def passed(self) -> bool:
        return all(report.passed for report in self.reports.values())

    @property
    def reason(self) -> str:
        """Those that refused it, else all."""
        refused = {rival: report for rival, report in self.reports.items() if not report.passed}
        return "; ".join(f"against {rival}: {report.reason}" for rival, report in (refused or self.reports).items())

    def json(self) -> dict[str, Any]:
        return {rival: report.json() for rival, report in self.reports.items()}


def _always(place: int) -> Choose:
    return lambda _: Chosen(action=place, log_prob=0.0)
