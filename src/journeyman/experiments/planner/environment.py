"""Where phase 2 practises and is examined: live, with real workers, or on recorded outcomes."""

import asyncio
import hashlib
import json
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from journeyman.agents.orchestrator import Orchestrator
from journeyman.core.errors import InputError
from journeyman.core.evaluation import METRICS, Evaluation, Pair
from journeyman.core.gate import BetterOnHeldOut
from journeyman.core.plan import ExecutionResult, Plan, Subtask
from journeyman.core.plan import SubtaskState as Ended
from journeyman.core.policy import Choice
from journeyman.core.task import Task
from journeyman.core.trace import average
from journeyman.core.trace import total as total_known
from journeyman.experiments.planner.collect import Instruction
from journeyman.experiments.planner.workers import Make
from journeyman.io.atomic import write_text
from journeyman.io.files import read_text
from journeyman.optimizers.outcome_table import Table, parts
from journeyman.optimizers.planner.network import PlannerModel
from journeyman.optimizers.planner.policy import DecisionState, LearnedPlanner, features_of_plans
from journeyman.optimizers.planner.ppo import Choose, Chosen, Episode, PlanEnvironment, Step, TableReplay
from journeyman.rewards.utility import RunReward, Runs, Utility, measured, total

# Plans carried out by real workers, as an environment that reinforcement learns in: what it is paid was really brought.

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
    """A `PlanEnvironment` of real executions.

    All workers of a plan are chosen before it begins, as features do not depend on what comes out. Each choice is paid its own
    subtask's cost, an equal share of the whole's success, and what is lost of it where the failure begins with this very
    subtask; and its share of the wait along the critical path. So rewards of an episode sum to the utility of its execution,
    and no choice pays for what another one spoilt. A cost that is not known counts as the reference, as the utility says.
    """

    tasks: tuple[PracticeTask, ...]
    workers: tuple[str, ...]
    reward: RunReward
    heard: Callable[[ExecutionResult], None] = lambda _: None
    """Told of every execution, such as a log."""
    policy: str = "reinforced"
    """As it is logged with each choice."""
    together: int | None = None
    """Plans under way at once, at most; all where it is not said."""
    run: Callable[[Coroutine[Any, Any, list[ExecutionResult]]], list[ExecutionResult]] = asyncio.run
    """Runs them; a runner's own `run` where workers keep connections, which live in one event loop."""

    def __len__(self) -> int:
        return len(self.tasks)

    def episodes(self, which: Sequence[int], choose: Choose) -> Sequence[Episode]:
        drawn = [self._drawn(self.tasks[index], episode, choose) for episode, index in enumerate(which)]
        results = self.carried_out([(self.tasks[index], chosen) for index, chosen in zip(which, drawn, strict=True)])
        return [self._paid(chosen, result) for chosen, result in zip(drawn, results, strict=True)]

    def carried_out(
        self, drawn: Sequence[tuple[PracticeTask, Mapping[str, tuple[DecisionState, Chosen]]]]
    ) -> list[ExecutionResult]:
        """What came of some tasks with the workers chosen; at the same time."""

        async def all_of_them() -> list[ExecutionResult]:
            slots = asyncio.Semaphore(self.together or len(drawn) or 1)

            async def one(task: PracticeTask, chosen: Mapping[str, tuple[DecisionState, Chosen]]) -> ExecutionResult:
                async with slots:
                    return await self._one(task, chosen)

            under_way = [asyncio.create_task(one(*each)) for each in drawn]
            try:
                return list(await asyncio.gather(*under_way))
            except BaseException:
                # Such as a check that cannot be used: nothing is left under way, and no connection open.
                for task in under_way:
                    task.cancel()
                await asyncio.gather(*under_way, return_exceptions=True)
                raise

        results = self.run(all_of_them())
        for result in results:
            self.heard(result)
        return results

    def utilities(self, choose: Choose) -> tuple[list[float], list[ExecutionResult]]:
        """Of each task once, in order, what the choices were worth, and what came out."""
        drawn = [(task, self._drawn(task, at, choose)) for at, task in enumerate(self.tasks)]
        results = self.carried_out(drawn)
        return [worth(self.reward, result) for result in results], results

    def _drawn(self, task: PracticeTask, episode: int, choose: Choose) -> dict[str, tuple[DecisionState, Chosen]]:
        found: dict[str, tuple[DecisionState, Chosen]] = {}
        everybody = np.ones(len(self.workers), np.bool_)
        for place, subtask in enumerate(task.plan.subtasks):
            if subtask.tool:
                continue
            state = DecisionState(
                node=task.nodes[place], prior=task.prior[place], allowed=everybody, episode=episode, at=len(found)
            )
            found[subtask.id] = (state, choose(state))
        return found

    async def _one(self, task: PracticeTask, chosen: Mapping[str, tuple[DecisionState, Chosen]]) -> ExecutionResult:
        choices = {
            id: Choice(
                worker=self.workers[pick.action],
                propensity=float(np.exp(pick.log_prob)),
                candidates=self.workers,
                policy=self.policy,
            )
            for id, (_, pick) in chosen.items()
        }
        names = [choices[step.id].worker if step.id in choices else step.worker for step in task.plan.subtasks]
        return await task.carry_out(task.plan.with_workers(names), choices)

    def _paid(self, chosen: Mapping[str, tuple[DecisionState, Chosen]], result: ExecutionResult) -> Episode:
        outcomes = result.outcomes
        spent = {id: self._of_one(cost=outcomes[id].cost if id in outcomes else 0.0) for id in chosen}
        blamed = _blamed(result, tuple(chosen))
        success = self._of_one(success=1.0) - self._of_one()
        own = {id: spent[id] + success / len(chosen) - success * blamed[id] for id in chosen}
        # What is left of the utility when each choice has paid for itself: the wait, and the tools.
        rest, waited = worth(self.reward, result) - sum(own.values()), _waited(result, tuple(chosen))
        return tuple(Step(state=state, chosen=pick, reward=own[id] + rest * waited[id]) for id, (state, pick) in chosen.items())

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


def _waited(result: ExecutionResult, chosen: Sequence[str]) -> Mapping[str, float]:
    """Of each choice, its share in the wait for the whole: of the seconds along the critical path, those that were its own. All
    is the last one's where nobody knows."""
    spent = {id: outcome.seconds or 0.0 for id, outcome in result.outcomes.items()}
    reached: dict[str, float] = {}
    through: dict[str, str | None] = {}
    for step in result.plan.subtasks:
        through[step.id] = max(step.after, key=lambda id: reached[id], default=None)
        reached[step.id] = spent.get(step.id, 0.0) + max((reached[id] for id in step.after), default=0.0)
    at: str | None = max(reached, key=lambda id: reached[id], default=None)
    own = dict.fromkeys(chosen, 0.0)
    while at is not None:
        if at in own:
            own[at] = spent.get(at, 0.0)
        at = through[at]
    whole = sum(own.values())
    return {id: seconds / whole if whole else float(id == chosen[-1]) for id, seconds in own.items()}


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
    return replace(gate, min_gain=gate.min_gain / utility.span)


Taken = Mapping[str, float]
"""Those of `METRICS` that are known of one execution."""


def taken(result: ExecutionResult) -> Taken:
    """What a guardrail asks of an execution."""
    trace = result.trace
    # Where no call was recorded, nobody knows what was called.
    tokens = total_known((trace.input_tokens, trace.output_tokens)) if trace.calls else None
    found = {"cost": result.total_cost, "seconds": result.critical_path_seconds, "tokens": tokens}
    return {name: float(value) for name, value in found.items() if value is not None}


def compared(
    tasks: Sequence[Task],
    baseline: Sequence[float],
    candidate: Sequence[float],
    reward: Utility,
    metrics: tuple[Sequence[Taken], Sequence[Taken]] = ((), ()),
) -> Evaluation:
    """Utilities of the same instructions under two policies, as a gate takes them.

    Args:
        metrics: What each of the instructions took, on both sides; nothing where it is not known.
    """
    before, now = (reward.unit(np.asarray(each, np.float64)).tolist() for each in (baseline, candidate))
    took = [
        {name: (was[name], is_now[name]) for name in METRICS if name in was and name in is_now}
        for was, is_now in zip(*metrics, strict=True)
    ]
    pairs = zip(tasks, before, now, took or [{}] * len(tasks), strict=True)
    return Evaluation(
        pairs=tuple(
            Pair(task_id=task.id, baseline=one, candidate=two, cluster=task.cluster, metrics=both)
            for task, one, two, both in pairs
        )
    )


# Instructions to practise on: plans as a supervised planner sees them, with what it would choose as the prior.


def practice_tasks(
    asked: Sequence[Instruction], plans: Sequence[Plan], model: PlannerModel, orchestrator: Orchestrator
) -> tuple[PracticeTask, ...]:
    """A task for each instruction and its plan, carried out by the orchestrator and judged as the instruction says.

    Raises:
        InputError: A plan has a tool or kind of work that the planner has no card of.
    """
    return tuple(
        PracticeTask(id=each.id, plan=plan, nodes=seen.nodes, prior=seen.prior, carry_out=_by(orchestrator, each.judge))
        for each, plan, seen in zip(asked, plans, features_of_plans(model, plans), strict=True)
    )


def _by(orchestrator: Orchestrator, judge: Callable[[ExecutionResult], ExecutionResult]) -> CarryOut:
    async def carry_out(plan: Plan, choices: Mapping[str, Choice]) -> ExecutionResult:
        return judge(await orchestrator.run(plan, choices=choices))

    return carry_out


@dataclass(frozen=True, kw_only=True)
class PlanSide:
    """A way of choosing workers, on the held-out instructions."""

    utilities: tuple[float, ...]
    success: float
    """Share that was right."""
    cost: float | None
    """Mean US dollars; `None` as soon as one is not known."""
    seconds: float | None
    """Mean of the critical path."""
    taken: tuple[Taken, ...] = ()
    """What each of them took; empty where nobody measured it."""

    @classmethod
    def restored(cls, record: Mapping[str, Any]) -> "PlanSide":
        """As it was kept."""
        return cls(**{**record, **{name: tuple(record.get(name, ())) for name in ("utilities", "taken")}})

    @property
    def utility(self) -> float:
        return float(np.mean(self.utilities))

    def json(self) -> dict[str, Any]:
        """The means alone."""
        return {"utility": self.utility, "success": self.success, "cost": self.cost, "seconds": self.seconds}


class Environment(Protocol):
    """Used in a `with`: what it opened is closed behind."""

    @property
    def planner(self) -> LearnedPlanner:
        """Phase 1, with those workers in its hand that there are to choose from."""

    @property
    def source(self) -> str:
        """A name for what there is to practise on: another one is another run."""

    def references(self) -> Runs:
        """What runs cost and how long they take, for the references of the utility; nothing of it is held out."""

    @property
    def spent(self) -> Runs:
        """What was practised and examined so far came to."""

    @property
    def held_out(self) -> Sequence[Task]:
        """The instructions to be examined on."""

    @property
    def practised(self) -> tuple[str, ...]:
        """Texts of the instructions to practise on."""

    @property
    def settings(self) -> Mapping[str, object]:
        """What can change the outcome of an examination, beside the instructions and who chooses."""

    @property
    def deterministic(self) -> bool:
        """Whether an examination gives the same again."""

    def among(self, rows: Sequence[int]) -> Self:
        """The same with some of the instructions to be examined on, by their places: ids may stand there twice."""

    def practice(self, reward: RunReward) -> PlanEnvironment: ...

    def examine(self, choose: Choose, utility: Utility) -> PlanSide:
        """What a way of choosing brings on each of the held-out instructions, in their order."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


PROBES = 32
TOGETHER = 8
"""Plans under way at once where it counts how long they take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionCost:
    """What is kept of an execution for the references of a utility."""

    success: bool
    cost: float | None
    seconds: float | None
    subtasks: int

    @classmethod
    def of(cls, result: ExecutionResult) -> "ExecutionCost":
        seconds = result.critical_path_seconds
        return cls(success=result.success is True, cost=result.total_cost, seconds=seconds, subtasks=len(result.outputs))


@dataclass(frozen=True, kw_only=True)
class Live:
    """Plans are carried out by real workers. Implements `Environment`."""

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
    probes: int = PROBES
    """Executions, each by whom chance picks, that the references of cost and latency are measured with before practice; with
    none they are what the planner remembers, and that may have been brought by others, or made up."""
    seed: int = 0
    """Of that chance."""
    _brought: list[ExecutionCost] = field(default_factory=list, repr=False)
    _runner: asyncio.Runner = field(default_factory=asyncio.Runner, repr=False)
    """One loop for all of it: clients keep their connections in the loop that they were opened in."""

    @property
    def source(self) -> str:
        return "live, on phase 1's own steps" if self.make is None else "live"

    def references(self) -> Runs:
        some = self.to_practise[: self.probes]
        if not some:
            return known_runs(self.planner, timed=self.timed)
        environment, chance = self._environment(some, Utility()), random.Random(f"references {self.seed}")
        models = environment.workers
        _, results = environment.utilities(
            lambda _: Chosen(action=chance.randrange(len(models)), log_prob=-np.log(len(models)))
        )
        # What nobody brought to its end says little of what that would have cost.
        ended = [
            result for result in results if result.success is not False or len(result.outputs) == len(result.plan.subtasks)
        ]
        return _runs([ExecutionCost.of(result) for result in ended or results], timed=self.timed)

    @property
    def spent(self) -> Runs:
        return _runs(self._brought, timed=self.timed)

    @property
    def held_out(self) -> Sequence[Task]:
        return [each.task for each in self.to_examine]

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

    def among(self, rows: Sequence[int]) -> Self:
        return replace(self, to_examine=[self.to_examine[row] for row in rows])

    def practice(self, reward: RunReward) -> LiveEnvironment:
        return self._environment(self.to_practise, reward)

    def examine(self, choose: Choose, utility: Utility) -> PlanSide:
        utilities, results = self._environment(self.to_examine, utility).utilities(choose)
        return PlanSide(
            utilities=tuple(utilities),
            success=float(np.mean([result.success is True for result in results])),
            cost=average([result.total_cost for result in results]),
            seconds=average([result.critical_path_seconds for result in results]),
            taken=tuple(map(taken, results)),
        )

    def _environment(self, asked: Sequence[Instruction], reward: RunReward) -> LiveEnvironment:
        texts = [each.text for each in asked]
        plans = [self.make(text) for text in texts] if self.make else self.planner.plans(texts) if texts else []
        return LiveEnvironment(
            tasks=practice_tasks(asked, plans, self.planner.model, self.orchestrator),
            workers=self.planner.model.models.names,
            reward=reward,
            heard=self._hear,
            # As many as asked at once wait for each other, and that wait is nobody's.
            together=TOGETHER if self.timed else None,
            run=self._runner.run,
        )

    def _hear(self, result: ExecutionResult) -> None:
        self._brought.append(ExecutionCost.of(result))
        self.heard(result)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # Connections are closed in the loop that they were opened in.
        for worker in self.orchestrator.crew.values():
            if (close := getattr(worker, "close", None)) is not None:
                self._runner.run(close())
        self._runner.close()


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Requests whose outcomes with the workers are on record: plans of one step. Implements `Environment`."""

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

    def references(self) -> Runs:
        return Runs.table(self.train)

    @property
    def spent(self) -> Runs:
        return self.references()

    @property
    def held_out(self) -> Sequence[Task]:
        return [replace(task, question=text) for task, text in zip(self.examined.tasks, self.examined.requests, strict=True)]

    @property
    def practised(self) -> tuple[str, ...]:
        return self.train.requests

    @property
    def settings(self) -> Mapping[str, object]:
        return {"outcomes": self.examined.digest}

    @property
    def deterministic(self) -> bool:
        return True

    def among(self, rows: Sequence[int]) -> Self:
        return replace(self, examined=self.examined.take(rows))

    def practice(self, reward: RunReward) -> TableReplay:
        return self._replay(self.train, reward)

    def examine(self, choose: Choose, utility: Utility) -> PlanSide:
        chosen = self._replay(self.examined, utility).episodes(range(len(self.examined)), choose)
        rows, columns = np.arange(len(chosen)), np.asarray([episode[0].chosen.action for episode in chosen])
        cost, seconds = (matrix[rows, columns] for matrix in (self.examined.cost, self.examined.seconds))
        return PlanSide(
            utilities=tuple(sum(step.reward for step in episode) for episode in chosen),
            success=float(self.examined.success[rows, columns].mean()),
            cost=None if np.isnan(cost).any() else float(cost.mean()),
            seconds=None if np.isnan(seconds).any() else float(seconds.mean()),
            taken=tuple(
                {name: value for name, value in (("cost", paid), ("seconds", waited)) if not np.isnan(value)}
                for paid, waited in zip(cost.tolist(), seconds.tolist(), strict=True)
            ),
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


def _runs(brought: Sequence[ExecutionCost], *, timed: bool) -> Runs:
    return Runs(
        workers=("",) * len(brought),
        success=measured(float(each.success) for each in brought),
        cost=measured(each.cost for each in brought),
        seconds=measured(each.seconds if timed else None for each in brought),
        subtasks=measured(float(each.subtasks) for each in brought),
    )


def references(file: Path, measured_by: Environment | None = None) -> Runs:
    """What cost and latency are weighed against, as it is kept in a file, or measured now and put there.

    Raises:
        InputError: The file holds no such thing.
    """
    if measured_by is not None:
        of = Utility.of(measured_by.references())
        write_text(file, json.dumps({"cost": of.cost_reference, "seconds": of.seconds_reference}) + "\n")
    try:
        known = json.loads(read_text(file))
        return Runs.one(cost=known["cost"], seconds=known["seconds"])
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{file} holds no references of cost and latency; name another folder") from None


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
