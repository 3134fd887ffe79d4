"""Off-policy evaluation: what another policy would have brought, told from the log of decisions alone, or refused where the log
cannot tell.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from journeyman.core.errors import InputError
from journeyman.core.policy import Choice
from journeyman.stats import Floats

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
    now = _interval(logged.rewards, alpha)
    if refused := _refusal(logged, chances, weights, effective, min_sample):
        return OffPolicyResult(decisions=len(logged), effective=effective, logged=now, estimates={}, gain=None, refused=refused)
    expected = _cross_fitted(logged, folds, seed)
    direct = (chances * expected).sum(axis=1)
    doubly = direct + weights * (logged.rewards - expected[rows, logged.actions])
    normalised = float((weights * logged.rewards).sum() / weights.sum())
    estimates = {
        "IPS": _interval(weights * logged.rewards, alpha),
        "SNIPS": _interval(normalised + weights * (logged.rewards - normalised) / weights.mean(), alpha),
        "DM": _interval(direct, alpha),
        "DR": _interval(doubly, alpha),
    }
    gain = _interval(doubly - logged.rewards, alpha)
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
    error = float(weights.std()) / np.sqrt(len(weights))
    if error > 0 and abs(float(weights.mean()) - 1) > _SUSPICIOUS * error:
        return (
            f"the weights' mean is {weights.mean():.3f} where 1 is due, which chance does not explain: "
            "the recorded propensities are not those by which was chosen"
        )
    return ""


def _interval(scores: Floats, alpha: float) -> PolicyValue:
    value, error = float(scores.mean()), float(scores.std(ddof=1)) / np.sqrt(len(scores)) if len(scores) > 1 else np.inf
    wide = NormalDist().inv_cdf(1 - alpha / 2) * error
    return PolicyValue(value=value, low=value - wide, high=value + wide)


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
