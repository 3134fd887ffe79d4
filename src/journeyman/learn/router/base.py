"""What predicts, and what is predicted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from journeyman.embed.base import Vectors
from journeyman.stats import Floats


@dataclass(frozen=True, kw_only=True)
class Forecasts:
    """Of n requests and m workers."""

    workers: tuple[str, ...]
    success: Floats
    """(n, m), calibrated probabilities."""
    cost: Floats
    """(n, m), US dollars expected; NaN where the price is not known."""
    p50: Floats
    """(n, m), seconds; NaN where none were ever measured."""
    p95: Floats
    familiar: NDArray[np.float64]
    """(n,), 0 to 1: how near what was learned from is. Below the predictor's own threshold a request is of another kind."""


class Predictor(Protocol):
    """Trained on outcomes; needs numpy alone to predict."""

    @property
    def workers(self) -> tuple[str, ...]: ...

    def forecast(self, vectors: Vectors, requests: Sequence[str], types: Sequence[str]) -> Forecasts:
        """Of requests whose embeddings are given, shape (n, d). A type that was never seen is no type."""
