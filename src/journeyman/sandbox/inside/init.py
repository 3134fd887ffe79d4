"""The first process within the walls: furnishes them, starts the code, and reaps what the code leaves behind.

When it goes, the kernel ends all that is still there.
"""

import contextlib
import itertools
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from . import files, runner, tools, wire
from .isolation import Isolation

MANY = 1 << 16
"""More file descriptors than any of these processes has."""

EXIT_CODE_1 = 1 << 8
"""The wait status of exit code 1."""
MAX_COMPLAINT = 2000


class Pipes:
    """The file descriptors through which a run and its supervisor know each other."""

    def __init__(self) -> None:
        self.stdin, self.feed = os.pipe()
        self.out, self.stdout = os.pipe()
        self.err, self.stderr = os.pipe()
        self.line, self.code_line = (end.detach() for end in socket.socketpair())
        self.status, self.report = (end.detach() for end in socket.socketpair())

    @property
    def inner(self) -> tuple[int, ...]:
        return self.stdin, self.stdout, self.stderr, self.code_line, self.report

    @property
    def outer(self) -> tuple[int, ...]:
        return self.feed, self.out, self.err, self.line, self.status


class InitProcess:
    """The first process within, as its supervisor knows it. It can be there long before it is known what will run."""

    def __init__(self, isolation: Isolation) -> None:
        isolation.surround()
        self.pipes = Pipes()
        self.pid = os.fork()
        if self.pid == 0:
            _run_init(self.pipes, isolation)
        for fd in self.pipes.inner:
            os.close(fd)
        isolation.hold(self.pid)

    def begin(self, job: wire.Message, contents: Sequence[bytes]) -> None:
        """Let it run this."""
        with socket.socket(fileno=os.dup(self.pipes.status)) as channel:
            wire.send(channel, job, contents)


def _run_init(pipes: Pipes, isolation: Isolation) -> NoReturn:
    """Be the first process within, to its end."""
    try:
        _close_all_but(pipes.inner)
        # The code may be of the same user: a signal that has a handler reaches even the first of a process namespace.
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        isolation.build()
        with socket.socket(fileno=os.dup(pipes.report)) as channel:
            job, contents = wire.receive(channel)
        isolation.furnish(job["limits"])
        if complaint := _lay_out_files(isolation.work, dict(zip(job["files"], contents, strict=True))):
            os.write(pipes.stderr, complaint.encode(errors="backslashreplace"))
            _report(pipes.report, {"ready": True, "ended": EXIT_CODE_1})
            os._exit(0)
        _report(pipes.report, {"ready": True})
        code = os.fork()
        if code == 0:
            _run_code(job, pipes, isolation)
        for fd in (pipes.stdin, pipes.stdout, pipes.stderr, pipes.code_line):
            os.close(fd)
        _report(pipes.report, {"ended": _reap_until(code)})
    except BaseException as error:  # noqa: BLE001 - the process's own boundary: what fails here is a sandbox that failed
        _report(pipes.report, {"fault": _describe(error)})
    os._exit(0)


def _lay_out_files(folder: str, contents: Mapping[str, bytes]) -> str | None:
    """Why the files of the program cannot be laid out; they may be a model's, and that they do not fit is its failure."""
    try:
        files.write(folder, contents)
    except (OSError, ValueError, RecursionError) as error:
        return f"the files cannot be laid out: {error}\n"[:MAX_COMPLAINT]
    return None


def _run_code(job: Mapping[str, Any], pipes: Pipes, isolation: Isolation) -> NoReturn:
    """Be the process that runs the code."""
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        os.setsid()
        for fd, number in ((pipes.stdin, 0), (pipes.stdout, 1), (pipes.stderr, 2)):
            os.dup2(fd, number)
        environment = isolation.environment()
        os.environ.clear()
        os.environ.update(environment)
        # A shell that says `python` means this one, with the modules it has.
        os.environ["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), environment["PATH"]))
        os.chdir(isolation.work)
        os.umask(0o077)
        runner.check(job)
        isolation.confine(job["limits"])
        _close_all_but((0, 1, 2, pipes.code_line))
    except BaseException as error:  # noqa: BLE001 - the process's own boundary: what fails here is a sandbox that failed
        _report(pipes.report, {"fault": _describe(error)})
        os._exit(1)
    try:
        runner.run(job, tools.ToolConnection(socket.socket(fileno=pipes.code_line)))
    except BaseException:  # noqa: BLE001 - the process's own boundary: above it is the code of the first process
        runner.write_traceback()
    finally:
        # Whatever comes here is no run that went well.
        runner.end(1)


def _close_all_but(wanted: tuple[int, ...]) -> None:
    """Close all file descriptors but these and the standard ones."""
    edges = [2, *sorted(fd for fd in wanted if fd > 2), MANY]
    for below, above in itertools.pairwise(edges):
        os.closerange(below + 1, above)


def _reap_until(code: int) -> int:
    """Wait for whoever ends, until it is the code; its wait status."""
    while True:
        pid, status = os.wait()
        if pid == code:
            return status


def _report(fd: int, message: Mapping[str, Any]) -> None:
    # Where the supervisor is gone already there is nobody to tell.
    with contextlib.suppress(OSError):
        os.write(fd, json.dumps(message).encode() + b"\n")


def _describe(error: BaseException) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} (in {place.name})"
