"""Small planners in files: a bakery's orders are letters that models write, and calls of a tool."""

import random
from pathlib import Path

import numpy as np
import torch

from journeyman.core.plan import Plan, Subtask
from journeyman.core.policy import Card
from journeyman.models.embedders import HashingEmbedder
from journeyman.optimizers.outcome_table import Table
from journeyman.optimizers.planner import artifact
from journeyman.optimizers.planner.config import NetworkConfig
from journeyman.optimizers.planner.data import Example, TrainingData
from journeyman.optimizers.planner.policy import LearnedPlanner
from journeyman.stats import Floats

MODELS = (Card(name="small", input_price=0.1, output_price=0.2), Card(name="large", input_price=3.0, output_price=9.0))
KINDS = ("easy letter", "hard letter")
SMALL = NetworkConfig(width=16, rank=8, dropout=0.0)


def example(at: int, *, workers: bool = True, tool: bool = True) -> Example:
    """A letter, of one kind or the other, and the bread for it by a tool."""
    kind, worker = KINDS[at % 2], MODELS[at % 2].name if workers else ""
    letter = Subtask(id="1", text=f"Write {kind} {at}", type=kind, worker=worker)
    bread = Subtask(id="2", text="bake", type="baking", tool="bake", after=("1",))
    plan = Plan(instruction=f"{kind} number {at}, and bread for it", subtasks=(letter, bread) if tool else (letter,))
    return Example(plan=plan, success=1.0, cost=0.01, seconds=1.0)


def bakery(number: int = 24, *, workers: bool = True, tool: bool = True, models: tuple[Card, ...] = MODELS) -> TrainingData:
    return TrainingData.of((example(at, workers=workers, tool=tool) for at in range(number)), models=models if workers else ())


def sums(number: int, seed: int = 0, workers: tuple[str, ...] = ("",)) -> list[Example]:
    """Calculations that one clause may ask for two of, and what is done with what comes out.

    Args:
        workers: Of whom each step is somebody's, by chance.
    """
    chance, made = random.Random(seed), []
    for at in range(number):
        a, b, c, d = (chance.randint(2, 60) for _ in range(4))
        plus, times = Subtask(id="1", text=f"{a} plus {b}", type="sum"), Subtask(id="2", text=f"{c} times {d}", type="product")
        steps: tuple[Subtask, ...]
        if at % 3 == 0:
            said, steps = (
                f"Compute {a} plus {b}. Then shout the result.",
                (plus, Subtask(id="3", text="shout the result", type="shout", after=("1",))),
            )
        elif at % 3 == 1:
            said, steps = (
                f"Compute {a} plus {b} and {c} times {d}. Then shout both.",
                (plus, times, Subtask(id="3", text="shout both", type="shout", after=("1", "2"))),
            )
        else:
            said, steps = f"Compute {c} times {d}, please.", (times,)
        plan = Plan(instruction=said, subtasks=steps).with_workers([chance.choice(workers) for _ in steps])
        made.append(Example(plan=plan, success=1.0))
    return made


def written(folder: Path, training: TrainingData | None = None, *, name: str = "phase1_best", seed: int = 0) -> Path:
    """An untrained planner, in a file as phase 1 writes it."""
    training = training or bakery()
    model = artifact.build(training, HashingEmbedder(64), SMALL, seed)
    path = folder / f"{name}{artifact.SUFFIX}"
    path.parent.mkdir(parents=True, exist_ok=True)
    artifact.write(path, *artifact.contents(model, training))
    return path


def opened(path: Path) -> LearnedPlanner:
    return artifact.load_learned(path, HashingEmbedder(64))


def shake(module: torch.nn.Module, scale: float, seed: int) -> None:
    """Weights that nobody learned."""
    with torch.no_grad():
        for at, parameter in enumerate(module.parameters()):
            parameter.copy_(scale * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed + at)))


def outcomes(number: int = 160, *, same: bool = False) -> Table:
    """Letters that were given to both: the small one gets the easy ones right, the large one all, at forty times the price.

    Args:
        same: Everybody gets everything right, for the same price.
    """
    easy = np.arange(number) % 2 == 0
    success: Floats = np.stack([easy | same, np.ones(number, bool)], 1).astype(float)
    cost: Floats = np.tile([0.01, 0.01 if same else 0.4], (number, 1))
    return Table.judged(
        [f"please, {KINDS[at % 2]} number {at}" for at in range(number)],
        success,
        (),
        ids=tuple(f"r{at}" for at in range(number)),
        types=tuple(KINDS[at % 2] for at in range(number)),
        cards=MODELS,
        cost=cost,
        seconds=np.ones((number, 2)),
        splits=tuple("held_out" if at % 4 > 1 else "train" for at in range(number)),
    )
