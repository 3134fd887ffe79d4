"""The standing campaign of faults runs over all kinds, and finds what it is there to find."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.service

ROOT = Path(__file__).parents[1]
KINDS = {"fuzz", "kill", "disk", "clock", "postgres", "the whole campaign"}


def soaked(corpus: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.soak",
        "--rounds",
        "1",
        "--slice",
        "0.02",
        "--seed",
        "1",
        "--corpus",
        str(corpus),
    ]
    env = {name: value for name, value in os.environ.items() if name != "JOURNEYMAN_DATA"}
    done = subprocess.run([*command, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout) if "--json" in arguments else {}, done.stdout + done.stderr


def test_a_short_campaign_over_all_kinds_finds_nothing_lost_and_nothing_left(tmp_path: Path) -> None:
    kills = ("kill/journal", "kill/artifacts", "kill/traces", "kill/gateway")
    only = ("fuzz", *kills, "disk/decisions", "disk/journal", "clock/registry", "postgres/registry")
    code, found, said = soaked(tmp_path, "--json", *(word for each in only for word in ("--only", each)))
    assert code == 0, said
    kinds, together = found["kinds"], found["together"]
    assert {name.partition("/")[0] for name in {**kinds, **found["skipped"]}} == KINDS
    assert all(kinds[name]["tried"] for name in kinds if name not in found["skipped"] and "/" in name)
    assert (together["lost"], together["tracebacks"], together["left"]) == (0, 0, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_acknowledges_too_early_a_reader_that_breaks_and_what_is_left_are_found(tmp_path: Path) -> None:
    faults = [word for fault in ("loss", "traceback", "left") for word in ("--inject", fault)]
    code, _, said = soaked(tmp_path, "--only", "kill/journal", *faults)
    assert code == 1
    rows = {
        words[0]: [int(word) for word in words[1:]]
        for line in said.splitlines()
        if len(words := line.split()) == 7 and words[1].isdigit()
    }
    assert rows["kill/injected"][3] > 0, "acknowledged and lost"
    assert rows["fuzz/injected"][4] > 0, "tracebacks"
    assert rows["kill/left"][5] >= 2, "a process and a file"
    assert rows["kill/journal"][3:] == [0, 0, 0]
    (kept,) = (tmp_path / "injected").glob("*.input")
    about = json.loads(kept.with_suffix(".json").read_text())
    assert about["seed"] == 1
    # It is tried first the next time.
    code, _, said = soaked(tmp_path, "--only", "kill/journal", "--inject", "traceback", "--seed", "2")
    assert code == 1
