"""What is made from examples: other tools, and parts of a plan."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.plan import Plan, Subtask
from journeyman.core.policy import Card
from journeyman.optimizers.planner import data
from journeyman.optimizers.planner.data import Example
from journeyman.optimizers.planner.supervised import augmented

from .worlds import TOOLS, kitchen

pytestmark = pytest.mark.training


@given(st.integers(0, 10**6), st.integers(1, 80))
def test_what_was_made_from_an_example_never_lies_across_the_split(seed: int, most: int) -> None:
    real = kitchen(20, seed=1).examples
    made = augmented(real, TOOLS, most, seed)
    assert made
    assert most >= len(made)
    assert all(example.synthetic for example in made)
    train, validation = data.split([*real, *made], seed=seed)
    assert not {example.family for example in train} & {example.family for example in validation}
    assert not any(example.synthetic for example in validation)
    assert len({example.plan.instruction for example in made}) == len(made)


def test_a_swapped_tool_has_the_same_types_and_is_named_in_the_request() -> None:
    tools = [Card(name=f"{verb} image", kind="tool", takes=("image",), gives=("image",)) for verb in ("blur", "sharpen")]
    tools.append(Card(name="sing", kind="tool"))
    plan = Plan(instruction="Blur image a.png, please", subtasks=(Subtask(id="1", text="x", tool="blur image"),))
    swapped = [
        example for example in augmented([Example(plan=plan)], tools, 30) if example.plan.subtasks[0].tool != "blur image"
    ]
    assert {example.plan.subtasks[0].tool for example in swapped} == {"sharpen image"}
    assert all("sharpen image a.png" in example.plan.instruction for example in swapped)


def test_a_part_of_a_plan_is_asked_for_by_its_own_clauses_and_has_all_that_it_needs() -> None:
    subtasks = tuple(
        Subtask(id=tool, text=tool, tool=tool, after=after)
        for tool, after in (("find", ()), ("fry_egg", ("find",)), ("sing", ()))
    )
    plan = Plan(instruction="Find an egg. Then fry the egg. Finally sing a song.", subtasks=subtasks)
    parts = {example.plan.instruction: example.plan for example in augmented([Example(plan=plan)], TOOLS, 60)}
    assert [subtask.id for subtask in parts["Find an egg. Fry the egg."].subtasks] == ["find", "fry_egg"]
    assert [subtask.id for subtask in parts["Sing a song."].subtasks] == ["sing"]
    assert "Fry the egg." not in parts
