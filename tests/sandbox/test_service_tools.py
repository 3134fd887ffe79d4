"""Tool calls through the code service: over the same exchange, and by callback."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

from journeyman.cli.sandbox import callback_host as allowed
from journeyman.core.errors import InputError
from journeyman.sandbox.remote import Faults
from journeyman.sandbox.service.state import address_of
from tests.support.code_service import Running, eventually, in_thread

pytestmark = pytest.mark.service

CALL = "try:\n    print(tools.add(1, b=2))\nexcept Exception as error:\n    print(type(error).__name__, error)"
ASKED = {"code": CALL, "tools": [{"name": "add", "description": "Adds.", "schema": {"type": "object"}}]}


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with in_thread(tool_seconds=1.0) as running:
        yield running


def exchange(running: Running, body: dict[str, Any], *answers: dict[str, Any]) -> list[dict[str, Any]]:
    """The events, with each tool call answered in turn."""
    events: list[dict[str, Any]] = []
    left = list(answers)
    with httpx2.stream("POST", running.url + "/execute", json=body, timeout=30) as response:
        assert response.headers["content-type"] == "application/x-ndjson"
        for line in response.iter_lines():
            events.append(json.loads(line))
            if "tool_call" in events[-1] and left:
                where = f"/executions/{events[0]['execution']['id']}/tools/{events[-1]['tool_call']['id']}"
                assert running.post(where, left.pop(0)).status_code == 204
                assert running.post(where, {"value": "again"}).status_code == 404
    return events


def test_a_tool_call_goes_out_and_its_value_comes_back_into_the_code(running: Running) -> None:
    first, call, last = exchange(running, ASKED, {"value": {"sum": [3, None, "é"]}})
    assert call["tool_call"]["name"] == "add"
    assert call["tool_call"]["arguments"] == {"0": 1, "b": 2}
    assert last["outcome"]["stdout"] == "{'sum': [3, None, 'é']}\n"
    assert len(first["execution"]["id"]) >= 20


def test_a_tool_that_failed_raises_in_the_code(running: Running) -> None:
    assert exchange(running, ASKED, {"error": "no such number"})[-1]["outcome"]["stdout"] == "ToolError no such number\n"


def test_a_long_chain_of_calls_is_one_exchange(running: Running) -> None:
    body = {**ASKED, "code": "total = 0\nfor i in range(50):\n    total += tools.add(i)\nprint(total)"}
    events = exchange(running, body, *({"value": number} for number in range(50)))
    assert events[-1]["outcome"]["stdout"] == f"{sum(range(50))}\n"


def test_a_call_that_nobody_answers_is_an_error_in_the_code_in_time(running: Running) -> None:
    said = exchange(running, ASKED)[-1]["outcome"]
    assert said["stdout"] == "ToolError add: the caller did not answer within 1 s\n"
    assert 'tool_calls_total{outcome="timeout"}' in running.service.metrics.text()


def test_a_value_needs_the_call_and_its_execution(running: Running) -> None:
    assert running.post("/executions/nope/tools/1", {"value": 1}).status_code == 404


def test_a_client_that_vanishes_in_a_tool_call_ends_the_run(running: Running) -> None:
    line = running.ask({**ASKED, "limits": {"wall_seconds": 60}, "code": "import time\nwhile True:\n    time.sleep(.1)"})
    assert eventually(lambda: running.service.gate.running == 1)
    line.close()
    assert eventually(lambda: running.service.gate.empty)


def test_sessions_call_tools_too(running: Running) -> None:
    id = running.post("/sessions", {}).json()["id"]
    running.post(f"/sessions/{id}/execute", {"code": "x = 40"})
    with httpx2.stream(
        "POST", f"{running.url}/sessions/{id}/execute", json={**ASKED, "code": "x + tools.add(2)"}, timeout=30
    ) as response:
        lines = response.iter_lines()
        execution = json.loads(next(lines))["execution"]["id"]
        call = json.loads(next(lines))["tool_call"]["id"]
        running.post(f"/executions/{execution}/tools/{call}", {"value": 2})
        assert json.loads(next(lines))["outcome"]["stdout"] == "42\n"


@contextmanager
def tools_at(status: int, body: bytes, headers: dict[str, str] | None = None) -> Iterator[tuple[str, list[Any]]]:
    """A place on loopback that answers every post so; what it was asked is kept."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "http://169.254.169.254/latest", "http://localhost:8002/execute"])
def test_no_callback_leaves_unless_the_operator_named_its_place(running: Running, url: str) -> None:
    answer = running.post("/execute", {**ASKED, "callback_url": url})
    assert answer.status_code == 403
    assert "--callback-host" in answer.json()["error"]


@pytest.mark.parametrize("url", ["ftp://h/", "file:///etc/passwd", "http://", "http://u:p@h:1/", "http://h:99999/", "//h", "x"])
def test_a_callback_that_is_no_http_address_is_refused(url: str) -> None:
    with pytest.raises(Faults):
        address_of(url)


@pytest.mark.parametrize(
    ("url", "there"),
    [("http://A.example/x", "a.example:80"), ("https://a.example", "a.example:443"), ("http://[::1]:7/", "[::1]:7")],
)
def test_a_place_is_a_host_and_a_port(url: str, there: str) -> None:
    assert address_of(url) == there == allowed(there)


@pytest.mark.parametrize("typed", ["a.example", "http://a.example:80", ":80", "a.example:x"])
def test_a_place_that_is_none_is_said_before_the_service_starts(typed: str) -> None:
    with pytest.raises(InputError, match="host:port"):
        allowed(typed)


@pytest.mark.parametrize(
    ("status", "body", "headers", "stdout"),
    [
        (200, b'{"value": 3}', {}, "3\n"),
        (200, b'{"error": "no"}', {}, "ToolError no\n"),
        (500, b"", {}, "ToolError the callback answered 500\n"),
        (302, b"", {"location": "http://127.0.0.1:1/"}, "ToolError the callback answered 302\n"),
        (200, b"<html>", {}, 'ToolError the callback should answer {"value": …} or {"error": "…"}\n'),
        (200, b"#" * 60_000, {}, "ToolError the callback answered with too much\n"),
    ],
)
def test_a_callback_answers_for_the_caller(status: int, body: bytes, headers: dict[str, str], stdout: str) -> None:
    with (
        tools_at(status, body, headers) as (there, asked),
        in_thread(callback_hosts=frozenset({there}), max_request=50_000) as running,
    ):
        answer = running.post("/execute", {**ASKED, "callback_url": f"http://{there}/tools"})
        assert answer.json()["stdout"] == stdout
        assert asked == [{"tool_call": {"id": "1", "name": "add", "arguments": {"0": 1, "b": 2}}}]


def test_a_callback_that_cannot_be_reached_is_an_error_in_the_code() -> None:
    with in_thread(callback_hosts=frozenset({"127.0.0.1:1"})) as running:
        answer = running.post("/execute", {**ASKED, "callback_url": "http://127.0.0.1:1/"})
        assert answer.json()["stdout"] == "ToolError the callback failed: ConnectError\n"
