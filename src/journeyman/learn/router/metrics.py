"""How good a router is: what it recovers of a strong model's quality, for what money, and whether its probabilities are true.

Sources: PGR, APGR and CPT are those of Ong et al., "RouteLLM" (arXiv 2406.18665, section 2); AIQ is that of Hu et al.,
"RouterBench" (arXiv 2403.12031, section 3); ECE is that of Guo et al., "On Calibration of Modern Neural Networks" (arXiv
1706.04599); risk and coverage are those of Geifman and El-Yaniv (arXiv 1705.08500).
"""

import numpy as np
from numpy.typing import ArrayLike

from journeyman.stats import Floats

SHARES = np.linspace(0, 1, 11)
"""Where APGR and CPT look at the curve: every tenth of the calls, straight lines between, as RouteLLM's own evaluation does.
Looked at after every request, noise alone would cross a threshold too early."""


def strong_share_curve(scores: ArrayLike, weak: ArrayLike, strong: ArrayLike) -> tuple[Floats, Floats]:
    """Share of calls to the strong model, and the mean quality there, as the threshold on the scores falls.

    Args:
        scores: (n,), how much a request gains by the strong model; those with the largest go there first.
        weak: (n,), quality of the weak model's answers, 0 to 1.
        strong: (n,), quality of the strong model's.

    Returns:
        Shares from 0 to 1 and qualities, (k + 1,) for k different scores. Between two of them quality is linear: requests with
        one score are sent in random order, so the order of the rows does not matter.
    """
    score, low, high = (np.asarray(values, np.float64) for values in (scores, weak, strong))
    if not len(score) or not len(score) == len(low) == len(high):
        raise ValueError(f"{len(score)} scores, {len(low)} weak and {len(high)} strong qualities do not make a curve")
    order = np.argsort(-score, kind="stable")
    last_of_ties = np.append(np.flatnonzero(np.diff(score[order])), len(score) - 1)
    gained = np.cumsum((high - low)[order])[last_of_ties]
    shares = np.append(0.0, (last_of_ties + 1) / len(score))
    return shares, low.mean() + np.append(0.0, gained) / len(score)


def _recovered(scores: ArrayLike, weak: ArrayLike, strong: ArrayLike) -> tuple[Floats, Floats]:
    """PGR = (quality - weak) / (strong - weak) at eleven shares; not defined without a gap."""
    shares, quality = strong_share_curve(scores, weak, strong)
    gap = quality[-1] - quality[0]
    if gap <= 0:
        raise ValueError("the strong model is not better than the weak one here, so no gap can be recovered")
    return SHARES, (np.interp(SHARES, shares, quality) - quality[0]) / gap


def apgr(scores: ArrayLike, weak: ArrayLike, strong: ArrayLike) -> float:
    """Average performance gap recovered: the integral of PGR over the share of strong calls, from 0 to 1, by trapezoids.

    0.5 is chance, and an oracle may pass 1, as it also avoids what only the weak model gets right. Arguments as in
    `strong_share_curve`.
    """
    shares, recovered = _recovered(scores, weak, strong)
    return float(np.trapezoid(recovered, shares))


def cpt(scores: ArrayLike, weak: ArrayLike, strong: ArrayLike, share: float) -> float:
    """Call-performance threshold: the least percentage of strong calls, 0 to 100, whose PGR is at least `share` (0 to 1)."""
    calls, recovered = _recovered(scores, weak, strong)
    if not 0 <= share <= 1:
        raise ValueError(f"a share of the gap is between 0 and 1, not {share}")
    at = int(np.argmax(recovered >= share - 1e-12))
    if at == 0:
        return 0.0
    rise = (share - recovered[at - 1]) / (recovered[at] - recovered[at - 1])
    return float(100 * (calls[at - 1] + min(rise, 1.0) * (calls[at] - calls[at - 1])))


def hull(costs: ArrayLike, qualities: ArrayLike) -> tuple[Floats, Floats]:
    """The non-decreasing convex hull of (cost, quality) points: what can be had by drawing between two of them.

    Returns:
        Costs, rising, and their qualities, rising too: corners only.
    """
    cost, quality = np.asarray(costs, np.float64), np.asarray(qualities, np.float64)
    corners: list[tuple[float, float]] = []
    for x, y in sorted(zip(cost.tolist(), quality.tolist(), strict=True), key=lambda point: (point[0], -point[1])):
        if corners and y <= corners[-1][1]:
            continue
        while len(corners) > 1 and _slope(corners[-2], corners[-1]) <= _slope(corners[-2], (x, y)):
            corners.pop()
        corners.append((x, y))
    found = np.asarray(corners, np.float64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _slope(one: tuple[float, float], other: tuple[float, float]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])


def aiq(costs: ArrayLike, qualities: ArrayLike, cost_range: tuple[float, float] | None = None) -> float:
    """Average improvement in quality: the mean height of the hull over a range of costs.

    Args:
        costs: (k,), mean US dollars a request, one for each setting of a router.
        qualities: (k,), mean quality there.
        cost_range: From and to; without one, from the cheapest point to the dearest. Give the same to all that are compared,
            such as the cheapest and the dearest single model's. Beyond the last corner quality stays; for less than the first
            costs, a share of the requests is left without an answer.
    """
    at, height = hull(costs, qualities)
    low, high = cost_range or (float(np.min(np.asarray(costs))), float(np.max(np.asarray(costs))))
    if high <= low:
        return float(np.interp(low, np.append(0.0, at), np.append(0.0, height)))
    if at[0] > 0:
        at, height = np.append(0.0, at), np.append(0.0, height)
    inside = at[(at > low) & (at < high)]
    grid = np.concatenate([[low], inside, [high]])
    return float(np.trapezoid(np.interp(grid, at, height), grid) / (high - low))


def saving(costs: ArrayLike, qualities: ArrayLike, single_cost: float, single_quality: float) -> float | None:
    """The share of a single model's cost that is saved at its quality: 1 - (least cost of a point as good) / `single_cost`.

    No mixing of points; `None` where no point is as good. Arguments as in `aiq`.
    """
    cost, quality = np.asarray(costs, np.float64), np.asarray(qualities, np.float64)
    as_good = cost[quality >= single_quality - 1e-12]
    return 1 - float(as_good.min()) / single_cost if len(as_good) else None


def brier(probabilities: ArrayLike, outcomes: ArrayLike) -> float:
    """Mean squared distance of probabilities from outcomes, both (n,) and 0 to 1; an outcome that is NaN does not count."""
    p, y = _known(probabilities, outcomes)
    return float(np.mean((p - y) ** 2))


def ece(probabilities: ArrayLike, outcomes: ArrayLike, bins: int = 15) -> float:
    """Expected calibration error: |mean outcome - mean probability| in bins of equal width, weighted by how many fall in each.

    Arguments as in `brier`.
    """
    p, y = _known(probabilities, outcomes)
    places = np.minimum((p * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(places, weights=p - y, minlength=bins)
    return float(np.abs(gaps).sum() / len(p))


def risk_coverage(confidence: ArrayLike, outcomes: ArrayLike) -> tuple[Floats, Floats]:
    """What share goes wrong of those answered, if only the most confident are.

    Returns:
        Coverages, 1/n to 1, and the risks there, 1 - mean outcome; (n,) each, without the unknown outcomes. Among equal
        confidences each counts as their mean, so the order of the rows does not matter. The mean of the risks is the AURC.
    """
    p, y = _known(confidence, outcomes)
    order = np.argsort(-p, kind="stable")
    _, group = np.unique(-p[order], return_inverse=True)
    means = np.bincount(group, weights=y[order]) / np.bincount(group)
    places = np.arange(1, len(p) + 1)
    return places / len(p), 1 - np.cumsum(means[group]) / places


def _known(probabilities: ArrayLike, outcomes: ArrayLike) -> tuple[Floats, Floats]:
    p, y = np.asarray(probabilities, np.float64).ravel(), np.asarray(outcomes, np.float64).ravel()
    if len(p) != len(y):
        raise ValueError(f"{len(p)} probabilities and {len(y)} outcomes cannot be compared")
    known = ~np.isnan(y)
    if not known.any():
        raise ValueError("no outcome is known, so nothing can be said about the probabilities")
    return p[known], y[known]
