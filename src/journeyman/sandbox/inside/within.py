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

from . import files, runner, toolbox, wire
from .walls import Walls

MANY = 1 << 16
"""More file descriptors than any of these processes has."""

FAILED = 1 << 8
"""The wait status of exit code 1."""
MOST_COMPLAINED = 2000


class Ends:
    """The file descriptors through which a run and its warden know each other."""

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


class Within:
    """The first process within, as its warden knows it. It can be there long before it is known what will run."""

    def __init__(self, walls: Walls) -> None:
        walls.surround()
        self.ends = Ends()
        self.init = os.fork()
        if self.init == 0:
            _first(self.ends, walls)
        for fd in self.ends.inner:
            os.close(fd)
        walls.hold(self.init)

    def begin(self, job: wire.Message, contents: Sequence[bytes]) -> None:
        """Let it run this."""
        with socket.socket(fileno=os.dup(self.ends.status)) as channel:
            wire.send(channel, job, contents)


def _first(ends: Ends, walls: Walls) -> NoReturn:
    """Be the first process within, to its end."""
    try:
        _keep(ends.inner)
        # The code may be of the same user: a signal that has a handler reaches even the first of a process namespace.
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        walls.build()
        with socket.socket(fileno=os.dup(ends.report)) as channel:
            job, contents = wire.receive(channel)
        walls.furnish(job["limits"])
        if complaint := _laid_out(walls.work, dict(zip(job["files"], contents, strict=True))):
            os.write(ends.stderr, complaint.encode(errors="backslashreplace"))
            _report(ends.report, {"ready": True, "ended": FAILED})
            os._exit(0)
        _report(ends.report, {"ready": True})
        code = os.fork()
        if code == 0:
            _second(job, ends, walls)
        for fd in (ends.stdin, ends.stdout, ends.stderr, ends.code_line):
            os.close(fd)
        _report(ends.report, {"ended": _reap_until(code)})
    except BaseException as error:  # noqa: BLE001 - the process's own boundary: what fails here is a sandbox that failed
        _report(ends.report, {"fault": _sentence(error)})
    os._exit(0)


def _laid_out(folder: str, contents: Mapping[str, bytes]) -> str | None:
    """Why the files of the program cannot be laid out; they may be a model's, and that they do not fit is its failure."""
    try:
        files.write(folder, contents)
    except (OSError, ValueError, RecursionError) as error:
        return f"the files cannot be laid out: {error}\n"[:MOST_COMPLAINED]
    return None


def _second(job: Mapping[str, Any], ends: Ends, walls: Walls) -> NoReturn:
    """Be the process that runs the code."""
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        os.setsid()
        for fd, number in ((ends.stdin, 0), (ends.stdout, 1), (ends.stderr, 2)):
            os.dup2(fd, number)
        environment = walls.environment()
        os.environ.clear()
        os.environ.update(environment)
        # A shell that says `python` means this one, with the modules it has.
        os.environ["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), environment["PATH"]))
        os.chdir(walls.work)
        os.umask(0o077)
        runner.check(job)
        walls.confine(job["limits"])
        _keep((0, 1, 2, ends.code_line))
    except BaseException as error:  # noqa: BLE001 - the process's own boundary: what fails here is a sandbox that failed
        _report(ends.report, {"fault": _sentence(error)})
        os._exit(1)
    try:
        runner.run(job, toolbox.ToolConnection(socket.socket(fileno=ends.code_line)))
    except BaseException:  # noqa: BLE001 - the process's own boundary: above it is the code of the first process
        runner.complain()
    finally:
        # Whatever comes here is no run that went well.
        runner.end(1)


def _keep(wanted: tuple[int, ...]) -> None:
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


def _report(fd: int, what: Mapping[str, Any]) -> None:
    # Where the warden is gone already there is nobody to tell.
    with contextlib.suppress(OSError):
        os.write(fd, json.dumps(what).encode() + b"\n")


def _sentence(error: BaseException) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} (in {place.name})"
