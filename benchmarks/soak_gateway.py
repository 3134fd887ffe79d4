"""Ten minutes of a gateway with faults: does it leak, and is anything that it acknowledged lost?

    python -m benchmarks.soak_gateway
    python -m benchmarks.soak_gateway --minutes 2 --json

Faults, all the time and in turns: the upstream cuts answers, answers 500 and 429, and is restarted; clients hang up in the
middle of streams; the store is locked by another process for seconds; and once, half way, the gateway is killed with -9 and
started again. OTLP batches are sent beside it, and what was acknowledged is counted in the store at the end.

Exit code 1 when an acknowledged span is missing, when memory or open files grew, or when a client waited for ever.
"""

import argparse
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.bench_otlp import bodies, free_port, memory_mb, post

_GROWTH_MB = 40
_SPANS = 50


class Upstream(BaseHTTPRequestHandler):
    """A model server on a bad day."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length") or 0)
        asked = json.loads(self.rfile.read(size))
        fate = random.random()
        if fate < 0.05:
            self._answer(random.choice([429, 500, 503]), b'{"error": {"message": "a bad day"}}', "application/json")
        elif asked.get("stream"):
            self._stream(cut=fate < 0.15)
        else:
            message = {"role": "assistant", "content": f"answer to {asked['messages'][-1]['content']}"}
            told = {
                "id": f"chatcmpl-{random.getrandbits(64):x}",
                "object": "chat.completion",
                "model": asked["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25},
            }
            self._answer(200, json.dumps(told).encode(), "application/json")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, *, cut: bool) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        id = f"chatcmpl-{random.getrandbits(64):x}"
        for number in range(20):
            delta = {"id": id, "model": "m", "choices": [{"index": 0, "delta": {"content": f"piece {number} "}}]}
            event = f"data: {json.dumps(delta)}\n\n".encode()
            self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
            if cut and number == 10:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            time.sleep(0.002)
        self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that hung up is no news here."""


@contextmanager
def upstream(port: int) -> Iterator[None]:
    server = _Quiet(("127.0.0.1", port), Upstream)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class Gateway:
    """The process, which may be killed and started again on the same store."""

    def __init__(self, folder: Path, upstream_port: int) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = (folder / "log").open("a")
        self._command = [
            sys.executable, "-m", "journeyman", "serve", "--port", str(self.port), "--store", str(folder / "store.db"),
            "--upstream", f"local=http://127.0.0.1:{upstream_port}/v1",
        ]  # fmt: skip
        self._folder = folder
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, cwd=self._folder, stdout=self._log, stderr=self._log)
        for _ in range(300):
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=2):
                    return
            except OSError:
                time.sleep(0.1)
        raise SystemExit("the gateway did not answer in time")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=60)
        finally:
            self._log.close()

    @property
    def files(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())


@dataclass(slots=True)
class Watch:
    """What the clients saw."""

    counts: Counter[str] = field(default_factory=Counter)
    acknowledged: set[int] = field(default_factory=set)
    stop: threading.Event = field(default_factory=threading.Event)


def chat(gateway: Gateway, watch: Watch, number: int) -> None:
    """One client: conversations of some turns, half of them streamed, some hung up in the middle."""
    chance = random.Random(number)
    while not watch.stop.is_set():
        said = [{"role": "user", "content": f"{number} {chance.random()}"}]
        for _ in range(3):
            stream = chance.random() < 0.5
            body = json.dumps({"model": "m", "messages": said, "stream": stream}).encode()
            request = urllib.request.Request(
                gateway.url + "/v1/chat/completions",
                data=body,
                headers={"content-type": "application/json", "authorization": "Bearer soak"},
            )
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    text = answer.read(200) if stream and chance.random() < 0.1 else answer.read()
                watch.counts["answered"] += 1
                said += [{"role": "assistant", "content": text[:50].decode()}, {"role": "user", "content": "go on"}]
            except TimeoutError:
                watch.counts["waited for ever"] += 1
            except urllib.error.HTTPError as error:
                watch.counts[f"status {error.code}"] += 1
            except OSError:
                watch.counts["broken off"] += 1
                time.sleep(0.05)
            except Exception as error:  # noqa: BLE001 - http.client's own words for a cut answer
                watch.counts[type(error).__name__] += 1


def report(gateway: Gateway, watch: Watch, first: int) -> None:
    """One exporter: batches, each with a number of its own, remembered once they were acknowledged."""
    number = first
    while not watch.stop.is_set():
        number += 2
        body = bodies(_SPANS, seed=number)[0]
        while not watch.stop.is_set():
            try:
                post(gateway.url, body, {})
                watch.acknowledged.add(number)
                watch.counts["batches"] += 1
                break
            except (OSError, SystemExit):
                watch.counts["batches sent again"] += 1
                time.sleep(0.1)


def lock(path: Path, watch: Watch) -> None:
    """Another process's long transaction."""
    while not watch.stop.wait(20):
        try:
            with sqlite3.connect(path, timeout=1, isolation_level=None) as connection:
                connection.execute("begin immediate")
                time.sleep(4)
                connection.execute("rollback")
            watch.counts["locks"] += 1
        except sqlite3.OperationalError:
            watch.counts["locks not taken"] += 1


def soak(minutes: float) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder, port, watch = Path(name), free_port(), Watch()
        gateway = Gateway(folder, port)
        threads = [threading.Thread(target=chat, args=(gateway, watch, number)) for number in range(8)]
        threads += [threading.Thread(target=report, args=(gateway, watch, first)) for first in (2, 3)]
        threads.append(threading.Thread(target=lock, args=(folder / "store.db", watch)))
        for thread in threads:
            thread.start()
        marks: list[tuple[float, int]] = []
        began, killed = time.monotonic(), False
        while time.monotonic() - began < 60 * minutes:
            with upstream(port):
                time.sleep(13)
                marks.append((memory_mb(gateway.process.pid), gateway.files))
            time.sleep(1)
            if not killed and time.monotonic() - began > 30 * minutes:
                gateway.kill()
                gateway.start()
                killed, marks = True, []
        watch.stop.set()
        for thread in threads:
            thread.join(timeout=90)
        hung = sum(thread.is_alive() for thread in threads)
        code = gateway.stop()
        with sqlite3.connect(folder / "store.db") as connection:
            kept = int(connection.execute("select count(*) from spans").fetchone()[0])
            traces = int(connection.execute("select count(*) from traces").fetchone()[0])
            sound = connection.execute("pragma integrity_check").fetchone()[0]
    half = len(marks) // 2
    memory = [mark[0] for mark in marks]
    return {
        "clients": dict(watch.counts),
        "acknowledged_spans": len(watch.acknowledged) * _SPANS,
        "stored_spans": kept,
        "traces": traces,
        "integrity": sound,
        "memory_mb": [round(value, 1) for value in memory],
        "growth_mb": round(max(memory[half:], default=0) - max(memory[:half], default=0), 1),
        "open_files": [mark[1] for mark in marks],
        "hung_threads": hung,
        "exit_code": code,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = soak(arguments.minutes)
    counts = found["clients"]
    assert isinstance(counts, dict)
    lost = int(str(found["acknowledged_spans"])) > int(str(found["stored_spans"]))
    sound = (
        not lost
        and found["integrity"] == "ok"
        and not counts.get("waited for ever")
        and not found["hung_threads"]
        and float(str(found["growth_mb"])) < _GROWTH_MB
        and found["exit_code"] == 0
    )
    if arguments.json:
        print(json.dumps({**found, "sound": sound}))
    else:
        for key, value in found.items():
            print(f"{key:20} {value}")
        print("sound" if sound else "NOT sound")
    return 0 if sound else 1


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
