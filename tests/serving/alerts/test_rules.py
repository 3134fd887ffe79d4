"""Each rule that stands ready fires once, when it is bad for long enough, and not below its bound, on real stores."""

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from journeyman.core.alert import AlertState
from journeyman.core.rollout import Cause, EventKind
from journeyman.experiments.settings import AlertSettings
from journeyman.serving.alerts.rules import rules
from journeyman.stores.alerts import ResourceSample, open_alerts
from journeyman.stores.rollouts import open_rollouts
from tests.contracts.test_rollout_stores import SLOT, begun, ramped
from tests.support import postgres
from tests.support.alarms import NOON, Deaf, Watched

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def watched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watched]:
    if request.param == "postgres":
        with postgres.database() as url:
            made = Watched(url=url, folder=tmp_path, channels={"hook": Deaf()})
            yield made
            made.monitor.close()
    else:
        made = Watched(url=f"sqlite:///{tmp_path / 'journeyman.db'}", folder=tmp_path, channels={"hook": Deaf()})
        yield made
        made.monitor.close()


def told(watched: Watched, rule: str) -> list[str]:
    return [each.state.value for each in watched.channels["hook"].heard if each.rule == rule]


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        ("error_rate", {"failing": 6}, {"failing": 4}),
        ("latency", {"seconds": 1.2}, {"seconds": 0.9}),
    ],
)
def test_what_is_bad_fires_once_and_is_resolved_and_what_is_not_does_not(
    watched: Watched, rule: str, bad: dict[str, float], good: dict[str, float]
) -> None:
    assert watched.go_on(12, 100, **good) == []
    watched.now = watched.now.replace(hour=18)
    changes = [each for each in watched.go_on(6, 100, **bad) if each.startswith(rule)]
    # `for` is two minutes: pending at the first look, and firing at the fifth.
    assert changes == [f"{rule} pending", f"{rule} firing"]
    assert told(watched, rule) == ["firing"]
    watched.now = watched.now.replace(hour=20)
    assert f"{rule} resolved" in watched.go_on(3, 100, **good)
    assert told(watched, rule) == ["firing", "resolved"]


def test_memory_of_which_too_much_is_used(watched: Watched) -> None:
    watched.sample = {"memory": 0.75, "cpu": 0.5}
    assert watched.go_on(8) == []
    watched.sample = {"memory": 0.85}
    assert watched.go_on(8) == ["resources pending", "resources firing"]
    watched.sample = {}
    assert watched.go_on(8) == []  # unknown resolves nothing
    watched.sample = {"memory": 0.75}
    assert watched.go_on(8) == ["resources resolved"]
    assert told(watched, "resources") == ["firing", "resolved"]
    assert [each.subject for each in watched.history()] == ["memory on host"] * 3


def test_three_requests_an_hour_of_which_one_fails_wake_nobody(watched: Watched) -> None:
    for hour in range(0, 24, 3):
        # Three hours at once.
        watched.now = NOON.replace(hour=hour)
        watched.come(8)
        assert watched.go_on(1) == []
        watched.now += timedelta(hours=1)
        watched.come(1, failing=int(hour == 6))
        assert watched.go_on(1) == []


def test_where_one_of_three_an_hour_fails_all_day_a_ticket_is_made_and_nobody_is_woken(watched: Watched) -> None:
    for number in range(30):
        watched.now = NOON + timedelta(minutes=20 * number)
        watched.come(1, failing=int(number % 3 == 1))
        watched.go_on(1)
    assert {each.severity for each in watched.channels["hook"].heard} == {"ticket"}


def test_when_all_of_a_few_fail_it_is_told(watched: Watched) -> None:
    changes = []
    for _ in range(6):
        changes += watched.go_on(1, 1, failing=1)
    assert "error_rate firing" in changes


def test_a_rollback_is_told_at_the_next_look_and_once(watched: Watched) -> None:
    with open_rollouts(watched.url) as rollouts:
        rollout = begun()
        rollouts.start(rollout)
        rollout = ramped(rollout)
        rollouts.advance(rollout)
        assert watched.go_on(2) == []
        cause = Cause(reason="success is worse on the canary", actor="monitor", at=watched.now)
        rollouts.advance(rollout.then(EventKind.ROLLBACK, cause))
    assert watched.go_on(3) == ["rollback firing"]
    (alert,) = watched.channels["hook"].heard
    assert (alert.slot, alert.severity) == ("context:desk/oslo", "page")
    assert alert.says == "r1 was rolled back: success is worse on the canary"
    watched.now = watched.now.replace(day=7)
    assert watched.go_on(2) == ["rollback resolved"]
    assert [each.state for each in watched.history()] == [AlertState.RESOLVED, AlertState.FIRING]


def test_a_held_rollout_is_told_until_it_goes_on(watched: Watched) -> None:
    with open_rollouts(watched.url) as rollouts:
        rollout = begun()
        rollouts.start(rollout)
        rollout = ramped(rollout)
        rollouts.advance(rollout)
        rollout = rollout.then(EventKind.HOLD, Cause(reason="labels are missing", actor="monitor", at=watched.now))
        rollouts.advance(rollout)
        assert watched.go_on(2) == ["hold firing"]
        rollouts.advance(rollout.then(EventKind.RESUME, Cause(reason="they came", actor="person:ann", at=watched.now)))
        assert watched.go_on(2) == ["hold resolved"]


def judged(watched: Watched, count: int, good: float) -> None:
    """Sessions of the last ten hours, of which exactly that share is good, in any order."""
    scores = [float(each < good * count) for each in range(count)]
    random.Random(count).shuffle(scores)
    watched.score(scores)


def test_quality_that_falls_by_ten_points_fires_and_by_less_than_the_tolerance_does_not(watched: Watched) -> None:
    for day in range(1, 8):
        watched.now = NOON + timedelta(days=day)
        judged(watched, 300, 0.7)
    watched.now += timedelta(days=1)
    judged(watched, 1200, 0.68)
    assert [each for each in watched.go_on(8) if each.startswith("quality")] == []
    watched.now += timedelta(days=1)
    judged(watched, 1200, 0.6)
    changes = [each for each in watched.go_on(8) if each.startswith("quality")]
    assert changes == ["quality pending", "quality firing"]
    (alert,) = (each for each in watched.channels["hook"].heard if each.rule == "quality")
    assert alert.evidence["now"]["mean"] == pytest.approx(0.6)
    watched.now += timedelta(days=1)
    judged(watched, 1200, 0.72)
    assert "quality resolved" in watched.go_on(2)


def test_requests_that_become_longer_are_told_and_nothing_is_held(watched: Watched) -> None:
    watched.now -= timedelta(days=3)
    watched.come(1000, tokens=100)
    watched.now += timedelta(days=3)
    watched.come(200, tokens=100)
    assert [each for each in watched.go_on(6) if each.startswith("drift")] == []
    watched.come(600, tokens=3000)
    watched.go_on(6)
    (alert,) = (each for each in watched.channels["hook"].heard if each.rule == "drift")
    assert (alert.subject, alert.severity) == ("length", "ticket")


def test_what_was_promoted_and_declined_is_told_once(watched: Watched) -> None:
    with open_rollouts(watched.url) as rollouts:
        cause = Cause(reason="success has declined since the promotion", actor="monitor", at=watched.now)
        rollouts.tell("decline", SLOT, cause)
    assert watched.go_on(3) == ["decay firing"]
    (alert,) = watched.channels["hook"].heard
    assert alert.says == "context:desk/oslo has declined: success has declined since the promotion"


def test_each_machine_is_watched_whoever_measures_and_one_that_is_not_seen_changes_nothing(watched: Watched) -> None:
    def told() -> set[tuple[str, str]]:
        with open_alerts(watched.url) as kept:
            return {(each.subject, each.state.value) for each in kept.latest().values()}

    def elsewhere() -> None:
        with open_alerts(watched.url) as kept:
            kept.add_samples([ResourceSample(at=watched.now, host="other", memory=0.95)])

    watched.sample = {"memory": 0.1}
    for _ in range(6):
        elsewhere()
        watched.go_on(1)
    assert told() == {("memory on other", "firing")}
    # Nobody says any more how busy it is, and another takes the lease.
    watched.go_on(6)
    watched.monitor.close()
    watched.monitor = watched.another("two")
    watched.go_on(2)
    assert told() == {("memory on other", "firing")}


def test_errors_of_all_are_above_any_bound_and_windows_are_told(tmp_path: Path) -> None:
    settings = AlertSettings(error_rate=0.08)
    url = f"sqlite:///{tmp_path / 'journeyman.db'}"
    watched = Watched(url=url, folder=tmp_path, channels={"hook": Deaf()}, settings=settings)
    watched.come(40, failing=40)
    found = watched.look().found
    watched.monitor.close()
    (burn,) = (each for each in found if each.rule == "burn" and each.subject.startswith("14.4x"))
    assert (burn.bound, burn.breached) == (1.0, True)
    windows = {
        each.rule: datetime.fromisoformat(each.evidence["until"]) - datetime.fromisoformat(each.evidence["since"])
        for each in found
        if each.rule in ("error_rate", "latency") or each is burn
    }
    assert windows == {"error_rate": timedelta(minutes=5), "latency": timedelta(minutes=5), "burn": timedelta(hours=1)}


def test_a_bound_of_less_than_one_percent_is_told_as_it_is() -> None:
    said = rules(AlertSettings(error_rate=0.005))
    assert said["error_rate"].says == "of conversations begun in five minutes, more than 0.5% failed"
    assert said["burn"].says == "errors use up their budget of 0.5% too fast"


def test_a_rule_that_is_there_no_more_keeps_how_severe_it_was(tmp_path: Path) -> None:
    url, hook = f"sqlite:///{tmp_path / 'journeyman.db'}", Deaf()
    settings = AlertSettings(burn=((1, "3d", "6h", "ticket"),))
    watched = Watched(url=url, folder=tmp_path, channels={"hook": hook}, settings=settings)
    watched.come(40, failing=40)
    watched.look()
    watched.monitor.close()
    watched.settings = AlertSettings(burn=())
    watched.monitor = watched.another("one")
    watched.look()
    watched.monitor.close()
    assert [(each.change.value, each.severity.value) for each in hook.heard if each.rule == "burn"] == [
        ("firing", "ticket"),
        ("resolved", "ticket"),
    ]


def test_what_is_pending_lapses_when_nobody_knows_more_for_longer_than_its_hold(watched: Watched) -> None:
    watched.sample = {"memory": 0.9}
    assert watched.go_on(1) == ["resources pending"]
    watched.sample = {}
    assert watched.go_on(8) == []
    assert watched.go_on(2) == ["resources resolved"]
    watched.sample = {"memory": 0.9}
    # It begins anew.
    assert watched.go_on(5) == ["resources pending", "resources firing"]
    assert told(watched, "resources") == ["firing"]


def test_of_many_samples_the_highest_of_each_step_and_the_newest_of_each_process_are_read(watched: Watched) -> None:
    with open_alerts(watched.url) as kept:
        for minutes, host, process, cpu in [
            (0, "a", "machine", 0.2),
            (29, "a", "machine", 0.9),
            (29, "b", "machine", 0.4),
            (30, "a", "machine", None),
            (61, "a", "machine", 0.1),
            (61, "a", "serve", 0.7),
            (62, "a", "serve", 0.3),
        ]:
            at = NOON + timedelta(minutes=minutes)
            kept.add_samples([ResourceSample(at=at, host=host, process=process, cpu=cpu, memory_bytes=minutes)])
        steps = kept.highest_samples(NOON, timedelta(minutes=30))
        newest = kept.newest_samples(NOON)
        assert kept.newest_samples(NOON + timedelta(minutes=62)) == [each for each in newest if each.process == "serve"]
    found = sorted((each.host, (each.at - NOON).seconds // 60, each.cpu, each.memory_bytes) for each in steps)
    assert found == [("a", 0, 0.9, 29), ("a", 30, None, 30), ("a", 60, 0.1, 61), ("b", 0, 0.4, 29)]
    assert {(each.host, each.process): each.cpu for each in newest} == {
        ("a", "machine"): 0.1, ("a", "serve"): 0.3, ("b", "machine"): 0.4,
    }  # fmt: skip
