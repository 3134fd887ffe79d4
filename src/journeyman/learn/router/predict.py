"""What was learned from outcomes, at work: numpy alone, one request in a fraction of a millisecond."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from journeyman.embed.base import Vectors
from journeyman.errors import InputError
from journeyman.learn.router.base import Forecasts
from journeyman.learn.router.calibrate import Calibration
from journeyman.learn.router.features import Singles, Space
from journeyman.learn.router.members import Clusters, Linear, NearestNeighbours, Network
from journeyman.policy import Card
from journeyman.stats import Floats

NEAR, FAR, TYPED = 0, 1, 2
"""The three cases that members are weighed for: a request like past ones, one unlike them, and one whose type is known."""


@dataclass(frozen=True, kw_only=True)
class Amount:
    """Cost or seconds, whose logarithm is linear in the request, apart from what is left over."""

    weights: Singles
    """(D, m)."""
    bias: Singles
    """(m,), NaN where none was ever measured."""
    offsets: Floats
    """(s, t + 1, m): what is added for each of s statistics and t types, the last for requests of no known type."""

    def __call__(self, full: Singles, types: NDArray[np.int64]) -> tuple[Floats, ...]:
        """The s statistics of n requests, each (n, m)."""
        level = full @ self.weights + self.bias
        return tuple(np.exp(level + self.offsets[:, types]))


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The success of n requests with m workers: ability, and what the members say of this request, each by its weight."""

    abilities: Singles
    """(m,)."""
    effects: Singles
    """(t + 1, m + 1): of each type, as a member gives it; the last is 0."""
    linear: Linear
    clusters: Clusters
    neighbours: NearestNeighbours
    network: Network
    easy: Singles
    """(3, 5): weights of the four members and of the type in how easy the request is, in each of the three cases."""
    gap: Singles
    """(3, 5): the same in how far the workers are apart."""

    def __call__(self, full: Singles, near: Singles, types: NDArray[np.int64]) -> tuple[Floats, NDArray[np.float64]]:
        """Scores (n, m), not calibrated yet, and how familiar the requests are (n,)."""
        neighbours, familiar = self.neighbours.and_familiar(full, near)
        text = (self.linear(full, near), self.clusters(full, near), neighbours, self.network(full, near))
        said = np.concatenate([*text, self.effects[types]], 1).reshape(len(full), len(text) + 1, -1)
        trust = case_weights(familiar, types < len(self.effects) - 1)
        easy = ((trust @ self.easy)[:, None] @ said[:, :, :1])[:, 0]
        gap = ((trust @ self.gap)[:, None] @ said[:, :, 1:])[:, 0]
        return (self.abilities + easy + gap).astype(np.float64), familiar


def case_weights(familiar: NDArray[np.float64], typed: NDArray[np.bool_]) -> Singles:
    """(n, 3): how much of each case a request is. With no type it is near or far, and between them a mixture."""
    near = np.minimum(familiar / FAMILIAR, 1.0)
    weights = np.empty((len(familiar), 3), np.float32)
    weights[:, NEAR] = near * ~typed
    weights[:, FAR] = (1 - near) * ~typed
    weights[:, TYPED] = typed
    return weights


FAMILIAR = 0.03
"""Only the strangest 3 of 100 past requests are in part far. Chosen on training splits: see LOG.md."""


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The predictors of success, cost and latency, as arrays. A `Predictor`."""

    cards: tuple[Card, ...]
    """m workers, in the order of the columns."""
    embedder: str
    """Name of the embedder whose vectors it was fitted to, as `Embedder.name`; empty where that was not said."""
    types: tuple[str, ...]
    """t known types of request."""
    rows: int
    """How many it was fitted to."""
    space: Space
    success: Mixture
    calibration: Calibration
    cost: Amount
    seconds: Amount
    strange: float = 0.01
    """A request less familiar than this is of another kind: so far off were 1 of 100 past ones."""

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple(card.name for card in self.cards)

    @property
    def dimensions(self) -> int:
        """d of the vectors it expects."""
        return len(self.space.mean)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {type: at for at, type in enumerate(self.types)}

    def forecast(self, vectors: Vectors, requests: Sequence[str], types: Sequence[str]) -> Forecasts:
        """Of requests whose embeddings are given, shape (n, d). A type that was never seen is no type.

        Raises:
            InputError: The vectors are not as many as the requests, or of another length than those it was fitted to.
        """
        if vectors.shape != (len(requests), self.dimensions):
            found = " x ".join(str(size) for size in vectors.shape)
            raise InputError(
                f"{len(requests)} requests and vectors of {found} were given; this router was fitted to vectors of length "
                f"{self.dimensions}{f' by {self.embedder}' if self.embedder else ''}, one for each request"
            )
        at = np.array([self._places.get(type, len(self.types)) for type in types], np.int64)
        full, near = self.space.points(vectors, requests)
        scores, familiar = self.success(full, near, at)
        (cost,) = self.cost(full, at)
        p50, p95 = self.seconds(full, at)
        return Forecasts(workers=self.workers, success=self.calibration(scores), cost=cost, p50=p50, p95=p95, familiar=familiar)
