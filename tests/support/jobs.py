"""Work for workers, and a package that names it, so that workers on PostgreSQL take it too."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from journeyman.core import registry
from journeyman.core.trace import Trace
from journeyman.rewards.base import RewardResult

ROOT = Path(__file__).parents[2]


def square(item: dict[str, Any]) -> int:
    time.sleep(item.get("sleep", 0))
    if "log" in item:
        with Path(item["log"]).open("a") as log:
            log.write(f"{item['number']}\n")
    return int(item["number"]) ** 2


def reciprocal(item: dict[str, Any]) -> float:
    return 1 / float(item["number"])


def crash(item: dict[str, Any]) -> int:
    """Kills its process where it is told to; with a file, that once only."""
    if item.get("once"):
        with suppress(FileExistsError):
            Path(item["once"]).touch(exist_ok=False)
            os.kill(os.getpid(), 9)
    if item.get("always"):
        os.kill(os.getpid(), 9)
    return int(item["number"])


@dataclass(frozen=True, kw_only=True)
class Whereabouts:
    """A reward that tells which process it was asked in, after so many seconds."""

    name: str = "whereabouts"
    weight: float = 1.0
    version: str = "1"
    seconds: float = 0.0

    def compute(self, trace: Trace) -> RewardResult:
        time.sleep(self.seconds)
        return RewardResult(score=1.0, details={"process": os.getpid(), "trace": trace.id})


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As though a package was installed that names these."""
    info = folder / "test_jobs-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: test-jobs\nVersion: 1.0\n")
    lines = (f"{name} = {__name__}:{name}" for name in ("square", "reciprocal", "crash"))
    (info / "entry_points.txt").write_text("\n".join(("[journeyman.jobs]", *lines, "")))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(folder), str(ROOT / "src"), str(ROOT))))
    registry.added.cache_clear()


@contextmanager
def worker(url: str, *options: str, folder: Path | None = None) -> "Iterator[subprocess.Popen[str]]":
    """`journeyman worker run`, ended in the end."""
    command = [sys.executable, "-m", "journeyman", "worker", "run", url, *options]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert "working for" in process.stderr.readline()
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stderr is not None:
            process.stderr.close()
