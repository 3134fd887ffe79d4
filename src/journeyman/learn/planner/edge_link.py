"""From probabilities to edges: the set of edges with the largest expected F1.

The usual threshold of 1/2 is best for counting wrong edges, not for F1, and looks at each pair alone: where a plan is either
one chain or no edges at all, it answers with half a chain. So plans are weighed whole, and the answer is the candidate that
agrees best with all of them on average (minimum Bayes risk: Goel and Byrne, 2000; for F1: Dembczynski et al., 2011).
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
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
