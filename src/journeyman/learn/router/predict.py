"""What was learned from outcomes, at work: numpy alone, one request in a fraction of a millisecond."""

from collections.abc import Sequence
from dataclasses import dataclass

from journeyman.embed.base import Vectors
from journeyman.learn.router.base import Forecasts
from journeyman.policy import Card


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The predictors of success, cost and latency, as arrays. A `Predictor`."""

    cards: tuple[Card, ...]
    """m workers, in the order of the columns."""
    embedder: str
    """Name of the embedder whose vectors it was fitted to, as `Embedder.name`; empty where that was not said."""
    dimensions: int
    """d of the vectors it expects."""

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple(card.name for card in self.cards)

    def forecast(self, vectors: Vectors, requests: Sequence[str], types: Sequence[str]) -> Forecasts:
        """Of requests whose embeddings are given, shape (n, d). A type that was never seen is no type."""
        raise NotImplementedError
