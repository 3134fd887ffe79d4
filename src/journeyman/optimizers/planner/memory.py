"""Cards as vectors, and what was done before for requests like this one: the nearest past plans that succeeded vote.

A new tool, model or kind of work is used by its card, without retraining. With few examples the memory alone is hard to beat;
the trained heads see its votes among their inputs, and learn when to trust them.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from journeyman.core.plan import Plan, Subtask
from journeyman.core.policy import Card
from journeyman.models.embedders import Embedder, Vectors
from journeyman.optimizers.planner.data import TYPE, Example

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_\-./:]+")


def words(name: str) -> str:
    """A name as words: `getHealthWorkforce` and `get_health_workforce` are `get health workforce`."""
    return " ".join(_HUMP.sub(" ", name).lower().split())


def text_of(card: Card) -> str:
    """What is embedded of a card."""
    said = f"{words(card.name)}: {card.description}" if card.description else words(card.name)
    types = [f"{label} {', '.join(of)}" for label, of in (("takes", card.takes), ("gives", card.gives)) if of]
    return ". ".join((said.rstrip("."), *types))


@dataclass(frozen=True, kw_only=True)
class CardEmbeddings:
    """n cards and their vectors."""

    cards: tuple[Card, ...]
    vectors: Vectors
    """(n, d), rows of length 1."""
    _places: dict[tuple[str, str], int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        places = {(card.kind, card.name): at for at, card in reversed(list(enumerate(self.cards)))}
        object.__setattr__(self, "_places", places)

    @classmethod
    def of(cls, cards: Iterable[Card], embedder: Embedder) -> "CardEmbeddings":
        """The cards, embedded from their descriptions."""
        kept = tuple(cards)
        # A deck may be empty, but not every embedder can say how wide no vector is.
        return cls(cards=kept, vectors=embedder.embed([text_of(card) for card in kept] or [""])[: len(kept)])

    def __len__(self) -> int:
        return len(self.cards)

    def place(self, kind: str, name: str) -> int | None:
        """Where a card stands; `None` when there is none."""
        return self._places.get((kind, name))

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(card.name for card in self.cards)

    @cached_property
    def compatible(self) -> "Compatibility":
        return Compatibility(self.cards)

    def take(self, rows: Sequence[int]) -> "CardEmbeddings":
        """Some of the cards, in that order."""
        return CardEmbeddings(cards=tuple(self.cards[at] for at in rows), vectors=self.vectors[list(rows)])


class Compatibility:
    """What of one card's results another can take."""

    def __init__(self, cards: Sequence[Card]) -> None:
        types = sorted({kind for card in cards for kind in (*card.takes, *card.gives)})
        column = {kind: at for at, kind in enumerate(types)}
        self._gives = np.zeros((len(cards), len(types)), np.bool_)
        self._takes = np.zeros((len(cards), len(types)), np.bool_)
        for row, card in enumerate(cards):
            self._gives[row, [column[kind] for kind in card.gives]] = True
            self._takes[row, [column[kind] for kind in card.takes]] = True

    def among(self, steps: Sequence[int]) -> NDArray[np.float32]:
        """(k, k): 1 where the row gives what the column takes, -1 where both say their types and none fits, else 0."""
        at = list(steps)
        gives, takes = self._gives[at], self._takes[at]
        fits = (gives[:, None] & takes[None]).any(-1)
        says = np.outer(gives.any(-1), takes.any(-1))
        return np.where(fits, 1.0, np.where(says, -1.0, 0.0)).astype(np.float32)


Floats = NDArray[np.float32]
Step = tuple[str, str]
"""Kind and name of a card."""

NEIGHBOURS = 16
AGREEING = 8
"""Plans from which on it is taken to be so that a step is always handed something, or never more than one thing."""
LONGEST_PLAN = 1 << 10
SHARPNESS = 20.0
"""Of the weights: a neighbour whose cosine is 0.05 lower counts 1/e as much."""


def step_of(subtask: Subtask) -> Step:
    """The card that a subtask is an instance of: its tool, or its kind of work where a model does it."""
    return ("tool", subtask.tool) if subtask.tool else (TYPE, subtask.type)


def ancestors(plan: Plan) -> NDArray[np.bool_]:
    """(k, k): whether the row must be done before the column, directly or not."""
    at = {subtask.id: place for place, subtask in enumerate(plan.subtasks)}
    found = np.zeros((len(at), len(at)), np.bool_)
    for column, subtask in enumerate(plan.subtasks):
        for parent in (at[id] for id in subtask.after):
            found[:, column] |= found[:, parent]
            found[parent, column] = True
    return found


@dataclass(frozen=True, kw_only=True)
class PlanNeighbours:
    """The nearest past plans of one request."""

    rows: NDArray[np.int64]
    """(m,), nearest first."""
    weights: Floats
    """(m,), sum 1."""
    cosines: Floats
    group: str = ""
    """What is left out: the example's own plan, and those made from it."""


class Memory:
    """n past plans that succeeded."""

    def __init__(self, examples: Sequence[Example], vectors: Vectors, steps: CardEmbeddings) -> None:
        """Vectors of all the examples' instructions, (len(examples), d), and the cards that their subtasks are made of."""
        kept = [at for at, example in enumerate(examples) if example.succeeded]
        self.examples = tuple(examples[at] for at in kept)
        self.vectors = np.asarray(vectors, np.float32)[kept]
        self.steps = steps
        self._groups = np.array([example.family for example in self.examples])
        self._plans = [[step_of(subtask) for subtask in example.plan.subtasks] for example in self.examples]
        places = [[steps.place(*step) for step in plan] for plan in self._plans]
        self._places = [[at for at in plan if at is not None] for plan in places]

    def __len__(self) -> int:
        return len(self.examples)

    def nearest(self, query: Floats, *, group: str = "") -> PlanNeighbours:
        """Those whose instructions are most like a query, shape (d,)."""
        cosines = self.vectors @ query if len(self) else np.zeros(0, np.float32)
        if group and len(self):
            cosines = np.where(self._groups == group, -np.inf, cosines)
        rows = np.argsort(-cosines, kind="stable")[:NEIGHBOURS]
        rows = rows[np.isfinite(cosines[rows])]
        found = cosines[rows].astype(np.float32)
        weights = np.exp(SHARPNESS * (found - found.max(initial=-1.0)))
        return PlanNeighbours(rows=rows, weights=weights / max(weights.sum(), 1e-9), cosines=found, group=group)

    def votes(self, near: PlanNeighbours) -> Floats:
        """(len(steps),): the weight of the neighbours whose plans have the step."""
        found = np.zeros(len(self.steps), np.float32)
        for row, weight in zip(near.rows.tolist(), near.weights.tolist(), strict=True):
            found[list(set(self._places[row]))] += weight
        return found

    def lengths(self, near: PlanNeighbours, most: int) -> Floats:
        """(most + 1,): the weight of the neighbours whose plans have so many steps."""
        found = np.zeros(most + 1, np.float32)
        for row, weight in zip(near.rows.tolist(), near.weights.tolist(), strict=True):
            found[min(len(self._plans[row]), most)] += weight
        return found

    def density(self, near: PlanNeighbours) -> float:
        """Of the pairs of steps in the nearest plans the share of which one needs the other; 0.5 where there are none."""
        found = [(float(weight), self._dense[row]) for row, weight in zip(near.rows.tolist(), near.weights, strict=True)]
        known = [(weight, dense) for weight, dense in found if dense is not None]
        return float((sum(w * d for w, d in known) + 0.05) / (sum(w for w, _ in known) + 0.1))

    @cached_property
    def _dense(self) -> list[float | None]:
        found: list[float | None] = []
        for example in self.examples:
            k = len(example.plan.subtasks)
            found.append(2 * float(ancestors(example.plan).sum()) / (k * (k - 1)) if k > 1 else None)
        return found

    @cached_property
    def hires(self) -> bool:
        """Whether there was anything to learn about who does what."""
        return any(subtask.worker for example in self.examples for subtask in example.plan.subtasks)

    @cached_property
    def stands(self) -> tuple[Floats, Floats]:
        """(len(steps),) each: in how many plans of several steps each card is, and the sum of where it stands, 0 to 1."""
        counts, sums = np.zeros((2, len(self.steps)), np.float32)
        for plan in self._places:
            if len(plan) > 1:
                np.add.at(counts, plan, 1)
                np.add.at(sums, plan, np.arange(len(plan)) / (len(plan) - 1))
        return counts, sums

    @cached_property
    def handed(self) -> dict[Step, dict[str, tuple[int, int]]]:
        """Of each card, by the type of what it may be handed: the fewest and the most steps of a past plan that handed it some,
        where at least one step before it gave it. Only what many plans agree on; the most is open where it was several."""
        seen: dict[Step, dict[str, list[int]]] = {}
        for example in self.examples:
            before: list[Subtask] = []
            for subtask in example.plan.subtasks:
                for kind in {kind for each in before for kind in self._gives(each)}:
                    givers = sum(kind in self._gives(each) for each in before if each.id in subtask.after)
                    seen.setdefault(step_of(subtask), {}).setdefault(kind, []).append(givers)
                before.append(subtask)
        return {
            step: {
                kind: (min(counts), max(counts) if max(counts) <= 1 else LONGEST_PLAN)
                for kind, counts in kinds.items()
                if len(counts) >= AGREEING
            }
            for step, kinds in seen.items()
        }

    def _gives(self, subtask: Subtask) -> tuple[str, ...]:
        at = self.steps.place(*step_of(subtask))
        return () if at is None else self.steps.cards[at].gives

    def followed(self, near: PlanNeighbours, steps: Sequence[Step]) -> Floats:
        """(k, k, 4) of a plan's steps: how often the row came before the column (as its ancestor; as listed) among the
        neighbours that have both, and among all plans. 0.5 and 0.5 where no plan has both, which is shown by the fifth of all.

        Smoothed with one plan that says half.
        """
        k = len(steps)
        local, overall = np.full((2, k, k), 0.5, np.float32), np.full((2, k, k), 0.5, np.float32)
        weights = dict(zip(near.rows.tolist(), near.weights.tolist(), strict=True))
        for i in range(k):
            for j in range(k):
                if i != j:
                    local[:, i, j], overall[:, i, j] = self._pair((steps[i], steps[j]), weights, near.group)
        return np.concatenate([local, overall]).transpose(1, 2, 0)

    def _pair(self, pair: tuple[Step, Step], weights: dict[int, float], group: str) -> tuple[Floats, Floats]:
        local, overall = np.array([0.05, 0.05, 0.1], np.float32), np.array([0.5, 0.5, 1.0], np.float32)
        for row, needs, before in self._pairs.get(pair, ()):
            if group and self._groups[row] == group:
                continue
            seen = np.array([needs, before, 1.0], np.float32)
            overall += seen
            local += weights.get(row, 0.0) * seen
        return local[:2] / local[2], overall[:2] / overall[2]

    @cached_property
    def _pairs(self) -> dict[tuple[Step, Step], list[tuple[int, float, float]]]:
        """Of each pair of steps the plans that have both, and whether the first is an ancestor, and stands before."""
        found: dict[tuple[Step, Step], list[tuple[int, float, float]]] = {}
        for row, plan in enumerate(self._plans):
            above = ancestors(self.examples[row].plan)
            for i, first in enumerate(plan):
                for j, second in enumerate(plan):
                    if i != j:
                        found.setdefault((first, second), []).append((row, float(above[i, j]), float(i < j)))
        return found
