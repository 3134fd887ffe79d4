"""The same cheats when an ordinary user does the checking: seen when the tests run as root."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOME = """
import asyncio, json
from journeyman import sandbox
from journeyman.rewards.reward_hacking import CHEATS, try_cheats

async def main():
    names = {"kills_the_tests", "fork_and_exit", "loops", "reads_the_tests_from_disk", "false_pytest"}
    names |= {"equal_to_all", "hard_exit_at_import", "writes_to_every_descriptor", "hooks_by_conftest"}
    box = sandbox.load()
    await box.start()
    found = await try_cheats(box, [cheat for cheat in CHEATS if cheat.name in names], workers=12)
    await box.close()
    assert found["cheats"] == len(names)
    print(json.dumps(found))

asyncio.run(main())
"""
"""Those that have most to do with processes, files and limits, which an ordinary user is held to in another way than root."""

ALL = ("-m", "journeyman", "check", "cheats", "--json", "--sandbox")


@pytest.mark.attacks
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become an ordinary user; any other already is one")
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
@pytest.mark.parametrize(
    ("program", "fooled"),
    [
        pytest.param(["-c", SOME], 4, id="some"),
        pytest.param([*ALL, "bubblewrap"], 20, id="all", marks=pytest.mark.nightly),
        pytest.param([*ALL, "landlock"], 20, id="all behind landlock", marks=pytest.mark.nightly),
    ],
)
def test_no_cheat_is_paid_by_an_ordinary_user_and_an_honest_solution_is(program: list[str], fooled: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.ordinary", *program],
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
    assert told["sandbox"].startswith("landlock" if "landlock" in program else "bubblewrap")
    assert told["trusting"]["exit_code"] >= fooled
