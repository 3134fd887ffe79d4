"""The second choice, on a kernel that has it. Its attacks are tried with those of the others."""

import asyncio
import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from journeyman.core.errors import SandboxError
from journeyman.sandbox.audit.traps import named
from journeyman.sandbox.base import MIB, Limits, Program
from journeyman.sandbox.inside import landlock, seccomp
from journeyman.sandbox.supervised import LACKS, MUST_HOLD, Landlock, landlock_job, missing

pytestmark = [pytest.mark.attacks, pytest.mark.skipif(missing() is not None, reason=missing() or "")]


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Landlock]:
    box = Landlock()
    await box.start()
    yield box
    await box.close()


def test_the_level_is_not_known_before_the_walls_were_tested() -> None:
    with pytest.raises(SandboxError, match="was not started yet"):
        _ = Landlock().level


async def test_its_level_says_what_it_lacks(sandbox: Landlock) -> None:
    assert sandbox.level.name == "landlock"
    assert set(sandbox.level.holds) >= MUST_HOLD
    assert set(sandbox.level.lacks) >= {*LACKS, "disk_limit", "inode_limit"}


async def test_a_program_is_run_in_folders_of_its_own_and_they_are_gone_afterwards(sandbox: Landlock) -> None:
    code = "import os, sys, tempfile; open('made.txt', 'w').write(sys.stdin.read()); print(os.getcwd(), tempfile.gettempdir())"
    outcome = await sandbox.run(Program(code=code, stdin=b"given", collect=("*.txt",)))
    assert outcome.ok, outcome.stderr
    assert outcome.files == {"made.txt": b"given"}
    work, temporary = outcome.stdout.split()
    assert Path(work).parent == Path(temporary).parent
    assert not Path(work).parent.exists()


@pytest.mark.parametrize(
    ("language", "code"),
    [("shell", "echo $((1 + 1))"), ("javascript", "console.log(1 + 1)"), ("python", "print(1 + 1)")],
)
async def test_other_languages_run_behind_the_same_walls(sandbox: Landlock, language: str, code: str) -> None:
    outcome = await sandbox.run(Program(code=code, language=language))
    if "is not installed" in outcome.stderr:
        pytest.skip(outcome.stderr)
    assert (outcome.exit_code, outcome.stdout) == (0, "2\n"), outcome.stderr


async def test_pytest_runs_with_its_temporary_folders(sandbox: Landlock) -> None:
    code = "def test_it(tmp_path):\n    (tmp_path / 'x').write_text('x')\n    assert (tmp_path / 'x').read_text() == 'x'\n"
    outcome = await sandbox.run(Program(code=code, language="pytest"))
    assert outcome.ok, outcome.stdout


async def test_tools_of_the_host_are_called_from_within(sandbox: Landlock) -> None:
    async def double(arguments: Mapping[str, Any]) -> int:
        return 2 * int(arguments["0"])

    outcome = await sandbox.run(Program(code="import tools\nprint(tools.double(21))"), tools={"double": double})
    assert outcome.stdout == "42\n", outcome.stderr


async def test_a_session_keeps_its_state_until_it_is_closed(sandbox: Landlock) -> None:
    session = await sandbox.session(limits=Limits(memory=256 * MIB))
    await session.run("x = 20")
    assert (await session.run("x + 1")).stdout == "21\n"
    await session.close()
    with pytest.raises(SandboxError, match="the session is over"):
        await session.run("x")


async def test_the_disk_is_watched_also_when_the_code_writes_and_waits(sandbox: Landlock) -> None:
    code = "import time\nfor i in range(8): open(f'f{i}', 'wb').write(bytes(range(256)) * 4096)\ntime.sleep(20)"
    outcome = await sandbox.run(Program(code=code, limits=Limits(disk=4 * MIB, file_size=2 * MIB)))
    assert outcome.limit == "disk"


async def test_many_runs_at_once_are_not_in_each_others_way(sandbox: Landlock) -> None:
    outcomes = await asyncio.gather(*(sandbox.run(Program(code=f"print({i})")) for i in range(6)))
    assert [outcome.stdout for outcome in outcomes] == [f"{i}\n" for i in range(6)]


async def test_a_run_that_is_given_up_ends_with_all_that_it_started(sandbox: Landlock) -> None:
    name = "jm-given-up"
    code = f"import ctypes, os, time\nctypes.CDLL(None).prctl(15, b'{name}')\nos.fork()\nopen('x', 'w').close()\ntime.sleep(30)"
    run = asyncio.create_task(sandbox.run(Program(code=code)))
    for _ in range(200):
        if len(named(name)) == 2:
            break
        await asyncio.sleep(0.05)
    assert len(named(name)) == 2
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert named(name) == []


def test_what_is_granted_beneath_a_path_holds_for_children_too(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "shut").mkdir()
    for name in ("open", "shut"):
        (tmp_path / name / "x").write_text(name)
    program = (
        "import json, os, subprocess, sys\n"
        "from journeyman.sandbox.inside import landlock as rules, linux\n"
        "linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)\n"
        "rules.restrict([('/usr', rules.READ), ('/bin', rules.READ), ('/lib', rules.READ), ('/lib64', rules.READ),\n"
        "                (sys.argv[1] + '/open', rules.READ), ('/nowhere', rules.READ)])\n"
        "told = [subprocess.run(['/bin/cat', f'{sys.argv[1]}/{name}/x'], capture_output=True, text=True).stdout\n"
        "        for name in ('open', 'shut')]\n"
        "print(json.dumps(told))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["open", ""]


def test_rights_of_a_version_are_only_those_it_knows() -> None:
    first, fifth = landlock.everything(1), landlock.everything(5)
    assert first & ~((1 << 13) - 1) == 0
    assert fifth & landlock.TRUNCATE
    devices = landlock.MAKE_BLOCK | landlock.MAKE_CHAR | landlock.MAKE_SOCK
    assert not fifth & devices


@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize("shared", [True, False])
def test_every_jump_of_the_filter_lands_within_it(column: int, shared: bool) -> None:
    lines = landlock.filter_program(column, shared_user=shared)
    for place, (code, if_true, if_false, value) in enumerate(lines):
        struct.pack("=HBBI", code, if_true, if_false, value)
        if code == seccomp.JUMP_EQUAL:
            assert place + 1 + max(if_true, if_false) < len(lines)
    assert lines[-1] == (seccomp.RETURN, 0, 0, seccomp.ALLOW)


async def test_the_disk_is_watched_also_below_paths_that_are_too_long(sandbox: Landlock) -> None:
    code = (
        "import os, time\nfor _ in range(40):\n    os.mkdir('d' * 250)\n    os.chdir('d' * 250)\n"
        "for i in range(8): open(f'f{i}', 'wb').write(bytes(range(256)) * 4096)\ntime.sleep(20)"
    )
    outcome = await sandbox.run(Program(code=code, limits=Limits(disk=4 * MIB, file_size=2 * MIB)))
    assert outcome.limit == "disk"


CLOSED = """import os, subprocess, sys
print(open("/proc/self/status").read().partition("CapEff:")[2].split()[0])
print(subprocess.run(["python", "-c", "import colorsys, pytest; print('found')"], capture_output=True, text=True).stdout)
try: print(os.listdir("HOME"))
except OSError as error: print(type(error).__name__)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a Python where nobody else may go")
async def test_root_shows_what_a_run_needs_below_a_closed_home_and_nothing_else_of_it(
    sandbox: Landlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as home:
        assert Path(home).stat().st_mode & 0o077 == 0
        (Path(home) / "secret").write_text("secret")
        monkeypatch.setattr(tempfile, "tempdir", home)
        outcome = await sandbox.run(Program(code=CLOSED.replace("HOME", home)))
    assert outcome.stdout == "0000000000000000\nfound\n\nPermissionError\n", outcome


MARKING = """import os, sys
f = os.open(sys.argv[1], os.O_RDONLY)
changes = {
    "rights": lambda: os.fchmod(f, 0o777),
    "attribute": lambda: os.setxattr(f, "user.mark", b"x"),
    "date": lambda: os.utime(f, (1, 1)),
}
for name, change in changes.items():
    try: change()
    except OSError: print(name, "refused")
    else: print(name)
"""
MARKED = f"""
import asyncio, os, tempfile
from pathlib import Path
from journeyman.sandbox import supervised
from journeyman.sandbox.base import Program

async def main():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mine")
        path.write_text("x")
        job = supervised.landlock_job
        supervised.landlock_job = lambda place, *rest: {{**(told := job(place)), "readable": [*told["readable"], folder]}}
        before = path.stat()
        outcome = await supervised.Landlock().run(Program(code={MARKING!r}, arguments=(str(path),)))
        after = path.stat()
        unchanged = (before.st_mode, before.st_mtime_ns) == (after.st_mode, after.st_mtime_ns)
        print(outcome.stdout.split(), outcome.stderr, unchanged, os.listxattr(path))

asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become an ordinary user; any other already is one")
def test_a_run_of_an_ordinary_user_leaves_no_mark_on_a_file_of_his_that_it_may_read() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "tests.support.ordinary", "-c", MARKED],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.stdout == "['rights', 'refused', 'attribute', 'refused', 'date']  True []\n", found.stderr


def test_root_runs_each_program_as_a_user_of_its_own_and_a_user_as_himself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    first, second = landlock_job(str(tmp_path)), landlock_job(str(tmp_path))
    assert first["uid"] != second["uid"]
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert landlock_job(str(tmp_path))["uid"] is None
    assert landlock_job(str(tmp_path))["reads_all"] is False
