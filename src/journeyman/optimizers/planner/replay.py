"""Where a policy tries itself: live workers or recorded outcomes. What nobody recorded is never made up."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from journeyman.core.errors import InputError
from journeyman.core.evaluation import Evaluation, Pair
from journeyman.core.plan import Plan
from journeyman.optimizers.outcome_table import Table
from journeyman.optimizers.planner.selector import DecisionState
from journeyman.rewards.utility import RunReward, Runs, Utility, total
from journeyman.stats import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What a policy says of a state."""

    action: int
    """The worker's column."""
    log_prob: float
    """Of that action, as it was drawn."""
    value: float = 0.0
    """What the policy expects from here on."""


Choose = Callable[[DecisionState], Chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One decision, and what followed it."""

    state: DecisionState
    chosen: Chosen
    reward: float


Episode = tuple[Step, ...]
"""The decisions of one plan, in the plan's order."""


class PlanEnvironment(Protocol):
    """Carries plans out with the workers that a policy chooses."""

    @property
    def workers(self) -> tuple[str, ...]:
        """In the order of the actions."""

    def __len__(self) -> int:
        """How many plans or instructions there are to learn from."""

    def episodes(self, which: Sequence[int], choose: Choose) -> Sequence[Episode]:
        """Carry some out, at the same time where that can be, asking `choose` once for each subtask.

        Each state says which episode of these it belongs to (its place in `which`), and which decision of it.
        """


@dataclass(frozen=True, kw_only=True)
class TableReplay:
    """Requests whose outcomes with the workers are on record: plans of one subtask."""

    table: Table
    vectors: NDArray[np.float32]
    """(n, d), features of the requests."""
    worth: Floats
    """(n, m), what each worker brought; NaN where it was not asked, and it cannot be chosen there."""
    prior: NDArray[np.float32]
    """(n, m), logits of the supervised policy."""

    @classmethod
    def of(
        cls, table: Table, vectors: ArrayLike, reward: RunReward, *, prior: ArrayLike | None = None, allowed: Sequence[str] = ()
    ) -> "TableReplay":
        """Rows that nobody was asked are left out.

        Args:
            table: The records.
            vectors: Shape (n, d), features of the requests.
            reward: What an outcome is worth.
            prior: Shape (n, m), logits of the supervised policy; None: all alike.
            allowed: Who may be chosen; empty: everybody.

        Raises:
            InputError: No row is left.
        """
        worth = worths(table, reward)
        if allowed:
            worth = np.where([name in allowed for name in table.workers], worth, np.nan)
        kept = np.flatnonzero(np.isfinite(worth).any(axis=1))
        if not len(kept):
            raise InputError("no request has a known outcome with a worker that is allowed, so there is nothing to replay")
        logits = np.zeros_like(worth) if prior is None else np.asarray(prior)
        return cls(
            table=table.take(kept),
            vectors=np.asarray(vectors, np.float32)[kept],
            worth=worth[kept],
            prior=logits[kept].astype(np.float32),
        )

    @property
    def workers(self) -> tuple[str, ...]:
        return self.table.workers

    def __len__(self) -> int:
        return len(self.table)

    def state(self, row: int, episode: int = 0) -> DecisionState:
        return DecisionState(
            node=self.vectors[row], prior=self.prior[row], allowed=np.isfinite(self.worth[row]), episode=episode
        )

    def episodes(self, which: Sequence[int], choose: Choose) -> Sequence[Episode]:
        made = []
        for episode, row in enumerate(which):
            state = self.state(row, episode)
            chosen = choose(state)
            made.append((Step(state=state, chosen=chosen, reward=float(self.worth[row, chosen.action])),))
        return made


def worths(table: Table, reward: RunReward) -> Floats:
    """What each outcome is worth, shape (n, m); NaN where it is not known."""
    asked = np.isfinite(table.success)
    found = np.full(table.success.shape, np.nan)
    found[asked] = total(reward, Runs.table(table))
    return found


@dataclass(frozen=True, kw_only=True)
class RecordedPlan:
    """A plan, and what became of each of its subtasks with those workers that did it."""

    plan: Plan
    success: Floats
    """(subtasks, m); NaN where that worker was not asked."""
    cost: Floats
    seconds: Floats
    nodes: NDArray[np.float32]
    """(subtasks, d), features known before anything is done."""
    prior: NDArray[np.float32]
    """(subtasks, m)"""


@dataclass(frozen=True, kw_only=True)
class PlanReplay:
    """Plans of several subtasks whose outcomes with the workers are on record.

    A plan succeeds when each of its subtasks does (successes are multiplied), and takes as long as its critical path. Each
    decision is paid what it adds to the utility: its cost and what it lengthens the critical path by at once, the success after
    the last. A subtask behind one that failed is not done and costs nothing.
    """

    workers: tuple[str, ...]
    plans: tuple[RecordedPlan, ...]
    reward: Utility
    budget: float | None = None
    """US dollars for a plan, told to the policy as what is left of it."""

    EXTRA = 3
    """Features behind those of the node: parents' mean success, share of the plan done, share of the budget left."""

    def __len__(self) -> int:
        return len(self.plans)

    def episodes(self, which: Sequence[int], choose: Choose) -> Sequence[Episode]:
        return [self._episode(self.plans[index], episode, choose) for episode, index in enumerate(which)]

    def _episode(self, recorded: RecordedPlan, episode: int, choose: Choose) -> Episode:
        steps: list[Step] = []
        success: dict[str, float] = {}
        reached: dict[str, float] = {}
        spent = 0.0
        subtasks = recorded.plan.subtasks
        for at, subtask in enumerate(subtasks):
            if any(success.get(parent, 0.0) == 0.0 for parent in subtask.after):
                continue
            parents = [success[parent] for parent in subtask.after]
            left = 1.0 if not self.budget else max(0.0, 1 - spent / self.budget)
            extra = np.asarray([np.mean(parents) if parents else 1.0, at / len(subtasks), left], np.float32)
            state = DecisionState(
                node=np.concatenate([recorded.nodes[at], extra]),
                prior=recorded.prior[at],
                allowed=np.isfinite(recorded.success[at]),
                episode=episode,
                at=at,
            )
            chosen = choose(state)
            before = max(reached.values(), default=0.0)
            success[subtask.id] = float(recorded.success[at, chosen.action])
            cost, seconds = recorded.cost[at, chosen.action], recorded.seconds[at, chosen.action]
            reached[subtask.id] = self._seconds(seconds) + max((reached[parent] for parent in subtask.after), default=0.0)
            spent += self._cost(cost)
            longer = max(reached.values()) - before
            steps.append(Step(state=state, chosen=chosen, reward=self._spent(self._cost(cost), longer)))
        done = float(np.prod([*success.values()])) if len(success) == len(subtasks) else 0.0
        last = steps[-1]
        steps[-1] = Step(state=last.state, chosen=last.chosen, reward=last.reward + self.reward.value * done)
        return tuple(steps)

    def _cost(self, cost: float) -> float:
        return float(cost) if np.isfinite(cost) else self.reward.cost_reference or 0.0

    def _seconds(self, seconds: float) -> float:
        return float(seconds) if np.isfinite(seconds) else self.reward.seconds_reference or 0.0

    def _spent(self, cost: float, seconds: float) -> float:
        return float(total(self.reward, Runs.one(cost=cost, seconds=seconds))[0])


def compare_policies(
    table: Table, policies: Mapping[str, ArrayLike], candidate: str, utility: Utility, *, looks: int = 0
) -> Mapping[str, Evaluation]:
    """The candidate against each other policy, on requests that nobody learned from, as a gate takes it.

    Args:
        table: Held-out requests, with what each worker brought.
        policies: By name, shape (n, m): with what probability each worker is chosen.
        candidate: The name of the one that wants to be released.
        utility: What an outcome is worth; told as a score from 0 to 1 by its bounds.
        looks: How often these requests had been looked at before.

    Returns:
        By name of the other policy. A request is unknown where a policy may choose a worker whose outcome is not known.
    """
    known = utility.unit(worths(table, utility))
    scores = {name: _expected(known, np.asarray(chances, np.float64)) for name, chances in policies.items()}
    return {name: _pairs(table.ids, score, scores[candidate], looks) for name, score in scores.items() if name != candidate}


def _expected(worth: Floats, chances: Floats) -> Floats:
    # 0 times unknown is 0 here: who is never chosen need not be known.
    expected: Floats = np.where(chances > 0, worth * chances, 0.0).sum(axis=1)
    return expected


def _pairs(ids: Sequence[str], baseline: Floats, candidate: Floats, looks: int) -> Evaluation:
    known = np.isfinite(baseline) & np.isfinite(candidate)
    return Evaluation(
        pairs=tuple(
            Pair(task_id=ids[at], baseline=float(baseline[at]), candidate=float(candidate[at]))
            for at in np.flatnonzero(known).tolist()
        ),
        unknown=int((~known).sum()),
        looks=looks,
    )


def always(table: Table, worker: str) -> Floats:
    """The policy that always chooses one worker, shape (n, m)."""
    return np.tile(np.asarray([float(name == worker) for name in table.workers]), (len(table), 1))


def best_single(table: Table, reward: RunReward) -> str:
    """Who is worth most on average, of those that were asked."""
    return table.workers[int(np.nanargmax(np.nanmean(worths(table, reward), axis=0)))]
