"""How much each member is believed, learned from predictions of rows that it was not fitted to."""

import numpy as np

from journeyman.learn.router.table import Floats


def weights(said: Floats, targets: Floats) -> Floats:
    """Weights (k,) of k members, none negative: least squares (Breiman, Stacked Regressions, 1996), shrunk by what is left of
    chance.

    Args:
        said: (n, k, c), what each member predicts of rows that it did not see.
        targets: (n, c), NaN where unknown.
    """
    from scipy.optimize import nnls  # Heavy, and needed to fit only.

    known = ~np.isnan(targets)
    if not known.any():
        return np.zeros(said.shape[1])
    a, b = np.moveaxis(said, 1, 2)[known], targets[known]
    square = a.T @ a
    square += (_RIDGE * np.trace(square) / len(square) + 1e-12) * np.eye(len(square))
    # The same least squares on k rows instead of all of them.
    root = np.linalg.cholesky(square)
    found, _ = nnls(root.T, np.linalg.solve(root, a.T @ b))
    return np.asarray(found * _beyond_chance(said, targets, found))


_RIDGE = 0.02
"""Members that say nearly the same share the weight."""


def _beyond_chance(said: Floats, targets: Floats, found: Floats) -> float:
    """1 - 1/t^2, at least 0: t is how many standard errors the mixture is better than saying nothing (positive part of James
    and Stein's factor). A gain that chance alone could bring counts for nothing."""
    left = targets - np.einsum("nkc,k->nc", said, found)
    gains = np.nansum(targets**2 - left**2, axis=1)
    gains = gains[(~np.isnan(targets)).any(1)]
    error = float(np.std(gains)) / np.sqrt(len(gains)) if len(gains) > 1 else 0.0
    mean = float(np.mean(gains))
    return max(0.0, 1 - (error / mean) ** 2) if mean > 0 else 0.0
