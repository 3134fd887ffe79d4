"""Training the learned reward, and labelling by what it learned: scikit-learn, once; using what comes out needs none of it.

The model is examined on tasks that it was not taught with: the folds keep all attempts at a task together. Whatever is chosen
by looking at labels (the regularisation, the calibration) is chosen within the training part of each fold.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.util import find_spec
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from journeyman.core.errors import MissingExtra
from journeyman.core.trace import Trace
from journeyman.models.embedders import Embedder
from journeyman.rewards import learned, signals
from journeyman.rewards.calibration import Calibrator, Floats, Platt, auc, brier, calibrated, ece, estimate
from journeyman.rewards.learned import CrossValidationReport, LearnedModel
from journeyman.stores.traces.base import AUTO, Label, Query, TraceStore
from journeyman.stores.traces.labels import said
from journeyman.tracing.evidence import evidence_of

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
class _Fit:
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
    if find_spec("sklearn") is None:
        raise MissingExtra("sklearn is missing: pip install 'journeyman[code]'")
    table = learned.columns([example.trace for example in examples], embedder)
    labels = np.array([example.success for example in examples], np.float64)
    groups = [example.group for example in examples]
    fit = _fitted(table, labels, groups)
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
        guesses[test] = _fitted(table[train], labels[train], [groups[place] for place in train])(table[test])
    if not len(guesses) or np.isnan(guesses).any():
        return report
    return replace(
        report,
        auc=estimate(auc, guesses, labels, groups),
        ece=estimate(ece, guesses, labels, groups, inflated=True),
        brier=estimate(brier, guesses, labels, groups),
    )


def _fitted(table: Floats, labels: Floats, groups: Sequence[str]) -> _Fit:
    """Columns and strength with the least log loss on held-out groups, calibrated on the same, then taught with everything."""
    mean, scale = _moments(table)
    normal = np.nan_to_num((table - mean) / scale, nan=0.0)
    folds = _folds(labels, groups)
    if len(set(labels)) < 2 or not folds:
        share = float((labels.sum() + 1) / (len(labels) + 2))
        return _Fit(mean, scale, np.zeros(table.shape[1]), float(np.log(share / (1 - share))), Platt(1.0, 0.0))
    # The embedding helps on some data and drowns the counts on other: whether to look at it is chosen like the strength.
    widths = sorted({len(learned.NAMES), table.shape[1]})
    held_out = {
        (width, strength): _held_out(normal[:, :width], labels, folds, strength) for width in widths for strength in _STRENGTHS
    }
    best = min(held_out, key=lambda choice: _log_loss(held_out[choice], labels))
    width, strength = best
    final = _regression(strength).fit(normal[:, :width], labels)
    coefficients = np.pad(final.coef_[0], (0, table.shape[1] - width))
    return _Fit(mean, scale, coefficients, float(final.intercept_[0]), calibrated(held_out[best], labels))


def _regression(strength: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=strength, max_iter=2000)


def _held_out(normal: Floats, labels: Floats, folds: "_Folds", strength: float) -> Floats:
    """Each example's logit by the model of the folds that it is not in."""
    found = np.zeros(len(labels))
    for train, test in folds:
        found[test] = _regression(strength).fit(normal[train], labels[train]).decision_function(normal[test])
    return found


_Folds = list[tuple[NDArray[np.int64], NDArray[np.int64]]]


def _folds(labels: Floats, groups: Sequence[str]) -> _Folds:
    """Empty where groups or labels are too few for every part to have both kinds to learn from."""
    fewest = min(int(labels.sum()), int((1 - labels).sum()), len(set(groups)))
    if fewest < _FOLDS:
        return []
    from sklearn.model_selection import StratifiedGroupKFold

    splitter = StratifiedGroupKFold(_FOLDS, shuffle=True, random_state=0)
    folds = [(train, test) for train, test in splitter.split(labels, labels, groups) if len(test)]
    return folds if all(len(set(labels[train])) == 2 for train, _ in folds) else []


def _log_loss(logits: Floats, labels: Floats) -> float:
    """After calibration, since that is what will be used."""
    guesses = np.clip(calibrated(logits, labels)(logits), 1e-9, 1 - 1e-9)
    return float(-np.mean(labels * np.log(guesses) + (1 - labels) * np.log(1 - guesses)))


def _moments(table: Floats) -> tuple[Floats, Floats]:
    """Mean and spread of each column's known numbers; 0 and 1 where there are none."""
    known = ~np.isnan(table)
    count = np.maximum(known.sum(axis=0), 1)
    filled = np.where(known, table, 0.0)
    mean = filled.sum(axis=0) / count
    spread = np.sqrt((np.where(known, table - mean, 0.0) ** 2).sum(axis=0) / count)
    return mean, np.where(spread > 1e-9, spread, 1.0)


# A labeler that learned from people's labels: it proposes where it is sure, and asks where it would learn most.
#
# It is the learned reward (`journeyman.rewards.learned`), taught with what people said of captured traces. It speaks under the
# same conditions: enough labels of both kinds, and an examination on other tasks that shows it can tell them apart.

THRESHOLD = 0.9
"""The probability of being right from which a proposal is worth a label."""
POOL = 2000
"""Traces among which those to ask for are chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What the labeler would say of a trace."""

    trace_id: str
    good: bool
    probability: float
    """Calibrated: how likely `good` is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What a round of labelling did."""

    good: int
    bad: int
    unsure: int
    """Below the threshold, and left without a label."""
    withdrawn: int
    """Labels of an earlier round that this one does not stand by."""


@dataclass(frozen=True, slots=True)
class AutoLabeler:
    """Says what people would say, and how sure it is."""

    model: LearnedModel
    embedder: Embedder | None = None

    @property
    def silence(self) -> str | None:
        """Why it must not speak, or `None` when it may."""
        return self.model.report.silence

    def proposal(self, trace: Trace) -> Proposal | None:
        """What it would say; `None` where it must not speak."""
        if self.silence is not None:
            return None
        success = self.model.probability(trace, self.embedder)
        good = success >= 0.5
        return Proposal(trace_id=trace.id, good=good, probability=success if good else 1 - success)


def unanimous(labels: Iterable[Label]) -> dict[str, bool]:
    """What people say of each trace; traces on which they disagree are left out."""
    words = said(labels)
    words.pop(AUTO, None)
    of_each: dict[str, set[bool]] = {}
    for trace_id, good in (word for person in words.values() for word in person.items()):
        of_each.setdefault(trace_id, set()).add(good)
    return {trace_id: found.pop() for trace_id, found in of_each.items() if len(found) == 1}


def teach(store: TraceStore, embedder: Embedder | None = None) -> AutoLabeler:
    """The labeler that the labels in a store teach. Taught with too few, it is silent.

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    labels = unanimous(store.labels())
    examples = [
        LabelledAttempt(trace, labels[trace.id], trace.task_id)
        for trace in store.traces(Query(labelled=True))
        # Attempts at held-out tasks stand among the traces, too, and nobody learns from them.
        if trace.id in labels and not trace.held_out
    ]
    return AutoLabeler(train(examples, embedder), embedder)


def propose(labeler: AutoLabeler, traces: Iterable[Trace], threshold: float = THRESHOLD) -> Iterator[Proposal]:
    """What the labeler would say of each, where it is as sure as the threshold asks."""
    for trace in traces:
        proposal = labeler.proposal(trace)
        if proposal is not None and proposal.probability >= threshold:
            yield proposal


def apply(
    store: TraceStore, labeler: AutoLabeler, *, at: datetime, threshold: float = THRESHOLD, dry_run: bool = False
) -> Applied:
    """Label what no person has labelled, wherever the labeler is sure enough. Its labels say that they are its own, and an
    earlier one that it no longer stands by is withdrawn."""
    counts = {True: 0, False: 0}
    unsure = withdrawn = 0
    for trace, before in _unlabelled(store):
        proposal = next(propose(labeler, [trace], threshold), None)
        good = proposal.good if proposal else None
        if proposal is None:
            unsure += 1
            withdrawn += before is not None
        else:
            counts[proposal.good] += 1
        if good != before and not dry_run:
            store.label(trace.id, good, who=AUTO, at=at, probability=proposal.probability if proposal else None)
    return Applied(good=counts[True], bad=counts[False], unsure=unsure, withdrawn=withdrawn)


def most_telling(labeler: AutoLabeler, known: Sequence[Trace], candidates: Sequence[Trace], limit: int) -> list[Trace]:
    """The traces whose labels would teach most, the most telling first.

    Uncertainty sampling (Lewis and Gale, SIGIR 1994) weighted with the distance to the nearest trace that has a label or was
    already chosen (k-center, Sener and Savarese, ICLR 2018), so that ten look-alikes are not asked for in a row. A labeler
    that must not speak yet is equally unsure of everything, and the distance alone decides.
    """
    pool = list(candidates)[:POOL]
    if not pool:
        return []
    table = _normal(learned.columns([*pool, *known], labeler.embedder))
    spots, labelled = table[: len(pool)], table[len(pool) :]
    doubt = np.array([_doubt(labeler.proposal(trace)) for trace in pool])
    # Without any label the middle is where to begin: what is typical says more than what is odd.
    far = _distances(spots, labelled) if len(labelled) else 1 / (1 + np.linalg.norm(spots - spots.mean(axis=0), axis=1))
    chosen: list[int] = []
    while len(chosen) < min(limit, len(pool)):
        worth = doubt * far
        worth[chosen] = -1.0
        best = int(np.argmax(worth))
        to_best = np.linalg.norm(spots - spots[best], axis=1)
        far = np.minimum(far, to_best) if chosen or len(labelled) else to_best
        chosen.append(best)
    return [pool[place] for place in chosen]


_LIKELIEST = 0.6
"""Of the attempts at a request, the share that did the same where a right and a wrong one are likeliest to be among them: where
all did the same there is nothing to tell apart, and where all did something else often none is right."""


def contested(known: Sequence[Trace], candidates: Sequence[Trace]) -> list[Trace]:
    """The candidates whose requests recur and were met with different writes: a right and a wrong attempt at one request show
    what went wrong, and a failure alone does not.

    Request by request, one of each kind of writes that nobody has judged, what most attempts did first. Requests of which a
    right attempt is known come first: whoever did something else there is asked for at once.
    """
    traces = [*known, *candidates]
    attempts = [evidence_of(trace) for trace in traces]
    written = [signals.writes(attempt) for attempt in attempts]
    found: list[tuple[bool, float, list[int]]] = []
    for places in signals.places_of([signals.request_of(attempt) for attempt in attempts]).values():
        kinds = Counter(written[place] for place in places)
        judged = {written[place] for place in places if place < len(known)}
        waiting = {written[place]: place for place in reversed(places) if written[place] not in judged}
        if len(kinds) > 1 and waiting:
            has_right = any(place < len(known) and signals.truth_of(traces[place]) for place in places)
            share = kinds.most_common(1)[0][1] / len(places)
            asked = sorted(waiting.values(), key=lambda place: -kinds[written[place]])
            found.append((not has_right, abs(share - _LIKELIEST), asked))
    found.sort(key=lambda each: each[:2])
    return [traces[place] for *_, asked in found for place in asked]


def ask(store: TraceStore, labeler: AutoLabeler, limit: int, query: Query = Query()) -> list[Trace]:  # noqa: B008 - frozen
    """Which traces of the store a person should label next: those that would make a contrast, then the most telling."""
    lines = store.unlabelled(POOL, query)
    candidates = [trace for line in lines if (trace := store.get(line.id)) is not None]
    known = list(islice(store.traces(Query(labelled=True)), POOL))
    first = contested(known, candidates)[:limit]
    chosen = {trace.id for trace in first}
    rest = [trace for trace in candidates if trace.id not in chosen]
    return first + most_telling(labeler, [*known, *first], rest, limit - len(first))


def _unlabelled(store: TraceStore) -> Iterator[tuple[Trace, bool | None]]:
    """What no person has labelled, with what the labeler said of it before."""
    before = {label.trace_id: label.good for label in store.labels() if label.who == AUTO}
    for trace in store.traces(Query(labelled=False)):
        yield trace, before.get(trace.id)


def _doubt(proposal: Proposal | None) -> float:
    """1 at a probability of one half, 0 at certainty; a little is left, for even a sure labeler can be wrong."""
    return 1.0 if proposal is None else max(2 * (1 - proposal.probability), 0.02)


def _normal(table: Floats) -> Floats:
    """Columns of mean 0 and spread 1; the unknown at the mean."""
    mean, scale = _moments(table)
    return np.asarray(np.nan_to_num((table - mean) / scale, nan=0.0), np.float64)


def _distances(spots: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """From each spot to the nearest of the others."""
    squared = (spots**2).sum(axis=1)[:, None] + (others**2).sum(axis=1)[None, :] - 2 * spots @ others.T
    return np.asarray(np.sqrt(np.maximum(squared, 0.0)).min(axis=1), np.float64)
