"""The walls around a run, each limit, and what is left afterwards: nothing."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from journeyman.core.errors import SandboxError
from journeyman.sandbox.base import MIB, Limits, Program
from journeyman.sandbox.bubblewrap import Bubblewrap
from tests.support.processes import below

pytestmark = [
    pytest.mark.attacks,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Bubblewrap]:
    sandbox = Bubblewrap()
    try:
        await sandbox.start()
    except SandboxError as error:
        pytest.skip(str(error))
    yield sandbox
    await sandbox.close()


async def test_its_level_names_the_walls_that_its_own_test_saw_hold(sandbox: Bubblewrap) -> None:
    assert {"no_network", "private_files", "own_processes", "no_host_environment", "no_capabilities"} <= set(
        sandbox.level.holds
    )
    assert sandbox.level.name == "bubblewrap"
    outcome = await sandbox.run(Program(code="pass"))
    assert outcome.level == sandbox.level


LIMITED = {
    "cpu of one process": ("while True: pass", Limits(cpu_seconds=0.5), "cpu"),
    "cpu of many": (
        "import os\nfor _ in range(3): os.fork()\nwhile True: pass",
        Limits(cpu_seconds=0.7, wall_seconds=10),
        "cpu",
    ),
    "memory of one process": ("x = []\nwhile True: x.append(bytearray(1 << 20))", Limits(memory=100 * MIB), "memory"),
    "memory at once": ("bytearray(10 << 30)", Limits(memory=100 * MIB), "memory"),
    "memory of many": (
        "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n"
        "        x = b'x' * (40 << 20)\n        time.sleep(60)\ntime.sleep(60)",
        Limits(memory=100 * MIB),
        "memory",
    ),
    "a fork bomb": ("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", Limits(processes=20), "processes"),
    "threads": (
        "import threading, time\nfor _ in range(50): threading.Thread(target=time.sleep, args=(9,)).start()",
        Limits(processes=20),
        "processes",
    ),
    "one big file": ("f = open('f', 'wb')\nwhile True: f.write(bytes(1 << 20))", Limits(file_size=4 * MIB), "file_size"),
    "many files": (
        "for n in range(100): open(str(n), 'wb').write(bytes(1 << 20))",
        Limits(disk=8 * MIB),
        "disk",
    ),
    "files in /dev/shm": (
        "for n in range(100): open(f'/dev/shm/{n}', 'wb').write(bytes(1 << 20))",
        Limits(disk=8 * MIB),
        "disk",
    ),
    "inodes": ("for n in range(1000): open(str(n), 'w')", Limits(inodes=50), "inodes"),
    "open files": ("x = [open('/dev/null') for _ in range(100)]", Limits(open_files=50), "open_files"),
    "wall": ("import time; time.sleep(60)", Limits(wall_seconds=0.3), "wall"),
    "output": ("print('x' * 100000)", Limits(output=1000), "output"),
}


@pytest.mark.parametrize("name", LIMITED)
async def test_each_limit_is_held_and_named(sandbox: Bubblewrap, name: str) -> None:
    code, limits, expected = LIMITED[name]
    outcome = await asyncio.wait_for(sandbox.run(Program(code=code, limits=limits)), 30)
    assert outcome.limit == expected, outcome
    assert outcome.ok is (name == "output")


async def test_what_a_run_used_is_measured(sandbox: Bubblewrap) -> None:
    code = (
        "x = b'x' * (60 << 20)\nimport time\n"
        "end = time.process_time() + 0.3\nwhile time.process_time() < end: pass\ntime.sleep(0.2)"
    )
    outcome = await sandbox.run(Program(code=code))
    assert outcome.cpu_seconds is not None
    assert 0.29 < outcome.cpu_seconds < 5
    assert outcome.wall_seconds is not None
    assert outcome.wall_seconds > 0.49
    assert outcome.peak_memory is not None
    assert 60 * MIB < outcome.peak_memory < 200 * MIB


async def test_a_daemon_that_left_the_session_is_dead_afterwards(sandbox: Bubblewrap) -> None:
    code = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True: time.sleep(0.01); tools.beat()
    os._exit(0)
time.sleep(0.2)
"""
    beats = 0

    async def beat(arguments: Mapping[str, Any]) -> Any:
        nonlocal beats
        beats += 1

    outcome = await sandbox.run(Program(code=code), tools={"beat": beat})
    assert outcome.ok, outcome.stderr
    seen = beats
    assert seen > 0
    await asyncio.sleep(0.2)
    assert beats == seen


async def test_nothing_of_one_run_is_seen_by_the_next(sandbox: Bubblewrap) -> None:
    code = """
import os, pathlib, builtins, sys
places = [pathlib.Path(p) for p in (".", "/tmp", "/dev/shm", os.environ["HOME"])]
print([str(f) for p in places for f in p.iterdir() if f.name != "main.py"], hasattr(builtins, "left"), "left" in sys.modules)
for p in places: (p / "left").write_text("x")
builtins.left = sys.modules["left"] = 1
print(os.listdir("/proc/self/fd"), len([p for p in os.listdir("/proc") if p.isdigit()]))
"""
    first, second = [await sandbox.run(Program(code=code)) for _ in range(2)]
    assert first.stdout == second.stdout
    assert first.stdout.startswith("[] False False\n")
    assert first.stdout.endswith(" 1\n")


async def test_of_the_machine_it_shows_what_was_granted_and_counts_nothing(sandbox: Bubblewrap) -> None:
    code = """
import os
def read(path):
    with open(path) as file: return file.read()
for path in ("self/mountinfo", "self/task/2/mounts", "mounts", "cmdline", "vmstat", "locks", "key-users"):
    print(path, repr(read(f"/proc/{path}")))
print(os.listdir("/proc/sys"), os.path.exists("/proc/1"))
print(read("/proc/meminfo").split()[:2], read("/proc/loadavg").split()[:3], read("/proc/uptime").split())
groups = read("/proc/self/cgroup")
print(groups.count("journeyman"), groups.count("run-"), os.listdir("/dev/pts"))
"""
    outcome = await sandbox.run(Program(code=code, limits=Limits(memory=100 * MIB)))
    assert outcome.stdout.splitlines() == [
        *(
            f"{path} ''"
            for path in ("self/mountinfo", "self/task/2/mounts", "mounts", "cmdline", "vmstat", "locks", "key-users")
        ),
        "[] False",
        "['MemTotal:', '102400'] ['0.00', '0.00', '0.00'] ['0.00', '0.00']",
        "0 0 ['ptmx']",
    ], outcome.stderr


async def test_the_code_has_a_user_of_its_own_and_no_right_at_all(sandbox: Bubblewrap) -> None:
    code = """
import os, pathlib
print(os.getuid(), os.geteuid(), os.getgroups())
status = dict(l.split(":", 1) for l in pathlib.Path("/proc/self/status").read_text().splitlines())
print(int(status["CapEff"], 16) | int(status["CapBnd"], 16), status["NoNewPrivs"].strip(), status["Seccomp"].strip())
print(sorted(os.environ))
"""
    outcome = await sandbox.run(Program(code=code))
    assert outcome.stdout.splitlines()[1:] == ["0 1 2", "['HOME', 'LANG', 'PATH', 'TMPDIR', 'USER']"]
    assert outcome.stdout.startswith("1000 1000")


async def test_root_inside_the_kernel_is_never_who_runs_the_code(sandbox: Bubblewrap) -> None:
    started = asyncio.Event()

    async def here(arguments: Mapping[str, Any]) -> Any:
        started.set()
        await asyncio.sleep(0.5)

    run = asyncio.create_task(
        sandbox.run(Program(code="tools.here()", arguments=("a-mark-to-be-found",)), tools={"here": here})
    )
    await asyncio.wait_for(started.wait(), 20)
    assert sandbox._fork_server is not None
    found = set()
    for pid in below(sandbox._fork_server._process.pid):
        # A supervisor of an earlier run may go meanwhile.
        with contextlib.suppress(FileNotFoundError):
            found.add(Path(f"/proc/{pid}").stat().st_uid)
    assert found
    assert 0 not in found
    await run


async def test_links_that_lead_out_do_not_bring_files_home(sandbox: Bubblewrap) -> None:
    code = "import os\nos.symlink('/etc', 'e')\nos.symlink('/etc/passwd', 'p')\nos.link('main.py', 'hard')\n"
    outcome = await sandbox.run(Program(code=code, collect=("**",)))
    assert set(outcome.files) == {"main.py", "hard"}


async def test_a_killed_fork_server_is_an_error_for_those_under_way_and_the_next_run_starts_another() -> None:
    sandbox = Bubblewrap()
    running = asyncio.Event()

    async def here(arguments: Mapping[str, Any]) -> Any:
        running.set()
        await asyncio.sleep(60)

    try:
        run = asyncio.create_task(sandbox.run(Program(code="tools.here()"), tools={"here": here}))
        await asyncio.wait_for(running.wait(), 30)
        assert sandbox._fork_server is not None
        os.kill(sandbox._fork_server._process.pid, signal.SIGKILL)
        with pytest.raises(SandboxError, match="ended before"):
            await asyncio.wait_for(run, 20)
        assert (await sandbox.run(Program(code="print(1)"))).stdout == "1\n"
    finally:
        await sandbox.close()


async def test_three_hundred_runs_leave_nothing_behind(sandbox: Bubblewrap) -> None:
    def held() -> tuple[int, int, int]:
        assert sandbox._fork_server is not None
        groups = (
            sum(1 for folder in sandbox._fork_server._lent.folders for _ in folder.glob("run-*"))
            if sandbox._fork_server._lent
            else 0
        )
        return len(list(Path("/proc/self/fd").iterdir())), groups, len(below(sandbox._fork_server._process.pid))

    await sandbox.run(Program(code="pass"))
    await asyncio.sleep(1)
    before = held()
    for _ in range(30):
        await asyncio.gather(*(sandbox.run(Program(code="open('x', 'w').write('y')")) for _ in range(10)))
    for _ in range(100):
        if (after := held()) == before:
            break
        await asyncio.sleep(0.1)
    assert after == before


async def test_what_will_import_pytest_starts_where_that_is_loaded_and_nothing_else_does(sandbox: Bubblewrap) -> None:
    loaded = "import sys\nprint('pytest' in sys.modules)"
    assert (await sandbox.run(Program(code=loaded))).stdout == "False\n"
    assert (await sandbox.run(Program(code=loaded, warm="pytest"))).stdout == "True\n"


async def test_a_run_that_begins_where_pytest_is_loaded_sees_nothing_else_that_differs(sandbox: Bubblewrap) -> None:
    code = (
        "import os, sys, tempfile; print(tempfile.tempdir, sys.path, sorted(os.environ), sys.argv, 'test_warm' in sys.modules)"
    )
    assert (await sandbox.run(Program(code=code, warm="pytest"))).stdout == (await sandbox.run(Program(code=code))).stdout
