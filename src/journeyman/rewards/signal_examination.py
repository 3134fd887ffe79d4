"""Signals of traces held against what is known of the attempts: how often each fires, how well it tells, whether it may vote.

What is known is what turned out later, what a person says and what a check found (`signals.truth_of`), and never a signal's own
word. Attempts at one request, or made for one customer, go well or badly together: every interval resamples whole groups.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from journeyman.core.format import counted
from journeyman.core.reward import HALF, Reward, Source
from journeyman.rewards import signals
from journeyman.rewards.calibration import Floats, IntervalEstimate, auc
from journeyman.rewards.learned import Standing, stand
from journeyman.rewards.signals import (
    Granularity,
    RequestOf,
    Right,
    Signal,
    repairs,
    request_of,
    schema_faults,
    stopped,
    truth_of,
)
from journeyman.tracing.evidence import AttemptEvidence

MIN_LABELS = 50
"""Labelled attempts from which something is an examination."""
MIN_OF_A_KIND = 10
"""Of failures, of successes, and of attempts where a signal fires and where it does not."""
EARNED = 0.65
"""What the lower end of a judge's AUC must exceed: a vote teaches, so better than a coin is not enough."""
_PEOPLE = frozenset({Source.TRUTH, Source.PERSON})
_RESAMPLES = 1000
_AT_ONCE = 100
"""Resamplings made together: 10,000 groups of attempts then take a few megabytes."""
_MANY = 10_000
"""Groups from which fewer resamplings do: an interval is narrow then."""
_LEVELS = 200
"""Values of a signal that an interval tells apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalFinding:
    """What a signal was worth on labelled attempts."""

    signal: Signal
    known: int
    """Attempts that it could be read from, labelled or not."""
    fires: int
    """Of these."""
    labelled: int = 0
    """Of those that it could be read from."""
    auc: IntervalEstimate | None = None
    """The chance that it is higher in a failure than in a success: .5 says nothing, below it has the wrong sign. `None` where
    there is no failure or no success, or it is everywhere the same."""
    within: float | None = None
    """The same over pairs of a failed and a right attempt at one request: what remains where hard requests explain nothing."""
    pairs: int = 0
    fail_if_fires: IntervalEstimate | None = None
    """The share of failures where it fires; `None` where it never does."""
    fail_if_not: IntervalEstimate | None = None
    examined: bool = False
    """Whether there were labels and firings enough to confirm or refuse its vote."""
    votes: bool = False
    reason: str = ""
    """Why it has a vote, or none, in one sentence."""

    def json(self) -> dict[str, Any]:
        estimates = {"auc": self.auc, "fail_if_fires": self.fail_if_fires, "fail_if_not": self.fail_if_not}
        return {
            "signal": self.signal.name,
            "granularity": self.signal.granularity.value,
            "weight": self.signal.weight,
            "known": self.known,
            "fires": self.fires,
            "labelled": self.labelled,
            **{name: each.json() if each else None for name, each in estimates.items()},
            "within": self.within,
            "pairs": self.pairs,
            "examined": self.examined,
            "votes": self.votes,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeFinding:
    """How a judge's opinions of one agent's attempts stood up to what people and later truth said of them."""

    agent: str | None
    name: str
    opinions: int
    sessions: int
    """Labelled by people or later truth, with an opinion."""
    standing: Standing
    right_if_good: float | None = None
    """The share of right attempts among those that it calls good; `None` where there is none."""
    wrong_if_bad: float | None = None

    def json(self) -> dict[str, Any]:
        return {
            "judge": self.name,
            "agent": self.agent,
            "opinions": self.opinions,
            "sessions": self.sessions,
            "standing": self.standing.json(),
            "right_if_good": self.right_if_good,
            "wrong_if_bad": self.wrong_if_bad,
            "votes": may_vote(self),
            "reason": refusal(self) or "it earned its vote on labelled sessions of this agent",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalReport:
    """What was found of every signal and judge."""

    attempts: int
    labelled: int
    failed: int
    groups: int
    """Of labelled attempts that go well or badly together."""
    held_out: int = 0
    """Attempts at held-out tasks, that were left aside: nobody learns from them."""
    findings: tuple[SignalFinding, ...] = ()
    judges: tuple[JudgeFinding, ...] = ()
    right: Right = field(default_factory=dict, hash=False, repr=False)

    @property
    def silence(self) -> str | None:
        """Why nothing can be said of how well signals tell, or `None`."""
        if not self.attempts:
            return "there are no attempts"
        if not self.labelled:
            return "of no attempt is known whether it was right"
        if self.failed in (0, self.labelled):
            kind = "right" if self.failed == 0 else "wrong"
            return f"all {counted(self.labelled, 'attempt')} of which anything is known were {kind}"
        return None

    def finding(self, name: str) -> SignalFinding | None:
        return next((each for each in self.findings if each.signal.name == name), None)

    def json(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in ("attempts", "labelled", "failed", "groups", "held_out")}
        return {
            **counts,
            "nothing_to_say": self.silence,
            "signals": [each.json() for each in self.findings],
            "judges": [each.json() for each in self.judges],
        }


def measure(attempts: Iterable[AttemptEvidence], request: RequestOf = request_of, *, seed: int = 0) -> SignalReport:
    """What each signal is worth on these attempts, as far as anybody knows how they went.

    Args:
        attempts: Are read once, and not kept.
        request: What attempts at the same request share; by default their task.
    """
    rows, held_out = list[_Row](), 0
    for attempt in attempts:
        if attempt.trace.held_out:
            held_out += 1
        else:
            rows.append(_row(attempt, request(attempt)))
    requests = [row.request for row in rows]
    right: dict[Hashable, dict[str, signals.Writes]] = defaultdict(dict)
    for row in rows:
        if row.right and row.request is not None:
            right[row.request][row.id] = row.written
    for row, share in zip(rows, signals.disagreement([row.written for row in rows], requests), strict=True):
        differs = signals.differs_from_right(row.id, row.written, row.request, right)
        row.values.update(
            {} if share is None else {"disagrees": share}, **({} if differs is None else {"differs_from_right": float(differs)})
        )
    labels = _Labels([row.right for row in rows], [row.group for row in rows], requests, seed)
    found = [_finding(signal, [row.values.get(signal.name) for row in rows], labels) for signal in signals.SIGNALS]
    return SignalReport(
        attempts=len(rows),
        labelled=sum(row.right is not None for row in rows),
        failed=sum(row.right is False for row in rows),
        groups=len({row.group for row in rows if row.right is not None}),
        held_out=held_out,
        findings=tuple(each for each in found if each.known),
        judges=tuple(_judges(rows)),
        right=dict(right),
    )


@dataclass(slots=True, kw_only=True)
class _Row:
    """What is kept of an attempt."""

    id: str
    agent: str | None
    session: str
    request: Hashable | None
    group: str
    """Attempts that go well or badly together share it."""
    right: bool | None
    right_by_people: bool | None
    written: signals.Writes
    values: dict[str, float]
    opinions: Mapping[str, float]
    """Of judges, by their names."""


def _row(attempt: AttemptEvidence, request: Hashable | None) -> _Row:
    trace = attempt.trace
    said = (reward for reward in trace.said if reward.told_by is Source.JUDGE)
    return _Row(
        id=trace.id,
        agent=trace.agent,
        session=trace.session or trace.id,
        request=request,
        group=attempt.principal if request is None else str(request),
        right=truth_of(trace),
        right_by_people=truth_of(trace, _PEOPLE),
        written=signals.writes(attempt),
        values=dict(signals.values(attempt)),
        opinions={reward.name: reward.value for reward in said if reward.value is not None},
    )


@dataclass(frozen=True, slots=True)
class _Labels:
    """What is known of attempts, in one order."""

    truth: Sequence[bool | None]
    groups: Sequence[str]
    requests: Sequence[Hashable | None]
    seed: int
    _draws: dict[tuple[int, ...], "_Draws"] = field(default_factory=dict)

    def draws(self, places: Sequence[int]) -> "_Draws":
        """Resamplings of the groups of some attempts. Most signals can be read from all."""
        key = tuple(places)
        if key not in self._draws:
            self._draws[key] = _Draws([self.groups[place] for place in places], self.seed)
        return self._draws[key]


def _finding(signal: Signal, values: Sequence[float | None], labels: _Labels) -> SignalFinding:
    """One signal on all attempts; a value is `None` where it could not be read."""
    told = np.array([value for value in values if value is not None], np.float64)
    least = signal.at_least if signal.at_least is not None else _highest_tenth(told)
    found = SignalFinding(signal=signal, known=len(told), fires=int((told >= least).sum()))
    places = [place for place, value in enumerate(values) if value is not None and labels.truth[place] is not None]
    if not places:
        return _judged(found, failed=0)
    scores = np.array([values[place] for place in places], np.float64)
    failed = np.array([labels.truth[place] is False for place in places])
    draws = labels.draws(places)
    within, pairs = _within(scores, failed, [labels.requests[place] for place in places])
    fires = scores >= least
    examined = SignalFinding(
        signal=signal,
        known=found.known,
        fires=found.fires,
        labelled=len(places),
        auc=_auc(scores, failed, draws),
        within=within,
        pairs=pairs,
        fail_if_fires=_share(failed, fires, draws),
        fail_if_not=_share(failed, ~fires, draws),
    )
    return _judged(examined, failed=int(failed.sum()), fired=int(fires.sum()))


def _highest_tenth(told: Floats) -> float:
    """The value from which a tenth lies, or less where many are equal."""
    return float(np.nextafter(np.quantile(told, 0.9), np.inf)) if len(told) else 0.0


def _judged(found: SignalFinding, *, failed: int, fired: int = 0) -> SignalFinding:
    rarest = min(failed, found.labelled - failed, fired, found.labelled - fired)
    enough = found.labelled >= MIN_LABELS and rarest >= MIN_OF_A_KIND and found.signal.granularity is Granularity.SESSION
    known = replace(found, examined=enough)
    votes, reason = _verdict(known)
    return replace(known, votes=votes, reason=reason)


def _verdict(found: SignalFinding) -> tuple[bool, str]:
    signal = found.signal
    if signal.weight == 0:
        return False, signal.why
    if not found.fires:
        return False, f"it fires in none of {counted(found.known, 'attempt')}"
    if signal.granularity is not Granularity.SESSION:
        return True, f"of its {signal.granularity}, and not of the session: {signal.why}"
    if not found.examined or found.auc is None or found.fail_if_fires is None:
        return True, f"{signal.why}; not examined here, as that takes {MIN_LABELS} labels and {MIN_OF_A_KIND} of each kind"
    if found.auc.low > HALF and found.fail_if_fires.low > HALF:
        return True, f"where it fires {found.fail_if_fires.value:.0%} failed here"
    return False, f"it does not hold here: AUC {found.auc}, and {found.fail_if_fires} of those where it fires failed"


# Numbers, with intervals over groups.


class _Draws:
    """Resamplings of groups: how often each is drawn, the same for everything that is measured on the same attempts."""

    def __init__(self, groups: Sequence[str], seed: int) -> None:
        names = {name: place for place, name in enumerate(sorted(set(groups)))}
        self.of = np.array([names[group] for group in groups])
        self.groups = len(names)
        chance = np.random.default_rng(seed)
        times = _RESAMPLES if self.groups <= _MANY else _RESAMPLES // 5
        self._drawn = [self._counts(chance) for _ in range(times // _AT_ONCE)]

    def _counts(self, chance: np.random.Generator) -> NDArray[np.uint8]:
        drawn = chance.integers(self.groups, size=(_AT_ONCE, self.groups)) + np.arange(_AT_ONCE)[:, None] * self.groups
        # A group is drawn once in the mean, and never 256 times.
        return np.bincount(drawn.ravel(), minlength=_AT_ONCE * self.groups).reshape(_AT_ONCE, -1).astype(np.uint8)

    def __iter__(self) -> Iterator[Floats]:
        return (drawn.astype(np.float64) for drawn in self._drawn)

    def sums(self, values: NDArray[Any], by: NDArray[np.int64] | None = None, kinds: int = 1) -> Floats:
        """Sums of values, a row for each group and a column for each kind."""
        place = self.of * kinds + (0 if by is None else by)
        found = np.bincount(place, values.astype(np.float64), self.groups * kinds)
        return np.asarray(found, np.float64).reshape(self.groups, kinds)


def _auc(scores: Floats, failed: NDArray[np.bool_], draws: _Draws) -> IntervalEstimate | None:
    value = auc(scores, failed.astype(np.float64))
    if np.isnan(value) or scores.min() == scores.max():
        return None
    ranks = rankdata(scores, "dense").astype(np.int64) - 1
    if (kinds := int(ranks.max()) + 1) > _LEVELS:
        ranks, kinds = ranks * _LEVELS // kinds, _LEVELS
    bad, good = draws.sums(failed, ranks, kinds), draws.sums(~failed, ranks, kinds)
    found = []
    for drawn in draws:
        wrong, right = drawn @ bad, drawn @ good
        below = np.cumsum(right, axis=1) - right / 2
        possible = wrong.sum(axis=1) * right.sum(axis=1)
        found.append(_ratio((wrong * below).sum(axis=1), possible))
    return _estimate(value, np.concatenate(found))


def _share(failed: NDArray[np.bool_], among: NDArray[np.bool_], draws: _Draws) -> IntervalEstimate | None:
    """The share of failures among some. Resampling a handful that all failed knows no doubt: the interval is never narrower
    than Wilson's for so many attempts."""
    count = int(among.sum())
    if not count:
        return None
    both, all_ = draws.sums(failed & among), draws.sums(among)
    resampled = [_ratio((drawn @ both)[:, 0], (drawn @ all_)[:, 0]) for drawn in draws]
    found = _estimate(float((failed & among).sum()) / count, np.concatenate(resampled))
    low, high = _wilson(found.value, count)
    return IntervalEstimate(found.value, min(found.low, low), max(found.high, high))


def _wilson(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson, 1927)."""
    z = 1.959964
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * float(np.sqrt(share * (1 - share) / count + z * z / (4 * count * count)))
    return max(0.0, middle - half), min(1.0, middle + half)


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.asarray(np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0), np.float64)


def _estimate(value: float, resampled: Floats) -> IntervalEstimate:
    known = resampled[~np.isnan(resampled)]
    low, high = np.quantile(known, [0.025, 0.975]) if len(known) else (float("nan"), float("nan"))
    return IntervalEstimate(value, float(low), float(high))


def _within(scores: Floats, failed: NDArray[np.bool_], requests: Sequence[Hashable | None]) -> tuple[float | None, int]:
    """Over pairs of a failed and a right attempt at one request: how often the failed one has the higher value."""
    of: dict[Hashable, list[int]] = defaultdict(list)
    for place, request in enumerate(requests):
        if request is not None:
            of[request].append(place)
    won, pairs = 0.0, 0
    for places in of.values():
        wrong, right = scores[places][failed[places]], scores[places][~failed[places]]
        if here := len(wrong) * len(right):
            won += auc(scores[places], failed[places].astype(np.float64)) * here
            pairs += here
    return (won / pairs if pairs else None), pairs


# Judges: each by itself, on each agent by itself, and only by what people or later truth say.


def _judges(rows: Sequence[_Row]) -> Iterator[JudgeFinding]:
    by_judge: dict[tuple[str, str], list[_Row]] = defaultdict(list)
    for row in rows:
        for name in row.opinions:
            by_judge[row.agent or "", name].append(row)
    for (agent, name), judged in sorted(by_judge.items()):
        known = [(row, row.opinions[name], row.right_by_people) for row in judged if row.right_by_people is not None]
        right = [good for *_, good in known]
        yield JudgeFinding(
            agent=agent or None,
            name=name,
            opinions=len(judged),
            sessions=len({row.session for row, *_ in known}),
            standing=stand([value for _, value, _ in known], right, [row.group for row, *_ in known]),
            right_if_good=_share_of(good for _, value, good in known if value >= HALF),
            wrong_if_bad=_share_of(not good for _, value, good in known if value < HALF),
        )


def _share_of(found: Iterator[bool]) -> float | None:
    counts = Counter(found)
    return counts[True] / counts.total() if counts else None


def refusal(judge: JudgeFinding) -> str | None:
    """Why a judge has no vote, or `None` where it earned one."""
    if judge.sessions < MIN_LABELS:
        return f"{counted(judge.sessions, 'session')} with its opinion and a person's or a later word; it takes {MIN_LABELS}"
    if judge.standing.silence is not None:
        return judge.standing.silence
    if judge.standing.auc is None or judge.standing.auc.low <= EARNED:
        return (
            f"better than a coin, and not good enough to teach: AUC {judge.standing.auc}, whose lower end must exceed {EARNED}"
        )
    return None


def may_vote(judge: JudgeFinding) -> bool:
    """Whether a judge's opinions of this agent's attempts may vote."""
    return refusal(judge) is None


# Votes.


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalVote:
    """One word that counts on whether an attempt, or one call of it, was right."""

    good: bool
    weight: float
    """0 to 1."""
    granularity: Granularity
    source: Source
    """Whose word it is."""
    signal: str
    """Which signal, or the judge by name."""
    place: int | None = None
    """Of the call that it speaks of, among the steps of the trace; `None` where it speaks of all of it."""
    why: str = ""


def votes(attempt: AttemptEvidence, examined: SignalReport, request: RequestOf = request_of) -> Sequence[SignalVote]:
    """All that may vote on an attempt and its calls. Whoever asks what counts asks here.

    Ground truth told later decides a session alone, and else people, of whom two that disagree say nothing. Of calls it is the
    request's own schema, and what the tool made of them.
    """
    return (*_session_votes(attempt, examined, request), *_call_votes(attempt))


def _session_votes(attempt: AttemptEvidence, examined: SignalReport, request: RequestOf) -> Iterator[SignalVote]:
    said = [reward for reward in attempt.trace.said if reward.decides and reward.value is not None]
    for source, signal in ((Source.TRUTH, signals.TRUTH), (Source.PERSON, signals.PERSON)):
        words = [reward for reward in said if reward.told_by is source]
        if words:
            good = [reward.value == 1 for reward in words]
            if len(set(good)) == 1:
                yield _vote(signal, source, good=good[0], why=words[0].evidence)
            return
    for reward in said:
        if reward.told_by is Source.CHECK:
            passed = _passed(reward)
            signal = signals.CHECK_PASSED if passed else signals.CHECK_FAILED
            yield _vote(signal, Source.CHECK, good=passed, why=f"{reward.name}: {reward.evidence}")
        elif reward.told_by is Source.JUDGE and (vote := _judge_vote(reward, attempt.trace.agent, examined)) is not None:
            yield vote
    yield from _read_votes(attempt, examined, request)


def _passed(reward: Reward) -> bool:
    """Whether a check says that it was right: all of it, where it is known to be a check; else half, as for an opinion."""
    return reward.value is not None and reward.value >= (1.0 if reward.is_told else HALF)


def _judge_vote(reward: Reward, agent: str | None, examined: SignalReport) -> SignalVote | None:
    judge = next((each for each in examined.judges if (each.agent, each.name) == (agent, reward.name)), None)
    if judge is None or not may_vote(judge):
        return None
    good = (reward.value or 0.0) >= HALF
    weight = (judge.right_if_good if good else judge.wrong_if_bad) or 0.0
    why = f"of {judge.sessions} labelled sessions: AUC {judge.standing.auc}"
    return SignalVote(
        good=good, weight=weight, granularity=Granularity.SESSION, source=Source.JUDGE, signal=reward.name, why=why
    )


def _read_votes(attempt: AttemptEvidence, examined: SignalReport, request: RequestOf) -> Iterator[SignalVote]:
    """What the trace itself shows of the session, unless it was examined here and did not hold."""
    if stopped(attempt.trace) and _holds(signals.STOPPED, examined):
        yield _vote(signals.STOPPED, Source.HEURISTIC, good=False, why=attempt.trace.error or "there is no whole answer")
    differs = signals.differs_from_right(attempt.trace.id, signals.writes(attempt), request(attempt), examined.right)
    if differs is not None and _holds(signals.RIGHT_TWIN, examined):
        did = "did something else than" if differs else "did the same as"
        why = f"it {did} an attempt at the same request that is known to be right"
        yield _vote(signals.RIGHT_TWIN, Source.HEURISTIC, good=not differs, why=why)


def _holds(signal: Signal, examined: SignalReport) -> bool:
    found = examined.finding(signal.name)
    return found is None or found.votes or not found.fires


def _call_votes(attempt: AttemptEvidence) -> Iterator[SignalVote]:
    for call in attempt.calls:
        if faults := schema_faults(call):
            yield _vote(signals.SCHEMA, Source.CHECK, good=False, why="; ".join(faults), place=call.place)
    for repair in repairs(attempt):
        if not repair.flake:
            why = f"{repair.refused.tool} refused it, and took it with other arguments later"
            yield _vote(signals.REJECTED, Source.CHECK, good=False, why=why, place=repair.refused.place)
            yield _vote(signals.REJECTED, Source.CHECK, good=True, why=why, place=repair.accepted.place)


def _vote(signal: Signal, source: Source, *, good: bool, why: str, place: int | None = None) -> SignalVote:
    return SignalVote(
        good=good,
        weight=signal.weight,
        granularity=signal.granularity,
        source=source,
        signal=signal.name,
        place=place,
        why=why,
    )
