"""A labeler that learned from people's labels: it proposes where it is sure, and asks where it would learn most.

It is the learned reward (`journeyman.rewards.learned`), taught with what people said of captured traces. It speaks under the
same conditions: enough labels of both kinds, and an examination on other tasks that shows it can tell them apart.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from journeyman.core.errors import MissingExtra
from journeyman.core.trace import Trace
from journeyman.models.embedders import Embedder
from journeyman.rewards import learned
from journeyman.rewards.learned import LearnedModel
from journeyman.stores.traces.base import AUTO, Label, Query, TraceStore
from journeyman.stores.traces.labels import said

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
    try:
        from journeyman.rewards import train_learned
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[code]'") from error
    labels = unanimous(store.labels())
    examples = [
        train_learned.LabelledAttempt(trace, labels[trace.id], trace.task_id)
        for trace in store.traces(Query(labelled=True))
        # Attempts at held-out tasks stand among the traces, too, and nobody learns from them.
        if trace.id in labels and not trace.held_out
    ]
    return AutoLabeler(train_learned.teach(examples, embedder), embedder)


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


def ask(store: TraceStore, labeler: AutoLabeler, limit: int, query: Query = Query()) -> list[Trace]:  # noqa: B008 - frozen
    """Which traces of the store a person should label next."""
    lines = store.unlabelled(POOL, query)
    candidates = [trace for line in lines if (trace := store.get(line.id)) is not None]
    known = list(islice(store.traces(Query(labelled=True)), POOL))
    return most_telling(labeler, known, candidates, limit)


def _unlabelled(store: TraceStore) -> Iterator[tuple[Trace, bool | None]]:
    """What no person has labelled, with what the labeler said of it before."""
    before = {label.trace_id: label.good for label in store.labels() if label.who == AUTO}
    for trace in store.traces(Query(labelled=False)):
        yield trace, before.get(trace.id)


def _doubt(proposal: Proposal | None) -> float:
    """1 at a probability of one half, 0 at certainty; a little is left, for even a sure labeler can be wrong."""
    return 1.0 if proposal is None else max(2 * (1 - proposal.probability), 0.02)


def _normal(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Columns of mean 0 and spread 1; the unknown at the mean."""
    known = np.where(np.isnan(table), 0.0, table)
    count = np.maximum((~np.isnan(table)).sum(axis=0), 1)
    mean = known.sum(axis=0) / count
    spread = np.sqrt((np.where(np.isnan(table), 0.0, table - mean) ** 2).sum(axis=0) / count)
    return np.asarray(np.nan_to_num((table - mean) / np.where(spread > 1e-9, spread, 1.0), nan=0.0), np.float64)


def _distances(spots: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """From each spot to the nearest of the others."""
    squared = (spots**2).sum(axis=1)[:, None] + (others**2).sum(axis=1)[None, :] - 2 * spots @ others.T
    return np.asarray(np.sqrt(np.maximum(squared, 0.0)).min(axis=1), np.float64)
