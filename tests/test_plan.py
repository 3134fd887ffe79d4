"""A plan has no circle, and knows what can be done when."""

from graphlib import CycleError, TopologicalSorter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import PlanError
from journeyman.core.plan import Plan, Subtask


def step(id: str, *after: str) -> Subtask:
    return Subtask(id=id, text=f"do {id}", after=after)


DIAMOND = Plan(instruction="go", subtasks=(step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c")))


def test_a_plan_knows_its_levels_its_edges_and_its_end() -> None:
    assert DIAMOND.levels == (("a",), ("b", "c"), ("d",))
    assert DIAMOND.edges == (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"))
    assert DIAMOND.adjacency == ((0, 1, 1, 0), (0, 0, 0, 1), (0, 0, 0, 1), (0, 0, 0, 0))
    assert DIAMOND.ends == ("d",)
    assert DIAMOND.below("b") == {"d"}
    assert not DIAMOND.is_chain
    assert Plan(instruction="", subtasks=(step("a"), step("b", "a"))).is_chain


def test_the_critical_path_is_the_slowest_one() -> None:
    seconds = {"a": 1.0, "b": 5.0, "c": 2.0, "d": 1.0}
    assert DIAMOND.critical_path(lambda subtask: seconds[subtask.id]) == 7.0
    assert DIAMOND.critical_path() == 3.0


def test_subtasks_in_any_order_are_put_in_one_that_can_be_done() -> None:
    shuffled = [step("d", "b", "c"), step("b", "a"), step("c", "a"), step("a")]
    assert [subtask.id for subtask in Plan.of("go", shuffled).subtasks] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("subtasks", "said"),
    [
        ([step("a", "b"), step("b", "a")], "in a circle"),
        ([step("a", "a")], "in a circle"),
        ([step("a"), step("", "a")], "subtask 2 has an empty id"),
        ([step("a"), step("a")], "an id of its own"),
        ([step("a", "z")], "'z', which is not in the plan"),
    ],
)
def test_what_cannot_be_carried_out_is_refused_with_its_reason(subtasks: list[Subtask], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        Plan.of("go", subtasks)


def test_a_plan_written_in_an_order_that_cannot_be_done_is_refused() -> None:
    with pytest.raises(PlanError, match="does not stand before it"):
        Plan(instruction="", subtasks=(step("b", "a"), step("a")))


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20))
def test_any_graph_is_either_ordered_or_refused(pairs: list[tuple[int, int]]) -> None:
    after = {at: tuple(sorted({str(one) for one, other in pairs if other == at})) for at in range(8)}
    subtasks = [step(str(at), *after[at]) for at in range(8)]
    try:
        plan = Plan.of("", subtasks)
    except PlanError:
        # The only reason that is left: the ids are different, and all are there.
        with pytest.raises(CycleError):
            TopologicalSorter({subtask.id: subtask.after for subtask in subtasks}).prepare()
        return
    places = {subtask.id: at for at, subtask in enumerate(plan.subtasks)}
    assert all(places[before] < places[later] for before, later in plan.edges)
    assert sorted(places) == sorted(str(at) for at in range(8))
    assert all(value == 0 for row, line in enumerate(plan.adjacency) for value in line[: row + 1])
