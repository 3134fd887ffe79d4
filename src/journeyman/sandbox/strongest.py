"""The strongest sandbox that works on this machine: bubblewrap, else Landlock, else none."""

import logging
from collections.abc import Mapping

from journeyman.core.errors import SandboxError
from journeyman.sandbox.base import Level, Limits, Program, RunOutcome, Sandbox, Session, Tool
from journeyman.sandbox.bubblewrap import Bubblewrap, installed
from journeyman.sandbox.supervised import Landlock

_log = logging.getLogger(__name__)


class Strongest:
    """Bubblewrap; and Landlock, with a warning, where this machine forbids what bubblewrap needs when it is first started.

    What is only not installed is to be installed: nothing is fallen back to, and the error says the command.
    """

    def __init__(self) -> None:
        self._sandbox: Sandbox = Bubblewrap()
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
                self._sandbox = Landlock()
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
