"""What people kept of what a coding agent wrote, in real repositories."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.candidate import BASE
from journeyman.core.trace import ToolCall, Trace
from journeyman.rewards.survival import SurvivalReward

AT = datetime(2026, 3, 5, 12, tzinfo=UTC)
CODE = "def total(items):\n    return sum(items)\n\n\ndef mean(items):\n    return total(items) / len(items)\n"


def git(repository: Path, *arguments: str, days: float = 0) -> None:
    when = (AT + timedelta(days=days)).isoformat()
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in
           (("NAME", "ann"), ("EMAIL", "ann@example.org"), ("DATE", when))}  # fmt: skip
    subprocess.run(
        ["git", "-C", str(repository), *arguments], check=True, capture_output=True, env={"PATH": "/usr/bin:/bin", **who}
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "repository"
    path.mkdir()
    git(path, "init", "-q")
    return path


def commit(repository: Path, text: str, *, days: float) -> None:
    (repository / "stats.py").write_text(text)
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "--allow-empty", "-m", "work", days=days)


def attempt(cwd: Path, *calls: ToolCall) -> Trace:
    return Trace(id="t", task_id="t", candidate_id=BASE, started_at=AT, steps=calls, raw={"cwd": str(cwd)})


def wrote(path: Path | str, ok: bool = True, **arguments: Any) -> ToolCall:
    return ToolCall(tool="Edit", arguments=json.dumps({"file_path": str(path), **arguments}), result="", ok=ok)


def shares(trace: Trace) -> Sequence[float | None]:
    return [SurvivalReward().compute(trace).score]


def test_lines_that_stand_in_head_a_week_later_survived(repository: Path) -> None:
    whole = attempt(repository, wrote(repository / "stats.py", content=CODE))
    commit(repository, CODE, days=6.9)
    found = SurvivalReward().compute(whole)
    assert found.score is None
    assert "is not yet 7 days younger" in found.details["evidence"]

    commit(repository, CODE, days=8)
    assert SurvivalReward().compute(whole).score == 1.0
    # Somebody takes the second function away, and nobody touches what is not committed.
    commit(repository, CODE.split("\n\n")[0] + "\n", days=9)
    (repository / "stats.py").write_text("")
    found = SurvivalReward().compute(whole)
    assert (found.details["kept"], found.details["lines"]) == (2, 4)
    assert found.score == 0.5
    git(repository, "rm", "-qf", "stats.py")
    git(repository, "commit", "-qm", "gone", days=10)
    assert SurvivalReward().compute(whole).score == 0.0


def test_what_stood_there_before_and_what_failed_is_not_what_was_written(repository: Path) -> None:
    commit(repository, CODE, days=8)
    edit = wrote(
        "stats.py", old_string="def total(items):\n    return 0", new_string="def total(items):\n    return sum(items)"
    )
    several = wrote("stats.py", edits=[{"old_string": "x", "new_string": "    never = there"}])
    assert shares(attempt(repository, edit)) == [1.0]
    assert shares(attempt(repository, edit, several)) == [0.5]
    assert shares(attempt(repository, edit, replace(several, ok=False))) == [1.0]
    # As often as it was written: the second of two lines alike is not there.
    assert shares(attempt(repository, edit, edit)) == [0.5]


def test_what_cannot_be_known_is_unknown(repository: Path, tmp_path: Path) -> None:
    edit = wrote("stats.py", content=CODE)
    assert shares(attempt(repository, edit)) == [None], "no commits"
    commit(repository, CODE, days=8)
    assert shares(attempt(tmp_path / "gone", edit)) == [None]
    assert shares(attempt(tmp_path, edit)) == [None], "no repository"
    assert shares(attempt(repository)) == [None]
    assert shares(attempt(repository, wrote(tmp_path / "elsewhere.py", content=CODE))) == [None]
    assert shares(attempt(repository, ToolCall(tool="Edit", arguments="[", result=""))) == [None]


def test_a_repository_that_names_programs_has_none_of_them_run(repository: Path, tmp_path: Path) -> None:
    commit(repository, CODE, days=8)
    ran = tmp_path / "ran"
    script = tmp_path / "evil"
    script.write_text(f"#!/bin/sh\ntouch {ran}\n")
    script.chmod(0o755)
    for name in ("core.fsmonitor", "diff.evil.textconv", "core.pager", "gpg.program"):
        git(repository, "config", name, str(script))
    git(repository, "config", "log.showSignature", "true")
    assert shares(attempt(repository, wrote("stats.py", content=CODE))) == [1.0]
    assert not ran.exists()
