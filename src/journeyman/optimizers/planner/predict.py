"""A trained planner at work: an instruction in, a plan out."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from journeyman.core.errors import PlanError
from journeyman.core.plan import Plan, Subtask
from journeyman.core.policy import Card
from journeyman.models.embedders import Embedder
from journeyman.optimizers.planner.data import TYPE, TrainingData
from journeyman.optimizers.planner.decode import Decoded
from journeyman.optimizers.planner.features import EncodedInstruction, InstructionEncoder
from journeyman.optimizers.planner.memory import CardEmbeddings
from journeyman.optimizers.planner.network import PlannerModel


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
        for name in PlannerModel.TUNED:
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
    return Plan(instruction=request.instruction, subtasks=tuple(subtasks))
