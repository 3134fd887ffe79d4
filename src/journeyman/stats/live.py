"""Evidence from live traffic, one session at a time: a canary beside production, sample ratio, and harm after a promotion.

All of it holds whenever one looks, and as often (Ville's inequality), for any distribution of scores from 0 to 1; a session is
one number however long it was, so tasks within one may go well or badly together. Sessions come in the order of their
assignment, each when its outcome window is over, never in the order of their labels. Each class takes one session in constant
time and memory, and `from_state(state())` goes on to the same bits.

Every class keeps arrays of shape (runs, …): a rollout is one run, and a simulation is a thousand at once through the same code.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from journeyman.core.errors import InputError
from journeyman.core.rollout_decision import (
    DOUBT,
    FRACTIONS,
    LARGEST,
    WATCH_ALPHA,
    ArmEvidence,
    RatioFound,
    decisive_differences,
    is_watch,
    level,
)
from journeyman.core.rollout_plan import SCALED, Metric, RolloutPlan

Floats = NDArray[np.float64]

_BETS = np.asarray(FRACTIONS)
_HALF_GRID = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7)
GRID = tuple(sorted({0.0, *_HALF_GRID, *(-each for each in _HALF_GRID)}))
"""Differences at which an interval can end. Those that a plan asks about are added, so that its answers are exact."""
_BOLD = 2.0
"""Of what has no bound: there what twice as much takes is a large difference on the scale, and what takes a twentieth more is
within the tolerance."""
_LEAST, _MOST = 0.02, 0.98
"""What production is expected to score, at least and at most: beyond, a single surprise would weigh too much."""


def _array(value: ArrayLike, runs: int) -> Floats:
    found = np.asarray(value, np.float64)
    return found if found.shape == (runs,) else np.full(runs, found)


class BettingEvidence:
    """What one arm's scores tell of its difference to production: a bet against each difference of a grid, from either side.

    For the i-th session, with score s, the arm's share p when it was assigned, and m the mean score of *earlier* sessions of
    production (so it is known before):

        Z = (s - m) / p  on the arm,  -(s - m) / (1 - p)  on production;   E[Z | past] = the difference, exactly
        against "the difference is d or more":  1 becomes a mean over f of Π (1 + f · (d - Z) / (max Z - d))
        against "the difference is d or less":  1 becomes a mean over f of Π (1 + f · (Z - d) / (d - min Z))
        max Z = max((1 - m)/p, m/(1 - p)),  min Z = -max(m/p, (1 - m)/(1 - p)),  f of `FRACTIONS`

    Where such a statement is true, the chance that its bet ever reaches 1/alpha is at most alpha. The share is that of each
    session's own assignment, so sessions are compared within each share: neither a ramp nor a baseline that drifts meanwhile
    makes a difference of none (AIPW with known propensities). Any m that is known before keeps that promise; a good one makes
    the evidence come sooner.

    Betting: Waudby-Smith and Ramdas, JRSS-B 86 (2024). Predictable propensities: Waudby-Smith, Wu, Ramdas, Karampatziakis and
    Mineiro, "Anytime-valid off-policy inference for contextual bandits" (ACM/IMS J. Data Science, 2024).

    Bets cannot be asked about a difference afterwards without all sessions. So bets against each difference of the grid are
    carried on, and an interval ends at one of these, the next one outwards: it is a little wider than it could be and never
    narrower. What a bet has become at most is kept too: a verdict does not hang on when somebody looked.

    State: bets (runs, 2 sides, differences, 12), their largest means (runs, 2, differences), and seven sums of each run.
    """

    def __init__(
        self,
        differences: Sequence[float] = GRID,
        *,
        prior: tuple[float, float] = (0.5, 2.0),
        runs: int = 1,
        boldness: float = 0.0,
    ) -> None:
        """
        Args:
            differences: Those that are bet against.
            prior: Production's mean score as far as it is known before, and how many sessions that is worth.
            boldness: How the weights of the f rise: the k-th smallest weighs k to the power of this. Small f find small
                differences after many sessions, large ones large differences after few.

        Raises:
            InputError: A difference is not between -1 and 1, or the prior is none.
        """
        if not differences or not all(-1 < each < 1 for each in differences):
            raise InputError(f"differences of scores are above -1 and below 1, not {list(differences)}")
        if not (0 <= prior[0] <= 1 and 0 < prior[1] < math.inf):
            raise InputError(f"a prior is a mean from 0 to 1 and a weight above 0, not {prior}")
        self.runs, self.prior, self.boldness = runs, prior, boldness
        rising = np.arange(1, len(_BETS) + 1.0) ** boldness
        self._weights: Floats = rising / rising.sum()
        self.differences: Floats = np.asarray(sorted(set(differences)))
        shape = (runs, 2, len(self.differences))
        # A side's first index: 0 bets that the difference is below, 1 that it is above.
        self._bets, self._largest = np.ones((*shape, len(_BETS))), np.ones(shape)
        # Sessions of the arm, of production; scores of the arm, of production; Σ w·Z, Σ w.
        self._sums = np.zeros((runs, 6))

    @property
    def mean(self) -> Floats:
        """What production is expected to score next."""
        expected, weight = self.prior
        found: Floats = (weight * expected + self._sums[:, 3]) / (weight + self._sums[:, 1])
        return np.minimum(np.maximum(found, _LEAST), _MOST)

    def add(self, score: ArrayLike, *, canary: ArrayLike, share: ArrayLike, production: ArrayLike | None = None) -> None:
        """Takes the next session of each run.

        Args:
            score: From 0 to 1; NaN is unknown, and such a session tells nothing.
            canary: Whether it is on the arm; else it is on production.
            share: The arm's at its assignment. A session that could only go one way, at a share of 0 or 1, tells nothing.
            production: That of production, where there are more arms. A session of these others is not to be given: among those
                that are on one of the two, the arm's share is share / (share + production).

        Raises:
            InputError: A score or a share lies outside 0 to 1.
        """
        scores, pi = _array(score, self.runs), _array(share, self.runs)
        if production is not None:
            pi = pi / np.maximum(pi + _array(production, self.runs), 1e-300)
        on_arm = _array(canary, self.runs) != 0
        known = ~np.isnan(scores) & (pi > 0) & (pi < 1)
        if (known & ~((scores >= 0) & (scores <= 1)) | ~((pi >= 0) & (pi <= 1))).any():
            raise InputError("a session's score and its arm's share are from 0 to 1; a score that is not known is NaN")
        if known.any():
            self._bet(np.where(known, scores, 0.0), on_arm, np.where(known, pi, 0.5), known)

    def _bet(self, scores: Floats, on_arm: NDArray[np.bool_], pi: Floats, known: NDArray[np.bool_]) -> None:
        mean, d = self.mean, self.differences
        off, rest = scores - mean, 1 - pi
        z = np.where(on_arm, off / pi, -off / rest)[:, None]
        most = np.maximum((1 - mean) / pi, mean / rest)[:, None]
        least = -np.maximum(mean / pi, (1 - mean) / rest)[:, None]
        returns = np.empty(self._largest.shape)
        returns[:, 0], returns[:, 1] = (d - z) / (most - d), (z - d) / (d - least)
        returns *= known[:, None, None]
        # Rounding must not take a bet below what its stake can lose.
        np.maximum(returns, -1.0, out=returns)
        self._bets *= 1 + _BETS * returns[..., None]
        np.minimum(self._bets, LARGEST, out=self._bets)
        np.maximum(self._largest, self._bets @ self._weights, out=self._largest)
        weight, arm, others = known * pi * rest, known & on_arm, known & ~on_arm
        self._sums += np.array([arm, others, arm * scores, others * scores, weight * z[:, 0], weight]).T

    def e_below(self, difference: float) -> Floats:
        """The most that a bet on a difference below this has been, of each run. One that the grid has."""
        found: Floats = self._largest[:, 0, self._at(difference)]
        return found

    def e_above(self, difference: float) -> Floats:
        """The same of one above it."""
        found: Floats = self._largest[:, 1, self._at(difference)]
        return found

    def _at(self, difference: float) -> int:
        at = int(np.argmin(np.abs(self.differences - difference)))
        if self.differences[at] != difference:
            raise InputError(f"no bet was made against a difference of {difference:g}; name it when the evidence is begun")
        return at

    def interval(self, alpha_low: float, alpha_high: float, *, ever: bool = True) -> tuple[Floats, Floats]:
        """The differences that are not refuted, of each run: above the first and below the second, at all looks at once.

        Each end is wrong with its own alpha. -1 and 1 where nothing is refuted. The first may lie above the second: then no one
        difference was true of all sessions.

        Args:
            ever: By what the bets have been at most; else by what they are now.
        """
        wealth = self._largest if ever else self._bets @ self._weights
        # The bet on "below" rises with the difference and that on "above" falls, also where they are rounded.
        below, above = wealth[:, 0] >= 1 / alpha_high, wealth[:, 1] >= 1 / alpha_low
        high = np.where(below.any(axis=1), self.differences[below.argmax(axis=1)], 1.0)
        last = len(self.differences) - 1 - above[:, ::-1].argmax(axis=1)
        return np.where(above.any(axis=1), self.differences[last], -1.0), high

    @property
    def difference(self) -> Floats:
        """The mean of Z, each session weighing p·(1 - p), so that those of a small share do not drown it. NaN without any."""
        weights = self._sums[:, 5]
        found: Floats = np.divide(self._sums[:, 4], weights, out=np.full(self.runs, np.nan), where=weights > 0)
        return found

    @property
    def counts(self) -> NDArray[np.int64]:
        """(runs, 2): sessions of the arm and of production."""
        return self._sums[:, :2].astype(np.int64)

    @property
    def means(self) -> Floats:
        """(runs, 2): the arm's and production's mean score over all shares, to be shown and never compared. NaN of none."""
        counts = self._sums[:, :2]
        found: Floats = np.divide(self._sums[:, 2:4], counts, out=np.full((self.runs, 2), np.nan), where=counts > 0)
        return found

    def keep(self, runs: NDArray[np.bool_]) -> None:
        """Forgets the other runs."""
        self._bets, self._largest, self._sums = self._bets[runs], self._largest[runs], self._sums[runs]
        self.runs = len(self._sums)

    def state(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "differences": self.differences.tolist(),
            "prior": list(self.prior),
            "boldness": self.boldness,
            "bets": self._bets.tolist(),
            "largest": self._largest.tolist(),
            "sums": self._sums.tolist(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Goes on as if it had never stopped.

        Raises:
            InputError: It is not what `state` gave.
        """
        try:
            mean, weight = (float(each) for each in state["prior"])
            bets, largest, sums = (np.asarray(state[name], np.float64) for name in ("bets", "largest", "sums"))
            differences, boldness = [float(each) for each in state["differences"]], float(state.get("boldness", 0.0))
            evidence = cls(differences, prior=(mean, weight), runs=len(sums), boldness=boldness)
        except (KeyError, TypeError, ValueError):
            raise InputError("this is no state of such evidence; make it anew from the sessions") from None
        if (bets.shape, largest.shape, sums.shape) != (
            evidence._bets.shape,
            evidence._largest.shape,
            evidence._sums.shape,
        ):
            raise InputError("the parts of this state do not belong together; make it anew from the sessions")
        evidence._bets, evidence._largest, evidence._sums = bets, largest, sums
        return evidence


def evidence_for(
    plan: RolloutPlan, metric: Metric, *, prior: tuple[float, float] = (0.5, 2.0), runs: int = 1, whole: bool = True
) -> BettingEvidence:
    """New evidence of a metric, which answers all that the plan asks.

    Args:
        whole: With intervals on the whole grid, to be shown; else only what decides.
    """
    differences = (*decisive_differences(plan, metric), *(GRID if whole else ()))
    return BettingEvidence(differences, prior=prior, runs=runs, boldness=_BOLD if metric.name in SCALED else 0.0)


def compared(evidence: BettingEvidence, plan: RolloutPlan, metric: Metric, *, arms: int = 1) -> list[ArmEvidence]:
    """What `rollout_decision.decide` asks of a metric, of each run, at the plan's levels.

    Args:
        arms: Candidates that are compared with production: each gets its part of the levels.
    """
    harm = level(plan, metric, arms)
    promote = WATCH_ALPHA if is_watch(metric) else plan.alpha_promote / arms
    low, high = evidence.interval(promote, harm)
    doubt = evidence.interval(promote, min(1.0, DOUBT * harm), ever=False)[1]
    better = metric.name == plan.primary.name and metric.require == "better"
    needed = -metric.margin if metric.name == plan.primary.name and not better else 0.0
    difference = np.where(np.isnan(evidence.difference), 0.0, evidence.difference)
    inside = np.where(low <= high, difference.clip(low, np.maximum(low, high)), difference.clip(-1.0, 1.0))
    e_harm, e_promote = evidence.e_below(-metric.tolerance + 0.0), _e_promote(evidence, needed)
    columns = (evidence.counts[:, 0], evidence.counts[:, 1], inside, low, high, doubt, e_harm, e_promote)
    names = ("canary", "production", "difference", "low", "high", "high_doubt", "e_harm", "e_promote")
    rows = zip(*(each.tolist() for each in columns), strict=True)
    return [ArmEvidence(**dict(zip(names, row, strict=True))) for row in rows]


def _e_promote(evidence: BettingEvidence, needed: float) -> Floats:
    return evidence.e_above(needed) if needed in evidence.differences else np.ones(evidence.runs)


class SampleRatio:
    """Whether sessions fall on the arms as they were drawn: a Dirichlet-multinomial e-process per set of shares, multiplied.

    A session on arm k, of share θ_k, multiplies E by ((c·θ_k + n_k) / (c + n)) / θ_k, where n_k of n earlier sessions *at these
    shares* fell on it. As long as they fall as drawn, the chance that E ever reaches 1/alpha is at most alpha. It is the
    product of these steps that Lindon and Malek, "Anytime-valid inference for multinomial count data" (NeurIPS 2022), write
    with gamma functions.

    State: the logarithms of E and of its largest value (runs,), and for each set of shares the counts (runs, arms).
    """

    PRIOR = 100.0
    """c: how many sessions the shares themselves are worth. A large one finds small faults, a small one large ones early."""

    def __init__(self, arms: int = 2, *, runs: int = 1) -> None:
        """
        Args:
            arms: With production.
        """
        self.arms, self.runs = arms, runs
        self._log, self._largest = np.zeros(runs), np.zeros(runs)
        self._counts: dict[tuple[float, ...], Floats] = {}

    def add(self, arm: ArrayLike, shares: Sequence[float], *, among: NDArray[np.bool_] | None = None) -> None:
        """Takes the next session of each run.

        Args:
            arm: The number of its arm.
            shares: Of all arms, production's included, when it was assigned; they add up to 1.
            among: The runs that have a session at these shares; without it all.

        Raises:
            InputError: The shares do not add up to 1, or a session is on an arm that had none.
        """
        key = tuple(float(each) for each in shares)
        if len(key) != self.arms or not math.isclose(sum(key), 1.0, abs_tol=1e-6) or not all(0 <= each <= 1 for each in key):
            raise InputError(f"the shares of {self.arms} arms add up to 1, not {list(key)}")
        where = np.broadcast_to(np.asarray(arm, np.int64), (self.runs,))
        theta = np.asarray(key)[where]
        every = np.ones(self.runs, bool) if among is None else among
        if not (theta[every] > 0).all():
            raise InputError("a session is on an arm that was given no share when it was assigned")
        counts = self._counts.setdefault(key, np.zeros((self.runs, self.arms)))
        rows = np.flatnonzero(every)
        at = counts[rows, where[rows]]
        expected = theta[rows] * (self.PRIOR + counts[rows].sum(axis=1))
        self._log[rows] += np.log((self.PRIOR * theta[rows] + at) / expected)
        counts[rows, where[rows]] += 1
        np.maximum(self._largest, self._log, out=self._largest)

    def found(self, arm: int = 1) -> list[RatioFound]:
        """For `rollout_decision.decide`, of each run."""
        fell, expected, sessions = np.zeros(self.runs), np.zeros(self.runs), np.zeros(self.runs)
        for shares, counts in self._counts.items():
            n = counts.sum(axis=1)
            fell, expected, sessions = fell + counts[:, arm], expected + shares[arm] * n, sessions + n
        values = np.exp(np.minimum(self._largest, 690.0))
        rows = zip(values.tolist(), fell.tolist(), expected.tolist(), sessions.tolist(), strict=True)
        return [RatioFound(e_value=e, canary=int(k), expected=x, sessions=int(n)) for e, k, x, n in rows]

    def keep(self, runs: NDArray[np.bool_]) -> None:
        """Forgets the other runs."""
        self._log, self._largest = self._log[runs], self._largest[runs]
        self._counts = {shares: counts[runs] for shares, counts in self._counts.items()}
        self.runs = len(self._log)

    def state(self) -> dict[str, Any]:
        """For JSON."""
        counts = [{"shares": list(shares), "counts": found.tolist()} for shares, found in self._counts.items()]
        return {"arms": self.arms, "log": self._log.tolist(), "largest": self._largest.tolist(), "counts": counts}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Goes on as if it had never stopped.

        Raises:
            InputError: It is not what `state` gave.
        """
        try:
            ratio = cls(int(state["arms"]), runs=len(state["log"]))
            ratio._log, ratio._largest = (np.asarray(state[name], np.float64) for name in ("log", "largest"))
            for each in state["counts"]:
                counts = np.asarray(each["counts"], np.float64).reshape(ratio.runs, ratio.arms)
                ratio._counts[tuple(float(share) for share in each["shares"])] = counts
        except (KeyError, TypeError, ValueError):
            raise InputError("this is no state of a sample ratio; make it anew from the sessions") from None
        return ratio


class HarmDetector:
    """Whether what was promoted has become worse than it was, without anybody to compare with: a Shiryaev-Roberts e-detector.

    With μ the mean that was shown at promotion less what is tolerated, each session of score s makes
    M = (1 + M) · (1 + f · (μ - s) / (1 - μ)), averaged over f of `FRACTIONS`. As long as the mean is μ or more, M reaches
    `alarm` after that many sessions on the mean, at least, whatever the distribution: Shin, Ramdas and Rinaldo, "E-detectors: a
    nonparametric framework for sequential change detection" (New England Journal of Statistics in Data Science 2, 2024). It
    cannot tell a worse release from harder work.

    State: M (runs, 12), and its largest mean (runs,).
    """

    def __init__(self, mean: float, *, tolerance: float = 0.03, alarm: float = 12_000.0, runs: int = 1) -> None:
        """
        Args:
            mean: The low end of what was shown at promotion.
            tolerance: So much worse is no alarm. Not 0: then half of all means that are as before are a little worse.
            alarm: In sessions.

        Raises:
            InputError: Nothing could be below the mean less the tolerance.
        """
        if not 0 < mean - tolerance < 1 or not 1 < alarm < LARGEST:
            raise InputError(f"a mean of {mean:g} less {tolerance:g} is above 0 and below 1, and an alarm is above 1 session")
        self.mean, self.tolerance, self.alarm, self.runs = mean, tolerance, alarm, runs
        self._m, self._largest, self.sessions = np.zeros((runs, len(_BETS))), np.zeros(runs), 0

    def add(self, score: ArrayLike) -> None:
        """Takes the next session of each run; NaN is unknown and tells nothing.

        Raises:
            InputError: A score lies outside 0 to 1.
        """
        scores, bound = _array(score, self.runs), self.mean - self.tolerance
        known = ~np.isnan(scores)
        if not ((scores[known] >= 0) & (scores[known] <= 1)).all():
            raise InputError("a session's score is from 0 to 1; one that is not known is NaN")
        returns = (bound - np.where(known, scores, bound)) / (1 - bound)
        moved = (1 + self._m) * (1 + _BETS * returns[:, None])
        self._m = np.minimum(np.where(known[:, None], moved, self._m), LARGEST)
        np.maximum(self._largest, self._m.mean(axis=1), out=self._largest)
        self.sessions += 1

    @property
    def alarmed(self) -> NDArray[np.bool_]:
        """Whether it has ever been, of each run."""
        return self._largest >= self.alarm

    @property
    def level(self) -> Floats:
        """How far it is, of each run; `alarm` is the end."""
        return np.asarray(self._m.mean(axis=1))

    def state(self) -> dict[str, Any]:
        """For JSON."""
        given = {"mean": self.mean, "tolerance": self.tolerance, "alarm": self.alarm, "sessions": self.sessions}
        return {**given, "m": self._m.tolist(), "largest": self._largest.tolist()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Goes on as if it had never stopped.

        Raises:
            InputError: It is not what `state` gave.
        """
        try:
            m, largest = np.asarray(state["m"], np.float64), np.asarray(state["largest"], np.float64)
            mean, tolerance, alarm = (float(state[name]) for name in ("mean", "tolerance", "alarm"))
            detector = cls(mean, tolerance=tolerance, alarm=alarm, runs=len(largest))
            detector._m, detector._largest, detector.sessions = (
                m.reshape(len(largest), len(_BETS)),
                largest,
                int(state["sessions"]),
            )
        except (KeyError, TypeError, ValueError):
            raise InputError("this is no state of a detector; begin a new one") from None
        return detector


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Makes scores from 0 to 1, where more is better, of what has no bound: latency, cost, tokens.

    Frozen when a rollout begins, from what production took before. Means of the raw numbers cannot be tested soon: their tails
    are heavy, and nothing bounds them. All three are tested alike, by `BettingEvidence`.
    """

    p5: float
    p95: float
    p99: float

    @classmethod
    def of(cls, before: Sequence[float], *, least: int = 100) -> Self:
        """Of what production's requests or sessions took.

        Raises:
            InputError: They are too few, or are not all numbers from 0 up with something above it.
        """
        found = np.asarray(before, np.float64)
        if len(found) < least:
            raise InputError(f"{len(found)} measurements are too few for a scale; {least} of production are needed")
        if not np.isfinite(found).all() or found.min() < 0 or found.max() <= 0:
            raise InputError("a scale is made of finite numbers from 0 up, and not all of them 0")
        smallest = float(found[found > 0].min())
        p5, p95, p99 = (max(smallest, float(each)) for each in np.quantile(found, (0.05, 0.95, 0.99)))
        return cls(p5=p5, p95=p95, p99=p99)

    def log_scaled(self, value: float) -> float:
        """1 at the 5th percentile or below, 0 at the 95th or above, by the logarithm: best where everything moves.

        Where these two are close to each other, twice the 5th is as bad as can be.
        """
        if value <= self.p5:
            return 1.0
        return max(0.0, 1.0 - math.log(value / self.p5) / math.log(max(self.p95 / self.p5, 2.0)))

    def over(self, value: float) -> float:
        """0 above the 95th percentile, 1 else: what a tail alone moves. Of a session, the mean over its requests."""
        return float(value <= self.p95)

    def capped(self, value: float) -> float:
        """1 - min(value, 99th percentile) / 99th percentile: the bill, with a cap on what one session may do to it."""
        return 1.0 - min(value, self.p99) / self.p99


def top_two_shares(
    scores: Sequence[tuple[float, float]], *, chance: np.random.Generator, floor: float = 0.1, production: float = 0.5
) -> tuple[float, ...]:
    """Shares for the sessions to come by top-two Thompson sampling: the best arm and its rival are looked at most.

    The shares may follow the scores as they like, as long as each session's own is kept: the decision is always that of
    `BettingEvidence`, at the plan's levels over the number of candidates. Russo, "Simple Bayesian Algorithms for Best-Arm
    Identification" (Operations Research 68, 2020).

    Args:
        scores: Of production and then of each candidate, the sum of scores and of what is missing to 1: a beta distribution.
        floor: The least share of each candidate.
        production: The least share of production.

    Raises:
        InputError: The floors leave nothing, or a sum is below 0.
    """
    arms = len(scores)
    least = np.asarray([production, *[floor] * (arms - 1)])
    if arms < 2 or least.sum() > 1 + 1e-9 or min(floor, production) < 0:
        raise InputError(f"{arms} arms cannot have a share of {production:g} for production and {floor:g} for each other one")
    sums = np.asarray(scores, np.float64)
    if not np.isfinite(sums).all() or sums.min() < 0:
        raise InputError("sums of scores are finite and not below 0")
    drawn = chance.beta(sums[:, 0] + 1, sums[:, 1] + 1, (400, arms))
    order = np.argsort(drawn, axis=1)
    wanted = np.bincount(order[:, -1], minlength=arms) / 800 + np.bincount(order[:, -2], minlength=arms) / 800
    return tuple((least + (1 - least.sum()) * wanted).tolist())
