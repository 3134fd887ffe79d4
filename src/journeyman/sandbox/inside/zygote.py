"""The nursery: a warm Python that forks a warden for each run.

    python -I inside zygote      the host's socket on file descriptor 0

Each message on that socket brings another one, on which the run itself is talked about. Only the warden reads from it, so that
nothing of a run ever is in the nursery, from which the next one is forked.

A fork shares its parent's hash seed: within one nursery, sets of strings have the same order in every run.
"""

import contextlib
import gc
import importlib
import io
import os
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence

from . import wire
from .sealed import Sealed
from .warden import serve

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
    host = socket.socket(fileno=os.dup(0))
    warm()
    # Wardens are nobody's to wait for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(os.devnull, "r+b", buffering=0) as nowhere:
        for fd in (0, 1, 2):
            os.dup2(nowhere.fileno(), fd)
    host.send(b"ready")
    while True:
        try:
            message, fds, _, _ = socket.recv_fds(host, 16, 1)
        except InterruptedError:
            continue
        if not message:
            return
        if os.fork() == 0:
            host.close()
            _warden(fds[0])
        os.close(fds[0])


def _warden(fd: int) -> None:
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with socket.socket(fileno=fd) as channel:
            try:
                serve(channel, Sealed())
                code = 0
            except (EOFError, BrokenPipeError):
                # The host gave up before the request was whole.
                code = 0
            except Exception as error:  # noqa: BLE001 - the process's own boundary: the host is told
                with contextlib.suppress(OSError):
                    wire.send(channel, {"fault": f"{error!r} {traceback.format_exc()[-2000:]}"})
    finally:
        os._exit(code)


def warm() -> None:
    """Import what code of this kind imports most, and keep it out of the garbage collector's way."""
    for name in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with _as_it_was(), contextlib.suppress(ImportError):
        _warm_pytest()
    gc.collect()
    gc.freeze()


def _warm_pytest() -> None:
    """A session of its own loads what pytest loads late."""
    import pytest

    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        os.chdir(folder)
        with open("test_warm.py", "w", encoding="utf-8") as file:
            file.write(
                "import pytest\ndef test_one(tmp_path, capsys): assert {1: [2]} == {1: [2]}\ndef test_two(): assert [1] == [2]\n"
            )
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
        os.environ.clear()
        os.environ.update(environment)
        signal.signal(signal.SIGINT, handlers)
