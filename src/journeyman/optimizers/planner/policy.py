"""Trained planners at work: an instruction in, a plan out, its workers chosen as phase 1 or as reinforcement learned it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from journeyman.core.errors import InputError, PlanError
from journeyman.core.plan import Plan, Subtask
from journeyman.core.policy import Card
from journeyman.models.embedders import Embedder
from journeyman.optimizers.planner.data import TYPE, TrainingData
from journeyman.optimizers.planner.decode import Decoded
from journeyman.optimizers.planner.features import EncodedInstruction, InstructionEncoder
from journeyman.optimizers.planner.memory import CardEmbeddings
from journeyman.optimizers.planner.network import PlannerModel
from journeyman.stats import Floats


def steps_of(data: TrainingData) -> tuple[Card, ...]:
    """What plans can be made of: the tools, and the kinds of work that a model did without one."""
    bare = {subtask.type for example in data.examples for subtask in example.plan.subtasks if not subtask.tool}
    return (*data.tools, *(card for card in data.task_types if card.name in bare))


class LearnedPlanner:
    """Implements `journeyman.optimizers.planner.data.Planner`."""

    def __init__(self, model: PlannerModel, *, hires: bool | None = None) -> None:
        """`hires` says whether it learned who should do a step, by its memory if it is not told; one that did not leaves
        workers to the policy."""
        self.model = model.eval()
        self.hires = model.encoder.memory.hires if hires is None else hires
        self._dealt: tuple[tuple[Sequence[Card], Sequence[Card]], PlannerModel] | None = None

    def plan(
        self,
        instruction: str,
        *,
        tools: Sequence[Card] = (),
        models: Sequence[Card] = (),
        given: frozenset[str] | None = None,
    ) -> Plan:
        """See `Planner`. Without tools or models those that it learned from are used.

        Args:
            given: Types of what comes with the instruction, such as "image"; `None` leaves that open, and then no input is
                missing.
        """
        return self.plans([instruction], tools=tools, models=models, given=given)[0]

    def plans(
        self,
        instructions: Sequence[str],
        *,
        tools: Sequence[Card] = (),
        models: Sequence[Card] = (),
        given: frozenset[str] | None = None,
    ) -> list[Plan]:
        """One for each, at less cost than one by one."""
        model = self.model_for(tools, models)
        requests = model.encoder.encode(instructions)
        return assemble(model, requests, model.draw(requests, given), hires=self.hires)

    def nearest(self, instruction: str) -> Plan:
        """A copy of the past plan whose instruction is nearest, for this one: what a planner must beat.

        Raises:
            PlanError: It remembers no plan that succeeded.
        """
        memory = self.model.encoder.memory
        rows = memory.nearest(self.model.encoder.embedder.embed([instruction])[0]).rows
        if not len(rows):
            raise PlanError("no past plan succeeded, so there is none to copy")
        plan: Plan = memory.examples[int(rows[0])].plan
        return replace(plan, instruction=instruction)

    def model_for(self, tools: Sequence[Card] = (), models: Sequence[Card] = ()) -> PlannerModel:
        """The network with other cards in its hand; the weights are the same."""
        found: PlannerModel = self.model
        if tools or models:
            key = (tuple(tools), tuple(models))
            if self._dealt is None or self._dealt[0] != key:
                self._dealt = (key, self._deal(*key))
            found = self._dealt[1]
        return found

    def _deal(self, tools: Sequence[Card], models: Sequence[Card]) -> PlannerModel:
        old = self.model
        embedder: Embedder = old.encoder.embedder
        kinds = [card for card in old.encoder.steps.cards if card.kind == TYPE]
        steps = CardEmbeddings.of([*tools, *kinds], embedder) if tools else old.encoder.steps
        encoder = InstructionEncoder(embedder, steps, old.encoder.memory)
        new = PlannerModel(encoder, old.types, CardEmbeddings.of(models, embedder) if models else old.models, old.config)
        new.load_state_dict(old.state_dict())
        for name in (*PlannerModel.TUNED, "texts"):
            setattr(new, name, getattr(old, name))
        new.eval()
        return new


def assemble(
    model: PlannerModel, requests: Sequence[EncodedInstruction], drawn: Sequence[Decoded], *, hires: bool = False
) -> list[Plan]:
    """Shapes as plans: each step with what it is told, its type, and who does it."""
    with torch.no_grad():
        batch = model.batch(requests, [shape.steps for shape in drawn])
        found = model(batch)
    types, workers = (found["task_types"] + _tool_kinds(model, batch.places)).argmax(-1).numpy(), None
    if hires and len(model.models):
        workers = found["model_selections"].argmax(-1).numpy()
    return [
        _assembled(model, request, shape, (batch.where[row], types[row], None if workers is None else workers[row]))
        for row, (request, shape) in enumerate(zip(requests, drawn, strict=True))
    ]


def _tool_kinds(model: PlannerModel, places: Sequence[Sequence[int]]) -> torch.Tensor:
    """(b, k, types): 0, but far below where a step is a tool's and no tool was ever of that kind, if any was seen."""
    plans = [example.plan for example in model.encoder.memory.examples]
    seen = {subtask.type for plan in plans for subtask in plan.subtasks if subtask.tool}
    strange = torch.tensor([bool(seen) and name not in seen for name in model.types.names])
    tools = torch.zeros(len(places), max(1, *(len(steps) for steps in places)), dtype=torch.bool)
    for row, steps in enumerate(places):
        tools[row, : len(steps)] = torch.tensor([model.encoder.steps.cards[at].kind != TYPE for at in steps], dtype=torch.bool)
    return -1e6 * (tools[..., None] & strange)


def _assembled(
    model: PlannerModel,
    request: EncodedInstruction,
    shape: Decoded,
    chosen: "tuple[tuple[int, ...], np.ndarray, np.ndarray | None]",
) -> Plan:
    where, types, workers = chosen
    steps = model.encoder.steps
    subtasks = []
    for at, (place, parents) in enumerate(zip(shape.steps, shape.parents, strict=True)):
        card = steps.cards[place]
        is_tool = card.kind != TYPE
        subtasks.append(
            Subtask(
                id=str(at + 1),
                text=request.clauses[where[at]],
                type=model.types.names[types[at]] if is_tool else card.name,
                tool=card.name if is_tool else "",
                worker="" if is_tool or workers is None else model.models.names[workers[at]],
                after=tuple(str(parent + 1) for parent in parents),
                takes=card.takes,
                gives=card.gives,
            )
        )
    plan = Plan(instruction=request.instruction, subtasks=tuple(subtasks))
    return plan if model.texts is None else plan.with_texts(model.texts.write(plan, request.clauses, where))


# Who does which subtask: a policy that begins as the supervised one, and a value of where one stands.


_NEVER = -1e9
"""The logit of a worker that may not be chosen: a probability of exactly 0, with a gradient of exactly 0."""

_NOBODY = "a subtask has no worker that is allowed; allow at least one"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionState:
    """Where one decision stands: a subtask that needs a worker."""

    node: NDArray[np.float32]
    """(d,): embeddings of instruction and subtask, what its parents gave, what is left of the budget."""
    prior: NDArray[np.float32]
    """(m,), the supervised policy's logits over the workers; zeros where there is none."""
    allowed: NDArray[np.bool_]
    """(m,)"""
    episode: int = 0
    """Which of the episodes played together, and `at` which decision of it: chance is drawn by these two numbers."""
    at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionStates:
    """n of them."""

    node: Tensor
    prior: Tensor
    allowed: Tensor

    @classmethod
    def of(cls, states: Sequence[DecisionState], dtype: torch.dtype = torch.float32) -> "DecisionStates":
        return cls(
            node=torch.as_tensor(np.stack([state.node for state in states]), dtype=dtype),
            prior=torch.as_tensor(np.stack([state.prior for state in states]), dtype=dtype),
            allowed=torch.as_tensor(np.stack([state.allowed for state in states])),
        )

    def __len__(self) -> int:
        return len(self.node)

    def take(self, rows: Tensor) -> "DecisionStates":
        return DecisionStates(node=self.node[rows], prior=self.prior[rows], allowed=self.allowed[rows])


class ModelSelector(nn.Module):  # type: ignore[misc]
    """Supervised logits plus what reinforcement has learned: <g(node), f(card)> / √width, where f begins as 0.

    So before the first update it is the supervised policy, bit for bit. Workers are known by their cards' features alone, and
    one that joins later is chosen like those it resembles.
    """

    cards: Tensor

    def __init__(self, cards: ArrayLike, inputs: int, *, width: int = 64, seed: int = 0) -> None:
        """`cards` has shape (m, c), `inputs` is the length of a node's features."""
        super().__init__()
        known = torch.as_tensor(np.asarray(cards), dtype=torch.float32)
        self.register_buffer("cards", known)
        self.width = width
        # Weights by their own generator: who else draws numbers in this process must not change them.
        chance = torch.Generator().manual_seed(seed)
        self.ask = _linear(inputs, width, chance)
        self.offer = _linear(known.shape[1], width, chance)
        self.hidden = _linear(inputs, width, chance)
        self.value = _linear(width, 1, chance)
        for layer in (self.offer, self.value):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def logits(self, states: DecisionStates) -> Tensor:
        """Log-probabilities, shape (n, m); those of workers that are not allowed are about -1e9.

        Raises:
            InputError: A decision has no worker that is allowed.
        """
        if not bool(states.allowed.any(dim=1).all()):
            raise InputError(_NOBODY)
        gained = torch.tanh(self.ask(states.node)) @ self.offer(self.cards).T / math.sqrt(self.width)
        return torch.log_softmax((states.prior + gained).masked_fill(~states.allowed, _NEVER), dim=-1)

    def values(self, states: DecisionStates) -> Tensor:
        """What is expected from here on, shape (n,)."""
        expected: Tensor = self.value(torch.tanh(self.hidden(states.node))).squeeze(-1)
        return expected

    def compute_loss(  # noqa: PLR0913 - the documented signature
        self,
        states: DecisionStates,
        actions: ArrayLike | Tensor,
        old_log_probs: ArrayLike | Tensor,
        advantages: ArrayLike | Tensor,
        returns: ArrayLike | Tensor,
        clip_epsilon: float = 0.2,
        value_coef: float = 0.5,
        entropy_coef: float = 0.01,
        *,
        kl_coef: float = 0.0,
    ) -> Mapping[str, Tensor]:
        """PPO's loss on the recorded actions.

        -E[min(ρA, clip(ρ, 1 ± ε)A)] + value_coef·MSE - entropy_coef·H + kl_coef·KL(π‖prior): Schulman et al., "Proximal Policy
        Optimization Algorithms" (arXiv 1707.06347), eq. 7 and 9. ρ is the probability of the action that was taken, now against
        then; nothing is drawn anew here. KL is to the supervised policy.

        Returns:
            "total_loss", which has the gradient; "policy_loss", "value_loss", "entropy", "kl_to_prior"; and of the step from
            the recorded policy "approx_kl" (k3 of Schulman, "Approximating KL Divergence": never below 0), "clip_fraction" and
            "ratio", shape (n,).
        """
        logits, expected = self.logits(states), self.values(states)
        kind = expected.dtype
        taken = torch.as_tensor(actions, dtype=torch.int64)
        before, gain, seen = (torch.as_tensor(of, dtype=kind) for of in (old_log_probs, advantages, returns))
        step = logits.gather(1, taken[:, None]).squeeze(1) - before
        ratio = step.exp()
        policy_loss = -torch.minimum(ratio * gain, ratio.clamp(1 - clip_epsilon, 1 + clip_epsilon) * gain).mean()
        value_loss = nn.functional.mse_loss(expected, seen)
        chances = logits.exp()
        entropy = -(chances * logits).sum(-1).mean()
        prior = torch.log_softmax(states.prior.masked_fill(~states.allowed, _NEVER), dim=-1)
        away = (chances * (logits - prior)).sum(-1).mean()
        return {
            "total_loss": policy_loss + value_coef * value_loss - entropy_coef * entropy + kl_coef * away,
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy": entropy.detach(),
            "kl_to_prior": away.detach(),
            "approx_kl": (ratio - 1 - step).mean().detach(),
            "clip_fraction": ((ratio - 1).abs() > clip_epsilon).to(kind).mean().detach(),
            "ratio": ratio.detach(),
        }

    def probabilities(self, states: Sequence[DecisionState]) -> Floats:
        """Of each worker, shape (n, m)."""
        with torch.no_grad():
            made: Floats = self.logits(DecisionStates.of(states, self.cards.dtype)).exp().double().numpy()
        return made

    def frozen(self) -> Callable[[DecisionState], tuple[Floats, float]]:
        """Log-probabilities, shape (m,), and the value of one state, with the weights as they are now.

        The same as `logits` and `values` without what a tensor costs: a tenth of the time for one decision.
        """
        weights = {name: value.detach().numpy().astype(np.float64) for name, value in self.state_dict().items()}
        offers = (weights["cards"] @ weights["offer.weight"].T + weights["offer.bias"]) / math.sqrt(self.width)

        def look(state: DecisionState) -> tuple[Floats, float]:
            if not state.allowed.any():
                raise InputError(_NOBODY)
            gained = offers @ np.tanh(weights["ask.weight"] @ state.node + weights["ask.bias"])
            logits = np.where(state.allowed, state.prior + gained, _NEVER)
            shifted = logits - logits.max()
            seen = np.tanh(weights["hidden.weight"] @ state.node + weights["hidden.bias"])
            return shifted - np.log(np.exp(shifted).sum()), float(weights["value.weight"][0] @ seen + weights["value.bias"][0])

        return look


def _linear(inputs: int, outputs: int, chance: torch.Generator) -> nn.Linear:
    made: Any = nn.utils.skip_init(nn.Linear, inputs, outputs)
    bound = 1 / math.sqrt(inputs)
    with torch.no_grad():
        made.weight.uniform_(-bound, bound, generator=chance)
        made.bias.uniform_(-bound, bound, generator=chance)
    layer: nn.Linear = made
    return layer


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


def features_of_plans(model: PlannerModel, plans: Sequence[Plan]) -> list[PlanFeatures]:
    """Of each plan its subtasks with their prior; zeros where phase 1 learned nothing of who does what.

    Raises:
        InputError: A subtask has a tool or type that is not among the model's cards.
    """
    hires, made = model.encoder.memory.hires, []
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
    """Implements `journeyman.optimizers.planner.data.Planner`: phase 1's steps and order, done by whom phase 2 chooses."""

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
        (seen,) = features_of_plans(model, [plan])
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
