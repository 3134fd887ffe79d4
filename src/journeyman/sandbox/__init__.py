"""What runs code that nobody trusts: a table of names, so that none is imported before somebody says it."""

import logging
import os
from importlib import import_module

from journeyman.core.errors import InputError
from journeyman.sandbox.base import Sandbox

_SANDBOXES = {
    "auto": ("journeyman.sandbox.strongest", "Strongest"),
    "bubblewrap": ("journeyman.sandbox.bubblewrap", "Bubblewrap"),
    "landlock": ("journeyman.sandbox.strongest", "Landlock"),
    "unsafe-local": ("journeyman.sandbox.unsafe", "Unsafe"),
}
BEARER = "JOURNEYMAN_SANDBOX_TOKEN"
"""The environment variable with the bearer token of a service."""
_SERVICE = ("journeyman.sandbox.remote", "HttpSandbox")

_log = logging.getLogger(__name__)


def load(name: str = "auto") -> Sandbox:
    """A sandbox by its name, or the client of a service by its URL. Nothing is started yet.

    "auto" is bubblewrap, or Landlock where this machine forbids what bubblewrap needs.

    Raises:
        InputError: There is none of that name.
    """
    if name.startswith(("http://", "https://")):
        module, cls = _SERVICE
        service: Sandbox = getattr(import_module(module), cls)(name, token=os.environ.get(BEARER) or None)
        return service
    if name not in _SANDBOXES:
        meant = ": the address of a service begins with http://" if ":" in name else ""
        raise InputError(f"no sandbox {name!r}{meant}; there are {', '.join(sorted(_SANDBOXES))}, and the URL of a service")
    if name == "unsafe-local":
        _log.warning("unsafe-local has no walls: the code that runs can do whatever you can do")
    module, cls = _SANDBOXES[name]
    sandbox: Sandbox = getattr(import_module(module), cls)()
    return sandbox
