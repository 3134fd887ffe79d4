"""What was learned from outcomes, at work: numpy alone, one request in a fraction of a millisecond."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from journeyman.core.errors import InputError
from journeyman.core.policy import Card, Forecast
from journeyman.io.atomic import atomic_write
from journeyman.models.embedders import Vectors
from journeyman.stats import Floats

# What of a request is looked at: its embedding, and what can be counted in its text.

Singles = NDArray[np.float32]

_NUMBERS = re.compile(r"[0-9]+")
_KINDS = tuple(map(re.compile, (r"[0-9]", r"[A-Z]", r"[-+*/=^<>$\\{}()\[\]_|]", r"[^\w\s]")))
"""Digits, capitals, signs, and what is neither a word nor a space."""
_ASCII = tuple(bytes(code for code in range(128) if kind.match(chr(code))) for kind in _KINDS)
"""The same as bytes: texts that are ASCII alone, which most are, are counted in without looking for matches."""
_READ = 4_000
"""Characters of a request that are counted in; its length is that of the whole."""

COUNTED = 10
"""How many numbers `counted` gives."""


def counted(requests: Sequence[str]) -> Floats:
    """Shape (n, `COUNTED`): lengths as logarithms, and shares of digits, signs, capitals and the like."""
    return np.array([count(request) for request in requests], np.float64).reshape(-1, COUNTED)


def count(request: str) -> tuple[float, ...]:
    """The `COUNTED` numbers of one request."""
    text = request[:_READ]
    size, words = len(text) + 1, text.count(" ") + text.count("\n") + 1
    kinds = _found(text)
    return (
        math.log1p(len(request)),
        *(found / size for found in kinds),
        math.log1p(text.count("\n")),
        math.log1p(text.count("?")),
        math.log1p(text.count(".")),
        math.log1p(len(_NUMBERS.findall(text)) if kinds[0] else 0),
        size / words,
    )


def _found(text: str) -> list[int]:
    """How many characters of each of the `_KINDS` there are."""
    if not text.isascii():
        return [len(kind.findall(text)) for kind in _KINDS]
    data = text.encode("ascii")
    return [len(data) - len(data.translate(None, kind)) for kind in _ASCII]


@dataclass(frozen=True, kw_only=True)
class Space:
    """Where requests are points: embedding and counts on one scale, and the directions in which they differ most."""

    mean: Singles
    """(d,), of the embeddings."""
    unit: float
    """What an embedding less the mean is multiplied by, so that its mean square length is 1."""
    counts_mean: Singles
    counts_scale: Singles
    """(`COUNTED`,): what a count less its mean is multiplied by."""
    axes: Singles
    """(d + `COUNTED`, q), orthonormal columns."""

    def points(self, vectors: Vectors, requests: Sequence[str]) -> tuple[Singles, Singles]:
        """Of n requests: shape (n, d + `COUNTED`), and the same along the axes alone, (n, q)."""
        full = self.full(vectors, counted(requests))
        return full, full @ self.axes

    def full(self, vectors: Vectors, counts: Floats) -> Singles:
        """(n, d + `COUNTED`), of embeddings and what `counted` gives."""
        full = np.empty((len(vectors), len(self.axes)), np.float32)
        d = len(self.mean)
        np.multiply(vectors - self.mean, np.float32(self.unit), out=full[:, :d])
        scaled = (counts - self.counts_mean) * self.counts_scale
        np.minimum(np.maximum(scaled, -_FAR), _FAR, out=full[:, d:], casting="same_kind")
        return full


COUNT_WEIGHT = 0.1
"""Length of one standard deviation of a count, beside embeddings of length 1. Chosen on training rows: see LOG.md."""
_FAR = 4 * COUNT_WEIGHT
"""A count further from its mean than four standard deviations says no more than that."""


# Four ways to tell from a request how its outcomes will differ from the average ones, as arrays.
#
# Each gives (n, m + 1): how much easier than the average request, then for each of m workers how much better than the others it
# does here than it does on average.

MEMBERS = ("linear", "clusters", "neighbours", "network")
"""In the order of the weights."""
TRANSFER = ("linear", "network")
"""Those that say something of requests unlike past ones: means of what is near do not."""


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


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A piecewise linear, strictly rising map; beyond its ends it stays."""

    scores: Floats
    """(k,), rising."""
    probabilities: Floats
    """(k,), rising, within 0 and 1."""

    def __call__(self, scores: Floats) -> Floats:
        return np.asarray(np.interp(scores, self.scores, self.probabilities))


# What predicts, and what is predicted.


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


NEAR, FAR, TYPED = 0, 1, 2
"""The three cases that members are weighed for: a request like past ones, one unlike them, and one whose type is known."""


@dataclass(frozen=True, kw_only=True)
class Amount:
    """Cost or seconds, whose logarithm is linear in the request, apart from what is left over."""

    weights: Singles
    """(D, m)."""
    bias: Singles
    """(m,), NaN where none was ever measured."""
    offsets: Floats
    """(s, t + 1, m): what is added for each of s statistics and t types, the last for requests of no known type."""

    def __call__(self, full: Singles, types: NDArray[np.int64]) -> tuple[Floats, ...]:
        """The s statistics of n requests, each (n, m)."""
        level = full @ self.weights + self.bias
        return tuple(np.exp(level + self.offsets[:, types]))


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The success of n requests with m workers: ability, and what the members say of this request, each by its weight."""

    abilities: Singles
    """(m,)."""
    effects: Singles
    """(t + 1, m + 1): of each type, as a member gives it; the last is 0."""
    linear: Linear
    clusters: Clusters
    neighbours: NearestNeighbours
    network: Network
    easy: Singles
    """(3, 5): weights of the four members and of the type in how easy the request is, in each of the three cases."""
    gap: Singles
    """(3, 5): the same in how far the workers are apart."""

    def __call__(self, full: Singles, near: Singles, types: NDArray[np.int64]) -> tuple[Floats, NDArray[np.float64]]:
        """Scores (n, m), not calibrated yet, and how familiar the requests are (n,)."""
        neighbours, familiar = self.neighbours.and_familiar(full, near)
        text = (self.linear(full, near), self.clusters(full, near), neighbours, self.network(full, near))
        said = np.concatenate([*text, self.effects[types]], 1).reshape(len(full), len(text) + 1, -1)
        trust = case_weights(familiar, types < len(self.effects) - 1)
        easy = ((trust @ self.easy)[:, None] @ said[:, :, :1])[:, 0]
        gap = ((trust @ self.gap)[:, None] @ said[:, :, 1:])[:, 0]
        return (self.abilities + easy + gap).astype(np.float64), familiar


def case_weights(familiar: NDArray[np.float64], typed: NDArray[np.bool_]) -> Singles:
    """(n, 3): how much of each case a request is. With no type it is near or far, and between them a mixture."""
    near = np.minimum(familiar / FAMILIAR, 1.0)
    weights = np.empty((len(familiar), 3), np.float32)
    weights[:, NEAR] = near * ~typed
    weights[:, FAR] = (1 - near) * ~typed
    weights[:, TYPED] = typed
    return weights


FAMILIAR = 0.03
"""Only the strangest 3 of 100 past requests are in part far. Chosen on training splits: see LOG.md."""


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The predictors of success, cost and latency, as arrays. A `Predictor`."""

    cards: tuple[Card, ...]
    """m workers, in the order of the columns."""
    embedder: str
    """Name of the embedder whose vectors it was fitted to, as `Embedder.name`; empty where that was not said."""
    types: tuple[str, ...]
    """t known types of request."""
    rows: int
    """How many it was fitted to."""
    space: Space
    success: Mixture
    calibration: Calibration
    cost: Amount
    seconds: Amount
    strange: float = 0.01
    """A request less familiar than this is of another kind: so far off were 1 of 100 past ones."""

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple(card.name for card in self.cards)

    @property
    def dimensions(self) -> int:
        """d of the vectors it expects."""
        return len(self.space.mean)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {type: at for at, type in enumerate(self.types)}

    def forecast(self, vectors: Vectors, requests: Sequence[str], types: Sequence[str]) -> Forecasts:
        """Of requests whose embeddings are given, shape (n, d). A type that was never seen is no type.

        Raises:
            InputError: The vectors are not as many as the requests, or of another length than those it was fitted to.
        """
        if vectors.shape != (len(requests), self.dimensions):
            found = " x ".join(str(size) for size in vectors.shape)
            raise InputError(
                f"{len(requests)} requests and vectors of {found} were given; this router was fitted to vectors of length "
                f"{self.dimensions}{f' by {self.embedder}' if self.embedder else ''}, one for each request"
            )
        at = np.array([self._places.get(type, len(self.types)) for type in types], np.int64)
        full, near = self.space.points(vectors, requests)
        scores, familiar = self.success(full, near, at)
        (cost,) = self.cost(full, at)
        p50, p95 = self.seconds(full, at)
        return Forecasts(workers=self.workers, success=self.calibration(scores), cost=cost, p50=p50, p95=p95, familiar=familiar)


# One request at a time: what `Fitted.forecast` says, with the members' matrices side by side.
#
# For a single request numpy has little to multiply, and what costs is each call. So whatever is multiplied by the same thing is
# one matrix here: the request by axes, ridge regression, costs and seconds; the request along the axes by past requests,
# centres
# of clusters and the first layer of the networks.


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


# Fitted predictors as one safetensors file: the same predictors give the same bytes, and nothing in it is ever executed.

VERSION = 1
_KEY = "journeyman.router"
"""The one key of the file's metadata: several would come in any order, and the bytes would not be the same twice."""
_MOST = 1 << 29
"""Bytes of a file that is still read."""

Array = NDArray[Any]


def save(fitted: Fitted, path: Path) -> None:
    """Write it, whole or not at all.

    Raises:
        InputError: It cannot be written.
    """
    from safetensors.numpy import save as packed  # Heavy, and needed for files only.

    header = {
        "version": VERSION,
        "embedder": fitted.embedder,
        "cards": [asdict(card) for card in fitted.cards],
        "types": list(fitted.types),
        "rows": fitted.rows,
        "strange": fitted.strange,
        "unit": fitted.space.unit,
        "k": fitted.success.neighbours.k,
    }
    arrays = {name: np.ascontiguousarray(array) for name, array in _arrays(fitted).items()}
    content = packed(arrays, {_KEY: json.dumps(header, ensure_ascii=False, sort_keys=True)})
    with atomic_write(path) as part:
        part.write_bytes(content)


def load(path: Path) -> Fitted:
    """Read what `save` wrote.

    Raises:
        InputError: It is not such a file, of a version that is not known, or its arrays do not fit each other.
    """
    from safetensors import SafetensorError, safe_open  # Heavy, and needed for files only.

    try:
        if path.stat().st_size > _MOST:
            raise InputError(f"{path} is larger than a router's file can be; train it again")
        with safe_open(str(path), framework="numpy") as file:
            header_text = (file.metadata() or {}).get(_KEY)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except SafetensorError as error:
        raise InputError(f"{path} is no safetensors file ({error}); train a router with `journeyman train router`") from None
    if header_text is None:
        raise InputError(f"{path} holds no router; train one with `journeyman train router`")
    try:
        return _read(json.loads(header_text), arrays)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is no router that can be used: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _arrays(fitted: Fitted) -> dict[str, Array]:
    mixture = fitted.success
    parts: Mapping[str, object] = {
        "space": fitted.space,
        "linear": mixture.linear,
        "clusters": mixture.clusters,
        "neighbours": mixture.neighbours,
        "network": mixture.network,
        "success": mixture,
        "calibration": fitted.calibration,
        "cost": fitted.cost,
        "seconds": fitted.seconds,
    }
    return {
        f"{name}.{field.name}": value
        for name, part in parts.items()
        for field in fields(part)  # type: ignore[arg-type]
        if isinstance(value := getattr(part, field.name), np.ndarray)
    }


class _Sizes:
    """What the letters in a shape stand for: the first array says it, and the others must agree."""

    def __init__(self, arrays: Mapping[str, Array], **known: int) -> None:
        self.arrays, self.known = arrays, known

    def __call__(self, part: str, kind: type, **shapes: str) -> dict[str, Array]:
        """Checked arrays of one part. A shape is written like "d q"; `kind` is that of the numbers."""
        return {name: self._checked(f"{part}.{name}", kind, shape.split()) for name, shape in shapes.items()}

    def _checked(self, name: str, kind: type, shape: list[str]) -> Array:
        array = self.arrays[name]
        if array.dtype != kind or array.ndim != len(shape):
            raise ValueError(f"{name} is not an array of {len(shape)} dimensions of {np.dtype(kind)}")
        for letter, size in zip(shape, array.shape, strict=True):
            if self.known.setdefault(letter, size) != size:
                raise ValueError(f"{name} has a side of {size} where {self.known[letter]} is due")
        if np.isnan(array).any() and name not in _MAY_BE_UNKNOWN:
            raise ValueError(f"{name} holds what is no number")
        return array


_MAY_BE_UNKNOWN = ("cost.bias", "seconds.bias")


def _read(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Fitted:
    if header["version"] != VERSION:
        raise ValueError(f"it is of version {header['version']}, and this program reads {VERSION}")
    cards = tuple(Card(**{**card, "takes": tuple(card["takes"]), "gives": tuple(card["gives"])}) for card in header["cards"])
    types = tuple(str(type) for type in header["types"])
    m = len(cards)
    sizes = _Sizes(arrays, m=m, M=m + 1, T=len(types) + 1, S=COUNTED, one=1, two=2, three=3, five=5)
    single, double = np.float32, np.float64
    space = sizes("space", single, mean="d", counts_mean="S", counts_scale="S", axes="D q")
    if sizes.known["D"] != sizes.known["d"] + COUNTED or not cards or len(set(types)) != len(types):
        raise ValueError("its parts do not fit each other")
    mixture = sizes("success", single, abilities="m", effects="T M", easy="three five", gap="three five")
    clusters = sizes("clusters", single, centres="C q", offsets="C", values="r c M")
    if sizes.known["C"] != sizes.known["r"] * sizes.known["c"] or not sizes.known["C"]:
        raise ValueError("its clusters do not fit their centres")
    near = sizes("neighbours", single, points="p q", offsets="p", values="p M", known="p M", prior="M", distances="k")
    if int(header["k"]) < 1 or not sizes.known["p"] or not sizes.known["k"]:
        raise ValueError("it has no neighbours to ask")
    curve = sizes("calibration", double, scores="knots", probabilities="knots")
    if not sizes.known["knots"] or (np.diff(curve["scores"]) < 0).any() or (np.diff(curve["probabilities"]) < 0).any():
        raise ValueError("its calibration does not rise")
    if not 0 <= curve["probabilities"][0] <= curve["probabilities"][-1] <= 1:
        raise ValueError("its calibration leaves 0 to 1")
    return Fitted(
        cards=cards,
        embedder=str(header["embedder"]),
        types=types,
        rows=int(header["rows"]),
        strange=float(header["strange"]),
        space=Space(unit=float(header["unit"]), **space),
        success=Mixture(
            linear=Linear(**sizes("linear", single, weights="D M", bias="M")),
            clusters=Clusters(**clusters),
            neighbours=NearestNeighbours(k=int(header["k"]), **near),
            network=Network(**sizes("network", single, first="q h", first_bias="h", second="h M", second_bias="M")),
            **mixture,
        ),
        calibration=Calibration(**curve),
        cost=_amount(sizes, "cost", "one"),
        seconds=_amount(sizes, "seconds", "two"),
    )


def _amount(sizes: _Sizes, name: str, statistics: str) -> Amount:
    linear = sizes(name, np.float32, weights="D m", bias="m")
    return Amount(**linear, **sizes(name, np.float64, offsets=f"{statistics} T m"))
