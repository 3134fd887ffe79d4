"""Spans that a server has stored in a second, beside MLflow and Arize Phoenix, each on SQLite, with the same spans in one run.

    python benchmarks/bench_otlp.py
    JOURNEYMAN_MLFLOW_PYTHON=… JOURNEYMAN_PHOENIX_PYTHON=… python benchmarks/bench_otlp.py --spans 20000

Peers run from virtual environments of their own: each variable names the Python of one. Without it the peer is left out, and
that is said. Stored means: there when the database file is counted from outside. A span is a chat call with two messages as the
GenAI conventions of 1.37 have it, about 1.5 KB; every tenth trace has nine of them below an agent's span.

Budget: 5,000 stored spans a second, under 100 MB.
"""

import argparse
import json
import os
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

BUDGET_RATE, BUDGET_MB = 5_000, 100
_BATCH = 500
_TEXT = "the order was sent to the wrong town and has to be called back before the van leaves the yard at noon today"


def spans(count: int, seed: int) -> Iterator[Span]:
    now, words = time.time_ns(), _TEXT.split()
    for number in range(count):
        trace, place = divmod(number, 10)
        text = " ".join(words[(number * 7 + word * (seed + 3)) % len(words)] for word in range(90))
        told = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-5-mini",
            "gen_ai.response.model": "gpt-5-mini-2025-08-07",
            "gen_ai.response.id": f"chatcmpl-{seed}-{number}",
            "gen_ai.usage.input_tokens": 210 + number % 50,
            "gen_ai.usage.output_tokens": 95,
            "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": text}]}]),
            "gen_ai.output.messages": json.dumps(
                [{"role": "assistant", "parts": [{"type": "text", "content": text[::-1]}], "finish_reason": "stop"}]
            ),
        } if place else {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}  # fmt: skip
        yield Span(
            trace_id=(seed << 64 | trace + 1).to_bytes(16, "big"),
            span_id=(seed << 32 | number + 1).to_bytes(8, "big"),
            parent_span_id=(seed << 32 | trace * 10 + 1).to_bytes(8, "big") if place else b"",
            name="chat gpt-5-mini" if place else "invoke_agent clerk",
            kind=Span.SPAN_KIND_CLIENT,
            start_time_unix_nano=now + number * 1_000_000,
            end_time_unix_nano=now + number * 1_000_000 + 900_000,
            attributes=[KeyValue(key=key, value=_value(value)) for key, value in told.items()],
        )


def _value(value: object) -> AnyValue:
    return AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=str(value))


def bodies(count: int, seed: int) -> list[bytes]:
    found = []
    waiting = list(spans(count, seed))
    for begin in range(0, count, _BATCH):
        request = ExportTraceServiceRequest()
        group = request.resource_spans.add()
        group.resource.attributes.add(key="service.name", value=AnyValue(string_value="bench"))
        group.scope_spans.add().spans.extend(waiting[begin : begin + _BATCH])
        found.append(request.SerializeToString())
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One to be measured."""

    name: str
    command: Callable[[int, Path], Sequence[str]]
    environment: Callable[[int, Path], Mapping[str, str]]
    headers: Mapping[str, str]
    database: str
    table: str
    ready: str
    python: str = ""


SERVERS = (
    Server(
        name="journeyman",
        command=lambda port, folder: [
            sys.executable, "-m", "journeyman", "serve", "--port", str(port), "--store", str(folder / "store.db"),
        ],
        environment=lambda port, folder: {},
        headers={},
        database="store.db",
        table="spans",
        ready="/health",
        python=sys.executable,
    ),
    Server(
        name="mlflow",
        command=lambda port, folder: [
            "-m", "mlflow", "server", "--port", str(port), "--workers", "1",
            "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "artifacts"),
        ],
        environment=lambda port, folder: {},
        headers={"x-mlflow-experiment-id": "0"},
        database="mlflow.db",
        table="spans",
        ready="/health",
        python=os.environ.get("JOURNEYMAN_MLFLOW_PYTHON", ""),
    ),
    Server(
        name="phoenix",
        command=lambda port, folder: ["-m", "phoenix.server.main", "serve"],
        environment=lambda port, folder: {
            "PHOENIX_PORT": str(port), "PHOENIX_GRPC_PORT": str(free_port()), "PHOENIX_WORKING_DIR": str(folder),
            "PHOENIX_SQL_DATABASE_URL": f"sqlite:///{folder}/phoenix.db", "PHOENIX_TELEMETRY_ENABLED": "false",
        },
        headers={},
        database="phoenix.db",
        table="spans",
        ready="/healthz",
        python=os.environ.get("JOURNEYMAN_PHOENIX_PYTHON", ""),
    ),
)  # fmt: skip


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def running(server: Server, folder: Path) -> Iterator[tuple[str, int]]:
    """The server's address and process id, once it answers."""
    port = free_port()
    command = [*([] if server.python == sys.executable else [server.python]), *server.command(port, folder)]
    environment = {**os.environ, **server.environment(port, folder)}
    log = (folder / "log").open("w")
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            if process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(url + server.ready, timeout=2):
                    break
            except OSError:
                time.sleep(0.2)
        else:
            raise SystemExit(f"{server.name} did not answer in time: {(folder / 'log').read_text()[-2000:]}")
        if process.poll() is not None:
            raise SystemExit(f"{server.name} ended: {(folder / 'log').read_text()[-2000:]}")
        yield url, process.pid
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        log.close()


def memory_mb(pid: int) -> float:
    """Of the process and its descendants, what is shared counted once."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            children.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
        except OSError:
            continue
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        waiting += children.get(one, [])
        try:
            text = Path(f"/proc/{one}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total / 1024


def stored(path: Path, table: str) -> int:
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5) as connection:
            return int(connection.execute(f"select count(*) from {table}").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def post(url: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Sent again where the server says that it is busy, as an exporter does."""
    request = urllib.request.Request(
        url + "/v1/traces", data=body, headers={"content-type": "application/x-protobuf", **headers}
    )
    for _ in range(100):
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                assert answer.status == 200, answer.status
                return
        except urllib.error.HTTPError as error:
            if error.code not in (429, 503):
                raise
            time.sleep(float(error.headers.get("retry-after") or 0.1))
    raise SystemExit("the server stayed busy")


def measured(server: Server, load: Sequence[bytes], count: int, patience: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="bench-otlp-") as name, running(server, Path(name)) as (url, pid):
        database = Path(name) / server.database
        post(url, bodies(10, seed=1)[0], server.headers)
        time.sleep(2)
        before, most, done = stored(database, server.table), memory_mb(pid), threading.Event()

        def watch() -> None:
            nonlocal most
            while not done.wait(0.25):
                most = max(most, memory_mb(pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        began = time.perf_counter()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda body: post(url, body, server.headers), load))
        acknowledged = time.perf_counter() - began
        while (kept := stored(database, server.table) - before) < count and time.perf_counter() - began < patience:
            time.sleep(0.02)
        seconds = time.perf_counter() - began
        done.set()
        watcher.join()
    return {
        "acknowledged_per_second": count / acknowledged,
        "stored": kept,
        "stored_per_second": kept / seconds,
        "memory_mb": most,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=20_000)
    parser.add_argument("--patience", type=float, default=240.0, help="seconds until a server is judged by what it has stored")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    load = bodies(arguments.spans, seed=2)
    size = sum(map(len, load)) / arguments.spans
    results = {}
    for server in SERVERS:
        if not server.python:
            print(f"{server.name}: left out, JOURNEYMAN_{server.name.upper()}_PYTHON is not set", file=sys.stderr)
            continue
        results[server.name] = measured(server, load, arguments.spans, arguments.patience)
        if not arguments.json:
            print(f"{server.name:11}", "  ".join(f"{key} {value:,.0f}" for key, value in results[server.name].items()))
    ours = results["journeyman"]
    kept = ours["stored_per_second"] >= BUDGET_RATE and ours["memory_mb"] < BUDGET_MB and ours["stored"] == arguments.spans
    if arguments.json:
        print(json.dumps({"bytes_per_span": size, "results": results, "within_budget": kept}))
    else:
        print(f"{size:,.0f} bytes a span; budget {BUDGET_RATE:,} a second under {BUDGET_MB} MB: {'kept' if kept else 'missed'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
