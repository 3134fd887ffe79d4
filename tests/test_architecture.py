"""The house: which room may know which. The floors themselves are written in pyproject.toml."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.figures import figures

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "journeyman"


@pytest.mark.service
def test_imports_only_look_down_and_heavy_libraries_have_one_home() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.service
def test_the_figures_of_the_house_do_not_fall_behind() -> None:
    assert [f"{each.name}: {each.value:g}" for each in figures() if each.structural and not each.kept] == []


def test_nothing_is_unpickled_or_evaluated_but_what_runs_within_the_walls() -> None:
    within = SOURCE / "sandbox" / "inside"
    """Programs of the sandboxed process itself: to run code is what they are for."""
    unsafe = re.compile(r"\bpickle\.loads?\(|(?<![\w.])eval\(|(?<![\w.])exec\(|allow_pickle=True|weights_only=False")
    found = [path.name for path in SOURCE.rglob("*.py") if within not in path.parents and unsafe.search(path.read_text())]
    assert found == []


def test_the_project_speaks_of_no_machine_but_the_readers() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout, so what belongs to the project is not known")
    private = re.compile(r"(?<![\w.-])/(?:work|home/\w+|root)/|https?://(?:pypi\.|download\.py)|index-url", re.IGNORECASE)
    found = []
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ""} and path.is_file() and "tests/data" not in name:
            found += [f"{name}: {line}" for line in path.read_text(errors="ignore").splitlines() if private.search(line)]
    assert [line for line in found if not line.startswith("tests/test_architecture.py")] == []
