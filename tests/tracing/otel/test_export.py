"""Traces that go out as spans: what another reader finds in them, and what a collector that is busy, strict or away is sent."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

from journeyman.cli import main
from journeyman.core.errors import InputError
from journeyman.core.trace import AgentCall, Message, ModelCall, Reasoning, ToolCall, Trace
from journeyman.stores.traces import open_traces
from journeyman.tracing.base import NO_TIME
from journeyman.tracing.importers.finetuning import Losses
from journeyman.tracing.otel import export, read, wire
from tests.support.gateways import gateway
from tests.support.secrets import planted
from tests.support.upstream import Upstream, upstream

BEGAN = datetime(2026, 3, 5, 12, tzinfo=UTC)


def booking(id: str = "aa11", *, timed: bool = True, said: str = "A table in Oslo?") -> Trace:
    """A table is asked for, looked for twice and found; the second time by a sub-agent."""

    def at(seconds: float) -> datetime | None:
        return BEGAN + timedelta(seconds=seconds) if timed else None

    first = ModelCall(
        id="c1", model="gpt-5-mini", prompt="", reply="I look.", started_at=at(0), seconds=0.5, finish="tool_calls",
        messages=(Message(role="system", text="You book tables."), Message(role="user", text=said)),
        input_tokens=120, cached_tokens=20, output_tokens=9, cost=0.0012, response_id="r-1",
    )  # fmt: skip
    thought = Reasoning(text="Oslo is in Norway.", id="c1.thought", parent="c1", started_at=at(0))
    broken = ToolCall(
        id="x1", parent="c1", tool="find", arguments='{"city": "Oslo"}', result="no city", ok=False, started_at=at(1)
    )
    again = ToolCall(id="x2", parent="c1", tool="helper", arguments="{}", result='["six"]', started_at=at(2), seconds=2)
    helper = AgentCall(id="a1", parent="x2", agent="helper", input="find", output="six", started_at=at(2))
    inner = ModelCall(
        id="c2",
        parent="a1",
        model="small",
        prompt="",
        messages=(Message(role="user", text="find"),),
        reply="six",
        started_at=at(3),
    )
    last = ModelCall(
        id="c3", continues="c1", model="gpt-5-mini", prompt="", reply="At six.", started_at=at(5),
        messages=(Message(role="tool", text="no city", answers="x1"), Message(role="tool", text='["six"]', answers="x2")),
    )  # fmt: skip
    return Trace(
        id=id, task_id="tables", candidate_id="base", started_at=BEGAN, agent="desk", session="s1",
        steps=(first, thought, broken, again, helper, inner, last),
    )  # fmt: skip


def read_back(request: bytes) -> list[Trace]:
    by_trace: dict[str, list[wire.RawSpan]] = {}
    for span in wire.spans(request, wire.PROTOBUF).spans:
        by_trace.setdefault(span.trace_id, []).append(span)
    return list(read.traces(by_trace))


def sent(trace: Trace, convention: export.Convention = "both") -> bytes:
    return export.request(export.spans_of(trace, Losses(), convention), {"service.name": "desk"})


@pytest.mark.parametrize("convention", export.CONVENTIONS)
@pytest.mark.parametrize("timed", [True, False])
def test_a_reader_of_spans_finds_the_same_conversation_tools_and_counts(convention: export.Convention, *, timed: bool) -> None:
    trace = booking(timed=timed)
    (back,) = read_back(sent(trace, convention))
    assert (back.agent, back.session, back.query, back.reply) == ("desk", "s1", trace.query, trace.reply)
    assert (back.task_id, back.domain, back.candidate_id) == ("tables", "general", "base")
    assert [call.model for call in back.calls] == ["gpt-5-mini", "small", "gpt-5-mini"]
    assert [call.reply for call in back.calls] == ["I look.", "six", "At six."]
    for before, after in zip(trace.calls, back.calls, strict=True):
        heard = [(each.role, each.text) for each in back.conversation(after)]
        assert [(each.role, each.text) for each in trace.conversation(before)] == [
            (role, text.partition("\n[")[0]) for role, text in heard
        ]
    first = back.calls[0]
    assert (first.input_tokens, first.cached_tokens, first.output_tokens, first.cost) == (120, 20, 9, 0.0012)
    assert back.calls[2].input_tokens is None
    assert [(call.tool, json.loads(call.arguments), call.result, call.ok) for call in back.tool_calls] == [
        ("find", {"city": "Oslo"}, "no city", False),
        ("helper", {}, '["six"]', True),
    ]
    thoughts = [] if convention == "openinference" else ["Oslo is in Norway."]
    assert [step.text for step in back.reasoning_steps] == thoughts


def test_spans_stand_below_each_other_as_the_work_did() -> None:
    found = {span["name"]: span for span in export.spans_of(booking(), Losses())}
    assert {name: span["parentSpanId"] for name, span in found.items()} == {
        "desk": "",
        "chat gpt-5-mini": found["desk"]["spanId"],
        "execute_tool find": found["desk"]["spanId"],
        "execute_tool helper": found["desk"]["spanId"],
        "helper": found["execute_tool helper"]["spanId"],
        "chat small": found["helper"]["spanId"],
    }
    assert found["execute_tool find"]["status"] == {"code": 2, "message": "the tool failed"}
    whole = AgentCall(id="top", agent="desk", input="?", output="!")
    alone = replace(booking(), steps=(whole, ModelCall(id="c", parent="top", model="m", prompt="?", reply="!")))
    assert [span["parentSpanId"] == "" for span in export.spans_of(alone, Losses())] == [True, False]


def test_the_same_trace_is_the_same_bytes_and_its_own_id_where_that_is_one_of_spans() -> None:
    assert sent(booking()) == sent(booking())
    (span, *_) = export.spans_of(booking("0af7651916cd43dd8448eb211c80319c"), Losses())
    assert span["traceId"] == "0af7651916cd43dd8448eb211c80319c"


def test_what_cannot_be_carried_is_said_and_held_out_attempts_stay() -> None:
    losses = Losses()
    assert export.spans_of(replace(booking(), raw={"split": "held_out"}), losses) == []
    assert list(losses) == ["1 attempts at held-out tasks, from which nobody may learn: left out"]
    losses = Losses()
    alone = replace(booking(), started_at=NO_TIME, steps=(Reasoning(text="hm"),), input="?", output="!")
    assert len(export.spans_of(alone, losses)) == 1
    assert list(losses) == [
        "1 thoughts that belong to no call of a model",
        "1 traces whose time is not known: they stand at 1970",
    ]


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("http://localhost:6006", "http://localhost:6006/v1/traces"),
        ("http://localhost:6006/", "http://localhost:6006/v1/traces"),
        ("https://cloud.example/api/public/otel/v1/traces", "https://cloud.example/api/public/otel/v1/traces"),
    ],
)
def test_a_collector_is_named_by_its_address_or_by_its_whole_path(url: str, where: str) -> None:
    assert export.endpoint(url) == where


@pytest.mark.parametrize("url", ["localhost:6006", "ftp://x", "http://ada:pw4ada@x/"])
def test_no_address_is_refused_without_repeating_a_password(url: str) -> None:
    with pytest.raises(InputError, match="--otlp") as caught:
        export.endpoint(url)
    assert "pw4ada" not in str(caught.value)


@dataclass(slots=True)
class Collector:
    """Answers as it is told, and keeps what came."""

    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    @property
    def names(self) -> list[str]:
        return [span.name for one in self.requests for part in one.resource_spans for s in part.scope_spans for span in s.spans]


@contextmanager
def collector(*answers: tuple[int, dict[str, str], bytes]) -> Iterator[Collector]:
    made = Collector(list(answers))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = gzip.decompress(self.rfile.read(int(self.headers["content-length"])))
            made.headers.append({name.lower(): value for name, value in self.headers.items()})
            made.requests.append(ExportTraceServiceRequest.FromString(body))
            status, headers, answer = made.answers.pop(0) if made.answers else (200, {}, b"")
            self.send_response(status)
            for name, value in {"content-length": str(len(answer)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Told:
    """`journeyman traces export --otlp …`, and what it has said."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, url: str, *options: str, code: int = 0) -> dict[str, Any]:
        assert main(["traces", "export", "--otlp", url, "--json", *options]) == code
        told = self._capsys.readouterr()
        self.err = told.err
        found: dict[str, Any] = json.loads(told.out.splitlines()[-1]) if told.out else {}
        return found


@pytest.fixture
def up() -> Iterator[Upstream]:
    with upstream() as server:
        yield server


@pytest.fixture
def export_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    monkeypatch.chdir(tmp_path)
    for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "journeyman.toml").write_text("")
    add(booking("aa11"), booking("bb22"))
    return Told(capsys)


def add(*traces: Trace) -> None:
    with open_traces(Path(".journeyman") / "journeyman.db") as store:
        store.add(list(traces))


@pytest.mark.service
def test_a_gateway_of_ours_takes_them_and_reads_the_same_conversations(export_to: Told, up: Upstream) -> None:
    with gateway(up.url) as running:
        told = export_to(running.url)
        assert (told["traces"], told["spans"], told["rejected"]) == (2, 14, 0)
        by_trace: dict[str, list[Any]] = {}
        for row in running.memory.rows:
            by_trace.setdefault(row.trace_id, []).append(row)
        back = list(read.traces(by_trace))
    assert [[call.reply for call in trace.calls] for trace in back] == [["I look.", "six", "At six."]] * 2


@pytest.mark.service
def test_what_was_taken_is_not_sent_again_and_what_has_grown_is(export_to: Told) -> None:
    with collector() as server:
        assert export_to(server.url, "--dry-run")["spans"] == 14
        assert server.requests == []
        assert export_to(server.url, "--limit", "1")["traces"] == 1
        assert (export_to(server.url)["traces"], export_to(server.url)["skipped"]) == (1, 2)
        assert len(server.requests) == 2
        add(booking("bb22", said="A table in Rome?"), booking("cc33"))
        assert export_to(server.url)["traces"] == 2
        assert export_to(server.url, "--again")["traces"] == 3
        assert export_to(server.url, "--convention", "genai")["traces"] == 3


@pytest.mark.service
def test_a_busy_collector_is_asked_again_and_one_that_refuses_is_not(export_to: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=very%20secret,x-project=desk")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "openinference.project.name=desk")
    wait = {"retry-after": "0"}
    with collector((503, wait, b""), (429, wait, b""), (200, {}, b"")) as server:
        assert export_to(server.url)["traces"] == 2
        assert len(server.requests) == 3
        assert server.names[:7] == server.names[14:21]
        assert (server.headers[0]["api-key"], server.headers[0]["x-project"]) == ("very secret", "desk")
        assert server.headers[0]["content-type"] == "application/x-protobuf"
        about = {pair.key: pair.value.string_value for pair in server.requests[0].resource_spans[0].resource.attributes}
        assert about == {"service.name": "desk", "openinference.project.name": "desk"}
    with collector((401, {}, b"no such key: sorry")) as server:
        export_to(server.url, code=2)
        assert "status 401: no such key: sorry" in export_to.err
        assert "secret" not in export_to.err
        assert len(server.requests) == 1
        assert export_to(server.url)["traces"] == 2


@pytest.mark.service
def test_rejected_spans_are_told_and_sent_again_the_next_time(export_to: Told) -> None:
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 3
    answer.partial_success.error_message = "too old"
    with collector((200, {}, answer.SerializeToString())) as server:
        told = export_to(server.url, code=1)
        assert (told["rejected"], told["reason"]) == (3, "too old")
        assert "3 spans of them rejected there: too old" in export_to.err
        assert export_to(server.url)["traces"] == 2


@pytest.mark.service
def test_nobody_who_listens_is_one_sentence_at_once(export_to: Told) -> None:
    with collector() as server:
        url = server.url
    export_to(url, code=2)
    assert f"nothing takes spans at {url}/v1/traces" in export_to.err
    assert "Traceback" not in export_to.err


@pytest.mark.service
def test_no_secret_goes_out(export_to: Told) -> None:
    text, secret = planted()["github"]
    add(booking("dd44", said=f"My key: {text}"))
    with collector() as server:
        export_to(server.url)
        assert all(secret.encode() not in request.SerializeToString() for request in server.requests)
        assert any(b"redacted" in request.SerializeToString() for request in server.requests)


def test_options_that_contradict_each_other_are_refused(export_to: Told, capsys: pytest.CaptureFixture[str]) -> None:
    export_to("http://127.0.0.1:1", "--out", "x.jsonl", code=2)
    assert "leave out --out" in export_to.err
    assert main(["traces", "export", "--again"]) == 2
    assert "--again goes with --otlp" in capsys.readouterr().err
