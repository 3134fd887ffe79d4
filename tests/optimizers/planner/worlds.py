"""A small kitchen: tools with types, and requests whose right plans are known."""

import random

import numpy as np
from numpy.typing import NDArray

from journeyman.core.plan import Plan, Subtask
from journeyman.core.policy import Card
from journeyman.optimizers.planner.data import Example, TrainingData

TOOLS = (
    Card(name="slice_bread", description="Cut a loaf of bread into slices", kind="tool", takes=("loaf",), gives=("slices",)),
    Card(
        name="toast_slices", description="Toast slices of bread until brown", kind="tool", takes=("slices",), gives=("toast",)
    ),
    Card(name="butter_toast", description="Spread butter on toast", kind="tool", takes=("toast",), gives=("snack",)),
    Card(name="boil_water", description="Boil water in a kettle", kind="tool", takes=("water",), gives=("hot water",)),
    Card(name="brew_tea", description="Brew tea with hot water", kind="tool", takes=("hot water",), gives=("tea",)),
    Card(name="fry_egg", description="Fry an egg in a pan", kind="tool", takes=("egg",), gives=("fried egg",)),
)
MODELS = (
    Card(name="small", description="a small quick model", input_price=0.1, output_price=0.2, seconds=0.3),
    Card(name="large", description="a large careful model", input_price=3.0, output_price=9.0, seconds=2.0),
)
_DISHES = {
    "buttered toast": ("slice_bread", "toast_slices", "butter_toast"),
    "plain toast": ("slice_bread", "toast_slices"),
    "a cup of tea": ("boil_water", "brew_tea"),
    "a fried egg": ("fry_egg",),
}
_ASKING = ("Make me {}", "Please prepare {}", "{} for breakfast, please", "I would like {} now", "Could I have {}?")
_GUESTS = ("Ada", "Bert", "Cleo", "Dora", "Emil", "Fay", "Gus", "Hana")


def plan_for(dishes: list[str], instruction: str) -> Plan:
    """Each dish a chain of its own; eggs need care, so the large model fries them."""
    subtasks: list[Subtask] = []
    for dish in dishes:
        for at, tool in enumerate(_DISHES[dish]):
            after = (subtasks[-1].id,) if at else ()
            worker = "large" if tool == "fry_egg" else "small"
            kind = "frying" if tool == "fry_egg" else "heating"
            made = Subtask(
                id=str(len(subtasks) + 1), text=f"{tool} for {dish}", tool=tool, after=after, worker=worker, type=kind
            )
            subtasks.append(made)
    return Plan(instruction=instruction, subtasks=tuple(subtasks))


def kitchen(number: int = 60, seed: int = 0) -> TrainingData:
    """So many orders for one or two dishes."""
    chance = random.Random(seed)
    examples = []
    for at in range(number):
        dishes = chance.sample(sorted(_DISHES), chance.choice((1, 1, 2)))
        said = f"{chance.choice(_ASKING).format(' and '.join(dishes))}, table {at} ({chance.choice(_GUESTS)})"
        examples.append(Example(plan=plan_for(dishes, said), success=1.0, cost=0.01, seconds=1.0))
    return TrainingData.of(examples, tools=TOOLS, models=MODELS)


def office(number: int = 60, seed: int = 0) -> TrainingData:
    """Work that no tool does: poems are for the small model, proofs for the large one."""
    chance = random.Random(seed)
    examples = []
    for at in range(number):
        wish, kind, worker = chance.choice((("a short poem", "writing", "small"), ("a hard proof", "proving", "large")))
        said = f"{chance.choice(_ASKING).format(wish)}, number {at}"
        step = Subtask(id="1", text=said, type=kind, worker=worker)
        examples.append(Example(plan=Plan(instruction=said, subtasks=(step,)), success=1.0, cost=0.01, seconds=1.0))
    return TrainingData.of(examples, models=MODELS)


def numbers(seed: int, *shape: int, scale: float = 4.0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(0, scale, shape)
