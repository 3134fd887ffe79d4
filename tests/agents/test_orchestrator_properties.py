"""What holds for any plan, whoever fails in it: order, limits, money, and that nothing is left behind."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.agents.orchestrator import Orchestrator
from journeyman.agents.subtask import PlanBudget, PlanLimits
from journeyman.agents.workers import Note, SubtaskJob, WorkerFailed
from journeyman.core.plan import ExecutionResult, Plan, Subtask, SubtaskState
from journeyman.core.policy import Card
from journeyman.core.trace import ModelCall

WORKERS = ("a", "b", "c")
PRICE = 1.0


@dataclass
class Book:
    """What all workers of a crew saw."""

    ended: set[str] = field(default_factory=set)
    at_once: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    early: list[str] = field(default_factory=list)
    """Subtasks that began before one that they follow had ended."""
    begun: int = 0


@dataclass(kw_only=True)
class Sloth:
    """Takes a few rounds of the loop, fails where it is told to, and costs less than it could."""

    card: Card
    book: Book
    fails: frozenset[str]
    rounds: int

    def estimate(self, job: SubtaskJob) -> float | None:
        return PRICE

    async def do(self, job: SubtaskJob, note: Note) -> Any:
        book, id = self.book, job.subtask.id
        if not book.ended >= set(job.subtask.after):
            book.early.append(id)
        assert set(job.inputs) == set(job.subtask.after)
        book.begun += 1
        for name in (self.card.name, "all"):
            book.at_once[name] += 1
            book.most[name] = max(book.most[name], book.at_once[name])
        try:
            for _ in range(self.rounds):
                await asyncio.sleep(0)
            note(ModelCall(model=self.card.name, prompt="", reply="", cost=PRICE / 2))
        finally:
            for name in (self.card.name, "all"):
                book.at_once[name] -= 1
        if id in self.fails:
            raise WorkerFailed("as told")
        book.ended.add(id)
        return id


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    count = draw(st.integers(1, 12))
    subtasks = []
    for at in range(count):
        after = draw(st.sets(st.integers(0, at - 1), max_size=3)) if at else set()
        worker = draw(st.sampled_from(WORKERS))
        subtasks.append(Subtask(id=f"s{at}", text="", worker=worker, after=tuple(f"s{n}" for n in sorted(after))))
    return Plan(instruction="all", subtasks=tuple(subtasks))


def orchestrator(book: Book, fails: set[int], rounds: list[int], **more: Any) -> Orchestrator:
    crew = {
        name: Sloth(card=Card(name=name, call_price=PRICE), book=book, fails=frozenset(f"s{n}" for n in fails), rounds=each)
        for name, each in zip(WORKERS, rounds, strict=True)
    }
    return Orchestrator(crew=crew, **more)


failing = st.sets(st.integers(0, 11), max_size=4)
pace = st.lists(st.integers(0, 6), min_size=3, max_size=3)


@given(plan=plans(), fails=failing, rounds=pace, together=st.integers(1, 4), each=st.integers(1, 3))
def test_every_subtask_follows_its_parents_and_never_more_are_at_work_than_may_be(
    plan: Plan, fails: set[int], rounds: list[int], together: int, each: int
) -> None:
    book = Book()
    limits = PlanLimits(together=together, each={"a": each})
    result = asyncio.run(orchestrator(book, fails, rounds, limits=limits).run(plan))
    assert book.early == []
    assert book.most["all"] <= together
    assert book.most["a"] <= each
    assert result.results.keys() == plan.by_id.keys()
    check_states(plan, {f"s{n}" for n in fails}, result)


def check_states(plan: Plan, fails: set[str], result: ExecutionResult) -> None:
    """What was done is what could be; what was not says why; the money is the sum of the tries."""
    doomed: set[str] = set()
    for subtask in plan.subtasks:
        state = result.results[subtask.id].state
        if not doomed.isdisjoint(subtask.after):
            doomed.add(subtask.id)
            assert state is SubtaskState.SKIPPED
        elif subtask.id in fails:
            doomed.add(subtask.id)
            assert state in (SubtaskState.FAILED, SubtaskState.CANCELLED, SubtaskState.SKIPPED)
        else:
            assert state is SubtaskState.DONE or plan.below(subtask.id) & (doomed | fails) or _useless(plan, subtask.id, result)
    assert all(each.why for each in result.results.values() if each.state is not SubtaskState.DONE)
    reached = all(result.results[id].state is SubtaskState.DONE for id in plan.ends)
    assert (result.error is None) == reached
    assert result.success is (None if reached else False)


def _useless(plan: Plan, id: str, result: ExecutionResult) -> bool:
    below = plan.below(id)
    return bool(below) and all(result.results[each].state is not SubtaskState.DONE for each in below if each in plan.ends)


@given(plan=plans(), rounds=pace, money=st.floats(0, 8), fails=failing)
def test_no_budget_of_money_is_ever_exceeded(plan: Plan, rounds: list[int], money: float, fails: set[int]) -> None:
    book = Book()
    result = asyncio.run(orchestrator(book, fails, rounds, budget=PlanBudget(money=money)).run(plan))
    tries = [each for one in result.results.values() for each in one.tries]
    # What was broken off may have cost all that it could.
    spent = sum(PRICE if each.outcome.cost is None else each.outcome.cost for each in tries)
    assert spent <= money
    assert (result.total_cost is None) == any(each.outcome.cost is None for each in tries)
    # A job that may cost the price is begun only where the price is left.
    assert book.begun * PRICE / 2 <= max(0.0, money - PRICE / 2)
    assert book.begun == len(plan.subtasks) or fails or spent + PRICE > money


@given(plan=plans(), rounds=pace, after=st.integers(0, 30), together=st.integers(1, 4))
def test_a_run_that_is_cancelled_at_any_moment_leaves_no_task_behind(
    plan: Plan, rounds: list[int], after: int, together: int
) -> None:
    book = Book()
    handed: list[ExecutionResult] = []

    async def cancelled() -> None:
        made = orchestrator(book, set(), rounds, limits=PlanLimits(together=together), done=handed.append)
        running = asyncio.create_task(made.run(plan))
        for _ in range(after):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(cancelled())
    assert not any(book.at_once.values())
    # Cancelled before its first step, a run has nothing to hand over.
    assert len(handed) == (1 if after else 0)


@pytest.mark.parametrize("together", [1, 3])
def test_what_can_be_done_at_once_is(together: int) -> None:
    book = Book()
    wide = Plan(instruction="", subtasks=tuple(Subtask(id=f"s{n}", text="", worker=WORKERS[n % 3]) for n in range(9)))
    asyncio.run(orchestrator(book, set(), [5, 5, 5], limits=PlanLimits(together=together)).run(wide))
    assert book.most["all"] == together
