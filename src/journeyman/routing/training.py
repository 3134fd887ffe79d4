"""A router is trained: outcomes are split, predictors fitted, and what was learned is proven on requests that it never saw."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from journeyman import app
from journeyman.embed.base import Embedder, Vectors
from journeyman.errors import InputError
from journeyman.experiments.evaluator import landmarks
from journeyman.gate import BetterOnHeldOut
from journeyman.learn.playbook.files import write_text
from journeyman.learn.router import fit, policies
from journeyman.learn.router.base import Forecasts
from journeyman.learn.router.decide import Decision, decide, tuned_dual
from journeyman.learn.router.objective import Objective
from journeyman.learn.router.parts import Parts, key, parts
from journeyman.learn.router.predict import Fitted
from journeyman.learn.router.table import Table
from journeyman.release import Release, Stage
from journeyman.routing import policies as kept
from journeyman.routing.newcomers import placed
from journeyman.routing.proving import Proof, Utilities, answered, prove, singles
from journeyman.stores.artifacts import Artifacts
from journeyman.stores.base import EvaluationRecord, RunRecord, RunState, Store
from journeyman.task import Task
from journeyman.whole import sha256

_BLOCK = 256
"""Requests that are embedded between two words about the progress."""

Said = Callable[[str, int, int], None]
"""Is told what is done, how much of it, and of how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig:
    """How a router is trained and proven."""

    objective: Objective = field(default_factory=Objective)
    held_out: float = 0.2
    """Share of the requests to prove it on, where the file sets none apart."""
    validation: float = 0.15
    """Share of the requests to choose by: which policy is used, what a dollar is worth, and what is unfamiliar."""
    seed: int = 0
    evaluate: bool = True
    least_gain: float = 0.0
    """In successes: what even the low end of the interval must exceed."""
    least_tasks: int = 30
    alpha: float = 0.05
    target_stage: Stage = Stage.SHADOW
    """Where it goes if it passes."""
    force: bool = False
    """Go there even if it does not pass."""
    newcomers: tuple[str, ...] = ()
    """Workers that were asked a few requests only, and are placed by these: see `routing.newcomers`."""

    @property
    def gate(self) -> BetterOnHeldOut:
        return BetterOnHeldOut(least_gain=self.least_gain, least_tasks=self.least_tasks, alpha=self.alpha)

    def json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What came of a training."""

    policy: kept.Policy
    sizes: dict[str, int]
    """Rows of each part."""
    used: str
    """What the validation rows say of the learned policy and the best single worker."""
    proof: Proof | None
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


def train(table: Table, embedder: Embedder, config: RouterConfig, places: Places, said: Said = lambda *_: None) -> Trained:
    """Learn a router from outcomes, prove it, and keep it.

    What does not pass stays in shadow, and who serves it asks the best single worker.

    Raises:
        InputError: There is too little to learn from, or the objective cannot be met by any worker.
    """
    split = parts(table, held_out=config.held_out, validation=config.validation, seed=config.seed)
    table = learnable(table, split, config.objective)
    if config.newcomers:
        table = placed(table, split.train, config.newcomers)
    vectors = embedded(embedder, table.requests, said)
    run_id = f"router-{app.now():%Y%m%d-%H%M%S-%f}"
    places.store.add_run(RunRecord(id=run_id, kind="train router", config=config.json(), started_at=app.now()))
    places.store.mark_run(run_id, RunState.RUNNING, app.now())
    try:
        trained = _trained(table, vectors, split, config, _Bench(places, embedder, run_id, said))
    except BaseException:
        places.store.mark_run(run_id, RunState.STOPPED, app.now())
        raise
    places.store.mark_run(run_id, RunState.FINISHED, app.now(), trained.json())
    return trained


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


def embedded(embedder: Embedder, requests: tuple[str, ...], said: Said = lambda *_: None) -> Vectors:
    """(n, d), a block after the other, so that it can be told how far it is."""
    blocks = []
    for start in range(0, len(requests), _BLOCK):
        blocks.append(embedder.embed(requests[start : start + _BLOCK]))
        said("embedding", min(start + _BLOCK, len(requests)), len(requests))
    return np.concatenate(blocks) if blocks else embedder.embed([])


def choices(policy: kept.Policy, forecasts: Forecasts) -> Decision:
    """What a policy chooses for many requests, as a router at work would, but that it sees no drift of all together."""
    made = decide(forecasts, policy.objective, dual=policy.dual)
    safe = policy.objective.safe or policy.best
    column = forecasts.workers.index(safe) if policy.objective.admits(safe) else -1
    return replace(made, chosen=np.where(forecasts.familiar < policy.fitted.strange, column, made.chosen))


@dataclass(frozen=True, slots=True)
class _Bench:
    places: Places
    embedder: Embedder
    run_id: str
    said: Said


def _trained(table: Table, vectors: Vectors, split: Parts, config: RouterConfig, bench: _Bench) -> Trained:
    train_rows, validation = table.take(split.train), table.take(split.validation)
    bench.said("fitting", 0, 1)
    fitted = fit.fit(train_rows, vectors[list(split.train)], seed=config.seed, embedder=bench.embedder.name)
    bench.said("fitting", 1, 1)
    forecasts = fitted.forecast(vectors[list(split.validation)], validation.requests, validation.types)
    policy = _policy(fitted, train_rows, forecasts, config, bench.places.folder)
    used = _used(train_rows, validation, forecasts, config.objective)
    result = Trained(
        policy=policy,
        sizes={
            "train": len(split.train),
            "validation": len(split.validation),
            "held_out": len(split.held_out),
            "left_out": len(split.left_out),
        },
        used=used.reason if used else "no validation row tells of both, so nothing was compared on them",
        proof=None,
        passed=False,
        forced=config.force and config.target_stage is not Stage.SHADOW,
        reason="not evaluated, so not proven",
        stage=Stage.SHADOW,
    )
    if config.evaluate and used is not None and used.best != policies.LEARNED:
        result = replace(result, reason=f"not examined on held-out requests: {used.reason}")
    elif config.evaluate:
        bench.said("examining", 0, 1)
        held_out = table.take(split.held_out)
        forecasts = fitted.forecast(vectors[list(split.held_out)], held_out.requests, held_out.types)
        proof = examine(policy, held_out, forecasts, config.gate, bench.places.store, bench.run_id)
        bench.said("examining", 1, 1)
        forced = result.forced and not proof.report.passed
        result = replace(result, proof=proof, passed=proof.report.passed, reason=proof.report.reason, forced=forced)
    if result.passed or result.forced:
        result = replace(result, stage=config.target_stage)
    _keep(result, bench)
    return result


def _policy(fitted: Fitted, rows: Table, forecasts: Forecasts, config: RouterConfig, folder: Path) -> kept.Policy:
    objective = config.objective
    kept.write_predictor(fitted, folder)
    return kept.Policy(
        fitted=fitted,
        predictor=sha256(folder / kept.PREDICTOR),
        objective=objective,
        # Who was hardly asked is nobody to fall back on.
        singles=singles(rows.among([name for name in rows.workers if name not in config.newcomers]), objective),
        dual=tuned_dual(forecasts, objective) if objective.max_cost is not None else 0.0,
        unfamiliar=float((forecasts.familiar < fitted.strange).mean()),
        most=Utilities.of(rows, objective).most,
        split=(config.held_out, config.validation, config.seed),
    )


def _used(rows: Table, validation: Table, forecasts: Forecasts, objective: Objective) -> policies.Policies | None:
    """Learned policy or best single worker, by the validation rows; `None` where no row tells of both."""
    complete = answered(validation)
    if not (~np.isnan(complete.success)).all(axis=1).any():
        return None
    return policies.compare(answered(rows), complete, forecasts, objective)


def examine(
    policy: kept.Policy, held_out: Table, forecasts: Forecasts, gate: BetterOnHeldOut, store: Store, run_id: str
) -> Proof:
    """Let the gate look at a policy's choices for held-out requests; the look is counted before it is made."""
    tasks = [Task(id=id, question=key(request)) for id, request in zip(held_out.ids, held_out.requests, strict=True)]
    marks = landmarks(tasks)
    examined = hashlib.sha256("\n".join(sorted(task.question for task in tasks)).encode(errors="surrogatepass")).hexdigest()[
        :16
    ]
    at = app.now()
    look = max((store.record_look(mark, policy.id, at, f"{policy.best}/{examined}") for mark in marks), default=1)
    proof = prove(held_out, choices(policy, forecasts), best=policy.best, most=policy.most, gate=gate, looks=look - 1)
    store.add_candidate(policy.candidate)
    store.add_evaluation(
        EvaluationRecord(
            id=f"{run_id}/{policy.id}/{policy.best}/{examined}/{look}",
            candidate_id=policy.id,
            baseline_id=f"single:{policy.best}",
            held_out_id=examined,
            passed=proof.report.passed,
            reason=proof.report.reason,
            report=proof.json(),
            at=at,
        )
    )
    return proof


def _keep(result: Trained, bench: _Bench) -> None:
    """Files, artifact, candidate and, of what passed or was forced, the release."""
    policy, places = result.policy, bench.places
    kept.save(policy, places.folder)
    told = {"policy": policy.id, "passed": result.passed, "forced": result.forced, "reason": result.reason}
    write_text(
        places.folder / kept.VERDICT, json.dumps({**told, "stage": result.stage.value, "run": bench.run_id}, indent=1) + "\n"
    )
    kept.keep(policy, places.folder, places.artifacts)
    places.store.add_candidate(policy.candidate)
    if (result.passed or result.forced) and places.store.release(policy.id) is None:
        reason = f"{result.reason} ({bench.run_id})"
        places.store.add_release(Release.begin(policy.id, result.stage, reason, app.now(), forced=result.forced))
