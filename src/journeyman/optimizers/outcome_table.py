"""Requests, workers, and what became of asking each: the rows as arrays."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from journeyman.core.policy import Card, Outcome
from journeyman.stats import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRow:
    """One request, and what became of it with those workers that were asked."""

    id: str
    request: str
    type: str = "general"
    """What kind of request it is, where that is known: a subject, a data set, a task type."""
    outcomes: Mapping[str, Outcome]
    """By worker."""
    split: str = ""
    """"train", "validation" or "held_out", where the file says it."""
    propensity: float | None = None
    """Of a row that logs one decision: the probability with which its worker was chosen."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """n requests, m workers; what is unknown is NaN."""

    ids: tuple[str, ...]
    requests: tuple[str, ...]
    types: tuple[str, ...]
    cards: tuple[Card, ...]
    """m, in the order of the columns."""
    success: Floats
    """(n, m), 0 to 1."""
    cost: Floats
    """(n, m), US dollars."""
    seconds: Floats
    """(n, m)."""
    errors: NDArray[np.bool_]
    """(n, m): asked, and the provider gave no answer."""
    malformed: NDArray[np.bool_]
    """(n, m): an answer that could not be read. Counts as a wrong one in `success`, and is told apart here."""
    splits: tuple[str, ...] = ()

    @classmethod
    def judged(cls, requests: Sequence[str], success: Floats, workers: Sequence[str], **known: Any) -> "Table":
        """Answers that all came and could be read.

        Args:
            success: (n, m); NaN where a worker was not asked.
            known: Other fields. Without them rows are numbered, their type is general, and costs and seconds are unknown.
        """
        unknown, none = np.full(success.shape, np.nan), np.zeros(success.shape, np.bool_)
        fields = {
            "ids": tuple(str(at) for at in range(len(requests))),
            "types": ("general",) * len(requests),
            "cards": tuple(Card(name=worker) for worker in workers),
            "cost": unknown,
            "seconds": unknown,
        }
        return cls(requests=tuple(requests), success=success, errors=none, malformed=none, **{**fields, **known})

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple(card.name for card in self.cards)

    @property
    def answered(self) -> "Table":
        """The table with a success of 0 where the provider failed: who asked was not helped."""
        return replace(self, success=np.where(self.errors, 0.0, self.success))

    @property
    def digest(self) -> str:
        """Of everything that is on record."""
        arrays = [each.tolist() for each in (self.success, self.cost, self.seconds, self.errors)]
        content = json.dumps([self.ids, self.requests, self.types, self.workers, *arrays])
        return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()[:32]

    def take(self, rows: Sequence[int] | NDArray[Any]) -> "Table":
        """Some of the rows, in that order."""
        at = np.asarray(rows, np.int64)
        pick = at.tolist()
        return replace(
            self,
            ids=tuple(self.ids[i] for i in pick),
            requests=tuple(self.requests[i] for i in pick),
            types=tuple(self.types[i] for i in pick),
            success=self.success[at],
            cost=self.cost[at],
            seconds=self.seconds[at],
            errors=self.errors[at],
            malformed=self.malformed[at],
            splits=tuple(self.splits[i] for i in pick) if self.splits else (),
        )

    def among(self, workers: Collection[str]) -> "Table":
        """Some of the columns, in the order in which they are."""
        at = [column for column, name in enumerate(self.workers) if name in workers]
        return replace(
            self,
            cards=tuple(self.cards[column] for column in at),
            success=self.success[:, at],
            cost=self.cost[:, at],
            seconds=self.seconds[:, at],
            errors=self.errors[:, at],
            malformed=self.malformed[:, at],
        )
