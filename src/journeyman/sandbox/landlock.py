"""The second choice, where this machine forbids the namespaces that bubblewrap needs: Landlock, filters, limits, and a watch.

Slower, since nothing is warm, and weaker: its level says in what.
"""

import itertools
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from journeyman.errors import SandboxError
from journeyman.sandbox import probes
from journeyman.sandbox.base import Level, Limits, Outcome, Program, Tool
from journeyman.sandbox.inside import landlock_rules
from journeyman.sandbox.nursery import ETC, SYSTEM, UIDS
from journeyman.sandbox.sessions import LocalSession
from journeyman.sandbox.wardens import PROGRAMS, Start, Wardens

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
        held, not_held = await probes.test(self._probe)
        if broken := MUST_HOLD - set(held):
            raise SandboxError(
                f"Landlock is there, but its walls do not hold on this machine ({', '.join(sorted(broken))}); nothing was run. "
                "Use another machine or the service of one"
            )
        self._level = Level(NAME, tuple(held), (*not_held, *LACKS))

    async def run(self, program: Program, *, tools: Mapping[str, Tool] | None = None) -> Outcome:
        await self.start()
        return await self._wardens.run(program, tools or {}, self.level)

    async def session(
        self, *, limits: Limits | None = None, files: Mapping[str, bytes] | None = None, idle_seconds: float = 600.0
    ) -> LocalSession:
        await self.start()
        return await self._wardens.session(self.level, limits=limits or Limits(), files=files or {}, idle_seconds=idle_seconds)

    async def close(self) -> None:
        await self._wardens.close()

    async def _probe(self, program: Program) -> Outcome:
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
