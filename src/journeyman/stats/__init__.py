"""Statistics without models or files: intervals, evidence, what several looks cost, agreement; and off-policy evaluation.

What is about differences takes one number for each task, candidate minus baseline, between -1 and 1. Tasks are taken to be a
sample from the work that matters; nothing is assumed of the numbers' distribution. All functions are deterministic.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from journeyman.core.errors import InputError
from journeyman.core.policy import Choice
from journeyman.core.rollout_decision import FRACTIONS
from journeyman.stats.agreement import cohens_kappa as cohens_kappa

Floats = NDArray[np.float64]

_LARGEST_DENOMINATOR = 24
"""Of scores that are counted out as they are: right or wrong, the share of up to ten attempts, tenths of a point."""
_SUMS = 200_000
"""Other scores lie between the points of a grid, of which there are about so many for the sum over all tasks."""

_LARGEST_INCREASE = 1e4

_FRACTIONS = np.asarray(FRACTIONS)


def bootstrap_interval(differences: Sequence[float], alpha: float = 0.05) -> tuple[float, float]:
    """The two-sided interval for the mean gain at level 1 - `alpha`, by resampling tasks.

    A percentile bootstrap to which half a win and half a loss are added, as Agresti and Min do for matched proportions
    (Statistics in Medicine 24, 2005): without them the plain bootstrap and BCa take a handful of lucky tasks for proof, since a
    task that was not drawn cannot be resampled. Simulated coverage of the 95 % interval is at least 94 % from 10 tasks on
    (`benchmarks/sim_gate.py`). The order of tasks does not matter. Nothing known, (-1, 1), when there are no tasks.

    Nothing is drawn: the distribution of resampled means is counted out. It is exact where all differences are multiples of one
    fraction, as of tasks that are right or wrong; others are shared between the two next points of a fine grid.
    """
    if not differences:
        return -1.0, 1.0
    found = np.sort(np.asarray(differences, dtype=np.float64))
    # Every task twice and the two extremes once: drawing one of these is drawing with the halves' weights.
    urn = np.concatenate([found, found, [1.0, -1.0]])
    low, high = _resampled_quantiles(urn, len(found), alpha / 2)
    # Sums of thirds may end a hair above zero, and a gate asks whether it is above zero.
    return round(low, 12), round(high, 12)


def _common_denominator(values: Floats) -> int | None:
    """The smallest whole number that makes all values whole, if a small one does."""
    candidates = np.arange(1, _LARGEST_DENOMINATOR + 1)
    scaled = np.unique(values)[:, None] * candidates
    whole = np.abs(scaled - np.rint(scaled)).max(axis=0) < 1e-9
    return int(candidates[whole.argmax()]) if whole.any() else None


def _resampled_quantiles(urn: Floats, size: int, tail: float) -> tuple[float, float]:
    """The mean of `size` draws from the urn at both ends, each the innermost beyond which lies less than `tail`.

    The distribution of a sum of independent draws is the convolution of theirs: a power of its Fourier transform. What lies
    between two points of the grid is shared so that its mean stays, and its spread only grows.
    """
    denominator = _common_denominator(urn) or min(512, max(64, _SUMS // (2 * size)))
    at = (urn + 1) * denominator
    below = np.floor(at + 1e-6).astype(np.int64)
    above = np.clip(at - below, 0.0, 1.0)
    span = 2 * denominator
    chances = np.bincount(below, 1 - above, span + 2) + np.bincount(below + 1, above, span + 2)
    length = span * size + 1
    # Transforms of a power of two are quick.
    padded = 1 << (length - 1).bit_length()
    power = _power(np.fft.rfft(chances[: span + 1] / len(urn), padded), size)
    sums = np.fft.irfft(power, padded)[:length].clip(min=0.0)
    low = int(np.searchsorted(np.cumsum(sums), tail))
    high = length - 1 - int(np.searchsorted(np.cumsum(sums[::-1]), tail))
    return low / size / denominator - 1, high / size / denominator - 1


def _power(base: NDArray[np.complex128], exponent: int) -> NDArray[np.complex128]:
    """By squaring; numpy's own takes a logarithm of each."""
    if exponent == 1:
        return base
    half = _power(base, exponent // 2)
    return half * half * base if exponent % 2 else half * half


def cluster_interval(differences: Sequence[float], clusters: Sequence[str], alpha: float = 0.05) -> tuple[float, float]:
    """The two-sided interval for the mean gain where tasks come in clusters, of which those that matter are a sample.

    What is done for one repository or customer goes well or badly together, so that a hundred tasks of ten tell little more
    than ten. Resampling few clusters makes intervals that are too narrow, so this is Student's, by `_of_clusters`. As in
    `bootstrap_interval` half a win and half a loss are added, of whole clusters here: of ten families that all went well the
    eleventh may still be lost. It is never narrower than the interval over tasks. False passes: `benchmarks/sim_clusters.py`.

    Args:
        clusters: Of each difference, the one that it belongs to.
    """
    low, high = bootstrap_interval(differences, alpha)
    if len(set(clusters)) < 2:
        return -1.0, 1.0
    mean, variance, degrees, count = _of_clusters(differences, clusters)
    middle = mean * count / (count + 1)
    wide = students_quantile(1 - alpha / 2, degrees) * math.sqrt(variance + 1 / (count + 1) ** 2)
    return max(-1.0, min(low, round(middle - wide, 12))), min(1.0, max(high, round(middle + wide, 12)))


def highest_increase(
    before: Sequence[float], after: Sequence[float], clusters: Sequence[str], alpha: float = 0.05
) -> float | None:
    """The share of its own mean by which what was measured before may have grown: the high end of the two-sided interval.

    It is the largest share that cannot be refused, as in Fieller's interval for a ratio of means, by Student's test of what is
    left when the share is taken off task by task. `None` where nothing bounds it: there are two tasks, or nearly
    nothing was taken before.
    """
    was, now = np.asarray(before, np.float64), np.asarray(after, np.float64)
    if len(set(clusters)) < 2:
        return None
    beyond = students_quantile(1 - alpha / 2, _of_clusters(was.tolist(), clusters)[2])

    def refused(share: float) -> bool:
        mean, variance, _, _ = _of_clusters((now - (1 + share) * was).tolist(), clusters)
        return mean + beyond * math.sqrt(variance) <= 0

    low, high = -1.0, 1.0
    while not refused(high):
        low, high = high, 2 * high
        if high > _LARGEST_INCREASE:
            return None
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if refused(middle) else (middle, high)
    return round(high, 6)


def _of_clusters(values: Sequence[float], clusters: Sequence[str]) -> tuple[float, float, float, int]:
    """The mean of values, its variance, the degrees of freedom of that, and of how many clusters.

    The variance is CR2, which is free of bias where values are independent: Bell and McCaffrey, "Bias reduction in standard
    errors for linear regression with multi-stage samples" (Survey Methodology 28, 2002).
    """
    _, which = np.unique(np.asarray(clusters), return_inverse=True)
    sizes = np.bincount(which).astype(np.float64)
    mean = float(np.mean(values))
    left = np.bincount(which, weights=np.asarray(values, np.float64) - mean)
    variance = float((left**2 / (1 - sizes / sizes.sum())).sum() / sizes.sum() ** 2)
    return mean, variance, degrees_of_freedom(sizes.tolist()), len(sizes)


def degrees_of_freedom(sizes: Sequence[float]) -> float:
    """Of the variance of a mean over clusters of these sizes, or shares: Satterthwaite's for CR2 (Bell and McCaffrey).

    They are taken for clusters that wholly go together, the least that they can be: two where one cluster has most of the
    tasks, one less than there are clusters where all are alike.
    """
    shares = np.asarray(sizes, np.float64) / float(np.sum(sizes))
    weights, spread = 1 / (1 - shares), shares**2
    # Traces of the quadratic form's matrix, diag(w) - pw·1' - 1·pw' + c, times that of the sums' variances, and of its square.
    pulled, common = weights * shares, float((weights * shares**2).sum())
    first = float(((weights - 2 * pulled + common) * spread).sum())
    total, once, twice = float(spread.sum()), float((pulled * spread).sum()), float((pulled**2 * spread).sum())
    pairs = common**2 * total**2 - 4 * common * once * total + 2 * twice * total + 2 * once**2
    second = pairs + float((spread**2 * (weights**2 + 2 * weights * (common - 2 * pulled))).sum())
    return first**2 / second


@lru_cache(maxsize=256)
def students_quantile(chance: float, degrees: float) -> float:
    """The value below which so much of Student's t lies, above its middle. With x = √v·tan(a) its density is cos(a)^(v - 1)."""
    angles = np.linspace(0.0, np.pi / 2, 200_001)[:-1]
    density = np.cos(angles) ** (degrees - 1)
    beyond = np.cumsum(((density[1:] + density[:-1]) / 2)[::-1])[::-1]
    at = np.interp(2 * (1 - chance), (beyond / beyond[0])[::-1], angles[:-1][::-1])
    return float(math.sqrt(degrees) * np.tan(at))


def share_interval(count: int, total: float, squares: float) -> tuple[float, float]:
    """The 95 % interval of the mean of values from 0 to 1, by their number, sum and sum of squares; 0 to 1 without any.

    Student's, with a 0 and a 1 more (Agresti and Coull for shares): equal values do not make it certain.
    """
    n = count + 2
    mean = (total + 1) / n
    variance = max(0.0, (squares + 1) / n - mean**2) * n / (n - 1)
    wide = (students_quantile(0.975, n - 1) if n < _MANY else _NORMAL) * math.sqrt(variance / n)
    return max(0.0, mean - wide), min(1.0, mean + wide)


_MANY, _NORMAL = 60, 1.96
"""From so many values on Student's t is the normal distribution, to a fiftieth."""


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


def planned_level(alpha: float, share: float) -> float:
    """The two-sided level of a look when so much of the planned tasks is there; any number of such looks add up to `alpha`.

    O'Brien and Fleming's boundary ("A Multiple Testing Procedure for Clinical Trials", Biometrics 35, 1979) for looks as often
    as one likes: a Brownian motion exceeds c before its end twice as often as at it, so c is the quantile of half the chance,
    and a look at `share` asks for c / √share standard errors. It takes 1.2 times the tasks of one look, at most.
    """
    return math.erfc(NormalDist().inv_cdf(1 - alpha / 4) / math.sqrt(2 * share))


def without_choice(differences: Sequence[float], chosen_among: int, clusters: Sequence[str] = ()) -> float:
    """The mean gain of the best of so many candidates, less what being the best adds if all of them are alike.

    That is E[max of k standard normals] standard errors, by Blom's approximation of normal order statistics ("Statistical
    Estimates and Transformed Beta-Variables", 1958). A gain never becomes a loss by it, and a loss stays as it is.
    """
    found = np.asarray(differences, dtype=np.float64)
    gain = float(found.mean())
    if chosen_among < 2 or len(found) < 2 or gain <= 0:
        return gain
    largest = NormalDist().inv_cdf((chosen_among - 0.375) / (chosen_among + 0.25))
    variance = _of_clusters(differences, clusters)[1] if len(set(clusters)) > 1 else float(found.var(ddof=1)) / len(found)
    return max(0.0, gain - largest * math.sqrt(variance))


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


# Off-policy evaluation: what another policy would have brought, told from the log of decisions alone, or refused where the log
# cannot tell.

MIN_EFFECTIVE_SAMPLE = 100.0
"""Effective decisions below which no answer is given."""
_OUTSIDE = 0.01
"""Share of the other policy's choices that may lie where the log has none."""
_SUSPICIOUS = 4.0
"""Standard errors by which the mean weight may be off 1, which it is when each propensity is what it says."""
_RIDGE = 10.0
_SHRINK = 10.0


@dataclass(frozen=True, kw_only=True)
class LoggedDecisions:
    """n decisions among m workers, each with its probability and what it brought."""

    workers: tuple[str, ...]
    actions: NDArray[np.int64]
    """(n,), the chosen worker's column."""
    propensities: Floats
    """(n,), the probability with which it was chosen."""
    rewards: Floats
    """(n,)"""
    candidates: NDArray[np.bool_]
    """(n, m), who could have been chosen."""
    features: Floats
    """(n, d), of the requests, for the model of outcomes; d may be 0. Few dimensions serve better: see `request_features`."""
    skipped: int = 0
    """Decisions left out, as nobody knows what they were worth."""

    def __post_init__(self) -> None:
        low = float(self.propensities.min(initial=1.0))
        if not (low > 0 and float(self.propensities.max(initial=1.0)) <= 1):
            raise InputError(f"a propensity is {low:g}; each is the probability of what was chosen, above 0 and at most 1")

    def __len__(self) -> int:
        return len(self.actions)

    @classmethod
    def of(
        cls, choices: Sequence[Choice], rewards: ArrayLike, features: ArrayLike | None = None, *, workers: Sequence[str] = ()
    ) -> "LoggedDecisions":
        """A log of single decisions.

        Args:
            choices: n, what was chosen.
            rewards: Shape (n,), what came of it; NaN where nobody knows, and the decision is left out.
            features: Shape (n, d), of the requests, where there are any.
            workers: Others that the log does not know, and another policy may choose.

        Raises:
            InputError: No decision has a known worth, or a propensity is none.
        """
        worth = np.asarray(rewards, np.float64)
        known = np.flatnonzero(np.isfinite(worth))
        if not len(known):
            raise InputError("no decision of the log has a known worth, so there is nothing to evaluate another policy with")
        names = sorted({name for choice in choices for name in (choice.worker, *choice.candidates)} | set(workers))
        column = {name: at for at, name in enumerate(names)}
        chosen = [choices[at] for at in known.tolist()]
        described = np.zeros((len(choices), 0)) if features is None else np.asarray(features, np.float64)
        return cls(
            workers=tuple(names),
            actions=np.asarray([column[choice.worker] for choice in chosen]),
            propensities=np.asarray([choice.propensity for choice in chosen], np.float64),
            rewards=worth[known],
            candidates=np.asarray([[name in choice.candidates for name in names] for choice in chosen]),
            features=described[known],
            skipped=len(choices) - len(known),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyValue:
    """What a policy would have brought for each decision."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} ({self.low:.4f} to {self.high:.4f})"


@dataclass(frozen=True, kw_only=True)
class OffPolicyResult:
    """What another policy would have brought, or why that cannot be told."""

    decisions: int
    effective: float
    """How many decisions drawn by the other policy itself would tell as much: Kish's (Σw)² / Σw²."""
    logged: PolicyValue
    """What the policy in force brought."""
    estimates: Mapping[str, PolicyValue]
    """"IPS", "SNIPS", "DM" (the model of outcomes alone; its interval does not know its bias) and "DR"; empty when refused."""
    gain: PolicyValue | None
    """The doubly robust estimate less what was logged, paired by decision; `None` when refused."""
    refused: str
    """Why no answer is given, in one sentence; empty when one is."""

    @property
    def better(self) -> bool:
        """Whether even the low end of the gain is one. Only that is reason to change the policy."""
        return self.gain is not None and self.gain.low > 0


def evaluate_policy(
    logged: LoggedDecisions,
    target: ArrayLike,
    *,
    alpha: float = 0.05,
    folds: int = 5,
    seed: int = 0,
    min_sample: float = MIN_EFFECTIVE_SAMPLE,
) -> OffPolicyResult:
    """Inverse propensity scores, the same self-normalised, a cross-fitted model of outcomes, and both together.

    Horvitz and Thompson (JASA 47, 1952); Swaminathan and Joachims, "The Self-Normalized Estimator for Counterfactual Learning"
    (2015); Dudík et al., "Doubly Robust Policy Evaluation and Optimization" (Statistical Science 29, 2014); intervals by the
    estimators' influence functions. Doubly robust is the one to report: right when either propensities or model are.

    Args:
        logged: The decisions.
        target: Shape (n, m), the other policy's probabilities over the workers for the same requests.
        alpha: One minus the level of the intervals.
        folds: Of cross-fitting: no decision is judged by a model that has seen it.
        seed: Which decisions go to which fold.
        min_sample: Effective decisions that are asked for.

    Raises:
        InputError: The probabilities have another shape, or do not add up to 1.
    """
    chances = np.asarray(target, np.float64)
    if chances.shape != logged.candidates.shape or not np.allclose(chances.sum(axis=1), 1.0, atol=1e-6) or chances.min() < 0:
        raise InputError(f"the other policy needs probabilities of shape {logged.candidates.shape}, each row adding up to 1")
    rows = np.arange(len(logged))
    weights = chances[rows, logged.actions] / logged.propensities
    effective = float(weights.sum() ** 2 / max(float((weights**2).sum()), 1e-300))
    taken = np.eye(len(logged.workers))[logged.actions]
    unseen = _Unseen.of(logged, taken, weights, alpha)
    now = _interval(logged.rewards, alpha, unseen, taken.mean(axis=0))
    if refused := _refusal(logged, chances, weights, effective, min_sample):
        return OffPolicyResult(decisions=len(logged), effective=effective, logged=now, estimates={}, gain=None, refused=refused)
    expected = _cross_fitted(logged, folds, seed)
    direct = (chances * expected).sum(axis=1)
    doubly = direct + weights * (logged.rewards - expected[rows, logged.actions])
    normalised = float((weights * logged.rewards).sum() / weights.sum())
    scores = {
        "IPS": weights * logged.rewards,
        "SNIPS": normalised + weights * (logged.rewards - normalised) / weights.mean(),
        "DM": direct,
        "DR": doubly,
    }
    shares = chances.mean(axis=0)
    estimates = {name: _interval(found, alpha, unseen, shares) for name, found in scores.items()}
    gain = _interval(doubly - logged.rewards, alpha, unseen, shares - taken.mean(axis=0))
    return OffPolicyResult(decisions=len(logged), effective=effective, logged=now, estimates=estimates, gain=gain, refused="")


def _refusal(logged: LoggedDecisions, chances: Floats, weights: Floats, effective: float, min_sample: float) -> str:
    tried = np.bincount(logged.actions, minlength=len(logged.workers)) > 0
    lacking = np.where(logged.candidates & tried, 0.0, chances)
    if (outside := float(lacking.sum(axis=1).mean())) > _OUTSIDE:
        missing = logged.workers[int(lacking.sum(axis=0).argmax())]
        return (
            f"{outside:.1%} of its choices lie where the log has none, most of them {missing}; "
            "explore there first, or leave that worker out"
        )
    if effective < min_sample:
        return (
            f"the {len(logged)} decisions tell as much as {effective:.0f} of its own, and {min_sample:.0f} are needed; "
            "log more of them, or explore a larger share"
        )
    if not logged.rewards.std():
        return (
            f"all {len(logged)} decisions brought the same, so nothing tells one worker from another; "
            "log until some of them fail, or some succeed"
        )
    error = float(weights.std()) / np.sqrt(len(weights))
    if error > 0 and abs(float(weights.mean()) - 1) > _SUSPICIOUS * error:
        return (
            f"the weights' mean is {weights.mean():.3f} where 1 is due, which chance does not explain: "
            "the recorded propensities are not those by which was chosen"
        )
    return ""


@dataclass(frozen=True, slots=True)
class _Unseen:
    """What the log may not have shown yet of each worker: where all of a hundred succeed, the next may still fail.

    Some decisions with the least reward of the log and as many with the largest join those of each worker, as in Agresti and
    Coull, "Approximate is Better than 'Exact' for Interval Estimation of Binomial Proportions" (The American Statistician 52,
    1998), and for differences in Agresti and Caffo (54, 2000).
    """

    shift: Floats
    """(m,), by which it moves a worker's mean."""
    variance: Floats
    """(m,), which it adds to that of the mean."""

    @classmethod
    def of(cls, logged: LoggedDecisions, taken: Floats, weights: Floats, alpha: float) -> "_Unseen":
        added = NormalDist().inv_cdf(1 - alpha / 2) ** 2 / 2
        # A worker whom the other policy never chooses matters by what the log says of it alone.
        weighed = taken * np.where(weights @ taken > 0, weights[:, None], 1.0)
        sums = np.maximum(weighed.sum(axis=0), 1e-300)
        means, counts = logged.rewards @ weighed / sums, sums**2 / np.maximum((weighed**2).sum(axis=0), 1e-300)
        extremes, together = np.array([[logged.rewards.min()], [logged.rewards.max()]]), counts + 2 * added
        middles = (counts * means + added * extremes.sum(axis=0)) / together
        apart = counts * (means - middles) ** 2 + added * ((extremes - middles) ** 2).sum(axis=0)
        return cls(shift=middles - means, variance=apart / together**2)


def _interval(scores: Floats, alpha: float, unseen: _Unseen, shares: Floats) -> PolicyValue:
    """The mean of scores, to which each worker belongs with its share; the interval is by their spread and what is unseen.

    It holds the interval around the mean and the one around where the unseen would move it: either alone is wrong too often on
    the side that is rare.
    """
    value, shift = float(scores.mean()), float(shares @ unseen.shift)
    spread = float(scores.var(ddof=1)) / len(scores) if len(scores) > 1 else math.inf
    wide = NormalDist().inv_cdf(1 - alpha / 2) * math.sqrt(spread + float(shares**2 @ unseen.variance))
    return PolicyValue(value=value, low=value + min(shift, 0.0) - wide, high=value + max(shift, 0.0) + wide)


def _cross_fitted(logged: LoggedDecisions, folds: int, seed: int) -> Floats:
    order = np.random.default_rng(seed).permutation(len(logged))
    expected = np.empty(logged.candidates.shape)
    for held in np.array_split(order, folds):
        seen = np.setdiff1d(order, held, assume_unique=True)
        expected[held] = _fit_outcomes(logged, seen, held)
    return expected


def _fit_outcomes(logged: LoggedDecisions, seen: NDArray[np.int64], asked: NDArray[np.int64]) -> Floats:
    """What each worker is expected to bring: how hard the request is, then each worker's own departure from it.

    Ridge regressions, the second level on what the first leaves; a worker's mean is shrunk to the level of all.
    """
    features, rewards, actions = logged.features[seen], logged.rewards[seen], logged.actions[seen]
    middle, features_mean = float(rewards.mean()), features.mean(axis=0)
    common = _ridge(features - features_mean, rewards - middle)
    left = rewards - middle - (features - features_mean) @ common
    asked_features = logged.features[asked] - features_mean
    base = middle + asked_features @ common
    expected = np.tile(base[:, None], len(logged.workers))
    for worker in range(len(logged.workers)):
        of = actions == worker
        if not of.any():
            continue
        shift = float(left[of].sum() / (of.sum() + _SHRINK))
        own = _ridge(features[of] - features_mean, left[of] - shift)
        expected[:, worker] += shift + asked_features @ own
    return expected


def _ridge(features: Floats, wanted: Floats) -> Floats:
    size = features.shape[1]
    # In units of the features' own spread, so that a long vector is not penalised less than a short one.
    spread = float((features**2).mean()) if size else 0.0
    solved = np.linalg.solve(features.T @ features + (_RIDGE * spread + 1e-12) * np.eye(size), features.T @ wanted)
    return np.asarray(solved, np.float64)


def request_features(vectors: ArrayLike, types: Sequence[str] = (), *, most: int = 24) -> Floats:
    """Features of requests for `LoggedDecisions`: the main directions of their embeddings, then which type they are of.

    Shape (n, up to `most` + number of types). The model of outcomes sees one worker for each request, so it is given little to
    learn.
    """
    found = np.asarray(vectors, np.float64)
    centred = found - found.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    main = centred @ directions[:, ::-1][:, :most]
    scaled: Floats = main / max(float(main.std()), 1e-12)
    names = sorted(set(types))
    if len(names) < 2:
        return scaled
    which = np.asarray([[float(type == name) for name in names] for type in types])
    return np.hstack([scaled, which])
