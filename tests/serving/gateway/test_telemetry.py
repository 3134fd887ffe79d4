"""OpenTelemetry is acknowledged when it is on disk."""

import gzip
import json
import threading
import time
from concurrent.futures import Future

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from journeyman.core.errors import StoreError
from tests.serving.gateway.test_passing import ask
from tests.support.gateways import Running, gateway
from tests.support.upstream import Upstream

pytestmark = pytest.mark.service

PROTOBUF = {"content-type": "application/x-protobuf"}


def request(*ids: bytes) -> bytes:
    sent = ExportTraceServiceRequest()
    spans = sent.resource_spans.add().scope_spans.add().spans
    for id in ids:
        spans.add(trace_id=b"t" * 16, span_id=id, name="chat m", start_time_unix_nano=10**18)
    return bytes(sent.SerializeToString())


def test_an_exporter_of_the_sdk_is_understood(running: Running, up: Upstream) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{running.url}/v1/traces")))
    with provider.get_tracer("t").start_as_current_span("outer"), provider.get_tracer("t").start_as_current_span("inner"):
        pass
    provider.shutdown()
    assert len(running.memory.rows) == 2
    assert len({row.trace_id for row in running.memory.rows}) == 1
    assert up.asked == []
    assert "journeyman_otlp_stored_total 2" in running.gateway.metrics.text()


def test_an_answer_waits_for_the_disk(running: Running) -> None:
    running.memory.held = Future()
    answered: list[int] = []
    thread = threading.Thread(
        target=lambda: answered.append(ask(running.url, "/v1/traces", request(b"s" * 8), headers=PROTOBUF)[0])
    )
    thread.start()
    deadline = time.monotonic() + 5
    while not running.memory.rows and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    assert answered == []
    running.memory.held.set_result(None)
    thread.join(5)
    assert answered == [200]


def test_what_can_never_be_kept_is_said_in_the_answer(running: Running) -> None:
    _, headers, body = ask(running.url, "/v1/traces", request(b"s" * 8, b""), headers=PROTOBUF)
    assert headers["content-type"] == "application/x-protobuf"
    assert ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans == 1
    assert len(running.memory.rows) == 1


def test_json_and_gzip_are_taken(running: Running) -> None:
    span = {"traceId": "0a" * 16, "spanId": "0b" * 8, "name": "n", "startTimeUnixNano": "1000000000000000000"}
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
    status, headers, answer = ask(running.url, "/v1/traces", gzip.compress(body), headers={"content-encoding": "gzip"})
    assert (status, headers["content-type"], answer) == (200, "application/json", b"{}")
    assert [row.trace_id for row in running.memory.rows] == ["0a" * 16]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"\xff\xff", PROTOBUF, 400),
        (b"{", {}, 400),
        (b"x", {"content-type": "text/plain"}, 415),
        (b"x", {**PROTOBUF, "content-encoding": "br"}, 415),
        (gzip.compress(bytes(3 << 20)), {**PROTOBUF, "content-encoding": "gzip"}, 413),
        (bytes((2 << 20) + 1), PROTOBUF, 413),
    ],
)
def test_what_cannot_be_taken_is_refused_for_good(up: Upstream, body: bytes, headers: dict[str, str], status: int) -> None:
    with gateway(up.url, request_limit=2 << 20) as running:
        said, answered, _ = ask(running.url, "/v1/traces", body, headers=headers)
    assert said == status
    assert "retry-after" not in answered
    assert running.memory.rows == []


def test_while_the_store_refuses_an_exporter_is_told_to_come_again(running: Running) -> None:
    running.memory.failure = StoreError("the disk is full")
    status, headers, body = ask(running.url, "/v1/traces", request(b"s" * 8), headers=PROTOBUF)
    assert (status, headers["retry-after"]) == (503, "1")
    assert b"the disk is full" in body


def test_other_telemetry_goes_to_no_model_server(running: Running, up: Upstream) -> None:
    assert ask(running.url, "/v1/metrics")[0] == 404
    assert ask(running.url, "/v1/traces", None, "GET")[0] == 404
    assert up.asked == []
