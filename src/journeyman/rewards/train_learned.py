"""Training the learned reward: scikit-learn, once; using what comes out needs none of it.

The model is examined on tasks that it was not taught with: the folds keep all attempts at a task together. Whatever is chosen
by looking at labels (the regularisation, the calibration) is chosen within the training part of each fold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from journeyman.core.errors import MissingExtra
from journeyman.core.trace import Trace
from journeyman.models.embedders import Embedder
from journeyman.rewards import learned
from journeyman.rewards.calibration import Calibrator, Floats, Platt, auc, brier, calibrated, ece, estimate, sigmoid
from journeyman.rewards.learned import CrossValidationReport, LearnedModel

_FOLDS = 5
_STRENGTHS = (0.001, 0.01, 0.1, 1.0)
"""Of the inverse regularisation: few labels, many columns."""


@dataclass(frozen=True, slots=True)
class LabelledAttempt:
    """One attempt that somebody, or a verifier, judged."""

    trace: Trace
    success: bool
    group: str
    """Attempts at one task share it."""


@dataclass(frozen=True, slots=True)
class FittedModel:
    mean: Floats
    scale: Floats
    coefficients: Floats
    intercept: float
    calibration: Calibrator

    def __call__(self, table: Floats) -> Floats:
        normal = np.nan_to_num((table - self.mean) / self.scale, nan=0.0)
        return self.calibration(normal @ self.coefficients + self.intercept)


def train(examples: Sequence[LabelledAttempt], embedder: Embedder | None = None) -> LearnedModel:
    """The model that these examples teach, with the report of its examination. With too few labels it is one that is silent.

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    check_installed()
    table = learned.columns([example.trace for example in examples], embedder)
    labels = np.array([example.success for example in examples], np.float64)
    groups = [example.group for example in examples]
    fit = fitted(table, labels, groups)
    return LearnedModel(
        embedder=embedder.name if embedder else "",
        mean=tuple(map(float, fit.mean)),
        scale=tuple(map(float, fit.scale)),
        coefficients=tuple(map(float, fit.coefficients)),
        intercept=fit.intercept,
        calibration=fit.calibration,
        report=_examined(table, labels, groups),
    )


def _examined(table: Floats, labels: Floats, groups: Sequence[str]) -> CrossValidationReport:
    report = CrossValidationReport(successes=int(labels.sum()), failures=int((1 - labels).sum()), groups=len(set(groups)))
    guesses = np.full(len(labels), np.nan)
    for train, test in _folds(labels, groups):
        guesses[test] = fitted(table[train], labels[train], [groups[place] for place in train])(table[test])
    if not len(guesses) or np.isnan(guesses).any():
        return report
    return replace(
        report,
        auc=estimate(auc, guesses, labels, groups),
        ece=estimate(ece, guesses, labels, groups, inflated=True),
        brier=estimate(brier, guesses, labels, groups),
    )


def fitted(table: Floats, labels: Floats, groups: Sequence[str] | None, width: int = len(learned.NAMES)) -> FittedModel:
    """Columns and strength with the least log loss on held-out groups, calibrated on the same, then taught with everything.

    Args:
        width: Columns before those of the embedding.
    """
    mean, scale = moments(table)
    normal = np.nan_to_num((table - mean) / scale, nan=0.0)
    folds = _folds(labels, groups)
    if len(set(labels)) < 2 or not folds:
        share = float((labels.sum() + 1) / (len(labels) + 2))
        return FittedModel(mean, scale, np.zeros(table.shape[1]), float(np.log(share / (1 - share))), Platt(1.0, 0.0))
    # The embedding helps on some data and drowns the counts on other: whether to look at it is chosen like the strength.
    widths = sorted({width, table.shape[1]})
    held_out = {
        (width, strength): _held_out(normal[:, :width], labels, folds, strength) for width in widths for strength in _STRENGTHS
    }
    best = min(held_out, key=lambda choice: _log_loss(held_out[choice], labels))
    width, strength = best
    coefficients, intercept = _regression(normal[:, :width], labels, strength)
    coefficients = np.pad(coefficients, (0, table.shape[1] - width))
    return FittedModel(mean, scale, coefficients, intercept, calibrated(held_out[best], labels))


def _regression(table: Floats, labels: Floats, strength: float) -> tuple[Floats, float]:
    """Coefficients and intercept of a logistic regression with an L2 penalty, as scikit-learn's with C = `strength`: Newton's
    method, since a labeler takes hundreds of fits to some fifty rows, of which the library's checks would be the most."""
    rows = np.column_stack([table, np.ones(len(table))])
    penalty = np.append(np.full(table.shape[1], 1 / strength), 0.0)
    found = np.zeros(rows.shape[1])
    for _ in range(_STEPS):
        chances = sigmoid(rows @ found)
        gradient = rows.T @ (chances - labels) + penalty * found
        curvature = (rows.T * (chances * (1 - chances))) @ rows + np.diag(penalty + _RIDGE)
        step = np.linalg.solve(curvature, gradient)
        found = found - step * min(1.0, _LONGEST_STEP / max(float(np.abs(step).max()), _RIDGE))
        if float(np.abs(step).max()) < _CLOSE:
            break
    return found[:-1], float(found[-1])


_STEPS, _CLOSE, _RIDGE, _LONGEST_STEP = 100, 1e-7, 1e-10, 2.0


def _held_out(normal: Floats, labels: Floats, folds: "_Folds", strength: float) -> Floats:
    """Each example's logit by the model of the folds that it is not in."""
    found = np.zeros(len(labels))
    for train, test in folds:
        coefficients, intercept = _regression(normal[train], labels[train], strength)
        found[test] = normal[test] @ coefficients + intercept
    return found


_Folds = list[tuple[NDArray[np.int64], NDArray[np.int64]]]


def _folds(labels: Floats, groups: Sequence[str] | None) -> _Folds:
    """Empty where groups or labels are too few for every part to have both kinds to learn from. Without groups each stands
    alone."""
    fewest = min(int(labels.sum()), int((1 - labels).sum()))
    if fewest < _FOLDS or (groups is not None and len(set(groups)) < _FOLDS):
        return []
    if groups is None:
        return drawn_parts(labels > 0.5, _FOLDS)
    from sklearn.model_selection import StratifiedGroupKFold

    splitter = StratifiedGroupKFold(_FOLDS, shuffle=True, random_state=0)
    folds = [(train, test) for train, test in splitter.split(labels, labels, groups) if len(test)]
    return folds if all(len(set(labels[train])) == 2 for train, _ in folds) else []


def drawn_parts(kinds: NDArray[np.bool_], most: int) -> "_Folds":
    """Drawn by chance, with both kinds in each: as many as there are of the rarer one, `most` at most."""
    from sklearn.model_selection import StratifiedKFold

    count = min(most, int(kinds.sum()), int((~kinds).sum()))
    return list(StratifiedKFold(count, shuffle=True, random_state=0).split(kinds, kinds))


def _log_loss(logits: Floats, labels: Floats) -> float:
    """After calibration, since that is what will be used."""
    guesses = np.clip(calibrated(logits, labels)(logits), 1e-9, 1 - 1e-9)
    return float(-np.mean(labels * np.log(guesses) + (1 - labels) * np.log(1 - guesses)))


def moments(table: Floats) -> tuple[Floats, Floats]:
    """Mean and spread of each column's known numbers; 0 and 1 where there are none."""
    known = ~np.isnan(table)
    count = np.maximum(known.sum(axis=0), 1)
    filled = np.where(known, table, 0.0)
    mean = filled.sum(axis=0) / count
    spread = np.sqrt((np.where(known, table - mean, 0.0) ** 2).sum(axis=0) / count)
    return mean, np.where(spread > 1e-9, spread, 1.0)


def check_installed() -> None:
    """
    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    if find_spec("sklearn") is None:
        raise MissingExtra("sklearn is missing: pip install 'journeyman[code]'")
