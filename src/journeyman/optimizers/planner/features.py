"""What the network is shown of an instruction: frozen embeddings, likenesses to the cards, votes of past plans. Nothing here is
trained, so a tool or model that came yesterday is seen as well as one that was learned from."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from journeyman.core.errors import InputError
from journeyman.models.embedders import Embedder, Vectors
from journeyman.optimizers.planner.memory import CardEmbeddings, Floats, Memory, PlanNeighbours, Step, words

if TYPE_CHECKING:
    from torch import Tensor

# Which clause of an instruction asks for which card: what the network is shown of each pair, how often a card is asked for in
# all, and which clause each step of a plan comes from.

CLAUSE_FEATURES = 10
"""Of a clause and a card."""
NAMED = 3
"""Which of them is the share of the card's name that the clause has."""
TIMES = 4
"""Steps of one card in a plan that are told apart, at most; more count as so many."""
_WORD = re.compile(r"[a-z0-9]+")


def clause_features(clauses: Sequence[str], names: Sequence[frozenset[str]], cosines: Floats) -> Floats:
    """(q, c, CLAUSE_FEATURES).

    Args:
        names: The words of the names of the c cards.
        cosines: (q, c), of clauses and cards.
    """
    q, c = cosines.shape
    named, early, late, first = np.zeros((4, q, c), np.float32)
    for row, clause in enumerate(clauses):
        said = _WORD.findall(clause.lower())
        place = {word: at for at, word in reversed(list(enumerate(said)))}
        starts = np.full(c, len(said), np.int64)
        for column, name in enumerate(names):
            found = [place[word] for word in name if word in place]
            named[row, column] = len(found) / max(len(name), 1)
            if found and len(found) == len(name):
                starts[column] = min(found)
                early[row, column], late[row, column] = 1 / (1 + min(found)), 1 / (len(said) - max(found))
        first[row] = (starts == starts.min(initial=len(said))) & (starts < len(said))
    stands = np.arange(q, dtype=np.float32)[:, None] / max(q - 1, 1)
    whole = np.ones((q, c), np.float32)
    columns = [
        cosines,
        cosines - cosines.max(1, keepdims=True),
        cosines - cosines.max(0, keepdims=True),
        named,
        early,
        late,
        first,
        stands * whole,
        (stands == 1) * whole,
        whole * q / 8,
    ]
    return np.stack(columns, -1).astype(np.float32)


def times(chances: "Tensor") -> "Tensor":
    """(b, c, TIMES + 1): how likely a card is asked for never, once, …, so often or more, when each clause asks on its own.

    Args:
        chances: (b, q, c), that a clause asks for a card; 0 for padding.
    """
    import torch

    likely = torch.zeros(*chances.shape[::2], TIMES + 1)
    likely[..., 0] = 1
    for chance in chances.unbind(1):
        more = chance[..., None]
        asked = likely * more
        again = torch.cat([torch.zeros_like(more), asked[..., :-1]], -1)
        most = torch.cat([torch.zeros_like(asked[..., :-1]), asked[..., -1:]], -1)
        likely = likely * (1 - more) + again + most
    return likely


def totals(chances: Floats, most: int) -> Floats:
    """(most + 1,): how likely there are so many steps in all, or at least the last number of them; `chances` of any shape."""
    likely = np.zeros(most + 1)
    likely[0] = 1
    for chance in chances[chances > 0.001].tolist():
        asked = likely * chance
        likely -= asked
        likely[1:] += asked[:-1]
        likely[-1] += asked[-1]
    return np.asarray(likely, np.float32)


def anchors(chances: Floats, columns: Sequence[int]) -> list[int]:
    """Which clause each step comes from: of a card that comes n times the n clauses that likeliest ask for it, in their order.

    Args:
        chances: (q, c)
        columns: Of each step, its card among the c; below 0 where nothing is known of it, which comes from the last clause.
    """
    q = len(chances)
    left: dict[int, list[int]] = {}
    for column in set(columns):
        n = min(columns.count(column), q)
        best = np.argsort(-chances[:, column], kind="stable")[:n] if column >= 0 else [q - 1]
        left[column] = sorted(int(at) for at in best)
    found = []
    for column in columns:
        found.append(left[column][0])
        if len(left[column]) > 1:
            left[column].pop(0)
    return found


ANCHOR_FEATURES = 8
"""Of an ordered pair of steps, of the clauses that they come from."""


def anchor_features(where: Sequence[int], named: Floats, same: NDArray[np.bool_], clauses: int) -> Floats:
    """(k, k, ANCHOR_FEATURES).

    Args:
        where: (k,), the clauses that the steps come from.
        named: (k, k), the share of the row's name that the column's clause has.
        same: (k, k), whether both are the same card.
    """
    k = len(where)
    at = np.asarray(where, np.int64)
    apart = at[:, None] != at[None]
    other = named * apart * ~same
    before = np.array([max((w for w in where if w < here), default=-1) for here in where])
    last = np.full((k, k), float(clauses - 1), np.float32)
    columns = [
        np.sign(at[None] - at[:, None]),
        ~apart,
        at[:, None] == before[None],
        other,
        np.broadcast_to(other.max(0, initial=0.0), (k, k)),
        same,
        at[None] == last,
        np.broadcast_to(at[None] / max(clauses - 1, 1), (k, k)),
    ]
    return np.stack([np.asarray(column, np.float32) for column in columns], -1)


FEATURES = 12
"""Of one candidate step."""
VOTE, LIKE_VOTE = 5, 6
"""Which of them are the votes for the card itself, and for cards like it."""
PAIR_FEATURES = 12
"""Of an ordered pair of steps."""
LONGEST = 12
"""Steps of a plan, at most."""
SHORTLIST = 128
"""Cards that are looked at closely."""

_CUT = re.compile(
    r"(?<=[.!?;])\s+|\n+"
    r"|,?\s+(?:and then|then|and also|and finally|after that|afterwards|additionally|finally|also|moreover|furthermore|next)"
    r"\b,?\s+"
    r"|,\s+and\s+"
    r"|\s+and\s+(?=[a-z]+\s+(?:the|a|an|it|them|its|their|my|me|this|that|some|all|if|for|how|what|which|who)\b)",
    re.IGNORECASE,
)


def clauses(instruction: str, most: int = 16) -> list[str]:
    """What seem to be the wishes in an instruction; none when it is one."""
    found = [part.strip(" ,.;") for part in _CUT.split(instruction)]
    found = [part for part in found if len(part.split()) >= 2]
    return found[:most] if len(found) > 1 else []


@dataclass(frozen=True, kw_only=True)
class EncodedInstruction:
    """One instruction, encoded."""

    instruction: str
    query: Floats
    """(d,)"""
    clauses: tuple[str, ...]
    """At least one: the instruction itself where it is one wish."""
    clause_vectors: Vectors
    """(number of clauses, d)"""
    candidates: NDArray[np.int64]
    """(c,): places in the deck of steps, the most promising cards."""
    features: Floats
    """(c, FEATURES)"""
    clause_features: Floats
    """(number of clauses, c, CLAUSE_FEATURES)"""
    lengths: Floats
    """(LONGEST + 1,): the neighbours' votes on the number of steps."""
    near: PlanNeighbours
    pairs: dict[tuple[int, ...], Floats] = field(default_factory=dict, repr=False)
    """Of plans that were looked at: training does so in each epoch."""


class InstructionEncoder:
    """Instructions as the network sees them, for one deck of steps."""

    def __init__(self, embedder: Embedder, steps: CardEmbeddings, memory: Memory) -> None:
        if not len(steps):
            raise InputError("a planner needs at least one tool or kind of work to plan with; there is none")
        self.embedder = embedder
        self.steps = steps
        self.memory = memory
        self._own = [memory.steps.place(card.kind, card.name) for card in steps.cards]

    @cached_property
    def _likeness(self) -> Floats:
        """(steps, steps of the memory): cosines above 0, so that a new tool inherits the votes of one like it."""
        return np.asarray(np.maximum(self.steps.vectors @ self.memory.steps.vectors.T, 0.0), np.float32)

    @cached_property
    def _stands(self) -> Floats:
        """(steps,): whether a card, and those like it, came early (0) or late (1) in past plans; 0.5 where nobody knows."""
        counts, sums = self.memory.stands
        weights = self._likeness**8
        return np.asarray((weights @ sums + 0.05) / (weights @ counts + 0.1), np.float32)

    @cached_property
    def _popular(self) -> Floats:
        counts = np.zeros(len(self.memory.steps) + 1, np.float32)
        for plan in self.memory._places:
            counts[plan] += 1
        known = counts[[-1 if at is None else at for at in self._own]]
        return np.asarray(np.log1p(known) / max(np.log1p(len(self.memory)), 1.0), np.float32)

    @cached_property
    def _name_words(self) -> list[frozenset[str]]:
        return [frozenset(_WORD.findall(words(name))) for name in self.steps.names]

    def encode(
        self, instructions: Sequence[str], *, groups: Sequence[str] = (), among: Sequence[Sequence[int]] = ()
    ) -> list[EncodedInstruction]:
        """The instructions as requests.

        Args:
            groups: Of each, whose votes are left out: its own, in training.
            among: Of each, cards that are among the candidates whatever they promise: the right ones, in training.
        """
        parts = [clauses(text) or [text] for text in instructions]
        flat = [part for found in parts for part in found]
        queries = self.embedder.embed(list(instructions))
        vectors = self.embedder.embed(flat)
        ends = np.cumsum([len(found) for found in parts])
        made = []
        for at, text in enumerate(instructions):
            cut = vectors[ends[at] - len(parts[at]) : ends[at]]
            near = self.memory.nearest(queries[at], group=groups[at] if groups else "")
            candidates, features, heard = self._look((text, queries[at], cut, parts[at]), near, among[at] if among else ())
            made.append(
                EncodedInstruction(
                    instruction=text,
                    query=queries[at],
                    clauses=tuple(parts[at]),
                    clause_vectors=cut,
                    candidates=candidates,
                    features=features,
                    clause_features=heard,
                    lengths=self.memory.lengths(near, LONGEST),
                    near=near,
                )
            )
        return made

    def _look(
        self, said: tuple[str, Floats, Vectors, Sequence[str]], near: PlanNeighbours, among: Sequence[int]
    ) -> tuple[NDArray[np.int64], Floats, Floats]:
        text, query, cut, parted = said
        whole = self.steps.vectors @ query
        parts = self.steps.vectors @ cut.T
        best = parts.max(1)
        behind = parts - parts.max(0, keepdims=True)
        votes = self.memory.votes(near)
        hard = np.append(votes, 0.0)[[-1 if at is None else at for at in self._own]].astype(np.float32)
        voted = np.flatnonzero(votes)
        soft = (self._likeness[:, voted] ** 4 * votes[voted]).max(1, initial=0.0) if len(voted) else np.zeros_like(whole)
        promise = np.maximum(whole, best) + 0.3 * np.maximum(hard, soft) + 0.1 * self._popular + 0.2 * (behind.max(1) > -1e-6)
        found = np.union1d(np.argsort(-promise, kind="stable")[:SHORTLIST], np.array(among, np.int64))
        mentioned = frozenset(_WORD.findall(text.lower()))
        names = [self._name_words[at] for at in found]
        named = np.array([len(name & mentioned) / max(len(name), 1) for name in names], np.float32)
        known = float(near.cosines[0]) if len(near.cosines) else 0.0
        columns = [
            whole[found],
            whole[found] - whole.max(),
            best[found],
            behind.max(1)[found],
            (behind[found] > -1e-6).mean(1),
            hard[found],
            soft[found],
            self._popular[found],
            named,
            np.full(len(found), known, np.float32),
            np.array([self._own[at] is not None for at in found], np.float32),
            (hard > 0)[found] * near.cosines[:1].sum(),
        ]
        heard = clause_features(parted, names, np.asarray(parts.T[:, found], np.float32))
        return found, np.stack(columns, 1).astype(np.float32), heard

    def steps_of(self, places: Sequence[int]) -> list[Step]:
        return [(self.steps.cards[at].kind, self.steps.cards[at].name) for at in places]

    def pairs(self, request: EncodedInstruction, places: Sequence[int]) -> Floats:
        """(k, k, PAIR_FEATURES) of the ordered pairs of a plan's steps, which are given by their places in the deck."""
        key = tuple(places)
        if key not in request.pairs:
            request.pairs[key] = self._pairs(request, places)
        return request.pairs[key]

    def _pairs(self, request: EncodedInstruction, places: Sequence[int]) -> Floats:
        vectors = self.steps.vectors[list(places)]
        where = np.argmax(vectors @ request.clause_vectors.T, 1).astype(np.float32)
        later = np.sign(where[None] - where[:, None])
        k = len(places)
        stands = self._stands[list(places)]
        dense = self.memory.density(request.near)
        columns = [
            self.steps.compatible.among(places),
            vectors @ vectors.T,
            later,
            np.full((k, k), len(request.clauses) / 8, np.float32),
            np.full((k, k), k / LONGEST, np.float32),
            np.full((k, k), float(len(request.near.cosines) > 0), np.float32),
            2 * (stands[None] - stands[:, None]),
            np.full((k, k), dense, np.float32),
        ]
        followed = self.memory.followed(request.near, self.steps_of(places))
        return np.concatenate([np.stack(columns, -1), followed], -1).astype(np.float32)
