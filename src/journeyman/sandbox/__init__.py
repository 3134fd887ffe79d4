"""What runs code that nobody trusts, by name; none is imported before somebody says it."""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from journeyman.core import extension, registry
from journeyman.core.errors import InputError
from journeyman.sandbox.base import Sandbox

BEARER = "JOURNEYMAN_SANDBOX_TOKEN"
"""The environment variable with the bearer token of a service."""

_log = logging.getLogger(__name__)


def load(name: str = "auto") -> Sandbox:
    """A sandbox by its name, or the client of a service by its URL. Nothing is started yet.

    "auto" is bubblewrap, or Landlock where this machine forbids what bubblewrap needs.

    A class of one's own, `module:Class`, is made without arguments.

    Raises:
        InputError: There is none of that name.
    """
    if name.startswith(("http://", "https://")):
        from journeyman.sandbox.remote import HttpSandbox

        return HttpSandbox(name, token=os.environ.get(BEARER) or None)
    if not registry.known("sandboxes", name) and not registry.is_class(name):
        meant = ": the address of a service begins with http://" if ":" in name else ""
        said = registry.unknown("sandboxes", name, more="the URL of a service")
        raise InputError(said.replace(repr(name), f"{name!r}{meant}", 1))
    if name == "unsafe-local":
        _log.warning("unsafe-local has no walls: the code that runs can do whatever you can do")
    sandbox: Sandbox = extension.make("sandboxes", name)
    return sandbox


async def opened(name: str = "auto") -> Sandbox:
    """A sandbox that was started; whoever has it closes it.

    Raises:
        InputError: There is none of that name.
        SandboxError: It cannot run here; the message says what to do.
    """
    box = load(name)
    await box.start()
    return box


@asynccontextmanager
async def started(name: str = "auto") -> AsyncIterator[Sandbox]:
    """A sandbox that is started, and closed at the end of the block. Raises as `opened`."""
    box = await opened(name)
    try:
        yield box
    finally:
        await box.close()
