"""What the network is shown of an instruction: frozen embeddings, likenesses to the cards, votes of past plans. Nothing here is
trained, so a tool or model that came yesterday is seen as well as one that was learned from."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from journeyman.embed.base import Embedder, Vectors
from journeyman.errors import InputError
from journeyman.learn.planner.cards import CardEmbeddings, words
from journeyman.learn.planner.memory import Floats, Memory, Neighbours, Step
from journeyman.learn.planner.spoken import clause_features

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
_WORD = re.compile(r"[a-z0-9]+")


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
    spoken: Floats
    """(number of clauses, c, CLAUSE_FEATURES)"""
    lengths: Floats
    """(LONGEST + 1,): the neighbours' votes on the number of steps."""
    near: Neighbours
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
            candidates, features, spoken = self._look((text, queries[at], cut, parts[at]), near, among[at] if among else ())
            made.append(
                EncodedInstruction(
                    instruction=text,
                    query=queries[at],
                    clauses=tuple(parts[at]),
                    clause_vectors=cut,
                    candidates=candidates,
                    features=features,
                    spoken=spoken,
                    lengths=self.memory.lengths(near, LONGEST),
                    near=near,
                )
            )
        return made

    def _look(
        self, said: tuple[str, Floats, Vectors, Sequence[str]], near: Neighbours, among: Sequence[int]
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
        spoken = frozenset(_WORD.findall(text.lower()))
        named = np.array([len(self._name_words[at] & spoken) / max(len(self._name_words[at]), 1) for at in found], np.float32)
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
        heard = clause_features(parted, [self._name_words[at] for at in found], np.asarray(parts.T[:, found], np.float32))
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
