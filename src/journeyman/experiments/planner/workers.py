"""Names that a user types become planners, as files and as candidates, and crews for them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from journeyman.agents.workers import ByModel, Worker
from journeyman.core import extension, registry
from journeyman.core.candidate import Candidate, Kind
from journeyman.core.errors import InputError
from journeyman.core.plan import Plan, Subtask
from journeyman.core.policy import Card
from journeyman.core.task import fingerprints, unpacked
from journeyman.experiments import settings, wiring
from journeyman.experiments.planner import desk
from journeyman.models import embedders
from journeyman.models.embedders import Cached
from journeyman.optimizers.planner import artifact
from journeyman.optimizers.planner.policy import LearnedPlanner, ReinforcedPlanner
from journeyman.stores import open_store
from journeyman.stores.artifacts import Artifacts
from journeyman.stores.registry import find_policy

FORMAT = "journeyman-planner-policy-1"


@dataclass(frozen=True, kw_only=True)
class SavedPlanner:
    """A planner that can be asked."""

    planner: LearnedPlanner | ReinforcedPlanner
    id: str
    """The candidate's, which is made of the file's content."""
    where: str
    """The file, or the candidate's id, as people are told it."""
    path: Path
    """The file."""
    trained_on: frozenset[str] = frozenset()
    """`task.fingerprint`s of the instructions that it learned from and was chosen by."""

    @property
    def learned(self) -> LearnedPlanner:
        """What it learned in phase 1."""
        return self.planner.planner if isinstance(self.planner, ReinforcedPlanner) else self.planner


def trained_on(planner: LearnedPlanner, said: Mapping[str, Any]) -> frozenset[str]:
    """`task.fingerprint`s of what a planner learned from: the plans that it remembers, and what its file says beyond them."""
    remembered = fingerprints(example.plan.instruction for example in planner.model.encoder.memory.examples)
    further = (said.get("validated_on", ""), said.get("reinforced", {}).get("trained_on", ""))
    return remembered.union(*map(unpacked, further))


def keep_planner(path: Path, artifacts: Artifacts) -> Candidate:
    """Put a planner's file among the artifacts; what can be evaluated and released."""
    policy = {"format": FORMAT, "file": artifacts.put_file(artifact.resolve(path))}
    return Candidate(kind=Kind.POLICY, body=json.dumps(policy))


def find_planner(where: str) -> SavedPlanner:
    """A planner by its file, with its suffix or without, or the folder of its training, where that of phase 2 comes first; or
    by the id of its candidate or the beginning of it.

    Raises:
        InputError: There is no such planner, or several.
    """
    given = Path(where)
    for path in map(artifact.resolve, (given, given / "phase2_best", given / "phase1_best")):
        if path.is_file():
            return _opened(path, artifact.digest(path), str(path))
    project = settings.load()
    with open_store(project.store_url, make=False) as store:
        candidate = find_policy(where, store, FORMAT, what="planner", kept_as="file")
    digest = str(json.loads(candidate.body).get("file", ""))
    return _opened(Artifacts(project.artifacts).path(digest), digest, candidate.id)


def _opened(path: Path, digest: str, where: str) -> SavedPlanner:
    tensors, metadata = artifact.read(path)
    embedder = Cached(embedders.load(str(metadata.get("embedder", ""))))
    policy = Candidate(kind=Kind.POLICY, body=json.dumps({"format": FORMAT, "file": digest}))
    planner = artifact.planner_of(tensors, metadata, embedder, str(path))
    saved = SavedPlanner(planner=planner, id=policy.id, where=where, path=path)
    return replace(saved, trained_on=trained_on(saved.learned, metadata))


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
    cards = {card.name: card for card in kept.learned.model.models.cards} if kept else {}
    known = tuple(cards)
    names = tuple(models) or (() if more else known or desk.MODELS)
    if names and at_the_desk(names):
        return {**desk.workers(names, replies=replies), **more}
    return {**{name: ByModel(model=wiring.connect(name), card=card_of(name, cards.get(name))) for name in names}, **more}


def _own(named: str) -> Mapping[str, Worker]:
    """Somebody's workers, by an entry point's name, or from a module on the path or in the working folder."""
    if not registry.known("workers", named) and not registry.is_class(named):
        raise InputError(f"the crew {named!r} cannot be loaded: name it as MODULE:NAME{registry.hint(named)}")
    found = registry.load("workers", named)
    with extension.named("workers", named):
        usable = isinstance(found, Mapping) and all(
            hasattr(worker, "do") and isinstance(worker.card, Card) for worker in found.values()
        )
    if not usable:
        raise InputError(f"the crew {named!r} is no mapping from names to workers; see docs/planning.md")
    crew: Mapping[str, Worker] = found
    return crew


def card_of(model: str, learned: Card | None = None) -> Card:
    """What the price list knows of a model; where it knows nothing, what a planner learned of it."""
    price = wiring.price(model)
    if price is None:
        return learned or Card(name=model)
    return Card(name=model, input_price=price.input, output_price=price.output)


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
