"""A labeler that learned from people's labels: it speaks of the traces that it is surest of, as far as the labels show that it
is right there, and asks where it would learn most.

It sees what the learned reward sees, what the rewards that run nothing say, and the kin of a trace: what other attempts at the
same request did, and what people said of those. How much it may say is `calibration.select`'s to tell.
"""

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from itertools import islice, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from journeyman import rewards
from journeyman.core.trace import Trace
from journeyman.models.embedders import Embedder
from journeyman.rewards import learned, signals
from journeyman.rewards.base import RewardFunction
from journeyman.rewards.calibration import Floats, Guarantee, RiskSelection, examples_needed, select
from journeyman.rewards.train_learned import FittedModel, check_installed, drawn_parts, fitted, moments
from journeyman.stores.traces.base import AUTO, Label, Query, TraceStore
from journeyman.stores.traces.labels import AUDIT, proposed, said, ticket, to_audit
from journeyman.tracing.evidence import AttemptEvidence, evidence_of
from journeyman.tracing.fields import parsed_if_json

POOL = 2000
"""Traces among which those to ask for are chosen, and by which it is told how sure is sure."""
FEWEST = 5
"""Labels of the rarer kind: with fewer nothing can be held out to learn what tells the two apart."""
_PARTS = 10


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
    """Not among the surest, and left without a label."""
    withdrawn: int
    """Labels of an earlier round that this one does not stand by."""


@dataclass(frozen=True, slots=True)
class SeenAttempt:
    """One attempt as the labeler sees it."""

    id: str
    request: str | None
    did: Hashable
    """What it came to: the same for attempts that changed the same, or, where none could, answered the same."""
    parts: frozenset[Hashable]
    """What it wrote for whom: tool, argument and the shape of its value, of every call; of a reply that is JSON its keys."""
    counts: Floats
    words: Floats
    """The embedding; empty without one."""


@dataclass(frozen=True, slots=True)
class JudgedAttempt:
    seen: SeenAttempt
    good: bool
    audited: bool
    """Whether the person was asked because the labeler had spoken: such a trace was not drawn from all."""


@dataclass(frozen=True, slots=True)
class _Kin:
    """What attempts at each request did, and which of them were judged."""

    done: Mapping[str, Counter[Hashable]]
    judged: Mapping[str, Sequence[JudgedAttempt]]
    right: Counter[Hashable]
    wrong: Counter[Hashable]
    """Of each part, in how many attempts that were judged so it stands."""
    verdicts: Mapping[str, bool]

    def columns(self, seen: SeenAttempt) -> list[float]:
        """What others did at the same request, and which of it was right; NaN where nobody knows. Never by its own label."""
        done = self.done.get(seen.request or "", Counter())
        others = done.total() - 1
        agrees = (done[seen.did] - 1) / others if seen.request is not None and others > 0 else float("nan")
        known = [each for each in self.judged.get(seen.request or "", ()) if each.seen.id != seen.id]
        right = [each.seen.did == seen.did for each in known if each.good]
        same_as_wrong = any(each.seen.did == seen.did for each in known if not each.good)
        share = sum(each.good for each in known) / len(known) if known else float("nan")
        kin = [agrees, float(any(right)), float(bool(right) and not any(right)), float(same_as_wrong), share]
        return kin + self._by_parts(seen)

    def _by_parts(self, seen: SeenAttempt) -> list[float]:
        """How often its parts stood in others that were right: the least, the mean, and how many stood in none."""
        own = self.verdicts.get(seen.id)
        counts = [(self.right[part] - (own is True), self.wrong[part] - (own is False)) for part in seen.parts]
        shares = [(right + 0.5) / (right + wrong + 1) for right, wrong in counts]
        if not shares:
            return [float("nan")] * 3
        return [min(shares), sum(shares) / len(shares), float(sum(not right for right, _ in counts))]


def see(trace: Trace, embedder: Embedder | None) -> SeenAttempt:
    attempt = evidence_of(trace)
    did: Hashable = signals.writes(attempt) if trace.tool_calls else " ".join(trace.reply.lower().split())
    said = [reward.compute(trace).score for reward in _static()]
    more = [float("nan") if each is None else each for each in said]
    counts = np.concatenate([learned.numbers([trace])[0], np.array([*more, float(len(trace.shown))])])
    return SeenAttempt(
        id=trace.id,
        request=signals.request_of(attempt),
        did=did,
        parts=_parts(attempt),
        counts=counts,
        words=learned.columns([trace], embedder)[0, len(learned.NAMES) :],
    )


def _parts(attempt: AttemptEvidence) -> frozenset[Hashable]:
    written: list[tuple[str, Any]] = [(call.tool, call.arguments) for call in attempt.calls]
    if not written:
        written = [("", parsed_if_json(attempt.trace.reply.strip()))]
    return frozenset(part for tool, value in written for part in _shapes(tool, value))


def _shapes(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Each value that an object holds by where it stands, with digits and letters alike: a date is 9.9.9 whichever it is."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _shapes(f"{path}.{key}", inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _shapes(f"{path}[]", inner)
    elif path:
        text = _LETTERS.sub(lambda found: "A" if found[0].isupper() else "a", str(value)[:_LONGEST])
        yield path, _DIGITS.sub("9", text)


_LETTERS, _DIGITS = re.compile(r"[^\W\d_]+"), re.compile(r"\d+")
_LONGEST = 200


@cache
def _static() -> tuple[RewardFunction, ...]:
    return rewards.load("tool_success"), rewards.load("task_completion")


@dataclass(frozen=True, slots=True)
class _Reader:
    """Says how likely an attempt is good, taught by some of the labels."""

    kin: _Kin
    fit: FittedModel

    def probabilities(self, seen: Sequence[SeenAttempt]) -> Floats:
        return self.fit(_table(seen, self.kin))

    def sureness(self, seen: Sequence[SeenAttempt]) -> Floats:
        """Of whatever it would say, one half or more."""
        found = self.probabilities(seen)
        return np.maximum(found, 1 - found)


def _table(seen: Sequence[SeenAttempt], kin: _Kin) -> Floats:
    return np.array([[*each.counts, *kin.columns(each), *each.words] for each in seen], np.float64)


def _reader(judged: Sequence[JudgedAttempt], done: Mapping[str, Counter[Hashable]]) -> _Reader:
    by_request: dict[str, list[JudgedAttempt]] = {}
    for each in judged:
        if each.seen.request is not None:
            by_request.setdefault(each.seen.request, []).append(each)
    parts = {kind: Counter(part for each in judged if each.good is kind for part in each.seen.parts) for kind in (True, False)}
    kin = _Kin(done, by_request, parts[True], parts[False], {each.seen.id: each.good for each in judged})
    table = _table([each.seen for each in judged], kin)
    width = table.shape[1] - len(judged[0].seen.words)
    return _Reader(kin, fitted(table, np.array([each.good for each in judged], np.float64), None, width))


@dataclass(frozen=True, slots=True)
class AutoLabeler:
    """Says what people would say where it may, and how sure it is."""

    guarantee: Guarantee
    labels: int
    """Of people."""
    successes: int
    reader: _Reader | None = None
    embedder: Embedder | None = None
    least: float = 1.0
    """How sure is sure enough: what its share of the traces without a label is as sure as."""
    shown: RiskSelection | None = None
    """What labels of traces that it had not spoken of show; `None`: nothing."""
    audited: tuple[int, int] = (0, 0)
    """Of the traces that it had spoken of before a person did, and would speak of again: how many it would have wrong, and
    how many there are."""
    needed: int | None = None
    """Labels that it would need, where it may not speak; `None` where that cannot be told."""

    @property
    def selection(self) -> RiskSelection | None:
        """What it may say: what was shown, as long as the traces that it is held to do not raise the bound above the risk."""
        bound = self.upper
        return self.shown if bound is not None and bound <= self.guarantee.risk else None

    @property
    def silence(self) -> str | None:
        """Why it must not speak, or `None` when it may."""
        if self.selection is not None:
            return None
        of = f"{self.successes} good and {self.labels - self.successes} bad"
        if self.reader is None:
            fewest = self.guarantee.least_said() or 0
            return f"people labelled {of}; it takes {FEWEST} of each, and {fewest} at least that it is right about"
        promise = f"that {self.guarantee.least:.0%} of what it says is right, with confidence {self.guarantee.confidence:g}"
        if self.needed is None:
            return f"{of} do not show {promise}, of any share of the traces; more labels alone are not likely to"
        return f"{of} do not show {promise}: it needs about {max(self.needed, self.labels + 1)} labels"

    @property
    def upper(self) -> float | None:
        """The exact upper bound of the share that is wrong, by all that was counted; `None` where nothing was shown."""
        if self.shown is None:
            return None
        wrong, said = self.audited
        return self.guarantee.upper(self.shown.wrong + wrong, self.shown.said + said)

    def probability(self, trace: Trace) -> float:
        """How likely the attempt is good; one half where nothing was learned."""
        return 0.5 if self.reader is None else float(self.reader.probabilities([see(trace, self.embedder)])[0])

    def proposal(self, trace: Trace) -> Proposal | None:
        """What it would say; `None` where it may not speak, or is not among the sure."""
        if self.selection is None:
            return None
        success = self.probability(trace)
        sure = max(success, 1 - success)
        return Proposal(trace_id=trace.id, good=success >= 0.5, probability=sure) if sure >= self.least else None

    def json(self) -> dict[str, Any]:
        found = self.selection
        return {
            "labels": self.labels,
            "successes": self.successes,
            "failures": self.labels - self.successes,
            "guarantee": self.guarantee.least,
            "confidence": self.guarantee.confidence,
            "silent": self.silence,
            "needed": self.needed if found is None else None,
            "share": found and found.share,
            "checked": found and found.said,
            "wrong": found and found.wrong,
            "upper": None if self.upper is None else round(self.upper, 4),
        }


def unanimous(labels: Iterable[Label]) -> dict[str, bool]:
    """What people say of each trace; traces on which they disagree are left out."""
    words = said(labels)
    words.pop(AUTO, None)
    of_each: dict[str, set[bool]] = {}
    for trace_id, good in (word for person in words.values() for word in person.items()):
        of_each.setdefault(trace_id, set()).add(good)
    return {trace_id: found.pop() for trace_id, found in of_each.items() if len(found) == 1}


def teach(store: TraceStore, embedder: Embedder | None = None, guarantee: Guarantee = Guarantee()) -> AutoLabeler:  # noqa: B008 - frozen
    """The labeler that the labels in a store teach. Taught with too few, it is silent.

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    history = store.labels()
    return taught(store.traces(Query()), unanimous(history), proposed(history), embedder, guarantee)


def taught(
    traces: Iterable[Trace],
    labels: Mapping[str, bool],
    audited: Collection[str] = (),
    embedder: Embedder | None = None,
    guarantee: Guarantee = Guarantee(),  # noqa: B008 - frozen
) -> AutoLabeler:
    """The labeler that labels of some of these traces teach.

    It may speak of the largest share of the others that `select` finds, by labels of traces that it had not spoken of before a
    person did; and only where the other labels, those that it is held to, do not raise the bound above the risk.

    Args:
        labels: By trace; of traces that were drawn at random the guarantee holds, of others as far as they are like those.
        audited: Traces that the labeler had spoken of before a person did.

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    # Attempts at held-out tasks stand among the traces, too, and nobody learns from them.
    seen = (see(trace, embedder) for trace in traces if not trace.held_out)
    return replace(learn(seen, labels, audited, guarantee), embedder=embedder)


def learn(
    attempts: Iterable[SeenAttempt],
    labels: Mapping[str, bool],
    audited: Collection[str] = (),
    guarantee: Guarantee = Guarantee(),  # noqa: B008 - frozen
) -> AutoLabeler:
    """As `taught`, of attempts that were seen before."""
    check_installed()
    done: dict[str, Counter[Hashable]] = {}
    judged, pool = list[JudgedAttempt](), list[SeenAttempt]()
    for seen in attempts:
        if seen.request is not None:
            done.setdefault(seen.request, Counter())[seen.did] += 1
        if seen.id in labels:
            judged.append(JudgedAttempt(seen, labels[seen.id], seen.id in audited))
        else:
            pool.append(seen)
            if len(pool) >= 2 * POOL:
                pool = _drawn(pool)
    successes = sum(each.good for each in judged)
    silent = AutoLabeler(guarantee, len(judged), successes)
    if min(successes, len(judged) - successes) < FEWEST:
        return silent
    return _selected(replace(silent, reader=_reader(judged, done)), judged, _drawn(pool))


def _drawn(pool: Sequence[SeenAttempt]) -> list[SeenAttempt]:
    return sorted(pool, key=lambda seen: ticket(seen.id))[:POOL]


def _selected(labeler: AutoLabeler, judged: Sequence[JudgedAttempt], pool: Sequence[SeenAttempt]) -> AutoLabeler:
    """The labeler with what it may say."""
    if labeler.reader is None or not pool:
        return labeler
    ranks, right = _held_out_ranks(judged, pool, labeler.reader.kin.done)
    audited = np.array([each.audited for each in judged])
    chosen = select(ranks[~audited], right[~audited], labeler.guarantee)
    labeler = replace(labeler, shown=chosen, needed=examples_needed(ranks, right, labeler.guarantee))
    if chosen is None:
        return labeler
    sure = np.sort(labeler.reader.sureness(pool))[::-1] if labeler.reader else np.ones(1)
    least = float(sure[min(len(sure), max(1, round(chosen.share * len(sure)))) - 1])
    spoken = audited & (ranks <= chosen.share)
    return replace(labeler, least=least, audited=(int((spoken & ~right).sum()), int(spoken.sum())))


def _held_out_ranks(
    judged: Sequence[JudgedAttempt], pool: Sequence[SeenAttempt], done: Mapping[str, Counter[Hashable]]
) -> tuple[Floats, NDArray[np.bool_]]:
    """Of each judged attempt the share of the pool of which a labeler that was not taught with it is as sure or surer, and
    whether that labeler is right about it. Parts are drawn by chance, not by task: the pool has attempts at the same tasks."""
    good = np.array([each.good for each in judged])
    ranks, right = np.ones(len(judged)), np.zeros(len(judged), np.bool_)
    for train, test in drawn_parts(good, _PARTS):
        reader = _reader([judged[place] for place in train], done)
        sure = np.sort(reader.sureness(pool))
        held = [judged[place].seen for place in test]
        found = reader.probabilities(held)
        ranks[test] = 1 - np.searchsorted(sure, np.maximum(found, 1 - found), side="left") / len(sure)
        right[test] = (found >= 0.5) == good[test]
    return ranks, right


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What became of the share of the labeler's labels that a person is asked about."""

    said: int
    """Labels of the labeler, those that a person has overruled too."""
    waiting: tuple[str, ...]
    """Traces that were drawn and wait for a person, in the order in which they are asked for."""
    answered: int
    wrong: int
    checked: int
    """Labelled examples by which the guarantee was shown, and so many of them wrong."""
    checked_wrong: int
    share: float
    guarantee: Guarantee

    @property
    def upper(self) -> float:
        """The exact upper bound of the share that is wrong, by all that was counted."""
        return self.guarantee.upper(self.wrong + self.checked_wrong, self.answered + self.checked)

    @property
    def failed(self) -> bool:
        """Whether all that was counted no longer bears the guarantee, or the audit alone speaks against it."""
        return self.said > 0 and (self.upper > self.guarantee.risk or self.guarantee.is_refuted(self.wrong, self.answered))

    @property
    def sentence(self) -> str:
        if not self.said:
            return "The labeler's labels were not audited: none of them stands"
        people = f"people were asked about {self.answered + len(self.waiting)} of {self.said}, answered {self.answered}"
        counts = f"{self.wrong} of these wrong, and {self.checked_wrong} of {self.checked} that it was tested with"
        bound = f"at most {self.upper:.1%} of what it says is wrong, with confidence {self.guarantee.confidence:g}"
        promised = f"{self.guarantee.risk:.1%} was promised"
        return f"{people}: {counts}, so {bound}; {promised}{', so the audit failed' if self.failed else ''}"

    def json(self) -> dict[str, Any]:
        counts = {"said": self.said, "waiting": len(self.waiting), "answered": self.answered, "wrong": self.wrong}
        return {**counts, "checked": self.checked, "checked_wrong": self.checked_wrong, "upper": round(self.upper, 4)} | {
            "guarantee": self.guarantee.least,
            "confidence": self.guarantee.confidence,
            "failed": self.failed,
        }


def audit(history: Sequence[Label], labeler: AutoLabeler, share: float = AUDIT) -> Audit:
    """How the labels that stand did with the people who were asked about some of them."""
    drawn, words, people = to_audit(history, share), proposed(history), unanimous(history)
    told = [id for id in drawn if id in words and id in people]
    found = labeler.shown
    return Audit(
        said=len(said(history).get(AUTO, {})),
        waiting=tuple(id for id in drawn if id not in people),
        answered=len(told),
        wrong=sum(words[id] is not people[id] for id in told),
        checked=found.said if found else 0,
        checked_wrong=found.wrong if found else 0,
        share=share,
        guarantee=labeler.guarantee,
    )


def withdraw(store: TraceStore, *, at: datetime, dry_run: bool = False) -> int:
    """Take back every label of the labeler; how many. They are rows like others: `undo` brings back what they took."""
    standing = said(store.labels()).get(AUTO, {})
    for trace_id in () if dry_run else standing:
        store.label(trace_id, None, who=AUTO, at=at)
    return len(standing)


def undo(store: TraceStore, *, at: datetime, dry_run: bool = False) -> int:
    """Say of each trace what the labeler said before its last round, labels and withdrawals alike; of how many."""
    words: dict[str, list[Label]] = {}
    for label in store.labels():
        if label.who == AUTO:
            words.setdefault(label.trace_id, []).append(label)
    last = max((each[-1].at for each in words.values()), default=None)
    undone = [each for each in words.values() if each[-1].at == last]
    for each in () if dry_run else undone:
        before = each[-2] if len(each) > 1 else None
        good, probability = (before.good, before.probability) if before else (None, None)
        store.label(each[-1].trace_id, good, who=AUTO, at=at, probability=probability)
    return len(undone)


def propose(labeler: AutoLabeler, traces: Iterable[Trace]) -> Iterator[Proposal]:
    """What the labeler would say of each of which it may speak."""
    return (proposal for trace in traces if (proposal := labeler.proposal(trace)) is not None)


def apply(store: TraceStore, labeler: AutoLabeler, *, at: datetime, dry_run: bool = False) -> Applied:
    """Label what no person has labelled, wherever the labeler may speak. Its labels say that they are its own, and an earlier
    one that it no longer stands by is withdrawn: all of them where it is silent."""
    counts = {True: 0, False: 0}
    unsure = withdrawn = 0
    for trace, before in _unlabelled(store):
        proposal = labeler.proposal(trace)
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
    doubt = np.array([_doubt(labeler.probability(trace)) for trace in pool])
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
    """Which traces of the store a person should label next."""
    lines = store.unlabelled(POOL, query)
    candidates = [trace for line in lines if (trace := store.get(line.id)) is not None]
    known = list(islice(store.traces(Query(labelled=True)), POOL))
    return by_turns(labeler, known, candidates, limit)


def by_turns(labeler: AutoLabeler, known: Sequence[Trace], candidates: Sequence[Trace], limit: int) -> list[Trace]:
    """What would make a contrast and what is most telling, by turns: where contrasts alone are asked for, a labeler learns less
    from as many labels (LOG.md)."""
    pairs = zip_longest(contested(known, candidates)[:limit], most_telling(labeler, known, candidates, limit))
    found = {trace.id: trace for pair in pairs for trace in pair if trace is not None}
    return list(found.values())[:limit]


def _unlabelled(store: TraceStore) -> Iterator[tuple[Trace, bool | None]]:
    """What no person has labelled, with what the labeler said of it before."""
    before = {label.trace_id: label.good for label in store.labels() if label.who == AUTO}
    for trace in store.traces(Query(labelled=False)):
        yield trace, before.get(trace.id)


def _doubt(probability: float) -> float:
    """1 at a probability of one half, 0 at certainty; a little is left, for even a sure labeler can be wrong."""
    return max(2 * min(probability, 1 - probability), 0.02)


def _normal(table: Floats) -> Floats:
    """Columns of mean 0 and spread 1; the unknown at the mean."""
    mean, scale = moments(table)
    return np.asarray(np.nan_to_num((table - mean) / scale, nan=0.0), np.float64)


def _distances(spots: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """From each spot to the nearest of the others."""
    squared = (spots**2).sum(axis=1)[:, None] + (others**2).sum(axis=1)[None, :] - 2 * spots @ others.T
    return np.asarray(np.sqrt(np.maximum(squared, 0.0)).min(axis=1), np.float64)
