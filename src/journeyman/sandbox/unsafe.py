"""No walls: a process in a temporary folder, with limits. For one's own code, never for a model's."""

import os
from collections.abc import Mapping

from journeyman.sandbox.base import Level, Limits, Program, RunOutcome, Tool
from journeyman.sandbox.run_channel import LocalSession
from journeyman.sandbox.supervised import Start, Wardens

ENVIRONMENT = ("PATH", "SYSTEMROOT")
"""All that the code sees of the caller's."""


class Unsafe:
    """The protocol without its promise: the code can do whatever you can do."""

    level = Level("none", holds=(), lacks=("no_network", "read_only_system", "private_files", "own_processes", "seccomp"))

    def __init__(self) -> None:
        self._wardens = Wardens(_start)

    async def start(self) -> None:
        """There are no walls to test."""

    async def run(self, program: Program, *, tools: Mapping[str, Tool] | None = None) -> RunOutcome:
        return await self._wardens.run(program, tools or {}, self.level)

    async def session(
        self, *, limits: Limits | None = None, files: Mapping[str, bytes] | None = None, idle_seconds: float = 600.0
    ) -> LocalSession:
        return await self._wardens.session(self.level, limits=limits or Limits(), files=files or {}, idle_seconds=idle_seconds)

    async def close(self) -> None:
        await self._wardens.close()


def _start(folder: str) -> Start:
    return Start(("warden", folder), {name: os.environ[name] for name in ENVIRONMENT if name in os.environ})
