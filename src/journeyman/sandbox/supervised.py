"""Sandboxes that keep nothing warm: a supervisor in a process of its own for each run. Landlock, and no walls at all. And the
strongest that works here.

Landlock is the second choice, where this machine forbids the namespaces that bubblewrap needs: Landlock, filters, limits, and a
watch. Slower, since nothing is warm, and weaker: its level says in what.
"""

import asyncio
import contextlib
import itertools
import json
import logging
import os
import socket
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from journeyman.core.errors import SandboxError
from journeyman.sandbox.base import Interpreter, Level, Limits, Program, RunOutcome, Sandbox, Session, Tool
from journeyman.sandbox.bubblewrap import Bubblewrap, installed
from journeyman.sandbox.fork_server_host import ETC, PROGRAMS, SYSTEM, UIDS
from journeyman.sandbox.inside import files, linux
from journeyman.sandbox.run_channel import LocalSession, RunChannel, request
from journeyman.sandbox.self_test import Tested

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Start:
    """How a supervisor is started."""

    arguments: tuple[str, ...]
    """The name of its program within `inside`, and what that is given."""
    environment: Mapping[str, str]


class SupervisedSandbox(ABC):
    """Starts the supervisors, and ends those that are left."""

    def __init__(self, interpreter: Interpreter = Interpreter()) -> None:  # noqa: B008 - frozen
        self.interpreter = interpreter
        self._open: set[contextlib.AsyncExitStack] = set()

    @property
    @abstractmethod
    def level(self) -> Level:
        """How strong the walls are."""

    @abstractmethod
    def supervisor(self, folder: str) -> Start:
        """The supervisor of one run, whose files are in this folder; it is gone after the run."""

    async def start(self) -> None:
        """Start and test the walls, where there are any."""
        return

    async def run(self, program: Program, *, tools: Mapping[str, Tool] | None = None) -> RunOutcome:
        await self.start()
        return await self._run(program, tools or {}, self.level)

    async def session(
        self, *, limits: Limits | None = None, files: Mapping[str, bytes] | None = None, idle_seconds: float = 600.0
    ) -> LocalSession:
        await self.start()
        stack = contextlib.AsyncExitStack()
        channel = await stack.enter_async_context(self._supervised(self.level))
        self._open.add(stack)

        async def ended() -> None:
            self._open.discard(stack)
            await stack.aclose()

        session = LocalSession(channel, idle_seconds=idle_seconds, limits=limits or Limits(), ended=ended)
        await session.begin(files or {})
        return session

    async def close(self) -> None:
        """End the sessions."""
        for stack in list(self._open):
            await stack.aclose()
        self._open.clear()

    async def _run(self, program: Program, tools: Mapping[str, Tool], level: Level) -> RunOutcome:
        message, blobs = request(program, tools)
        async with self._supervised(level) as channel:
            await channel.send(message, blobs)
            outcome, _ = await channel.outcome(tools)
            return outcome

    @contextlib.asynccontextmanager
    async def _supervised(self, level: Level) -> AsyncIterator[RunChannel]:
        folder = tempfile.mkdtemp(prefix="journeyman-")
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                start = self.supervisor(folder)
                process = await asyncio.create_subprocess_exec(
                    self.interpreter.executable,
                    "-I",
                    str(PROGRAMS),
                    *start.arguments,
                    stdin=theirs.fileno(),
                    stdout=asyncio.subprocess.DEVNULL,
                    env=start.environment,
                    start_new_session=True,
                )
            channel = await RunChannel.open(ours, level)
            try:
                yield channel
            finally:
                await channel.close()
                # It ends by itself once nobody listens, and takes what it started with it.
                await asyncio.shield(process.wait())
        finally:
            await asyncio.to_thread(_remove, folder)


def _remove(folder: str) -> None:
    try:
        files.remove(folder)
    except OSError as error:
        _log.warning("%s: something of a run could not be removed: %s", folder, error)


ENVIRONMENT = ("PATH", "SYSTEMROOT")
"""All that code without walls sees of the caller's."""


class Unsafe(SupervisedSandbox):
    """No walls: a process in a temporary folder, with limits. For one's own code, never for a model's.

    The protocol without its promise: the code can do whatever you can do.
    """

    level = Level("none", holds=(), lacks=("no_network", "read_only_system", "private_files", "own_processes", "seccomp"))

    def supervisor(self, folder: str) -> Start:
        return Start(("supervisor", folder), {name: os.environ[name] for name in ENVIRONMENT if name in os.environ})


MUST_HOLD = frozenset(
    {"no_network", "private_files", "own_processes", "read_only_system", "no_host_environment", "no_new_privileges", "seccomp"}
)
"""Without one of these it is no sandbox."""
LACKS = ("hidden_names", "own_tmp", "limits_at_once")
"""By its nature: that a file is there can be seen, /tmp cannot be used (TMPDIR can), disk and inodes are only watched."""
_uids = itertools.count(os.getpid())


class Landlock(Tested, SupervisedSandbox):
    """Needs a kernel of 5.13 or newer with Landlock switched on, and no right at all."""

    def __init__(self, interpreter: Interpreter = Interpreter()) -> None:  # noqa: B008 - frozen
        super().__init__()
        self.interpreter = interpreter

    async def start(self) -> None:
        if self._level is not None:
            return
        if problem := missing():
            raise SandboxError(problem)
        held, not_held = await self.test(self._probe, MUST_HOLD, "Landlock is there")
        self._level = Level("landlock", tuple(held), (*not_held, *LACKS))

    def supervisor(self, folder: str) -> Start:
        return Start(("landlock", json.dumps(landlock_job(folder, self.interpreter))), {"PATH": "/usr/local/bin:/usr/bin:/bin"})

    async def _probe(self, program: Program) -> RunOutcome:
        """The probes of disk and inodes are to end by themselves. That they get through is known: nothing refuses at once."""
        return await self._run(replace(program, limits=Limits()), {}, Level("landlock"))


def landlock_job(folder: str, interpreter: Interpreter = Interpreter()) -> dict[str, object]:  # noqa: B008 - frozen
    """What the supervisor of one run is told: where it may write, what it may read, and whom it is to be."""
    roots = dict.fromkeys((interpreter.base_prefix, interpreter.prefix, *interpreter.beside))
    needed = (*roots, str(PROGRAMS), folder)
    uid = None
    if os.geteuid() == 0:
        uid = UIDS[next(_uids) % len(UIDS)]
        Path(folder).chmod(0o711)
    return {
        "folder": folder,
        "readable": [*(f"/{name}" for name in SYSTEM), *roots, *(f"/etc/{name}" for name in ETC), str(PROGRAMS)],
        "uid": uid,
        "reads_all": uid is not None and any(linux.door(str(Path(path).resolve())) for path in needed),
    }


def missing() -> str | None:
    """Why Landlock cannot be used here and what to do, if it cannot."""
    if sys.platform != "linux":
        return "the sandbox needs Linux; use the service of a Linux machine, or --unsafe-local for your own code"
    if not linux.landlock_version():
        return (
            "this kernel has no Landlock, or it is switched off: a kernel of 5.13 or newer started with lsm=landlock,… has it, "
            "and a container must not filter its system calls"
        )
    return None


# The strongest sandbox that works on this machine: bubblewrap, else Landlock, else none.


class Strongest:
    """Bubblewrap; and Landlock, with a warning, where this machine forbids what bubblewrap needs when it is first started.

    What is only not installed is to be installed: nothing is fallen back to, and the error says the command.
    """

    def __init__(self, interpreter: Interpreter = Interpreter()) -> None:  # noqa: B008 - frozen
        self._interpreter = interpreter
        self._sandbox: Sandbox = Bubblewrap(interpreter)
        self._proven = False

    @property
    def level(self) -> Level:
        return self._sandbox.level

    async def start(self) -> None:
        sandbox = self._sandbox
        try:
            await sandbox.start()
        except SandboxError as error:
            # Runs that began together fail together: one of them chooses, the others follow.
            if self._sandbox is sandbox:
                if self._proven or not isinstance(sandbox, Bubblewrap) or not installed():
                    raise
                self._sandbox = Landlock(self._interpreter)
                _log.warning("bubblewrap cannot run here, so landlock is used: %s", error)
            await self._sandbox.start()
        self._proven = True

    async def run(self, program: Program, *, tools: Mapping[str, Tool] | None = None) -> RunOutcome:
        await self.start()
        return await self._sandbox.run(program, tools=tools)

    async def session(
        self, *, limits: Limits | None = None, files: Mapping[str, bytes] | None = None, idle_seconds: float = 600.0
    ) -> Session:
        await self.start()
        return await self._sandbox.session(limits=limits, files=files, idle_seconds=idle_seconds)

    async def close(self) -> None:
        await self._sandbox.close()
