"""One request at a time: what `Fitted.forecast` says, with the members' matrices side by side.

For a single request numpy has little to multiply, and what costs is each call. So whatever is multiplied by the same thing is
one matrix here: the request by axes, ridge regression, costs and seconds; the request along the axes by past requests, centres
of clusters and the first layer of the networks.
"""

import math

import numpy as np

from journeyman.embed.base import Vectors
from journeyman.errors import InputError
from journeyman.learn.router.features import Singles, count
from journeyman.learn.router.predict import FAMILIAR, FAR, NEAR, TYPED, Fitted
from journeyman.policy import Forecast
from journeyman.stats import Floats


class Single:
    """Fitted predictors, arranged for one request at a time. May be used by several threads."""

    def __init__(self, fitted: Fitted) -> None:
        self.fitted = fitted
        self._places = {type: at for at, type in enumerate(fitted.types)}
        seconds = fitted.seconds
        members = _Members(fitted)
        sides = (fitted.space.axes, fitted.success.linear.weights, fitted.cost.weights, seconds.weights, seconds.weights)
        self._of_full = np.ascontiguousarray(np.hstack(sides).T)
        self._members, self._q = members, fitted.space.axes.shape[1]
        # (t + 1, 3, m): of each type, what the logarithms of cost, p50 and p95 are beyond what is linear in the request.
        bias = np.stack([fitted.cost.bias, seconds.bias, seconds.bias])
        self._levels = np.concatenate([fitted.cost.offsets, seconds.offsets]).swapaxes(0, 1) + bias
        self._workers, self._dimensions = fitted.workers, fitted.dimensions
        self._measured = not np.isnan(bias).any()

    def __call__(self, vector: Vectors, request: str, type: str) -> tuple[tuple[Forecast, ...], float]:
        """What is expected of each worker for a request whose embedding is given, shape (1, d); and how familiar it is.

        Raises:
            InputError: The vector has another length than those it was fitted to.
        """
        fitted, m = self.fitted, len(self._workers)
        if vector.shape != (1, self._dimensions):
            raise InputError(f"this router was fitted to vectors of length {self._dimensions}, not of {vector.shape[-1]}")
        full = fitted.space.full(vector, np.array(count(request)))[0]
        seen = self._of_full @ full
        at = self._places.get(type, len(self._places))
        scores, familiar = self._members(seen[: self._q], seen[self._q : -3 * m], float(full @ full), at)
        amounts = np.exp(seen[-3 * m :].reshape(3, m) + self._levels[at]).tolist()
        success = fitted.calibration(scores).tolist()
        told = amounts if self._measured else [[None if math.isnan(each) else each for each in one] for one in amounts]
        forecasts = tuple(
            Forecast(worker=name, success=right, cost=cost, p50=half, p95=most)
            for name, right, cost, half, most in zip(self._workers, success, *told, strict=True)
        )
        return forecasts, familiar


class _Members:
    """`Mixture`, for one request."""

    def __init__(self, fitted: Fitted) -> None:
        mixture = fitted.success
        past, clusters, network = mixture.neighbours, mixture.clusters, mixture.network
        self._mixture, self._past = mixture, past
        self._of_near = np.ascontiguousarray(np.vstack([past.points, clusters.centres, network.first.T]))
        self._less = np.concatenate([past.offsets, clusters.offsets, -network.first_bias])
        self._p, self._c = len(past.points), len(past.points) + len(clusters.centres)
        self._k = min(past.k, self._p)
        r, c, columns = clusters.values.shape
        self._columns, self._clusterings = columns, (r, c)
        # Of r clusterings, where the first cluster of each is, and means that need no division any more.
        self._starts, self._means = np.arange(r) * c, clusters.values.reshape(-1, columns) * np.float32(1 / r)
        # (3, 2, 5): how far each is believed, in how easy the request is and in how far the workers are apart.
        self._believed = np.stack([mixture.easy, mixture.gap], 1)
        self._known = len(fitted.types)

    def __call__(self, near: Singles, linear: Singles, square: float, type: int) -> tuple[Floats, float]:
        """Scores (m,), and how familiar the request is: a point along the axes, (q,), at a squared distance from the origin."""
        mixture, past, columns = self._mixture, self._past, self._columns
        close = self._of_near @ near
        close -= self._less
        others, centres, hidden = close[: self._p], close[self._p : self._c], close[self._c :]
        nearest = others.argpartition(self._p - self._k)[-self._k :]
        familiar = float(np.interp(square - 2 * float(others.max()), past.distances, past.ranks, right=0.0))
        sums = np.add.reduce(past.both.take(nearest, 0), 0)
        assigned = centres.reshape(self._clusterings).argmax(1) + self._starts
        said = np.empty((5, columns), np.float32)
        np.add(linear, mixture.linear.bias, out=said[0])
        np.add.reduce(self._means.take(assigned, 0), 0, out=said[1])
        np.divide(sums[:columns], sums[columns:] + past.prior, out=said[2])
        np.add(np.maximum(hidden, 0, out=hidden) @ mixture.network.second, mixture.network.second_bias, out=said[3])
        said[4] = mixture.effects[type]
        both = self._case(familiar, type) @ said
        return (mixture.abilities + both[0, 0] + both[1, 1:]).astype(np.float64), familiar

    def _case(self, familiar: float, type: int) -> Singles:
        """(2, 5): as `case_weights` has it."""
        if type < self._known:
            return np.asarray(self._believed[TYPED])
        if familiar >= FAMILIAR:
            return np.asarray(self._believed[NEAR])
        share = np.float32(familiar / FAMILIAR)
        return np.asarray(share * self._believed[NEAR] + (1 - share) * self._believed[FAR])
