"""Decides what becomes of rollouts: closes sessions whose time is over, moves the evidence, and writes what follows.

Sessions enter the test in the order of their assignment, each when its window is over, whenever its labels come. What a test
has come to is kept with the scores that entered it, in one transaction, so that whoever goes on has missed nothing. Two
monitors are one: a lease says who decides, and of two events with one number the second is refused.
"""

import hashlib
import logging
import math
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from journeyman.core.candidate import ServedModel
from journeyman.core.errors import InputError, ReleaseError
from journeyman.core.feedback import SUCCESS
from journeyman.core.format import counted
from journeyman.core.reward import decide as judged
from journeyman.core.rollout import MOST_TOP_TWO, PRODUCTION, Cause, EventKind, Rollout, RolloutState, SlotMove
from journeyman.core.rollout_decision import (
    ArmEvidence,
    Observed,
    RolloutVerdict,
    decide_arms,
    decide_holdback,
    decide_shadow,
)
from journeyman.core.rollout_plan import SCALED, Metric
from journeyman.serving.shadow import Judge, ShadowEvidence
from journeyman.stats.live import BettingEvidence, HarmDetector, SampleRatio, Scale, compared, evidence_for, top_two_shares
from journeyman.stores.base import Assignment, EvidenceRecord, SessionScore
from journeyman.stores.rollouts import RolloutStore
from journeyman.stores.sessions import ServedSession, TraceOpinion

log = logging.getLogger(__name__)

EVERY_SECONDS = 10.0
AT_ONCE = 2000
"""Sessions closed in one transaction."""
_IN_FLIGHT = timedelta(seconds=5)
"""Of two who write at once, who was given the lower number, or the earlier time, may end last: whoever counts waits for it."""
_DRAWN = "drawn"
"""The cursor of those that were counted for the sample ratio, which waits for no outcome."""
_OF_SCALE = 100
"""Calls of production that a scale is made of."""
_RECENT = 50
"""Sessions of production by which it is told how it does now."""
_LEAST = 10
_REBALANCED = 50
"""Sessions after which several candidates divide their share anew."""


class Decided(NamedTuple):
    """What the monitor found of a rollout."""

    rollout: Rollout
    """As it is now."""
    verdict: RolloutVerdict
    acted: bool
    """Whether an event followed."""


class Monitor:
    """One who decides. Several may run; one at a time does."""

    def __init__(
        self,
        store: RolloutStore,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        holder: str = "",
        lease_seconds: float = 60.0,
        keep_loaded: Callable[[Iterable[ServedModel]], None] = lambda models: None,
        judge: Judge | None = None,
    ) -> None:
        """
        Args:
            judge: Judges mirrored answers. Without one they are compared alone.
            keep_loaded: Told each time which learned weights open rollouts may need at once, production's among them.
        """
        self._store = store
        self._clock = clock
        self._holder = holder or f"{socket.gethostname()}/{os.getpid()}"
        self._lease_seconds = lease_seconds
        self._keep_loaded, self._judge = keep_loaded, judge

    def once(self) -> list[Decided] | None:
        """Look at every open rollout once; `None` while another monitor does."""
        now = self._clock()
        if self._store.lease("monitor", self._holder, now, self._lease_seconds) is None:
            return None
        live = self._store.live()
        needed = {arm.candidate_id for each in live.rollouts for arm in (*each.arms, each.baseline)}
        self._keep_loaded(model for id, model in live.models.items() if id in needed)
        open_ones = {each.slot for each in live.rollouts}
        promoted = [move for slot, move in live.production.items() if move.serves and move.rollout_id and slot not in open_ones]
        found = [self._decided(each, now) for each in live.rollouts if each.is_drawing]
        found += [self._shadowed(each, now) for each in live.rollouts if each.state is RolloutState.SHADOW]
        return found + [each for move in promoted if (each := self._watched(move, now)) is not None]

    def leave(self) -> None:
        """Let another decide at once, who would else wait until the lease is over."""
        self._store.give_back("monitor", self._holder, self._clock())

    def _watched(self, move: SlotMove, now: datetime) -> Decided | None:
        """What was promoted, since its rollout was concluded; `None` where nothing was shown that it could fall below."""
        rollout, record = self._store.rollout(move.rollout_id or ""), self._store.evidence(move.rollout_id or "")
        if rollout is None or record is None or rollout.state is not RolloutState.CONCLUDED:
            return None
        watch = DecayWatch.of(rollout, move.candidate_id, record)
        if watch is None or (not watch.close(self._store, now) and not watch.alarmed):
            return None
        verdict = RolloutVerdict(event=None, reason=watch.reason, metric=rollout.plan.primary.name)
        if not watch.alarmed or watch.told:
            watch.keep(self._store, now)
            return Decided(rollout, verdict, acted=False)
        cause = Cause(reason=watch.reason, actor="monitor", at=now, evidence=watch.summary())
        watch.told = True
        if not watch.keep(self._store, now):
            return None
        log.warning("%s: %s", move.slot, watch.reason)
        self._store.tell("decline", move.slot, cause)
        if rollout.plan.on_decay == "rollback":
            self._store.undo(move.slot, cause)
        return Decided(rollout, verdict, acted=True)

    def _decided(self, rollout: Rollout, now: datetime) -> Decided:
        evidence = RolloutEvidence(rollout, self._store.evidence(rollout.id))
        while evidence.close(self._store, now):
            if not evidence.keep(self._store, now):
                # Somebody else was faster: what they kept holds.
                evidence = RolloutEvidence(rollout, self._store.evidence(rollout.id))
        verdict = evidence.verdict(now)
        cause = Cause(reason=verdict.reason, actor="monitor", at=now, evidence=evidence.summary())
        return self._followed(rollout, verdict, cause, evidence.divided() if verdict.event is EventKind.REBALANCE else None)

    def _shadowed(self, rollout: Rollout, now: datetime) -> Decided:
        evidence = ShadowEvidence.read(self._store, rollout)
        if self._judge is not None:
            evidence = evidence.judged(self._store, self._judge, now)
        verdict = decide_shadow(rollout.plan, evidence.seen(now))
        if rollout.is_held and verdict.event is EventKind.RAMP:
            # Whoever held it decides.
            verdict = replace(verdict, event=None)
        return self._followed(
            rollout, verdict, Cause(reason=verdict.reason, actor="monitor", at=now, evidence=evidence.summary())
        )

    def _followed(
        self, rollout: Rollout, verdict: RolloutVerdict, cause: Cause, shares: Mapping[str, float] | None = None
    ) -> Decided:
        after = follow(rollout, verdict, cause, shares)
        if after is None:
            return Decided(rollout, verdict, acted=False)
        try:
            self._store.advance(after)
        except ReleaseError as error:
            log.info("%s: %s", rollout.id, error)
            return Decided(self._store.rollout(rollout.id) or rollout, verdict, acted=False)
        log.warning("%s: %s: %s", rollout.id, verdict.event, verdict.reason)
        return Decided(after, verdict, acted=True)


def follow(
    rollout: Rollout, verdict: RolloutVerdict, cause: Cause, shares: Mapping[str, float] | None = None
) -> Rollout | None:
    """The rollout after what was decided; `None` where nothing is to happen.

    Args:
        shares: Of the candidates, where they divide theirs anew.
    """
    event = verdict.event
    if event is None or (event is EventKind.HOLD and rollout.is_held):
        return None
    if event is EventKind.RAMP:
        return rollout.then(event, cause, rollout.next_shares(verdict.share))
    if event is EventKind.DROP:
        return rollout.without(verdict.arm, cause)
    return rollout.promoted(cause, verdict.arm or None) if event is EventKind.PROMOTE else rollout.then(event, cause, shares)


class RolloutEvidence:
    """What the sessions of a rollout have told so far: each candidate is compared with production."""

    def __init__(self, rollout: Rollout, record: EvidenceRecord | None) -> None:
        """Goes on from what was kept, or begins anew: after a hold that somebody resumed, the sessions of before tell nothing,
        as what was wrong with them would hold it again."""
        self.rollout = rollout
        self.metrics = (rollout.plan.primary, *rollout.plan.guardrails)
        self.number = record.number if record is not None else 0
        resumed = [event.number for event in rollout.events if event.kind is EventKind.RESUME]
        self.begun = resumed[-1] if resumed else 0
        state = record.state if record is not None and record.state.get("begun") == self.begun else {}
        self._cursors: dict[str, int] = dict(state.get("cursors", {}))
        kept = state.get("evidence", {})
        self._arms = tuple(arm.name for arm in rollout.arms)
        self._evidence = {
            (arm, each.name): BettingEvidence.from_state(kept[key])
            if (key := self._key(arm, each.name)) in kept
            else evidence_for(rollout.plan, each)
            for arm in self._arms
            for each in self.metrics
        }
        self._ratio = SampleRatio.from_state(state["ratio"]) if "ratio" in state else SampleRatio(1 + len(self._arms))
        self._scales = {name: Scale(**scale) for name, scale in state.get("scales", {}).items()}
        self._before: dict[str, list[float]] = {name: list(each) for name, each in state.get("before", {}).items()}
        self._closed = {int(event): int(count) for event, count in state.get("closed", {}).items()}
        self._recent: list[float] = list(state.get("recent", ()))
        self._scores: list[SessionScore] = []
        self._until: Mapping[str, int] | None = None
        """When it is made anew: up to where sessions had entered. Then what was said late counts, too."""

    def anew(self, store: RolloutStore) -> "RolloutEvidence":
        """The same sessions once more, by the rows as they are now."""
        made = RolloutEvidence(self.rollout, None)
        made._until = self._cursors
        while made.close(store, self.rollout.created_at):
            made._scores.clear()
        return made

    def close(self, store: RolloutStore, now: datetime) -> bool:
        """Take in sessions whose time is over; whether there were any. Each in the order of its assignment."""
        found = False
        # Metrics that wait equally long are at the same sessions: what is read for one is not read again for the next.
        waiting = cache(lambda after: store.assignments(self.rollout.id, after=after, limit=AT_ONCE))
        served = cache(lambda units: store.served_sessions(self.rollout.id, units))
        for metric in self.metrics:
            window = timedelta(seconds=self._window(metric))
            # What was recorded in time may still be on its way to the disk.
            begun, after = now - window - min(window / 4, _IN_FLIGHT), self._cursors.get(metric.name, 0)
            # Whoever comes behind one that is still waited for waits too.
            over = list(takewhile(lambda each: self._is_over(metric.name, each, begun), waiting(after)))  # noqa: B023 - used at once
            if not over:
                continue
            found = True
            sessions = served(tuple(each.unit for each in over))
            for each in over:
                self._take(metric, each, sessions.get(each.unit))
            self._cursors[metric.name] = over[-1].seq
        for each in waiting(self._cursors.get(_DRAWN, 0)):
            if not self._is_over(_DRAWN, each, now - _IN_FLIGHT):
                break
            found = True
            self._cursors[_DRAWN] = each.seq
            if self._counts(each):
                shares = self._shares(each)
                self._ratio.add(self._number(each.arm), (max(0.0, 1 - sum(shares)), *shares))
        return found

    def _is_over(self, cursor: str, each: Assignment, begun: datetime) -> bool:
        """Whether a session enters that was assigned at a moment or before."""
        return each.at <= begun if self._until is None else each.seq <= self._until.get(cursor, 0)

    def keep(self, store: RolloutStore, now: datetime) -> bool:
        """Whether it was: somebody else may have been faster."""
        self.number += 1
        record = EvidenceRecord(self.number, min(self._cursors.values(), default=0), self.state(), self.summary(), now)
        scores, self._scores = self._scores, []
        return store.add_evidence(self.rollout.id, record, scores)

    def _key(self, arm: str, metric: str) -> str:
        """What evidence is kept under."""
        return metric if len(self._arms) == 1 else f"{arm}.{metric}"

    def _number(self, arm: str) -> int:
        """Of an arm; production's is 0."""
        return self._arms.index(arm) + 1 if arm in self._arms else 0

    def _counts(self, each: Assignment) -> bool:
        if each.why != "drawn" or each.event < self.begun:
            return False
        shares, number = self._shares(each), self._number(each.arm)
        return sum(shares) > 0 and (number == 0 or shares[number - 1] > 0)

    def _shares(self, each: Assignment) -> tuple[float, ...]:
        """Of the candidates, when a session was assigned."""
        shares = self.rollout.events[each.event - 1].shares
        return tuple(shares.get(arm, 0.0) for arm in self._arms)

    def _take(self, metric: Metric, each: Assignment, session: ServedSession | None) -> None:
        if not self._counts(each):
            return
        score = self._score(metric, session, each)
        on_arm, shares = each.arm != PRODUCTION, self._shares(each)
        production = None if len(shares) == 1 else max(0.0, 1 - sum(shares))
        for arm, share in zip(self._arms, shares, strict=True):
            if not on_arm or arm == each.arm:
                known = math.nan if score is None else score
                self._evidence[arm, metric.name].add(known, canary=on_arm, share=share, production=production)
        self._scores.append(SessionScore(each.unit, metric.name, score))
        if metric is self.rollout.plan.primary:
            self._closed[each.event] = self._closed.get(each.event, 0) + 1
        if metric.name == "failed_requests" and not on_arm and score is not None:
            self._recent = [*self._recent[1 - _RECENT :], score]

    def _score(self, metric: Metric, session: ServedSession | None, each: Assignment) -> float | None:
        if session is not None and self._until is None:
            # Whoever looks later must not see more.
            session = _in_time(session, each.at + timedelta(seconds=self._window(metric)))
        if metric.name == "exposed":
            return float(session is not None)
        if metric.name == "labelled":
            return float(_success(self.rollout.plan.primary, session, each.at, self._window(metric)) is not None)
        if session is None:
            return None
        if metric.name == "failed_requests":
            return float(not any(call.failed for call in session.calls))
        if metric.name in SCALED:
            return self._scaled(metric.name, session, on_arm=each.arm != PRODUCTION)
        return _success(metric, session, each.at, self._window(metric) if self._until is None else None)

    def _window(self, metric: Metric) -> float:
        return max(metric.window_seconds, self.rollout.plan.settle_seconds)

    def _scaled(self, name: str, session: ServedSession, *, on_arm: bool) -> float | None:
        """What a session took beside what production took before; unknown until that is known."""
        values = [
            float(value) for call in session.calls if (value := getattr(call, SCALED[name])) is not None and not call.failed
        ]
        scale = self._scales.get(name)
        if scale is None:
            if not on_arm:
                self._begin_scale(name, values)
            return None
        return sum(map(scale.log_scaled, values)) / len(values) if values else None

    def _begin_scale(self, name: str, values: Sequence[float]) -> None:
        before = self._before.setdefault(name, [])
        before += values
        if len(before) >= _OF_SCALE:
            with suppress(InputError):
                self._scales[name] = Scale.of(before, least=_OF_SCALE)
            # What costs nothing at all gives no scale, however often one looks.
            del self._before[name]

    def verdict(self, now: datetime) -> RolloutVerdict:
        """What is to happen now."""
        rollout = self.rollout
        begun = next(event for event in reversed(rollout.events) if event.kind in (EventKind.RAMP, EventKind.PROMOTE))
        over = now - begun.cause.at
        held = rollout.events[-1].cause.reason if rollout.state is RolloutState.HELD else ""
        compared = self._compared()
        seen = {
            arm: Observed(
                step=max(0, rollout.step - 1),
                sessions=sum(count for event, count in self._closed.items() if event >= begun.number),
                hours=over.total_seconds() / 3600,
                days=(over if rollout.state is RolloutState.HOLDBACK else now - rollout.created_at).total_seconds() / 86_400,
                metrics=compared[arm],
                ratio=self._ratio.found(self._number(arm))[0],
                ill=self._ill(),
                held=held,
                checked=rollout.verdict == "checked",
            )
            for arm in rollout.going
        }
        if rollout.state is RolloutState.HOLDBACK:
            return decide_holdback(rollout.plan, next(iter(seen.values())))
        return self._rebalanced(decide_arms(rollout.plan, seen))

    def _compared(self) -> dict[str, dict[str, ArmEvidence]]:
        """Each metric of each arm beside production."""
        plan, arms = self.rollout.plan, len(self._arms)
        return {
            arm: {each.name: compared(self._evidence[arm, each.name], plan, each, arms=arms)[0] for each in self.metrics}
            for arm in self._arms
        }

    def _rebalanced(self, verdict: RolloutVerdict) -> RolloutVerdict:
        """Where nothing else is to happen, and enough sessions have come since the last time."""
        rollout, sessions = self.rollout, sum(self._closed.values())
        divides = rollout.plan.shares == "top_two" and len(rollout.going) > 1 and rollout.state is RolloutState.CANARY
        if verdict.event is not None or not divides:
            return verdict
        earlier = (event for event in reversed(rollout.events) if event.kind is EventKind.REBALANCE)
        last = next((event.cause.evidence["sessions"] for event in earlier if event.number > self.begun), 0)
        if sessions - last < _REBALANCED:
            return verdict
        said = ", ".join(f"{share:.4g} {arm}" for arm, share in self.divided().items())
        return RolloutVerdict(
            event=EventKind.REBALANCE, reason=f"after {counted(sessions, 'session')}: {said}; {verdict.reason}"
        )

    def divided(self) -> Mapping[str, float]:
        """The candidates' share by top-two Thompson sampling, of which production may get a part. The same from the same
        sessions."""
        rollout, name = self.rollout, self.rollout.plan.primary.name
        going = rollout.going
        found = [self._evidence[arm, name] for arm in going]
        counts, means = ([getattr(each, what)[0] for each in found] for what in ("counts", "means"))
        pairs = [(counts[0][1], means[0][1]), *((count[0], mean[0]) for count, mean in zip(counts, means, strict=True))]
        scores = [(float(n * mean), float(n * (1 - mean))) if n else (0.0, 0.0) for n, mean in pairs]
        chance = self.chance(sum(self._closed.values()))
        shares = top_two_shares(scores, chance=chance, floor=rollout.share / MOST_TOP_TWO, production=1 - rollout.share)
        return {arm: round(share, 4) for arm, share in zip(going, shares[1:], strict=True)}

    def _ill(self) -> str:
        failed = self._recent.count(0.0)
        if len(self._recent) < _LEAST or failed <= self.rollout.plan.brake.failures * len(self._recent):
            return ""
        return f"{failed} of its last {counted(len(self._recent), 'session')} failed"

    def chance(self, sessions: int) -> np.random.Generator:
        """What the shares are drawn by after so many sessions."""
        seed = hashlib.sha256(f"{self.rollout.id}/{sessions}".encode()).digest()
        return np.random.default_rng(int.from_bytes(seed[:8]))

    def state(self) -> dict[str, Any]:
        """What the next one goes on from, for JSON."""
        return {
            "begun": self.begun,
            "cursors": self._cursors,
            "evidence": {self._key(*key): each.state() for key, each in self._evidence.items()},
            "ratio": self._ratio.state(),
            "scales": {name: asdict(scale) for name, scale in self._scales.items()},
            "before": self._before,
            "closed": {str(event): count for event, count in self._closed.items()},
            "recent": self._recent,
        }

    def summary(self) -> dict[str, Any]:
        """What there is to be seen of it, for JSON."""
        arms = {
            arm: {name: asdict(found) | self._means(arm, name) for name, found in metrics.items()}
            for arm, metrics in self._compared().items()
        }
        metrics = arms if len(arms) > 1 else arms[self._arms[0]]
        return {"metrics": metrics, "ratio": asdict(self._ratio.found()[0]), "sessions": sum(self._closed.values())}

    def _means(self, arm: str, metric: str) -> dict[str, float | None]:
        canary, production = (None if math.isnan(mean) else mean for mean in self._evidence[arm, metric].means[0])
        return {"mean_canary": canary, "mean_production": production}


class Rebuilt(NamedTuple):
    """What the test of a rollout comes to by the rows as they are now, what was said late included, on the same sessions."""

    was: RolloutVerdict
    """By what the running test had."""
    now: RolloutVerdict
    summary: Mapping[str, Any]

    @property
    def changed(self) -> bool:
        return _decision(self.was) != _decision(self.now)

    def as_json(self) -> dict[str, Any]:
        verdicts = {"was": self.was, "now": self.now}
        told = {name: {**_decision(each), "reason": each.reason} for name, each in verdicts.items()}
        return {**told, "changed": self.changed, "summary": self.summary}

    def audit(self, store: RolloutStore, rollout_id: str, cause: Cause) -> bool:
        """Keep that the verdict is another one; whether that was new. Nothing that was decided is changed."""
        return store.correct(rollout_id, _decision(self.was), _decision(self.now), cause)


def rebuilt(store: RolloutStore, rollout: Rollout, record: EvidenceRecord) -> Rebuilt:
    """The evidence that a rollout was last decided on, made anew; of one that is over, that which it ended on."""
    then = rollout
    while not then.is_drawing or (then.events[-1].kind is EventKind.PROMOTE and not rollout.plan.holdback):
        then = replace(then, events=then.events[:-1])
    running = RolloutEvidence(then, record)
    anew = running.anew(store)
    return Rebuilt(running.verdict(record.at), anew.verdict(record.at), anew.summary())


def _decision(verdict: RolloutVerdict) -> dict[str, str | None]:
    return {"event": verdict.event.value if verdict.event else None, "arm": verdict.arm or None}


class DecayWatch:
    """Whether what was promoted has become worse than its rollout showed, with nobody left to compare it with."""

    def __init__(self, rollout: Rollout, candidate_id: str, record: EvidenceRecord, detector: HarmDetector) -> None:
        kept = record.state.get("watch", {})
        self.rollout, self._candidate_id, self._record = rollout, candidate_id, record
        self._detector = HarmDetector.from_state(kept["detector"]) if "detector" in kept else detector
        self._cursor = int(kept.get("cursor", 0))
        self._recent = list(map(float, kept.get("recent", ())))
        self.told = bool(kept.get("told", False))
        """Whether an alarm was."""

    @classmethod
    def of(cls, rollout: Rollout, candidate_id: str, record: EvidenceRecord) -> "DecayWatch | None":
        """Goes on from what was kept. The bound is the low end of what was shown: production's mean, and the difference at
        least. `None` where no evidence was."""
        told = record.summary["metrics"]
        arm = next((each.name for each in rollout.arms if each.candidate_id == candidate_id), "")
        shown = told.get(arm, told).get(rollout.plan.primary.name, {})
        mean, low = shown.get("mean_production"), shown.get("low")
        if mean is None or low is None:
            return None
        try:
            detector = HarmDetector(min(1.0, mean + low), tolerance=rollout.plan.decay_tolerance)
        except InputError:
            # Nothing can be worse than that.
            return None
        return cls(rollout, candidate_id, record, detector)

    def close(self, store: RolloutStore, now: datetime) -> bool:
        """Take in sessions whose time is over; whether there were any."""
        plan = self.rollout.plan
        window = max(plan.primary.window_seconds, plan.settle_seconds)
        since, until = self.rollout.events[-1].cause.at, now - timedelta(seconds=window)
        found = False
        while not self.alarmed:
            began, (self._cursor, sessions) = (
                self._cursor,
                store.candidate_sessions(self._candidate_id, since, until, after=self._cursor, limit=AT_ONCE),
            )
            for each in sessions:
                score = _success(plan.primary, each.session, each.at, window)
                self._detector.add(math.nan if score is None else score)
                if score is not None:
                    self._recent = [*self._recent[1 - _RECENT :], score]
            if self._cursor == began:
                break
            found = True
        return found

    @property
    def alarmed(self) -> bool:
        return bool(self._detector.alarmed[0])

    @property
    def reason(self) -> str:
        """What it has come to, in one sentence."""
        recent = self._recent
        now = (
            f"{sum(recent) / len(recent):.3f} over the last {counted(len(recent), 'session')}"
            if recent
            else "not known of any session yet"
        )
        told = "has declined since the promotion, or work is harder" if self.alarmed else "since the promotion"
        return f"{self.rollout.plan.primary.name} {told}: {now}; shown was {self._detector.mean:.3f} at least"

    def keep(self, store: RolloutStore, now: datetime) -> bool:
        """Whether it was: somebody else may have been faster."""
        record = self._record
        watch = {"detector": self._detector.state(), "cursor": self._cursor, "recent": self._recent, "told": self.told}
        state = {**record.state, "watch": watch}
        summary = {**record.summary, "since_promotion": self.summary()}
        return store.add_evidence(self.rollout.id, EvidenceRecord(record.number + 1, record.upto, state, summary, now))

    def summary(self) -> dict[str, Any]:
        """For JSON."""
        mean = sum(self._recent) / len(self._recent) if self._recent else None
        shown = {"sessions": self._detector.sessions, "recent_mean": mean, "shown": self._detector.mean}
        return {**shown, "level": float(self._detector.level[0]), "alarm": self._detector.alarm, "declined": self.alarmed}


def _in_time(session: ServedSession, until: datetime) -> ServedSession | None:
    """What of it was served, and known here, until then; `None` where nothing was."""
    calls = tuple(call for call in session.calls if call.at <= until and (call.recorded_at or call.at) <= until)
    words = {call.trace_id: session.words.get(call.trace_id, ()) for call in calls}
    return ServedSession(calls, words) if calls else None


def _success(metric: Metric, session: ServedSession | None, begun: datetime, window: float | None) -> float | None:
    """The mean over what was judged of a session in time, or ever, by the sources that the plan names; unknown where nothing
    was."""
    until = None if window is None else begun + timedelta(seconds=window)
    said = session.said(until) if session is not None else {}
    found = [value for words in said.values() if (value := _worth(metric, words)) is not None]
    return sum(found) / len(found) if found else None


def _worth(metric: Metric, words: Sequence[TraceOpinion]) -> float | None:
    """What one trace was worth."""
    told = [word.reward for word in words if word.reward.told_by in metric.sources]
    if metric.name == SUCCESS:
        return judged(told).worth
    named = [each.value for each in told if each.name.partition(" (")[0] == metric.name and each.value is not None]
    return min(1.0, max(0.0, sum(named) / len(named))) if named else None
