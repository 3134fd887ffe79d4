"""The same cheats when an ordinary user does the checking: seen when the tests run as root."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.attacks
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become an ordinary user; any other already is one")
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_no_cheat_is_paid_by_an_ordinary_user_and_an_honest_solution_is() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.ordinary", "-m", "journeyman", "check", "cheats", "--json"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if "forbids" in done.stderr or "not permitted to make namespaces" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["names"], told["honest_paid"]) == ([], True)
    # Without a group of its own to count in, it is another sandbox than root's.
    assert told["sandbox"].startswith("bubblewrap")
    assert told["trusting"]["exit_code"] >= 20
