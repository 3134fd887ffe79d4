"""Phase 2: who does which subtask, learned from what executions brought; released if it beats phase 1 and each model alone."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from journeyman.agents.orchestrator import Orchestrator
from journeyman.core import plan as plan_json
from journeyman.core.candidate import Candidate
from journeyman.core.errors import InputError, MissingExtra, PlanError
from journeyman.core.evaluation import METRICS, Result, pair
from journeyman.core.gate import BetterOnHeldOut
from journeyman.core.plan import ExecutionResult, Plan
from journeyman.core.release import Stage
from journeyman.core.task import Task, fingerprints, packed
from journeyman.core.trace import average
from journeyman.experiments.compare import EvaluationReport
from journeyman.experiments.evaluator import HeldOutEvaluator, Look, Subject, untrained
from journeyman.experiments.loop import Finding, Unproven, improve
from journeyman.experiments.planner.collect import Instruction
from journeyman.experiments.planner.config import ReinforceConfig
from journeyman.experiments.planner.environment import Environment, PlanSide, compared, greedy, references, scored, taken, worth
from journeyman.experiments.planner.workers import Make, trained_on
from journeyman.experiments.release_policy import ReleasePolicy
from journeyman.experiments.run import Run, blocking
from journeyman.io.atomic import write_text
from journeyman.io.files import read_text
from journeyman.optimizers.planner import artifact, ppo
from journeyman.optimizers.planner.data import Example
from journeyman.optimizers.planner.policy import ModelSelector, selector_for
from journeyman.optimizers.planner.ppo import Choose, Chosen, PPOUpdate
from journeyman.optimizers.planner.supervised import NO_PLAN, Epoch, PlanAgreement, agreement, mean_agreement
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
    clipped: Mapping[str, int] = field(default_factory=dict)
    """Of how many executions a term counts for less than it was; see `Utility.clipped`."""
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
            "clipped": dict(self.clipped),
            "sides": {name: side.json() for name, side in self.sides.items()},
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
    environment: Environment
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
        workers = self.environment.planner.model.models.names
        if len(workers) < 2:
            raise InputError(
                f"the planner knows {len(workers)} models, and there is a choice to learn from two on: collect executions"
                " with --models A,B, and train phase 1 on them"
            )
        if self.config.evaluate:
            known = self.known | fingerprints(self.environment.practised)
            untrained(self.environment.held_out, known)
        run = self._run(store)
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

    def _run(self, store: Store) -> Run:
        """The folder's run: one that is gone on with keeps its id, and so finds the evaluation that it has paid for."""
        kind, config, name = "train planner", self.config.json(), self.folder / "phase2_run"
        if (self.folder / "phase2").exists() and name.exists():
            return Run(id=read_text(name).strip(), kind=kind, config=config, store=store)
        run = Run.new("planner", kind=kind, config=config, store=store)
        write_text(name, f"{run.id}\n")
        return run

    @property
    def known(self) -> frozenset[str]:
        """`task.fingerprint`s of what the planner that it begins from was trained on."""
        _, said = artifact.read(artifact.resolve(self.start))
        return trained_on(self.environment.planner, said)

    def learned(self, keep: Callable[[Path], Candidate], heard: Callable[[PPOUpdate], None]) -> Reinforced:
        """Practise to the end, from where the folder is."""
        utility = self._utility()
        practice = self.environment.practice(self.config.reward or utility)
        if not len(practice):
            raise InputError("there is no instruction to practise on; collect some, or give more of them")
        selector = selector_for(self.environment.planner.model, seed=self.config.ppo.seed)
        source = f"{artifact.digest(self.start)} {self.environment.source}"
        updates = ppo.train(practice, selector, self.config.ppo, folder=self.folder / "phase2", source=source, heard=heard)
        path = self.folder / f"phase2_best{artifact.SUFFIX}"
        known = packed(self.known | fingerprints(self.environment.practised))
        about = {"episodes": updates[-1].episodes, "config": self.config.json(), "trained_on": known}
        artifact.save_reinforced(path, self.start, selector, about)
        made = Reinforced(path=path, candidate=keep(path), selector=selector, updates=updates, utility=utility)
        return replace(made, clipped=utility.clipped(self.environment.spent))

    def _utility(self) -> Utility:
        """With the references that the run began with: whoever is measured again is never quite as quick."""
        file = self.folder / "phase2_references.json"
        runs = references(file, None if (self.folder / "phase2").exists() and file.exists() else self.environment)
        return Utility.of(
            runs, dollars_per_success=self.config.dollars_per_success, seconds_per_success=self.config.seconds_per_success
        )

    def examine(
        self, made: Reinforced, rows: Sequence[int], look: Look, examined: Callable[[str], None]
    ) -> "ReinforcedFinding":
        """Everybody does the held-out instructions; the gate compares with phase 1, and with whom it finds best alone.

        Args:
            rows: Of the instructions to be examined on, those of the look.
        """
        environment, models = self.environment.among(rows), self.environment.planner.model.models.names
        ways = {
            "reinforced": greedy(lambda state: made.selector.probabilities([state])[0]),
            "supervised": greedy(lambda state: state.prior.astype(np.float64)),
            **{name: _always(place) for place, name in enumerate(models)},
        }
        sides: dict[str, PlanSide] = {}
        for name, choose in ways.items():
            examined(name)
            sides[name] = environment.examine(choose, made.utility)
        best = max(models, key=lambda name: sides[name].utility)
        gate, reports = scored(self.config.gate, made.utility), {}
        for rival in ("supervised", best):
            before, now = sides[rival], sides["reinforced"]
            evaluation = look.at(compared(look.tasks, before.utilities, now.utilities, made.utility, (before.taken, now.taken)))
            reports[rival] = EvaluationReport(evaluation=evaluation, decision=gate.decide(evaluation))
        return ReinforcedFinding(sides=sides, reports=reports)


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
        tasks = phase.environment.held_out
        subject = Subject(
            candidate=candidate.id,
            baseline=f"supervised, {', '.join(phase.environment.planner.model.models.names)}",
            tasks=tasks,
            settings={
                **phase.environment.settings,
                "phase 1": artifact.digest(phase.start),
                "utility": repr(made.utility),
                "gate": repr(phase.config.gate),
            },
            deterministic=phase.environment.deterministic,
            trained_on=phase.known | fingerprints(phase.environment.practised),
        )
        found = await HeldOutEvaluator(store=run.store).evaluate(
            subject,
            lambda look: phase.examine(made, look.rows(tasks), look, self._examined),
            id=run.id,
            records=lambda found: [(rival, _Against(rival, found)) for rival in found.reports],
            restore=ReinforcedFinding.restored,
        )
        self.made = replace(made, sides=found.sides, reports=found.reports)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinforcedFinding:
    """What the examination of phase 2 came to: every side, and the reports against the rivals."""

    sides: Mapping[str, PlanSide]
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

    @classmethod
    def restored(cls, record: Mapping[str, Any]) -> "ReinforcedFinding":
        """The finding, of what is kept of it against any one rival."""
        sides = {name: PlanSide.restored(side) for name, side in record["sides"].items()}
        return cls(
            sides=sides, reports={rival: EvaluationReport.restored(report) for rival, report in record["rivals"].items()}
        )


@dataclass(frozen=True, slots=True)
class _Against:
    """What is kept of the finding against one rival: its report, and all that the others are made of."""

    rival: str
    finding: ReinforcedFinding

    @property
    def passed(self) -> bool:
        return self.finding.reports[self.rival].passed

    @property
    def reason(self) -> str:
        return self.finding.reports[self.rival].reason

    def record(self) -> dict[str, Any]:
        found = self.finding
        return {
            **found.reports[self.rival].record(),
            "sides": {name: asdict(side) for name, side in found.sides.items()},
            "rivals": {rival: report.record() for rival, report in found.reports.items()},
        }


def _always(place: int) -> Choose:
    return lambda _: Chosen(action=place, log_prob=0.0)


# Is a planner better than another one? On plans that are known to be right, or on what carrying its plans out brings.


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
            **{name: found[name] for name in (*names, "contaminated", "guardrails")},
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
    """Two planners by agreement with plans that are right; see `PlanAgreement.score`."""

    examples: Sequence[Example]
    gate: BetterOnHeldOut

    @cached_property
    def plans(self) -> tuple[Plan, ...]:
        """Those that are right."""
        return tuple(example.plan for example in self.examples if example.success is None or example.success >= 1)

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """Their instructions."""
        return tuple(
            Task(id=str(at), question=plan.instruction, answer=json.dumps(plan_json.written(plan)))
            for at, plan in enumerate(self.plans)
        )

    def evaluate(self, candidate: Contender, baseline: Contender, evaluator: HeldOutEvaluator, *, id: str) -> Compared:
        """Let both plan, ask the gate, and keep what was found.

        Raises:
            InputError: There is no example that succeeded, or that nobody judged; or all of them were learned from.
        """
        if not self.plans:
            raise InputError("no plan of the data succeeded, so there is nothing to compare with")

        def measure(look: Look) -> Compared:
            some = [self.plans[row] for row in look.rows(self.tasks)]
            now, refused = _agreements(candidate.make, some)
            before, _ = _agreements(baseline.make, some)
            evaluation = look.at(pair(_results(before, look), _results(now, look)))
            report = EvaluationReport(evaluation=evaluation, decision=self.gate.decide(evaluation))
            sides = [asdict(mean_agreement(side)) for side in (now, before)]
            return Compared(report=report, candidate=sides[0], baseline=sides[1], refused=refused)

        return _counted((candidate, baseline), self.tasks, {"by": "plans", "gate": repr(self.gate)}, measure, evaluator, id)


def _agreements(make: Make, right: Sequence[Plan]) -> tuple[list[PlanAgreement], int]:
    found, refused = [], 0
    for plan in right:
        try:
            found.append(agreement(make(plan.instruction), plan))
        except PlanError:
            found.append(NO_PLAN)
            refused += 1
    return found, refused


def _results(found: Sequence[PlanAgreement], look: Look) -> list[Result]:
    scores = (each.score for each in found)
    return [Result(task_id=task.id, score=score) for task, score in zip(look.tasks, scores, strict=True)]


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
        tasks = [each.task for each in self.asked]

        def measure(look: Look) -> Compared:
            asked = [self.asked[row] for row in look.rows(tasks)]
            now, refused = self._side(candidate.make, asked)
            before, _ = self._side(baseline.make, asked)
            took = before.taken, now.taken
            evaluation = look.at(compared(look.tasks, before.utilities, now.utilities, self.utility, took))
            report = EvaluationReport(evaluation=evaluation, decision=self.gate.decide(evaluation))
            return Compared(report=report, candidate=now.json(), baseline=before.json(), refused=refused)

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
            taken=tuple(dict.fromkeys(METRICS, 0.0) if result is None else taken(result) for result in results),
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


# The curves of a training: in metrics.jsonl always, and for TensorBoard or Weights & Biases.


class MetricsWriter(Protocol):
    def add(self, phase: int, number: int, values: Mapping[str, float]) -> None:
        """What one epoch or update brought; the number is from 1, and one that comes again takes the place of the first."""

    def close(self) -> None: ...


class MetricsFile:
    """metrics.jsonl: a line for each epoch of phase 1 and each update of phase 2."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "metrics.jsonl"

    def add(self, phase: int, number: int, values: Mapping[str, float]) -> None:
        lines = self._path.read_text("utf-8").splitlines() if self._path.exists() else []
        known = [line for line in lines if not self._again(line, phase, number)]
        write_text(
            self._path, "".join(f"{line}\n" for line in (*known, json.dumps({"phase": phase, "step": number, **values})))
        )

    def _again(self, line: str, phase: int, number: int) -> bool:
        """Whether a line is of this step or a later one of the phase, as a training that goes on leaves behind."""
        try:
            said = json.loads(line)
            return bool(said["phase"] == phase and said["step"] >= number)
        except (ValueError, KeyError, TypeError):
            return True

    def close(self) -> None: ...


class TensorBoard:
    """Event files in a folder, beside those of an earlier part of the same training."""

    def __init__(self, folder: Path) -> None:
        # Asks for an extra, which only this class needs.
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder))

    def add(self, phase: int, number: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"phase{phase}/{name}", value, number)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of the project `journeyman`. What is sent are the numbers of each epoch or update, no data."""

    def __init__(self, folder: Path) -> None:
        try:
            self._run: Any = import_module("wandb").init(project="journeyman", dir=str(folder))
        except ModuleNotFoundError:
            raise MissingExtra("wandb is missing: pip install wandb, or leave out --tracker wandb") from None

    def add(self, phase: int, number: int, values: Mapping[str, float]) -> None:
        self._run.log({f"phase{phase}/{name}": value for name, value in values.items()}, step=number)

    def close(self) -> None:
        self._run.finish()


@contextmanager
def watched(folder: Path, tracker: str | None = None) -> Iterator[Callable[[Epoch | PPOUpdate], None]]:
    """What is told of each epoch or update, and writes metrics.jsonl in the folder and the curves of a tracker.

    Args:
        tracker: "tensorboard", "wandb" or "none"; TensorBoard where it is installed when nobody says.

    Raises:
        MissingExtra: It is asked for and not installed.
    """
    # The one that may be missing first, so that nothing is left open.
    watching: list[MetricsWriter] = [WeightsAndBiases(folder)] if tracker == "wandb" else []
    watching.append(MetricsFile(folder))
    if tracker in (None, "tensorboard"):
        try:
            watching.append(TensorBoard(folder / "tensorboard"))
        except ModuleNotFoundError:
            if tracker is not None:
                raise MissingExtra("tensorboard is missing: pip install 'journeyman[planner]'") from None

    def tell(step: Epoch | PPOUpdate) -> None:
        phase, number = (1, step.number) if isinstance(step, Epoch) else (2, step.update)
        said = {name: value for name, value in asdict(step).items() if name not in ("number", "update")}
        values = {name: float(value) for name, value in said.items() if isinstance(value, int | float)}
        for watcher in watching:
            watcher.add(phase, number, values)

    try:
        yield tell
    finally:
        for watcher in watching:
            watcher.close()
