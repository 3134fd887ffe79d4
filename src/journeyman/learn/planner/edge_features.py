"""What is known about two subtasks of a plan, and about the plan, before anybody says which needs which.

All of it is read from the texts and their vectors: where the two stand, how alike they are next to their rivals, which words
one takes up that the other brought in, and the turns of phrase by which a text says that it builds on another.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from journeyman.embed.base import Embedder, Vectors
from journeyman.errors import InputError

Numbers = NDArray[np.float64]

_WORD = re.compile(r"[a-z0-9]+(?:['.][a-z0-9]+)*")
_NAME = re.compile(r"[A-Z][a-z]\w+|\d[\w.,:-]*|\b[A-Z]{2,}\b|'[^']+'|\"[^\"]+\"")
_DULL = frozenset(
    (
        "a",
        "an",
        "the",
        "of",
        "to",
        "in",
        "on",
        "for",
        "and",
        "or",
        "with",
        "by",
        "from",
        "that",
        "this",
        "is",
        "are",
        "be",
        "as",
        "at",
        "it",
        "its",
        "their",
        "your",
        "you",
        "any",
        "all",
        "into",
        "which",
        "who",
        "whose",
        "what",
        "using",
        "use",
    )
)
_CUES = tuple(
    re.compile(pattern)
    for pattern in (
        r"\b(based on|results?|obtained|found|identified|retrieved|above|previous(ly)?|selected|filtered"
        r"|resulting|output|step)\b",
        r"\b(both|intersect\w*|common|union|combine\w*|compare|difference|sum|total|subtract|add|exclude|except|remove|merge|join"
        r"|overlap|between|each|all)\b",
        r"\b(these|those|this|that|the same|it|them|its|such)\b",
        r"\b(then|next|after|once|finally|now|repeat|continue|before)\b",
        r"\b(answer|select|choose|determine|final|conclude|decide|choice)\b",
        r"\b(retrieve|get|find|identify|search|fetch|obtain|check|list|query)\b",
        r"\b(calculate|count|compute|average|divide|multiply|number|maximum|minimum|order|sort|limit|group)\b",
        r"\busing (the|its|their|his|her)\b",
        r"\b(or|alternatively|also|additionally|optional\w*|if)\b",
        r"\b(you|your|don't|do not|be|make|keep)\b",
        r"\b(table|filter|column|record\w*)\b",
        r"[\"']",
    )
)
_READ = 1500
"""Letters of an instruction whose words are looked at. Behind the request often stands a list of tools, as long as a book."""
_IN_TURN = re.compile(r"\b(then|after|finally|next|first)\b")
_BESIDES = re.compile(r"\b(also|additionally|as well)\b")


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The subtasks of a plan in an order in which they can be done, but not yet who needs whom.

    Raises:
        InputError: There is not one vector for each text, or they are not as long as the instruction's.
    """

    instruction: str
    texts: tuple[str, ...]
    """What each subtask says."""
    vector: Vectors
    """Of the instruction; shape (d,)."""
    vectors: Vectors
    """Of the texts, by the same embedder; shape (n, d)."""

    def __post_init__(self) -> None:
        if self.vectors.shape != (len(self.texts), *self.vector.shape):
            raise InputError(
                f"{len(self.texts)} subtasks and an instruction of {self.vector.shape} numbers need vectors of the shape"
                f" {(len(self.texts), *self.vector.shape)}, not {self.vectors.shape}"
            )

    @classmethod
    def of(cls, instruction: str, texts: Sequence[str], embedder: Embedder) -> "Draft":
        vectors = embedder.embed([instruction, *texts])
        return cls(instruction=instruction, texts=tuple(texts), vector=vectors[0], vectors=vectors[1:])

    @property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Who could be needed, and by whom: all (i, j) with i < j, row by row. No others exist, so there can be no cycle."""
        return np.triu_indices(len(self.texts), 1)

    @cached_property
    def _seen(self) -> "_Seen":
        return _Seen(self)

    @cached_property
    def of_pairs(self) -> Numbers:
        """One row for each of `pairs`, without what depends on the embedder's single coordinates."""
        seen, pairs = self._seen, self.pairs
        features = (*_places(len(self.texts)), *_likeness(seen), *_words(seen), *_kinds(seen))
        return np.stack([feature[pairs] for feature in features], axis=1)

    @cached_property
    def of_plan(self) -> Numbers:
        """What is known about the plan as a whole."""
        seen, pairs = self._seen, self.pairs
        steps = (np.arange(len(self.texts) - 1), np.arange(1, len(self.texts)))
        asked = self.instruction[:_READ].casefold()
        numbers = [
            *_spread(seen.cosine[pairs]),
            *_spread(seen.cosine[steps]),
            *_spread(seen.jaccard[pairs]),
            *_spread(seen.jaccard[steps]),
            *_spread(seen.asked),
            seen.asked[-1],
            seen.same_opening[pairs].mean() if len(pairs[0]) else 0.0,
            seen.cosine[-1, :-1].mean() if len(pairs[0]) else 0.0,
            np.mean([len(text) for text in self.texts]),
            np.log1p(len(self.instruction)),
            np.mean([len(words - seen.request) / max(1, len(words)) for words in seen.words]),
            np.mean(1 - seen.fresh),
            float(len(self.texts)),
            float(bool(_IN_TURN.search(asked))),
            float(bool(_BESIDES.search(asked))),
        ]
        return np.concatenate([numbers, seen.cues.mean(0), seen.cues[-1], seen.cues[0]])


class _Seen:
    """What several features are made of."""

    def __init__(self, draft: Draft) -> None:
        tokens = [_tokens(text) for text in draft.texts]
        self.words = [set(words) - _DULL for words in tokens]
        self.request = set(_tokens(draft.instruction[:_READ]))
        self.names = [set(_NAME.findall(text[1:])) for text in draft.texts]
        self.lengths = np.array([len(words) for words in tokens], float)
        self.cues = np.array([[bool(cue.search(text.casefold())) for cue in _CUES] for text in draft.texts], float)
        vectors = draft.vectors.astype(float)
        self.cosine = vectors @ vectors.T
        self.asked = vectors @ draft.vector.astype(float)
        self.new = [words.difference(*self.words[:at]) for at, words in enumerate(self.words)]
        """The words that each is the first to use."""
        self.sizes = np.maximum([len(words) for words in self.words], 1)
        self.fresh = np.array([len(new) for new in self.new]) / self.sizes
        self.shared = _table(self.words, self.words, lambda one, other: len(one & other))
        self.jaccard = self.shared / np.maximum(self.sizes[:, None] + self.sizes - self.shared, 1)
        openings = [words[0] if words else "" for words in tokens]
        self.same_opening = np.array([[one == other for other in openings] for one in openings], float)


def _places(n: int) -> list[Numbers]:
    before, after = np.indices((n, n)).astype(float)
    gap = after - before
    return [before, after, gap, np.full((n, n), float(n)), before / n, after / n, before == 0, after == n - 1, gap == 1]


def _likeness(seen: _Seen) -> list[Numbers]:
    cosine = seen.cosine
    last, first = _of_after(np.append(0.0, np.diag(cosine, 1))), _of_before(np.append(np.diag(cosine, 1), 0.0))
    return [
        cosine,
        _of_before(seen.asked),
        _of_after(seen.asked),
        *_beyond_rivals(cosine),
        last - cosine,
        first,
    ]


def _words(seen: _Seen) -> list[Numbers]:
    taken_up = _table(seen.new, seen.words, lambda new, words: len(new & words))
    beyond_request = _table(seen.new, seen.words, lambda new, words: len((new & words) - seen.request))
    stems = [{word[:5] for word in words if len(word) > 4} for words in seen.words]
    return [
        seen.jaccard,
        seen.shared / seen.sizes,
        seen.shared / seen.sizes[:, None],
        taken_up,
        taken_up / seen.sizes,
        beyond_request,
        _of_after(seen.fresh),
        _table(stems, stems, lambda one, other: len(one & other)) / seen.sizes,
        *_beyond_rivals(seen.jaccard),
        *_beyond_rivals(taken_up),
    ]


def _kinds(seen: _Seen) -> list[Numbers]:
    earlier_alike = np.triu(seen.same_opening, 1).sum(0)
    names = np.array([len(names) for names in seen.names], float)
    return [
        seen.same_opening,
        _of_after(earlier_alike),
        _table(seen.names, seen.names, lambda one, other: len(one & other)),
        _table(seen.names, seen.names, lambda one, other: len(other - one)),
        _of_before(names),
        _of_after(names),
        _of_before(seen.lengths),
        _of_after(seen.lengths),
        *(_of_before(cue) for cue in seen.cues.T),
        *(_of_after(cue) for cue in seen.cues.T),
    ]


def _of_before(values: Numbers) -> Numbers:
    return np.repeat(values[:, None], len(values), axis=1)


def _of_after(values: Numbers) -> Numbers:
    return np.repeat(values[None], len(values), axis=0)


def _beyond_rivals(scores: Numbers) -> list[Numbers]:
    """By how much a pair's score exceeds that of the best other parent of j, and of the best other child of i."""
    upper = np.where(np.triu(np.ones_like(scores), 1) > 0, scores, 0.0)
    return [upper - _best_other(upper), upper - _best_other(upper.T).T]


def _best_other(scores: Numbers) -> Numbers:
    """For each entry the largest of the other entries of its column, at least 0."""
    if len(scores) < 2:
        return np.zeros_like(scores)
    second, first = np.maximum(np.sort(scores, axis=0)[-2:], 0.0)
    others: Numbers = np.where(np.arange(len(scores))[:, None] == scores.argmax(0), second, first)
    return others


def _spread(values: Numbers) -> tuple[float, float, float]:
    return (float(values.mean()), float(values.min()), float(values.max())) if len(values) else (0.0, 0.0, 0.0)


def _table(rows: Sequence[set[str]], columns: Sequence[set[str]], count: Callable[[set[str], set[str]], int]) -> Numbers:
    table: Numbers = np.array([[count(row, column) for column in columns] for row in rows], float)
    return table


def _tokens(text: str) -> list[str]:
    words = _WORD.findall(text.casefold())
    return [word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word for word in words]
