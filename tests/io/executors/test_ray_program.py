"""A program on a Ray cluster: a small one that is started on this machine."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="needs the extra: pip install 'journeyman[ray]'")
pytestmark = pytest.mark.service


def start(program: str, folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "journeyman.io.executors.ray_program", "ray", "--environment", "TOLD", "--", "-c", program]
    return subprocess.Popen(
        [*command, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "TOLD": "this"},
        text=True,
    )


def test_what_a_program_says_and_ends_with_is_as_though_it_ran_here(tmp_path: Path) -> None:
    program = "import os, sys; print(sys.argv[1], os.environ['TOLD'], flush=True); sys.exit(3)"
    # Its standard input stays open until its first word has come.
    with start(program, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{tmp_path} this\n"
        process.communicate(timeout=120)
    assert process.returncode == 3


def test_a_program_whose_parent_closes_its_input_is_told_so_and_may_end_in_its_own_way(tmp_path: Path) -> None:
    program = "import sys; print('begun', flush=True); sys.stdin.read(); print('kept'); sys.exit(130)"
    with start(program, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        out, _ = process.communicate(timeout=120)
    assert (out, process.returncode) == ("kept\n", 130)


def test_a_folder_that_the_cluster_does_not_see_is_one_sentence(tmp_path: Path) -> None:
    with start("print('never')", tmp_path / "missing") as process:
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == 2
    assert f"journeyman: {tmp_path / 'missing'} is not there on " in said
