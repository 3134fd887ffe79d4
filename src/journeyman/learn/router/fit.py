"""From outcomes to predictors. The only place of the router that needs scikit-learn, which is imported when `fit` is called."""

from dataclasses import dataclass

from journeyman.embed.base import Vectors
from journeyman.learn.router.predict import Fitted
from journeyman.learn.router.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class FitConfig:
    """How the predictors are fitted."""

    folds: int = 5
    """Parts of the rows by which weights and calibration are chosen, each predicted by what the others taught."""


def fit(table: Table, vectors: Vectors, config: FitConfig | None = None, seed: int = 0, *, embedder: str = "") -> Fitted:
    """Learn success, cost and latency of each worker from the rows of a table; `vectors` are their embeddings, shape (n, d).

    Raises:
        InputError: The table has no row, or no worker with a judged outcome, or the vectors do not fit its rows.
    """
    raise NotImplementedError
