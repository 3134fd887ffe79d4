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
from journeyman.optimizers.router.calibration import Calibration, abilities, calibration, group_means, identity
from journeyman.optimizers.router.features import Singles, space
from journeyman.optimizers.router.predict import Amount, Fitted, Mixture
from journeyman.optimizers.router.predictors import (
    MEMBERS,
    TRANSFER,
    Clusters,
    Linear,
    NearestNeighbours,
    Network,
    cluster,
    cluster_values,
    neighbours,
    ridge,
    train,
)
from journeyman.stats import Floats

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
