"""Code that works against its supervisor: what it does is its own failure, never the sandbox's, and costs nobody else."""

import asyncio
import resource
import shutil
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from journeyman.sandbox.base import MIB, Limits, Program, RunOutcome, Sandbox
from tests.support.walled import walled

pytestmark = [
    pytest.mark.attacks,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
]

SAY = """import os, stat, time
fds = [int(name) for name in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + name)]
line = next(fd for fd in fds if stat.S_ISSOCK(os.fstat(fd).st_mode))
def say(data):
    while data:
        data = data[os.write(line, data):]
"""
"""Past the library, on the line to the supervisor itself."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with walled("bubblewrap") as found:
        yield found


DEFIANT = {
    "its folder moved away": "import os, time\nos.rename('/sandbox/work', '/sandbox/other')\ntime.sleep(0.2)",
    "a link in its folder's place": "import os\nos.rename('/sandbox/work', '/sandbox/other')\nos.symlink('/', '/sandbox/work')",
    "its folder shut": "import os\nos.chmod('/sandbox/work', 0)\nos.chmod('/sandbox', 0)",
    "names that are no text": "import os\nfor i in range(3000): open(b'%d' % i + b'\\xfe' * 240, 'w').close()",
    "names that fill a message": """import os
for _ in range(10):
    os.mkdir("\\1" * 250)
    os.chdir("\\1" * 250)
for i in range(3000): open(f"{i}" + "\\1" * 240, "w").close()
""",
    "a number that is none": SAY + 'say(b\'{"call": 1e999, "tool": "x", "arguments": {}}\\n\')\ntime.sleep(0.2)',
    "an end that is none": SAY + "say(b'{\"done\": 1e999}\\n')\ntime.sleep(0.2)",
}


@pytest.mark.parametrize("name", DEFIANT)
async def test_whatever_the_code_does_is_a_result(sandbox: Sandbox, name: str) -> None:
    outcome = await sandbox.run(Program(code=DEFIANT[name], collect=("**",)))
    assert outcome.exit_code == 0, outcome.stderr
    assert all(path.encode() for path in outcome.files)


@pytest.mark.parametrize("depth", range(850, 1000, 30))
async def test_arguments_nested_however_deep_are_the_codes_own_failure(sandbox: Sandbox, depth: int) -> None:
    text = f'say(b\'{{"call": 1, "tool": "x", "arguments": {{"a": \' + b"[" * {depth} + b"]" * {depth} + b"}}}}\\n")\n'
    called = []

    async def tool(arguments: Mapping[str, Any]) -> None:
        called.append(arguments)

    async def deeper(frames: int) -> RunOutcome:
        """As a caller that is deep in calls of its own."""
        if frames:
            return await deeper(frames - 1)
        return await sandbox.run(Program(code=SAY + text + "time.sleep(0.1)"), tools={"x": tool})

    assert (await deeper(60)).exit_code == 0
    assert called == []


@pytest.mark.parametrize(
    "laid",
    [
        {"a": b"", "a/b": b""},
        {"x" * 300: b""},
        {"main.py/x": b""},
        {"d/" * 3000 + "x": b""},
        {"\ud800": b""},
        {f"{i}": b"" for i in range(5000)},
    ],
    ids=["file and folder", "long name", "the program's own name", "too deep", "no text", "too many"],
)
async def test_files_that_cannot_be_laid_out_are_a_failed_run(sandbox: Sandbox, laid: dict[str, bytes]) -> None:
    outcome = await sandbox.run(Program(code="print('ran')", files=laid))
    assert outcome.exit_code == 1
    assert "ran" not in outcome.stdout
    assert "laid out" in outcome.stderr


async def test_source_with_half_a_letter_is_the_interpreters_to_refuse(sandbox: Sandbox) -> None:
    outcome = await sandbox.run(Program(code="x = '\ud800'"))
    assert outcome.exit_code == 1
    assert "SyntaxError" in outcome.stderr
    session = await sandbox.session()
    assert (await session.run("x = '\ud800'")).exit_code == 1
    assert (await session.run("'alive'")).stdout == "'alive'\n"
    await session.close()


async def test_a_session_that_says_nonsense_still_ends_at_its_limit(sandbox: Sandbox) -> None:
    session = await sandbox.session()
    outcome = await session.run(SAY + 'say(b\'{"done": "x"}\\n\')', wall_seconds=1)
    assert outcome.limit == "wall"


async def test_calls_without_number_wait_in_the_code_and_not_in_the_host(sandbox: Sandbox) -> None:
    under_way = most = 0

    async def slow(arguments: Mapping[str, Any]) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.Event().wait()

    flood = SAY + 'call = b\'{"call": 1, "tool": "slow", "arguments": {}}\\n\' * 1000\nwhile True: say(call)'
    outcome = await sandbox.run(Program(code=flood, limits=Limits(wall_seconds=1)), tools={"slow": slow})
    assert outcome.limit == "wall"
    assert 0 < most <= 64


async def test_a_code_that_hears_no_answer_is_told_no_more(sandbox: Sandbox) -> None:
    async def long(arguments: Mapping[str, Any]) -> str:
        return "x" * 1_000_000

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    flood = SAY + 'call = b\'{"call": 1, "tool": "long", "arguments": {}}\\n\'\nwhile True: say(call)'
    outcome = await sandbox.run(Program(code=flood, limits=Limits(wall_seconds=2)), tools={"long": long})
    assert outcome.limit == "wall"
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 300 * MIB


async def test_more_calls_than_may_be_under_way_are_all_answered(sandbox: Sandbox) -> None:
    code = """from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(80) as pool:
    print(sum(pool.map(lambda i: tools.double(i), range(300))))
"""

    async def double(arguments: Mapping[str, Any]) -> int:
        await asyncio.sleep(0.001)
        return 2 * int(arguments["0"])

    outcome = await sandbox.run(Program(code=code, limits=Limits(processes=200)), tools={"double": double})
    assert outcome.stdout == f"{sum(2 * i for i in range(300))}\n", outcome.stderr
