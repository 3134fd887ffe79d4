"""The monitor decides by what the store holds: real assignments, traces and feedback, and a handed clock."""

import math
import random
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest

from journeyman.core.candidate import BASE
from journeyman.core.feedback import Feedback, TargetKind
from journeyman.core.reward import Source
from journeyman.core.rollout import PRODUCTION, Arm, Cause, EventKind, Rollout, RolloutState, drawn, unit_of
from journeyman.core.rollout_decision import Observed, decide
from journeyman.core.rollout_plan import RolloutPlan
from journeyman.core.trace import ModelCall, Trace
from journeyman.serving.monitor import Decided, Monitor, RolloutEvidence, rebuilt
from journeyman.stats.live import SampleRatio, compared, evidence_for
from journeyman.stores import TraceStore, open_traces
from journeyman.stores.base import DRAWN, Assignment
from journeyman.stores.rollouts import RolloutStore, open_rollouts
from journeyman.stores.sessions import ServedSession
from tests.contracts.test_rollout_stores import NEW, SLOT, begun, ramped
from tests.serving.releases.test_assignment import server
from tests.support import postgres

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)
PLAN: Mapping[str, Any] = {
    "steps": [0.5],
    "step_sessions": [20],
    "step_hours": [0],
    "step_worst": [1.0],
    "min_sessions": 30,
    "holdback": 0.0,
    "primary": {"name": "success", "window_seconds": 60, "margin": 0.2},
    "guardrails": [
        {"name": "failed_requests", "tolerance": 0.01},
        {"name": "labelled", "window_seconds": 60, "action": "hold"},
    ],
}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "postgres":
        with postgres.database() as made:
            yield made
    else:
        yield f"sqlite:///{tmp_path / 'journeyman.db'}"


@dataclass(kw_only=True)
class Desk:
    """Sessions that come one a second, what is said of them, and a monitor."""

    store: RolloutStore
    traces: TraceStore
    rollout: Rollout
    success: Mapping[str, float]
    """Of each arm."""
    labelled: Mapping[str, float] = field(default_factory=dict)
    """How many of each arm's sessions are judged."""
    failed: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    number: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    @property
    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.number)

    def come(self, sessions: int) -> None:
        """So many sessions come, are served, and are judged a few seconds later."""
        wanted, traces, words = [], [], []
        for _ in range(sessions):
            self.number += 1
            session, at = f"s{self.number}", self.now
            unit = unit_of(self.rollout.salt, f"session:{session}")
            arm = drawn(unit.bucket, self.rollout.shares)
            wanted.append(Assignment(self.rollout.id, unit.id, arm, self.rollout.events[-1].number, "drawn", at))
            traces.append(self.trace(session, unit.id, arm, at))
            if len(traces) == 10:
                self.traces.add(traces)
                traces.clear()
            if self.chance.random() < self.labelled.get(arm, 1.0):
                words.append(self.word(session, arm, at))
        self.store.assign(wanted)
        self.traces.add(traces)
        self.store.add_feedback(words, now=self.now)

    def trace(self, session: str, unit: str, arm: str, at: datetime) -> Trace:
        error = "ModelError: 500" if self.chance.random() < self.failed.get(arm, 0.0) else None
        raw = {"release": [{"rollout": self.rollout.id, "unit": unit, "arm": arm}]}
        call = ModelCall(model="m", prompt="p", reply="r", id=f"{session}-1", raw=raw, seconds=1.0, started_at=at, error=error)
        return Trace(
            id=f"{session}-1", task_id="t", candidate_id="c", started_at=at, steps=(call,), session=session, source="gateway"
        )

    def word(self, session: str, arm: str, at: datetime, success: float | None = None) -> Feedback:
        good = self.chance.random() < (self.success[arm] if success is None else success)
        return Feedback(
            id=f"f-{session}",
            target_kind=TargetKind.TRACE,
            target=f"{session}-1",
            value=float(good),
            source=Source.CHECK,
            at=at + timedelta(seconds=5),
        )

    def come_after(self, sessions: int, success: float) -> None:
        """So many come when nobody is on an arm any more."""
        traces, words = [], []
        for _ in range(sessions):
            self.number += 1
            session, at = f"s{self.number}", self.now
            traces.append(replace(self.trace(session, "", "", at), steps=(), candidate_id=NEW.id))
            words.append(replace(self.word(session, "", at, success), id=f"f-{session}"))
        self.traces.add(traces)
        self.store.add_feedback(words, now=self.now)

    def look(self, seconds: float = 100) -> Decided:
        """What the monitor finds when so much time has gone by since the last session."""
        (found,) = self.looked(seconds)
        return found

    def until_acted(self, sessions: int, *, most: int) -> Decided:
        """Sessions come, so many at a time, until the monitor does something."""
        for _ in range(most):
            self.come(sessions)
            if (found := self.look()).acted:
                return found
        raise AssertionError(found.verdict.reason)

    def looked(self, seconds: float = 100, holder: str = "a") -> list[Decided]:
        found = Monitor(self.store, clock=lambda: self.now + timedelta(seconds=seconds), holder=holder).once()
        assert found is not None
        self.rollout = self.store.rollout(self.rollout.id) or self.rollout
        return found


class Opened(Protocol):
    def __call__(self, *, plan: Mapping[str, Any] = PLAN, share: float = 0.5, candidates: int = 1, **more: Any) -> Desk: ...


def several(count: int) -> tuple[Arm, ...]:
    return tuple(Arm(name=f"canary-{number}", candidate_id=f"c{number}") for number in range(1, count + 1))


@pytest.fixture
def opened(url: str) -> Iterator[Opened]:
    desks: list[Desk] = []
    with open_rollouts(url) as store, open_traces(url, clock=lambda: desks[-1].now) as traces:

        def made(*, plan: Mapping[str, Any] = PLAN, share: float = 0.5, candidates: int = 1, **more: Any) -> Desk:
            rollout = replace(begun(plan=RolloutPlan.read(plan)), created_at=NOON)
            if candidates > 1:
                rollout = replace(rollout, arms=several(candidates))
            store.start(rollout)
            cause = Cause(reason="begun", actor="person:ann", at=NOON)
            rollout = rollout.then(EventKind.RAMP, cause, rollout.next_shares(share))
            store.advance(rollout)
            desks.append(Desk(store=store, traces=traces, rollout=rollout, **more))
            return desks[-1]

        yield made


def test_what_a_session_asks_when_its_time_is_over_is_not_in_its_evidence_however_late_somebody_looks(opened: Opened) -> None:
    desk = opened(success={"canary": 1.0, PRODUCTION: 1.0})
    desk.come(2)
    (one, other) = desk.store.assignments("r1")
    desk.failed = {"canary": 1.0, PRODUCTION: 1.0}
    for each, name, seconds in ((one, "in time", 1), (other, "late", 3600)):
        trace = desk.trace(name, each.unit, each.arm, each.at + timedelta(seconds=seconds))
        desk.traces.add([trace])
    desk.look(7200)
    assert desk.store.scores("r1", "failed_requests") == {one.unit: 0.0, other.unit: 1.0}


def test_the_candidates_sessions_that_a_person_should_read_first_are_found_and_each_arm_is_counted(opened: Opened) -> None:
    desk = opened(success={"canary": 0.5, PRODUCTION: 0.9})
    desk.come(30)
    desk.look()
    arms = [each.arm for each in desk.store.assignments("r1")]
    assert desk.store.assigned_by_arm("r1") == {arm: arms.count(arm) for arm in ("canary", PRODUCTION)}
    scores = desk.store.scores("r1", "success")
    of_canary = sorted(scores[each.unit] or 0.0 for each in desk.store.assignments("r1") if each.arm == "canary")
    assert of_canary[0] == 0.0
    lowest = desk.store.lowest("r1", "success", "canary", limit=5)
    assert [score for score, _ in lowest] == of_canary[:5]
    for score, session in lowest:
        (said,) = session.said()[session.calls[0].trace_id]
        assert said.reward.value == score


@pytest.mark.parametrize("seconds", [36, 3600])
def test_what_is_recorded_when_a_sessions_time_is_over_is_not_in_its_evidence_however_late_somebody_looks(
    opened: Opened, seconds: int
) -> None:
    desk = opened(success={"canary": 1.0, PRODUCTION: 1.0})
    desk.come(3)
    rows = desk.store.assignments("r1")
    desk.failed = {"canary": 1.0, PRODUCTION: 1.0}
    # All are served in time, by a gateway that was killed before it recorded them, and was started again sooner or later.
    for each, recorded in zip(rows, (25, 32, 34), strict=True):
        desk.number = 3 + recorded
        desk.traces.add([desk.trace(f"late-{recorded}", each.unit, each.arm, each.at + timedelta(seconds=1))])
    desk.number = 3
    desk.look(seconds)
    assert [desk.store.scores("r1", "failed_requests")[each.unit] for each in rows] == [0.0, 1.0, 1.0]


def test_evidence_that_is_made_anew_by_its_own_rule_is_what_was_kept_when_a_record_came_late(opened: Opened) -> None:
    desk = opened(success={"canary": 1.0, PRODUCTION: 1.0})
    desk.come(2)
    unit = unit_of(desk.rollout.salt, "session:killed").id
    desk.store.assign([Assignment("r1", unit, "canary", desk.rollout.events[-1].number, DRAWN, desk.now)])
    late = desk.trace("killed", unit, "canary", desk.now + timedelta(seconds=1))
    desk.look(100)
    kept = desk.store.evidence("r1")
    assert kept is not None
    desk.number += 100
    desk.traces.add([late])
    anew = RolloutEvidence(desk.rollout, None)
    while anew.close(desk.store, desk.now):
        pass
    assert anew.summary() == kept.summary
    assert desk.store.scores("r1", "failed_requests")[unit] is None
    # Whoever asks is told what is known now.
    assert (
        rebuilt(desk.store, desk.rollout, kept).summary["metrics"]["failed_requests"]
        != kept.summary["metrics"]["failed_requests"]
    )


@pytest.mark.parametrize("on", ["trace", "label", "session"])
@pytest.mark.parametrize("corrected", [False, None])
def test_what_was_said_in_time_is_evidence_though_its_rater_says_something_else_later(
    opened: Opened, on: str, corrected: bool | None
) -> None:
    desk = opened(success={}, labelled={"canary": 0.0, PRODUCTION: 0.0})
    desk.come(1)
    (each,) = desk.store.assignments("r1")

    def say(good: bool | None, seconds: int) -> None:
        at = each.at + timedelta(seconds=seconds)
        if on == "label":
            desk.traces.label("s1-1", good, who="ada", at=at)
            return
        said = Feedback(
            id=f"{seconds}",
            target_kind=TargetKind.TRACE if on == "trace" else TargetKind.SESSION,
            target="s1-1" if on == "trace" else "s1",
            value=None if good is None else float(good),
            source=Source.CHECK,
            rater="ci",
            at=at,
        )
        desk.store.add_feedback([said], now=at)

    say(True, 5)
    say(corrected, 90)
    desk.look(200)
    assert desk.store.scores("r1", "success") == {each.unit: 1.0}
    kept = desk.store.evidence("r1")
    assert kept is not None
    # Whoever asks is told what is known now.
    assert rebuilt(desk.store, desk.rollout, kept).summary["metrics"]["success"] != kept.summary["metrics"]["success"]


def test_a_candidate_that_is_worse_is_rolled_back_with_a_reason_and_its_numbers(opened: Opened) -> None:
    desk = opened(success={"canary": 0.3, PRODUCTION: 0.9})
    found = desk.until_acted(20, most=10)
    assert found.verdict.event is EventKind.ROLLBACK
    assert found.verdict.reason.startswith("success is worse on the canary: ")
    assert desk.rollout.state is RolloutState.ROLLED_BACK
    last = desk.rollout.events[-1].cause
    assert (last.actor, last.reason) == ("monitor", found.verdict.reason)
    assert last.evidence["metrics"]["success"]["high"] <= 0
    assert desk.store.live().rollouts == ()
    assert desk.store.verify() is None
    scores = desk.store.scores("r1", "success")
    assert len(scores) == last.evidence["sessions"]
    assert set(scores.values()) == {0.0, 1.0}


def test_a_candidate_that_is_as_good_is_promoted(opened: Opened) -> None:
    desk = opened(success={"canary": 0.9, PRODUCTION: 0.9})
    found = desk.until_acted(20, most=20)
    assert found.verdict.event is EventKind.PROMOTE
    assert desk.rollout.state is RolloutState.CONCLUDED
    assert desk.store.live().production[SLOT].candidate_id == NEW.id


def test_a_promotion_keeps_a_holdback_and_harm_then_brings_back_what_was_there(opened: Opened) -> None:
    desk = opened(plan={**PLAN, "holdback": 0.2, "holdback_days": 1}, success={"canary": 0.9, PRODUCTION: 0.9})
    while desk.rollout.state is RolloutState.CANARY:
        desk.come(40)
        desk.look()
        assert desk.number < 2000
    assert (desk.rollout.state, desk.rollout.shares) == (RolloutState.HOLDBACK, {"canary": 0.8})
    desk.success = {"canary": 0.2, PRODUCTION: 0.9}
    while desk.rollout.state is RolloutState.HOLDBACK:
        desk.come(40)
        desk.look()
        assert desk.number < 4000
    assert desk.rollout.state is RolloutState.ROLLED_BACK
    assert desk.store.live().production[SLOT].candidate_id == BASE


@pytest.mark.parametrize("on_decay", ["alert", "rollback"])
def test_what_was_promoted_and_declines_when_nobody_is_left_to_compare_with_is_told_once(opened: Opened, on_decay: str) -> None:
    desk = opened(plan={**PLAN, "on_decay": on_decay}, success={"canary": 0.9, PRODUCTION: 0.9})
    desk.until_acted(20, most=20)
    assert desk.rollout.state is RolloutState.CONCLUDED
    # The monitor has looked some time after the last session.
    desk.number += 200
    for _ in range(10):
        desk.come_after(40, 0.9)
        found = desk.look()
        assert not found.acted
    assert found.verdict.reason.startswith("success since the promotion: 0.")
    told = []
    for _ in range(20):
        desk.come_after(40, 0.4)
        told += [each for each in desk.looked() if each.acted]
    (alarm,) = told
    assert alarm.verdict.reason.startswith("success has declined since the promotion, or work is harder: 0.")
    declined = [row for row in desk.store.audit() if row.action == "decline"]
    assert [(row.target, row.actor, row.reason) for row in declined] == [(str(SLOT), "monitor", alarm.verdict.reason)]
    assert declined[0].after["declined"]
    back = desk.store.live().production[SLOT]
    assert back.candidate_id == (BASE if on_decay == "rollback" else NEW.id)
    assert desk.store.verify() is None


def test_labels_that_are_missing_on_one_side_hold_instead_of_rolling_back(opened: Opened) -> None:
    desk = opened(success={"canary": 0.9, PRODUCTION: 0.9}, labelled={"canary": 0.2})
    found = desk.until_acted(40, most=10)
    assert (found.verdict.event, found.verdict.metric) == (EventKind.HOLD, "labelled")
    assert desk.rollout.state is RolloutState.HELD
    # While it is held nothing more is written.
    desk.come(40)
    assert not desk.look().acted
    # Mended and resumed, it begins anew: what was wrong then does not hold it again.
    resumed = desk.rollout.then(EventKind.RESUME, Cause(reason="mended", actor="person:ann", at=desk.now))
    desk.store.advance(resumed)
    desk.rollout, desk.labelled = resumed, {}
    desk.come(40)
    found = desk.look()
    assert desk.rollout.state is not RolloutState.HELD, found.verdict.reason
    assert desk.store.scores("r1", "labelled")


def test_production_that_is_ill_itself_holds_and_does_not_blame_the_canary(opened: Opened) -> None:
    desk = opened(success={"canary": 0.9, PRODUCTION: 0.9}, failed={"canary": 1.0, PRODUCTION: 1.0})
    desk.come(60)
    found = desk.look()
    assert found.verdict.event is EventKind.HOLD
    assert found.verdict.reason.startswith("production itself is ill: ")


def test_a_canary_whose_calls_fail_is_rolled_back_without_a_label(opened: Opened) -> None:
    desk = opened(success={"canary": 0.9, PRODUCTION: 0.9}, failed={"canary": 1.0}, labelled={"canary": 0, PRODUCTION: 0})
    desk.come(60)
    found = desk.look(40)
    assert (found.verdict.event, found.verdict.metric) == (EventKind.ROLLBACK, "failed_requests")


def test_a_metric_of_ones_own_can_be_a_condition(opened: Opened) -> None:
    compliance = {"name": "architecture", "window_seconds": 60, "tolerance": 0.02, "sources": ["check"]}
    desk = opened(plan={**PLAN, "guardrails": [compliance]}, success={"canary": 0.9, PRODUCTION: 0.9})
    for _ in range(30):
        desk.come(20)
        arms = {unit_of(desk.rollout.salt, f"session:s{number}").id: number for number in range(1, desk.number + 1)}
        for each in desk.store.assignments("r1")[-20:]:
            session = f"s{arms[each.unit]}"
            value = 0.5 if each.arm == "canary" else 1.0
            word = replace(desk.word(session, each.arm, each.at), id=f"a-{session}", metric="architecture", value=value)
            desk.store.add_feedback([word], now=desk.now)
        if (found := desk.look()).acted:
            break
    assert (found.verdict.event, found.verdict.metric) == (EventKind.ROLLBACK, "architecture")
    assert found.verdict.reason.startswith("architecture is worse on the canary: ")


def test_a_session_enters_when_its_window_is_over_and_what_is_said_later_changes_nothing(opened: Opened) -> None:
    desk = opened(success={"canary": 1.0, PRODUCTION: 1.0})
    desk.come(10)
    desk.look(20)
    assert desk.store.scores("r1", "success") == {}
    desk.look(100)
    assert len(desk.store.scores("r1", "success")) == 10
    about: dict[str, Any] = {"target_kind": TargetKind.TRACE, "value": 0.0, "source": Source.TRUTH, "at": desk.now}
    late = [Feedback(id=f"late-{n}", target=f"s{n}-1", **about) for n in range(1, 11)]
    desk.store.add_feedback(late, now=desk.now + timedelta(seconds=200))
    desk.look(300)
    assert set(desk.store.scores("r1", "success").values()) == {1.0}


def test_truth_that_came_late_is_seen_when_the_evidence_is_made_anew_and_rewrites_nothing(opened: Opened) -> None:
    desk = opened(success={"canary": 0.9, PRODUCTION: 0.9})
    desk.until_acted(20, most=20)
    assert desk.rollout.state is RolloutState.CONCLUDED
    kept, audit = desk.store.evidence("r1"), desk.store.audit()
    assert kept is not None
    same = rebuilt(desk.store, desk.rollout, kept)
    assert (same.was.event, same.now, same.changed) == (EventKind.PROMOTE, same.was, False)
    assert same.summary == kept.summary
    cause = Cause(reason="looked again", actor="person:ann", at=desk.now)
    assert not same.audit(desk.store, "r1", cause)
    # Weeks later it is told that most of what the canary did was wrong.
    later = desk.now + timedelta(days=20)
    wrong = [each for each in desk.store.assignments("r1") if each.arm == "canary"]
    sessions = {unit_of(desk.rollout.salt, f"session:s{n}").id: f"s{n}" for n in range(1, desk.number + 1)}
    about: dict[str, Any] = {"target_kind": TargetKind.SESSION, "value": 0.0, "source": Source.TRUTH, "at": later}
    words = [Feedback(id=f"late-{each.unit}", target=sessions[each.unit], **about) for each in wrong[::2]]
    desk.store.add_feedback(words, now=later)
    anew = rebuilt(desk.store, desk.rollout, kept)
    assert (anew.was.event, anew.now.event, anew.changed) == (EventKind.PROMOTE, EventKind.ROLLBACK, True)
    assert anew.summary["sessions"] == kept.summary["sessions"]
    assert anew.summary["metrics"]["success"]["mean_canary"] < 0.6
    assert anew.summary["metrics"]["success"]["mean_production"] == kept.summary["metrics"]["success"]["mean_production"]
    # Whether it was judged in time is as it was.
    assert anew.summary["metrics"]["labelled"] == kept.summary["metrics"]["labelled"]
    assert [anew.audit(desk.store, "r1", cause) for _ in range(2)] == [True, False]
    *before, row = desk.store.audit()
    assert before == list(audit)
    assert (row.action, row.target, row.before["event"], row.after["event"]) == ("correct", "r1", "promote", "rollback")
    assert desk.store.verify() is None
    assert desk.store.rollout("r1") == desk.rollout
    assert desk.store.evidence("r1") == kept


def test_what_was_said_of_a_session_or_a_task_counts_for_its_traces_and_truth_goes_before_a_check(opened: Opened) -> None:
    desk = opened(success={"canary": 1.0, PRODUCTION: 1.0})
    desk.come(3)
    at = desk.now
    words = [
        Feedback(id="a", target_kind=TargetKind.SESSION, target="s1", value=0.0, source=Source.TRUTH, at=at),
        Feedback(id="b", target_kind=TargetKind.SESSION, target="s2", value=0.0, source=Source.USER, at=at),
    ]
    desk.store.add_feedback(words, now=at)
    desk.look()
    scores = desk.store.scores("r1", "success")
    assert [scores[unit_of(desk.rollout.salt, f"session:s{n}").id] for n in (1, 2, 3)] == [0.0, 1.0, 1.0]


def test_whoever_goes_on_after_another_has_missed_nothing(opened: Opened) -> None:
    desk = opened(success={"canary": 0.5, PRODUCTION: 0.9}, seed=3)
    for _ in range(6):
        desk.come(7)
        # A new one each time: all that it knows is what was kept.
        desk.look()
    kept = desk.store.evidence("r1")
    assert kept is not None
    with desk.store._database.write() as connection:
        connection.exec_driver_sql("delete from evidence")
        connection.exec_driver_sql("delete from session_scores")
    desk.look()
    anew = desk.store.evidence("r1")
    assert anew is not None
    assert anew.state == kept.state
    assert anew.summary == kept.summary


def test_what_came_of_a_session_is_read_once_for_all_metrics(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = opened(success={"canary": 0.8, PRODUCTION: 0.8})
    read: list[str] = []
    served = RolloutStore.served_sessions

    def counted(store: RolloutStore, id: str, units: Collection[str]) -> Mapping[str, ServedSession]:
        read.extend(units)
        return served(store, id, units)

    monkeypatch.setattr(RolloutStore, "served_sessions", counted)
    desk.come(20)
    desk.look()
    assert len(read) == len(set(read)) == 20


def test_of_two_monitors_one_decides(opened: Opened) -> None:
    desk = opened(success={"canary": 0.9, PRODUCTION: 0.9})
    desk.come(5)
    desk.looked(holder="a")
    assert Monitor(desk.store, clock=lambda: desk.now + timedelta(seconds=101), holder="b").once() is None
    later = desk.now + timedelta(seconds=200)
    assert Monitor(desk.store, clock=lambda: later, holder="b").once() is not None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("worse", [0.0, 0.3])
def test_the_store_and_the_pure_rule_come_to_the_same_at_the_same_session(opened: Opened, seed: int, worse: float) -> None:
    desk = opened(success={"canary": 0.9 - worse, PRODUCTION: 0.9}, seed=seed)
    plan = desk.rollout.plan
    pure = {each.name: evidence_for(plan, each) for each in (plan.primary, *plan.guardrails)}
    ratio, known = SampleRatio(), 0
    while True:
        desk.come(10)
        found = desk.look()
        scores = {name: desk.store.scores("r1", name) for name in pure}
        assigned = desk.store.assignments("r1")
        for each in assigned[known:]:
            canary = each.arm != PRODUCTION
            ratio.add(int(canary), (0.5, 0.5))
            for name, evidence in pure.items():
                score = scores[name][each.unit]
                evidence.add(math.nan if score is None else score, canary=canary, share=0.5)
        known = len(assigned)
        metrics = {each.name: compared(pure[each.name], plan, each)[0] for each in (plan.primary, *plan.guardrails)}
        over = (desk.now + timedelta(seconds=100) - NOON).total_seconds()
        seen = Observed(step=0, sessions=known, hours=over / 3600, days=over / 86_400, metrics=metrics, ratio=ratio.found()[0])
        assert decide(plan, seen) == found.verdict
        if found.acted:
            break
    assert found.verdict.event is (EventKind.ROLLBACK if worse else EventKind.PROMOTE)


def test_a_plan_that_ends_without_a_verdict_holds_and_asks(opened: Opened) -> None:
    desk = opened(plan={**PLAN, "max_days": 1, "min_sessions": 1000}, success={"canary": 0.9, PRODUCTION: 0.9})
    desk.come(30)
    found = desk.look(86_500)
    assert found.verdict.event is EventKind.HOLD
    assert "without a verdict" in found.verdict.reason


def test_the_steps_of_a_plan_are_gone_up_one_by_one(opened: Opened) -> None:
    steps = {"steps": [0.2, 0.4], "step_sessions": [20, 20], "step_hours": [0, 0], "step_worst": [1.0, 1.0]}
    desk = opened(plan={**PLAN, **steps, "min_sessions": 500}, share=0.2, success={"canary": 0.9, PRODUCTION: 0.9})
    desk.come(25)
    found = desk.look()
    assert (found.verdict.event, desk.rollout.shares) == (EventKind.RAMP, {"canary": 0.4})
    assert not desk.look().acted


def test_latency_is_compared_once_production_has_told_what_is_usual(opened: Opened) -> None:
    plan = {**PLAN, "guardrails": [{"name": "latency", "tolerance": 0.03}], "min_sessions": 500}
    desk = opened(plan=plan, success={"canary": 0.9, PRODUCTION: 0.9})

    def slow(session: str, unit: str, arm: str, at: datetime) -> Trace:
        made = Desk.trace(desk, session, unit, arm, at)
        seconds = desk.chance.uniform(0.5, 1.5) * (10 if arm == "canary" else 1)
        return replace(made, steps=tuple(replace(call, seconds=seconds) for call in made.calls))

    desk.trace = slow  # type: ignore[method-assign]
    found = desk.until_acted(40, most=20)
    assert (found.verdict.event, found.verdict.metric) == (EventKind.ROLLBACK, "latency")


# Several candidates.

THREE = {"canary-1": 0.7, "canary-2": 0.2, "canary-3": 0.95, PRODUCTION: 0.7}


@pytest.mark.parametrize("shares", ["equal", "top_two"])
def test_of_several_candidates_the_one_that_harms_is_taken_out_and_the_best_is_promoted(opened: Opened, shares: str) -> None:
    desk = opened(plan={**PLAN, "shares": shares}, candidates=3, success=THREE)
    while desk.rollout.is_open:
        desk.come(25)
        desk.look()
        assert desk.number < 4000
        if desk.rollout.is_drawing:
            assert sum(desk.rollout.shares.values()) <= 0.5001
            assert shares == "equal" or len(desk.rollout.going) == 1 or min(desk.rollout.shares.values()) >= 0.0999
    events = {event.kind: event for event in desk.rollout.events}
    assert events[EventKind.DROP].cause.reason.startswith("canary-2: success is worse on the canary")
    assert "canary-2" not in events[EventKind.DROP].shares
    assert events[EventKind.PROMOTE].cause.reason.startswith("canary-3: success is not worse")
    assert desk.store.live().production[SLOT].candidate_id == "c3"
    assert (EventKind.REBALANCE in events) == (shares == "top_two")
    assert desk.store.verify() is None
    if shares == "top_two":
        last = [event for event in desk.rollout.events if event.kind is EventKind.REBALANCE][-1].shares
        assert max(last, key=last.__getitem__) == "canary-3"


def test_when_all_candidates_harm_it_is_rolled_back(opened: Opened) -> None:
    desk = opened(candidates=2, success={"canary-1": 0.2, "canary-2": 0.2, PRODUCTION: 0.9})
    while desk.rollout.is_open:
        desk.come(10)
        desk.look()
        assert desk.number < 2000
    assert desk.rollout.state is RolloutState.ROLLED_BACK
    assert desk.store.live().production == {}


def test_sessions_of_several_arms_that_are_lost_hold_it(opened: Opened) -> None:
    desk = opened(candidates=3, success=THREE, plan={**PLAN, "min_sessions": 10_000})
    drawn_as_meant = unit_of
    units = [drawn_as_meant(desk.rollout.salt, f"session:s{n}") for n in range(3000)]
    wanted = [
        Assignment("r1", unit.id, drawn(unit.bucket, desk.rollout.shares), 2, "drawn", NOON)
        for unit in units
        if not unit.bucket < 0.5 / 3
    ]
    desk.store.assign(wanted)
    found = desk.look()
    assert found.verdict.event is EventKind.HOLD
    assert "0 of 2," in found.verdict.reason
    assert "do not fall as they are drawn" in found.verdict.reason


def test_whoever_goes_on_with_several_candidates_has_missed_nothing(opened: Opened) -> None:
    desk = opened(plan={**PLAN, "shares": "top_two"}, candidates=3, success={**THREE, "canary-2": 0.7}, seed=4)
    for _ in range(5):
        desk.come(15)
        desk.look()
    kept = desk.store.evidence("r1")
    with desk.store._database.write() as connection:
        connection.exec_driver_sql("delete from evidence")
        connection.exec_driver_sql("delete from session_scores")
    desk.look()
    anew = desk.store.evidence("r1")
    assert kept is not None
    assert anew is not None
    assert anew.state == kept.state
    assert set(anew.summary["metrics"]) == {"canary-1", "canary-2", "canary-3"}


def test_who_was_put_on_an_arm_this_moment_is_counted_when_no_other_gateway_can_still_be_writing(url: str) -> None:
    rollout = ramped(begun(), 0.5)
    evidence = RolloutEvidence(rollout, None)
    with open_rollouts(url) as store:
        store.assign([Assignment(rollout.id, "u1", "canary", 2, DRAWN, NOON)])
        evidence.close(store, NOON + timedelta(seconds=1))
        assert evidence.summary()["ratio"]["sessions"] == 0
        evidence.close(store, NOON + timedelta(seconds=6))
        assert evidence.summary()["ratio"]["sessions"] == 1


@pytest.mark.service
@pytest.mark.postgres
def test_a_monitor_that_is_started_before_its_database_waits_for_it(tmp_path: Path) -> None:
    said = tmp_path / "said"
    with server() as (made, url), said.open("w") as out:
        open_rollouts(url).close()
        made.stop()
        command = [sys.executable, "-m", "journeyman", "monitor", "--every", "0.2", "--store", url]
        running = subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out)
        try:
            assert _soon(lambda: "the monitor waits" in said.read_text())
            made.start()
            time.sleep(1)
            assert running.poll() is None, said.read_text()
            running.terminate()
            running.wait(20)
        finally:
            running.kill()
            running.wait()


def _soon(true: Callable[[], bool], seconds: float = 40) -> bool:
    until = time.monotonic() + seconds
    while not true() and time.monotonic() < until:
        time.sleep(0.05)
    return true()
