"""A sandbox with walls, for code that is not of the tests' own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from journeyman import sandbox
from journeyman.core.errors import SandboxError
from journeyman.sandbox.base import Sandbox


@asynccontextmanager
async def walled(name: str = "auto") -> AsyncIterator[Sandbox]:
    """The one of that name, or a skip that says what this machine lacks."""
    found = sandbox.load(name)
    try:
        await found.start()
    except SandboxError as error:
        pytest.skip(str(error))
    try:
        yield found
    finally:
        await found.close()
