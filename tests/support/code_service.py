"""The code service on loopback: in a thread for what it answers, as a process for how it lives and dies."""

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from journeyman.io.http_server import listen
from journeyman.sandbox.base import Sandbox
from journeyman.sandbox.service.app import SandboxServer, Service
from journeyman.sandbox.service.state import ServiceConfig
from journeyman.sandbox.supervised import Unsafe

CONFIG = ServiceConfig(concurrency=2, queue=8)


CLIENT = httpx2.Client(timeout=30, trust_env=False, limits=httpx2.Limits(max_keepalive_connections=0))
"""One for all tests: to make one costs more than most requests."""
SLEEP = {"code": "import time; time.sleep(60)"}


@dataclass(frozen=True, slots=True)
class Running:
    """A service that answers."""

    url: str
    service: Service
    lines: list[socket.socket] = field(default_factory=list)

    def post(self, path: str, body: Any, **more: Any) -> httpx2.Response:
        return CLIENT.post(self.url + path, json=body, **more)

    def get(self, path: str, **more: Any) -> httpx2.Response:
        return CLIENT.get(self.url + path, **more)

    def connect(self) -> socket.socket:
        """Closed with the service, at the latest."""
        host = urlsplit(self.url)
        self.lines.append(socket.create_connection((host.hostname, host.port), timeout=10))
        return self.lines[-1]

    def ask(self, body: Any = SLEEP, *, path: str = "/execute", token: str = "") -> socket.socket:
        """Ask without waiting for the answer. Whoever closes the socket hangs up."""
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        )
        line = self.connect()
        line.sendall(f"{head}Authorization: Bearer {token}\r\n\r\n".encode() + content)
        return line


def eventually(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether it holds within so many seconds."""
    until = time.monotonic() + seconds
    while not holds() and time.monotonic() < until:
        time.sleep(0.02)
    return holds()


@contextmanager
def in_thread(sandbox: Sandbox | None = None, **settings: Any) -> Iterator[Running]:
    """A service with a loop of its own. Not for tests of signals, which are the process's."""
    bound = listen("127.0.0.1", 0)
    ready = threading.Event()
    box = sandbox or Unsafe()
    service = Service(box, replace(CONFIG, **settings))
    server = SandboxServer(service, ready.set)

    async def serve() -> None:
        await box.start()
        await server.serve(sockets=[bound])
        await service.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(30)
    running = Running(f"http://127.0.0.1:{bound.getsockname()[1]}", service)
    try:
        yield running
    finally:
        for line in running.lines:
            line.close()
        eventually(lambda: service.gate.empty)
        # Twice: a test that failed may have left something that runs.
        server.handle_exit(signal.SIGTERM, None)
        server.handle_exit(signal.SIGTERM, None)
        thread.join(timeout=30)
        bound.close()
    assert not thread.is_alive()


@dataclass(frozen=True, slots=True)
class Process:
    """A service of its own."""

    url: str
    popen: subprocess.Popen[str]
    log: Path

    @property
    def pid(self) -> int:
        return self.popen.pid

    def tell(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


@contextmanager
def process(
    folder: Path, *options: str, sandbox: str = "unsafe-local", env: Mapping[str, str] | None = None
) -> Iterator[Process]:
    """`journeyman sandbox serve` on a free port. What it says on stderr is in a file of the folder."""
    log = folder / "service.log"
    command = [sys.executable, "-m", "journeyman", "sandbox", "serve", "--port", "0", "--json", "--sandbox", sandbox, *options]
    with (
        log.open("w") as said,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, env={**os.environ, **(env or {})}) as popen,
    ):
        try:
            assert popen.stdout is not None
            assert select.select([popen.stdout], [], [], 60)[0], log.read_text()
            line = popen.stdout.readline()
            assert line, log.read_text()
            yield Process(json.loads(line)["url"], popen, log)
        finally:
            popen.kill()
            popen.wait(timeout=30)
