"""Requests, workers, and what became of asking each, as arrays; and which rows are learned from, chosen by, or held out."""

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from journeyman.core.errors import InputError
from journeyman.core.policy import Card, Outcome
from journeyman.core.task import Split, Task, content
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
    cluster: str = ""
    """What the request has in common with others, as a `core.task.Task`."""
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
    clusters: tuple[str, ...] = ()
    """Of each request, the one that it belongs to; empty where none is named."""

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
        # Clusters only where there are some, so that a look of before they were known is known again.
        named = [self.clusters] if self.clusters else []
        content = json.dumps([self.ids, self.requests, self.types, self.workers, *arrays, *named])
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
            clusters=tuple(self.clusters[i] for i in pick) if self.clusters else (),
        )

    @property
    def tasks(self) -> list[Task]:
        """The requests as an examination knows them: by their content."""
        rows = zip(self.ids, self.requests, self.clusters or ("",) * len(self), strict=True)
        return [Task(id=id, question=content(request), cluster=cluster) for id, request, cluster in rows]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Places of rows in a table. A request, however often it stands there, is in one part alone."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    held_out: tuple[int, ...]
    left_out: tuple[int, ...] = ()
    """Rows that a file wants learned from although their requests are held out."""


def parts(table: Table, *, held_out: float = 0.2, validation: float = 0.1, seed: int = 0, least: int = 0) -> Parts:
    """As the file says; rows of which it says nothing by a hash of the request, so that a request never changes sides.

    Args:
        held_out: The share of the requests that is set apart, where the file sets none apart itself.
        validation: The same for those to choose by.
        seed: Of routers of before, which split by one; now the request alone decides.
        least: So many requests are set apart where a share of them is fewer and there are twice as many: what a gate needs.

    Raises:
        InputError: A share is not between 0 and 1, or both together leave nothing to learn from.
    """
    if not (0 <= held_out < 1 and 0 <= validation < 1 and held_out + validation < 1):
        raise InputError(
            f"shares of {held_out:g} held out and {validation:g} for validation leave nothing to learn from; take smaller ones"
        )
    told = table.splits or ("",) * len(table)
    shares = {
        Split.HELD_OUT: 0.0 if Split.HELD_OUT in told else held_out,
        Split.VALIDATION: 0.0 if Split.VALIDATION in told else validation,
    }
    if shares[Split.HELD_OUT] > 0:
        marks = sorted(
            {_place_of(content(request), seed) for request, said in zip(table.requests, told, strict=True) if not said}
        )
        if 2 * least <= len(marks) and (wanted := marks[least - 1] if least else 0.0) >= held_out:
            # The next place after it, so that it is within; what is left is shared as before.
            shares[Split.VALIDATION] *= (1 - wanted) / (1 - held_out)
            shares[Split.HELD_OUT] = math.nextafter(wanted, 1.0)
    # What the file holds out stays held out under every name.
    said_of = list(zip((content(request) for request in table.requests), told, strict=True))
    # What the file says of a request holds for all its rows; what it holds out anywhere is held out everywhere.
    strongest = {own: said for split in ("", *Split) for own, said in said_of if said == split}
    found: dict[Split, list[int]] = {split: [] for split in Split}
    left_out = []
    for at, (own, said) in enumerate(said_of):
        if said and said != strongest[own]:
            left_out.append(at)
        else:
            found[_drawn(own, seed, shares, strongest[own])].append(at)
    return Parts(
        train=tuple(found[Split.TRAIN]),
        validation=tuple(found[Split.VALIDATION]),
        held_out=tuple(found[Split.HELD_OUT]),
        left_out=tuple(left_out),
    )


def _place_of(own: str, seed: int) -> float:
    return int.from_bytes(hashlib.sha256(f"{seed}/{own}".encode(errors="surrogatepass")).digest()[:8]) / 2**64


def _drawn(own: str, seed: int, shares: dict[Split, float], said: str) -> Split:
    if said in (Split.VALIDATION, Split.HELD_OUT):
        return Split(said)
    place = _place_of(own, seed)
    # What is said to be for learning is never held out; a part of it may be to choose by.
    held_out = 0.0 if said == Split.TRAIN else shares[Split.HELD_OUT]
    if place < held_out:
        return Split.HELD_OUT
    return Split.VALIDATION if place < held_out + shares[Split.VALIDATION] else Split.TRAIN
