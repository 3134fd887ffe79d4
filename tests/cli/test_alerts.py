"""`journeyman alerts`, as it is typed."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from tests.support.alarms import Deaf, Watched
from tests.support.upstream import failed, upstream

pytestmark = pytest.mark.service
CHANNEL = '[alerts.channels.page]\nurl_env = "PAGE_URL"\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOURNEYMAN_USER", "ann")
    return tmp_path


@pytest.fixture
def fires(project: Path) -> str:
    """A store in which the memory is too full; the fingerprint of its alert."""
    folder = project / ".journeyman"
    folder.mkdir()
    now = datetime.now(UTC) - timedelta(minutes=5)
    watched = Watched(
        url=f"sqlite:///{folder / 'journeyman.db'}", folder=folder, channels={"page": Deaf()}, now=now, sample={"memory": 0.9}
    )
    watched.go_on(6)
    watched.monitor.close()
    return watched.history()[0].fingerprint


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["alerts", *arguments, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_what_fires_is_listed_acknowledged_and_silenced(fires: str, capsys: pytest.CaptureFixture[str]) -> None:
    (alert,) = said(capsys, "list")["alerts"]
    assert (alert["rule"], alert["state"], alert["acknowledged_by"]) == ("resources", "firing", None)
    assert [each["change"] for each in said(capsys, "list", "--all")["history"]] == ["firing", "pending"]
    assert said(capsys, "ack", fires[:4])["alert"]["acknowledged_by"] == "ann"
    silence = said(capsys, "silence", "resources", "--for", "2h", "--reason", "a bigger machine comes")["silence"]
    assert silence["who"] == "ann"
    assert [each["id"] for each in said(capsys, "list")["silences"]] == [silence["id"]]
    assert said(capsys, "unsilence", silence["id"][:4])["silence"]["lifted_by"] == "ann"
    assert said(capsys, "list")["silences"] == []
    assert main(["alerts", "list"]) == 0
    out, err = capsys.readouterr()
    assert "90% of memory in use" in out + err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["ack", "ffff"], "none of what fires is called so; what fires: "),
        (["silence", "nonsense", "--reason", "x"], "there is no rule 'nonsense'; there are error_rate"),
        (["silence", "--for", "tomorrow", "--reason", "x"], "must be a time such as 30s"),
        (["silence", "--reason", " "], "a silence needs a reason"),
        (["unsilence", "ffff"], "no silence that holds has an id that begins so"),
        (["test", "page"], "there is no channel 'page'; there are none"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(
    fires: str, capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    capsys.readouterr()
    assert main(["alerts", *arguments]) == 2
    err = capsys.readouterr().err
    assert why in err
    assert len(err.splitlines()) == 1


def test_rules_say_what_they_find_now_and_nothing_is_made(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {each["rule"]: each for each in said(capsys, "rules")["rules"]}
    assert [*found][:3] == ["error_rate", "latency", "resources"]
    assert found["error_rate"]["now"][0]["breached"] is None
    (memory,) = (each for each in found["resources"]["now"] if each["subject"].startswith("memory "))
    assert 0 < memory["value"] < 1
    assert [each["severity"] for each in found["burn"]["now"]] == ["page", "page", "ticket"]
    assert not (project / ".journeyman").exists()


def test_a_silence_is_kept_where_nothing_was_recorded_yet(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    silence = said(capsys, "silence", "latency", "--reason", "the model server is moved")["silence"]
    assert said(capsys, "list")["silences"] == [silence]


def test_a_channel_is_tried(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "journeyman.toml").write_text(CHANNEL)
    assert main(["alerts", "test", "page"]) == 2
    assert "the variable PAGE_URL of alerts.channels.page is not set" in capsys.readouterr().err
    with upstream() as up:
        monkeypatch.setenv("PAGE_URL", up.url)
        assert said(capsys, "test", "page") == {"channel": "page", "delivered": True, "reason": None}
        assert json.loads(up.asked[0].body)["commonAnnotations"]["summary"] == "This is a test: nothing is wrong."
        up.answer = lambda asked: failed(500)
        told = said(capsys, "test", "page", code=1)
    assert told["reason"] == "the channel page answers with HTTP status 500"


def test_the_dashboard_asks_for_what_is_told(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["alerts", "grafana"]) == 0
    dashboard = json.loads(capsys.readouterr().out)
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert 'sum by (rule) (journeyman_alerts{state="firing"})' in asked
    assert len(asked) >= 8
    assert all(panel["title"] and panel["datasource"]["uid"] == "${source}" for panel in dashboard["panels"])


def test_a_monitor_that_looks_once_says_what_fires(fires: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["monitor", "--once", "--json"]) in (0, 1)
    assert "alerts" in json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[alerts]\nfor = "soon"', "alerts.hold_for must be a time such as 30s, 5m, 4h or 3d"),
        ("[alerts]\nerror_rate = 5", "alerts.error_rate is 5, and must lie between 0 and 1"),
        ('[alerts]\nburn = [[14.4, "1h", "x", "page"]]', "must be a time such as 30s"),
        (
            '[alerts.channels.page]\nurl_env = "https://alerts.example.org/s3cr3t"',
            "must be the name of an environment variable",
        ),
        ('[alerts.channels.page]\nurl_env = "P"\nkind = "pigeon"', "alerts.channels.page.kind is 'pigeon', and must be"),
        ("[alerts]\nerror_rat = 0.1", "did you mean alerts.error_rate?"),
    ],
)
def test_a_bad_setting_is_one_sentence(project: Path, capsys: pytest.CaptureFixture[str], text: str, why: str) -> None:
    (project / "journeyman.toml").write_text(text)
    assert main(["alerts", "list"]) == 2
    err = capsys.readouterr().err
    assert why in err
    assert "s3cr3t" not in err
    assert len(err.splitlines()) == 1
