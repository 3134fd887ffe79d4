"""From outcomes to predictors.

How easy a request is and how far the workers are apart on it are learned as two things, since a router needs the second and
most of what varies is the first. Each level of knowledge is a prior for the next, and weighs what it has earned on rows that it
did not see: a worker's ability, the request's type, and what four members read from its text. So with few rows, or rows that
tell nothing, the best single worker is what remains.

scikit-learn and scipy are needed here alone, and imported when `fit` is called.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from journeyman.core.errors import InputError
from journeyman.models.embedders import Vectors
from journeyman.optimizers.outcome_table import Table
from journeyman.optimizers.router.predict import (
    COUNT_WEIGHT,
    COUNTED,
    MEMBERS,
    TRANSFER,
    Amount,
    Calibration,
    Clusters,
    Fitted,
    Linear,
    Mixture,
    NearestNeighbours,
    Network,
    Singles,
    Space,
    counted,
)
from journeyman.stats import Floats


def space(vectors: Vectors, requests: Sequence[str], most: int = 64) -> Space:
    """The space of these requests, with at most that many axes (principal components)."""
    mean = vectors.mean(0)
    spread = float(np.mean(np.sum(np.square(vectors - mean), 1)))
    counts = counted(requests)
    deviation = counts.std(0)
    found = Space(
        mean=mean.astype(np.float32),
        unit=float(np.float32(1 / np.sqrt(spread))) if spread > 1e-12 else 0.0,
        counts_mean=counts.mean(0).astype(np.float32),
        counts_scale=np.where(deviation > 1e-9, COUNT_WEIGHT / np.maximum(deviation, 1e-9), 0).astype(np.float32),
        axes=np.zeros((vectors.shape[1] + COUNTED, 0), np.float32),
    )
    full, _ = found.points(vectors, requests)
    centred = (full - full.mean(0)).astype(np.float64)
    _, axes = np.linalg.eigh(centred.T @ centred)
    kept = axes[:, ::-1][:, : max(1, min(most, len(requests) - 1))]
    # An axis has no direction of its own: the sign is fixed, so that the same rows give the same bytes.
    kept = kept * np.sign(kept[np.argmax(np.abs(kept), 0), np.arange(kept.shape[1])])
    return replace(found, axes=np.ascontiguousarray(kept, np.float32))


# From scores to probabilities: a rising line through knots, fitted to predictions of rows that were not learned from.

_EDGE = 1e-3
"""No prediction is surer than this."""
_KNOTS = 65
_FEW = 1_000
"""Outcomes below which isotonic regression follows chance (Niculescu-Mizil and Caruana, 2005)."""


def identity() -> Calibration:
    """The map that changes nothing within the edges."""
    ends = np.array([_EDGE, 1 - _EDGE])
    return Calibration(scores=ends, probabilities=ends)


def platt(scores: Floats, outcomes: Floats) -> Calibration:
    """A sigmoid in the score's logit: sigmoid(a + b * logit(score)), b at least 0, by maximum likelihood (Platt, 1999)."""
    x = _logit(scores)
    a, b = 0.0, 1.0
    for _ in range(50):
        p = _sigmoid(a + b * x)
        # One pseudo-row at a = 0 and b = 1 keeps the step finite where the outcomes are all alike.
        gradient = np.array([np.sum(p - outcomes) + a, np.sum((p - outcomes) * x) + (b - 1)])
        spread = np.maximum(p * (1 - p), 1e-9)
        cross = np.sum(spread * x)
        curve = np.array([[np.sum(spread) + 1, cross], [cross, np.sum(spread * x * x) + 1]])
        step = np.linalg.solve(curve, gradient)
        a, b = a - step[0], max(b - step[1], 0.0)
        if np.abs(step).max() < 1e-9:
            break
    knots = np.linspace(_EDGE, 1 - _EDGE, _KNOTS)
    return _rising(knots, _sigmoid(a + b * _logit(knots)))


def isotonic(scores: Floats, outcomes: Floats) -> Calibration:
    """Pools adjacent violators; between the middles of two pools it rises linearly."""
    from sklearn.isotonic import IsotonicRegression  # Heavy, and needed to fit only.

    fitted = IsotonicRegression(y_min=_EDGE, y_max=1 - _EDGE).fit_transform(scores, outcomes)
    levels, pools = np.unique(fitted, return_inverse=True)
    middles = np.bincount(pools, weights=scores) / np.bincount(pools)
    return _rising(middles, levels)


def calibration(scores: Floats, outcomes: Floats, fold: NDArray[np.int64]) -> Calibration:
    """The best of doing nothing, Platt and isotonic by squared error on rows that each was not fitted to.

    Args:
        scores: (k,), predictions of rows that were not learned from.
        outcomes: (k,), 0 to 1.
        fold: (k,), the part of the rows that each is in.
    """
    ways = [lambda _s, _o: identity(), platt] + ([isotonic] if len(scores) >= _FEW else [])
    parts = np.unique(fold)
    if len(parts) < 2 or np.ptp(outcomes) == 0:
        return identity()
    errors = []
    for way in ways:
        error = 0.0
        for part in parts:
            out = fold == part
            error += float(np.sum((way(scores[~out], outcomes[~out])(scores[out]) - outcomes[out]) ** 2))
        errors.append(error)
    return ways[int(np.argmin(errors))](scores, outcomes)


def _rising(scores: Floats, probabilities: Floats) -> Calibration:
    """Steps of nothing become tiny ones, so that of two scores the larger stays the larger."""
    lifted = np.clip(probabilities, _EDGE, 1 - _EDGE) * (1 - 1e-4) + 1e-4 * np.clip(scores, 0, 1)
    return Calibration(scores=scores.astype(np.float64), probabilities=lifted)


def _logit(p: Floats) -> Floats:
    clipped = np.clip(p, _EDGE, 1 - _EDGE)
    return np.asarray(np.log(clipped / (1 - clipped)))


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(x, -30, 30))))


# Means that few observations move little: empirical Bayes, each level a prior for the next.
#
# A normal model of group means around 0 with observations around them (Efron and Morris, 1975): the mean of n observations is
# multiplied by n / (n + k), k = variance within groups / variance between them, both estimated from all groups together.

_NONE = 1e9
"""Pseudo-observations where groups do not differ more than chance has it: every mean becomes 0."""


def abilities(success: Floats) -> Floats:
    """(m,): the mean of each column of (n, m), NaN where unknown, shrunk towards the mean of all columns.

    Workers do differ, so the prior never weighs more than 10 observations; every column needs at least one.
    """
    known = ~np.isnan(success)
    counts = known.sum(0)
    means = np.where(known, success, 0).sum(0) / counts
    grand = float(np.mean(means))
    within = float(np.mean((success - means)[known] ** 2)) if known.any() else 0.0
    between = float(np.mean((means - grand) ** 2 - within / counts))
    prior = min(max(within / between, 1.0), 10.0) if between > 0 else 10.0
    return np.asarray((counts * means + prior * grand) / (counts + prior))


def group_sums(values: Floats, groups: NDArray[np.int64], size: int) -> tuple[Floats, Floats, Floats]:
    """Sums, sums of squares and counts of (n, m) values by group, each (size, m); NaN is no observation. Group -1 is none."""
    known = ~np.isnan(values) & (groups >= 0)[:, None]
    sums, squares, counts = (np.zeros((size, values.shape[1])) for _ in range(3))
    filled = np.where(known, values, 0)
    np.add.at(sums, groups, filled)
    np.add.at(squares, groups, filled**2)
    np.add.at(counts, groups, known)
    return sums, squares, counts


def prior_weight(sums: Floats, squares: Floats, counts: Floats) -> Floats:
    """(m,): pseudo-observations at 0 that each column's group means are shrunk by; at least 1."""
    seen = counts > 0
    means = np.divide(sums, counts, out=np.zeros_like(sums), where=seen)
    groups, total = seen.sum(0), counts.sum(0)
    within = (squares - counts * means**2).sum(0) / np.maximum(total - groups, 1)
    # E[sum n * mean^2] = groups * within + total * between.
    between = ((counts * means**2).sum(0) - groups * within) / np.maximum(total, 1)
    weight = np.divide(within, between, out=np.full(len(within), _NONE), where=between > within / _NONE)
    return np.asarray(np.where((total > groups) & (between > 0), np.clip(weight, 1.0, _NONE), _NONE))


def group_means(values: Floats, groups: NDArray[np.int64], size: int) -> Floats:
    """(size, m): shrunk means of (n, m) values by group."""
    sums, squares, counts = group_sums(values, groups, size)
    return np.asarray(sums / (counts + prior_weight(sums, squares, counts)))


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


# How much each member is believed, learned from predictions of rows that it was not fitted to.


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


# Cost and latency: their logarithms by ridge regression, and statistics of what is left over, by worker and type.

_AMOUNTS_PRIOR = 20.0
"""Measurements with which a level weighs as much as the level above it."""

Statistic = Callable[[Floats], float]


def fit_cost(full: Singles, cost: Floats, types: NDArray[np.int64], kinds: int) -> Amount:
    """The mean of costs (n, m), by Duan's smearing (1983): the mean of exp(what is left) brings back what logarithms lose."""
    return _fit(full, cost, types, kinds, (_smear,))


def fit_seconds(full: Singles, seconds: Floats, types: NDArray[np.int64], kinds: int) -> Amount:
    """The 50th and 95th percentiles of seconds (n, m)."""
    return _fit(full, seconds, types, kinds, (partial(_quantile, share=0.5), partial(_quantile, share=0.95)))


def _fit(full: Singles, measured: Floats, types: NDArray[np.int64], kinds: int, statistics: tuple[Statistic, ...]) -> Amount:
    known = ~np.isnan(measured)
    # What is free has no logarithm: its worker is expected at the share of its calls that are not.
    positive = np.where(known & (measured > 0), measured, np.nan)
    level, left = ridge(full, np.log(positive), np.arange(measured.shape[1]))
    share = (~np.isnan(positive)).sum(0) / np.maximum(known.sum(0), 1)
    with np.errstate(divide="ignore"):
        offsets = np.stack([_levels(statistic, left, types, kinds) for statistic in statistics]) + np.log(share)
    return Amount(weights=level.weights, bias=np.where(known.any(0), level.bias, np.nan).astype(np.float32), offsets=offsets)


def _levels(statistic: Statistic, left: Floats, types: NDArray[np.int64], kinds: int) -> Floats:
    """(kinds + 1, m): of each type and worker, shrunk towards the worker's, and that towards all; the last of no type."""
    everybody = statistic(left[~np.isnan(left)])
    found = np.empty((kinds + 1, left.shape[1]))
    for column in range(left.shape[1]):
        mine = ~np.isnan(left[:, column])
        found[kinds, column] = worker = _towards(everybody, statistic, left[mine, column])
        for kind in range(kinds):
            found[kind, column] = _towards(worker, statistic, left[mine & (types == kind), column])
    return found


def _towards(prior: float, statistic: Statistic, left: Floats) -> float:
    return (_AMOUNTS_PRIOR * prior + len(left) * statistic(left)) / (_AMOUNTS_PRIOR + len(left))


def _smear(left: Floats) -> float:
    return float(np.log(np.mean(np.exp(np.clip(left, -10, 10))))) if len(left) else 0.0


def _quantile(left: Floats, share: float) -> float:
    return float(np.quantile(left, share)) if len(left) else 0.0


Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterFitConfig:
    """How the predictors are fitted."""

    folds: int = 5
    """Parts of the rows by which weights and calibration are chosen, each predicted by what the others taught."""
    axes: int = 64
    """Principal components of the requests that clusters, neighbours and network see."""
    clusters: tuple[int, ...] = (24, 48, 96)
    """Sizes of the clusterings; fewer where there are few rows."""
    repeats: int = 3
    """Clusterings of each size."""
    neighbours: int = 60
    remembered: int = 3_000
    """Requests of the past that are kept to find neighbours among: drawn at random where there are more."""
    hidden: int = 64
    nets: int = 4
    epochs: int = 15
    members: tuple[str, ...] = MEMBERS
    """Those that may have a say, to see what each is worth."""


def fit(table: Table, vectors: Vectors, config: RouterFitConfig | None = None, seed: int = 0, *, embedder: str = "") -> Fitted:
    """Learn success, cost and latency of each worker from the rows of a table; `vectors` are their embeddings, shape (n, d).

    Rows that nobody judged count for cost and latency; workers that nobody judged are left out.

    Raises:
        InputError: The table has no judged outcome, or the vectors do not fit its rows.
    """
    config = config or RouterFitConfig()
    if vectors.ndim != 2 or len(vectors) != len(table):
        raise InputError(f"{len(table)} rows and {len(vectors)} vectors were given; every row needs its own")
    if not np.isfinite(vectors).all():
        raise InputError("the vectors hold what is no number; the embedder that made them cannot be used")
    judged = ~np.isnan(table.success)
    columns = np.flatnonzero(judged.any(0))
    if not len(columns):
        raise InputError("no outcome is judged, so there is nothing to learn success from; record `success`, 0 to 1")
    rows = np.flatnonzero(judged.any(1))
    known = tuple(sorted(set(table.types)))
    order = {type: at for at, type in enumerate(known)}
    places = np.array([order[type] for type in table.types], np.int64)
    made = space(vectors, table.requests, config.axes)
    full, near = made.points(vectors, table.requests)
    judged_rows = _Rows(full[rows], near[rows], places[rows], len(known), table.success[np.ix_(rows, columns)])
    mixture, calibrated = _Teaching(config, judged_rows, seed).learn()
    seconds = np.where(table.errors, np.nan, table.seconds)[:, columns]
    return Fitted(
        cards=tuple(table.cards[at] for at in columns.tolist()),
        embedder=embedder,
        types=known,
        rows=len(rows),
        space=made,
        success=mixture,
        calibration=calibrated,
        cost=fit_cost(full, table.cost[:, columns], places, len(known)),
        seconds=fit_seconds(full, seconds, places, len(known)),
    )


@dataclass(frozen=True, slots=True)
class _Members:
    """The four, fitted to the same rows."""

    linear: Linear
    clusters: Clusters
    neighbours: NearestNeighbours
    network: Network
    effects: Singles

    def said(self, full: Singles, near: Singles, types: Places) -> Floats:
        """(k, 5, m + 1)."""
        members = (self.linear, self.clusters, self.neighbours, self.network)
        return np.stack([*(member(full, near) for member in members), self.effects[types]], 1).astype(np.float64)


@dataclass(frozen=True, slots=True)
class _Rows:
    """n judged requests as points, what type each is of how many, and their success (n, m)."""

    full: Singles
    near: Singles
    types: Places
    kinds: int
    success: Floats


class _Teaching:
    """One fit to n judged rows and m workers."""

    def __init__(self, config: RouterFitConfig, rows: _Rows, seed: int) -> None:
        self.config, self.seed = config, seed
        self.full, self.near, self.types, self.kinds, self.success = rows.full, rows.near, rows.types, rows.kinds, rows.success
        success, near = rows.success, rows.near
        self.abilities = abilities(success)
        self.chance = np.random.default_rng(seed)
        self.clusters, self.assigned = cluster(near, config.clusters, config.repeats, seed)
        self.together = np.array([0] + [1] * success.shape[1], np.int64)
        self.targets = self._targets()

    def _targets(self) -> Floats:
        """(n, m + 1): the mean outcome of a row beyond abilities, and each outcome beyond that mean.

        With one outcome in a row, what is common cannot be told from the worker's own: the common part is then what a ridge
        regression on the other rows expects.
        """
        beyond = self.success - self.abilities
        common = np.nanmean(beyond, 1)
        alone = (~np.isnan(beyond)).sum(1) == 1
        level = common
        if alone.any():
            _, left = ridge(self.full, common[:, None], self.together[:1])
            level = np.where(alone, common - left[:, 0], common)
        return np.column_stack([common, beyond - level[:, None]])

    def learn(self) -> tuple[Mixture, Calibration]:
        final = self._members(np.arange(len(self.full)))
        count = len(MEMBERS) + 1
        mixture = Mixture(
            abilities=self.abilities.astype(np.float32),
            effects=final.effects,
            linear=final.linear,
            clusters=final.clusters,
            neighbours=final.neighbours,
            network=final.network,
            easy=np.zeros((3, count), np.float32),
            gap=np.zeros((3, count), np.float32),
        )
        if len(self.full) < 4 * self.config.folds:
            return mixture, identity()
        random = self.chance.permutation(len(self.full)) % self.config.folds
        said = self._crossed(random)
        far = self._crossed(self._far_folds())
        text = [name in self.config.members for name in MEMBERS]
        transfers = [use and name in TRANSFER for use, name in zip(text, MEMBERS, strict=True)]
        cases = [(said, [*text, False]), (far, [*transfers, False]), (said, [*text, self.kinds > 1])]
        easy = np.stack([_weights(which, self.targets[:, :1], use, slice(0, 1)) for which, use in cases])
        gap = np.stack([_weights(which, self.targets[:, 1:], use, slice(1, None)) for which, use in cases])
        mixture = replace(mixture, easy=easy.astype(np.float32), gap=gap.astype(np.float32))
        return mixture, self._calibration(said, easy[0], gap[0], random)

    def _members(self, rows: Places) -> _Members:
        config, targets = self.config, self.targets[rows]
        full, near = self.full[rows], self.near[rows]
        linear, _ = ridge(full, targets, self.together)
        clusters, prior = cluster_values(self.clusters, self.assigned[rows], targets)
        kept = np.arange(len(rows))
        if len(rows) > config.remembered:
            kept = np.sort(np.random.default_rng(self.seed).permutation(len(rows))[: config.remembered])
        effects = group_means(targets, self.types[rows], self.kinds + 1)
        return _Members(
            linear=linear,
            clusters=clusters,
            neighbours=neighbours(full[kept], near[kept], targets[kept], config.neighbours, prior),
            network=train(near, targets, hidden=config.hidden, nets=config.nets, epochs=config.epochs, seed=self.seed),
            effects=effects.astype(np.float32),
        )

    def _crossed(self, folds: Places) -> Floats:
        """What members say of rows that they did not see, (n, 5, m + 1)."""
        said = np.zeros((len(self.full), len(MEMBERS) + 1, self.targets.shape[1]))
        for fold in np.unique(folds):
            out = np.flatnonzero(folds == fold)
            if len(out) == len(folds):
                break  # All rows are of one kind: nothing is known of others.
            members = self._members(np.flatnonzero(folds != fold))
            said[out] = members.said(self.full[out], self.near[out], self.types[out])
        return said

    def _far_folds(self) -> Places:
        """Whole clusters together: what is left out is unlike the rest."""
        places = self.assigned[:, 0]
        return np.asarray((self.chance.permutation(self.clusters.values.shape[1]) % self.config.folds)[places])

    def _calibration(self, said: Floats, easy: Floats, gap: Floats, folds: Places) -> Calibration:
        scores = self.abilities + said[:, :, 0] @ easy[:, None] + np.einsum("k,nkm->nm", gap, said[:, :, 1:])
        known = ~np.isnan(self.success)
        return calibration(scores[known], self.success[known], np.broadcast_to(folds[:, None], known.shape)[known])


def _weights(said: Floats, targets: Floats, use: Sequence[bool], part: slice) -> Floats:
    found = np.zeros(len(use))
    if (at := np.flatnonzero(use)).size:
        # A type is told, not read from the text as the others are.
        found[at] = weights(said[:, at, part], targets, alike=not use[-1])
    return found
