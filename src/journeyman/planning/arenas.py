"""Where phase 2 practises and is examined: live, with real workers, or on recorded outcomes."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Protocol, Self

import numpy as np

from journeyman.agents.orchestrator import Orchestrator
from journeyman.errors import InputError
from journeyman.learn.planner.predict import LearnedPlanner
from journeyman.learn.planner.reinforced import features_of_plans
from journeyman.learn.planner.replay import Choose, PlanEnvironment, TableReplay
from journeyman.optimizers.outcome_table import Table
from journeyman.optimizers.splits import parts
from journeyman.plan import Plan, Subtask
from journeyman.plan_result import ExecutionResult
from journeyman.planning.collecting import Instruction
from journeyman.planning.courses import courses
from journeyman.planning.crews import Make
from journeyman.planning.live import LiveEnvironment
from journeyman.rewards.utility import RunReward, Runs, Utility, measured
from journeyman.trace import average


@dataclass(frozen=True, kw_only=True)
class Side:
    """A way of choosing workers, on the held-out instructions."""

    utilities: tuple[float, ...]
    success: float
    """Share that was right."""
    cost: float | None
    """Mean US dollars; `None` as soon as one is not known."""
    seconds: float | None
    """Mean of the critical path."""

    @property
    def utility(self) -> float:
        return float(np.mean(self.utilities))


class Arena(Protocol):
    """Used in a `with`: what it opened is closed behind."""

    @property
    def planner(self) -> LearnedPlanner:
        """Phase 1, with those workers in its hand that there are to choose from."""

    @property
    def source(self) -> str:
        """A name for what there is to practise on: another one is another run."""

    @property
    def runs(self) -> Runs:
        """What is known already, for the references of the utility; nothing of it is held out."""

    @property
    def held_out(self) -> tuple[tuple[str, str], ...]:
        """Ids and texts of the instructions to be examined on."""

    @property
    def practised(self) -> tuple[str, ...]:
        """Texts of the instructions to practise on."""

    @property
    def settings(self) -> Mapping[str, object]:
        """What can change the outcome of an examination, beside the instructions and who chooses."""

    @property
    def deterministic(self) -> bool:
        """Whether an examination gives the same again."""

    def among(self, ids: Collection[str]) -> Self:
        """The same with some of the instructions to be examined on."""

    def practice(self, reward: RunReward) -> PlanEnvironment: ...

    def examine(self, choose: Choose, utility: Utility) -> Side:
        """What a way of choosing brings on each of the held-out instructions, in their order."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Live:
    """Plans are carried out by real workers. Implements `Arena`."""

    planner: LearnedPlanner
    to_practise: Sequence[Instruction]
    to_examine: Sequence[Instruction]
    orchestrator: Orchestrator
    """Carries the plans out; each instruction judges what came of it."""
    timed: bool = True
    """Whether the wait counts. Where workers share this machine's cores, or replies are kept, it says little of them."""
    make: Make | None = None
    """Whose steps are taken, where they are not phase 1's own: phase 2 learns who does them."""
    heard: Callable[[ExecutionResult], None] = lambda _: None
    _runner: asyncio.Runner = field(default_factory=asyncio.Runner, repr=False)
    """One loop for all of it: clients keep their connections in the loop that they were opened in."""

    @property
    def source(self) -> str:
        return "live, on phase 1's own steps" if self.make is None else "live"

    @property
    def runs(self) -> Runs:
        return known_runs(self.planner, timed=self.timed)

    @property
    def held_out(self) -> tuple[tuple[str, str], ...]:
        return tuple((each.id, each.text) for each in self.to_examine)

    @property
    def practised(self) -> tuple[str, ...]:
        return tuple(each.text for each in self.to_practise)

    @property
    def settings(self) -> Mapping[str, object]:
        return {"workers": sorted(self.orchestrator.crew), "source": self.source, "timed": self.timed}

    @property
    def deterministic(self) -> bool:
        """Nobody knows of workers at work."""
        return False

    def among(self, ids: Collection[str]) -> Self:
        return replace(self, to_examine=[each for each in self.to_examine if each.id in ids])

    def practice(self, reward: RunReward) -> LiveEnvironment:
        return self._environment(self.to_practise, reward)

    def examine(self, choose: Choose, utility: Utility) -> Side:
        utilities, results = self._environment(self.to_examine, utility).utilities(choose)
        return Side(
            utilities=tuple(utilities),
            success=float(np.mean([result.success is True for result in results])),
            cost=average([result.total_cost for result in results]),
            seconds=average([result.critical_path_seconds for result in results]),
        )

    def _environment(self, asked: Sequence[Instruction], reward: RunReward) -> LiveEnvironment:
        texts = [each.text for each in asked]
        plans = [self.make(text) for text in texts] if self.make else self.planner.plans(texts) if texts else []
        return LiveEnvironment(
            courses=courses(asked, plans, self.planner.model, self.orchestrator),
            workers=self.planner.model.models.names,
            reward=reward,
            heard=self.heard,
            run=self._runner.run,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._runner.close()


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Requests whose outcomes with the workers are on record: plans of one step. Implements `Arena`."""

    planner: LearnedPlanner
    train: Table
    examined: Table

    @classmethod
    def of(cls, planner: LearnedPlanner, table: Table, least: int = 0) -> "Replay":
        """The rows as the file splits them, else by a hash of the request; those of unknown outcome are left out. A call that
        failed is no success: without it a worker that is often down would look as good as its answers.

        Args:
            least: Held-out requests that the gate needs.

        Raises:
            InputError: A row is of a kind of work that the planner does not know, or there are too few.
        """
        table = table.answered
        complete = table.take(np.flatnonzero(np.isfinite(table.success).all(axis=1)))
        split = parts(complete, validation=0.0, least=least)
        if len(split.train) < 1 or len(split.held_out) < 1:
            raise InputError(
                f"of {len(table)} requests {len(complete)} have an outcome with each worker, which leaves {len(split.train)} to"
                f" practise on and {len(split.held_out)} to be examined on; bring more"
            )
        dealt = LearnedPlanner(planner.model_for((), table.cards), hires=planner.hires)
        known = set(dealt.model.encoder.steps.names)
        if strange := next((kind for kind in complete.types if kind not in known), None):
            raise InputError(f"there are requests of the kind {strange!r}, unknown to the planner; train phase 1 on it")
        return cls(planner=dealt, train=complete.take(split.train), examined=complete.take(split.held_out))

    @property
    def source(self) -> str:
        rows = zip(self.train.requests, self.train.types, self.train.success.tolist(), self.train.cost.tolist(), strict=True)
        return hashlib.sha256(json.dumps([self.train.workers, *rows]).encode(errors="surrogatepass")).hexdigest()

    @property
    def runs(self) -> Runs:
        return Runs.table(self.train)

    @property
    def held_out(self) -> tuple[tuple[str, str], ...]:
        return tuple(zip(self.examined.ids, self.examined.requests, strict=True))

    @property
    def practised(self) -> tuple[str, ...]:
        return self.train.requests

    @property
    def settings(self) -> Mapping[str, object]:
        return {"outcomes": self.examined.digest}

    @property
    def deterministic(self) -> bool:
        return True

    def among(self, ids: Collection[str]) -> Self:
        return replace(self, examined=self.examined.take([row for row, id in enumerate(self.examined.ids) if id in ids]))

    def practice(self, reward: RunReward) -> TableReplay:
        return self._replay(self.train, reward)

    def examine(self, choose: Choose, utility: Utility) -> Side:
        chosen = self._replay(self.examined, utility).episodes(range(len(self.examined)), choose)
        rows, columns = np.arange(len(chosen)), np.asarray([episode[0].chosen.action for episode in chosen])
        cost, seconds = (matrix[rows, columns] for matrix in (self.examined.cost, self.examined.seconds))
        return Side(
            utilities=tuple(sum(step.reward for step in episode) for episode in chosen),
            success=float(self.examined.success[rows, columns].mean()),
            cost=None if np.isnan(cost).any() else float(cost.mean()),
            seconds=None if np.isnan(seconds).any() else float(seconds.mean()),
        )

    def _replay(self, table: Table, reward: RunReward) -> TableReplay:
        rows = zip(table.requests, table.types, strict=True)
        plans = [Plan(instruction=text, subtasks=(Subtask(id="1", text=text, type=kind),)) for text, kind in rows]
        seen = features_of_plans(self.planner.model, plans)
        nodes, prior = (np.concatenate([getattr(each, name) for each in seen]) for name in ("nodes", "prior"))
        return TableReplay.of(table, nodes, reward, prior=prior)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """There is nothing to close."""


def known_runs(planner: LearnedPlanner, *, timed: bool = True) -> Runs:
    """What the plans that a planner remembers brought; not `timed`, nobody knows how long they took."""
    examples = planner.model.encoder.memory.examples
    return Runs(
        workers=("",) * len(examples),
        success=measured(each.success for each in examples),
        cost=measured(each.cost for each in examples),
        seconds=measured(each.seconds if timed else None for each in examples),
        subtasks=measured(float(len(each.plan.subtasks)) for each in examples),
    )
