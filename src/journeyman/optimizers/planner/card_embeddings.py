"""Tools, models and kinds of work as vectors of what is said about them: a new one is used by its card, without retraining."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from journeyman.core.policy import Card
from journeyman.models.embedders import Embedder, Vectors

TYPE = "type"
"""The `kind` of a card that stands for a kind of work which a model does, no tool."""

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_\-./:]+")


def words(name: str) -> str:
    """A name as words: `getHealthWorkforce` and `get_health_workforce` are `get health workforce`."""
    return " ".join(_HUMP.sub(" ", name).lower().split())


def text_of(card: Card) -> str:
    """What is embedded of a card."""
    said = f"{words(card.name)}: {card.description}" if card.description else words(card.name)
    types = [f"{label} {', '.join(of)}" for label, of in (("takes", card.takes), ("gives", card.gives)) if of]
    return ". ".join((said.rstrip("."), *types))


def type_card(name: str, description: str = "") -> Card:
    """The card of a kind of work."""
    return Card(name=name, description=description, kind=TYPE)


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
