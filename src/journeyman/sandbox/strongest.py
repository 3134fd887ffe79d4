"""The strongest sandbox that works on this machine: bubblewrap, else Landlock, else none."""

import logging
from collections.abc import Mapping

from journeyman.errors import SandboxError
from journeyman.sandbox.base import Level, Limits, Outcome, Program, Sandbox, Session, Tool
from journeyman.sandbox.bubblewrap import Bubblewrap, installed
from journeyman.sandbox.landlock import Landlock

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

    async def run(self, program: Program, *, tools: Mapping[str, Tool] | None = None) -> Outcome:
        await self.start()
        return await self._walls.run(program, tools=tools)

    async def session(
        self, *, limits: Limits | None = None, files: Mapping[str, bytes] | None = None, idle_seconds: float = 600.0
    ) -> Session:
        await self.start()
        return await self._walls.session(limits=limits, files=files, idle_seconds=idle_seconds)

    async def close(self) -> None:
        await self._walls.close()
