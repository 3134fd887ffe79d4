"""OTLP requests, span by span."""

import contextlib
import gzip
import json
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from journeyman.core.errors import InputError
from journeyman.tracing.otel import wire
from journeyman.tracing.otel.spans import pairs as read_pairs
from tests.tracing.otel import made

DATA = Path(__file__).parents[2] / "data" / "otlp"
PROTOBUF, JSON = wire.PROTOBUF, wire.JSON


def protobuf(spans: int = 1) -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number in range(1, spans + 1):
        scope.spans.add(trace_id=bytes.fromhex(made.TRACE), span_id=number.to_bytes(8, "big"), name="chat")
    body: bytes = request.SerializeToString()
    return body


@pytest.mark.parametrize("name", ["openai_v2", "traceloop_openai", "openinference_openai"])
def test_json_and_protobuf_say_the_same(name: str) -> None:
    text = (DATA / f"{name}.json").read_bytes()
    of_json = wire.spans(text, "application/json; charset=utf-8")
    request = ExportTraceServiceRequest()
    for row in of_json.spans:
        resource = request.resource_spans.add()
        resource.ParseFromString(row.scope)
        resource.scope_spans[0].spans.add().ParseFromString(row.body)
    assert wire.spans(request.SerializeToString(), PROTOBUF) == of_json
    assert len(of_json.spans) == 6


def test_json_may_be_written_in_snake_case_with_numbers_for_integers() -> None:
    camel = made.request([made.span(1, {"tokens": 7, "tags": ["a", "b"], "deep": {"x": [1.5, True]}})])
    as_snake = json.dumps(camel)
    for name in ("resourceSpans", "scopeSpans", "traceId", "spanId", "parentSpanId", "startTimeUnixNano", "endTimeUnixNano"):
        snake = "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)
        as_snake = as_snake.replace(f'"{name}"', f'"{snake}"')
    as_snake = as_snake.replace('"intValue": "7"', '"int_value": 7').replace('"stringValue"', '"string_value"')
    assert "traceId" not in as_snake
    assert wire.spans(as_snake.encode(), JSON) == wire.spans(json.dumps(camel).encode(), JSON)


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.recursive(
            st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=8),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
            max_leaves=8,
        ),
        max_size=6,
    )
)
def test_whatever_an_attribute_holds_comes_through_json(attributes: dict[str, object]) -> None:
    (row,) = wire.spans(json.dumps(made.request([made.span(1, attributes)])).encode(), JSON).spans
    whole = json.loads(json.dumps(attributes).encode("utf-8", "surrogatepass").decode("utf-8", "replace"))
    assert read_pairs(Span.FromString(row.body).attributes) == whole


def test_half_a_character_in_json_becomes_a_question_mark_and_no_error() -> None:
    body = json.dumps(made.request([made.span(1, {"said": "X"})])).replace('"X"', '"\\ud83d!"').encode()
    (row,) = wire.spans(body, JSON).spans
    assert read_pairs(Span.FromString(row.body).attributes) == {"said": "?!"}


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("GZIP", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", lambda body: _raw(body)),
        ("identity", bytes),
        ("", bytes),
    ],
)
def test_a_body_may_be_packed(encoding: str, pack: object) -> None:
    assert callable(pack)
    assert len(wire.spans(pack(protobuf(3)), PROTOBUF, encoding=encoding).spans) == 3


def _raw(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("", bytes)])
def test_a_bomb_is_not_unpacked_further_than_the_limit(encoding: str, pack: object) -> None:
    assert callable(pack)
    with pytest.raises(wire.TooLarge, match="more than 1,000 bytes"):
        wire.spans(pack(b"\0" * 10_000_000), PROTOBUF, encoding=encoding, limit=1000)


@pytest.mark.parametrize(
    ("body", "kind", "encoding", "said"),
    [
        (b"\xff\xff", PROTOBUF, "", "no ExportTraceServiceRequest"),
        (b"{", JSON, "", "is no JSON"),
        (b"[" * 100_000, JSON, "", "is no JSON"),
        (b"[]", JSON, "", "must be an object"),
        (b'{"resourceSpans": 3}', JSON, "", "resourceSpans must be a list"),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "xyz"}]}]}]}', JSON, "", "traceId must be hexadecimal"),
        (b"plain", PROTOBUF, "gzip", "is not gzip"),
        (gzip.compress(b"\0" * 1000, mtime=0)[:-9], PROTOBUF, "gzip", "is not gzip"),
        (b"plain", PROTOBUF, "deflate", "is not deflate"),
    ],
)
def test_what_is_no_request_is_refused_in_a_sentence(body: bytes, kind: str, encoding: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        wire.spans(body, kind, encoding=encoding)


def test_a_strange_content_type_or_encoding_is_told_apart_from_a_broken_body() -> None:
    with pytest.raises(wire.Unsupported, match="text/plain"):
        wire.spans(b"", "text/plain")
    with pytest.raises(wire.Unsupported, match="br"):
        wire.spans(b"", PROTOBUF, encoding="br")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_an_input_error(body: bytes) -> None:
    for read in (wire.spans, wire.logs):
        for kind in (PROTOBUF, JSON):
            with contextlib.suppress(InputError):
                assert isinstance(read(body, kind), wire.SpanBatch)


_LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats()
_NAMES = st.sampled_from(("resourceSpans", "scopeSpans", "spans", "attributes", "key", "value", "stringValue", "intValue",
    "arrayValue", "values", "kvlistValue", "events", "traceId", "status", "code", "kind", "resource", "scope",
    "startTimeUnixNano", "bytesValue", "resourceLogs", "scopeLogs", "logRecords", "body", "links"))  # fmt: skip


@given(st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4)))
def test_any_json_is_a_request_or_an_input_error(value: object) -> None:
    with contextlib.suppress(InputError):
        assert isinstance(wire.of_object(value), wire.SpanBatch)


def test_spans_without_proper_ids_are_rejected_and_counted_and_the_others_kept() -> None:
    request = ExportTraceServiceRequest.FromString(protobuf(2))
    spans = request.resource_spans[0].scope_spans[0].spans
    spans.add(trace_id=b"\0" * 16, span_id=b"\1" * 8)
    spans.add(trace_id=b"\1" * 16, span_id=b"\1" * 7)
    batch = wire.spans(request.SerializeToString(), PROTOBUF)
    assert (len(batch.spans), batch.rejected) == (2, 2)
    body, kind = wire.answer(batch, "traces")
    said = ExportTraceServiceResponse.FromString(body)
    assert (kind, said.partial_success.rejected_spans) == (PROTOBUF, 2)
    assert "16 bytes" in said.partial_success.error_message
    body, kind = wire.answer(batch, "traces", JSON)
    assert (kind, json.loads(body)["partialSuccess"]["rejectedSpans"]) == (JSON, "2")


def test_where_all_was_kept_the_answer_is_empty() -> None:
    batch = wire.spans(protobuf(), PROTOBUF)
    assert wire.answer(batch, "traces") == (b"", PROTOBUF)
    assert wire.answer(batch, "logs") == (b"", PROTOBUF)
    assert wire.answer(batch, "traces", JSON) == (b"{}", JSON)


def test_a_refusal_is_a_status_in_the_askers_own_format() -> None:
    body, kind = wire.refusal("no " * 100, JSON)
    assert (kind, json.loads(body)) == (JSON, {"code": 3, "message": "no " * 100})
    body, kind = wire.refusal("no " * 100, PROTOBUF, code=14)
    # google.rpc.Status: the code in field 1, the message in field 2.
    assert (kind, body[:2], body[2:3], body[3:5]) == (PROTOBUF, b"\x08\x0e", b"\x12", b"\xac\x02")
    assert body[5:] == b"no " * 100


def test_logs_that_tell_of_calls_are_kept_and_others_forgotten() -> None:
    body = json.dumps(
        made.logs(
            [
                made.record(1, "gen_ai.user.message", {"content": "hello"}),
                made.record(2, "http.request", "GET /"),
                {**made.record(3, "gen_ai.choice", "x"), "traceId": ""},
                {"body": {"stringValue": "plain"}, "traceId": made.TRACE},
            ]
        )
    ).encode()
    batch = wire.logs(body, JSON)
    assert [row.span_id.startswith(wire.LOG) for row in batch.spans] == [True]
    assert (batch.ignored, batch.rejected) == (2, 1)
    said = ExportLogsServiceResponse.FromString(wire.answer(batch, "logs")[0])
    assert said.partial_success.rejected_log_records == 1


def test_a_log_record_that_is_sent_again_is_the_same_row_whenever_it_was_collected() -> None:
    one = made.record(1, "gen_ai.user.message", {"content": "hello"})
    first, again = (wire.of_object(made.logs([{**one, "observedTimeUnixNano": at}])).spans[0] for at in ("5", "6"))
    assert first.span_id == again.span_id
    other = wire.of_object(made.logs([made.record(1, "gen_ai.user.message", {"content": "bye"})])).spans[0]
    assert other.span_id != first.span_id


@pytest.mark.parametrize("nanoseconds", [0, 1, 1_795_219_772_920_615_449, 2**64 - 1])
def test_any_time_of_the_wire_has_a_zone(nanoseconds: int) -> None:
    assert wire.moment(nanoseconds).tzinfo is not None
