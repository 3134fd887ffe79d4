"""The first process within the walls: furnishes them, starts the code, and reaps what the code leaves behind.

When it goes, the kernel ends all that is still there.
"""

import itertools
import json
import os
import signal
import socket
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

from . import files, runner, toolbox
from .walls import Walls

MANY = 1 << 16
"""More file descriptors than any of these processes has."""


class Ends:
    """The file descriptors through which a run and its warden know each other."""

    def __init__(self) -> None:
        self.stdin, self.feed = os.pipe()
        self.out, self.stdout = os.pipe()
        self.err, self.stderr = os.pipe()
        self.status, self.report = os.pipe()
        self.gate, self.go = os.pipe()
        ours, theirs = socket.socketpair()
        self.line, self.code_line = ours.detach(), theirs.detach()

    @property
    def inner(self) -> tuple[int, ...]:
        return self.stdin, self.stdout, self.stderr, self.report, self.code_line, self.gate

    @property
    def outer(self) -> tuple[int, ...]:
        return self.feed, self.out, self.err, self.status, self.line, self.go


def first(job: Mapping[str, Any], lay_out: Mapping[str, bytes], ends: Ends, walls: Walls) -> NoReturn:
    """Be the first process within, to its end."""
    try:
        _keep(ends.inner)
        # The code may be of the same user: a signal that has a handler reaches even the first of a process namespace.
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.read(ends.gate, 1)
        walls.furnish(job["limits"])
        files.write(walls.work, lay_out)
        _report(ends.report, {"ready": True})
        code = os.fork()
        if code == 0:
            _second(job, ends, walls)
        for fd in (ends.stdin, ends.stdout, ends.stderr, ends.code_line, ends.gate):
            os.close(fd)
        _report(ends.report, {"ended": _reap_until(code)})
    except BaseException as error:  # noqa: BLE001 - the process's own boundary: what fails here is a sandbox that failed
        _report(ends.report, {"fault": _sentence(error)})
    os._exit(0)


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
        os.chdir(walls.work)
        os.umask(0o077)
        if job["kind"] == "command":
            runner.command(job)
        walls.confine(job["limits"])
        _keep((0, 1, 2, ends.code_line))
    except BaseException as error:  # noqa: BLE001 - the process's own boundary: what fails here is a sandbox that failed
        _report(ends.report, {"fault": _sentence(error)})
        os._exit(1)
    runner.run(job, toolbox.Line(socket.socket(fileno=ends.code_line)))


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
    os.write(fd, json.dumps(what).encode() + b"\n")


def _sentence(error: BaseException) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} (in {place.name})"
