"""The host's side of the sandbox: event loops, processes that are killed, machines that have no bubblewrap."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from journeyman.core.errors import SandboxError
from journeyman.sandbox.base import Program
from journeyman.sandbox.bubblewrap import Bubblewrap
from journeyman.sandbox.fork_server_host import ForkServerHost, diagnosis, installing, shown, straight
from tests.support.processes import below, is_alive

pytestmark = pytest.mark.attacks

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@needs_bubblewrap
def test_it_works_in_one_event_loop_after_another_and_closes_clean() -> None:
    sandbox = Bubblewrap()
    assert asyncio.run(sandbox.run(Program(code="print(1)"))).stdout == "1\n"
    assert asyncio.run(sandbox.run(Program(code="print(2)"))).stdout == "2\n"
    assert sandbox._fork_server is not None
    fork_server = sandbox._fork_server
    lent = fork_server._lent.folders if fork_server._lent else ()
    asyncio.run(sandbox.close())
    assert not fork_server._folder.exists()
    assert not is_alive(fork_server._process.pid)
    assert not any(folder.exists() for folder in lent)


@needs_bubblewrap
def test_a_host_that_is_killed_takes_everything_with_it(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from journeyman.sandbox.base import Program
from journeyman.sandbox.bubblewrap import Bubblewrap
async def main():
    sandbox = Bubblewrap()
    await sandbox.start()
    print(sandbox._fork_server._process.pid, sandbox._fork_server._folder, flush=True)
    await sandbox.run(Program(code="import time; time.sleep(60)"))
asyncio.run(main())
"""
    host = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    first, folder = host.stdout.readline().split()
    pid = int(first)
    time.sleep(0.3)
    family = [pid, *below(pid)]
    assert len(family) > 3
    host.kill()
    host.wait()
    host.stdout.close()
    for _ in range(200):
        if not (alive := [each for each in family if is_alive(each)]):
            break
        time.sleep(0.05)
    assert alive == []
    assert not Path(folder).exists()


@needs_bubblewrap
def test_an_interpreter_that_was_started_by_a_way_back_up_gets_the_same_walls(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from journeyman.sandbox.base import Program
from journeyman.sandbox.bubblewrap import Bubblewrap
async def main():
    sandbox = Bubblewrap()
    outcome = await sandbox.run(Program(code="import sys, pytest; print(sys.prefix)"))
    await sandbox.close()
    print(".." in sys.executable, sandbox.level.name, outcome.stdout)
asyncio.run(main())
"""
    way = os.path.relpath(sys.executable, tmp_path)
    found = subprocess.run([way, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.stdout.split() == ["True", "bubblewrap", shown(sys.prefix)], found.stderr


def test_a_way_back_up_is_gone_straight_and_a_link_at_its_end_stays(tmp_path: Path) -> None:
    (tmp_path / "real" / "bin").mkdir(parents=True)
    (tmp_path / "real" / "bin" / "python").symlink_to("/usr/bin/env")
    (tmp_path / "link").symlink_to(tmp_path / "real" / "bin")
    real = (tmp_path / "real").resolve()
    assert straight(f"{tmp_path}/link/../bin/python") == f"{real}/bin/python"
    assert straight(f"{tmp_path}/real/bin/..") == str(real)
    assert straight("/opt/python/bin/python") == "/opt/python/bin/python"


def test_where_bubblewrap_is_missing_the_command_that_installs_it_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="bubblewrap is not installed"):
        ForkServerHost.program()


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("ID=debian\n", "apt install bubblewrap"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install bubblewrap"),
        ("ID=arch\n", "pacman -S bubblewrap"),
        ("ID=alpine\n", "apk add bubblewrap"),
        ("", "apt install bubblewrap"),
    ],
)
def test_each_distribution_has_its_own_command(tmp_path: Path, text: str, command: str) -> None:
    (tmp_path / "os-release").write_text(text)
    assert installing(tmp_path / "os-release") == command


def test_what_is_forbidden_is_said_with_what_to_do() -> None:
    assert "landlock" in diagnosis("bwrap: No permissions to create new namespace: Operation not permitted")
    assert diagnosis("bwrap: what").endswith("bwrap: what")
