"""Four ways to tell from a request how its outcomes will differ from the average ones, as arrays.

Each gives (n, m + 1): how much easier than the average request, then for each of m workers how much better than the others it
does here than it does on average.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from journeyman.optimizers.router.calibration import group_sums, prior_weight
from journeyman.optimizers.router.features import COUNTED, Singles
from journeyman.stats import Floats

MEMBERS = ("linear", "clusters", "neighbours", "network")
"""In the order of the weights."""
TRANSFER = ("linear", "network")
"""Those that say something of requests unlike past ones: means of what is near do not."""


class Member(Protocol):
    def __call__(self, full: Singles, near: Singles) -> Singles:
        """Of n points, (n, D) and along the axes alone (n, q): shape (n, m + 1)."""


@dataclass(frozen=True, kw_only=True)
class Linear:
    weights: Singles
    """(D, m + 1)."""
    bias: Singles

    def __call__(self, full: Singles, near: Singles) -> Singles:
        return np.asarray(full @ self.weights + self.bias)


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """Mean outcomes of clusters of requests (pseudo types), averaged over several clusterings."""

    centres: Singles
    """(r * c, q): c for each of r clusterings."""
    offsets: Singles
    """(r * c,): half of each centre's squared length; infinite where a clustering has fewer than c."""
    values: Singles
    """(r, c, m + 1)."""

    def assign(self, near: Singles) -> NDArray[np.int64]:
        """(n, r): the nearest centre of each clustering."""
        closeness = near @ self.centres.T - self.offsets
        return np.asarray(closeness.reshape(len(near), *self.values.shape[:2]).argmax(2))

    def __call__(self, full: Singles, near: Singles) -> Singles:
        found = self.values[np.arange(len(self.values)), self.assign(near)]
        return np.asarray(found.sum(1) * np.float32(1 / len(self.values)))


@dataclass(frozen=True, kw_only=True)
class NearestNeighbours:
    """Mean outcomes of the k nearest requests, shrunk towards 0."""

    points: Singles
    """(p, q)."""
    offsets: Singles
    """(p,): half of each point's squared length."""
    values: Singles
    """(p, m + 1), 0 where unknown."""
    known: Singles
    """(p, m + 1), 1 where known and 0 elsewhere."""
    k: int
    prior: Singles
    """(m + 1,): pseudo-observations at 0."""
    distances: Singles
    """Squared distances from one request of the past to the next, rising, at equally spaced ranks."""

    def __call__(self, full: Singles, near: Singles) -> Singles:
        return self.and_familiar(full, near)[0]

    def and_familiar(self, full: Singles, near: Singles) -> tuple[Singles, NDArray[np.float64]]:
        """The means, and what share of past requests were further from the next one: near 0 for what is unlike them all."""
        closeness = near @ self.points.T
        closeness -= self.offsets
        k = min(self.k, len(self.points))
        nearest = closeness.argpartition(len(self.points) - k, axis=1)[:, -k:]
        found = self.both.take(nearest, axis=0).sum(1)
        columns = self.values.shape[1]
        # Of the point itself, so that what lies off the axes counts as distance too.
        distances = (full * full).sum(1) - 2 * closeness.max(1)
        familiar = np.interp(distances, self.distances, self.ranks, right=0.0)
        return found[:, :columns] / (found[:, columns:] + self.prior), familiar

    @cached_property
    def both(self) -> Singles:
        """(p, 2 * (m + 1)): values, and beside them which are known."""
        return np.hstack([self.values, self.known])

    @cached_property
    def ranks(self) -> NDArray[np.float64]:
        """How familiar is what is as far away as `distances` say."""
        return np.linspace(1, 0, len(self.distances))


@dataclass(frozen=True, kw_only=True)
class Network:
    """One hidden layer of rectifiers; several networks of that kind side by side, averaged by the second layer."""

    first: Singles
    """(q, h)."""
    first_bias: Singles
    second: Singles
    """(h, m + 1)."""
    second_bias: Singles

    def __call__(self, full: Singles, near: Singles) -> Singles:
        hidden = near @ self.first + self.first_bias
        return np.asarray(np.maximum(hidden, 0, out=hidden) @ self.second + self.second_bias)


# How the members are fitted: each to the same targets, in which NaN is what nobody measured.

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


# The network among the members, fitted with numpy: a hidden layer, dropout, weight decay, several from resampled rows.

_BATCH = 128
_RATE = 1e-3
_DECAY = 1e-3
_DROPOUT = np.float32(0.1)
_STEPS = 150
"""At least so many updates, however few the rows are."""


def train(near: Singles, targets: Floats, *, hidden: int, nets: int, epochs: int, seed: int) -> Network:
    """Fit to the known targets (n, c) by squared error; each column counts by its own spread."""
    known = ~np.isnan(targets)
    scale = np.maximum(np.sqrt((np.where(known, targets, 0) ** 2).sum(0) / np.maximum(known.sum(0), 1)), 1e-6)
    wide = np.float32(np.sqrt(near.shape[1] / max(float(np.mean(np.sum(near**2, 1))), 1e-9)))
    inputs, wanted = near * wide, np.where(known, targets / scale, 0).astype(np.float32)
    made = [
        _one(inputs, wanted, known.astype(np.float32), hidden, epochs, np.random.default_rng((seed, at))) for at in range(nets)
    ]
    return Network(
        first=np.hstack([net.parts[0] for net in made]) * wide,
        first_bias=np.concatenate([net.parts[1] for net in made]),
        second=(np.vstack([net.parts[2] for net in made]) / nets * scale).astype(np.float32),
        second_bias=(np.mean([net.parts[3] for net in made], axis=0) * scale).astype(np.float32),
    )


@dataclass(slots=True)
class _Net:
    parts: list[Singles]
    """Weights and biases of the two layers."""
    first: list[Singles]
    second: list[Singles]
    """Adam's moments."""
    step: int = 0

    def update(self, gradients: list[Singles], rate: float) -> None:
        self.step += 1
        for part, gradient, first, second in zip(self.parts, gradients, self.first, self.second, strict=True):
            first += np.float32(0.1) * (gradient - first)
            second += np.float32(0.001) * (gradient * gradient - second)
            unbiased = np.sqrt(second / np.float32(1 - 0.999**self.step)) + np.float32(1e-8)
            part -= np.float32(rate) * (first / np.float32(1 - 0.9**self.step) / unbiased + np.float32(_DECAY) * part)


def _one(inputs: Singles, wanted: Singles, known: Singles, hidden: int, epochs: int, chance: np.random.Generator) -> _Net:
    (n, q), columns = inputs.shape, wanted.shape[1]
    parts = [
        (chance.standard_normal((q, hidden)) / np.sqrt(q)).astype(np.float32),
        np.zeros(hidden, np.float32),
        (chance.standard_normal((hidden, columns)) * np.sqrt(0.1 / hidden)).astype(np.float32),
        np.zeros(columns, np.float32),
    ]
    net = _Net(parts, [np.zeros_like(part) for part in parts], [np.zeros_like(part) for part in parts])
    steps = max(_STEPS, epochs * -(-n // _BATCH))
    rows = chance.integers(0, n, n)
    order = np.concatenate([chance.permutation(rows) for _ in range(-(-steps * _BATCH // n))])
    for at in range(steps):
        batch = order[at * _BATCH : (at + 1) * _BATCH]
        gradients = _gradients(net.parts, inputs[batch], wanted[batch], known[batch], chance)
        net.update(gradients, _RATE * (1 - at / steps))
    return net


def _gradients(
    parts: list[Singles], inputs: Singles, wanted: Singles, known: Singles, chance: np.random.Generator
) -> list[Singles]:
    first, first_bias, second, second_bias = parts
    seen = inputs * _kept(inputs.shape, chance)
    level = seen @ first + first_bias
    dropped = _kept(level.shape, chance)
    hidden = np.maximum(level, 0) * dropped
    error = (hidden @ second + second_bias - wanted) * known / np.float32(len(inputs))
    back = (error @ second.T) * (level > 0) * dropped
    return [seen.T @ back, back.sum(0), hidden.T @ error, error.sum(0)]


def _kept(shape: tuple[int, ...], chance: np.random.Generator) -> Singles:
    return np.asarray((chance.random(shape, np.float32) >= _DROPOUT) / (1 - _DROPOUT), np.float32)
