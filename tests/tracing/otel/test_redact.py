"""Spans without secrets, or without what was said."""

import json
import re
from base64 import b64encode
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from journeyman.tracing.otel import wire
from journeyman.tracing.otel.spans import GONE, pairs, redacted, spans, without_content
from journeyman.tracing.otel.wire import RawSpan, of_object
from journeyman.tracing.redaction import Redactor
from tests.support.secrets import planted
from tests.tracing.otel import made
from tests.tracing.otel.made import chat, event, span

DATA = Path(__file__).parents[2] / "data" / "otlp"
SECRET = "sk-" + "a1B2" * 10


def hide(text: str) -> str:
    return re.sub(r"\bsk-\w{20,}", GONE, text)


def everything(row: RawSpan) -> bytes:
    return row.body + row.scope


def test_a_secret_is_taken_out_wherever_it_stands() -> None:
    said = json.dumps([{"role": "user", "parts": [{"type": "text", "content": f"my key is {SECRET}"}]}])
    of = chat("", f"so {SECRET}", **{"gen_ai.input.messages": said, "list": ["x", SECRET], "deep": {"in": {"here": SECRET}}})
    spanned = span(
        1,
        of,
        name=f"chat {SECRET}",
        status={"code": 2, "message": f"401 for {SECRET}"},
        events=[event(f"tried {SECRET}", {"exception.message": SECRET})],
        links=[{"traceId": made.TRACE, "spanId": "1" * 16, "attributes": made.pairs({"why": SECRET})}],
    )
    (row,) = made.batch(spanned, **{"process.command_line": f"agent --key {SECRET}"}).spans
    assert everything(row).count(SECRET.encode()) == 10
    clean = redacted(row, hide)
    assert SECRET.encode() not in everything(clean)
    assert everything(clean).count(GONE.encode()) == 10
    (trace,) = made.read([clean])
    assert trace.calls[0].prompt == f"user: my key is {GONE}"


@pytest.mark.parametrize("kind", planted())
def test_a_span_is_suspected_whatever_stands_beside_the_secret_in_its_bytes(kind: str) -> None:
    # A length of 48 to 57 is a digit in protobuf's bytes, and the tag of the next attribute is a J.
    redactor = Redactor()
    for seed in range(20):
        text, secret = planted(seed)[kind]
        for length in range(0, 130, 7):
            said = f"{'x ' * length}{text}"
            (row,) = made.batch(span(1, {"said": said, "next": "nothing"}), span(2, {})).spans[:1]
            assert redactor.suspects(row.body), (kind, seed, length)
            assert secret.encode() not in redacted(row, redactor.text).body


def test_a_secret_in_bytes_in_names_and_in_states_is_taken_out() -> None:
    data = {"key": "blob", "value": {"bytesValue": b64encode(f"\xff {SECRET}".encode("latin-1")).decode()}}
    spanned = span(1, {f"of {SECRET}": 1, "refresh_token": "short"}, traceState=f"k={SECRET}")
    spanned["attributes"].append(data)
    asked = made.request([spanned])
    asked["resourceSpans"][0]["scopeSpans"][0]["scope"] = {"name": SECRET, "version": SECRET}
    (row,) = of_object(asked).spans
    clean = redacted(row, hide)
    assert SECRET.encode() not in everything(clean)
    assert b"short" not in clean.body
    assert b"\xff " in clean.body


def test_a_secret_in_a_log_record_is_taken_out() -> None:
    (row,) = of_object(made.logs([made.record(1, "gen_ai.user.message", {"content": SECRET})])).spans
    assert SECRET.encode() in row.body
    assert SECRET.encode() not in redacted(row, hide).body


def test_what_is_named_a_secret_goes_whole() -> None:
    of = {
        "http.request.header.authorization": ["Basic dXNlcg=="],
        "db.password": "tea",
        "api_key": "k",
        "gen_ai.usage.input_tokens": 7,
    }
    (row,) = made.batch(span(1, of)).spans
    found = pairs(Span.FromString(redacted(row, str).body).attributes)
    assert found == {**dict.fromkeys(list(of)[:3], GONE), "gen_ai.usage.input_tokens": 7}


@pytest.mark.parametrize("name", ["traceloop_openai", "openinference_openai"])
def test_where_there_is_no_secret_the_span_is_the_same_object(name: str) -> None:
    for row in wire.spans((DATA / f"{name}.json").read_bytes(), wire.JSON).spans:
        assert redacted(row, hide) is row


@pytest.mark.parametrize("name", ["openai_v2", "traceloop_openai", "openinference_openai"])
def test_without_content_only_shapes_and_numbers_are_left(name: str) -> None:
    rows = wire.spans((DATA / f"{name}.json").read_bytes(), wire.JSON).spans
    bare = [without_content(row) for row in rows]
    whole = b"".join(map(everything, bare))
    for words in (b"Say this is a test", b"Seattle", b"scarecrow", b"helpful assistant", b"Get the current", b"50 degrees"):
        assert words not in whole
    before, after = (
        {
            (call.id, call.model, call.input_tokens, call.output_tokens, call.finish, call.started_at, call.seconds)
            for trace in made.read(found)
            for call in trace.calls
        }
        for found in (rows, bare)
    )
    assert before == after
    assert len(after) == 6
    calls = [call for trace in made.read(bare) for call in trace.calls]
    assert {call.reply for call in calls} == {""}
    said = [message.text for call in calls for message in call.messages]
    assert [re.sub(r"\[\w+ {}\]\n?", "", text) for text in said] == [""] * len(said), (
        "only that a tool was asked for, and which"
    )


def test_without_content_lengths_are_left() -> None:
    stack = event("exception", {"exception.type": "ValueError", "exception.message": "bad tea"})
    of = {
        "input.value": "tea, please",
        "gen_ai.request.model": "m",
        "tags": ["a secret"],
        "number": 5,
        "likes tea": 1,
        "of tea or": "m",
    }
    (row,) = made.batch(span(1, of, status={"code": 2, "message": "bad tea"}, events=[stack], traceState="tea=1")).spans
    bare = without_content(row)
    assert b"tea" not in bare.body
    (found,) = spans([bare])
    assert found.attributes["input.value_length"] == 11
    assert found.attributes["gen_ai.request.model"] == "m"
    assert found.attributes["number"] == 5
    assert "tags_length" in found.attributes
    assert found.error == "ValueError"
    assert found.events[0].attributes["exception.message_length"] == 7


def test_without_content_a_log_record_says_how_much_was_said() -> None:
    (row,) = of_object(made.logs([made.record(1, "gen_ai.user.message", {"content": "tea"})])).spans
    bare = without_content(row)
    assert b"tea" not in bare.body
    assert b"body_length" in bare.body
