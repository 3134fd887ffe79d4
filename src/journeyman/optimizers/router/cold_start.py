"""A new model among known ones: which few requests to ask it, and what its answers tell of all the others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from journeyman.core.errors import InputError
from journeyman.core.task import content
from journeyman.optimizers.outcome_table import Table
from journeyman.stats import Floats

# A new model joins from a few questions: how hard each question is, the others have shown already.
#
# Item response theory: a worker of ability t is right on a question of difficulty b and discrimination a with probability 1 /
# (1 + exp(-a (t - b))) (the two-parameter logistic model: Birnbaum, in Lord and Novick, "Statistical Theories of Mental Test
# Scores", 1968; with one a it is Rasch's; for language models: Polo et al., "tinyBenchmarks", arXiv 2402.14992). A dozen
# workers say too little of one question to fix its b, so none is fixed: each question keeps its distribution over a grid of (a,
# b). How often each of these occurs is estimated from all questions (Bock and Aitkin, Psychometrika 46, 1981, with a free
# distribution).

_ABILITIES = np.linspace(-6.0, 6.0, 121)
_DIFFICULTIES = np.linspace(-6.0, 6.0, 37)
_DISCRIMINATIONS = (0.5, 1.0, 2.0)
_ROUNDS = 40
_EDGE = 1e-4
"""No probability comes nearer to 0 or 1: anybody may slip, and a question may be wrong."""


@dataclass(frozen=True, kw_only=True)
class Bank:
    """n questions, as those who answered them have shown them to be."""

    curves: Floats
    """(n, g), the probability of a right answer of somebody of the g-th ability."""
    abilities: Floats
    """(m,), of the workers that it was fitted to."""

    @property
    def prior(self) -> Floats:
        """(g,), how likely each ability is of a worker that nobody has asked: as the others', a little wider."""
        spread = max(1.0, 1.5 * float(self.abilities.std()))
        weights = np.exp(-0.5 * ((_ABILITIES - self.abilities.mean()) / spread) ** 2)
        return np.asarray(weights / weights.sum(), np.float64)


@dataclass(frozen=True, kw_only=True)
class Newcomer:
    """What a few answers tell of a worker."""

    ability: float
    ability_interval: tuple[float, float]
    """That it is in with 95 %."""
    accuracy: float
    """Share of the bank's questions that it would answer rightly."""
    accuracy_interval: tuple[float, float]
    success: Floats
    """(n,), probability of a right answer to each question of the bank; where it was asked, what came out."""


def fit(success: Floats) -> Bank:
    """Questions and abilities from who answered what.

    Args:
        success: (n, m), 0 to 1, NaN where a worker was not asked.

    Raises:
        InputError: Fewer than two workers or questions: then difficulty cannot be told from ability.
    """
    known = ~np.isnan(success)
    used = known.any(axis=0)
    if success.ndim != 2 or used.sum() < 2 or len(success) < 2:
        raise InputError("difficulties are learned from at least two workers' answers to at least two questions")
    right, wrong = np.where(known, success, 0.0)[:, used], np.where(known, 1 - success, 0.0)[:, used]
    a, b = (grid.ravel() for grid in np.meshgrid(_DISCRIMINATIONS, _DIFFICULTIES))
    # (g, c): how somebody of the g-th ability does on a question of the c-th class.
    does = np.clip(1 / (1 + np.exp(-a * (_ABILITIES[:, None] - b))), _EDGE, 1 - _EDGE)
    log_right, log_wrong = np.log(does), np.log1p(-does)
    mean = right.sum(axis=0) / (right + wrong).sum(axis=0)
    abilities = np.log((mean + 0.01) / (1.01 - mean))
    share = np.full(len(a), 1 / len(a))
    for _ in range(_ROUNDS):
        at = np.abs(_ABILITIES[:, None] - abilities).argmin(axis=0)
        classes = _softmax(right @ log_right[at] + wrong @ log_wrong[at] + np.log(share))
        share = (classes.sum(axis=0) + 0.1) / (len(classes) + 0.1 * len(a))
        likelihood = log_right @ (classes.T @ right) + log_wrong @ (classes.T @ wrong)
        # A weak standard normal holds those who know all or nothing within the grid.
        abilities = _softmax((likelihood - 0.5 * (_ABILITIES / 3)[:, None] ** 2).T) @ _ABILITIES
    return Bank(curves=classes @ does.T, abilities=abilities)


def anchors(bank: Bank, number: int, among: Sequence[int] | None = None) -> NDArray[np.int64]:
    """The questions to ask a new worker: of each degree of difficulty the one that tells the most of its ability.

    Questions are put in order of difficulty and cut into `number` equal parts; of each part the one with the largest Fisher
    information, P'²/(P(1-P)), as expected before anything is known of the worker. Without the parts all would be of one kind,
    and of a worker that is unlike the others in another kind too much would be believed.

    Args:
        number: How many; 20 to 50 place a worker well.
        among: Questions of which there is a verifier at hand; all without it.

    Returns:
        (number,) rows of the bank, the easiest first; fewer where there are no more.
    """
    candidates = np.arange(len(bank.curves)) if among is None else np.asarray(among, np.int64)
    curves, prior = bank.curves[candidates], bank.prior
    slopes = np.gradient(curves, _ABILITIES, axis=1)
    information = (slopes**2 / (curves * (1 - curves))) @ prior
    by_ease = np.argsort(-(curves @ prior), kind="stable")
    parts = [part for part in np.array_split(by_ease, number) if len(part)]
    return candidates[[part[information[part].argmax()] for part in parts]]


def place(bank: Bank, asked: Sequence[int] | NDArray[np.int64], success: Sequence[float] | Floats) -> Newcomer:
    """What the answers to some of the bank's questions tell of who gave them.

    Args:
        asked: Rows of the bank.
        success: 0 to 1, of each; NaN of an answer that nobody could judge.
    """
    rows, values = np.asarray(asked, np.int64), np.asarray(success, np.float64)
    if len(rows) != len(values):
        raise ValueError(f"{len(rows)} questions and {len(values)} outcomes")
    known = ~np.isnan(values)
    rows, values = rows[known], values[known]
    likely = values @ np.log(bank.curves[rows]) + (1 - values) @ np.log1p(-bank.curves[rows])
    posterior = _softmax(likely + np.log(bank.prior))
    expected = bank.curves @ posterior
    expected[rows] = values
    open_ = np.ones(len(bank.curves), np.bool_)
    open_[rows] = False
    shares = (values.sum() + bank.curves[open_].sum(axis=0)) / len(bank.curves)
    return Newcomer(
        ability=float(posterior @ _ABILITIES),
        ability_interval=_interval(posterior, _ABILITIES),
        accuracy=float(expected.mean()),
        accuracy_interval=_interval(posterior, shares),
        success=expected,
    )


def _interval(posterior: Floats, values: Floats) -> tuple[float, float]:
    """Where the values, which rise, have 2.5 % of the posterior on either side."""
    below = np.cumsum(posterior)
    return float(np.interp(0.025, below, values)), float(np.interp(0.975, below, values))


def _softmax(logits: Floats) -> Floats:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True), np.float64)


LEAST = 5
"""Judged answers by which a newcomer is placed; 20 to 50 place it well."""


def questions(table: Table, rows: Sequence[int], count: int) -> tuple[int, ...]:
    """Which of these rows tell the most of a model that nobody has asked yet, the easiest first; each request once.

    Raises:
        InputError: Fewer than two workers have answered them.
    """
    places: dict[str, int] = {}
    for row in rows:
        if not np.isnan(table.success[row]).all():
            places.setdefault(table.requests[row], row)
    among = np.array(list(places.values()), np.int64)
    found = anchors(fit(table.success[among]), count)
    return tuple(among[found].tolist())


def placed(table: Table, rows: Sequence[int], newcomers: Sequence[str]) -> Table:
    """The table with the success of newcomers filled in on these rows, where they were not asked: what item response theory
    expects of somebody with their answers (`fit`, `place`). What they were asked stays as it is.

    Raises:
        InputError: A newcomer is none of the workers, or has too few judged answers on these rows.
    """
    at = np.asarray(rows, np.int64)
    found, own = np.unique([content(table.requests[row]) for row in rows], return_inverse=True)
    # Whoever asked under another id, or twice, asked the same question.
    right = _means(table.success[at], own, len(found))
    known = [column for column, name in enumerate(table.workers) if name not in newcomers]
    bank = fit(right[:, known])
    success = table.success.copy()
    for name in newcomers:
        told = right[:, table.workers.index(name)] if name in table.workers else np.array([])
        asked = np.flatnonzero(~np.isnan(told))
        if len(asked) < LEAST:
            raise InputError(
                f"{name!r} is new, and {len(asked)} of its answers are judged on requests to learn from; bring at least "
                f"{LEAST}, to what `journeyman route anchors` writes"
            )
        success[at, table.workers.index(name)] = place(bank, asked, told[asked]).success[own]
    return replace(table, success=success)


def _means(values: Floats, groups: NDArray[np.int64], size: int) -> Floats:
    """(size, m): means by group; NaN where nothing is known."""
    known = ~np.isnan(values)
    sums, counts = np.zeros((2, size, values.shape[1]))
    np.add.at(sums, groups, np.where(known, values, 0.0))
    np.add.at(counts, groups, known)
    return np.where(counts, sums / np.maximum(counts, 1), np.nan)
