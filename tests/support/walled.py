"""A sandbox with walls, for code that is not of the tests' own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from journeyman import sandbox
from journeyman.errors import JourneymanError
from journeyman.sandbox.base import Sandbox


@asynccontextmanager
async def walled() -> AsyncIterator[Sandbox]:
    """The default one, or a skip that says what this machine lacks."""
    found = sandbox.load()
    try:
        await found.start()
    except JourneymanError as error:
        pytest.skip(str(error))
    try:
        yield found
    finally:
        await found.close()
