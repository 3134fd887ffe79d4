"""A real `journeyman train playbook`, killed without warning, goes on and ends in the same file."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import journeyman
from tests.support import warm
from tests.support.llm_server import Answer, LLMServer, serving
from tests.support.pupil import REFLECTOR, over_http, write_sums

pytestmark = pytest.mark.service

WEIGHTS = Path(journeyman.__file__).parent / "models" / "embedded" / "weights" / "base" / "config.json"
ENV = {**os.environ, "SOURCE_DATE_EPOCH": "0", "OMP_NUM_THREADS": "1", "OPENAI_API_KEY": "sk-of-a-test-123456"}
"""A server is no deterministic model; with the time held fast, a pupil behind one is."""


@pytest.fixture(scope="module")
def server() -> Iterator[LLMServer]:
    with serving() as state:
        yield state


TRAIN = ("-m", "journeyman", "train", "playbook")


def cold(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """As a user starts it, and with hashes of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, *TRAIN, *arguments]
    return subprocess.Popen(command, cwd=folder, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def ran(folder: Path, *arguments: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    # With other hashes than what was killed before had.
    done = warm.run(*TRAIN, *arguments, cwd=folder, env=ENV, server="other")
    assert done.returncode == 0, done.stderr
    return done.stdout


def killed(folder: Path, when: Callable[[], bool], *arguments: str) -> None:
    """Start a training run, and kill it as soon as something is so."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "stderr").open("w") as err:
        process = warm.start(*TRAIN, *arguments, cwd=folder, env=ENV, stderr=err.fileno())
        deadline = time.monotonic() + 60
        while not when():
            assert process.poll() is None, f"it ended before it was to be killed: {(folder / 'stderr').read_text()}"
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


def settings(server: LLMServer, data: Path) -> tuple[str, ...]:
    sizes = (
        "--num-examples",
        "20",
        "--batch-size",
        "5",
        "--held-out",
        "30",
        "--concurrency",
        "4",
        "--checkpoint-interval",
        "10",
    )
    return ("--dataset", "custom", "--input", str(data), "--model", f"openai:pupil@{server.url}", *sizes, "--output", "p.json")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "sums.json"
    write_sums(path, 20, 30)
    return path


@pytest.fixture(scope="module")
def whole(server: LLMServer, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nobody interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    server.default = over_http
    with cold(folder, *settings(server, data)) as process:
        _, said = process.communicate()
        assert process.returncode == 0, said
    return folder


def slowly(body: dict[str, Any]) -> Answer:
    return replace(over_http(body), delay=0.01)


def run_of(folder: Path) -> Path:
    found = list((folder / ".journeyman" / "runs").glob("*/journal.jsonl"))
    return found[0].parent if found else folder / "none"


def lines(folder: Path) -> int:
    path = run_of(folder) / "journal.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def trained_on(server: LLMServer) -> list[str]:
    """The questions of training that the server was asked, again when asked again."""
    texts = ["\n".join(message["content"] for message in body["messages"]) for body in server.bodies]
    return [text for text in texts if REFLECTOR not in text and not re.search(r"holds 10\d\d plums", text)]


def went_on_alike(folder: Path, whole: Path) -> bool:
    """The playbook to the byte, the journal, and the sums."""
    metrics = [json.loads((at / "metrics" / "offline_training_metrics.json").read_text()) for at in (folder, whole)]
    for found in metrics:
        del found["timing"]
    same_journal = (run_of(folder) / "journal.jsonl").read_bytes() == (run_of(whole) / "journal.jsonl").read_bytes()
    same_file = (folder / "p.json").read_bytes() == (whole / "p.json").read_bytes()
    return same_file and same_journal and metrics[0] == metrics[1]


@pytest.mark.parametrize("moment", ["after the config", "in a batch", "in a later batch", "in the evaluation"])
def test_killed_at_any_moment_it_ends_in_the_same_playbook(
    server: LLMServer, data: Path, whole: Path, tmp_path: Path, moment: str
) -> None:
    server.reset()
    server.default = slowly
    moments: dict[str, Callable[[], bool]] = {
        "after the config": lambda: (run_of(tmp_path) / "config.json").exists(),
        "in a batch": lambda: len(server.bodies) >= 3,
        "in a later batch": lambda: lines(tmp_path) >= 3 and len(server.bodies) >= 23,
        "in the evaluation": lambda: lines(tmp_path) >= 5 and len(server.bodies) >= 55,
    }
    killed(tmp_path, moments[moment], *settings(server, data))
    assert not (tmp_path / "p.json").exists()
    merged = max(0, lines(tmp_path) - 1)

    server.bodies.clear()
    server.default = over_http
    said = ran(tmp_path, "--resume", "--json")
    assert json.loads(said.splitlines()[-1])["finished"] is True
    assert went_on_alike(tmp_path, whole)
    assert len(trained_on(server)) == 20 - 5 * merged, "no merged batch is repeated"


def test_killed_again_and_again_it_still_ends_the_same(server: LLMServer, data: Path, whole: Path, tmp_path: Path) -> None:
    server.reset()
    server.default = slowly
    arguments = settings(server, data)
    for line in (2, 4):
        killed(tmp_path, lambda line=line: lines(tmp_path) >= line, *arguments)  # type: ignore[misc]
        arguments = ("--resume",)
    server.default = over_http
    ran(tmp_path, "--resume")
    assert went_on_alike(tmp_path, whole)


def undone(folder: Path, whole: Path) -> Path:
    """A copy of the whole run as it was before its end; its journal has 5 lines."""
    shutil.copytree(whole, folder, dirs_exist_ok=True)
    for path in (folder / "p.json", run_of(folder) / "result.json"):
        path.unlink()
    shutil.rmtree(folder / "metrics")
    return run_of(folder)


@pytest.mark.parametrize("left", ["between record and line", "a torn line", "before the result"])
def test_what_a_kill_leaves_between_two_writes_is_mended(server: LLMServer, whole: Path, tmp_path: Path, left: str) -> None:
    server.reset()
    server.default = over_http
    run = undone(tmp_path, whole)
    journal = run / "journal.jsonl"
    kept = journal.read_bytes().splitlines(keepends=True)
    if left == "between record and line":
        journal.write_bytes(b"".join(kept[:4]))
    elif left == "a torn line":
        journal.write_bytes(b"".join(kept[:3]) + kept[3][:100])
        (run / "batches" / ".00003.jsonx.part").write_bytes(b"{")
    ran(tmp_path, "--resume")
    assert went_on_alike(tmp_path, whole)
    assert len(trained_on(server)) == {"between record and line": 5, "a torn line": 10, "before the result": 0}[left]


def test_interrupted_from_the_keyboard_it_says_so_and_goes_on(
    server: LLMServer, data: Path, whole: Path, tmp_path: Path
) -> None:
    server.reset()
    server.default = slowly
    with cold(tmp_path, *settings(server, data)) as process:
        while lines(tmp_path) < 2 and process.poll() is None:
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr is not None
        said = process.stderr.read()
        assert "Traceback" not in said
        assert f"go on with: journeyman train playbook --resume {run_of(tmp_path).name}" in said
    server.default = over_http
    ran(tmp_path, "--resume")
    assert went_on_alike(tmp_path, whole)


@pytest.mark.skipif(not WEIGHTS.exists(), reason="the embedded model's weights are not installed")
def test_the_embedded_model_ends_in_the_same_playbook_on_any_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ENV, "SOURCE_DATE_EPOCH")
    sizes = ("--num-examples", "9", "--batch-size", "3", "--held-out", "4")
    arguments = ("--dataset", "desk", "--domain", "oslo", *sizes, "--output", "p.json")
    ran(tmp_path / "whole", *arguments)
    killed(tmp_path / "cut", lambda: lines(tmp_path / "cut") >= 2, *arguments)
    ran(tmp_path / "cut", "--resume")
    assert went_on_alike(tmp_path / "cut", tmp_path / "whole")
