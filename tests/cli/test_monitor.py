"""`journeyman monitor`, as it is typed: what goes wrong in one half of it ends or stops the other in no silence."""

import json
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.core.errors import ReleaseError
from journeyman.serving import watching
from journeyman.stores.alerts import open_alerts
from tests.support.alarms import Deaf, Watched

pytestmark = pytest.mark.service


def test_a_store_that_is_none_ends_the_process_and_is_said(tmp_path: Path) -> None:
    folder = tmp_path / ".journeyman"
    folder.mkdir()
    (folder / "journeyman.db").write_text("this is a letter and no database\n" * 100)
    command = [sys.executable, "-m", "journeyman", "monitor"]
    ended = subprocess.run(command, cwd=tmp_path, timeout=60, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "database" in ended.stderr


def test_a_round_that_loses_a_race_is_said_and_the_next_is_tried() -> None:
    over, rounds, said = threading.Event(), list[int](), list[str]()

    def racing() -> list[Any]:
        rounds.append(1)
        if len(rounds) == 1:
            raise ReleaseError("r1 was moved meanwhile")
        over.set()
        return []

    watching.decide(racing, 0.01, over, acted=lambda found: None, said=said.append)
    assert len(rounds) == 2
    assert said == ["the monitor waits: r1 was moved meanwhile"]


@pytest.fixture
def fires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    """A store in which the memory of a machine is too full."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".journeyman"
    folder.mkdir()
    now = datetime.now(UTC) - timedelta(minutes=5)
    url = f"sqlite:///{folder / 'journeyman.db'}"
    watched = Watched(url=url, folder=folder, channels={"page": Deaf()}, now=now, sample={"memory": 0.9})
    watched.go_on(6)
    watched.monitor.close()
    return watched


def once(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["monitor", "--once", "--json"])
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def test_what_fires_is_said_also_where_another_measures(fires: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    with open_alerts(fires.url) as kept:
        assert kept.lease("alerts", "another", datetime.now(UTC), 60) is not None
    code, told = once(capsys)
    assert code == 1
    assert [(each["rule"], each["subject"]) for each in told["alerts"]] == [("resources", "memory on host")]


def test_of_two_that_look_once_both_decide_and_measure(fires: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert once(capsys)[1]["decides"]
        with open_alerts(fires.url) as kept:
            now = datetime.now(UTC)
            assert kept.lease("alerts", "another", now, 60) is not None
            kept.give_back("alerts", "another", now)
