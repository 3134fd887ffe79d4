"""What every sandbox promises. A new one joins by a word in `SANDBOXES`."""

import asyncio
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from journeyman.core.errors import InputError, SandboxError
from journeyman.sandbox import load
from journeyman.sandbox.base import Limits, Program, Sandbox
from tests.support.code_service import in_thread

SANDBOXES = ("bubblewrap", "landlock", "unsafe-local", "http")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=SANDBOXES)
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    if request.param == "bubblewrap" and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    with in_thread(queue=64) if request.param == "http" else nullcontext() as running:
        sandbox = load(running.url if running else request.param)
        try:
            await sandbox.start()
        except SandboxError as error:
            pytest.skip(str(error))
        yield sandbox
        await sandbox.close()


pytestmark = [pytest.mark.service, pytest.mark.asyncio(loop_scope="module")]


async def search(arguments: Mapping[str, Any]) -> Any:
    await asyncio.sleep(0.001)
    return {"found": arguments.get("query", arguments.get("0")), "limit": arguments.get("limit")}


async def broken(arguments: Mapping[str, Any]) -> Any:
    raise ValueError("no such shelf")


async def bare(code: str, *arguments: str, stdin: bytes = b"") -> tuple[int | None, str, str]:
    """What the interpreter itself does."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "main.py").write_bytes(code.encode(errors="surrogateescape"))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "main.py",
            *arguments,
            cwd=folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        )
        out, err = await process.communicate(stdin)
    return process.returncode, out.decode(errors="replace"), err.decode(errors="replace").replace(folder, "FOLDER")


AS_BARE = {
    "a program that says something": "print('hello')",
    "its arguments": "import sys; print(sys.argv)",
    "its standard input": "import sys; print(repr(sys.stdin.read()))",
    "an exit code": "import sys; sys.exit(7)",
    "a big exit code": "import sys; sys.exit(300)",
    "exit with a sentence": "import sys; sys.exit('that is not possible')",
    "an uncaught exception": "def f():\n    return 1 / 0\n\nf()\n",
    "an exception from another": "try:\n    {}['a']\nexcept KeyError:\n    raise ValueError('b')\n",
    "a syntax error": "x = (1,\nprint(3 3)\n",
    "an exit handler": "import atexit\natexit.register(print, 'bye')\nprint('hi')\n",
    "a thread that outlives main": (
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), print('late'))).start()\n"
    ),
    "the name of main": "print(__name__, __doc__)",
    "a file that was left open": "f = open('left', 'w'); f.write('x' * 10)\nimport atexit\n",
    "output that is no text": "import sys; sys.stdout.buffer.write(bytes(range(256)))",
    "letters of the world": "print('žluťoučký 🐎 漢字')",
    "a coding cookie": "# -*- coding: latin-1 -*-\nprint('ascii')\n",
    "a class that is pickled": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))).__module__)\n",
    "an interrupt": "raise KeyboardInterrupt",
    "death by a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "a child that is forked": (
        "import os\np = os.fork()\nif p == 0: os._exit(3)\nprint(os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]))\n"
    ),
    "a subprocess": (
        "import subprocess, sys\n"
        "print(subprocess.run([sys.executable, '-c', 'print(5)'], capture_output=True, text=True).stdout)\n"
    ),
    "a pool of processes": (
        "import multiprocessing as m\nif __name__ == '__main__':\n    with m.Pool(2) as p: print(p.map(abs, [-1, -2]))\n"
    ),
    "warnings": "import warnings\nwarnings.showwarning = lambda m, *_: print(m)\nwarnings.warn('careful')\n",
    "asyncio": "import asyncio\nasync def f(): await asyncio.sleep(0); return 3\nprint(asyncio.run(f()))\n",
    "a server of its own": (
        "import socket\n"
        "s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); print('ok')\n"
    ),
}


NEEDS_NAMESPACES = {"a server of its own", "a pool of processes"}


@pytest.mark.parametrize("name", AS_BARE)
async def test_python_does_what_the_interpreter_does(sandbox: Sandbox, name: str) -> None:
    if sandbox.level.name == "landlock" and name in NEEDS_NAMESPACES:
        pytest.skip("needs a network or a /dev/shm of its own")
    code = AS_BARE[name]
    outcome = await sandbox.run(Program(code=code, stdin=b"some\ntext", arguments=("one", "two words")))
    exit_code, out, err = await bare(code, "one", "two words", stdin=b"some\ntext")
    if exit_code is not None and exit_code < 0:
        assert outcome.exit_code is None
        assert outcome.signal is not None
    else:
        assert outcome.exit_code == exit_code
    assert outcome.stdout == out
    assert [line for line in err.splitlines() if "File" not in line] == [
        line for line in outcome.stderr.splitlines() if "File" not in line
    ]


ESCAPES = {
    "a hook that raises": "import sys\ndef hook(*_): raise OSError('hooked')\nsys.excepthook = hook\nprint('here')\n1 / 0\n",
    "a hook that exits": "import sys\nsys.excepthook = lambda *_: sys.exit(0)\nprint('here')\n1 / 0\n",
    "no streams to say it on": "import sys\nprint('here', flush=True)\nsys.stderr = None\nsys.excepthook = None\n1 / 0\n",
    "an exit that does not": "import os\nprint('here')\nos._exit = lambda code: None\n1 / 0\n",
}


@pytest.mark.parametrize("name", ESCAPES)
async def test_code_whose_end_fails_too_did_not_go_well(sandbox: Sandbox, name: str) -> None:
    outcome = await sandbox.run(Program(code=ESCAPES[name]))
    assert (outcome.exit_code, outcome.stdout) == (1, "here\n"), outcome.stderr


async def test_a_program_that_cannot_be_executed_did_not_go_well(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(Program(code="exit 0", language="shell", arguments=("x" * 200_000,)))
    assert outcome.exit_code == 1
    assert "Argument list too long" in outcome.stderr


async def test_a_session_whose_streams_are_gone_did_not_go_well(sandbox: Sandbox) -> None:
    session = await sandbox.session()
    outcome = await session.run("import sys; sys.stdout = None")
    assert not outcome.ok
    await session.close()


async def test_a_traceback_shows_the_lines_of_the_code_and_nothing_of_ours(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(Program(code="def fails():\n    raise ValueError('so')\n\nfails()\n"))
    assert outcome.exit_code == 1
    assert outcome.stderr.count("  File ") == 2
    assert 'main.py", line 4, in <module>\n    fails()' in outcome.stderr
    assert outcome.stderr.endswith("ValueError: so\n")


async def test_files_go_in_and_those_that_are_asked_for_come_out(sandbox: Sandbox) -> None:
    code = """
import os, pathlib
print(pathlib.Path("data/in.txt").read_text())
os.makedirs("out/deep")
pathlib.Path("out/a.txt").write_bytes(b"a" + bytes([255]))
pathlib.Path("out/deep/b.txt").write_text("b")
pathlib.Path("out/c.log").write_text("c")
os.symlink("/etc/passwd", "out/link.txt")
os.symlink("/etc", "out/folder")
os.mkfifo("out/fifo.txt")
"""
    program = Program(code=code, files={"data/in.txt": b"given"}, collect=("out/*.txt", "out/**/b.txt", "out/folder/*"))
    outcome = await sandbox.run(program)
    assert outcome.stdout == "given\n"
    assert outcome.files == {"out/a.txt": b"a\xff", "out/deep/b.txt": b"b"}


@pytest.mark.parametrize("path", ["/etc/passwd", "../out", "a/../../b", "", "folder/", "a\0b"])
async def test_a_file_outside_the_working_folder_is_refused(sandbox: Sandbox, path: str) -> None:
    with pytest.raises(InputError, match="working folder"):
        await sandbox.run(Program(code="", files={path: b""}))


async def test_of_long_output_the_beginning_and_the_end_stay(sandbox: Sandbox) -> None:
    code = "import sys\nfor n in range(100000): print(n)\nprint('é' * 5000, file=sys.stderr)\n"
    outcome = await sandbox.run(Program(code=code, limits=Limits(output=1001)))
    assert outcome.ok
    assert outcome.limit == "output"
    assert outcome.stdout.startswith("0\n1\n2\n")
    assert outcome.stdout.endswith("99998\n99999\n")
    assert "bytes left out" in outcome.stdout
    assert len(outcome.stdout) < 1100
    assert "\ufffd" not in outcome.stderr


async def test_a_tool_is_called_from_inside_and_its_value_comes_back(sandbox: Sandbox) -> None:
    code = """
import tools as imported
print(tools.search("a", limit=3), imported.search(query="b"))
try: tools.broken()
except tools.ToolError as error: print("failed:", error)
try: tools.missing(1)
except AttributeError as error: print(error)
try: tools.search("x" * 2_000_000)
except ToolError as error: print("too big" if "bytes" in str(error) else error)
"""
    outcome = await sandbox.run(Program(code=code), tools={"search": search, "broken": broken})
    assert outcome.stdout.splitlines() == [
        "{'found': 'a', 'limit': 3} {'found': 'b', 'limit': None}",
        "failed: no such shelf",
        "there is no tool 'missing'; there are: broken, search",
        "too big",
    ], outcome.stderr


async def test_threads_call_tools_side_by_side_and_get_their_own_answers(sandbox: Sandbox) -> None:
    code = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(16) as pool:
    found = list(pool.map(lambda n: tools.search(n)["found"], range(200)))
print(found == list(range(200)))
"""
    outcome = await sandbox.run(Program(code=code), tools={"search": search})
    assert outcome.stdout == "True\n", outcome.stderr


async def test_without_tools_a_module_of_that_name_is_the_codes_own(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(Program(code="import tools; print(tools.MINE)", files={"tools.py": b"MINE = 1"}))
    assert outcome.stdout == "1\n"


async def test_fifty_runs_at_once_are_not_mixed_up(sandbox: Sandbox) -> None:
    async def one(number: int) -> None:
        async def who(arguments: Mapping[str, Any]) -> Any:
            return number

        code = (
            f"import sys, pathlib\npathlib.Path('n').write_text('{number}')\nprint({number}, sys.stdin.read(), tools.who())\n"
        )
        program = Program(code=code, stdin=str(number).encode(), collect=("n",))
        outcome = await sandbox.run(program, tools={"who": who})
        assert outcome.stdout == f"{number} {number} {number}\n", outcome.stderr
        assert outcome.files == {"n": str(number).encode()}

    await asyncio.gather(*(one(number) for number in range(50)))


async def test_a_run_that_is_cancelled_ends_and_the_next_one_works(sandbox: Sandbox) -> None:
    called = asyncio.Event()

    async def call(arguments: Mapping[str, Any]) -> Any:
        called.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(sandbox.run(Program(code="tools.call()"), tools={"call": call}))
    await asyncio.wait_for(called.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 20)
    assert (await sandbox.run(Program(code="print(1)"))).stdout == "1\n"


async def test_the_wall_clock_stops_a_run(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(
        Program(code="import time\nprint('a', flush=True)\ntime.sleep(60)", limits=Limits(wall_seconds=0.5))
    )
    assert (outcome.exit_code, outcome.signal, outcome.limit, outcome.stdout) == (None, "SIGKILL", "wall", "a\n")
    assert not outcome.ok


async def test_pytest_runs_a_file_of_tests(sandbox: Sandbox) -> None:
    tests = "from solution import f\n\ndef test_one(): assert f() == 1\n\ndef test_two(): assert f() == 2\n"
    program = Program(code=tests, language="pytest", files={"solution.py": b"def f(): return 1"}, arguments=("-q",))
    outcome = await sandbox.run(program)
    assert outcome.exit_code == 1
    assert "1 failed, 1 passed" in outcome.stdout
    passing = Program(code=tests, language="pytest", files={"solution.py": b"def f(): return 1"}, arguments=("-k", "one"))
    assert (await sandbox.run(passing)).ok


async def test_shell_runs(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(
        Program(code='echo "$1" | tr a-z A-Z; cat; exit 3', language="shell", arguments=("hi",), stdin=b"in")
    )
    assert (outcome.stdout, outcome.exit_code) == ("HI\nin", 3)


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
async def test_javascript_runs(sandbox: Sandbox) -> None:
    code = "console.log(process.argv.slice(2).join('-')); process.exit(4)"
    outcome = await sandbox.run(Program(code=code, language="javascript", arguments=("a", "b")))
    assert (outcome.stdout, outcome.exit_code) == ("a-b\n", 4), outcome


async def test_a_language_that_there_is_not_is_named_with_those_there_are(sandbox: Sandbox) -> None:
    with pytest.raises(InputError, match="'cobol'; there are javascript, pytest, python, shell"):
        await sandbox.run(Program(code="", language="cobol"))


async def test_a_session_keeps_its_state_and_prints_the_last_value(sandbox: Sandbox) -> None:
    session = await sandbox.session(files={"data.txt": b"given"})
    assert (await session.run("x = 20\nx + 1")).stdout == "21\n"
    assert (await session.run("print(x, open('data.txt').read())")).stdout == "20 given\n"
    failed = await session.run("def f():\n    return x / 0\nf()")
    assert failed.exit_code == 1
    assert "return x / 0" in failed.stderr
    assert (await session.run("raise SystemExit(5)")).exit_code == 5
    assert (await session.run("None")).stdout == ""
    assert (await session.run("x", tools={"search": search})).stdout == "20\n"
    assert (await session.run("tools.search('q')", tools={"search": search})).stdout == "{'found': 'q', 'limit': None}\n"
    await session.close()
    with pytest.raises(SandboxError, match="closed"):
        await session.run("1")


async def test_a_limit_ends_a_session_and_the_next_call_says_so(sandbox: Sandbox) -> None:
    session = await sandbox.session()
    assert (await session.run("while True: pass", wall_seconds=0.3)).limit == "wall"
    with pytest.raises(SandboxError, match="limit of wall"):
        await session.run("1")
    await session.close()


async def test_a_session_that_nobody_uses_ends(sandbox: Sandbox) -> None:
    session = await sandbox.session(idle_seconds=0.2)
    assert (await session.run("1")).ok
    await asyncio.sleep(0.6)
    with pytest.raises(SandboxError, match="nothing was asked"):
        await session.run("1")
    await session.close()


async def test_a_session_whose_process_ends_says_so(sandbox: Sandbox) -> None:
    session = await sandbox.session()
    outcome = await session.run("import os; os._exit(9)")
    assert outcome.exit_code == 9
    with pytest.raises(SandboxError, match="its process ended"):
        await session.run("1")
    await session.close()


async def test_what_the_code_says_on_the_line_of_its_tools_cannot_confuse_the_supervisor(sandbox: Sandbox) -> None:
    code = """
import tools
line = tools._connection._channel
for noise in (b'{"done": 0}', b'[]', b'{"hint": "nonsense"}', b'{"call": "x"}', b'not json', b'{"answer": 1}'):
    try: line.sendall(noise + b'\\n')
    except OSError: pass
raise SystemExit(3)
"""
    outcome = await sandbox.run(Program(code=code), tools={"search": search})
    assert (outcome.exit_code, outcome.limit) == (3, None), outcome.stderr


LEFT_BEHIND = {
    "folders nested deeper than calls can be": (
        "for _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\nopen('x', 'w').close()\nprint('made')"
    ),
    "names that make every path too long": (
        "for _ in range(100):\n    os.mkdir('d' * 250)\n    os.chdir('d' * 250)\nopen('x', 'w').close()\nprint('made')"
    ),
    "folders that are shut": (
        "for _ in range(3):\n    os.mkdir('d', 0o300)\n    os.chdir('d')\n    open('x', 'w').close()\n"
        "os.mkdir('e', 0)\nprint('made')"
    ),
}


@pytest.mark.parametrize("name", LEFT_BEHIND)
async def test_whatever_code_leaves_behind_is_a_result_and_gone_afterwards(sandbox: Sandbox, name: str) -> None:
    top = secrets.token_hex(8)
    outcome = await sandbox.run(
        Program(code=f"import os\nos.mkdir('{top}')\nos.chdir('{top}')\n{LEFT_BEHIND[name]}", collect=("**",))
    )
    assert (outcome.exit_code, outcome.stdout) == (0, "made\n"), outcome
    assert list(Path(tempfile.gettempdir()).glob(f"*/*/{top}")) == []
    assert (await sandbox.run(Program(code="print('next')"))).stdout == "next\n"


ORDINARY = {
    "a database": """import sqlite3
for mode in ("delete", "wal"):
    one = sqlite3.connect(f"{mode}.db", timeout=0.1)
    one.execute(f"pragma journal_mode={mode}")
    one.execute("create table t(x)")
    one.execute("insert into t values(1)")
    one.commit()
    other = sqlite3.connect(f"{mode}.db", timeout=0.1)
    print(other.execute("select x from t").fetchall())
    one.execute("begin immediate")
    try:
        other.execute("begin immediate")
    except sqlite3.OperationalError as error:
        print(error)
""",
    "copies with their dates": (
        "import os, shutil\nopen('a', 'w').write('x')\nos.utime('a')\nshutil.copyfile('a', 'b')\nprint(open('b').read())"
    ),
    "the number of cores": "import os\nprint(os.cpu_count(), len(os.sched_getaffinity(0)))",
    "itself in /proc": "print(open('/proc/self/comm').read() != '', 'VmRSS' in open('/proc/self/status').read())",
    "a file in memory": (
        "import mmap\nopen('f', 'wb').write(b'x' * 9999)\nwith open('f', 'r+b') as f, mmap.mmap(f.fileno(), 0) as m:\n"
        "    m.madvise(mmap.MADV_SEQUENTIAL)\n    m[0] = 65\n    m.flush()\nprint(open('f', 'rb').read(2))"
    ),
    "reads at a place": "import os\nf = os.open('main.py', 0)\nb = bytearray(6)\nprint(os.preadv(f, [b], 0), b)",
}


@pytest.mark.parametrize("name", ORDINARY)
async def test_what_ordinary_code_needs_is_not_refused(sandbox: Sandbox, name: str) -> None:
    outcome = await sandbox.run(Program(code=ORDINARY[name]))
    assert (outcome.exit_code, outcome.stdout) == ((await bare(ORDINARY[name]))[:2]), outcome.stderr


async def test_a_run_that_says_it_will_import_pytest_is_a_run_like_any_other(sandbox: Sandbox) -> None:
    code = "import os, pytest, sys\nfrom beside import word\nprint(word, sys.argv, 'PYTEST_VERSION' in os.environ)\nsys.exit(3)"
    program = Program(code=code, files={"beside.py": b"word = 'hello'\n"}, arguments=("a",), warm="pytest")
    outcome = await sandbox.run(program)
    assert (outcome.stdout, outcome.exit_code) == ("hello ['main.py', 'a'] False\n", 3), outcome.stderr
