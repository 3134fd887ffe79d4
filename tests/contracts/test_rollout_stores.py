"""What the store of rollouts promises, in each database."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from journeyman.core.candidate import BASE, Candidate, Kind
from journeyman.core.errors import JourneymanError, ReleaseError
from journeyman.core.release import Stage
from journeyman.core.rollout import Arm, Cause, EventKind, Rollout, RolloutEvent, RolloutState, Slot, nothing
from journeyman.core.rollout_plan import RolloutPlan
from journeyman.core.trace import MIRROR, ModelCall, Trace
from journeyman.stores import open_store
from journeyman.stores.base import DEGRADED, DRAWN, Assignment, EvidenceRecord
from journeyman.stores.rollouts import RolloutStore, open_rollouts
from journeyman.stores.traces import open_traces
from tests.support import postgres

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)
SLOT = Slot.parse("context:desk/oslo")
NEW, OLD = (Candidate(kind=Kind.PLAYBOOK, body=f"[{name}]") for name in ("new", "old"))


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RolloutStore]:
    if request.param == "postgres":
        with postgres.database() as url, open_rollouts(url) as opened:
            yield opened
    else:
        with open_rollouts("memory:" if request.param == "memory" else tmp_path / "journeyman.db") as opened:
            yield opened


def why(reason: str = "it passed", *, minutes: float = 0, actor: str = "person:ann", **more: Any) -> Cause:
    return Cause(reason=reason, actor=actor, at=NOON + timedelta(minutes=minutes), **more)


def begun(
    id: str = "r1",
    *,
    candidate: Candidate = NEW,
    slot: Slot = SLOT,
    baseline: Arm | None = None,
    plan: RolloutPlan | None = None,
) -> Rollout:
    return Rollout(
        id=id,
        slot=slot,
        arms=(Arm(name="canary", candidate_id=candidate.id, digest=candidate.id),),
        baseline=baseline or nothing(),
        salt="s" * 32,
        plan=plan or RolloutPlan(),
        verdict="passed",
        created_at=NOON,
        events=(RolloutEvent(number=1, kind=EventKind.START, shares={}, cause=why()),),
    )


def ramped(rollout: Rollout, share: float | None = None) -> Rollout:
    return rollout.then(EventKind.RAMP, why("the next step", evidence={"sessions": (1, 2)}), rollout.next_shares(share))


def promoted(store: RolloutStore, rollout: Rollout) -> Rollout:
    """Brought from its beginning to production, step by step as it is kept."""
    store.start(rollout)
    rollout = ramped(rollout)
    store.advance(rollout)
    rollout = rollout.then(EventKind.PROMOTE, why("not worse"), {"canary": 0.95})
    store.advance(rollout)
    return rollout


def in_production(store: RolloutStore) -> str:
    move = store.live().production.get(SLOT)
    return BASE if move is None else move.candidate_id


def stage(store: RolloutStore, candidate: Candidate) -> Stage | None:
    with store._database.read() as connection:
        found = connection.execute(
            sa.text("select stage from moves where candidate_id = :id order by number desc"), {"id": candidate.id}
        )
        last = found.scalar()
    return None if last is None else Stage(last)


def test_a_rollout_comes_back_as_it_was_with_all_that_happened_to_it(store: RolloutStore) -> None:
    rollout = begun(plan=RolloutPlan.read({"max_days": 3, "guardrails": [{"name": "cost", "tolerance": 0.1}]}))
    store.start(rollout)
    store.advance(ramped(rollout))
    kept = store.rollout("r1")
    assert kept is not None
    assert (kept.plan, kept.arms, kept.baseline, kept.salt) == (rollout.plan, rollout.arms, rollout.baseline, rollout.salt)
    assert (kept.state, kept.shares, kept.step) == (RolloutState.CANARY, {"canary": 0.01}, 1)
    assert kept.events[-1].cause == why("the next step", evidence={"sessions": [1, 2]})
    assert store.live().rollouts == (kept,)
    assert store.rollouts(Slot.parse("route")) == []


def test_a_candidate_that_is_promoted_replaces_what_was_there_and_a_rollback_brings_that_back(store: RolloutStore) -> None:
    first = promoted(store, begun("r1", candidate=OLD))
    assert (in_production(store), stage(store, OLD)) == (OLD.id, Stage.PRODUCTION)
    store.advance(first.then(EventKind.CONCLUDE, why("the holdback is over")))
    second = promoted(store, begun("r2", baseline=Arm(name="production", candidate_id=OLD.id)))
    assert (in_production(store), stage(store, OLD), stage(store, NEW)) == (NEW.id, Stage.RETIRED, Stage.PRODUCTION)
    store.advance(second.then(EventKind.ROLLBACK, why("it harms")))
    assert (in_production(store), stage(store, OLD), stage(store, NEW)) == (OLD.id, Stage.PRODUCTION, Stage.ROLLED_BACK)
    assert store.live().rollouts == ()
    assert [move.candidate_id for move in store.slot_history(SLOT)] == [OLD.id, NEW.id, OLD.id]


def test_what_was_rolled_back_can_be_tried_again(store: RolloutStore) -> None:
    store.start(begun())
    store.advance(ramped(begun()).then(EventKind.ROLLBACK, why("a false alarm")))
    assert (in_production(store), stage(store, NEW)) == (BASE, Stage.ROLLED_BACK)
    promoted(store, begun("r2"))
    assert (in_production(store), stage(store, NEW)) == (NEW.id, Stage.PRODUCTION)


def test_one_rollout_at_most_is_open_in_a_slot_and_it_begins_against_what_is_there(store: RolloutStore) -> None:
    store.start(begun())
    with pytest.raises(ReleaseError, match="the rollout r1 is open there"):
        store.start(begun("r2", candidate=OLD))
    store.start(begun("r3", candidate=OLD, slot=Slot.parse("context:desk")))
    store.advance(ramped(begun()).then(EventKind.CLOSE, why()))
    with pytest.raises(ReleaseError, match="base is in production there by now"):
        store.start(begun("r4", baseline=Arm(name="production", candidate_id=OLD.id)))


def test_what_is_served_is_told_without_reading_rollouts_that_are_over(store: RolloutStore) -> None:
    store.advance(promoted(store, begun("r1")).then(EventKind.CONCLUDE, why()))
    now = Arm(name="production", candidate_id=NEW.id)
    store.advance(promoted(store, begun("r2", candidate=OLD, baseline=now)).then(EventKind.ROLLBACK, why("it harms")))
    closed = ramped(begun("r3", candidate=OLD, baseline=now)).then(EventKind.CLOSE, why())
    store.start(replace(closed, events=closed.events[:1]))
    store.advance(closed)
    held = ramped(begun("r4", candidate=OLD, baseline=now)).then(EventKind.HOLD, why())
    store.start(replace(held, events=held.events[:1]))
    store.advance(held)
    with store._database.write() as connection:
        connection.execute(sa.text("update rollouts set body = '{}' where id <> 'r4'"))
    live = store.live()
    assert [(each.id, each.state) for each in live.rollouts] == [("r4", RolloutState.HELD)]
    assert {slot: move.candidate_id for slot, move in live.production.items()} == {SLOT: NEW.id}
    with pytest.raises(ReleaseError, match="the rollout r4 is open there"):
        store.may_start(begun("r5", candidate=OLD, baseline=now))


def test_undo_brings_back_what_was_there_before_down_to_nothing(store: RolloutStore) -> None:
    with pytest.raises(ReleaseError, match="nothing was ever promoted"):
        store.undo(SLOT, why())
    rollout = promoted(store, begun())
    with pytest.raises(ReleaseError, match="r1 is open"):
        store.undo(SLOT, why())
    store.advance(rollout.then(EventKind.CONCLUDE, why()))
    assert store.undo(SLOT, why("complaints")).candidate_id == BASE
    assert (in_production(store), stage(store, NEW)) == (BASE, Stage.ROLLED_BACK)
    assert store.verify() is None
    with pytest.raises(ReleaseError, match="nothing still stands of what was promoted"):
        store.undo(SLOT, why())


def test_what_was_taken_back_does_not_come_again_when_more_is_taken_back(store: RolloutStore) -> None:
    store.advance(promoted(store, begun(candidate=OLD)).then(EventKind.CONCLUDE, why()))
    harmful = promoted(store, begun("r2", baseline=Arm(name="production", candidate_id=OLD.id)))
    store.advance(harmful.then(EventKind.ROLLBACK, why("it harms")))
    again = promoted(store, begun("r3", baseline=Arm(name="production", candidate_id=OLD.id)))
    store.advance(again.then(EventKind.CONCLUDE, why()))
    back = [store.undo(SLOT, why("complaints")).candidate_id for _ in range(2)]
    assert back == [OLD.id, BASE]


def test_a_candidate_that_serves_another_slot_keeps_its_stage_when_it_is_taken_back_in_one(store: RolloutStore) -> None:
    promoted(store, begun())
    elsewhere = begun("r2", slot=Slot.parse("context:desk/bergen"))
    store.start(elsewhere)
    store.advance(ramped(elsewhere).then(EventKind.ROLLBACK, why("not here")))
    assert stage(store, NEW) is Stage.PRODUCTION


def test_of_many_who_decide_at_once_one_does(store: RolloutStore) -> None:
    if store._database.dialect == "sqlite" and store._database.name == "memory:":
        pytest.skip("one connection: nobody is at once")
    rollout = ramped(begun())
    store.start(begun())
    store.advance(rollout)

    def decide(number: int) -> bool:
        try:
            store.advance(rollout.then(EventKind.ROLLBACK, why(f"monitor {number}")))
        except ReleaseError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(decide, range(40))) == 1
    kept = store.rollout("r1")
    assert kept is not None
    assert [event.number for event in kept.events] == [1, 2, 3]
    assert store.verify() is None


@pytest.mark.parametrize("what", ["promote", "rollback"])
def test_whatever_breaks_in_the_middle_there_is_exactly_one_production(store: RolloutStore, what: str) -> None:
    rollout = ramped(begun())
    store.start(begun())
    store.advance(rollout)
    after = rollout.then(EventKind.PROMOTE, why(), {"canary": 0.95})
    if what == "rollback":
        store.advance(after)
        after = after.then(EventKind.ROLLBACK, why())
    before = (in_production(store), stage(store, NEW), store.rollout("r1"))
    broken = 0
    while _breaks(store, after, at=broken):
        assert (in_production(store), stage(store, NEW), store.rollout("r1")) == before
        assert store.verify() is None
        broken += 1
    assert broken > 5
    assert in_production(store) == (NEW.id if what == "promote" else BASE)
    assert store.verify() is None


class _Fault(Exception):
    pass


def _breaks(store: RolloutStore, rollout: Rollout, *, at: int) -> bool:
    """Advance with a fault at a statement; whether it came to that one."""
    seen = 0

    def count(*_: object) -> None:
        nonlocal seen
        seen += 1
        if seen > at:
            raise _Fault

    engine = store._database._engine
    sa.event.listen(engine, "before_cursor_execute", count)
    try:
        store.advance(rollout)
    except _Fault:
        return True
    finally:
        sa.event.remove(engine, "before_cursor_execute", count)
    return False


def test_the_first_word_on_a_session_holds_whoever_says_another(store: RolloutStore) -> None:
    first = Assignment("r1", "u1", "canary", 2, "drawn", NOON)
    (kept,) = store.assign([first])
    assert kept == first._replace(seq=kept.seq)
    again = store.assign([Assignment("r1", "u2", "production", 2, "drawn", NOON), first._replace(arm="production", event=3)])
    assert [each.arm for each in again] == ["production", "canary"]
    assert store.assigned("r1", "u1") == kept
    assert store.assigned("r1", "u3") is None
    assert [each.unit for each in store.assignments("r1")] == ["u1", "u2"]
    assert [each.unit for each in store.assignments("r1", after=kept.seq)] == ["u2"]
    assert store.assignments("r2") == []


@pytest.mark.postgres
def test_a_session_that_was_served_without_the_store_is_on_production_whoever_draws_it_before_after_or_meanwhile() -> None:
    drawn, told = (Assignment("r1", "u1", arm, 2, why, NOON) for arm, why in (("canary", DRAWN), ("production", DEGRADED)))
    with postgres.database() as url, open_rollouts(url) as store, ThreadPoolExecutor(1) as pool:
        engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"))
        with engine.begin() as another:
            values = (drawn.rollout_id, drawn.unit, drawn.arm, drawn.event, drawn.why, 0)
            another.exec_driver_sql(
                "insert into assignments (rollout_id, unit, arm, event, why, at) values (%s, %s, %s, %s, %s, %s)", values
            )
            # The other's transaction ends while this one waits for it.
            telling = pool.submit(store.assign, [told])
            time.sleep(0.3)
        engine.dispose()
        (kept,) = telling.result(20)
        assert (kept.arm, kept.why) == ("production", DEGRADED)
        assert store.assign([drawn]) == [kept]


@pytest.mark.postgres
def test_nobody_is_drawn_while_another_gateway_on_the_server_does_not_promise_to_ask() -> None:
    def draw(unit: str) -> Assignment:
        return next(iter(kept.assign([Assignment("r1", unit, "canary", 2, DRAWN, NOON)], gateway="here")))

    with postgres.database() as url, open_rollouts(url) as kept:
        assert draw("alone").arm == "canary"
        kept.promise("there", kept.clock() + 60_000_000)
        assert draw("promised").why == DRAWN
        kept.promise("there", kept.clock() - 1)
        first = draw("lapsed")
        assert (first.arm, first.why) == ("production", DEGRADED)
        # Who was drawn before stays.
        assert draw("promised").arm == draw("alone").arm == "canary"
        # Its own promise binds nobody but others.
        kept.promise("here", kept.clock() - 1)
        kept.withdraw("there")
        assert draw("withdrawn").why == DRAWN
        kept.promise("there", kept.clock() - 601_000_000)
        assert draw("forgotten").why == DRAWN


def test_writers_that_draw_differently_agree_on_every_session(store: RolloutStore) -> None:
    def draw(arm: str) -> list[str]:
        wanted = [Assignment("r1", f"u{number}", arm, 2, "drawn", NOON) for number in range(50)]
        return [each.arm for at in range(0, 50, 10) for each in store.assign(wanted[at : at + 10])]

    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(draw, ["canary", "production"] * 4))
    assert all(each == said[0] for each in said)


def test_evidence_is_kept_once_for_each_number_and_the_latest_is_found(store: RolloutStore) -> None:
    assert store.evidence("r1") is None
    first = EvidenceRecord(1, 10, {"log": [0.5, None]}, {"n": 3}, NOON)
    assert store.add_evidence("r1", first)
    assert not store.add_evidence("r1", first._replace(upto=11))
    assert store.add_evidence("r1", first._replace(number=2, upto=20))
    latest = store.evidence("r1")
    assert latest is not None
    assert (latest.number, latest.upto, latest.state) == (2, 20, {"log": [0.5, None]})


def test_a_lease_is_one_holders_until_it_runs_out(store: RolloutStore) -> None:
    assert store.lease("monitor", "a", NOON, 10) == 1
    assert store.lease("monitor", "b", NOON + timedelta(seconds=5), 10) is None
    assert store.lease("monitor", "a", NOON + timedelta(seconds=9), 10) == 1
    assert store.lease("monitor", "b", NOON + timedelta(seconds=20), 10) == 2
    assert store.lease("monitor", "a", NOON + timedelta(seconds=21), 10) is None


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("update audit set reason = 'nothing' where seq = 1", "audit row 1: start of r1#1 was changed"),
        ("delete from audit where seq = 2", "audit row 3: a row before it is gone"),
        ("update rollout_events set actor = 'x' where number = 2", "r1#2 is not as the audit tells it"),
        ("delete from rollout_events where number = 3", "r1#3 is not as the audit tells it"),
        ("update slot_moves set candidate_id = 'x'", "context:desk/oslo#1 is not as the audit tells it"),
    ],
)
def test_whoever_changes_a_row_by_hand_is_found_out(store: RolloutStore, sql: str, said: str) -> None:
    promoted(store, begun())
    assert store.verify() is None
    assert [(row.actor, row.action, row.reason) for row in store.audit()] == [
        ("person:ann", "start", "it passed"),
        ("person:ann", "ramp", "the next step"),
        ("person:ann", "promote", "not worse"),
        ("person:ann", "put", "not worse"),
    ]
    with store._database.write() as connection:
        connection.exec_driver_sql(sql)
    assert (store.verify() or "").startswith(said)


def test_what_is_begun_by_nobody_or_told_otherwise_is_refused(store: RolloutStore) -> None:
    with pytest.raises(ReleaseError, match="no rollout 'r1'"):
        store.advance(ramped(begun()))
    store.start(begun())
    with pytest.raises(ReleaseError, match="meanwhile"):
        store.advance(begun())
    other = replace(begun(), events=(replace(begun().events[0], cause=why("another story")),))
    with pytest.raises(ReleaseError, match="meanwhile"):
        store.advance(ramped(other))


def test_what_the_store_of_runs_tells_of_a_candidate_is_the_same_story(tmp_path: Path) -> None:
    with open_store(tmp_path / "journeyman.db") as runs, open_rollouts(tmp_path / "journeyman.db") as store:
        runs.add_candidate(NEW)
        assert store.candidate(NEW.id) == NEW
        assert store.candidate("ghost") is None
        promoted(store, begun())
        release = runs.release(NEW.id)
        assert release is not None
        assert [move.stage for move in release.moves] == [Stage.SHADOW, Stage.CANARY, Stage.PRODUCTION]
        assert issubclass(ReleaseError, JourneymanError)


def answer(id: str, arm: str, pair: str, unit: str, *, cost: float | None, error: str | None = None) -> Trace:
    where = {"pair": pair, "arm": arm, "unit": unit, "rollout": "r1"}
    call = ModelCall(
        model="m",
        prompt="go",
        reply="gone",
        started_at=NOON,
        seconds=0.5,
        input_tokens=7,
        output_tokens=3,
        cost=cost,
        error=error,
        raw={"mirror": where},
    )
    source = "gateway" if arm == "production" else MIRROR
    return Trace(id=id, task_id=id, candidate_id=BASE, steps=(call,), agent="desk", started_at=NOON, source=source)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_answers_of_mirrored_requests_are_paired_and_what_they_cost_is_summed_as_far_as_it_is_known(
    kind: str, tmp_path: Path
) -> None:
    with postgres.database() if kind == "postgres" else nullcontext(str(tmp_path / "journeyman.db")) as url:
        with open_traces(url) as traces:
            traces.add([answer("p1", "production", "a", "s1", cost=0.5), answer("c1", "canary", "a", "s1", cost=0.25)])
            # The second request of a session, one whose production answer is not there, and one that cost nobody knows what.
            traces.add([answer("p2", "production", "b", "s1", cost=0.5), answer("c2", "canary", "b", "s1", cost=0.25)])
            traces.add([answer("c3", "canary", "c", "s2", cost=1.0)])
            traces.add([answer("p4", "production", "d", "s3", cost=None), answer("c4", "canary", "d", "s3", cost=None)])
            traces.add(
                [answer("p5", "production", "e", "s4", cost=0.5), answer("c5", "canary", "e", "s4", cost=None, error="500")]
            )
        with open_rollouts(url) as rollouts:
            pairs = rollouts.mirrored_pairs("r1")
            found = rollouts.mirrored("r1")
            assert rollouts.mirrored_of("r1", {"a", "c", "x"}) == {"a", "c"}
            assert rollouts.mirrored_pairs("r2") == []
            assert rollouts.mirrored("r2").pairs == 0
    assert [(each.pair, each.unit, each.production.trace_id, each.candidate.trace_id) for each in pairs] == [
        ("a", "s1", "p1", "c1"),
        ("b", "s1", "p2", "c2"),
        ("d", "s3", "p4", "c4"),
        ("e", "s4", "p5", "c5"),
    ]
    assert [each.candidate.failed for each in pairs] == [False, False, False, True]
    assert (found.pairs, found.spent, found.unpriced) == (3, 1.5, 1)
