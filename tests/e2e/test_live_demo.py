"""`journeyman demo --live` as a user runs it: the whole loop, and nothing of it left behind but its own project."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.core.trace import ModelCall
from journeyman.io.http_server import listen
from journeyman.stores import open_traces
from journeyman.stores.rollouts import open_rollouts
from tests.serving.gateway.test_process import until
from tests.support import warm

pytestmark = [pytest.mark.service, pytest.mark.training]
LIVE = Path(".journeyman/demo/live")


@contextmanager
def started(folder: Path, *arguments: str, python: str = sys.executable, **env: str) -> Iterator["subprocess.Popen[str]"]:
    """The demo as a process; killed at the end, if it is still there."""
    command = [python, "-m", "journeyman", "demo", "--live", "--port", "0", *arguments]
    with (
        (folder / "stderr").open("w") as log,
        subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **env}
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def said(folder: Path, what: str) -> str:
    """The address in a line that it has said; empty while it has not."""
    return next((line.split()[-1] for line in (folder / "stderr").read_text().splitlines() if line.startswith(what)), "")


def left_behind(folder: Path) -> list[str]:
    """Processes that work in the demo's project."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if (each / "cwd").readlink().is_relative_to(folder):
                found.append((each / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("model", ["embedded:small", pytest.param("embedded", marks=pytest.mark.nightly)])
def test_refused_orders_come_into_production_as_better_and_what_harms_is_taken_back(tmp_path: Path, model: str) -> None:
    own = {
        warm.CHILDREN: warm.program(),
        "JOURNEYMAN_STORE": str(tmp_path / "my-own.db"),
        "OPENAI_API_KEY": "sk-of-the-user-0123456789",
        "HTTP_PROXY": "http://127.0.0.1:9",
    }
    with started(tmp_path, "--keep", "--json", "--model", model, python=warm.program(), **own) as process:
        assert until(lambda: said(tmp_path, "Look on:"), 60)
        assert until(lambda: said(tmp_path, "Served until Ctrl-C:") or process.poll() is not None, 1500)
        page = said(tmp_path, "Served until Ctrl-C:")
        assert page, (tmp_path / "stderr").read_text()
        with urllib.request.urlopen(page, timeout=30) as answer:
            shown = unescape(answer.read().decode())
        process.send_signal(signal.SIGINT)
        told: dict[str, Any] = json.loads(process.communicate(timeout=60)[0])
        assert (process.returncode, told["problem"]) == (0, "")
    live = tmp_path / LIVE
    assert left_behind(live) == []
    assert [told[part] for part in ("promoted", "rolled_back", "alert_delivered", "poison_refused")] == [True] * 4
    assert told["success_before"] < 0.2
    assert told["success_after"] >= 0.9

    # What the page said, and what was posted.
    assert told["rollback"]["reason"] in shown
    assert told["rollback"]["reason"].startswith("success is worse on the canary: ")
    bodies = [json.loads(line)["body"] for line in (live / "webhook.jsonl").read_text().splitlines()]
    assert any(told["rollback"]["rollout"] in body for body in bodies)

    # What the store holds.
    with open_rollouts(str(live / ".journeyman/journeyman.db"), make=False) as kept:
        good, bad = kept.rollouts()
        assert (good.id, good.state) == (told["promotion"]["rollout"], "concluded")
        assert (bad.id, bad.state) == (told["rollback"]["rollout"], "rolled_back")
        # Step by step, up to the one at which it was shown to be better: a busy machine sees more sessions in a step.
        steps = [event.shares for event in good.events if event.kind == "ramp"]
        assert steps == [{"canary": share} for share in (0.1, 0.25, 0.5)][: len(steps)]
        assert len(steps) >= 2
        assert [event.cause.forced for event in bad.events][:1] == [True]
        assert kept.live().baseline(good.slot).candidate_id == told["candidate"]
        assert kept.verify() is None
    with open_traces(str(live / ".journeyman/journeyman.db"), make=False) as store:
        traces = list(store.traces())
    assert {(trace.agent, trace.domain) for trace in traces} == {("demo-desk", "oslo")}
    calls = [(trace.session, step) for trace in traces for step in trace.steps if isinstance(step, ModelCall)]
    his = {session for session, call in calls if call.raw["request"]["user"] == "mallory"}
    assert len(his) == told["poison"]["orders"] == 30

    # Nothing came into what is the user's own.
    assert sorted(path.name for path in tmp_path.iterdir()) == [".journeyman", "stderr"]
    assert b"sk-of-the-user" not in b"".join(path.read_bytes() for path in live.rglob("*") if path.is_file())


# Being told to end is handled as Ctrl-C is, by the same lines.
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.nightly), signal.SIGTERM])
def test_told_to_stop_it_ends_all_that_it_started(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path) as process:
        assert until(lambda: said(tmp_path, "Look on:"), 60)
        time.sleep(1)
        assert len(left_behind(tmp_path / LIVE)) >= 2
        process.send_signal(number)
        assert process.wait(60) == 130
    assert until(lambda: left_behind(tmp_path / LIVE) == [])
    assert "Traceback" not in (tmp_path / "stderr").read_text()


def test_a_port_that_is_taken_ends_with_2_and_leaves_the_last_demo_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    LIVE.mkdir(parents=True)
    (LIVE / "kept").touch()
    with listen("127.0.0.1", 0) as bound:
        bound.listen()
        assert main(["demo", "--live", "--port", str(bound.getsockname()[1])]) == 2
    assert "choose another --port" in capsys.readouterr().err
    assert (LIVE / "kept").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--live", "--domain", "atlantis"], "no shop 'atlantis' at the desk; there are"),
        (["--live", "--model", "openai:gpt-5"], "the clerk of the live demo is one of embedded, embedded:base, embedded:small"),
        (["--live", "--weights"], "--live is a demo of its own"),
        (["--keep"], "--keep is an option of it"),
    ],
)
def test_what_cannot_be_meant_ends_with_2(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
