"""A planner of phase 1 whose workers are chosen by what reinforcement learned; both in one file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from journeyman.core.errors import InputError
from journeyman.core.plan import Plan
from journeyman.core.policy import Card
from journeyman.models.embedders import Embedder
from journeyman.optimizers.planner import checkpoints, files
from journeyman.optimizers.planner.network import PlannerModel
from journeyman.optimizers.planner.predict import LearnedPlanner
from journeyman.optimizers.planner.selector import DecisionState, ModelSelector

_PREFIX = "selector."
_SCALE = np.float32(4.0)
"""Cards have length 1, which tanh hardly bends. They alone are what a policy of workers sees of a subtask: with what the
network makes of the whole instruction it learned 150 instructions of practice by heart, and brought no more on others."""
_BLOCK = 256
"""Plans that are seen together, which bounds the memory."""


@dataclass(frozen=True, kw_only=True)
class PlanFeatures:
    """A plan as phase 1 sees it: what a policy of workers knows before anything is done."""

    nodes: NDArray[np.float32]
    """(subtasks, d)"""
    prior: NDArray[np.float32]
    """(subtasks, m), log-probabilities of the models."""


def features_of_plan(model: PlannerModel, plan: Plan) -> PlanFeatures:
    """The plan's subtasks with their prior; zeros where phase 1 learned nothing of who does what.

    Raises:
        InputError: A subtask has a tool or type that is not among the model's cards.
    """
    return features_of_plans(model, [plan])[0]


def features_of_plans(model: PlannerModel, plans: Sequence[Plan]) -> list[PlanFeatures]:
    """Many at once, at less cost than one by one."""
    hires, made = files.hires(model.encoder.memory), []
    for start in range(0, len(plans), _BLOCK):
        block = plans[start : start + _BLOCK]
        batch = model.batch(model.encoder.encode([each.instruction for each in block]), [model.places(each) for each in block])
        with torch.no_grad():
            priors = torch.log_softmax(model.score_workers(batch).logits, -1).numpy()
        for row, places in enumerate(batch.places):
            prior = priors[row, : len(places)] if hires else np.zeros_like(priors[row, : len(places)])
            made.append(PlanFeatures(nodes=_SCALE * model.encoder.steps.vectors[list(places)], prior=prior))
    return made


def selector_for(model: PlannerModel, *, seed: int = 0) -> ModelSelector:
    """A policy that chooses among the model's workers just as phase 1 does."""
    return ModelSelector(model.model_cards.numpy(), model.encoder.steps.vectors.shape[1], seed=seed)


class ReinforcedPlanner:
    """Implements `journeyman.optimizers.planner.base.Planner`: phase 1's steps and order, done by whom phase 2 chooses."""

    def __init__(self, planner: LearnedPlanner, selector: ModelSelector) -> None:
        self.planner = planner
        self.selector = selector.eval()

    def plan(self, instruction: str, *, tools: Sequence[Card] = (), models: Sequence[Card] = ()) -> Plan:
        """See `Planner`. A model that joined since is chosen like those whose card is like its own."""
        plan = self.planner.plan(instruction, tools=tools, models=models)
        model = self.planner.model_for(tools, models)
        if not len(model.models):
            # Nobody to choose from: who does it is left open, as phase 1 leaves it.
            return plan
        chances = self.chances(model, plan)
        names = [
            step.worker if step.tool else model.models.names[int(chances[at].argmax())] for at, step in enumerate(plan.subtasks)
        ]
        return plan.with_workers(names)

    def chances(self, model: PlannerModel, plan: Plan) -> NDArray[np.float64]:
        """With what probability each model does each subtask, shape (subtasks, m)."""
        seen = features_of_plan(model, plan)
        selector = self.selector
        if selector.cards.shape != model.model_cards.shape or not torch.equal(selector.cards, model.model_cards):
            selector = dealt(selector, model)
        allowed = np.ones(len(model.models), np.bool_)
        states = [
            DecisionState(node=node, prior=prior, allowed=allowed) for node, prior in zip(seen.nodes, seen.prior, strict=True)
        ]
        found: NDArray[np.float64] = selector.probabilities(states)
        return found


def dealt(selector: ModelSelector, model: PlannerModel) -> ModelSelector:
    """The same policy with the model's workers to choose from."""
    made = selector_for(model)
    weights = {name: value for name, value in selector.state_dict().items() if name != "cards"}
    made.load_state_dict({**weights, "cards": model.model_cards})
    made.eval()
    return made


def save(path: Path, phase1: Path, selector: ModelSelector, about: Mapping[str, Any]) -> None:
    """Write both in one file, which `load` and `files.load` read.

    Args:
        phase1: The file that reinforcement started from.
        about: What is said of the training, for people.
    """
    tensors, metadata = checkpoints.load(checkpoints.resolve(phase1))
    kept = {name: value for name, value in tensors.items() if not name.startswith(("optimizer.", _PREFIX))}
    learned = {f"{_PREFIX}{name}": value for name, value in selector.state_dict().items()}
    checkpoints.save(path, {**kept, **learned}, {**metadata, "reinforced": dict(about)})


def load(path: Path, embedder: Embedder) -> LearnedPlanner | ReinforcedPlanner:
    """The planner in a file, of either phase, named with its suffix or without.

    Raises:
        InputError: It is not there, is none, or learned with another embedder.
    """
    file = checkpoints.resolve(path)
    return restore(*checkpoints.load(file), embedder, str(file))


def restore(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], embedder: Embedder, where: str
) -> LearnedPlanner | ReinforcedPlanner:
    """The planner of a file that is read already, as `checkpoints.load` gives it.

    Raises:
        InputError: It is none, or learned with another embedder.
    """
    planner = files.planner_of(tensors, metadata, embedder, where)
    learned = {name.removeprefix(_PREFIX): value for name, value in tensors.items() if name.startswith(_PREFIX)}
    return ReinforcedPlanner(planner, _selector(learned, where)) if learned else planner


def _selector(weights: Mapping[str, Tensor], where: str) -> ModelSelector:
    try:
        width, inputs = weights["ask.weight"].shape
        selector = ModelSelector(weights["cards"].numpy(), inputs, width=width)
        selector.load_state_dict(dict(weights))
    except (KeyError, ValueError, RuntimeError) as error:
        raise InputError(f"{where} holds no policy of workers that can be read ({type(error).__name__}); train again") from None
    return selector
