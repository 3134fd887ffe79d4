"""The strongest sandbox that works on this machine: bubblewrap, else Landlock, else none."""

import itertools
import json
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from journeyman.core.errors import SandboxError
from journeyman.sandbox import self_test
from journeyman.sandbox.base import Level, Limits, Program, RunOutcome, Sandbox, Session, Tool
from journeyman.sandbox.bubblewrap import Bubblewrap, installed
from journeyman.sandbox.fork_server import ETC, SYSTEM, UIDS
from journeyman.sandbox.inside import landlock_rules
from journeyman.sandbox.run_channel import LocalSession
from journeyman.sandbox.supervised import PROGRAMS, Start, Wardens

# The second choice, where this machine forbids the namespaces that bubblewrap needs: Landlock, filters, limits, and a watch.
#
# Slower, since nothing is warm, and weaker: its level says in what.

NAME = "landlock"
MUST_HOLD = frozenset(
    {"no_network", "private_files", "own_processes", "read_only_system", "no_host_environment", "no_new_privileges", "seccomp"}
)
"""Without one of these it is no sandbox."""
LACKS = ("hidden_names", "own_tmp", "limits_at_once")
"""By its nature: that a file is there can be seen, /tmp cannot be used (TMPDIR can), disk and inodes are only watched."""
_uids = itertools.count(os.getpid())


class Landlock:
    """Needs a kernel of 5.13 or newer with Landlock switched on, and no right at all."""

    def __init__(self) -> None:
        self._level: Level | None = None
        self._wardens = Wardens(_start)

    @property
    def level(self) -> Level:
        if self._level is None:
            raise SandboxError("the sandbox was not started yet, and its walls are not known before they were tested")
        return self._level

    async def start(self) -> None:
        if self._level is not None:
            return
        if problem := missing():
            raise SandboxError(problem)
        held, not_held = await self_test.test(self._probe)
        if broken := MUST_HOLD - set(held):
            raise SandboxError(
                f"Landlock is there, but its walls do not hold on this machine ({', '.join(sorted(broken))}); nothing was run. "
                "Use another machine or the service of one"
            )
        self._level = Level(NAME, tuple(held), (*not_held, *LACKS))

    async def run(self, program: Program, *, tools: Mapping[str, Tool] | None = None) -> RunOutcome:
        await self.start()
        return await self._wardens.run(program, tools or {}, self.level)

    async def session(
        self, *, limits: Limits | None = None, files: Mapping[str, bytes] | None = None, idle_seconds: float = 600.0
    ) -> LocalSession:
        await self.start()
        return await self._wardens.session(self.level, limits=limits or Limits(), files=files or {}, idle_seconds=idle_seconds)

    async def close(self) -> None:
        await self._wardens.close()

    async def _probe(self, program: Program) -> RunOutcome:
        """The probes of disk and inodes are to end by themselves. That they get through is known: nothing refuses at once."""
        return await self._wardens.run(replace(program, limits=Limits()), {}, Level(NAME))


def _start(folder: str) -> Start:
    return Start(("landlock_warden", json.dumps(given(folder))), {"PATH": "/usr/local/bin:/usr/bin:/bin"})


def given(folder: str) -> dict[str, object]:
    """What the warden of one run is told: where it may write, what it may read, and whom it is to be."""
    roots = dict.fromkeys((sys.base_prefix, sys.prefix))
    uid = None
    if os.geteuid() == 0:
        uid = UIDS[next(_uids) % len(UIDS)]
        Path(folder).chmod(0o711)
    return {
        "folder": folder,
        "readable": [*(f"/{name}" for name in SYSTEM), *roots, *(f"/etc/{name}" for name in ETC), str(PROGRAMS)],
        "uid": uid,
        # Landlock still holds it to what is readable here.
        "reads_all": uid is not None and not all(_open_to_all(Path(root)) for root in roots),
    }


def _open_to_all(path: Path) -> bool:
    return all(place.stat().st_mode & 0o001 for place in (path.resolve(), *path.resolve().parents))


def missing() -> str | None:
    """Why Landlock cannot be used here and what to do, if it cannot."""
    if sys.platform != "linux":
        return "the sandbox needs Linux; use the service of a Linux machine, or --unsafe-local for your own code"
    if not landlock_rules.version():
        return (
            "this kernel has no Landlock, or it is switched off: a kernel of 5.13 or newer started with lsm=landlock,… has it, "
            "and a container must not filter its system calls"
        )
    return None


_log = logging.getLogger(__name__)


class Strongest:
    """Bubblewrap; and Landlock, with a warning, where this machine forbids what bubblewrap needs when it is first started.

    What is only not installed is to be installed: nothing is fallen back to, and the error says the command.
    """

    def __init__(self) -> None:
        self._walls: Sandbox = Bubblewrap()
        self._proven = False

    @property
    def level(self) -> Level:
        return self._walls.level

    async def start(self) -> None:
        walls = self._walls
        try:
            await walls.start()
        except SandboxError as error:
            # Runs that began together fail together: one of them chooses, the others follow.
            if self._walls is walls:
                if self._proven or not isinstance(walls, Bubblewrap) or not installed():
                    raise
                self._walls = Landlock()
                _log.warning("bubblewrap cannot run here, so landlock is used: %s", error)
            await self._walls.start()
        self._proven = True

    async def run(self, program: Program, *, tools: Mapping[str, Tool] | None = None) -> RunOutcome:
        await self.start()
        return await self._walls.run(program, tools=tools)

    async def session(
        self, *, limits: Limits | None = None, files: Mapping[str, bytes] | None = None, idle_seconds: float = 600.0
    ) -> Session:
        await self.start()
        return await self._walls.session(limits=limits, files=files, idle_seconds=idle_seconds)

    async def close(self) -> None:
        await self._walls.close()
