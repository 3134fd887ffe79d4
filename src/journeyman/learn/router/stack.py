"""How much each member is believed, learned from predictions of rows that it was not fitted to."""

import numpy as np

from journeyman.stats import Floats


def weights(said: Floats, targets: Floats, *, alike: bool = True) -> Floats:
    """Weights (k,) of k members, none negative: least squares (Breiman, Stacked Regressions, 1996) shrunk by what is left of
    chance.

    Args:
        said: (n, k, c), what each member predicts of rows that it did not see.
        targets: (n, c), NaN where unknown.
        alike: The members read the same thing, so that they are worth the same until many rows say otherwise.
    """
    from scipy.optimize import nnls  # Heavy, and needed to fit only.

    known = ~np.isnan(targets)
    if not known.any():
        return np.zeros(said.shape[1])
    a, b = np.moveaxis(said, 1, 2)[known], targets[known]
    square, product = a.T @ a, a.T @ b
    total = float(square.sum())
    common = max(0.0, float(product.sum()) / total) if alike and total > 0 else 0.0
    pull = (_PRIOR / known.any(1).sum() if alike else _RIDGE) * np.trace(square) / len(square) + 1e-12
    square += pull * np.eye(len(square))
    # The same least squares on k rows instead of all of them.
    root = np.linalg.cholesky(square)
    found, _ = nnls(root.T, np.linalg.solve(root, product + pull * common))
    return np.asarray(found * _beyond_chance(said, targets, found))


_RIDGE = 0.02
"""Members that say nearly the same share the weight."""
_PRIOR = 1_000
"""As many rows would weigh as much as the prior: from fewer, who of them is better is mostly chance. See LOG.md."""


def _beyond_chance(said: Floats, targets: Floats, found: Floats) -> float:
    """1 - 1/t^2, at least 0: t is how many standard errors the mixture is better than saying nothing (positive part of James
    and Stein's factor). A gain that chance alone could bring counts for nothing."""
    left = targets - np.einsum("nkc,k->nc", said, found)
    gains = np.nansum(targets**2 - left**2, axis=1)
    gains = gains[(~np.isnan(targets)).any(1)]
    error = float(np.std(gains)) / np.sqrt(len(gains)) if len(gains) > 1 else 0.0
    mean = float(np.mean(gains))
    return max(0.0, 1 - (error / mean) ** 2) if mean > 0 else 0.0
