"""What runs code that nobody trusts, by name; none is imported before somebody says it."""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from journeyman.core import extension, registry
from journeyman.core.errors import InputError
from journeyman.sandbox.base import Interpreter, Sandbox

BEARER = "JOURNEYMAN_SANDBOX_TOKEN"
"""The environment variable with the bearer token of a service."""

_WITH_INTERPRETER = ("auto", "bubblewrap", "landlock", "unsafe-local")

_log = logging.getLogger(__name__)


def load(name: str = "auto", *, interpreter: Interpreter | None = None) -> Sandbox:
    """A sandbox by its name, or the client of a service by its URL. Nothing is started yet.

    "auto" is bubblewrap, or Landlock where this machine forbids what bubblewrap needs.

    A class of one's own, `module:Class`, is made without arguments.

    Args:
        interpreter: The Python that is to run code, where it is not this one.

    Raises:
        InputError: There is none of that name, or it cannot have another Python.
    """
    if interpreter is not None and name not in _WITH_INTERPRETER:
        raise InputError(
            f"the sandbox {name!r} has its own Python: code with packages of its own runs in {', '.join(_WITH_INTERPRETER)}"
        )
    if name.startswith(("http://", "https://")):
        from journeyman.sandbox.remote import HttpSandbox

        return HttpSandbox(name, token=os.environ.get(BEARER) or None)
    if not registry.known("sandboxes", name) and not registry.is_class(name):
        meant = ": the address of a service begins with http://" if ":" in name else ""
        said = registry.unknown("sandboxes", name, more="the URL of a service")
        raise InputError(said.replace(repr(name), f"{name!r}{meant}", 1))
    if name == "unsafe-local":
        _log.warning("unsafe-local has no walls: the code that runs can do whatever you can do")
    sandbox: Sandbox = extension.make("sandboxes", name, **({"interpreter": interpreter} if interpreter else {}))
    return sandbox


async def opened(name: str = "auto", *, interpreter: Interpreter | None = None) -> Sandbox:
    """A sandbox that was started; whoever has it closes it.

    Raises:
        InputError: There is none of that name.
        SandboxError: It cannot run here; the message says what to do.
    """
    box = load(name, interpreter=interpreter)
    await box.start()
    return box


@asynccontextmanager
async def started(name: str = "auto", *, interpreter: Interpreter | None = None) -> AsyncIterator[Sandbox]:
    """A sandbox that is started, and closed at the end of the block. Raises as `opened`."""
    box = await opened(name, interpreter=interpreter)
    try:
        yield box
    finally:
        await box.close()
