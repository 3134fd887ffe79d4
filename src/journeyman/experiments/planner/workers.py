"""Names that a user types become a crew, and a planner for it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from journeyman.agents.workers import ByModel, Worker
from journeyman.core import registry
from journeyman.core.errors import InputError
from journeyman.core.plan import Plan, Subtask
from journeyman.core.policy import Card
from journeyman.experiments import wiring
from journeyman.experiments.planner import desk
from journeyman.experiments.planner.artifact import SavedPlanner

Make = Callable[[str], Plan]
"""An instruction's plan, with a worker for each subtask."""


def at_the_desk(models: Sequence[str]) -> bool:
    """Whether these models can do nothing but the desk's work: the embedded ones know no other."""
    return all(name.partition(":")[0] == "embedded" for name in models)


def crew_of(
    models: Sequence[str] = (), own: str = "", *, kept: SavedPlanner | None = None, replies: Path | None = None
) -> Mapping[str, Worker]:
    """Who does the subtasks: the desk's clerks and papers for the embedded models, else each model by itself.

    Args:
        models: As after `--model`. Where nobody is named, those that the planner knows, else the sizes of the embedded model.
        own: `MODULE:NAME` of a mapping from names to workers: one's own tools and agents.
        kept: The planner.
        replies: A folder for what deterministic models replied, so that nothing is decoded twice.

    Raises:
        ModelError: A name is none, or a key is missing.
        InputError: There is no such mapping.
    """
    more = _own(own) if own else {}
    known = kept.learned.model.models.names if kept else ()
    names = tuple(models) or (() if more else known or desk.MODELS)
    if names and at_the_desk(names):
        return {**desk.workers(names, replies=replies), **more}
    return {**{name: ByModel(model=wiring.connect(name), card=card_of(name)) for name in names}, **more}


def _own(named: str) -> Mapping[str, Worker]:
    """Somebody's workers, by an entry point's name, or from a module on the path or in the working folder."""
    if not registry.known("workers", named) and not registry.is_class(named):
        raise InputError(f"the crew {named!r} cannot be loaded: name it as MODULE:NAME")
    found = registry.load("workers", named)
    if not isinstance(found, Mapping) or not all(
        hasattr(worker, "do") and hasattr(worker, "card") for worker in found.values()
    ):
        raise InputError(f"the crew {named!r} is no mapping from names to workers; see docs/planning.md")
    return found


def card_of(model: str) -> Card:
    """What the price list knows of a model."""
    price = wiring.price(model)
    return Card(name=model, input_price=price.input if price else None, output_price=price.output if price else None)


@dataclass(frozen=True, slots=True)
class Making:
    """A `Planner` by a function, for a crew that is known."""

    make: Make

    def plan(self, instruction: str, *, tools: Sequence[Card] = (), models: Sequence[Card] = ()) -> Plan:
        """See `Planner`; the crew is the function's own."""
        return self.make(instruction)


def planner_for(crew: Mapping[str, Worker], kept: SavedPlanner | None = None, *, dealt: bool = True) -> Making:
    """Who makes plans that a crew can carry out: a learned planner; without one the desk's expert, or a single step for all.

    Without a planner and a model in the crew an `InputError` says so when a plan is asked for.

    Args:
        dealt: Whether a learned planner plans with the crew's tools and models, or with those that it learned from.
    """
    models = tuple(worker.card for worker in crew.values() if worker.card.kind == "model")
    safe = models[-1].name if models else ""
    if kept is not None:
        tools = tuple(worker.card for worker in crew.values() if worker.card.kind == "tool")
        hand = (tools, models) if dealt else ((), ())
        return Making(lambda text: _staffed(kept.planner.plan(text, tools=hand[0], models=hand[1]), safe))
    if not models:
        return Making(_nobody)
    if at_the_desk([card.name for card in models]):
        return Making(lambda text: desk.expert(text, safe))
    return Making(lambda text: Plan(instruction=text, subtasks=(Subtask(id="1", text=text, worker=safe),)))


def _nobody(_: str) -> Plan:
    raise InputError("the crew has tools alone, and nobody who plans; name a planner with --planner, or a model")


def _staffed(plan: Plan, safe: str) -> Plan:
    """With the last model named, the careful choice, where the planner leaves it open."""
    return plan.with_workers([step.worker or step.tool or safe for step in plan.subtasks])
