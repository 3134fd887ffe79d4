"""Who follows whom: given the subtasks of a plan in order, how likely each needs the output of each earlier one.

Two small networks, each an average of several: one says whether the plan is a chain, has no edges at all, or is mixed; the
other, for each pair of a mixed plan, whether there is an edge. `link` makes edges of what they say. Only numpy is needed.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from journeyman.core.errors import InputError
from journeyman.io.atomic import atomic_write
from journeyman.models.embedders import Embedder, Vectors
from journeyman.optimizers.planner.config import EdgeFitConfig

# What is known about two subtasks of a plan, and about the plan, before anybody says which needs which.
#
# All of it is read from the texts and their vectors: where the two stand, how alike they are next to their rivals, which words
# one takes up that the other brought in, and the turns of phrase by which a text says that it builds on another.

Numbers = NDArray[np.float64]

_WORD = re.compile(r"[a-z0-9]+(?:['.][a-z0-9]+)*")
_NAME = re.compile(r"[A-Z][a-z]\w+|\d[\w.,:-]*|\b[A-Z]{2,}\b|'[^']+'|\"[^\"]+\"")
_DULL = frozenset(
    re.findall(
        r"\w+",
        "a an the of to in on for and or with by from that this is are be as at it its their your you any all into "
        "which who whose what using use",
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


# From probabilities to edges: the set of edges with the largest expected F1.
#
# The usual threshold of 1/2 is best for counting wrong edges, not for F1, and looks at each pair alone: where a plan is either
# one chain or no edges at all, it answers with half a chain. So plans are weighed whole, and the answer is the candidate that
# agrees best with all of them on average (minimum Bayes risk: Goel and Byrne, 2000; for F1: Dembczynski et al., 2011).

Parents = tuple[tuple[int, ...], ...]
"""For each subtask, whom it follows, in order. All stand before it."""

_EXACT = 10
"""Up to as many pairs (5 subtasks) every possible plan is weighed, and every one is a candidate."""
_DRAWS = 512


@dataclass(frozen=True, kw_only=True)
class Likely:
    """How likely each plan is: a chain, no edges at all, or anything, each pair for itself."""

    chain: float
    loose: float
    """That nobody follows anybody."""
    mixed: Numbers
    """If it is neither: how likely j follows i; shape (n, n), 0 but for i < j."""

    @property
    def edges(self) -> Numbers:
        """How likely j follows i, all things considered; shape (n, n), 0 but for i < j."""
        return self.chain * np.eye(len(self.mixed), k=1) + (1 - self.chain - self.loose) * self.mixed


def link(likely: Likely) -> Parents:
    """Whom each subtask follows: the plan whose expected F1 is largest. The same for the same probabilities, always."""
    n = len(likely.mixed)
    pairs = np.triu_indices(n, 1)
    if n < 2:
        return ((),) * n
    chain, mixed = np.eye(n, k=1)[pairs] > 0, likely.mixed[pairs]
    plans, weights = _all(mixed) if len(mixed) <= _EXACT else _drawn(mixed)
    candidates = plans if len(mixed) <= _EXACT else _candidates(likely.edges[pairs], mixed, n)
    weights *= 1 - likely.chain - likely.loose
    edges_only = np.stack([chain, np.zeros_like(chain)])
    plans, weights = np.vstack([plans, edges_only]), np.append(weights, [likely.chain, likely.loose])
    best = _best(np.vstack([edges_only, candidates]), plans, weights)
    chosen = [(int(i), int(j)) for i, j, is_edge in zip(*pairs, best, strict=True) if is_edge]
    return tuple(tuple(i for i, after in chosen if after == j) for j in range(n))


def _all(mixed: Numbers) -> tuple[NDArray[np.bool_], Numbers]:
    plans = np.array(list(product((False, True), repeat=len(mixed))))
    return plans, np.where(plans, mixed, 1 - mixed).prod(1)


def _drawn(mixed: Numbers) -> tuple[NDArray[np.bool_], Numbers]:
    chance = np.random.default_rng(0)
    return chance.random((_DRAWS, len(mixed))) < mixed, np.full(_DRAWS, 1 / _DRAWS)


def _candidates(edges: Numbers, mixed: Numbers, n: int) -> NDArray[np.bool_]:
    """The k likeliest edges for each k, all things considered and if the plan is mixed."""
    rows = [np.argsort(np.argsort(-scores, kind="stable")) < k for scores in (edges, mixed) for k in range(1, 2 * n + 1)]
    return np.array(rows)


def _best(candidates: NDArray[np.bool_], plans: NDArray[np.bool_], weights: Numbers) -> NDArray[np.bool_]:
    hits = candidates.astype(float) @ plans.T.astype(float)
    sizes = candidates.sum(1)[:, None] + plans.sum(1)
    # No edges where there are none is right.
    f1 = np.where(sizes > 0, 2 * hits / np.maximum(sizes, 1), 1.0)
    found: NDArray[np.bool_] = candidates[(f1 @ weights).argmax()]
    return found


@dataclass(frozen=True, kw_only=True)
class Edges:
    """What was learned about who follows whom. `edge_fit.fit` makes one."""

    embedder: str
    """The name of the embedder whose vectors it reads."""
    arrays: Mapping[str, NDArray[np.float32]] = field(repr=False)
    """The principal axes of the vectors, and the weights of the networks for pairs and for plans."""

    def predict(self, draft: Draft) -> Likely:
        """How likely each plan is. The same draft gives the same numbers, and only pairs (i, j) with i < j get any.

        Raises:
            InputError: The draft's vectors are not as long as those it learned from.
        """
        if draft.vector.shape != self.arrays["request_mean"].shape:
            learned, given = len(self.arrays["request_mean"]), draft.vector.shape[-1]
            raise InputError(
                f"who follows whom was learned from {learned} numbers a text ({self.embedder}), but these have {given}"
            )
        n = len(draft.texts)
        mixed = np.zeros((n, n))
        if n < 2:
            return Likely(chain=1.0, loose=0.0, mixed=mixed)
        pair_rows, plan_row = self.rows(draft)
        scores = self._answers("pair", pair_rows)
        mixed[draft.pairs] = ((1 + np.tanh(scores[..., 0] / 2)) / 2).mean(0)
        shape = self._answers("plan", plan_row[None])[:, 0]
        likely = np.exp(shape - shape.max(1, keepdims=True))
        chain, loose, _ = (likely / likely.sum(1, keepdims=True)).mean(0)
        return Likely(chain=float(chain), loose=float(loose), mixed=mixed)

    def rows(self, draft: Draft) -> tuple[Numbers, Numbers]:
        """What the two networks are shown: a row for each pair, and one for the plan."""
        request = (draft.vector - self.arrays["request_mean"]) @ self.arrays["request_axes"]
        texts = (draft.vectors - self.arrays["text_mean"]) @ self.arrays["text_axes"]
        before, after = draft.pairs
        shared = np.tile(np.concatenate([draft.of_plan, request]), (len(before), 1))
        pairs = np.hstack([draft.of_pairs, shared, texts[before], texts[after], texts[before] * texts[after]])
        return pairs, np.concatenate([draft.of_plan, request, texts.mean(0), texts[-1], texts.std(0)])

    def _answers(self, head: str, rows: Numbers) -> Numbers:
        """Of each network in turn; shape (bags, rows, answers)."""
        get = {name: self.arrays[f"{head}_{name}"].astype(float) for name in ("in", "in_bias", "out", "out_bias")}
        hidden = np.maximum(rows @ get["in"] + get["in_bias"][:, None], 0)
        answers: Numbers = hidden @ get["out"] + get["out_bias"][:, None]
        return answers


# What was learned about who follows whom in a file: safetensors, with the embedder's name in its header.

FORMAT = "journeyman-edges-1"
_METADATA = "journeyman"
_AXES = {
    "request_mean": ("vector",),
    "request_axes": ("vector", "request axes"),
    "text_mean": ("vector",),
    "text_axes": ("vector", "text axes"),
    "pair_in": ("pair bags", "pair features", "pair hidden"),
    "pair_in_bias": ("pair bags", "pair hidden"),
    "pair_out": ("pair bags", "pair hidden", "1"),
    "pair_out_bias": ("pair bags", "1"),
    "plan_in": ("plan bags", "plan features", "plan hidden"),
    "plan_in_bias": ("plan bags", "plan hidden"),
    "plan_out": ("plan bags", "plan hidden", "3"),
    "plan_out_bias": ("plan bags", "3"),
}
"""Axes of one name have one length, and those that are numbers have that."""


def save(edges: Edges, path: Path) -> None:
    """Write it whole or not at all. The same edges make the same bytes.

    Raises:
        InputError: It cannot be written.
    """
    metadata = json.dumps({"format": FORMAT, "embedder": edges.embedder}, sort_keys=True, ensure_ascii=False)
    with atomic_write(path) as part:
        save_file({name: np.ascontiguousarray(array) for name, array in edges.arrays.items()}, part, {_METADATA: metadata})


def load(path: Path) -> Edges:
    """What `save` wrote.

    Raises:
        InputError: It is not there, or is no such file.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = json.loads((file.metadata() or {})[_METADATA])
            arrays = {name: np.asarray(file.get_tensor(name), np.float32) for name in file.keys()}  # noqa: SIM118
        if metadata["format"] != FORMAT:
            raise ValueError(f"it is of the format {metadata['format']!r}, not {FORMAT!r}")
        edges = Edges(embedder=str(metadata["embedder"]), arrays=arrays)
        _check(edges)
        return edges
    except FileNotFoundError:
        raise InputError(f"{path} is not there; it is made by learning from plans who follows whom") from None
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} does not say who follows whom ({error}); check that it is the right file") from None


def _check(edges: Edges) -> None:
    arrays = edges.arrays
    if set(arrays) != set(_AXES):
        raise ValueError(f"it lacks, or has too many: {', '.join(sorted(set(arrays) ^ set(_AXES)))}")
    lengths: dict[str, int] = {"1": 1, "3": 3}
    for name, axes in _AXES.items():
        array, fits = arrays[name], arrays[name].ndim == len(axes)
        if not fits or any(lengths.setdefault(axis, size) != size for axis, size in zip(axes, array.shape, strict=True)):
            raise ValueError(f"{name} has the shape {array.shape}, which does not fit the others")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} holds what is no number")
    # Files of a time when other features were looked at.
    vectors = np.zeros((3, lengths["vector"]), np.float32)
    pairs, plan = edges.rows(Draft(instruction="", texts=("", ""), vector=vectors[0], vectors=vectors[1:]))
    if (pairs.shape[1], len(plan)) != (lengths["pair features"], lengths["plan features"]):
        raise ValueError("it was learned from other features than are looked at here; learn it anew")


# Learning who follows whom from plans: principal axes of the vectors, then two networks by gradient descent.

CHAIN, LOOSE, MIXED = range(3)


@dataclass(frozen=True, kw_only=True)
class Linked:
    """A plan to learn from.

    Raises:
        InputError: A subtask follows one that does not stand before it, or there is not one entry for each.
    """

    draft: Draft
    parents: Parents
    """For each subtask, whom it follows."""

    def __post_init__(self) -> None:
        if len(self.parents) != len(self.draft.texts):
            raise InputError(
                f"{len(self.draft.texts)} subtasks need as many entries of whom each follows, not {len(self.parents)}"
            )
        if any(not 0 <= parent < at for at, parents in enumerate(self.parents) for parent in parents):
            raise InputError(
                "a subtask follows one that does not stand before it; put them in an order in which they can be done"
            )

    @property
    def is_edge(self) -> NDArray[np.bool_]:
        """For each of the draft's pairs."""
        return np.array([i in self.parents[j] for i, j in zip(*self.draft.pairs, strict=True)], bool)

    @property
    def shape(self) -> int:
        """`CHAIN`, `LOOSE` (no edges at all) or `MIXED`."""
        if all(set(parents) == ({at - 1} if at else set()) for at, parents in enumerate(self.parents)):
            return CHAIN
        return MIXED if any(self.parents) else LOOSE


def fit(plans: Sequence[Linked], *, embedder: str, config: EdgeFitConfig | None = None) -> Edges:
    """What the plans say about who follows whom. The same plans and config give the same bytes on one machine and thread.

    Raises:
        InputError: No plan has two subtasks.
    """
    config = config or EdgeFitConfig()
    plans = [plan for plan in plans if len(plan.parents) > 1]
    if not plans:
        raise InputError("no plan has two subtasks; who follows whom can only be learned from plans that do")
    request = _axes(np.stack([plan.draft.vector for plan in plans]), config.axes)
    text = _axes(np.vstack([plan.draft.vectors for plan in plans]), config.axes)
    arrays = dict(zip(("request_mean", "request_axes", "text_mean", "text_axes"), (*request, *text), strict=True))
    reader = Edges(embedder=embedder, arrays=arrays)
    # Of plans that are all chains or loose, pairs are learned as if they were mixed: nothing else is known about mixed ones.
    mixed = [plan for plan in plans if plan.shape == MIXED] or plans
    pair = _trained(np.vstack([reader.rows(plan.draft)[0] for plan in mixed]), _pair_loss(mixed), config.pair_hidden, 1, config)
    whole = _trained(np.stack([reader.rows(plan.draft)[1] for plan in plans]), _plan_loss(plans), config.plan_hidden, 3, config)
    for head, trained in (("pair", pair), ("plan", whole)):
        arrays |= {f"{head}_{name}": np.ascontiguousarray(array, np.float32) for name, array in trained.items()}
    return Edges(embedder=embedder, arrays=arrays)


def _axes(vectors: Vectors, count: int) -> tuple[Vectors, Vectors]:
    mean = vectors.mean(0)
    axes = np.linalg.svd(vectors - mean, full_matrices=False)[2][:count]
    return mean, np.ascontiguousarray(axes.T)


Loss = Callable[[Tensor, Tensor], Tensor]
"""Of the networks' answers, shape (bags, rows, answers), to the rows that are named."""


def _pair_loss(plans: Sequence[Linked]) -> Loss:
    edges = torch.from_numpy(np.concatenate([plan.is_edge for plan in plans]).astype(np.float32))

    def loss(answers: Tensor, chosen: Tensor) -> Tensor:
        wanted = edges[chosen, None].expand(answers.shape)
        return binary_cross_entropy_with_logits(answers, wanted, reduction="sum") / len(chosen)

    return loss


def _plan_loss(plans: Sequence[Linked]) -> Loss:
    shapes = torch.tensor([plan.shape for plan in plans])

    def loss(answers: Tensor, chosen: Tensor) -> Tensor:
        return cross_entropy(answers.flatten(0, 1), shapes[chosen].repeat(len(answers)), reduction="sum") / len(chosen)

    return loss


def _trained(rows: Numbers, loss: Loss, hidden: int, answers: int, config: EdgeFitConfig) -> dict[str, Numbers]:
    """The weights of networks with one hidden layer, one network a bag, that take the rows as they are."""
    mean, spread = rows.mean(0), rows.std(0)
    spread[spread < 1e-6] = 1.0
    inputs = torch.from_numpy(((rows - mean) / spread).astype(np.float32))
    chance = torch.Generator().manual_seed(config.seed)
    sizes = ((rows.shape[1], hidden), (hidden, answers))
    weights = [torch.randn((config.bags, *size), generator=chance).div(size[0] ** 0.5).requires_grad_() for size in sizes]
    biases = [torch.zeros((config.bags, 1, size[1]), requires_grad=True) for size in sizes]
    groups = [{"params": weights, "weight_decay": config.decay}, {"params": biases, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=config.rate)
    batches = -(-len(rows) // config.batch)
    epochs = max(config.epochs, -(-config.least_steps // batches))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / (epochs * batches))
    for _ in range(epochs):
        for chosen in torch.randperm(len(rows), generator=chance).split(config.batch):
            inner = torch.relu(inputs[chosen] @ weights[0] + biases[0])
            kept = torch.rand(inner.shape, generator=chance) >= config.dropout
            lost = loss(inner * kept / (1 - config.dropout) @ weights[1] + biases[1], chosen)
            optimizer.zero_grad()
            lost.backward()
            optimizer.step()
            schedule.step()
    first, second = (weight.detach().numpy().astype(float) for weight in weights)
    first_bias, second_bias = (bias.detach().numpy()[:, 0].astype(float) for bias in biases)
    first /= spread[:, None]
    return {"in": first, "in_bias": first_bias - mean @ first, "out": second, "out_bias": second_bias}
