"""What the gateway costs, with recording on: beside the upstream itself, and beside LiteLLM's proxy in the same run.

    python -m benchmarks.bench_gateway
    python -m benchmarks.bench_gateway --requests 100000 --connections 32 --json
    JOURNEYMAN_LITELLM_PYTHON=/path/to/venv/bin/python python -m benchmarks.bench_gateway

Once as it is by itself, and once with `--durable`, where an answer's end waits for its record.

The upstream, the load and the gateway are processes of their own. Every request is a conversation of its own. CPU and memory
are of the gateway and the process that records for it, as /proc tells, until all is in the store.
"""

import argparse
import asyncio
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import httptools
import uvloop

from journeyman.io.http_server import listen

LITELLM = "JOURNEYMAN_LITELLM_PYTHON"
_TICKS = os.sysconf("SC_CLK_TCK")
_EVENTS = 40


class Answers(asyncio.Protocol):
    """A model server that costs next to nothing."""

    numbers = itertools.count()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        number = next(self.numbers)
        self._transport.write(_stream(number) if b'"stream": true' in body else _completion(number))


def _completion(number: int) -> bytes:
    message = {"role": "assistant", "content": f"answer {number}: " + "and so on " * 25}
    body = json.dumps(
        {
            "id": f"chatcmpl-{number}", "object": "chat.completion", "created": 1, "model": "test",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 70, "completion_tokens": 30, "total_tokens": 100},
        }
    ).encode()  # fmt: skip
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def _stream(number: int) -> bytes:
    said = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    for piece in range(_EVENTS):
        delta = {"index": 0, "delta": {"content": f"word {piece} "}}
        chunk = {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "test",
            "choices": [delta],
        }
        event = b"data: " + json.dumps(chunk).encode() + b"\n\n"
        said += b"%x\r\n%b\r\n" % (len(event), event)
    return said + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class Load(asyncio.Protocol):
    """One connection that asks again as soon as it is answered."""

    def __init__(self, run: "Run") -> None:
        self._run = run

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def _ask(self) -> None:
        if (number := next(self._run.numbers)) >= self._run.requests:
            return
        content = f"question {self._run.mark} {number}: " + "tell me more " * 45
        body = json.dumps(
            {"model": "test", "messages": [{"role": "user", "content": content}], "stream": self._run.stream}
        ).encode()
        self._parser = httptools.HttpResponseParser(self)
        self._began = time.perf_counter()
        self._transport.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer sk-none\r\n"
            b"user-agent: OpenAI/Python\r\nx-stainless-lang: python\r\naccept: application/json\r\n"
            b"content-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b" % (self._run.session(number), len(body), body)
        )

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        assert self._parser.get_status_code() == 200, self._parser.get_status_code()
        self._run.seconds.append(time.perf_counter() - self._began)
        if len(self._run.seconds) == self._run.requests:
            self._run.done.set_result(None)
        asyncio.get_running_loop().call_soon(self._ask)


class Run:
    def __init__(self, requests: int, *, stream: bool, sessions: int = 0) -> None:
        """
        Args:
            sessions: Among which the requests are spread; 0 is a new one for each, without a name.
        """
        self.requests, self.stream, self.sessions = requests, stream, sessions
        self.numbers = itertools.count()
        self.seconds: list[float] = []
        self.mark = f"{os.getpid()} {time.time_ns()}"
        self.done: asyncio.Future[None]

    def session(self, number: int) -> bytes:
        return b"x-journeyman-session: s%d\r\n" % (number % self.sessions) if self.sessions else b""

    async def over(self, port: int, connections: int) -> dict[str, float]:
        loop = asyncio.get_running_loop()
        self.done = loop.create_future()
        began = time.perf_counter()
        for _ in range(connections):
            await loop.create_connection(lambda: Load(self), "127.0.0.1", port)
        await asyncio.wait_for(self.done, 600)
        wall = time.perf_counter() - began
        ordered = sorted(self.seconds)
        return {
            "per_second": self.requests / wall,
            "p50_ms": 1000 * statistics.median(ordered),
            "p99_ms": 1000 * ordered[int(0.99 * len(ordered))],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One server under one load."""

    server: str
    connections: int
    stream: bool
    per_second: float
    p50_ms: float
    p99_ms: float
    added_p50_ms: float
    """To the upstream asked alone, in the same run."""
    cpu_ms: float
    """Of each request: the server's and its children's, until all is recorded."""
    memory_mb: float
    """Of all its processes, pages that they share counted once."""


@contextmanager
def started(*command: str, cwd: str | None = None, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def family(pid: int) -> list[int]:
    children = " ".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return [pid, *(each for child in map(int, children.split()) for each in family(child))]


def cpu_seconds(pid: int) -> float:
    fields = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split() for each in family(pid)]
    return sum(int(each[11]) + int(each[12]) for each in fields) / _TICKS


def memory_mb(pid: int) -> float:
    rolled = [Path(f"/proc/{each}/smaps_rollup").read_text() for each in family(pid)]
    return sum(int(text.split("\nPss:")[1].split()[0]) for text in rolled) / 1024


def fetched(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.loads(answer.read() or b"null")


def free_port() -> int:
    with listen("127.0.0.1", 0) as bound:
        return int(bound.getsockname()[1])


def wait_for(url: str, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            fetched(url)
        except (OSError, ValueError):
            time.sleep(0.2)
        else:
            return
    raise SystemExit(f"{url} did not answer within {seconds:g} s")


def recorded(port: int) -> None:
    """Wait until nothing waits for the store."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        intake = fetched(f"http://127.0.0.1:{port}/health")["intake"]
        assert not intake["dropped"], intake
        if not intake["waiting"] and not intake["spilled"]:
            return
        time.sleep(0.2)
    raise SystemExit("the store did not keep up")


def load(port: int, requests: int, connections: int, *, stream: bool, sessions: int = 0) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.bench_gateway", "--load", str(port)]
    command += ["--requests", str(requests), "--connections", str(connections), *(["--stream"] if stream else [])]
    command += ["--sessions", str(sessions)]
    return dict(json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout))


def measured(server: str, pid: int, port: int, alone: int, options: argparse.Namespace) -> Iterator[Figures]:
    share = options.requests if server != "litellm" else max(50, options.requests // 20)
    load(port, max(50, share // 20), 4, stream=False)
    for stream, connections in itertools.product((False, True), options.connections):
        requests = share // 4 if stream else share
        direct = load(alone, requests, connections, stream=stream)
        if server != "litellm":
            recorded(port)
        before = cpu_seconds(pid)
        told = load(port, requests, connections, stream=stream)
        if server != "litellm":
            recorded(port)
        figures = Figures(
            server=server, connections=connections, stream=stream, **told, added_p50_ms=told["p50_ms"] - direct["p50_ms"],
            cpu_ms=1000 * (cpu_seconds(pid) - before) / requests, memory_mb=memory_mb(pid),
        )  # fmt: skip
        print(shown(figures), file=sys.stderr, flush=True)
        yield figures


@contextmanager
def journeyman(upstream: int, *options: str, prepared: Callable[[Path], None] | None = None) -> Iterator[tuple[int, int]]:
    """
    Args:
        prepared: Called with the folder that it will run in.
    """
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        if prepared is not None:
            prepared(Path(folder))
        command = [sys.executable, "-m", "journeyman", "serve", "--port", str(port), "--no-pages", *options]
        with started(*command, "--upstream", f"up=http://127.0.0.1:{upstream}/v1", cwd=folder) as process:
            wait_for(f"http://127.0.0.1:{port}/health")
            yield process.pid, port


@contextmanager
def litellm(python: str, upstream: int) -> Iterator[tuple[int, int]]:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        params = {"model": "openai/test", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "sk-none"}
        config.write_text(json.dumps({"model_list": [{"model_name": "test", "litellm_params": params}]}))
        command = [python, "-m", "litellm.proxy.proxy_cli", "--config", str(config), "--port", str(port), "--host", "127.0.0.1"]
        # It wants a key of its own unless it is told that this is a test.
        open_to_all = {"LITELLM_LOG": "ERROR", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
        with started(*command, cwd=folder, env={**os.environ, **open_to_all}) as process:
            wait_for(f"http://127.0.0.1:{port}/health/liveliness")
            yield process.pid, port


def compared(options: argparse.Namespace) -> list[Figures]:
    upstream = free_port()
    figures: list[Figures] = []
    with ExitStack() as stack:
        stack.enter_context(started(sys.executable, "-m", "benchmarks.bench_gateway", "--answer", str(upstream)))
        time.sleep(2)
        with journeyman(upstream) as (pid, port):
            figures += measured("journeyman", pid, port, upstream, options)
        with journeyman(upstream, "--durable") as (pid, port):
            figures += measured("durable", pid, port, upstream, options)
        if python := os.environ.get(LITELLM):
            with litellm(python, upstream) as (pid, port):
                figures += measured("litellm", pid, port, upstream, options)
        else:
            print(f"litellm: skipped, {LITELLM} names no python that has litellm[proxy]", file=sys.stderr)
    return figures


def shown(each: Figures) -> str:
    return (
        f"{each.server:10} {'stream' if each.stream else 'whole':6} {each.connections:3} connections "
        f"{each.per_second:7.0f}/s  p50 {each.p50_ms:6.2f} ms (+{each.added_p50_ms:.2f})  p99 {each.p99_ms:7.2f} ms  "
        f"CPU {each.cpu_ms:5.2f} ms  {each.memory_mb:4.0f} MB"
    )


async def answering(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Answers, "127.0.0.1", port)
    await server.serve_forever()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--answer", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--load", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--stream", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--sessions", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        uvloop.run(answering(options.answer))
    if options.load:
        run = Run(options.requests, stream=options.stream, sessions=options.sessions)
        print(json.dumps(uvloop.run(run.over(options.load, options.connections[0]))))
        return 0
    figures = compared(options)
    ours = [each for each in figures if each.server == "journeyman" and not each.stream]
    within = all(each.per_second >= 1000 and each.cpu_ms < 1 and each.memory_mb < 150 for each in ours)
    within = within and all(each.added_p50_ms < 1.5 for each in ours if each.connections == 1)
    if options.json:
        print(json.dumps({"figures": [asdict(each) for each in figures], "passed": within}))
        return 0 if within else 1
    print(f"budget: 1,000/s, 1.5 ms added and 1 ms CPU a request, 150 MB: {'kept' if within else 'broken'}")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
