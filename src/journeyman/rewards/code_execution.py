"""Does the code run? And how sandboxes are awaited by those who cannot."""

import ast
import asyncio
import secrets
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from multiprocessing.util import Finalize
from typing import Any, TypeVar

from journeyman.core.errors import SandboxError
from journeyman.core.trace import Trace
from journeyman.rewards.base import UNREACHABLE, RewardResult, binary, short, unknown, version
from journeyman.rewards.blocks import CodeBlock, last_blocks, parsed
from journeyman.sandbox.base import Limits, Program, RunOutcome, Sandbox

LIMITS = Limits(cpu_seconds=5.0, wall_seconds=10.0)
LANGUAGES = ("python", "shell", "javascript")
_MAIN = "main.py"
_RUN = f"""def run(
    main, do=exec, error=BaseException, leaving=SystemExit, leave=__import__("os")._exit, streams=__import__("sys"),
    trace=__import__("traceback"),
):
    try:
        with open({_MAIN!r}, "rb") as file:
            code = compile(file.read(), {_MAIN!r}, "exec", dont_inherit=True)
        do(code, main)
    except error as why:
        code = 1
        try:
            if type(why) is leaving and why.code in (None, *range(256)):
                code = why.code or 0
            else:
                why.__traceback__ = why.__traceback__.tb_next
                trace.print_exception(why)
            streams.stdout.flush()
            streams.stderr.flush()
        finally:
            leave(code)
globals()["__file__"] = {_MAIN!r}
globals().pop("run")(globals())
"""
"""Runs the program in a session: only its end leaves the session alive. It holds its names from before the program comes."""
_AT_THE_END = "__import__('threading')._shutdown()\n__import__('sys').modules['tools'].at_its_end({token!r})\n"
_LEAVE = {"exit", "quit", "_exit", "abort", "execv", "execve", "execvp"}


def strongest() -> Sandbox:
    """The sandbox that is taken where none is handed in."""
    from journeyman import sandbox

    return sandbox.load()


class CodeExecutionReward:
    """1 when the code blocks of the last reply that holds any run to their end without an error; binary.

    Blocks of one language are one program, in their order, since later ones build upon earlier ones. That code runs does not
    say that it is right: unit tests say that. Code that leaves before its last line, such as by an early `sys.exit(0)`, has
    not run to its end. Unknown without code, with code that does nothing, and when the sandbox fails.
    """

    def __init__(
        self,
        sandbox: Sandbox | Callable[[], Sandbox] = strongest,
        *,
        weight: float = 2.0,
        limits: Limits = LIMITS,
        languages: Sequence[str] = LANGUAGES,
        name: str = "code_execution",
    ) -> None:
        """Nothing is begun before the first code comes.

        Args:
            sandbox: Where code runs, or what makes it. To score in several processes it must be able to be pickled.
            limits: Of each program.
        """
        self.name, self.weight, self.limits, self.languages = name, weight, limits, tuple(languages)
        self._sandbox = Blocking(sandbox if callable(sandbox) else _Given(sandbox))

    @property
    def version(self) -> str:
        return version(2, self.limits, self.languages)

    def compute(self, trace: Trace) -> RewardResult:
        programs = _programs(last_blocks(trace, self.languages))
        if not programs:
            return unknown("no code block in a language that can be run")
        levels = set()
        for language, code in programs:
            watched = language == "python" and _stays(code)
            try:
                if watched:
                    outcome, at_its_end = self._sandbox.run_to_its_end(code, self.limits)
                else:
                    outcome = self._sandbox.run(Program(code=code, language=language, limits=self.limits))
                    at_its_end = True
            except SandboxError as error:
                return unknown(f"the sandbox failed: {error}", **{UNREACHABLE: True})
            levels.add(str(outcome.level))
            fault = _fault(outcome) or ("" if at_its_end else "left before its last line")
            if fault:
                return binary(False, f"the {language} code {fault}", level=str(outcome.level), language=language)
        ran = ", ".join(language for language, _ in programs)
        return binary(True, f"the code ran to its end ({ran})", level=", ".join(sorted(levels)), programs=len(programs))

    def close(self) -> None:
        """End the sandbox."""
        self._sandbox.close()


class _Given:
    """A sandbox that is there already, in the place of one to be made."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def __call__(self) -> Sandbox:
        return self._sandbox


def _programs(blocks: Sequence[CodeBlock]) -> list[tuple[str, str]]:
    """One program for each language that has code which does something."""
    by_language = groupby(sorted(blocks, key=lambda block: block.language), key=lambda block: block.language)
    programs = [(language, "\n".join(block.code for block in group)) for language, group in by_language]
    return [(language, code) for language, code in programs if language != "python" or not _idle(code)]


def _statements(code: str) -> list[ast.stmt] | None:
    """`None` where it is no Python: running it will say so."""
    try:
        return parsed(code).body
    except ValueError:
        return None


def _idle(code: str) -> bool:
    """Whether it is Python of which nothing can be seen to work: comments, constants, `pass` and leaving."""
    body = _statements(code)
    return body is not None and all(
        isinstance(line, ast.Pass) or (isinstance(line, ast.Expr) and (isinstance(line.value, ast.Constant) or _leaves(line)))
        for line in body
    )


def _stays(code: str) -> bool:
    """Whether the end of the code is reached when all goes well: its last statement does not leave by itself."""
    body = _statements(code)
    return bool(body and not _leaves(body[-1]))


def _leaves(line: ast.stmt) -> bool:
    calls = (node.func for node in ast.walk(line) if isinstance(node, ast.Call))
    names = {
        call.attr if isinstance(call, ast.Attribute) else call.id
        for call in calls
        if isinstance(call, ast.Attribute | ast.Name)
    }
    raised = any(isinstance(node, ast.Name) and node.id == "SystemExit" for node in ast.walk(line))
    return raised or bool(names & _LEAVE)


def _fault(outcome: RunOutcome) -> str:
    """What went wrong, or nothing."""
    if outcome.limit not in (None, "output"):
        return f"was stopped at its limit of {outcome.limit}"
    if outcome.signal is not None:
        return f"was ended by {outcome.signal}"
    if outcome.exit_code != 0:
        last = outcome.stderr.strip().splitlines()[-1:] or ["it said nothing on stderr"]
        return f"failed with exit code {outcome.exit_code}: {short(last[0], 200)}"
    return ""


# Awaiting for those who cannot: rewards are asked one by one, and sandboxes work on an event loop.

_Result = TypeVar("_Result")


def wait(doing: Coroutine[Any, Any, _Result]) -> _Result:
    """What becomes of it, on a loop in a thread of its own, so that it also works where a loop is running already."""
    return asyncio.run_coroutine_threadsafe(doing, _loop()).result()


class Blocking:
    """Runs programs in a sandbox and waits for them. May be used by several threads at once, and be pickled where what makes
    the sandbox can be: every process makes its own, once."""

    def __init__(self, make: Callable[[], Sandbox]) -> None:
        """Nothing is made before the first program comes."""
        self._make = make
        self._sandbox: Sandbox | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Callable[[Callable[[], Sandbox]], "Blocking"], tuple[Callable[[], Sandbox]]]:
        return _shared, (self._make,)

    def run(self, program: Program) -> RunOutcome:
        """What happened to the program.

        Raises:
            SandboxError: The sandbox itself failed.
        """
        return wait(self._open().run(program))

    def _open(self) -> Sandbox:
        with self._lock:
            if self._sandbox is None:
                self._sandbox = self._make()
            return self._sandbox

    def run_to_its_end(self, code: str, limits: Limits) -> tuple[RunOutcome, bool]:
        """What happened to a Python program, and whether it came to its last line: see `to_its_end`.

        Raises:
            SandboxError: The sandbox itself failed.
        """
        return wait(to_its_end(self._open(), code, limits))

    def close(self) -> None:
        """End the sandbox. A later `run` makes another."""
        with self._lock:
            sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            wait(sandbox.close())


async def to_its_end(sandbox: Sandbox, code: str, limits: Limits) -> tuple[RunOutcome, bool]:
    """What happened to a Python program, and whether it came to its last line.

    That is not told by anything that the program could say: after it the same process is asked for a word which did not exist
    while the program ran, with a tool that was not there.

    Raises:
        SandboxError: The sandbox itself failed.
    """
    session = await sandbox.session(limits=limits, files={_MAIN: code.encode(errors="backslashreplace")})
    said: list[str] = []

    async def at_its_end(arguments: Mapping[str, Any]) -> None:
        said.append(str(arguments.get("0")))

    try:
        outcome = await session.run(_RUN)
        if not outcome.ok:
            return outcome, False
        token = secrets.token_hex(8)
        try:
            ended = await session.run(_AT_THE_END.format(token=token), tools={"at_its_end": at_its_end})
        except SandboxError as error:
            if "session is over" in str(error):
                return outcome, False
            raise
        # A thread that the program left behind may run into a limit.
        return (outcome if ended.ok else ended), said == [token]
    finally:
        await session.close()


@lru_cache(maxsize=8)
def _shared(make: Callable[[], Sandbox]) -> Blocking:
    """The one of this process, however often it is sent here."""
    blocking = Blocking(make)
    # Workers of a pool do not run `atexit`; of these the higher comes first.
    Finalize(None, blocking.close, exitpriority=20)
    return blocking


@lru_cache(maxsize=1)
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="journeyman-rewards", daemon=True)
    thread.start()

    def end() -> None:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        if not thread.is_alive():
            loop.close()

    Finalize(None, end, exitpriority=10)
    return loop
