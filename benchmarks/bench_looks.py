"""Simulates what counting looks promises: a candidate that is no better, examined again and again, hardly ever passes.

    python benchmarks/bench_looks.py
    python benchmarks/bench_looks.py --worlds 20 --repeats 40 --kind planner --json

In each world one candidate that is as good as its baseline is examined 40 times on the same held-out tasks, by workers that
answer by chance, through the evaluator that all optimizers go through, with a store in memory. A world in which it passes even
once is one too many. The exit code is 1 when more than 5 % of the worlds of a kind are.
"""

import argparse
import asyncio
import json
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from journeyman.agents.attempt import Agent
from journeyman.core.candidate import Candidate, Kind
from journeyman.core.gate import BetterOnHeldOut
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.policy import Ending, Outcome
from journeyman.core.task import Split, Task
from journeyman.core.trace import ModelCall, Step
from journeyman.experiments.agents import AgentEvaluation
from journeyman.experiments.evaluator import HeldOutEvaluator
from journeyman.experiments.planner.collect import Instruction
from journeyman.experiments.planner.environment import PlanSide
from journeyman.experiments.planner.training import Contender, LiveExamination
from journeyman.experiments.router.training import examine
from journeyman.models.embedders import HashingEmbedder
from journeyman.models.embedders import load as embedder
from journeyman.models.scripted import Scripted
from journeyman.optimizers.outcome_table import OutcomeRow, Table
from journeyman.optimizers.router import fit, outcomes
from journeyman.optimizers.router.artifact import Policy
from journeyman.optimizers.router.objective import Objective
from journeyman.optimizers.router.predict import Fitted
from journeyman.rewards.utility import Runs, Utility
from journeyman.stores import open_store
from journeyman.tasks.answers import Exact
from journeyman.tasks.base import Dataset

AT_MOST = 0.05
TASKS = 40
RIGHT = 0.5
"""How often each side answers right, at each task alike."""
World = Callable[[int, random.Random], Callable[[], bool]]
"""From its number and its chance to one examination after another, and whether that was passed."""
GATE = BetterOnHeldOut()
EMBEDDING = HashingEmbedder(16)


@dataclass(frozen=True, slots=True)
class Guesser:
    """Answers by chance. Implements `rollout.Agent`."""

    chance: random.Random
    candidate_id: str

    async def run(self, task: Task) -> AsyncIterator[Step]:
        reply = "Answer: 1" if self.chance.random() < RIGHT else "Answer: 0"
        yield ModelCall(model="guess", prompt=task.question, reply=reply)


def agents(world: int, chance: random.Random, weights: Candidate | None) -> Callable[[], bool]:
    """Two agents on the tasks of a data set."""

    def guesser(*, candidate_id: str = "base", **_: Any) -> Agent:
        return Guesser(chance, candidate_id)

    tasks = tuple(
        Task(id=str(n), question=f"world {world}, question {n}", answer="1", split=Split.HELD_OUT) for n in range(TASKS)
    )
    model = Scripted("")
    evaluation = AgentEvaluation(
        evaluator=HeldOutEvaluator(store=open_store("memory:")),
        model=model,
        rival=model if weights else None,
        dataset=Dataset(name="guesses", tasks=tasks, verifier=Exact()),
        embedder=embedder("hashing"),
        gate=GATE,
        agent=guesser,
        weights=weights,
    )
    playbook = Playbook() if weights else Playbook(bullets=(Bullet(id="b-1", content="Guess well."),))

    def again() -> bool:
        return asyncio.run(evaluation.evaluate(playbook, Playbook(), id="looks")).passed

    return again


def playbook(world: int, chance: random.Random) -> Callable[[], bool]:
    return agents(world, chance, None)


def weights(world: int, chance: random.Random) -> Callable[[], bool]:
    return agents(world, chance, Candidate(kind=Kind.ADAPTER, body=f"adapter {world}"))


def drawn(said: str, rows: int, chance: random.Random) -> Table:
    """Outcomes of two workers that are alike."""

    def outcome() -> Outcome:
        right = chance.random() < RIGHT
        return Outcome(ending=Ending.RIGHT if right else Ending.WRONG, success=float(right), cost=0.01, seconds=1.0)

    requests = [f"{said} {n}" for n in range(rows)]
    return outcomes.table(
        [OutcomeRow(id=each, request=each, outcomes={name: outcome() for name in ("one", "other")}) for each in requests]
    )


@cache
def fitted() -> Fitted:
    learned = drawn("lesson", 60, random.Random(0))
    return fit.fit(learned, EMBEDDING.embed(learned.requests), embedder=EMBEDDING.name)


def router(world: int, chance: random.Random) -> Callable[[], bool]:
    """A policy over two workers, on recorded outcomes that are drawn anew each time."""
    policy = Policy(fitted=fitted(), predictor=f"{world}", objective=Objective(), singles=("one", "other"))
    evaluator = HeldOutEvaluator(store=open_store("memory:"))

    def again() -> bool:
        table = drawn(f"world {world}, request", TASKS, chance)
        return examine(policy, (table, EMBEDDING.embed(table.requests)), GATE, evaluator, "looks").passed

    return again


@dataclass(frozen=True, kw_only=True)
class Guessed(LiveExamination):
    """Plans whose outcomes are chance."""

    chance: random.Random

    def _side(self, make: Any, asked: Any) -> tuple[PlanSide, int]:
        utilities = tuple(float(self.chance.random() < RIGHT) for _ in asked)
        return PlanSide(utilities=utilities, success=float(np.mean(utilities)), cost=None, seconds=None), 0


def planner(world: int, chance: random.Random) -> Callable[[], bool]:
    """Two planners whose plans are carried out."""
    utility = Utility.of(Runs.one(success=1.0, cost=0.001))
    asked: Any = [Instruction(id=str(n), text=f"world {world}, instruction {n}") for n in range(TASKS)]
    orchestrator: Any = None
    examination = Guessed(asked=asked, orchestrator=orchestrator, utility=utility, gate=GATE, chance=chance)
    evaluator, nothing = HeldOutEvaluator(store=open_store("memory:")), Contender(id="", make=lambda _: None)  # type: ignore[arg-type,return-value]
    one, other = replace(nothing, id="candidate"), replace(nothing, id="baseline")
    return lambda: examination.evaluate(one, other, evaluator, id="looks").passed


KINDS: Mapping[str, World] = {"playbook": playbook, "router": router, "planner": planner, "weights": weights}


def passing(kind: str, *, worlds: int, repeats: int, seed: int = 0) -> int:
    """In how many worlds a candidate that is no better passes at least once."""
    passed = 0
    for world in range(worlds):
        again = KINDS[kind](world, random.Random(f"{seed} {kind} {world}"))
        passed += any([again() for _ in range(repeats)])
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--kind", choices=sorted(KINDS), action="append")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = {}
    for kind in given.kind or KINDS:
        started = time.monotonic()
        share = passing(kind, worlds=given.worlds, repeats=given.repeats) / given.worlds
        error = math.sqrt(share * (1 - share) / given.worlds)
        found[kind] = {"share": share, "at_most": AT_MOST, "seconds": round(time.monotonic() - started, 1)}
        if not given.json:
            print(f"{kind:<9} {share:6.1%} of {given.worlds} worlds pass (standard error {error:.1%}), at most {AT_MOST:.0%}")
    if given.json:
        print(json.dumps(found))
    return int(any(each["share"] > AT_MOST for each in found.values()))


if __name__ == "__main__":
    raise SystemExit(main())
