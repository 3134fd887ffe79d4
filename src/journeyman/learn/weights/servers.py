"""Servers that outlive the command that started them: a file for each, in a folder of the project."""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from journeyman.learn.playbook.files import write_text
from journeyman.learn.weights.llamacpp import Served, terminate


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A server that was left running."""

    model: str
    url: str
    pid: int
    started: str | None
    """When its process began, in the system's own count: another process may have its number by now. `None` where not told."""
    gguf: str
    log: str

    @property
    def runs(self) -> bool:
        began = _start_time(self.pid)
        return began is not None and self.started in (None, began)


def keep(served: Served, gguf: Path, folder: Path) -> RunningServer:
    """Note a server, so that `stop` finds it.

    Raises:
        InputError: The folder cannot be written.
    """
    server = RunningServer(
        model=served.model,
        url=served.url,
        pid=served.pid,
        started=_start_time(served.pid),
        gguf=str(gguf.resolve()),
        log=str(served.log),
    )
    write_text(_record_path(folder, served.model), json.dumps(asdict(server)) + "\n")
    return server


def running(folder: Path) -> Iterator[RunningServer]:
    """The servers of a folder that run, by name. What is left of those that ended is cleared away."""
    for path in sorted(folder.glob("*.json")):
        server = _read(path)
        if server is not None and server.runs:
            yield server
        else:
            path.unlink(missing_ok=True)


def stop(folder: Path, model: str) -> RunningServer | None:
    """End a server; `None` when there is none of that name that runs."""
    server = next((each for each in running(folder) if each.model == model), None)
    if server is not None:
        terminate(server.pid, lambda: not server.runs)
        _record_path(folder, model).unlink(missing_ok=True)
    return server


def _record_path(folder: Path, model: str) -> Path:
    return folder / f"{re.sub(r'[^A-Za-z0-9_.-]', '-', model)}.json"


def _read(path: Path) -> RunningServer | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        server = RunningServer(**json.loads(path.read_text(encoding="utf-8")))
        # 0 and below mean groups of processes, ours among them.
        return server if isinstance(server.pid, int) and server.pid > 1 else None
    return None


def _start_time(pid: int) -> str | None:
    """When a process began; `None` when there is none of that number, or only what its parent has yet to bury."""
    with contextlib.suppress(OSError):
        # The name stands in brackets and may hold anything: what follows it is counted from the last one.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    if Path("/proc/self/stat").exists():
        return None
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, 0)
        return "unknown"
    return None
