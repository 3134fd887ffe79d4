"""The real SDK, with its real exporter, to a real server."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Status, StatusCode

from journeyman.tracing.otel import wire
from tests.tracing.otel import made
from tests.tracing.otel.made import chat


@contextmanager
def receiving() -> Iterator[tuple[str, list[wire.RawSpan]]]:
    """A server that takes spans as ours does; its address, and what came."""
    held: list[wire.RawSpan] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            batch = wire.spans(body, self.headers["content-type"], encoding=self.headers.get("content-encoding", ""))
            held.extend(batch.spans)
            text, kind = wire.answer(batch, "traces", self.headers["content-type"])
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", held
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip, Compression.Deflate])
def test_an_instrumented_agent_becomes_a_trace(compression: Compression) -> None:
    with receiving() as (url, held):
        provider = TracerProvider(resource=Resource({"service.name": "shop"}))
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(url, compression=compression)))
        tracer = provider.get_tracer("test")
        with tracer.start_as_current_span("invoke_agent guide") as agent:
            agent.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "guide"})
            with tracer.start_as_current_span("chat m") as call:
                call.set_attributes({key: str(found) for key, found in chat("Hello", "Hi").items()})
                call.set_attribute("gen_ai.usage.input_tokens", 3)
            with suppress(ValueError), tracer.start_as_current_span("execute_tool door") as tool:
                tool.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "door"})
                raise ValueError("closed")
            agent.set_status(Status(StatusCode.OK))
        provider.shutdown()
    (trace,) = made.read(held)
    assert len(held) == 3
    assert (trace.agent, trace.reply, trace.input_tokens, trace.error) == ("guide", "Hi", 3, None)
    (tool_call,) = trace.tool_calls
    assert (tool_call.tool, tool_call.ok, tool_call.error) == ("door", False, "ValueError: closed")
    assert json.loads(json.dumps(dict(trace.steps[0].raw)))["span.scope"] == "test"
