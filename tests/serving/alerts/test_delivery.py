"""What fires is told to each channel: by a real server on loopback, later where it is away, and once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from journeyman.stores.alerts import open_alerts
from tests.support.alarms import Deaf, Watched, bodies, hook
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
    assert alert["annotations"] == {"summary": "90% of the memory is used", "value": "0.9", "bound": "0.8"}
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
