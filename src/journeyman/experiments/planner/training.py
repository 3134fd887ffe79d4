"""Phase 2: who does which subtask, learned from what executions brought; released if it beats phase 1 and each model alone."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from journeyman.agents.orchestrator import Orchestrator
from journeyman.core import plan as plan_json
from journeyman.core.candidate import Candidate
from journeyman.core.errors import InputError, MissingExtra, PlanError
from journeyman.core.evaluation import Result, pair
from journeyman.core.gate import BetterOnHeldOut
from journeyman.core.plan import ExecutionResult, Plan
from journeyman.core.release import Stage
from journeyman.core.task import Task, fingerprints, packed
from journeyman.core.trace import average
from journeyman.experiments.compare import EvaluationReport
from journeyman.experiments.evaluator import HeldOutEvaluator, Look, Subject, untrained
from journeyman.experiments.loop import Finding, Unproven, improve
from journeyman.experiments.planner.artifact import trained_on
from journeyman.experiments.planner.collect import Instruction
from journeyman.experiments.planner.config import ReinforceConfig
from journeyman.experiments.planner.environment import Arena, PlanSide, compared, greedy, scored, worth
from journeyman.experiments.planner.workers import Make
from journeyman.experiments.release_policy import ReleasePolicy
from journeyman.experiments.run import Run, blocking
from journeyman.optimizers.planner import checkpoints, ppo, reinforced
from journeyman.optimizers.planner.base import Example
from journeyman.optimizers.planner.metrics import PlanAgreement, agreement, mean
from journeyman.optimizers.planner.ppo import PPOUpdate
from journeyman.optimizers.planner.reinforced import selector_for
from journeyman.optimizers.planner.replay import Choose, Chosen
from journeyman.optimizers.planner.selector import ModelSelector
from journeyman.optimizers.planner.supervised import Epoch, Progress
from journeyman.rewards.utility import Utility
from journeyman.stores import Store


@dataclass(frozen=True, kw_only=True)
class Reinforced:
    """What came of phase 2."""

    path: Path
    """The planner's file."""
    candidate: Candidate
    selector: ModelSelector
    updates: tuple[PPOUpdate, ...]
    utility: Utility
    sides: Mapping[str, PlanSide] = field(default_factory=dict)
    """"reinforced", "supervised", and each model alone."""
    reports: Mapping[str, EvaluationReport] = field(default_factory=dict)
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
        sides: dict[str, PlanSide] = {}
        for name, choose in ways.items():
            examined(name)
            sides[name] = arena.examine(choose, made.utility)
        best = max(models, key=lambda name: sides[name].utility)
        reports = {}
        for rival in ("supervised", best):
            pairs = compared(ids, sides[rival].utilities, sides["reinforced"].utilities, made.utility)
            evaluation = look.at(pairs)
            reports[rival] = EvaluationReport(
                evaluation=evaluation, decision=scored(self.config.gate, made.utility).decide(evaluation)
            )
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

    reports: Mapping[str, EvaluationReport]

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


# Is a planner better than another one? On plans that are known to be right, or on what carrying its plans out brings.

NOTHING = PlanAgreement(node_f1=0.0, edge_f1=0.0, exact=0.0)
"""Of a plan that could not be made."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Two planners on the same instructions."""

    report: EvaluationReport
    candidate: dict[str, Any]
    baseline: dict[str, Any]
    refused: int
    """Instructions for which the candidate made no plan; they count as failures."""

    @property
    def passed(self) -> bool:
        return self.report.passed

    @property
    def reason(self) -> str:
        return self.report.reason

    def record(self) -> dict[str, Any]:
        """As it is kept: with each instruction's scores."""
        return {**self.json(), "report": self.report.record()}

    def json(self) -> dict[str, Any]:
        found = self.report.json()
        names = ("gain", "low", "high", "decided_low", "decided_high", "level", "looks", "chosen_among", "gain_shrunk")
        return {
            "passed": self.passed,
            "reason": self.reason,
            **{name: found[name] for name in (*names, "contaminated")},
            "candidate": self.candidate,
            "baseline": self.baseline,
            "refused": self.refused,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A planner that is compared."""

    id: str
    """Made of its content, or the name of what is always the same."""
    make: Make
    """How it makes plans."""
    trained_on: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class PlanExamination:
    """Two planners by agreement with plans that are right: the score of a plan is the mean of its node-F1 and edge-F1."""

    examples: Sequence[Example]
    gate: BetterOnHeldOut

    def evaluate(self, candidate: Contender, baseline: Contender, evaluator: HeldOutEvaluator, *, id: str) -> Compared:
        """Let both plan, ask the gate, and keep what was found.

        Raises:
            InputError: There is no example that succeeded, or that nobody judged; or all of them were learned from.
        """
        right = [example.plan for example in self.examples if example.success is None or example.success >= 1]
        if not right:
            raise InputError("no plan of the data succeeded, so there is nothing to compare with")
        tasks = [
            Task(id=str(at), question=plan.instruction, answer=json.dumps(plan_json.written(plan)))
            for at, plan in enumerate(right)
        ]

        def measure(look: Look) -> Compared:
            some = [right[int(task.id)] for task in look.tasks]
            now, refused = _agreements(candidate.make, some)
            before, _ = _agreements(baseline.make, some)
            evaluation = look.at(pair(_results(before, look), _results(now, look)))
            report = EvaluationReport(evaluation=evaluation, decision=self.gate.decide(evaluation))
            return Compared(report=report, candidate=_means(now), baseline=_means(before), refused=refused)

        return _counted((candidate, baseline), tasks, {"by": "plans", "gate": repr(self.gate)}, measure, evaluator, id)


def _agreements(make: Make, right: Sequence[Plan]) -> tuple[list[PlanAgreement], int]:
    found, refused = [], 0
    for plan in right:
        try:
            found.append(agreement(make(plan.instruction), plan))
        except PlanError:
            found.append(NOTHING)
            refused += 1
    return found, refused


def _results(found: Sequence[PlanAgreement], look: Look) -> list[Result]:
    scores = ((each.node_f1 + each.edge_f1) / 2 for each in found)
    return [Result(task_id=task.id, score=score) for task, score in zip(look.tasks, scores, strict=True)]


def _means(found: Sequence[PlanAgreement]) -> dict[str, Any]:
    whole = mean(found)
    return {"node_f1": whole.node_f1, "edge_f1": whole.edge_f1, "exact": whole.exact}


@dataclass(frozen=True, kw_only=True)
class LiveExamination:
    """Two planners whose plans are carried out."""

    asked: Sequence[Instruction]
    orchestrator: Orchestrator
    utility: Utility
    gate: BetterOnHeldOut
    heard: Callable[[ExecutionResult], None] = lambda _: None

    def evaluate(self, candidate: Contender, baseline: Contender, evaluator: HeldOutEvaluator, *, id: str) -> Compared:
        """Let both do the instructions, ask the gate, and keep what was found.

        Args:
            id: Of the command; part of the evaluation's.
        """
        tasks = [Task(id=each.id, question=each.text) for each in self.asked]

        def measure(look: Look) -> Compared:
            asked = [each for each in self.asked if each.id in {task.id for task in look.tasks}]
            now, refused = self._side(candidate.make, asked)
            before, _ = self._side(baseline.make, asked)
            pairs = compared([each.id for each in asked], before.utilities, now.utilities, self.utility)
            evaluation = look.at(pairs)
            report = EvaluationReport(evaluation=evaluation, decision=self.gate.decide(evaluation))
            return Compared(report=report, candidate=_told(now), baseline=_told(before), refused=refused)

        crew = sorted(self.orchestrator.crew) if self.orchestrator else []
        settings = {"by": "outcomes", "utility": repr(self.utility), "gate": repr(self.gate), "crew": crew}
        return _counted((candidate, baseline), tasks, settings, measure, evaluator, id)

    def _side(self, make: Make, asked: Sequence[Instruction]) -> tuple[PlanSide, int]:
        results = asyncio.run(self._results(make, asked))
        done = [result for result in results if result is not None]
        # Nothing was spent, and nothing done.
        utilities = [0.0 if result is None else worth(self.utility, result) for result in results]
        side = PlanSide(
            utilities=tuple(utilities),
            success=sum(result.success is True for result in done) / max(1, len(results)),
            cost=average([result.total_cost for result in done]),
            seconds=average([result.critical_path_seconds for result in done]),
        )
        return side, len(results) - len(done)

    async def _results(self, make: Make, asked: Sequence[Instruction]) -> list[ExecutionResult | None]:
        async def one(each: Instruction) -> ExecutionResult | None:
            try:
                result = each.judge(await self.orchestrator.run(make(each.text)))
            except PlanError:
                return None
            self.heard(result)
            return result

        return list(await asyncio.gather(*(one(each) for each in asked)))


def _told(side: PlanSide) -> dict[str, Any]:
    return {"utility": side.utility, "success": side.success, "cost": side.cost, "seconds": side.seconds}


def _counted(
    sides: tuple[Contender, Contender],
    tasks: Sequence[Task],
    settings: Mapping[str, object],
    measure: Callable[[Look], Compared],
    evaluator: HeldOutEvaluator,
    id: str,
) -> Compared:
    candidate, baseline = sides
    subject = Subject(
        candidate=candidate.id,
        baseline=baseline.id,
        tasks=tasks,
        settings=settings,
        # Plans are always the same; what workers bring is not known to be.
        deterministic=settings["by"] == "plans",
        trained_on=candidate.trained_on | baseline.trained_on,
    )
    return blocking(evaluator.evaluate(subject, measure, id=id, records=lambda found: [(baseline.id, found)]))


# The curves of a training, for TensorBoard and Weights & Biases.


class MetricsWriter(Protocol):
    def add(self, epoch: Epoch) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in a folder, beside those of an earlier part of the same training."""

    def __init__(self, folder: Path) -> None:
        # Asks for an extra, which only this class needs.
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder))

    def add(self, epoch: Epoch) -> None:
        for name, value in asdict(epoch).items():
            if name != "number":
                self._writer.add_scalar(f"phase1/{name}", value, epoch.number)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of the project `journeyman`. What is sent are the numbers of each epoch, no data."""

    def __init__(self, folder: Path) -> None:
        try:
            self._run: Any = import_module("wandb").init(project="journeyman", dir=str(folder))
        except ModuleNotFoundError:
            raise MissingExtra("wandb is missing: pip install wandb, or leave out --wandb") from None

    def add(self, epoch: Epoch) -> None:
        self._run.log({f"phase1/{name}": value for name, value in asdict(epoch).items()}, step=epoch.number)

    def close(self) -> None:
        self._run.finish()


def watchers(folder: Path, *, wandb: bool = False) -> list[MetricsWriter]:
    """TensorBoard where it is installed, and Weights & Biases where it is asked for.

    Raises:
        MissingExtra: It is asked for and not installed.
    """
    # The one that may be missing first, so that nothing is left open.
    made: list[MetricsWriter] = [WeightsAndBiases(folder)] if wandb else []
    with suppress(ModuleNotFoundError):
        made.append(TensorBoard(folder / "tensorboard"))
    return made


def told(watching: Sequence[MetricsWriter], progress: Progress | None = None) -> Progress:
    """All of them told of each epoch, as the callback that `train` takes."""

    def tell(epoch: Epoch) -> None:
        for watcher in watching:
            watcher.add(epoch)
        if progress is not None:
            progress(epoch)

    return tell
