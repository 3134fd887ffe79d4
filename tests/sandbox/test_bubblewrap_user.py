"""The same walls for an ordinary user, who has no control groups to give: seen when the tests run as root."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, json, os, sys
from journeyman.sandbox.base import MIB, Limits, Program
from journeyman.sandbox.bubblewrap import Bubblewrap

RUNS = {
    "memory of one": ("x = []\\nwhile True: x.append(bytearray(1 << 20))", Limits(memory=100 * MIB)),
    "memory of many": (
        "import os, time\\nfor _ in range(8):\\n    if os.fork() == 0:\\n"
        "        x = b'x' * (40 << 20)\\n        time.sleep(60)\\ntime.sleep(60)",
        Limits(memory=100 * MIB),
    ),
    "a fork bomb": ("import os\\nwhile True:\\n    try: os.fork()\\n    except OSError: pass", Limits(processes=20)),
    "inodes": ("for n in range(1000): open(str(n), 'w')", Limits(inodes=50)),
}

async def main():
    sandbox = Bubblewrap()
    await sandbox.start()
    found = {name: (await sandbox.run(Program(code=code, limits=limits))).limit for name, (code, limits) in RUNS.items()}
    tests = await sandbox.run(Program(code="def test_one(): pass", language="pytest"))
    await sandbox.close()
    print(json.dumps({"uid": os.getuid(), "holds": sandbox.level.holds, "limits": found, "tests": tests.ok}))

asyncio.run(main())
"""


@pytest.mark.attacks
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become an ordinary user; any other already is one")
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_an_ordinary_user_has_the_same_walls_and_the_watcher_holds_the_limits() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "tests.support.ordinary", "-c", PROGRAM],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "forbids" in found.stderr or "not permitted to make namespaces" in found.stderr:
        pytest.skip(found.stderr.splitlines()[-1])
    assert found.returncode == 0, found.stderr
    said = json.loads(found.stdout)
    assert said["uid"] not in (0, None)
    assert {"no_network", "private_files", "own_processes", "no_capabilities", "seccomp", "inode_limit"} <= set(said["holds"])
    assert said["limits"] == {
        "memory of one": "memory",
        "memory of many": "memory",
        "a fork bomb": "processes",
        "inodes": "inodes",
    }
    assert said["tests"]
