"""Programs of Python that start at once: forks of a process that has imported the libraries that take seconds to import.

Each is a process of its own, with a folder, an environment, open files and an end, and can be killed at any moment. What is
not tested so is the start itself, so each entry point has a test that starts it as a user does. Nor that nothing hangs on the
order of a set: all forks of a server have one seed of hashes. What goes on with another's work is forked from a second server.
"""

import atexit
import gc
import json
import os
import runpy
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from tests.support.processes import is_alive
from tests.support.shared import shared

_LOOK = 20.0
"""Seconds between looks of an idle server whether anybody is left who could use it."""
SLOW_TO_IMPORT = (
    "openai",
    "sqlalchemy.dialects.sqlite",
    "scipy.optimize",
    "scipy.stats",
    "sklearn.linear_model",
    "sklearn.model_selection",
    "torch",
    "peft",
    "datasets",
    "transformers.models.qwen3.modeling_qwen3",
    "trl.trainer.grpo_trainer",
    "trl.trainer.dpo_trainer",
    "trl.trainer.kto_trainer",
    "trl.trainer.sft_trainer",
)
"""Nothing of our own, which each program imports for itself."""
CHILDREN = "JOURNEYMAN_TEST_PYTHON"
"""The variable that says what stands for a Python to whoever starts one."""


class Started:
    """A program that runs. As much of `subprocess.Popen` as the tests need."""

    def __init__(
        self, *arguments: str, stdout: int, stderr: int, cwd: Path | None, env: Mapping[str, str] | None, server: str
    ) -> None:
        asked = {"arguments": arguments, "cwd": str(cwd or Path.cwd()), "env": dict(os.environ if env is None else env)}
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(_server(server))
        with Path(os.devnull).open("rb") as nothing:
            socket.send_fds(self._server, [b"!"], [nothing.fileno(), stdout, stderr])
        self._server.sendall(json.dumps(asked).encode() + b"\n")
        self._told = self._server.makefile("rb")
        self.pid = int(self._told.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """How it ended; `None` while it runs."""
        with suppress(TimeoutError):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended: its exit code, or the negative number of the signal that ended it."""
        if self.returncode is None:
            with selectors.DefaultSelector() as waiting:
                waiting.register(self._server, selectors.EVENT_READ)
                if not waiting.select(timeout):
                    raise TimeoutError(f"process {self.pid} runs after {timeout} s")
            self.returncode = int(self._told.readline())
            self._told.close()
            self._server.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing when it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


def start(
    *arguments: str,
    stdout: int = -1,
    stderr: int = -1,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    server: str = "one",
    children: bool = False,
) -> Started:
    """Start `python arguments…`, which are `-m MODULE …` or `-c PROGRAM …`, in a session of its own.

    Args:
        server: "one", or "other", which has other hashes.
        children: Whether the Pythons that it starts are forks as well, as of `program`.
        stdout: Number of the file that it writes to; what is written is thrown away without.
    """
    env = {**(os.environ if env is None else env), **({CHILDREN: program()} if children else {})}
    with Path(os.devnull).open("wb") as nothing:
        files = {"stdout": nothing.fileno() if stdout < 0 else stdout, "stderr": nothing.fileno() if stderr < 0 else stderr}
        return Started(*arguments, **files, cwd=cwd, env=env, server=server)


def run(
    *arguments: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
    server: str = "one",
    children: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, as `start` does: what it wrote, and how it ended."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = start(
            *arguments, stdout=out.fileno(), stderr=err.fileno(), cwd=cwd, env=env, server=server, children=children
        )
        try:
            code = process.wait(timeout)
        except TimeoutError:
            process.send_signal(signal.SIGKILL)
            raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


def program() -> str:
    """A file to run where a Python would be: of `-m` and `-c` it has a fork do the work, and hands on SIGTERM and SIGINT.

    When it is killed, so is the fork, a moment later.
    """
    return str(Path(_server("one")).with_name("python"))


@cache
def _server(name: str) -> str:
    """The path of the server's socket."""
    return shared(f"warm-{name}", _start_server, _stop_server)


def _start_server(folder: Path) -> str:
    path = folder / "socket"
    command = [sys.executable, "-m", "tests.support.warm", str(path)]
    here = shlex.join([sys.executable, "-I", "-S", str(Path(__file__).with_name("warm_program.py")), str(path)])
    (folder / "python").write_text(f'#!/bin/sh\nexec {here} "$@"\n')
    (folder / "python").chmod(0o755)
    # In a session of its own: what is typed at the terminal is not for it.
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=Path(__file__).parents[2], start_new_session=True)
    (folder / "pid").write_text(str(server.pid))
    until = time.monotonic() + 300
    while not path.exists():
        if server.poll() is not None or time.monotonic() > until:
            raise RuntimeError("what forks programs did not start")
        time.sleep(0.05)
    # Whoever is last stops it, which may be another process.
    server.returncode = 0
    return str(path)


def _stop_server(folder: Path) -> None:
    with suppress(ProcessLookupError):
        os.kill(int((folder / "pid").read_text()), signal.SIGTERM)


# The server: one thread that forks, and tells how each fork ended.


class Forking:
    def __init__(self, path: str) -> None:
        self._folder = Path(path).parent
        self._clients: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, waking = socket.socketpair()
        for end in (self._woken, waking):
            end.setblocking(False)
        signal.set_wakeup_fd(waking.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._listener = socket.socket(socket.AF_UNIX)
        # Who sees the path can connect.
        self._listener.bind(f"{path}.new")
        self._listener.listen(64)
        Path(f"{path}.new").rename(path)
        for waited_for in (self._listener, self._woken):
            self._selector.register(waited_for, selectors.EVENT_READ)
        self._waking = waking

    def serve(self) -> dict[str, Any]:
        """What is to be run: returns once in each fork, and never in the server, which ends when nobody uses it."""
        users = self._folder / "users"
        while True:
            ready = self._selector.select(_LOOK)
            if not ready and not any(is_alive(int(user.name)) for user in users.iterdir()):
                sys.exit()
            for key, _ in ready:
                if key.fileobj is self._woken:
                    self._ended()
                elif key.fileobj is self._listener:
                    asked = self._fork(self._listener.accept()[0])
                    if asked is not None:
                        return asked
                else:
                    self._left(key.data)

    def _fork(self, client: socket.socket) -> dict[str, Any] | None:
        files: list[int] = []
        try:
            _, files, _, _ = socket.recv_fds(client, 1, 3)
            with client.makefile("rb") as told:
                asked: dict[str, Any] = json.loads(told.readline())
        except (OSError, ValueError):
            # It was killed before it had said what it wants.
            for file in files:
                os.close(file)
            client.close()
            return None
        pid = os.fork()
        if pid:
            for file in files:
                os.close(file)
            self._clients[pid] = client
            with suppress(OSError):
                client.sendall(b"%d\n" % pid)
            if asked.pop("tied", False):
                self._selector.register(client, selectors.EVENT_READ, pid)
            return None
        asked.pop("tied", None)
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        for each in (self._listener, self._woken, self._waking, client, *self._clients.values()):
            each.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        return asked

    def _left(self, pid: int) -> None:
        """Nothing goes on for a program that was killed."""
        if client := self._clients.get(pid):
            self._selector.unregister(client)
            os.kill(pid, signal.SIGKILL)

    def _ended(self) -> None:
        with suppress(BlockingIOError):
            self._woken.recv(4096)
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                client = self._clients.pop(found[0])
                with suppress(KeyError):
                    self._selector.unregister(client)
                with suppress(OSError):
                    client.sendall(b"%d\n" % os.waitstatus_to_exitcode(found[1]))
                client.close()


def _become(arguments: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
    """Run what was asked for in this process, as `python` would."""
    sys.executable = env.get(CHILDREN, sys.executable)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False, encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", closefd=False, encoding="utf-8", errors="backslashreplace", buffering=1)
    sys.path[0] = cwd
    how, what, *more = arguments
    sys.argv = [how, *more]
    if how == "-c":
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_module(what, run_name="__main__", alter_sys=True)


def _end(how: BaseException | None) -> NoReturn:
    """End as `python` does, but for taking everything apart, which touches all memory and takes a second."""
    code = 0
    if isinstance(how, SystemExit):
        code = how.code if isinstance(how.code, int) else int(how.code is not None)
        if how.code is not None and not isinstance(how.code, int):
            sys.stderr.write(f"{how.code}\n")
    elif how is not None:
        traceback.print_exception(how)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the threads that are no daemons
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if isinstance(how, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


if __name__ == "__main__":
    for name in SLOW_TO_IMPORT:
        with suppress(ImportError):
            import_module(name)
    gc.freeze()
    asked_for = Forking(sys.argv[1]).serve()
    try:
        _become(**asked_for)
    except BaseException as error:  # noqa: BLE001 - whatever ends a program is told as python tells it
        _end(error)
    _end(None)
