"""What fires is told to each channel: by a real server on loopback, later where it is away, and once."""

import socket
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from journeyman.core.alert import Alert, Silence, acknowledged
from journeyman.core.errors import StoreUnreachable
from journeyman.core.rollout import Cause
from journeyman.experiments.settings import AlertSettings, ChannelSettings
from journeyman.serving.alerts.channels import Channel, DeliveryFailed, channels
from journeyman.serving.alerts.watch import AlertMonitor, Surroundings
from journeyman.stores.alerts import AlertStore, ResourceSample, open_alerts
from journeyman.stores.rollouts import open_rollouts
from tests.contracts.test_rollout_stores import SLOT
from tests.serving.releases.test_assignment import server
from tests.support.alarms import NOON, Deaf, Watched, bodies, hook
from tests.support.upstream import Upstream, failed, upstream

pytestmark = pytest.mark.service


@pytest.fixture
def up() -> Iterator[Upstream]:
    with upstream() as made:
        yield made


def of(up: Upstream, tmp_path: Path) -> Watched:
    return Watched(url=f"sqlite:///{tmp_path / 'journeyman.db'}", folder=tmp_path, channels=hook(up), sample={"memory": 0.9})


def test_a_webhook_is_told_as_alertmanager_tells(up: Upstream, tmp_path: Path) -> None:
    watched = of(up, tmp_path)
    watched.go_on(6)
    watched.sample = {"memory": 0.1}
    watched.go_on(2)
    watched.monitor.close()
    first, second = bodies(up)
    assert (first["version"], first["status"], second["status"]) == ("4", "firing", "resolved")
    (alert,) = first["alerts"]
    assert alert["labels"] == {
        "alertname": "journeyman_resources", "severity": "page", "rule": "resources", "subject": "memory on host",
    }  # fmt: skip
    assert alert["annotations"] == {"summary": "90% of memory in use", "value": "0.9", "bound": "0.8"}
    assert alert["fingerprint"] == second["alerts"][0]["fingerprint"]
    assert alert["startsAt"] == second["alerts"][0]["startsAt"] < second["alerts"][0]["endsAt"]


def test_a_channel_that_is_away_is_told_later_and_once(up: Upstream, tmp_path: Path) -> None:
    watched = of(up, tmp_path)
    up.answer = lambda asked: failed(503)
    watched.go_on(6)
    tried = len(up.asked)
    assert tried >= 1
    with open_alerts(watched.url) as kept:
        (waiting,) = kept.undelivered()
        assert waiting.detail == "the channel hook answers with HTTP status 503"
    up.answer = lambda asked: failed(200)
    watched.go_on(40)
    watched.monitor.close()
    assert len(up.asked) == tried + 1
    with open_alerts(watched.url) as kept:
        assert kept.undelivered() == []


def test_of_two_monitors_one_tells(tmp_path: Path) -> None:
    channel = Deaf(deaf=True)
    watched = Watched(
        url=f"sqlite:///{tmp_path / 'journeyman.db'}", folder=tmp_path, channels={"hook": channel}, sample={"memory": 0.9}
    )
    watched.go_on(6)
    channel.deaf = False
    watched.now = watched.now.replace(hour=14)
    others = [watched.another(f"other {number}") for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda each: each.once(), others))
    for each in (watched.monitor, *others):
        each.close()
    assert [each.rule for each in channel.heard] == ["resources"]


@pytest.mark.postgres
def test_a_store_that_is_away_is_told_all_the_same_and_is_in_it_once_it_is_back(up: Upstream, tmp_path: Path) -> None:
    with server() as (made, url):
        watched = Watched(url=url, folder=tmp_path / "project", channels=hook(up))
        assert watched.go_on(3) == []
        made.stop()
        try:
            assert watched.go_on(5) == ["store pending", "store firing"]
            (body,) = bodies(up)
            assert body["alerts"][0]["labels"]["alertname"] == "journeyman_store"
            # Another monitor on this machine, or one that is started anew, goes on from the file.
            watched.monitor.close()
            watched.monitor = watched.another("two")
            assert watched.go_on(3) == []
        finally:
            made.start()
        assert watched.go_on(5) == ["store resolved"]
        watched.monitor.close()
        assert [each["status"] for each in bodies(up)] == ["firing", "resolved"]
        assert [each.change.value for each in watched.history()] == ["resolved", "firing", "pending"]


def test_an_address_is_in_nothing_that_is_kept_or_said(up: Upstream, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    secret = "s3cr3t-in-the-path"
    gone = socket.create_server(("127.0.0.1", 0))
    port = gone.getsockname()[1]
    gone.close()
    addresses = {
        "BROKEN": (f"http://user:{secret}@127.0.0.1:{port}/{secret}?token={secret}", "webhook"),
        "MESSAGE": (f"json://user:{secret}@127.0.0.1:{port}/{secret}", "apprise"),
        "REFUSED": (f"{up.url}/{secret}", "webhook"),
        "NONSENSE": (f"nonsense-{secret}", "webhook"),
    }
    up.answer = lambda asked: failed(404)
    settings = AlertSettings(
        channels={name: ChannelSettings(url_env=name, kind=kind) for name, (_, kind) in addresses.items()}  # type: ignore[arg-type]
    )
    told = channels(settings, {name: url for name, (url, _) in addresses.items()})
    watched = Watched(
        url=f"sqlite:///{tmp_path / 'journeyman.db'}", folder=tmp_path, channels=told, settings=settings, sample={"memory": 0.9}
    )
    watched.go_on(6)
    watched.monitor.close()
    with open_alerts(watched.url) as kept:
        details = {each.channel: each.detail for each in kept.undelivered()}
    assert details == {
        "BROKEN": "the channel BROKEN does not answer",
        "MESSAGE": "the channel MESSAGE does not answer, or says no",
        "REFUSED": "the channel REFUSED answers with HTTP status 404",
        "NONSENSE": "the variable NONSENSE of alerts.channels.NONSENSE holds no address such as https://alerts.example.org/hook",
    }
    assert secret not in caplog.text
    assert secret not in repr(told)
    assert all(secret.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_a_channel_of_apprise_is_told_in_words(up: Upstream, tmp_path: Path) -> None:
    address = up.url.replace("http://", "json://")
    told = channels(AlertSettings(channels={"words": ChannelSettings(url_env="W", kind="apprise")}), {"W": address})
    watched = Watched(url=f"sqlite:///{tmp_path / 'journeyman.db'}", folder=tmp_path, channels=told, sample={"memory": 0.9})
    watched.go_on(6)
    watched.monitor.close()
    (body,) = bodies(up)
    assert body["title"] == "Journeyman: resources (memory on host): firing"
    assert body["message"] == "90% of memory in use"


def test_a_silence_keeps_it_quiet_until_it_ends_and_an_acknowledgement_until_it_is_over(tmp_path: Path) -> None:
    channel = Deaf()
    watched = Watched(
        url=f"sqlite:///{tmp_path / 'journeyman.db'}", folder=tmp_path, channels={"hook": channel}, sample={"memory": 0.9}
    )
    until = watched.now + timedelta(minutes=10)
    silence = Silence(id="s1", rule="resources", until=until, who="ann", why="a drill", at=watched.now)
    with open_alerts(watched.url) as kept:
        kept.silence(silence)
    assert watched.go_on(18) == ["resources pending", "resources firing"]
    assert channel.heard == []
    assert watched.go_on(4) == ["resources repeated"]
    assert [each.change.value for each in channel.heard] == ["repeated"]
    with open_alerts(watched.url) as kept:
        (firing,) = kept.firing()
        assert kept.add([acknowledged(firing, "ann", watched.now)])
    watched.now += timedelta(hours=5)
    assert watched.go_on(4) == []
    watched.sample = {"memory": 0.1}
    assert watched.go_on(2) == ["resources resolved"]
    watched.monitor.close()
    assert [each.change.value for each in channel.heard] == ["repeated", "resolved"]


def test_what_fires_on_is_told_again_after_four_hours(tmp_path: Path) -> None:
    channel = Deaf()
    watched = Watched(
        url=f"sqlite:///{tmp_path / 'journeyman.db'}", folder=tmp_path, channels={"hook": channel}, sample={"memory": 0.9}
    )
    watched.go_on(6)
    watched.now += timedelta(hours=3, minutes=50)
    assert watched.go_on(2) == []
    watched.now += timedelta(minutes=15)
    assert watched.go_on(3) == ["resources repeated"]
    watched.monitor.close()


def test_samples_are_kept_for_a_week_and_then_thinned_out(tmp_path: Path) -> None:
    with open_alerts(tmp_path / "journeyman.db") as kept:
        for days in (0, 6, 8, 80, 100):
            first = NOON - timedelta(days=days)
            kept.add_samples(ResourceSample(at=first + timedelta(seconds=15 * n), host="h", cpu=0.5) for n in range(40))
        kept.thin_samples(NOON + timedelta(minutes=10))
        found = Counter((NOON + timedelta(minutes=10) - each.at).days for each in kept.samples(NOON - timedelta(days=200)))
    # Ten minutes are 40 samples of a quarter of a minute, and two or three of five minutes.
    assert (found[0], found[6], found[100]) == (40, 40, 0)
    assert all(found[days] in (2, 3) for days in (8, 80))


def test_what_a_killed_sender_had_claimed_is_sent_by_another_a_minute_later(tmp_path: Path) -> None:
    channel = Deaf()
    watched = Watched(
        url=f"sqlite:///{tmp_path / 'journeyman.db'}",
        folder=tmp_path,
        channels={"hook": Deaf(deaf=True)},
        sample={"memory": 0.9},
    )
    watched.go_on(5)
    watched.monitor.close()
    with open_alerts(watched.url) as kept:
        later = watched.now + timedelta(minutes=1)
        (waiting,) = kept.deliveries(later)
        # Killed behind this line.
        assert kept.claim(waiting, later)
        assert not kept.claim(waiting, later)
        assert kept.deliveries(later + timedelta(seconds=59)) == []
    watched.channels = {"hook": channel}
    watched.now = later + timedelta(seconds=50)
    other = watched.another("other")
    for _ in range(3):
        other.once()
        watched.now += timedelta(seconds=15)
    other.close()
    assert [each.change.value for each in channel.heard] == ["firing"]


def test_what_nobody_thought_of_ends_no_watch_and_no_words_of_it_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    over, wake = threading.Event(), threading.Event()
    channel, tried = Deaf(), list[str]()

    def look(at: datetime) -> list[ResourceSample]:
        raise ZeroDivisionError("s3cr3t of the first look")

    def opened(url: str) -> AlertStore:
        if not tried:
            tried.append(url)
            raise KeyError("s3cr3t of the store")
        return open_alerts(url)

    class Odd:
        def send(self, alert: Alert) -> None:
            over.set()
            wake.set()
            raise RuntimeError("https://hook.example.org/s3cr3t")

    now = iter(NOON + timedelta(minutes=n) for n in range(10_000))
    url = f"sqlite:///{tmp_path / 'journeyman.db'}"
    with open_rollouts(url) as rollouts:
        rollouts.tell("decline", SLOT, Cause(reason="worse", actor="monitor", at=NOON))
    told: dict[str, Channel] = {"hook": channel, "odd": Odd()}
    around = Surroundings(clock=lambda: next(now), open=opened, look=look, channels=told, holder="one")
    settings = AlertSettings(every="0.01s")
    AlertMonitor(url, tmp_path, settings, around).run(over, wake)
    assert [each.rule for each in channel.heard] == ["decay"]
    assert "this round failed by KeyError" in caplog.text
    assert "the look at the machine failed by ZeroDivisionError" in caplog.text
    assert "the channel odd failed by RuntimeError" in caplog.text
    assert "s3cr3t" not in caplog.text


def test_each_monitor_that_said_that_the_store_is_away_says_that_it_is_back(tmp_path: Path) -> None:
    channel, away = Deaf(), list[bool]()

    def opened(url: str) -> AlertStore:
        if away:
            raise StoreUnreachable("the database does not answer")
        return open_alerts(url)

    url = f"sqlite:///{tmp_path / 'journeyman.db'}"
    now = NOON
    around = Surroundings(clock=lambda: now, open=opened, channels={"hook": channel}, holder="two")
    for _ in range(2):
        away.append(True)
        two = AlertMonitor(url, tmp_path / "two", AlertSettings(), around)
        for _ in range(6):
            now += timedelta(seconds=30)
            two.once()
        away.clear()
        with open_alerts(url) as kept:
            assert kept.lease("alerts", "one", now, 60) is not None
        assert two.once().elsewhere
        two.close()
    assert [each.change.value for each in channel.heard] == ["firing", "resolved"] * 2
    assert {each.subject for each in channel.heard} == {f"{url} from {socket.gethostname()}"}


def test_a_channel_that_does_not_answer_is_asked_once_a_round_and_keeps_no_other_waiting(tmp_path: Path) -> None:
    url, asked, heard = f"sqlite:///{tmp_path / 'journeyman.db'}", list[str](), list[str]()
    now = NOON

    class Slow:
        def send(self, alert: Alert) -> None:
            nonlocal now
            now += timedelta(seconds=10)
            asked.append(alert.name)
            raise DeliveryFailed("the channel slow does not answer")

    class Good:
        def send(self, alert: Alert) -> None:
            with open_alerts(url) as kept:
                claimed = [each for each in kept.undelivered() if each.channel == "good" and each.alert == alert]
            # A claim holds from when it is made: that others had to be waited for before is none of it.
            assert [each.due_at - now for each in claimed] == [timedelta(minutes=1)]
            heard.append(alert.name)

    with open_rollouts(url) as rollouts:
        for _ in range(30):
            rollouts.tell("decline", SLOT, Cause(reason="worse", actor="monitor", at=NOON))
    told: dict[str, Channel] = {"a": Slow(), "good": Good()}
    monitor = AlertMonitor(url, tmp_path, AlertSettings(), Surroundings(clock=lambda: now, channels=told, holder="one"))
    monitor.once()
    assert (len(asked), len(heard)) == (1, 19)
    monitor.once()
    monitor.close()
    assert (len(asked), len(heard)) == (2, 30)


def test_who_is_told_to_end_sends_no_more(tmp_path: Path) -> None:
    over, wake, heard = threading.Event(), threading.Event(), list[str]()

    class Last:
        def send(self, alert: Alert) -> None:
            over.set()
            heard.append(alert.name)

    url = f"sqlite:///{tmp_path / 'journeyman.db'}"
    with open_rollouts(url) as rollouts:
        for _ in range(3):
            rollouts.tell("decline", SLOT, Cause(reason="worse", actor="monitor", at=NOON))
    around = Surroundings(clock=lambda: NOON, channels={"last": Last()}, holder="one")
    AlertMonitor(url, tmp_path, AlertSettings(), around).run(over, wake)
    assert len(heard) == 1


def test_what_cannot_be_written_beside_the_project_any_more_is_told_from_memory(tmp_path: Path) -> None:
    channel, now = Deaf(), NOON

    def away(url: str) -> AlertStore:
        raise StoreUnreachable("the database does not answer")

    around = Surroundings(clock=lambda: now, open=away, channels={"hook": channel}, holder="one")
    monitor = AlertMonitor("sqlite:///nowhere.db", tmp_path, AlertSettings(), around)
    monitor.once()
    with closing(sqlite3.connect(tmp_path / "alerts-away.db")) as kept, kept:
        kept.execute("create trigger full before insert on alerts begin select raise(fail, 'database or disk is full'); end")
    for _ in range(6):
        now += timedelta(seconds=30)
        monitor.once()
    monitor.close()
    assert [each.change.value for each in channel.heard] == ["firing"]
    assert channel.heard[0].fired_at == NOON + timedelta(minutes=2)


def test_what_is_no_news_any_more_is_given_up(tmp_path: Path) -> None:
    channel = Deaf(deaf=True)
    url = f"sqlite:///{tmp_path / 'journeyman.db'}"
    watched = Watched(url=url, folder=tmp_path, channels={"hook": channel, "gone": Deaf(deaf=True)}, sample={"memory": 0.9})
    watched.go_on(6)
    watched.monitor.close()
    watched.channels = {"hook": channel}
    watched.monitor = watched.another("one")
    watched.go_on(2)

    def waiting() -> set[str]:
        with open_alerts(url) as kept:
            return {each.channel for each in kept.undelivered()}

    # Another monitor may know the channel that this one does not.
    assert waiting() == {"gone", "hook"}
    watched.now += timedelta(hours=5)
    watched.sample = {"memory": 0.1}
    watched.go_on(1)
    channel.deaf = False
    watched.now += timedelta(minutes=15)
    watched.go_on(2)
    watched.monitor.close()
    assert [each.change.value for each in channel.heard] == ["resolved"]
    with open_alerts(url) as kept:
        ended = {(each.channel, each.alert.change.value): each.detail for each in kept.given_up(NOON)}
    assert ended["gone", "firing"] == "there is no channel gone in the settings"
    assert ended["hook", "firing"] == "it is over, and the channel was not reached in 4h"


def test_a_channel_without_an_address_is_said_at_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = AlertSettings(channels={"page": ChannelSettings(url_env="NOBODY_SET_THIS")})
    over, wake = threading.Event(), threading.Event()
    over.set()
    AlertMonitor(f"sqlite:///{tmp_path / 'journeyman.db'}", tmp_path, settings).run(over, wake)
    assert "the variable NOBODY_SET_THIS of alerts.channels.page is not set" in caplog.text
