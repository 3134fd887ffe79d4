"""No walls at all: a plain subprocess that shows whether a probe gets through where nothing stops it."""

import asyncio
import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from journeyman.sandbox.base import Level, Outcome, Program

NONE = Level("none")
READ_SECONDS = 1.0


async def run_bare(program: Program) -> Outcome:
    """Run Python code with no more care than a beginner's: files are fetched wherever a link leads.

    Only for the probes of this suite, which are bounded by themselves.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, content in program.files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        Path(folder, "main.py").write_text(program.code)
        command = [sys.executable, "-S", "-B", "main.py", *program.arguments]
        start = time.monotonic()
        code, out, err = await _run(command, folder, program.limits.wall_seconds)
        fetched = [await _fetch(path) for pattern in program.collect for path in sorted(Path(folder).glob(pattern))]
        return Outcome(
            level=NONE,
            exit_code=code,
            limit=None if None not in fetched else "wall",
            stdout=out.decode(errors="replace"),
            stderr=err.decode(errors="replace"),
            files={str(number): content for number, content in enumerate(fetched) if content is not None},
            wall_seconds=time.monotonic() - start,
        )


async def _run(command: list[str], folder: str, seconds: float) -> tuple[int | None, bytes, bytes]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        close_fds=False,
        start_new_session=True,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), seconds)
    except TimeoutError:
        out, err = b"", b""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return await process.wait(), out, err


async def _fetch(path: Path) -> bytes | None:
    """What a reader gets, or `None` when it waits for ever."""
    process = await asyncio.create_subprocess_exec(
        "cat", str(path), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        return (await asyncio.wait_for(process.communicate(), READ_SECONDS))[0]
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
