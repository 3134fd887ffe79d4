"""Plans carried out by real workers, as an environment that reinforcement learns in: what it is paid was really brought."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from journeyman.evaluation import Evaluation, Pair
from journeyman.gate import BetterOnHeldOut
from journeyman.learn.planner.replay import Choose, Chosen, Episode, Step
from journeyman.learn.planner.selector import DecisionState
from journeyman.plan import Plan
from journeyman.plan_result import ExecutionResult
from journeyman.plan_result import State as Ended
from journeyman.policy import Choice
from journeyman.rewards.utility import RunReward, Runs, Utility, total

CarryOut = Callable[[Plan, Mapping[str, Choice]], Awaitable[ExecutionResult]]
"""Carries a plan out and judges it: an orchestrator's `run`, with a verdict."""


@dataclass(frozen=True, kw_only=True)
class PracticeTask:
    """One instruction to practise on."""

    id: str
    plan: Plan
    """Whoever is in it for a subtask that a model does is replaced by who is chosen."""
    nodes: NDArray[np.float32]
    """(subtasks, d), features known before anything is done."""
    prior: NDArray[np.float32]
    """(subtasks, m), the supervised policy's logits over the workers."""
    carry_out: CarryOut


@dataclass(frozen=True, kw_only=True)
class LiveEnvironment:
    """An `Environment` of real executions.

    All workers of a plan are chosen before it begins, as features do not depend on what comes out. Each choice is paid its own
    subtask's cost, an equal share of the whole's success, and what is lost of it where the failure begins with this very
    subtask; the last one also the wait along the critical path. So rewards of an episode sum to the utility of its execution,
    and no choice pays for what another one spoilt. A cost that is not known counts as the reference, as the utility says.
    """

    courses: tuple[PracticeTask, ...]
    workers: tuple[str, ...]
    reward: RunReward
    heard: Callable[[ExecutionResult], None] = lambda _: None
    """Told of every execution, such as a log."""
    policy: str = "reinforced"
    """As it is logged with each choice."""
    run: Callable[[Coroutine[Any, Any, list[ExecutionResult]]], list[ExecutionResult]] = asyncio.run
    """Runs them; a runner's own `run` where workers keep connections, which live in one event loop."""

    def __len__(self) -> int:
        return len(self.courses)

    def episodes(self, which: Sequence[int], choose: Choose) -> Sequence[Episode]:
        drawn = [self._drawn(self.courses[index], episode, choose) for episode, index in enumerate(which)]
        results = self.carried_out([(self.courses[index], chosen) for index, chosen in zip(which, drawn, strict=True)])
        return [self._paid(chosen, result) for chosen, result in zip(drawn, results, strict=True)]

    def carried_out(
        self, drawn: Sequence[tuple[PracticeTask, Mapping[str, tuple[DecisionState, Chosen]]]]
    ) -> list[ExecutionResult]:
        """What came of some courses with the workers chosen; at the same time."""

        async def all_of_them() -> list[ExecutionResult]:
            return list(await asyncio.gather(*(self._one(course, chosen) for course, chosen in drawn)))

        results = self.run(all_of_them())
        for result in results:
            self.heard(result)
        return results

    def utilities(self, choose: Choose) -> tuple[list[float], list[ExecutionResult]]:
        """Of each course once, in order, what the choices were worth, and what came out."""
        drawn = [(course, self._drawn(course, at, choose)) for at, course in enumerate(self.courses)]
        results = self.carried_out(drawn)
        return [worth(self.reward, result) for result in results], results

    def _drawn(self, course: PracticeTask, episode: int, choose: Choose) -> dict[str, tuple[DecisionState, Chosen]]:
        found: dict[str, tuple[DecisionState, Chosen]] = {}
        everybody = np.ones(len(self.workers), np.bool_)
        for place, subtask in enumerate(course.plan.subtasks):
            if subtask.tool:
                continue
            state = DecisionState(
                node=course.nodes[place], prior=course.prior[place], allowed=everybody, episode=episode, at=len(found)
            )
            found[subtask.id] = (state, choose(state))
        return found

    async def _one(self, course: PracticeTask, chosen: Mapping[str, tuple[DecisionState, Chosen]]) -> ExecutionResult:
        choices = {
            id: Choice(
                worker=self.workers[pick.action],
                propensity=float(np.exp(pick.log_prob)),
                candidates=self.workers,
                policy=self.policy,
            )
            for id, (_, pick) in chosen.items()
        }
        names = [choices[step.id].worker if step.id in choices else step.worker for step in course.plan.subtasks]
        return await course.carry_out(course.plan.with_workers(names), choices)

    def _paid(self, chosen: Mapping[str, tuple[DecisionState, Chosen]], result: ExecutionResult) -> Episode:
        outcomes = result.outcomes
        spent = {id: self._of_one(cost=outcomes[id].cost if id in outcomes else 0.0) for id in chosen}
        blamed = _blamed(result, tuple(chosen))
        success = self._of_one(success=1.0) - self._of_one()
        own = {id: spent[id] + success / len(chosen) - success * blamed[id] for id in chosen}
        # What is left of the utility when each choice has paid for itself: the wait, and the tools.
        rest = worth(self.reward, result) - sum(own.values())
        last = len(chosen) - 1
        return tuple(
            Step(state=state, chosen=pick, reward=own[id] + rest * (at == last))
            for at, (id, (state, pick)) in enumerate(chosen.items())
        )

    def _of_one(self, *, success: float = 0.0, cost: float | None = 0.0) -> float:
        """What a run is worth that took no time."""
        return float(total(self.reward, Runs.one(success=success, cost=cost))[0])


def _blamed(result: ExecutionResult, chosen: Sequence[str]) -> Mapping[str, float]:
    """Of each choice, its share in the failure of the whole; 0 for all where that was a success.

    It lies with those that were wrong, or brought nothing, though nothing they stand on was: in equal shares. Where no step has
    a verdict, it lies with the last.
    """
    if result.success is True:
        return dict.fromkeys(chosen, 0.0)
    bad = {id for id, outcome in result.outcomes.items() if outcome.success is not None and outcome.success < 1}
    bad |= {id for id, each in result.results.items() if each.state is Ended.FAILED}
    spoilt = {below for id in bad if id in result.plan.by_id for below in result.plan.below(id)}
    first = [id for id in chosen if id in bad and id not in spoilt] or list(chosen[-1:])
    return {id: (id in first) / len(first) for id in chosen}


def worth(reward: RunReward, result: ExecutionResult) -> float:
    """The utility of one execution; what nobody judged counts as no success."""
    run = Runs.one(
        success=float(result.success is True),
        cost=result.total_cost,
        seconds=result.critical_path_seconds,
        subtasks=len(result.outputs),
    )
    return float(total(reward, run)[0])


def greedy(logits: Callable[[DecisionState], NDArray[np.float64]]) -> Choose:
    """The likeliest worker of a policy, the first of several."""

    def choose(state: DecisionState) -> Chosen:
        return Chosen(action=int(np.argmax(np.where(state.allowed, logits(state), -np.inf))), log_prob=0.0)

    return choose


def scored(gate: BetterOnHeldOut, utility: Utility) -> BetterOnHeldOut:
    """The gate for utilities as scores of 0 to 1; the gain that it asks for was said in successes."""
    return replace(gate, least_gain=gate.least_gain / utility.span)


def compared(ids: Sequence[str], baseline: Sequence[float], candidate: Sequence[float], reward: Utility) -> Evaluation:
    """Utilities of the same instructions under two policies, as a gate takes them."""
    before, now = (reward.unit(np.asarray(each, np.float64)).tolist() for each in (baseline, candidate))
    pairs = zip(ids, before, now, strict=True)
    return Evaluation(pairs=tuple(Pair(task_id=id, baseline=one, candidate=two) for id, one, two in pairs))
