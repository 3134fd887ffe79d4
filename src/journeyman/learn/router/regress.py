"""How the members are fitted: each to the same targets, in which NaN is what nobody measured."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from journeyman.learn.router.features import COUNTED, Singles
from journeyman.learn.router.members import Clusters, Linear, NearestNeighbours
from journeyman.learn.router.shrink import group_sums, prior_weight
from journeyman.stats import Floats

_PENALTIES = np.geomspace(0.01, 1_000, 16)
"""Of the squared length of a weight, where points have length 1."""
_STRESS = (1.0, 3.0)
"""What counts may be multiplied by: where a request's length tells more than its words, they are held back less."""


def ridge(full: Singles, targets: Floats, together: NDArray[np.int64]) -> tuple[Linear, Floats]:
    """Ridge regression of each column on the rows where it is known.

    Args:
        full: (n, D).
        targets: (n, c), NaN where unknown.
        together: (c,): columns of one number share a penalty, chosen by the error of leaving one row out.

    Returns:
        The member, and what it leaves of each target (n, c) when that row is left out.
    """
    columns = targets.shape[1]
    weights, bias, left = np.zeros((full.shape[1], columns)), np.zeros(columns), np.full(targets.shape, np.nan)
    groups = _same_rows(targets)
    ways = []
    for stress in _STRESS:
        scale = np.ones(full.shape[1])
        scale[-COUNTED:] = stress
        ways.append((scale, [_Solved.of(full * scale, targets, same) for same in groups]))
    for group in np.unique(together):
        errors = np.array([[one.errors(together[one.columns] == group) for one in solved] for _, solved in ways]).sum(1)
        way, at = np.unravel_index(int(errors.argmin()), errors.shape)
        scale, solved = ways[way]
        for one in solved:
            mine = together[one.columns] == group
            to = one.columns[mine]
            weights[:, to], bias[to] = scale[:, None] * one.weights(int(at))[:, mine], one.bias(int(at))[mine]
            left[np.ix_(one.rows, to)] = one.left[int(at)][:, mine]
    return Linear(weights=weights.astype(np.float32), bias=bias.astype(np.float32)), left


@dataclass(frozen=True, slots=True)
class _Solved:
    """All penalties for columns that are known in the same rows."""

    columns: NDArray[np.int64]
    rows: NDArray[np.int64]
    axes: Floats
    coefficients: list[Floats]
    left: list[Floats]
    """What is left of each row's target when it is left out, for each penalty."""
    point: Floats
    target: Floats
    """Means."""

    @classmethod
    def of(cls, full: Floats, targets: Floats, columns: NDArray[np.int64]) -> "_Solved":
        rows = np.flatnonzero(~np.isnan(targets[:, columns[0]]))
        if not len(rows):
            nothing = np.zeros((full.shape[1], len(columns)))
            none = [nothing for _ in _PENALTIES]
            empty = [np.zeros((0, len(columns))) for _ in _PENALTIES]
            return cls(columns, rows, np.eye(full.shape[1]), none, empty, nothing[:, 0], nothing[0])
        x, z = full[rows].astype(np.float64), targets[np.ix_(rows, columns)]
        point, target = x.mean(0), z.mean(0)
        x, z = x - point, z - target
        sizes, axes = np.linalg.eigh(x.T @ x)
        along = x @ axes
        sizes = np.maximum(sizes, 0)
        coefficients, left = [], []
        for penalty in _PENALTIES:
            found = (along.T @ z) / (sizes + penalty)[:, None]
            leverage = 1 / len(rows) + (along**2) @ (1 / (sizes + penalty))
            coefficients.append(found)
            left.append((z - along @ found) / np.maximum(1 - leverage, 1e-3)[:, None])
        return cls(columns, rows, axes, coefficients, left, point, target)

    def errors(self, mine: NDArray[np.bool_]) -> Floats:
        return np.array([np.sum(left[:, mine] ** 2) for left in self.left])

    def weights(self, at: int) -> Floats:
        return np.asarray(self.axes @ self.coefficients[at])

    def bias(self, at: int) -> Floats:
        return np.asarray(self.target - self.point @ self.weights(at))


def _same_rows(targets: Floats) -> list[NDArray[np.int64]]:
    """Columns that are known in the same rows are solved at once."""
    groups: dict[bytes, list[int]] = {}
    for column, known in enumerate((~np.isnan(targets)).T):
        groups.setdefault(known.tobytes(), []).append(column)
    return [np.array(columns, np.int64) for columns in groups.values()]


def cluster(near: Singles, sizes: tuple[int, ...], repeats: int, seed: int) -> tuple[Clusters, NDArray[np.int64]]:
    """Several clusterings of the points, without values yet, and the nearest centre of each point, (n, r)."""
    from sklearn.cluster import KMeans  # Heavy, and needed to fit only.

    distinct = len(np.unique(near, axis=0))
    counts = [max(1, min(size, len(near) // _LEAST, distinct)) for size in sizes for _ in range(repeats)]
    most = max(counts)
    centres = np.zeros((len(counts), most, near.shape[1]), np.float32)
    offsets = np.full((len(counts), most), np.inf, np.float32)
    for at, count in enumerate(counts):
        found = KMeans(count, n_init=1, random_state=seed + at).fit(near).cluster_centers_
        centres[at, :count] = found
        offsets[at, :count] = np.sum(found**2, 1) / 2
    made = Clusters(
        centres=centres.reshape(-1, near.shape[1]),
        offsets=offsets.reshape(-1),
        values=np.zeros((len(counts), most, 1), np.float32),
    )
    return made, made.assign(near)


_LEAST = 15
"""Requests that a cluster has on average, at least."""


def cluster_values(clusters: Clusters, assigned: NDArray[np.int64], targets: Floats) -> tuple[Clusters, Floats]:
    """The clusters with shrunk means of the targets, and the pseudo-observations (c,) that shrank them."""
    values, priors = [], []
    for places in assigned.T:
        sums, squares, counts = group_sums(targets, places, clusters.values.shape[1])
        priors.append(prior_weight(sums, squares, counts))
        values.append(sums / (counts + priors[-1]))
    made = Clusters(centres=clusters.centres, offsets=clusters.offsets, values=np.stack(values).astype(np.float32))
    return made, np.median(priors, axis=0)


def neighbours(full: Singles, near: Singles, targets: Floats, k: int, prior: Floats) -> NearestNeighbours:
    """The points themselves, with what is known of each."""
    known = ~np.isnan(targets)
    offsets = np.sum(near**2, 1) / 2
    return NearestNeighbours(
        points=near,
        offsets=offsets,
        values=np.where(known, targets, 0).astype(np.float32),
        known=known.astype(np.float32),
        k=k,
        prior=prior.astype(np.float32),
        distances=_distances(full, near, offsets),
    )


def _distances(full: Singles, near: Singles, offsets: Singles, ranks: int = 101, block: int = 512) -> Singles:
    """Quantiles of the squared distance to the nearest other point."""
    found = []
    for start in range(0, len(near), block):
        rows = np.arange(start, min(start + block, len(near)))
        closeness = near[rows] @ near.T - offsets
        closeness[rows - start, rows] = -np.inf
        found.append(np.sum(full[rows] ** 2, 1) - 2 * closeness.max(1))
    distances = np.maximum(np.concatenate(found), 0)
    if len(near) < 2:
        return np.zeros(ranks, np.float32)
    return np.asarray(np.quantile(distances, np.linspace(0, 1, ranks)), np.float32)
