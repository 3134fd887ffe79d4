"""A pipeline with a training in it, killed in the middle: what comes out is the same, byte for byte."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm

pytestmark = pytest.mark.training

STAGES = """
[pipeline]
name = "desk"

[train]
command = "train weights"
method = "rft"
tasks = "desk"
domain = "oslo"
base_model = "embedded:small"
max_steps = 6
num_examples = 16
validation = 0
checkpoint_interval = 1
evaluate = false

[export]
command = "export gguf"
arguments = ["{train.run_id}"]
quantization = "Q8_0"
no_measure = true
out = "{out}"
"""


def started(folder: Path) -> warm.Started:
    folder.mkdir(exist_ok=True)
    (folder / "pipeline.toml").write_text(STAGES)
    with (folder / "out").open("wb") as out, (folder / "said").open("wb") as said:
        words = ("-m", "journeyman", "pipeline", "run", "--json")
        return warm.start(*words, cwd=folder, children=True, stdout=out.fileno(), stderr=said.fileno())


def ended(process: warm.Started, folder: Path) -> dict[str, Any]:
    assert process.wait(300) == 0, (folder / "said").read_text()
    found: dict[str, Any] = json.loads((folder / "out").read_text().splitlines()[-1])
    return found


def digests(found: dict[str, Any]) -> dict[str, list[str]]:
    return {name: sorted(stage["outputs"].values()) for name, stage in found["results"].items()}


def test_a_pipeline_that_is_killed_while_it_trains_and_while_it_exports_makes_the_same(tmp_path: Path) -> None:
    whole = ended(started(tmp_path / "whole"), tmp_path / "whole")
    assert {name: state for name, (state, _) in whole["stages"].items()} == {"train": "done", "export": "done"}
    assert all(digests(whole).values())

    folder = tmp_path / "killed"
    for stage, shown in (("train", "*/checkpoint*"), ("export", None)):
        process = started(folder)
        until = time.monotonic() + 120
        while time.monotonic() < until and process.poll() is None:
            at_work = [
                path for path in folder.glob(f".journeyman/pipelines/desk/{stage}-*.json") if '"running"' in path.read_text()
            ]
            if at_work and (shown is None or list(folder.glob(f".journeyman/runs/{shown}"))):
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
    found = ended(started(folder), folder)
    assert {name: state for name, (state, _) in found["stages"].items()} == {"train": "cached", "export": "done"}
    assert digests(found) == digests(whole)
    # It went on in its run instead of beginning another.
    assert len(list((folder / ".journeyman" / "runs").iterdir())) == 1
