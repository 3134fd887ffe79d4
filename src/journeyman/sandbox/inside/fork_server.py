"""The fork server: a warm Python that forks a supervisor for each run.

    python -I inside fork_server FD      the host's sockets on file descriptors 0 and FD, the second for runs of pytest

Each message on that socket brings another one, on which the run itself is talked about. Only the supervisor reads from it, so
that nothing of a run ever is in the fork server, from which the next one is forked.

A fork shares its parent's hash seed: within one fork server, sets of strings have the same order in every run.
"""

import collections
import contextlib
import gc
import importlib
import io
import os
import platform
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from typing import NoReturn

from . import seccomp, wire
from .init import InitProcess
from .namespaces import LENT, NamespaceIsolation, hierarchies
from .supervisor import serve

SPARES = 2
"""Supervisors that wait."""
MODULES = [
    "abc", "argparse", "array", "ast", "asyncio", "base64", "bisect", "builtins", "calendar", "collections",
    "collections.abc", "concurrent.futures", "contextlib", "copy", "csv", "ctypes", "dataclasses", "datetime",
    "decimal", "difflib", "enum", "fractions", "functools", "glob", "hashlib", "heapq", "html", "inspect",
    "io", "itertools", "json", "linecache", "logging", "math", "operator", "os", "os.path", "pathlib",
    "pickle", "pprint", "queue", "random", "re", "secrets", "shutil", "signal", "socket", "sqlite3",
    "statistics", "string", "struct", "subprocess", "sys", "tempfile", "textwrap", "threading", "time",
    "timeit", "tokenize", "traceback", "types", "typing", "unicodedata", "unittest", "unittest.mock",
    "urllib.parse", "urllib.request", "uuid", "warnings", "weakref", "xml.etree.ElementTree", "zlib",
    "multiprocessing",
]  # fmt: skip
"""What code of this kind imports most."""


TESTS = """
def test_that_passes(tmp_path, capsys):
    assert {1: [2]} == {1: [2]}

def test_that_fails():
    assert [1] == [2]
"""


def main(arguments: Sequence[str]) -> None:
    """Two fork servers: what pytest needs would make the forks of all others slower."""
    host, for_pytest = socket.socket(fileno=os.dup(0)), socket.socket(fileno=int(arguments[0]))
    # Supervisors are nobody's to wait for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warm()
    with contextlib.suppress(NotImplementedError):
        seccomp.assembled(platform.machine())
    if os.path.isdir(LENT):
        hierarchies(LENT)
    if os.fork() == 0:
        host.close()
        with _as_it_was(), contextlib.suppress(ImportError):
            warm_pytest()
        _freeze()
        ForkServer(for_pytest).serve()
        os._exit(0)
    for_pytest.close()
    _freeze()
    with open(os.devnull, "r+b", buffering=0) as nowhere:
        for fd in (0, 1, 2):
            os.dup2(nowhere.fileno(), fd)
    host.send(b"ready")
    ForkServer(host).serve()


class ForkServer:
    """Hands the socket of each run to a supervisor whose walls stand already, and has the next one built meanwhile."""

    def __init__(self, host: socket.socket) -> None:
        self.host = host
        self.spares: collections.deque[socket.socket] = collections.deque()

    def serve(self) -> None:
        """Until the host goes."""
        while True:
            while len(self.spares) < SPARES:
                self._fork()
            message, fds, _, _ = socket.recv_fds(self.host, 16, 1)
            if not message:
                return
            with socket.socket(fileno=fds[0]) as channel:
                self._hand_over(channel)

    def _hand_over(self, channel: socket.socket) -> None:
        """To the first that is still there."""
        while True:
            if not self.spares:
                self._fork()
            with self.spares.popleft() as spare, contextlib.suppress(OSError):
                socket.send_fds(spare, [b"!"], [channel.fileno()])
                return

    def _fork(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            for each in (self.host, ours, *self.spares):
                each.close()
            _supervisor(theirs)
        theirs.close()
        self.spares.append(ours)


def _supervisor(server: socket.socket) -> NoReturn:
    """Build the walls, wait for a run, watch it, and go."""
    isolation, fault, init = NamespaceIsolation(), None, None
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            init = InitProcess(isolation)
        except OSError as error:
            fault = f"the walls could not be built: {error}"
        message, fds, _, _ = socket.recv_fds(server, 16, 1)
        if message:
            with socket.socket(fileno=fds[0]) as channel:
                _serve(channel, isolation, init, fault)
    finally:
        isolation.clean()
        os._exit(0)


def _serve(channel: socket.socket, isolation: NamespaceIsolation, init: InitProcess | None, fault: str | None) -> None:
    try:
        if fault:
            wire.send(channel, {"fault": fault})
        else:
            serve(channel, isolation, init=init)
    except (EOFError, BrokenPipeError):
        # The host gave up before the request was whole.
        return
    except Exception as error:  # noqa: BLE001 - the process's own boundary: the host is told
        with contextlib.suppress(OSError):
            wire.send(channel, {"fault": f"{error!r} {traceback.format_exc()[-2000:]}"})


def _freeze() -> None:
    gc.collect()
    gc.freeze()


def warm() -> None:
    """Import what code of this kind imports most."""
    for name in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def warm_pytest() -> None:
    """A session of its own loads what pytest loads late."""
    # What else is installed may be broken, and is no business of the programs.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import pytest

    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        os.chdir(folder)
        with open("test_warm.py", "w", encoding="utf-8") as file:
            file.write(TESTS)
        pytest.main(["-p", "no:cacheprovider", "test_warm.py"])
        os.chdir(here)


@contextlib.contextmanager
def _as_it_was() -> Iterator[None]:
    """Whatever a warm-up does to the interpreter's own state is undone."""
    path, hooks, environment, handlers = sys.path[:], sys.meta_path[:], dict(os.environ), signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        sys.path[:], sys.meta_path[:] = path, hooks
        sys.modules.pop("test_warm", None)
        # Looked up once and remembered: that of a run is its own.
        tempfile.tempdir = None
        os.environ.clear()
        os.environ.update(environment)
        signal.signal(signal.SIGINT, handlers)
