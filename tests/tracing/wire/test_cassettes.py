"""What real servers answered is read as whoever reads the bodies would read it."""

import gzip
import json
import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

from journeyman.tracing.wire.dialects import Dialect, Exchange, ParsedExchange, read_exchange

HERE = Path(__file__).parent.parent.parent / "data" / "llm-http-cassettes"
PATHS = {
    "/chat/completions": Dialect.CHAT,
    "/responses": Dialect.RESPONSES,
    "/embeddings": Dialect.EMBEDDINGS,
    "/messages": Dialect.MESSAGES,
}
Row = dict[str, Any]


def exchange(row: Row) -> Exchange | None:
    """The row, where it speaks one of the dialects."""
    path = urlparse(row["uri"]).path
    dialect = next((dialect for end, dialect in PATHS.items() if path.endswith(end)), None)
    if dialect is None or row["method"].upper() != "POST" or "/threads/" in path:
        return None
    return Exchange(
        id=f"{row['file']}#{row['interaction']}",
        dialect=dialect,
        request=(row["request_body"] or "").encode(),
        response=(row["response_body"] or "").encode(),
        status=row["status"],
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        seconds=1.0,
    )


def check(row: Row, given: Exchange) -> str:
    """What kind of exchange it was, once what was read of it equals what its body says."""
    reading = read_exchange(given)
    body = row["response_body"] or ""
    if given.status != 200:
        assert reading.error
        return "refused"
    if not body:
        assert reading.error == "empty: there was no answer"
        return "empty"
    if body.lstrip().startswith(("data:", "event:", ":")):
        return check_stream(given.dialect, [json.loads(line[5:]) for line in data_lines(body)], reading)
    answer = json.loads(body)
    assert (reading.error is not None) == bool(answer.get("error"))
    assert reading.model == answer.get("model", json.loads(given.request).get("model", ""))
    assert usage(reading) == counted(given.dialect, answer.get("usage") or {})
    assert reading.response_id == (answer.get("id") or None)
    assert said(given.dialect, answer) in (reading.reply.text, None)
    assert [call.tool for call in reading.reply.calls if call.result is None] == tools(given.dialect, answer)
    return "whole"


def data_lines(body: str) -> Iterator[str]:
    return (line for line in body.splitlines() if line.startswith("data:") and line[5:].strip() != "[DONE]")


def check_stream(dialect: Dialect, chunks: list[Row], reading: ParsedExchange) -> str:
    wrong = any(chunk.get("error") for chunk in chunks)
    assert (reading.error is not None) == wrong
    if dialect is Dialect.CHAT:
        deltas = [choice.get("delta", {}) for chunk in chunks for choice in chunk.get("choices", ()) if not choice.get("index")]
        texts = [delta["content"] for delta in deltas if isinstance(delta.get("content"), str)]
        if not any(isinstance(delta.get("content"), list) for delta in deltas):
            assert reading.reply.text == ("".join(texts) or refused(deltas))
        arguments = [call["function"].get("arguments") or "" for delta in deltas for call in delta.get("tool_calls") or ()]
        assert "".join(call.arguments for call in reading.reply.calls if call.result is None) == "".join(arguments)
        last = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
        last += [chunk["x_groq"]["usage"] for chunk in chunks if (chunk.get("x_groq") or {}).get("usage") and not last]
        assert usage(reading) == counted(dialect, last[-1] if last else {})
    elif dialect is Dialect.MESSAGES:
        deltas = [chunk["delta"] for chunk in chunks if chunk["type"] == "content_block_delta"]
        assert reading.reply.text.replace("\n\n", "") == "".join(d.get("text", "") for d in deltas).replace("\n\n", "")
        thought = "".join(delta.get("thinking", "") for delta in deltas)
        assert "".join(reading.reasoning) == thought
        ends = [chunk["usage"] for chunk in chunks if chunk["type"] == "message_delta"]
        assert reading.usage.output == ends[-1]["output_tokens"]
    else:
        texts = [chunk["delta"] for chunk in chunks if chunk["type"] == "response.output_text.delta"]
        assert reading.reply.text.replace("\n\n", "") == "".join(texts).replace("\n\n", "")
        assert usage(reading) == counted(dialect, chunks[-1]["response"]["usage"])
    return "stream"


def refused(deltas: list[Row]) -> str:
    return "".join(delta.get("refusal") or "" for delta in deltas)


def usage(reading: ParsedExchange) -> tuple[int | None, int | None, int | None]:
    return reading.usage.input, reading.usage.output, reading.usage.cached


def counted(dialect: Dialect, found: Row) -> tuple[int | None, int | None, int | None]:
    """Input, output and cached tokens, as the API's documentation explains them."""
    if dialect is Dialect.MESSAGES:
        parts = [found.get(f"{name}input_tokens") or 0 for name in ("", "cache_read_", "cache_creation_")]
        return sum(parts), found["output_tokens"], found.get("cache_read_input_tokens")
    if dialect is Dialect.EMBEDDINGS:
        known = found.get("prompt_tokens")
        return known, None if known is None else 0, None
    sent, came = ("prompt", "completion") if dialect is Dialect.CHAT else ("input", "output")
    details = found.get(f"{sent}_tokens_details") or {}
    cached = details.get("cached_tokens")
    hit = found.get("prompt_cache_hit_tokens") if cached is None else cached
    return found.get(f"{sent}_tokens"), found.get(f"{came}_tokens"), hit


def said(dialect: Dialect, answer: Row) -> str | None:
    """The text, where it can be told in one line."""
    if dialect is Dialect.CHAT:
        message = (answer.get("choices") or [{}])[0].get("message", {})
        return message.get("content") if isinstance(message.get("content"), str) and message["content"] else None
    if dialect is Dialect.MESSAGES:
        texts = [part["text"] for part in answer["content"] if part["type"] == "text"]
        return texts[0] if len(texts) == 1 else None
    if dialect is Dialect.RESPONSES:
        found = [part for item in answer["output"] if item["type"] == "message" for part in item["content"]]
        return found[0]["text"] if len(found) == 1 and found[0]["type"] == "output_text" else None
    return None


def tools(dialect: Dialect, answer: Row) -> list[str]:
    """The tools that the client is asked to use."""
    if dialect is Dialect.CHAT:
        message = (answer.get("choices") or [{}])[0].get("message", {})
        old = [message["function_call"]] if message.get("function_call") else []
        return [call["function"]["name"] for call in message.get("tool_calls") or ()] + [call["name"] for call in old]
    if dialect is Dialect.MESSAGES:
        return [part["name"] for part in answer["content"] if part["type"] == "tool_use"]
    if dialect is Dialect.RESPONSES:
        kinds = ("function_call", "custom_tool_call")
        return [item["name"] for item in answer["output"] if item["type"] in kinds]
    return []


def checked(rows: Iterator[Row]) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in rows:
        given = exchange(row)
        found[check(row, given) if given else "another API"] += 1
    return found


def test_one_exchange_of_every_kind_is_read_as_its_body_says() -> None:
    with (HERE / "exchanges.jsonl").open(encoding="utf-8") as lines:
        found = checked(json.loads(line) for line in lines)
    assert found["whole"] >= 20
    assert found["stream"] >= 8
    assert found["refused"] >= 8
    assert not found["another API"]


def test_all_recorded_exchanges_are_read_as_their_bodies_say() -> None:
    data = os.environ.get("JOURNEYMAN_DATA")
    if not data:
        pytest.skip("JOURNEYMAN_DATA does not name the folder of data sets")
    total: Counter[str] = Counter()
    for path in sorted((Path(data) / "llm-http-cassettes").glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            total += checked(json.loads(line) for line in lines)
    assert sum(total.values()) == 2764
    assert total["another API"] == 1099, total
