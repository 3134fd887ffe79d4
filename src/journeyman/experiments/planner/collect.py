"""Executions to learn from: instructions of many kinds, planned, carried out for real, judged and logged.

What was logged before is not carried out again, so a collection that was stopped goes on where it was. A share of the choices
is drawn at random and logged with its propensity: without that nobody could tell later what another policy would have brought.
"""

import asyncio
import hashlib
import inspect
import json
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from journeyman.agents.orchestrator import Orchestrator
from journeyman.agents.subtask import Choose, PlanBudget, PlanLimits
from journeyman.agents.workers import SubtaskJob, Worker, as_text
from journeyman.core import extension, registry
from journeyman.core.candidate import BASE
from journeyman.core.errors import InputError, JourneymanError, PlanError
from journeyman.core.plan import ExecutionResult, Plan
from journeyman.core.policy import Card, Choice
from journeyman.core.task import Split, Task, fingerprints, is_name
from journeyman.experiments.planner import desk
from journeyman.experiments.planner.config import CollectConfig
from journeyman.io.files import read_text
from journeyman.optimizers.exploration import epsilon_greedy
from journeyman.optimizers.planner.data import Planner
from journeyman.tasks.answers import judge_answer
from journeyman.tasks.questions import split_named
from journeyman.tracing.importers.execution_log import FILE, ExecutionLogger, read_executions
from journeyman.tracing.importers.source import Problem

Judge = Callable[[ExecutionResult], ExecutionResult]
"""Puts verdicts on what came out: on the whole, and on the steps where it can."""


def unjudged(result: ExecutionResult) -> ExecutionResult:
    """The result as it is: nobody knows whether it is right."""
    return result


def finished(result: ExecutionResult) -> ExecutionResult:
    """Where nobody can tell what is right: what came to its end counts as a success, and what a worker failed at does not."""
    return replace(result, success=result.success is not False)


def answered(wanted: Any) -> Judge:
    """Compares with the answer: of the plan's end, the last of several; or of each step by its id, where it is an object."""

    def judge(result: ExecutionResult) -> ExecutionResult:
        if result.success is False:
            return result
        if not isinstance(wanted, Mapping):
            return replace(result, success=_says(wanted, result.outputs[result.plan.ends[-1]]))
        return by_steps(result, {id: id in result.outputs and _says(each, result.outputs[id]) for id, each in wanted.items()})

    return judge


def by_steps(result: ExecutionResult, right: Mapping[str, bool]) -> ExecutionResult:
    """With a verdict on steps; the whole is a success when all of these are right."""
    results = {id: each.judged(right.get(id)) for id, each in result.results.items()}
    return replace(result, results=results, success=all(right.values()))


def _says(wanted: Any, output: Any) -> bool:
    return judge_answer(as_text(wanted), as_text(output)).value == 1.0


def checked(named: str) -> Callable[[Any], Judge]:
    """What a check of one's own makes of an instruction's answer: a judge.

    The check, `MODULE:FUNCTION`, is called with those of `instruction`, `answer` (the output of the plan's end, or of its
    several by their ids), `outputs` (by the id of the step), `expected` (the answer in the file of instructions) and `result`
    that it has parameters for. It says whether that is right: true or false, from 0 to 1, by the ids of steps, or `None` where
    it cannot tell. What a worker failed at is not right, and the check is not asked.

    Raises:
        InputError: There is no such function.
    """
    if not registry.known("checks", named) and not registry.is_class(named):
        raise InputError(f"the check {named!r} cannot be loaded: name it as MODULE:FUNCTION{registry.hint(named)}")
    check = registry.load("checks", named)
    if not callable(check) or inspect.iscoroutinefunction(check):
        raise InputError(f"the check {named!r} is no function that can be called and waits for nothing; see docs/planning.md")
    wanted = [name for name in inspect.signature(check).parameters if name in _TOLD]
    if not wanted:
        raise InputError(f"the check {named!r} has no parameter that it could be told; there are {', '.join(_TOLD)}")

    def expecting(expected: Any) -> Judge:
        def judge(result: ExecutionResult) -> ExecutionResult:
            if result.success is False:
                return result
            told = (result.plan.instruction, result.answer, result.outputs, expected, result)
            with extension.named("checks", named):
                found = check(**{name: value for name, value in zip(_TOLD, told, strict=True) if name in wanted})
            return _by(found, result, named)

        return judge

    return expecting


_TOLD = ("instruction", "answer", "outputs", "expected", "result")


def _by(found: Any, result: ExecutionResult, named: str) -> ExecutionResult:
    """An execution with what a check found of it."""
    if isinstance(found, Mapping) and found and all(isinstance(right, bool) for right in found.values()):
        return by_steps(result, found)
    if found is None or (isinstance(found, int | float) and 0 <= found <= 1):
        return replace(result, success=None if found is None else found >= 1)
    raise InputError(
        f"the check {named!r} found {str(found)[:60]!r}; it must be true or false, 0 to 1, steps by their ids or None"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction to carry out."""

    id: str
    """The same for the same instruction on any day."""
    text: str
    split: str = ""
    """Of a task set; a held-out one is logged as such, and nobody learns from it."""
    judge: Judge = unjudged
    cluster: str = ""
    """What it has in common with others."""

    @property
    def task(self) -> Task:
        """As an examination knows it."""
        return Task(id=self.id, question=self.text, cluster=self.cluster)


@dataclass(kw_only=True)
class CollectionSummary:
    """What a collection came to; the counts are of this time alone."""

    path: Path
    asked: int
    before: int
    """Logged by an earlier collection."""
    succeeded: int = 0
    failed: int = 0
    unjudged: int = 0
    unplanned: list[str] = field(default_factory=list)
    """Instructions that no plan could be made for, each with the reason."""
    cost: float = 0.0
    """US dollars, as far as it is known."""
    unpriced: int = 0
    """Executions whose cost is not known: `cost` is a lower bound as soon as there is one."""
    stopped: str = ""
    """Why it ended before all were carried out; empty where it did not."""

    @property
    def ran(self) -> int:
        return self.succeeded + self.failed + self.unjudged

    def json(self) -> dict[str, Any]:
        names = ("asked", "before", "ran", "succeeded", "failed", "unjudged", "unplanned", "cost", "unpriced", "stopped")
        return {"path": str(self.path), **{name: getattr(self, name) for name in names}}


Heard = Callable[[CollectionSummary, ExecutionResult], None]


def at_the_desk(n: int, seed: int = 0, split: Split = Split.TRAIN) -> tuple[Instruction, ...]:
    """Notes of the desk's head clerk, of one to five customers, judged by what is right."""
    return tuple(
        Instruction(id=note.id, text=note.text, split=split.value, judge=partial(desk.judged, note))
        for note in desk.instructions(split, n, seed)
    )


def of_file(path: Path, check: str = "") -> tuple[Instruction, ...]:
    """A user's own instructions: JSON lines with "instruction" and, if they like, "id", "split",
    "cluster" and "answer"; or plain lines.

    Args:
        check: Who judges what comes of them, see `checked`; where nobody is named, an instruction's answer does.

    Raises:
        InputError: It cannot be read, or holds no instruction; or there is no such check.
    """
    judges = checked(check) if check else None
    found: dict[str, Instruction] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if line.strip():
            asked = _asked(line.strip(), f"{path}:{number}", judges)
            found.setdefault(asked.id, asked)
    if not found:
        raise InputError(f"{path} holds no instruction; write one a line")
    return tuple(found.values())


HELD_OUT_SHARE = 0.3
"""Of instructions of which nobody said it, to be examined on."""


def dealt(
    asked: Sequence[Instruction], learned: Collection[str], *, most: int
) -> tuple[tuple[Instruction, ...], tuple[Instruction, ...]]:
    """Those to practise on and those to be examined on, these at most so many: as the file says, else by a hash of the text.

    Args:
        learned: `task.fingerprint`s of what the planner learned from, on which it cannot be examined.
    """
    practise: list[Instruction] = []
    examine: list[Instruction] = []
    for each in asked:
        known = not fingerprints([each.text]).isdisjoint(learned)
        digest = hashlib.sha256(each.text.encode(errors="surrogatepass")).digest()
        drawn = int.from_bytes(digest[:8]) / 2**64 < HELD_OUT_SHARE and not known
        held = each.split == Split.HELD_OUT.value if each.split else drawn
        (examine if held else practise).append(each)
    return tuple(practise), tuple(examine[:most])


def ending(asked: Instruction) -> Instruction:
    """Judged by whether it comes to its end, where nobody else judges it."""
    return replace(asked, judge=finished) if asked.judge is unjudged else asked


async def collect(
    asked: Sequence[Instruction],
    make: Callable[[str], Plan],
    crew: Mapping[str, Worker],
    folder: Path,
    config: CollectConfig | None = None,
    heard: Heard = lambda _, __: None,
) -> CollectionSummary:
    """Plan, carry out, judge and log.

    Args:
        asked: What to do; of these as many as `config.executions`.
        make: The planner: an instruction's plan, with a worker for each subtask.
        crew: Who is there, by name. Choices are drawn from those that are models.
        folder: Of the logs.
        heard: Called after each execution.

    Raises:
        InputError: There is a limit on cost and a model without a price.
        StoreError: The log cannot be written.
    """
    config = config or CollectConfig()
    wanted = list(asked[: config.executions])
    known = logged(folder)
    todo = [each for each in wanted if each.id not in known]
    made = CollectionSummary(path=folder / FILE, asked=len(wanted), before=len(wanted) - len(todo))
    await _Collection(make, crew, config, made, heard).all(todo)
    return made


def logged(folder: Path) -> frozenset[str]:
    """Ids of the instructions that stand in a folder's log."""
    if not (folder / FILE).exists():
        return frozenset()
    return frozenset(found.task_id for found in read_executions(folder / FILE) if not isinstance(found, Problem))


def explored(plan: Plan, models: Sequence[str], config: CollectConfig, id: str) -> tuple[Plan, Mapping[str, Choice]]:
    """The plan with some workers drawn, and the choice behind each. The same seed, instruction and subtask draw the same."""
    choices = {}
    for step in plan.subtasks:
        if step.tool or step.worker not in models:
            continue
        chance = random.Random(f"{config.seed} {id} {step.id}")
        choice = epsilon_greedy(step.worker, tuple(models), config.explore, chance, policy=config.policy)
        choices[step.id] = replace(choice, reason="drawn to learn" if choice.explored else "as planned")
    workers = [choices[step.id].worker if step.id in choices else step.worker for step in plan.subtasks]
    return plan.with_workers(workers), choices


class _Collection:
    def __init__(
        self,
        make: Callable[[str], Plan],
        crew: Mapping[str, Worker],
        config: CollectConfig,
        made: CollectionSummary,
        heard: Heard,
    ) -> None:
        self._make, self._crew, self._config, self._made, self._heard = make, crew, config, made, heard
        self._models = tuple(name for name, worker in crew.items() if worker.card.kind == "model")
        self._log = ExecutionLogger(made.path, models=self._models)
        self._orchestrator = Orchestrator(crew=crew, limits=PlanLimits(together=config.concurrency), candidate_id=config.policy)
        self._held = 0.0
        """US dollars that plans under way may still come to."""

    async def all(self, todo: Iterable[Instruction]) -> None:
        """Several at a time, in order; each takes the next when it is done with one."""
        waiting = iter(list(todo))

        async def one_by_one() -> None:
            for each in waiting:
                await self._one(each)
                if self._made.stopped:
                    return

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._config.concurrency):
                    group.create_task(one_by_one())
        except* JourneymanError as errors:
            # Several at a time may find the same wrong; once is enough to say it.
            raised = errors.exceptions[0]
        else:
            return
        raise raised

    async def _one(self, asked: Instruction) -> None:
        try:
            plan, choices = explored(self._make(asked.text), self._models, self._config, asked.id)
        except PlanError as error:
            self._made.unplanned.append(f"{asked.id}: {error}")
            return
        most = self._most(plan)
        if self._config.max_cost is not None and self._made.cost + self._held + most > self._config.max_cost:
            self._made.stopped = f"the next plan could exceed the limit of ${self._config.max_cost:g}"
            return
        self._held += most
        try:
            result = await self._orchestrator.run(plan, choices=choices)
        except PlanError as error:
            self._made.unplanned.append(f"{asked.id}: {error}")
            return
        finally:
            self._held -= most
        trace = replace(result.trace, task_id=asked.id, raw={**result.trace.raw, "split": asked.split})
        result = asked.judge(replace(result, trace=trace))
        self._log.log(result)
        self._count(result)
        self._heard(self._made, result)

    def _most(self, plan: Plan) -> float:
        """US dollars that the plan costs at most; 0 where there is no limit."""
        if self._config.max_cost is None:
            return 0.0
        most = 0.0
        for step in plan.subtasks:
            worker = self._crew.get(step.worker or step.tool)
            cost = worker.estimate(SubtaskJob(plan=plan, subtask=step, inputs={})) if worker else None
            if cost is None:
                raise InputError(f"{step.worker or step.tool or step.id} has no known price, so a limit on cost cannot be kept")
            most += cost
        return most

    def _count(self, result: ExecutionResult) -> None:
        made = self._made
        made.succeeded += result.success is True
        made.failed += result.success is False
        made.unjudged += result.success is None
        made.cost += result.total_cost or 0.0
        made.unpriced += result.total_cost is None


def _asked(line: str, where: str, judges: Callable[[Any], Judge] | None) -> Instruction:
    told: Mapping[str, Any] = {"instruction": line}
    if line.startswith("{"):
        try:
            told = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: begins like JSON and is none ({error})") from None
    text = told.get("instruction")
    if not isinstance(text, str) or not text.strip():
        raise InputError(f'{where}: no "instruction"; a line is a text, or an object with one')
    id = str(told.get("id") or hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16])
    try:
        # A test set under another name would be learned from.
        split = split_named(str(told["split"])).value if told.get("split") else ""
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    expected, cluster = told.get("answer"), told.get("cluster")
    if cluster is not None and not is_name(cluster):
        raise InputError(f"{where}: cluster is {cluster!r}, and must be a text or a number")
    judge = judges(expected) if judges else unjudged if expected is None else answered(expected)
    return Instruction(id=id, text=text, split=split, judge=judge, cluster="" if cluster is None else str(cluster))


# From an instruction to what became of it: plan, carry out, log.
#
# >>> system = OrchestrationSystem(planner, crew, logger=ExecutionLogger("execution_logs/"))
# >>> result = system.execute("Summarise these reports and draw the trend.")
# >>> print(result.success, result.total_cost, result.outputs)


@dataclass(frozen=True)
class OrchestrationSystem:
    """A planner and those who carry its plans out. Every execution is logged, where there is a logger."""

    planner: Planner
    """Makes the plans, of the crew's tools and models."""
    crew: Mapping[str, Worker]
    """Who does the subtasks, by name."""
    _: KW_ONLY
    choose: Choose | None = None
    """Who does a subtask for which the plan names nobody."""
    limits: PlanLimits = field(default_factory=PlanLimits)
    budget: PlanBudget = field(default_factory=PlanBudget)
    """Of each execution."""
    logger: ExecutionLogger | None = None
    """Where executions are written."""
    judge: Judge = unjudged
    """Whether it was right. Without one nobody knows, and that is what the log says."""
    policy: str = BASE
    """The candidate in force."""

    def cards(self, kind: str) -> tuple[Card, ...]:
        """What is known of those in the crew that are a "model" or a "tool"."""
        return tuple(worker.card for worker in self.crew.values() if worker.card.kind == kind)

    def plan(self, instruction: str) -> Plan:
        """The steps, in an order in which they can be done, each with who does it.

        Raises:
            PlanError: No plan can be made; says why.
        """
        return self.planner.plan(instruction, tools=self.cards("tool"), models=self.cards("model"))

    def execute(self, instruction: str) -> ExecutionResult:
        """Plan, carry out and log; a step that fails is data. For programs without an event loop; others await `carry_out`.

        Raises:
            PlanError: No plan can be made, or nobody can do one of its steps. Nothing was begun.
            StoreError: It could not be logged.
        """
        return self.run(self.plan(instruction))

    def run(self, plan: Plan) -> ExecutionResult:
        """Carry a plan out that is made already. For programs without an event loop."""
        return asyncio.run(self.carry_out(plan))

    async def carry_out(self, plan: Plan) -> ExecutionResult:
        """Carry a plan out, and log it, also where it is broken off."""
        heard: list[ExecutionResult] = []
        # Of a run that is cancelled nothing is returned, but what it cost until then is told.
        orchestrator = Orchestrator(
            crew=self.crew,
            choose=self.choose,
            limits=self.limits,
            budget=self.budget,
            candidate_id=self.policy,
            done=heard.append,
        )
        try:
            await orchestrator.run(plan)
        finally:
            for result in heard:
                judged = self.judge(result)
                if self.logger is not None:
                    self.logger.log(judged)
        return judged
