"""How far a pipeline is, stage by stage, on a page."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from journeyman.cli import main
from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.serving.dashboard.layout import Guard
from journeyman.stores.traces.base import TraceStore
from tests.serving.dashboard.test_pages import words_of
from tests.support.pages import Visitor, visitor

STAGES = """
[pipeline]
name = "look"

[monitor]
command = "monitor"

[again]
command = "monitor"
every = 7.0
"""


@pytest.fixture
def pages(store: TraceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Visitor:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipeline.toml").write_text(STAGES)
    return visitor(store, Guard(), project=ProjectStores(tmp_path / "journeyman.db", folder=tmp_path))


def said(pages: Visitor, path: str) -> str:
    return " ".join(words_of(pages.read(path)).split())


@pytest.mark.slow
def test_a_run_is_seen_while_it_runs_when_it_was_killed_and_when_it_is_done(pages: Visitor, tmp_path: Path) -> None:
    assert "No pipeline was run yet" in said(pages, "/pipelines")
    assert "Pipelines" not in said(pages, "/runs").split("Runs", 1)[1]
    command = [sys.executable, "-m", "journeyman", "pipeline", "run"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 30
        while "running" not in (seen := said(pages, "/pipelines")) and time.monotonic() < until:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    assert "monitor running again not reached" in seen
    assert "stopped" in said(pages, "/pipelines")

    assert main(["pipeline", "run"]) == 0
    seen = said(pages, "/pipelines")
    assert "finished" in seen
    assert "journeyman monitor --once --every 7.0" in seen
    assert "Pipelines: 2 runs" in said(pages, "/runs")
    first = min((tmp_path / ".journeyman" / "pipelines" / "look" / "runs").glob("*.json")).stem
    assert "stopped" in said(pages, f"/pipelines?run={first}")
    pages.read("/pipelines?run=nothing", 404)
