"""A foreign agent in its sandbox: its command, and on loopback the only server that it can reach, its model.

There is no network here. Each request is handed to the host piece by piece, and so is its answer, as soon as it comes.
"""

import base64
import os
import shlex
import stat
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PIECE = 256 * 1024
"""Bytes of a body that are handed over at once: messages to the host have an end."""
STAND_IN = "journeyman"
"""The key that the agent is given. The real one stays on the host."""

Call = Callable[..., Any]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    call: Call

    def do_POST(self) -> None:
        """Hand the request over, and what comes back."""
        number = self.call(op="begin", method=self.command, path=self.path)
        try:
            for piece in self._body():
                self.call(op="send", id=number, data=base64.b64encode(piece).decode())
            answer = self.call(op="answer", id=number)
            self.send_response(answer["status"])
            for name, value in answer["headers"].items():
                self.send_header(name, value)
            # Its end is where the connection ends: how long it will be is not known before.
            self.send_header("Connection", "close")
            self.end_headers()
            while data := self.call(op="read", id=number):
                self.wfile.write(base64.b64decode(data))
                self.wfile.flush()
        finally:
            self.close_connection = True
            self.call(op="end", id=number)

    do_GET = do_POST

    def _body(self) -> Any:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            return
        left = int(self.headers.get("Content-Length") or 0)
        while left > 0 and (piece := self.rfile.read(min(PIECE, left))):
            left -= len(piece)
            yield piece

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody is told: what the agent says is on the same stream."""


def run(call: Call, job: Mapping[str, Any]) -> int:
    """Serve, run the command to its end, and give its exit code.

    Args:
        call: The host's tool.
        job: command, place, statement, model, homes (folders of the agent's own Python), roots (of the repository's modules).
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"call": staticmethod(call)}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place, told = Path(job["place"]).resolve(), Path("TASK.md").resolve()
    told.write_text(job["statement"], encoding="utf-8")
    words = {"workspace": str(place), "task": job["statement"], "task_file": str(told), "model": job["model"]}
    command = job["command"]
    for name, word in words.items():
        command = command.replace("{%s}" % name, shlex.quote(word))  # noqa: UP031 - braces that mean themselves
    surroundings = _environment(job, place, server.server_address[1])
    with told.open("rb") as statement:
        done = subprocess.run(["/bin/sh", "-c", command], cwd=place, stdin=statement, env=surroundings, check=False)
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def _environment(job: Mapping[str, Any], place: Path, port: int) -> dict[str, str]:
    address = f"http://127.0.0.1:{port}"
    own, *others = os.environ["PATH"].split(os.pathsep)
    return {
        **os.environ,
        "PATH": os.pathsep.join([own, _scripts(job["homes"]), *others]),
        "PYTHONPATH": os.pathsep.join(str(place / root) for root in job["roots"]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_BASE": f"{address}/v1",
        "OPENAI_API_KEY": STAND_IN,
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": STAND_IN,
        "JOURNEYMAN_MODEL": job["model"],
        "JOURNEYMAN_WORKSPACE": str(place),
    }


def _scripts(homes: Sequence[str]) -> str:
    """A folder with a starter for each script of the agent's own Python.

    The scripts name a Python that may lie elsewhere here. Theirs is isolated, so that modules of the repository do not take the
    place of those that the agent is built on.
    """
    folder = Path("bin").resolve()
    folder.mkdir()
    for home in filter(Path.is_dir, map(Path, homes)):
        for path in sorted((home / "bin").iterdir()):
            starter = folder / path.name
            if path.is_file() and not path.is_symlink() and _is_python(path) and not starter.exists():
                started = f"{shlex.quote(str(home / 'bin/python'))} -I {shlex.quote(str(path))}"
                starter.write_text(f'#!/bin/sh\nexec {started} "$@"\n', encoding="utf-8")
                starter.chmod(stat.S_IRWXU)
    return str(folder)


def _is_python(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(512)
    return first.startswith(b"#!") and b"python" in first
