"""A router is trained: outcomes are split, predictors fitted, and what was learned is proven on requests that it never saw."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from journeyman.agents.attempt import Attempt, attempt_all, refusal
from journeyman.core.candidate import Candidate
from journeyman.core.errors import InputError, ModelRefused
from journeyman.core.gate import BetterOnHeldOut
from journeyman.core.policy import Choice, Ending, Outcome
from journeyman.core.release import Stage
from journeyman.core.task import fingerprints
from journeyman.experiments import wiring
from journeyman.experiments.evaluator import HeldOutEvaluator, Look, Subject
from journeyman.experiments.loop import Finding, Iteration, Unproven, improve
from journeyman.experiments.release_policy import ReleasePolicy
from journeyman.experiments.router.config import RouterConfig
from journeyman.experiments.router.evaluation import RouterEvaluation, Utilities, prove, singles
from journeyman.experiments.run import Run, blocking
from journeyman.io.atomic import write_text
from journeyman.io.files import sha256
from journeyman.models.base import Model
from journeyman.models.embedders import Embedder, Vectors
from journeyman.optimizers.outcome_table import OutcomeRow, Parts, Table, parts
from journeyman.optimizers.router import artifact, fit
from journeyman.optimizers.router.artifact import Policy
from journeyman.optimizers.router.cold_start import placed
from journeyman.optimizers.router.decide import LEARNED, BatchDecision, Policies, compare, decide, tuned_dual
from journeyman.optimizers.router.decisions import LoggedDecision
from journeyman.optimizers.router.objective import Objective
from journeyman.optimizers.router.outcomes import rows_of_files
from journeyman.optimizers.router.predict import Fitted, Forecasts
from journeyman.rewards.utility import RewardReport, Runs, Utility, lint, total
from journeyman.stats import Floats, LoggedDecisions, OffPolicyResult, evaluate_policy, request_features
from journeyman.stores.artifacts import Artifacts
from journeyman.stores.base import Store
from journeyman.tasks.base import Dataset

_BLOCK = 256
"""Requests that are embedded between two words about the progress."""

Progress = Callable[[str, int, int], None]
"""Is told what is done, how much of it, and of how much."""


@dataclass(frozen=True, kw_only=True)
class TrainedRouter:
    """What came of a training."""

    policy: Policy
    sizes: dict[str, int]
    """Rows of each part."""
    used: str
    """What the validation rows say of the learned policy and the best single worker."""
    proof: RouterEvaluation | None
    """`None` where it was not examined."""
    passed: bool
    forced: bool
    reason: str
    stage: Stage

    def json(self) -> dict[str, Any]:
        return {
            "policy": self.policy.id,
            "workers": list(self.policy.fitted.workers),
            "best_single": self.policy.best,
            "objective": str(self.policy.objective),
            "rows": self.sizes,
            "validation": self.used,
            "passed": self.passed,
            "forced": self.forced,
            "reason": self.reason,
            "stage": self.stage.value,
            "serves": "router" if self.passed or self.forced else self.policy.best,
            "evaluation": None if self.proof is None else self.proof.json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where a training keeps what it makes."""

    folder: Path
    store: Store
    artifacts: Artifacts


def train(
    table: Table, embedder: Embedder, config: RouterConfig, places: Places, progress: Progress = lambda *_: None
) -> TrainedRouter:
    """Learn a router from outcomes, prove it, and keep it.

    What does not pass stays in shadow, and who serves it asks the best single worker.

    Raises:
        InputError: There is too little to learn from, or the objective cannot be met by any worker.
    """
    split = parts(table, held_out=config.held_out_share, validation=config.validation, least=config.min_tasks)
    table = learnable(table, split, config.objective)
    if config.newcomers:
        table = placed(table, split.train, config.newcomers)
    vectors = embedded(embedder, table.requests, progress)
    run = Run.new("router", kind="train router", config=config.json(), store=places.store)
    optimizer = RouterOptimizer(table, vectors, split, config, _Tools(places, embedder.name, run, progress))
    with run.tracked():
        blocking(
            improve(
                optimizer,
                baseline=None,
                run=run,
                evaluate=optimizer.evaluate,
                releases=ReleasePolicy(target=config.target_stage, force=config.force),
                settle=optimizer.settle,
            )
        )
        assert optimizer.trained is not None
        run.end(optimizer.trained.json())
    return optimizer.trained


def learnable(table: Table, split: Parts, objective: Objective) -> Table:
    """The table of those workers of which a judged row tells something, found out before work is spent on it.

    Raises:
        InputError: There is too little to learn from, or the objective names a worker that is none of them.
    """
    if len(table.workers) > 1 and not (split.train and split.validation):
        raise InputError(
            f"{len(table)} requests leave {len(split.train)} to learn from and {len(split.validation)} to choose by; bring more"
        )
    judged = (~np.isnan(table.success[list(split.train)])).any(axis=0)
    workers = [table.workers[column] for column in np.flatnonzero(judged)]
    if len(workers) < 2:
        raise InputError(
            f"the judged outcomes to learn from are of {len(workers)} worker{'' if len(workers) == 1 else 's'}, "
            f"and a router chooses among two at least; {len(table.workers)} stand there"
        )
    named = (*objective.allow, *objective.deny, *((objective.safe,) if objective.safe else ()))
    if strange := [name for name in named if name not in table.workers or (name == objective.safe and name not in workers)]:
        raise InputError(
            f"{strange[0]!r} is allowed, denied or safe, and no outcome of it was learned from; known are {', '.join(workers)}"
        )
    return table.among(workers)


def embedded(embedder: Embedder, requests: tuple[str, ...], progress: Progress = lambda *_: None) -> Vectors:
    """(n, d), a block after the other, so that it can be told how far it is."""
    blocks = []
    for start in range(0, len(requests), _BLOCK):
        blocks.append(embedder.embed(requests[start : start + _BLOCK]))
        progress("embedding", min(start + _BLOCK, len(requests)), len(requests))
    return np.concatenate(blocks) if blocks else embedder.embed([])


def choices(policy: Policy, forecasts: Forecasts) -> BatchDecision:
    """What a policy chooses for many requests, as a router at work would, but that it sees no drift of all together."""
    made = decide(forecasts, policy.objective, dual=policy.dual)
    safe = policy.objective.safe or policy.best
    column = forecasts.workers.index(safe) if policy.objective.admits(safe) else -1
    return replace(made, chosen=np.where(forecasts.familiar < policy.fitted.strange, column, made.chosen))


@dataclass(frozen=True, slots=True)
class _Tools:
    places: Places
    embedder: str
    run: Run
    progress: Progress


class RouterOptimizer:
    """Fits predictors on outcomes, and chooses by them. Implements `experiments.loop.Optimizer`; none of its steps waits."""

    name = "router"

    def __init__(self, table: Table, vectors: Vectors, split: Parts, config: RouterConfig, tools: _Tools) -> None:
        self._table, self._vectors, self._split, self._config, self._tools = table, vectors, split, config, tools
        self._proof: RouterEvaluation | None = None
        self._policy: Policy
        self._used: Policies | None = None
        self.trained: TrainedRouter | None = None
        """Once it is settled what becomes of it."""

    async def optimize(self, baseline: Candidate | None, run: Run) -> Candidate | None:
        """A policy; whether it, or the best single worker, is used, is told by the validation rows."""
        table, vectors, split, config = self._table, self._vectors, self._split, self._config
        train_rows, validation = table.take(split.train), table.take(split.validation)
        self._tools.progress("fitting", 0, 1)
        fitted = fit.fit(train_rows, vectors[list(split.train)], seed=config.seed, embedder=self._tools.embedder)
        self._tools.progress("fitting", 1, 1)
        forecasts = fitted.forecast(vectors[list(split.validation)], validation.requests, validation.types)
        policy = _policy(fitted, train_rows, forecasts, config, self._tools.places.folder)
        self._policy = replace(policy, trained_on=fingerprints((*train_rows.requests, *validation.requests)))
        self._used = _used(train_rows, validation, forecasts, config.objective)
        return self._policy.candidate

    async def evaluate(self, candidate: Candidate, baseline: Candidate | None) -> Finding:
        """Let the gate look at it, where validation lets it be used at all."""
        used = self._used
        if not self._config.evaluate:
            return Unproven("not evaluated, so not proven")
        if used is not None and used.best != LEARNED:
            return Unproven(f"not examined on held-out requests: {used.reason}")
        self._tools.progress("examining", 0, 1)
        rows = list(self._split.held_out)
        held_out, store = (self._table.take(rows), self._vectors[rows]), self._tools.places.store
        self._proof = examine(self._policy, held_out, self._config.gate, HeldOutEvaluator(store=store), self._tools.run.id)
        self._tools.progress("examining", 1, 1)
        return self._proof

    def settle(self, iteration: Iteration) -> None:
        """Files, artifact and candidate."""
        used = self._used.reason if self._used else "no validation row tells of both, so nothing was compared on them"
        names = ("train", "validation", "held_out", "left_out")
        self.trained = TrainedRouter(
            policy=self._policy,
            sizes={name: len(getattr(self._split, name)) for name in names},
            used=used,
            proof=self._proof,
            passed=iteration.passed,
            forced=iteration.forced,
            reason=iteration.reason,
            stage=iteration.stage,
        )
        _save(self.trained, self._tools)


def _policy(fitted: Fitted, rows: Table, forecasts: Forecasts, config: RouterConfig, folder: Path) -> Policy:
    objective = config.objective
    artifact.write_predictor(fitted, folder)
    return Policy(
        fitted=fitted,
        predictor=sha256(folder / artifact.PREDICTOR),
        objective=objective,
        # Who was hardly asked is nobody to fall back on.
        singles=singles(rows.among([name for name in rows.workers if name not in config.newcomers]), objective),
        dual=tuned_dual(forecasts, objective) if objective.max_cost is not None else 0.0,
        unfamiliar=float((forecasts.familiar < fitted.strange).mean()),
        most=Utilities.of(rows, objective).most,
        split=(config.held_out_share, config.validation, 0),
    )


def _used(rows: Table, validation: Table, forecasts: Forecasts, objective: Objective) -> Policies | None:
    """Learned policy or best single worker, by the validation rows; `None` where no row tells of both."""
    complete = validation.answered
    if not (~np.isnan(complete.success)).all(axis=1).any():
        return None
    return compare(rows.answered, complete, forecasts, objective)


def examine(
    policy: Policy, held_out: tuple[Table, Vectors], gate: BetterOnHeldOut, evaluator: HeldOutEvaluator, name: str
) -> RouterEvaluation:
    """Let the gate look at a policy's choices for held-out requests.

    Args:
        held_out: The requests with what became of them, and their vectors. Those that were learned from are left out.
        name: Of the run or command; part of the evaluation's id.

    Raises:
        InputError: All of the requests were learned from.
    """
    table, vectors = held_out
    tasks = table.tasks

    def measure(look: Look) -> RouterEvaluation:
        rows = look.rows(tasks)
        some = table.take(rows)
        forecasts = policy.fitted.forecast(vectors[rows], some.requests, some.types)
        return prove(some, choices(policy, forecasts), best=policy.best, most=policy.most, gate=gate, look=look)

    subject = Subject(
        candidate=policy.id,
        baseline=f"single:{policy.best}",
        tasks=tasks,
        settings={"outcomes": table.digest, "objective": str(policy.objective), "gate": repr(gate)},
        deterministic=True,
        trained_on=policy.trained_on,
        learned=policy.candidate,
    )
    return blocking(evaluator.evaluate(subject, measure, id=name, records=lambda proof: [(subject.baseline, proof)]))


def _save(result: TrainedRouter, tools: _Tools) -> None:
    """Files, artifact and candidate."""
    policy, places = result.policy, tools.places
    artifact.save(policy, places.folder)
    told = {"policy": policy.id, "passed": result.passed, "forced": result.forced, "reason": result.reason}
    write_text(
        places.folder / artifact.VERDICT,
        json.dumps({**told, "stage": result.stage.value, "run": tools.run.id}, indent=1) + "\n",
    )
    artifact.keep(policy, places.folder, places.artifacts)
    places.store.add_candidate(policy.candidate)


# Outcomes of tasks that models attempt for this, where none were recorded.

OUTCOMES = "outcomes.jsonl"
"""In the folder of a router: what became of the tasks that were attempted for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempting:
    """Models at the tasks of a data set. What became of each attempt is on the disk before the next is counted."""

    dataset: Dataset
    models: Mapping[str, Model]
    """By the names that outcomes are kept under."""
    path: Path
    """Where outcomes are kept; what stands there was paid for, and is not attempted again."""
    progress: Progress = lambda *_: None

    async def outcomes(self) -> tuple[tuple[OutcomeRow, ...], str]:
        """The outcomes of these tasks and models; then why some are missing, where some are.

        Raises:
            ModelRefused: A model said no for good to everything.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        known = {(row.id, name) for row in self._kept() for name in row.outcomes}
        todo = {name: [each for each in self.dataset.tasks if (each.id, name) not in known] for name in self.models}
        total, done, why = sum(map(len, todo.values())), 0, ""

        def told(name: str, attempt: Attempt) -> None:
            nonlocal done
            done += 1
            self._keep(name, attempt)
            self.progress("attempting", done, total)

        for name, some in todo.items():
            agent = wiring.agent_for(self.dataset)(model=self.models[name])
            attempts = await attempt_all(
                agent, some, self.dataset.verifier, prefix=name, clock=wiring.now, done=partial(told, name)
            )
            if some and (refused := refusal(attempts)) is not None:
                raise ModelRefused(f"{name}: {refused}")
            unknown = [each for each in attempts if not _is_known(each)]
            if unknown:
                reason = unknown[0].trace.error or "nobody could judge them"
                why = why or f"{len(unknown)} of {len(attempts)} attempts of {name} are unknown: {reason}"
        wanted = {task.id for task in self.dataset.tasks}
        return tuple(row for row in self._kept() if row.id in wanted), why

    def _kept(self) -> tuple[OutcomeRow, ...]:
        return rows_of_files([self.path]) if self.path.exists() and self.path.stat().st_size else ()

    def _keep(self, name: str, attempt: Attempt) -> None:
        """An attempt that broke off, or that nobody could judge, is unknown: it is attempted again the next time."""
        if not _is_known(attempt):
            return
        task, trace = attempt.task, attempt.trace
        row = {
            "id": task.id,
            "request": task.question,
            "type": task.domain,
            "split": task.split.value,
            **({"cluster": task.cluster} if task.cluster else {}),
            "model": name,
            "success": attempt.score.total,
            "cost": trace.cost,
            "seconds": trace.seconds,
        }
        with self.path.open("ab") as file:
            file.write(json.dumps(row).encode() + b"\n")


def _is_known(attempt: Attempt) -> bool:
    return attempt.trace.error is None and attempt.score.total is not None


# What another way of choosing would have brought, told from the log of decisions that were really made.

Embed = Callable[[Sequence[str]], Vectors]


@dataclass(frozen=True, kw_only=True)
class OffPolicyReport:
    """What another way of choosing would have brought, and what it was measured by."""

    who: str
    """The router's id, or the worker that would always have been chosen."""
    result: OffPolicyResult
    skipped: int
    """Decisions whose worth or text is not known."""
    utility: Utility
    reward: RewardReport
    """What that utility does on these decisions."""

    def json(self) -> dict[str, Any]:
        found = self.result
        return {
            "who": self.who,
            "decisions": found.decisions,
            "skipped": self.skipped,
            "effective": found.effective,
            "refused": found.refused,
            "better": found.better,
            "logged": asdict(found.logged),
            "estimates": {name: asdict(each) for name, each in found.estimates.items()},
            "gain": asdict(found.gain) if found.gain else None,
            "utility": asdict(self.utility),
            "reward": asdict(self.reward),
        }


def of_worker(decisions: Sequence[LoggedDecision], worker: str, objective: Objective) -> OffPolicyReport:
    """What one worker, asked always, would have brought.

    Raises:
        InputError: No decision has a known outcome.
    """
    judged = _judged(decisions, texts=False)
    features = request_features(np.zeros((len(judged.choices), 1)), judged.types)
    return judged.report(worker, [worker] * len(judged.choices), features, objective)


def of_router(decisions: Sequence[LoggedDecision], policy: Policy, embed: Embed) -> OffPolicyReport:
    """What a trained router would have brought by its own objective, had it chosen without exploring.

    Raises:
        InputError: No decision has a known outcome and its text.
    """
    judged, workers = _judged(decisions, texts=True), policy.fitted.workers
    vectors = embed(judged.requests)
    chosen = choices(policy, policy.fitted.forecast(vectors, judged.requests, judged.types)).chosen
    names = [workers[at] if at >= 0 else policy.best for at in chosen.tolist()]
    features = request_features(vectors, judged.types)
    return judged.report(policy.id, names, features, policy.objective, workers)


def utility_of(objective: Objective, runs: Runs) -> Utility:
    """A router's objective as a utility of what really came: the same successes for a dollar and a second."""
    dollars, half, most = objective.weights
    paid = {"dollars_per_success": dollars, "seconds_per_success": half + most}
    made = Utility.of(runs, **{name: 1 / weight for name, weight in paid.items() if weight})
    return replace(
        made,
        cost_weight=made.cost_weight if dollars else 0.0,
        latency_weight=made.latency_weight if half + most else 0.0,
    )


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """The decisions of a log whose outcome somebody judged."""

    choices: tuple[Choice, ...]
    runs: Runs
    requests: tuple[str, ...]
    types: tuple[str, ...]
    decisions: int
    """Of the whole log."""

    def report(
        self, who: str, names: Sequence[str], features: Floats, objective: Objective, workers: Sequence[str] = ()
    ) -> OffPolicyReport:
        """What choosing these names, one for each decision, would have brought; `workers` are all that could be named."""
        utility = utility_of(objective, self.runs)
        rewards = total(utility, self.runs)
        logged = LoggedDecisions.of(self.choices, rewards, features, workers=workers or names)
        target = np.asarray([[float(worker == name) for worker in logged.workers] for name in names])
        return OffPolicyReport(
            who=who,
            result=evaluate_policy(logged, target),
            skipped=self.decisions - len(logged),
            utility=utility,
            reward=lint(utility, self.runs),
        )


def _judged(decisions: Sequence[LoggedDecision], *, texts: bool) -> _Judged:
    ended = [(each, _with_failures(each.outcome)) for each in decisions if each.outcome is not None]
    known = [(each, outcome) for each, outcome in ended if outcome.success is not None and (each.request or not texts)]
    if not known:
        missing = "an outcome that somebody judged, and its text" if texts else "an outcome that somebody judged"
        raise InputError(f"of {len(decisions)} decisions none has {missing}; tell outcomes with `Router.became`")
    return _Judged(
        choices=tuple(each.choice for each, _ in known),
        runs=Runs.of((each.choice.worker, outcome) for each, outcome in known),
        requests=tuple(each.request or "" for each, _ in known),
        types=tuple(each.type for each, _ in known),
        decisions=len(decisions),
    )


def _with_failures(outcome: Outcome) -> Outcome:
    """With a success of 0 where the provider failed: left out, one that is often down would look as good as its answers."""
    return replace(outcome, success=0.0) if outcome.ending is Ending.ERROR else outcome
