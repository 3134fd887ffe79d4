"""Fitting the weights of rewards, so that the combined score agrees with labels or with what came of it later.

    minimise  mean log loss(label, sigmoid(a · (s_w - b))) + λ · Σ (w_i - w0_i)²       over w ≥ 0, Σ w = 1, a ≥ 0, b
    s_w       = Σ w_i · v_i / Σ w_i     over the rewards that could tell, as the engine combines them
    agreement = the share of pairs with different labels that s_w puts in the right order, ties counting half (for two kinds of
                label: the AUC), and so do pairs of which one score is unknown

w0 are the defaults, made to sum to 1. λ is chosen by log loss on held-out groups. Agreement is measured on groups that neither
the weights nor λ were fitted on: five folds, each held out once, and pairs only within a fold. The fitted weights are taken
only when the low end of the interval of the gain lies above 0; else the defaults stay.
"""

import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from journeyman.core.errors import InputError
from journeyman.rewards.calibration import Floats, IntervalEstimate, sigmoid

LEAST_GROUPS = 10
_FOLDS = 5
_STRENGTHS = (0.01, 0.1, 1.0, 10.0)
_RESAMPLES = 2000
_REFITS = 200
"""Of the weights, on resampled tasks."""
_BLOCKS = 1000
"""Groups beyond so many are resampled together, which bounds the memory."""
_TINY = 1e-12
_LEAST = 1e-6
"""The least weight while weights are sought; it becomes 0. At 0 itself what only that reward could tell of would be unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What the rewards said of one attempt, and what they should have agreed with."""

    values: Mapping[str, float | None]
    """By reward; `None` where it could not tell."""
    label: float
    """0 to 1."""
    group: str
    """Attempts at one task share it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What came out, and whether it is any better."""

    weights: Mapping[str, float]
    """To use. They add up to what the defaults do, and are the defaults when nothing better was found."""
    fitted: Mapping[str, float]
    """What the fit to everything gave, taken or not."""
    intervals: Mapping[str, tuple[float, float]]
    """Of each fitted weight, the middle 95 % of those that resampled tasks give, with the same λ."""
    defaults: Mapping[str, float]
    before: IntervalEstimate
    """Agreement of the defaults, on held-out groups."""
    after: IntervalEstimate
    """Agreement of fitted weights, on the same."""
    gain: IntervalEstimate
    strength: float
    """λ of the final fit."""
    rows: int
    groups: int
    dropped: int
    """Rows on which no reward could tell."""

    @property
    def better(self) -> bool:
        return self.gain.low > 0

    @property
    def verdict(self) -> str:
        """One sentence with its numbers."""
        what = f"agreement on held-out tasks {self.before} before, {self.after} after, gain {self.gain}"
        return f"{what}: better" if self.better else f"{what}: not shown to be better, so the defaults stay"

    def json(self) -> dict[str, Any]:
        named = {"before": self.before, "after": self.after, "gain": self.gain}
        return {
            "better": self.better,
            **{name: estimate.json() for name, estimate in named.items()},
            "weights": dict(self.weights),
            "fitted": dict(self.fitted),
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "defaults": dict(self.defaults),
            "strength": self.strength,
            "rows": self.rows,
            "groups": self.groups,
            "dropped": self.dropped,
            "verdict": self.verdict,
        }


def fit(rows: Sequence[Scored], defaults: Mapping[str, float]) -> Fit:
    """The weights that agree best, and how they do on tasks they were not fitted on. Deterministic.

    Raises:
        InputError: There is nothing to fit: fewer than two rewards, too few tasks, or labels that do not differ.
    """
    data = _Data.of(rows, defaults)
    folds = data.folds()
    start = data.start
    scores, outer = np.zeros((2, len(data.labels))), np.zeros(len(data.labels), np.int64)
    for number, (train, test) in enumerate(folds):
        part = data.take(train)
        weights = _solved(part, _strength(part)).weights
        scores[0, test], scores[1, test] = data.take(test).combined(start), data.take(test).combined(weights)
        outer[test] = number
    before, after, gain = _compared(scores, data, outer)
    strength = _strength(data)
    total = sum(defaults.values())
    fitted = {name: round(float(w) * total, 6) for name, w in zip(data.names, _solved(data, strength).weights, strict=True)}
    return Fit(
        weights=fitted if gain.low > 0 else dict(defaults),
        fitted=fitted,
        intervals=_intervals(data, strength, total),
        defaults=dict(defaults),
        before=before,
        after=after,
        gain=gain,
        strength=strength,
        rows=len(data.labels),
        groups=len(set(data.groups.tolist())),
        dropped=len(rows) - len(data.labels),
    )


@dataclass(frozen=True, slots=True)
class _Data:
    names: tuple[str, ...]
    values: Floats
    """Shape (rows, rewards); 0 where unknown."""
    known: Floats
    """1 where known, else 0."""
    labels: Floats
    groups: NDArray[np.int64]
    start: Floats
    """The defaults, adding up to 1."""

    @classmethod
    def of(cls, rows: Sequence[Scored], defaults: Mapping[str, float]) -> "_Data":
        names = tuple(sorted(defaults))
        if len(names) < 2 or not sum(defaults.values()) > 0:
            raise InputError(f"there is nothing to weigh: {len(names)} rewards, of which one at least must weigh something")
        kept = [row for row in rows if any(row.values.get(name) is not None and defaults[name] > 0 for name in names)]
        codes = {group: code for code, group in enumerate(sorted({row.group for row in kept}))}
        if len(codes) < LEAST_GROUPS:
            raise InputError(
                f"{len(codes)} tasks with scores are too few to fit weights and to test them; it takes {LEAST_GROUPS}"
            )
        if len({row.label for row in kept}) < 2:
            raise InputError("all labels are the same, so there is nothing to agree with")
        table = [[row.values.get(name) for name in names] for row in kept]
        weights = np.array([defaults[name] for name in names], np.float64)
        return cls(
            names,
            np.array([[value or 0.0 for value in line] for line in table]),
            np.array([[float(value is not None) for value in line] for line in table]),
            np.array([row.label for row in kept], np.float64),
            np.array([codes[row.group] for row in kept], np.int64),
            weights / weights.sum(),
        )

    def take(self, places: NDArray[np.int64]) -> "_Data":
        return _Data(self.names, self.values[places], self.known[places], self.labels[places], self.groups[places], self.start)

    def combined(self, weights: Floats) -> Floats:
        """As the engine does it; NaN where none of those that weigh something could tell."""
        weight = self.known @ weights
        return np.where(weight > 0, self.values @ weights / np.maximum(weight, _TINY), np.nan)

    def folds(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Whole groups, dealt out by their mean label so that each fold has its share of both ends."""
        codes = np.unique(self.groups)
        means = np.array([self.labels[self.groups == code].mean() for code in codes])
        shuffled = np.random.default_rng(0).permutation(len(codes))
        order = shuffled[np.argsort(means[shuffled], kind="stable")]
        fold_of = dict(zip(codes[order].tolist(), (np.arange(len(codes)) % _FOLDS).tolist(), strict=True))
        folds = np.array([fold_of[code] for code in self.groups.tolist()])
        return [(np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)) for fold in range(_FOLDS)]


@dataclass(frozen=True, slots=True)
class _Solved:
    weights: Floats
    slope: float
    middle: float

    def loss(self, data: _Data) -> float:
        # What nobody can tell is an even chance.
        logits = np.nan_to_num(self.slope * (data.combined(self.weights) - self.middle), nan=0.0)
        return float(np.mean(np.logaddexp(0, logits) - data.labels * logits))


def _strength(data: _Data) -> float:
    """The λ with the least log loss on held-out groups; of equal ones the one that stays nearer to the defaults."""
    folds = data.folds()

    def loss(strength: float) -> float:
        parts = [(data.take(train), data.take(test)) for train, test in folds if len(test)]
        return sum(_solved(train, strength).loss(test) * len(test.labels) for train, test in parts) / len(data.labels)

    losses = {strength: loss(strength) for strength in _STRENGTHS}
    return max(_STRENGTHS, key=lambda strength: (-round(losses[strength], 5), strength))


def _solved(data: _Data, strength: float) -> _Solved:
    count = len(data.names)

    def objective(x: Floats) -> tuple[float, Floats]:
        weights, slope, middle = x[:count], x[count], x[count + 1]
        score = data.combined(weights)
        logits = slope * (score - middle)
        away = weights - data.start
        value = np.mean(np.logaddexp(0, logits) - data.labels * logits) + strength * away @ away
        slack = (sigmoid(logits) - data.labels) / len(data.labels)
        by_weight = (data.values - data.known * score[:, None]) / (data.known @ weights + _TINY)[:, None]
        gradient = [*(slope * (slack @ by_weight) + 2 * strength * away), slack @ (score - middle), -slope * slack.sum()]
        return float(value), np.array(gradient)

    begin = np.array([*data.start, 4.0, float(data.combined(data.start).mean())])
    found = optimize.minimize(
        objective,
        begin,
        jac=True,
        method="SLSQP",
        bounds=[*[(_LEAST, 1.0)] * count, (0.0, 50.0), (-1.0, 2.0)],
        constraints=optimize.LinearConstraint(np.array([[1.0] * count + [0.0, 0.0]]), 1, 1),
        options={"maxiter": 100},
    )
    weights = np.where(found.x[:count] > 2 * _LEAST, found.x[:count], 0.0)
    return _Solved(weights / weights.sum(), float(found.x[count]), float(found.x[count + 1]))


def _intervals(data: _Data, strength: float, total: float) -> dict[str, tuple[float, float]]:
    """By the bootstrap over tasks."""
    rng, codes = np.random.default_rng(0), np.unique(data.groups)
    places = {code: np.flatnonzero(data.groups == code) for code in codes.tolist()}
    found = list[Floats]()
    for _ in range(_REFITS):
        part = data.take(np.concatenate([places[code] for code in rng.choice(codes, len(codes)).tolist()]))
        # A draw in which all labels are the same tells nothing.
        if len(np.unique(part.labels)) > 1:
            found.append(_solved(part, strength).weights * total)
    low, high = np.quantile(np.array(found), [0.025, 0.975], axis=0).round(6).tolist()
    return dict(zip(data.names, zip(low, high, strict=True), strict=True))


def _compared(
    scores: Floats, data: _Data, folds: NDArray[np.int64]
) -> tuple[IntervalEstimate, IntervalEstimate, IntervalEstimate]:
    """Agreement of both, and the difference, with intervals by resampling groups."""
    right, pairs = _pairs(scores, data, folds)
    if not pairs.sum():
        raise InputError("no two held-out attempts have different labels; it takes more labelled tasks")
    rng = np.random.default_rng(0)
    count = pairs.shape[0]
    draws = rng.multinomial(count, np.full(count, 1 / count), _RESAMPLES).astype(np.float64)
    totals = np.einsum("ri,ij,rj->r", draws, pairs, draws, optimize=True)
    shares = [np.einsum("ri,ij,rj->r", draws, each, draws, optimize=True)[totals > 0] / totals[totals > 0] for each in right]
    values = [float(each.sum() / pairs.sum()) for each in right]
    before, after = (_interval(value, drawn) for value, drawn in zip(values, shares, strict=True))
    return before, after, _interval(values[1] - values[0], shares[1] - shares[0])


def _interval(value: float, drawn: Floats) -> IntervalEstimate:
    low, high = np.quantile(drawn, [0.025, 0.975])
    # Sums of halves may end a hair above zero, and the question is whether it is above zero.
    return IntervalEstimate(round(value, 12), round(float(low), 12), round(float(high), 12))


def _pairs(scores: Floats, data: _Data, folds: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """By the blocks of both: how many pairs each of the two scores orders as the labels do, and how many pairs there are."""
    blocks = data.groups % _BLOCKS
    count = int(blocks.max()) + 1
    right, pairs = np.zeros((len(scores), count, count)), np.zeros((count, count))
    for place in range(len(data.labels)):
        lower = np.flatnonzero((folds == folds[place]) & (data.labels < data.labels[place]))
        here, others = blocks[place], blocks[lower]
        pairs[here] += np.bincount(others, minlength=count)
        for number, score in enumerate(scores):
            # An attempt whose score is unknown is no better and no worse than another.
            order = (np.sign(np.nan_to_num(np.round(score[place] - score[lower], 9), nan=0.0)) + 1) / 2
            right[number, here] += np.bincount(others, order, minlength=count)
    return right, pairs


def dumps(weights: Mapping[str, float], comment: str = "") -> str:
    """As TOML that `load` reads; a comment stands above it."""
    above = "".join(f"# {line}\n" for line in comment.splitlines())
    return (
        above
        + "[rewards.weights]\n"
        + "".join(f"{json.dumps(name, ensure_ascii=False)} = {weight}\n" for name, weight in sorted(weights.items()))
    )


def load(path: Path) -> dict[str, float]:
    """The weights in a file: TOML with a table [rewards.weights], or JSON with the same in it.

    Raises:
        InputError: It is not there, or holds no weights. Names every fault.
    """
    try:
        text = path.read_text("utf-8")
        data: Any = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except FileNotFoundError:
        raise InputError(f"{path} is not there; `journeyman rewards fit` writes one") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} could not be read as weights: {error}") from None
    rewards = data.get("rewards") if isinstance(data, dict) else None
    weights = rewards.get("weights") if isinstance(rewards, dict) else None
    if not isinstance(weights, dict) or not weights:
        raise InputError(f"{path} holds no weights; they stand in a table [rewards.weights], one for each reward")
    if faults := list(_faults(weights)):
        raise InputError(f"{path}: {'; '.join(faults)}")
    return {name: float(weight) for name, weight in weights.items()}


def _faults(weights: Mapping[str, Any]) -> Iterator[str]:
    for name, weight in weights.items():
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not number or not math.isfinite(weight) or weight < 0:
            yield f"the weight of {name} must be a number from 0 on, not {weight!r}"
    if all(weight == 0 for weight in weights.values()):
        yield "one weight at least must be above 0"
