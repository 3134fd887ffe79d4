"""Files of exported spans, whatever wrote them."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from journeyman.core.errors import InputError
from journeyman.tracing.importers.otlp import read_files
from journeyman.tracing.otel import wire
from tests.tracing.otel import made
from tests.tracing.otel.made import chat, span

ONE = made.request([span(1, chat("Hello", "Hi"))])
TWO = made.request([span(2, chat("Bye", "Ciao"), parent=1)])


def protobuf(*requests: dict[str, object]) -> list[bytes]:
    found = []
    for each in requests:
        request = ExportTraceServiceRequest()
        for row in wire.of_object(each).spans:
            resource = request.resource_spans.add()
            resource.ParseFromString(row.scope)
            resource.scope_spans[0].spans.add().ParseFromString(row.body)
        found.append(request.SerializeToString())
    return found


def fixed() -> bytes:
    return b"".join(len(each).to_bytes(4, "big") + each for each in protobuf(ONE, TWO))


def varints() -> bytes:
    return b"".join(bytes((len(each) & 0x7F | 0x80, len(each) >> 7)) + each for each in protobuf(ONE, TWO))


FORMS: dict[str, Callable[[], bytes]] = {
    "a request as JSON": lambda: json.dumps({"resourceSpans": ONE["resourceSpans"] + TWO["resourceSpans"]}).encode(),
    "over several lines": lambda: json.dumps({"resourceSpans": ONE["resourceSpans"] + TWO["resourceSpans"]}, indent=2).encode(),
    "JSON lines": lambda: b"\n".join(json.dumps(each).encode() for each in (ONE, TWO)) + b"\n",
    "a list": lambda: json.dumps([ONE, TWO]).encode(),
    "a request as protobuf": lambda: b"".join(protobuf(ONE, TWO)),
    "protobuf behind four bytes of length": fixed,
    "protobuf behind varints": varints,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_form_is_known_by_what_is_in_the_file(form: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "export.anything"
    path.write_bytes(pack(FORMS[form]()))
    found = read_files([path])
    assert found.problems == ()
    assert found.spans == 2
    (trace,) = found.traces
    assert [call.reply for call in trace.calls] == ["Hi", "Ciao"]


def test_spans_of_a_trace_may_stand_in_several_files(tmp_path: Path) -> None:
    for name, request in (("one", ONE), ("two", TWO), ("again", ONE)):
        (tmp_path / name).write_text(json.dumps(request))
    found = read_files(sorted(tmp_path.iterdir()))
    (trace,) = found.traces
    assert (found.spans, len(trace.calls)) == (3, 2)


def test_what_is_whole_comes_in_and_every_broken_place_is_named(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    lines = [json.dumps(ONE), "{broken", '{"other": 1}', '{"resourceSpans": 7, "resource_logs": []}', json.dumps(TWO)]
    path.write_text("\n".join(lines))
    found = read_files([path])
    assert len(found.traces[0].calls) == 2
    assert [problem.where for problem in found.problems] == [f"{path}:{number}" for number in (2, 3, 4)]
    assert "is neither an OTLP request" in str(found.problems[1])


def test_a_protobuf_file_that_was_cut_gives_the_whole_messages_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "export.pb"
    path.write_bytes(fixed()[:-10])
    found = read_files([path])
    assert [call.reply for trace in found.traces for call in trace.calls] == ["Hi"]
    assert [problem.where for problem in found.problems] == [f"{path} message 2"]


@pytest.mark.parametrize(
    "content", [b"\x00\x01\x02 nothing", gzip.compress(b"{}" * 99, mtime=0)[:-9], b'{"a": 1}', b"plain text"]
)
def test_a_file_that_is_no_export_is_a_problem(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "strange"
    path.write_bytes(content)
    found = read_files([path])
    assert found.traces == ()
    assert len(found.problems) == 1
    assert str(path) in str(found.problems[0])


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not there"):
        read_files([tmp_path / "nothing"])


def test_what_pythons_console_exporter_prints_is_read(tmp_path: Path) -> None:
    printed: dict[str, object] = {
        "name": "chat m",
        "context": {"trace_id": "0x" + made.TRACE, "span_id": "0x" + "1" * 16, "trace_state": "[]"},
        "kind": "SpanKind.CLIENT",
        "parent_id": None,
        "start_time": "2026-02-03T15:19:52.241000Z",
        "end_time": "2026-02-03T15:19:53.741000Z",
        "status": {"status_code": "ERROR", "description": "too slow"},
        "attributes": chat("Hello", "Hi", **{"gen_ai.usage.input_tokens": 3}),
        "events": [],
        "links": [],
        "resource": {"attributes": {"service.name": "shop"}, "schema_url": ""},
    }
    path = tmp_path / "printed.json"
    path.write_text(json.dumps(printed, indent=4))
    (trace,) = read_files([path]).traces
    (call,) = trace.calls
    assert (call.reply, call.input_tokens, call.seconds, call.error, trace.agent) == ("Hi", 3, 1.5, "too slow", "shop")
