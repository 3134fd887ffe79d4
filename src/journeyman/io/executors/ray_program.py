"""A program on a machine of a Ray cluster, as though it ran here.

    python -m journeyman.io.executors.ray_program ray:ADDRESS [--processes N] [--gpus N] -- -m MODULE … FOLDER

It starts where the cluster has room. What it says is said here, and its exit code is this one's. Its folder, the last argument,
must be one that all machines share. When standard input is closed here, or SIGTERM or SIGINT comes, that of the program is
closed, which it may take for a word to stop; when this process is killed, Ray ends the program.
"""

import argparse
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import ray

from journeyman.core.errors import JourneymanError
from journeyman.io.executors.ray import RayWorkers

_POLL = 0.2
_UNUSABLE, _FAILED = 2, 1


class _Program:
    """In an actor, there: the program in a process of its own."""

    def __init__(self, arguments: Sequence[str], folder: str, environment: Mapping[str, str]) -> None:
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        if not Path(arguments[-1]).is_dir():
            raise FileNotFoundError(f"{arguments[-1]} is not there on {socket.gethostname()}")
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
            cwd=folder if Path(folder).is_dir() else None,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def look(self) -> tuple[list[str], int | None]:
        """What it has said since the last look, and its exit code once it has ended and all is said."""
        code = self._process.poll() if not self._reader.is_alive() else None
        lines = []
        while not self._lines.empty():
            lines.append(self._lines.get())
        return lines, code

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._process.wait()


def main(argv: Sequence[str]) -> int:
    at = list(argv).index("--")
    parser = argparse.ArgumentParser(prog="journeyman.io.executors.ray_program")
    parser.add_argument("workers")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--environment", action="append", default=[], metavar="NAME")
    options = parser.parse_args(argv[:at])
    stop = _stop_requested()
    try:
        with RayWorkers(options.workers.partition(":")[2]):
            return _follow(_begin(options, argv[at + 1 :]), stop)
    except ray.exceptions.ActorDiedError as error:
        return _unusable(error)
    except (JourneymanError, ray.exceptions.RayError) as error:
        sys.stderr.write(f"journeyman: the Ray cluster lost it: {' '.join(str(error).split())}\n")
        return _FAILED


def _unusable(error: Exception) -> int:
    """The folder is not there, or the machine that the program was on is gone."""
    missing = re.search(r"FileNotFoundError: (.* is not there on .*)", str(error))
    if missing is None:
        sys.stderr.write("journeyman: the machine of the Ray cluster that it ran on is gone\n")
        return _FAILED
    sys.stderr.write(f"journeyman: {missing[1]}: put the project into a folder that all machines of the cluster share\n")
    return _UNUSABLE


def _begin(options: argparse.Namespace, arguments: Sequence[str]) -> Any:
    resources = ray.cluster_resources()
    gpus = options.gpus if options.gpus is not None else int(resources.get("GPU", 0) > 0)
    for name, needed in (("CPU", options.processes), ("GPU", gpus)):
        if resources.get(name, 0) < needed:
            sys.stderr.write(f"waiting for {needed} {name} of the cluster, which has {resources.get(name, 0):.0f}\n")
    environment = {name: os.environ[name] for name in options.environment if name in os.environ}
    actor = ray.remote(_Program).options(num_cpus=options.processes, num_gpus=gpus)
    return actor.remote(list(arguments), str(Path.cwd()), environment)


def _follow(program: Any, stop: threading.Event) -> int:
    """Its exit code. It has as long as it takes; a signal ends the wait."""
    stopped = False
    while True:
        if stop.is_set() and not stopped:
            ray.get(program.stop.remote())
            stopped = True
        lines, code = ray.get(program.look.remote())
        for line in lines:
            sys.stdout.write(line)
        sys.stdout.flush()
        if code is not None:
            return int(code if code >= 0 else 128 - code)
        time.sleep(_POLL)


def _stop_requested() -> threading.Event:
    stop = threading.Event()

    def told(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    def closed() -> None:
        with suppress(OSError):
            while os.read(sys.stdin.fileno(), 1):
                pass
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, told)
    threading.Thread(target=closed, name="parent", daemon=True).start()
    return stop


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
