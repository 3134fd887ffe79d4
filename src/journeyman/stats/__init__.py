"""Statistics without models or files: intervals, evidence, what several looks cost, agreement; and `off_policy` evaluation.

What is about differences takes one number for each task, candidate minus baseline, between -1 and 1. Tasks are taken to be a
sample from the work that matters; nothing is assumed of the numbers' distribution. All functions are deterministic.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_BLOCK = 4_000_000
"""Numbers drawn at once: bounds the memory, not the result's precision."""
_MOST_RESAMPLES = 200_000
_LARGEST_DENOMINATOR = 24
"""Of scores that are counted out exactly: right or wrong, the share of up to ten attempts, tenths of a point."""

_FRACTIONS = np.geomspace(0.03, 0.9, 12)
"""Bets, as fractions of the largest one that cannot ruin the bettor. Small ones find small gains, large ones find large gains
early; spreading the stake over all of them costs a factor of 12 at most."""


def bootstrap_interval(differences: Sequence[float], alpha: float = 0.05, *, seed: int = 0) -> tuple[float, float]:
    """The two-sided interval for the mean gain at level 1 - `alpha`, by resampling tasks.

    A percentile bootstrap to which half a win and half a loss are added, as Agresti and Min do for matched proportions
    (Statistics in Medicine 24, 2005): without them the plain bootstrap and BCa take a handful of lucky tasks for proof, since a
    task that was not drawn cannot be resampled. Simulated coverage of the 95 % interval is at least 94 % from 10 tasks on
    (`benchmarks/sim_gate.py`). The order of tasks does not matter. Nothing known, (-1, 1), when there are no tasks.

    Where all differences are multiples of one fraction, as of tasks that are right or wrong, the distribution of resampled
    means is counted out and no chance is left in the interval; else it is drawn with `seed`.
    """
    if not differences:
        return -1.0, 1.0
    found = np.sort(np.asarray(differences, dtype=np.float64))
    # Every task twice and the two extremes once: drawing one of these is drawing with the halves' weights.
    urn = np.concatenate([found, found, [1.0, -1.0]])
    if denominator := _common_denominator(urn):
        low, high = _counted_quantiles(np.rint(urn * denominator).astype(np.int64), len(found), alpha / 2) / denominator
    else:
        resamples = int(min(_MOST_RESAMPLES, max(10_000, 40 / alpha)))
        low, high = np.quantile(_resampled_means(urn, len(found), resamples, seed), [alpha / 2, 1 - alpha / 2])
    # Sums of thirds may end a hair above zero, and a gate asks whether it is above zero.
    return round(float(low), 12), round(float(high), 12)


def _common_denominator(values: Floats) -> int | None:
    """The smallest whole number that makes all values whole, if a small one does."""
    candidates = np.arange(1, _LARGEST_DENOMINATOR + 1)
    scaled = np.unique(values)[:, None] * candidates
    whole = np.abs(scaled - np.rint(scaled)).max(axis=0) < 1e-9
    return int(candidates[whole.argmax()]) if whole.any() else None


def _counted_quantiles(urn: NDArray[np.int64], size: int, tail: float) -> Floats:
    """The mean of `size` draws from the urn at both ends, each the innermost beyond which lies less than `tail`.

    The distribution of a sum of independent draws is the convolution of theirs: a power of its Fourier transform.
    """
    lowest, span = int(urn.min()), int(urn.max() - urn.min())
    chances = np.bincount(urn - lowest, minlength=span + 1) / len(urn)
    length = span * size + 1
    sums = np.fft.irfft(np.fft.rfft(chances, length) ** size, length).clip(min=0.0)
    low = int(np.searchsorted(np.cumsum(sums), tail))
    high = length - 1 - int(np.searchsorted(np.cumsum(sums[::-1]), tail))
    return np.array([low, high]) / size + lowest


def _resampled_means(urn: Floats, size: int, resamples: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    rows = max(1, _BLOCK // size)
    blocks = [
        urn[rng.integers(len(urn), size=(min(rows, resamples - done), size), dtype=np.int32)].mean(axis=1)
        for done in range(0, resamples, rows)
    ]
    return np.concatenate(blocks)


def e_value(differences: Sequence[float], min_gain: float = 0.0) -> float:
    """The evidence that the mean gain is above `min_gain`: what a bet of 1 against it has become.

    If the true mean gain is not above `min_gain`, the chance that this ever reaches 1/a, looking after every task if one
    likes, is at most a (Ville). The bet is the diversified Kelly bet of Waudby-Smith and Ramdas, "Estimating means of bounded
    random variables by betting", JRSS-B 86 (2024): the stake is spread over fixed fractions, so the order of tasks does not
    matter.
    """
    values, counts = np.unique(np.asarray(differences, dtype=np.float64), return_counts=True)
    return float(np.exp(min(_log_wealth(values, counts, min_gain), 700.0)))


def anytime_interval(differences: Sequence[float], alpha: float = 0.05) -> tuple[float, float]:
    """The two-sided interval for the mean gain that holds at level 1 - `alpha` at all numbers of tasks at once.

    One may look after every batch and stop whenever one likes. Made of the gains against which `e_value`, in either
    direction, has not reached 2/`alpha`; wider than the bootstrap's, which holds for one look.
    """
    if not differences:
        return -1.0, 1.0
    found = np.asarray(differences, dtype=np.float64)
    return _lower_bound(found, alpha), -_lower_bound(-found, alpha)


def _lower_bound(differences: Floats, alpha: float) -> float:
    """The least gain that the bet has not refuted, by bisection: the wealth falls as the gain rises."""
    values, counts = np.unique(differences, return_counts=True)
    refuted = float(np.log(2 / alpha))
    low, high = -1.0, float(differences.mean())
    while high - low > 1e-9:
        middle = (low + high) / 2
        if _log_wealth(values, counts, middle) >= refuted:
            low = middle
        else:
            high = middle
    return low


def _log_wealth(values: Floats, counts: NDArray[np.int64], min_gain: float) -> float:
    """The logarithm of what 1, spread evenly over the fractions, has become."""
    returns = _FRACTIONS[:, None] * ((1 + values) / (1 + min_gain) - 1)
    wealth = np.log1p(returns) @ counts
    return float(np.logaddexp.reduce(wealth) - np.log(len(_FRACTIONS)))


def spent(alpha: float, look: int) -> float:
    """The two-sided level of the `look`-th look at the same held-out tasks, counted from 1: `alpha` / look².

    A pass is wrong with half of that chance, and all looks that will ever be taken add up to `alpha` / 2 · π² / 6, which is
    0.82 `alpha`. So the first look may use its whole interval, and still no number of candidates that are no better gets one
    through more often than `alpha`.
    """
    return alpha / look**2


def without_choice(differences: Sequence[float], chosen_among: int) -> float:
    """The mean gain of the best of so many candidates, less what being the best adds if all of them are alike.

    That is E[max of k standard normals] standard errors, by Blom's approximation of normal order statistics ("Statistical
    Estimates and Transformed Beta-Variables", 1958). A gain never becomes a loss by it, and a loss stays as it is.
    """
    found = np.asarray(differences, dtype=np.float64)
    gain = float(found.mean())
    if chosen_among < 2 or len(found) < 2 or gain <= 0:
        return gain
    largest = NormalDist().inv_cdf((chosen_among - 0.375) / (chosen_among + 0.25))
    return max(0.0, gain - largest * float(found.std(ddof=1)) / math.sqrt(len(found)))


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """The chance that one of `k` samples passes, drawn from `samples` of which `passed` do: 1 - C(n-c, k) / C(n, k).

    The unbiased estimator of Chen et al., "Evaluating Large Language Models Trained on Code" (arXiv 2107.03374, 2021),
    multiplied out as they do.
    """
    if not 0 <= passed <= samples or not 1 <= k <= samples:
        raise ValueError(f"{k} of {samples} samples cannot be drawn, or {passed} of them cannot pass")
    if samples - passed < k:
        return 1.0
    return float(1.0 - np.prod(1.0 - k / np.arange(samples - passed + 1, samples + 1)))


def cohens_kappa(one: Sequence[bool], other: Sequence[bool]) -> float | None:
    """How far two people agree beyond chance on the same things, in the same order: 1 is always, 0 is what chance gives.

    (p - e) / (1 - e), with p the share on which they agree and e the share on which two who answer independently, each as often
    with yes as they did, would: J. Cohen, "A Coefficient of Agreement for Nominal Scales", Educational and Psychological
    Measurement 20 (1960). Not known (`None`) of nothing, and when both always say the same one thing: chance explains all then.

    Raises:
        ValueError: The two did not judge equally many.
    """
    if len(one) != len(other):
        raise ValueError(f"{len(one)} judgements of one and {len(other)} of the other cannot be compared")
    count, agreed, yes, also_yes = len(one), sum(map(bool.__eq__, one, other)), sum(one), sum(other)
    # In whole numbers, n²·e and n²·p: chance of exactly one must be told apart from nearly one.
    chance = yes * also_yes + (count - yes) * (count - also_yes)
    return None if chance == count**2 else (agreed * count - chance) / (count**2 - chance)
