"""What real servers answered, replayed by a real server on loopback: our client reads all of it."""

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.errors import ModelBusy, ModelError, ModelRefused
from journeyman.io.retry import RetryPolicy
from journeyman.models.base import Limited, ModelRequest, ModelUsage, PromptMessage
from journeyman.models.openai import OpenAI
from tests.support.llm_server import Answer, LLMServer

HERE = Path(__file__).parent.parent / "data" / "llm-http-cassettes"
ASK = ModelRequest(messages=(PromptMessage("user", "hi"),))


def exchanges(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Those with chat completions that are not streams."""
    for row in map(json.loads, lines):
        body = row["response_body"].lstrip()
        streamed = "event-stream" in (row["content_type"] or "") or body.startswith(("data:", ":"))
        if "chat/completions" in row["uri"] and not streamed:
            yield row


def said(body: dict[str, Any]) -> str | None:
    """What the answer says, found without our reader; `None` when it says nothing and calls nothing."""
    choice = (body.get("choices") or [{}])[0]
    message = choice.get("message") or {}
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(part["text"] for part in content if part["type"] == "text")
    text = content or message.get("refusal") or ""
    return text if text or message.get("tool_calls") or message.get("function_call") else None


async def replay(rows: Iterable[dict[str, Any]], server: LLMServer) -> tuple[int, int, ModelUsage]:
    """How many answers were read and how many were errors, and the usage; asserts what each must be."""
    model = Limited(OpenAI("m", base_url=server.url, max_retries=0, timeout=10.0), patience=RetryPolicy(retries=0))
    read = errors = 0
    for row in rows:
        kind = {"content-type": row["content_type"]} if row["content_type"] else {}
        server.answers.append(Answer(body=row["response_body"], status=row["status"], headers=kind))
        try:
            body = json.loads(row["response_body"])
        except ValueError:
            body = {}
        expected = said(body) if row["status"] == 200 else None
        if expected is None:
            errors += 1
            with pytest.raises(expected_error(row["status"])):
                await model.complete(ASK)
            continue
        reply = await model.complete(ASK)
        read += 1
        assert reply.text == expected
        assert reply.model == body["model"]
        usage = body.get("usage") or {}
        assert (reply.input_tokens, reply.output_tokens) == (usage.get("prompt_tokens"), usage.get("completion_tokens"))
        details = usage.get("prompt_tokens_details") or {}
        assert reply.cached_tokens == details.get("cached_tokens")
    await model.close()
    return read, errors, model.usage


def expected_error(status: int) -> type[ModelError]:
    if status == 200:
        return ModelError
    return ModelBusy if status == 429 or status >= 500 else ModelRefused


def totals(rows: Iterable[dict[str, Any]]) -> tuple[int, int]:
    bodies = [json.loads(row["response_body"]) for row in rows if row["status"] == 200 and row["response_body"]]
    usages = [body["usage"] for body in bodies if said(body) is not None and body.get("usage")]
    return sum(usage["prompt_tokens"] for usage in usages), sum(usage["completion_tokens"] for usage in usages)


async def test_a_sample_of_each_providers_answers_is_read(server: LLMServer) -> None:
    rows = list(exchanges((HERE / "chat_completions.jsonl").read_text("utf-8").splitlines()))
    read, errors, usage = await replay(rows, server)
    assert (read, errors) == (19, 5)
    assert (usage.input_tokens, usage.output_tokens) == totals(rows)


@pytest.mark.parametrize(
    ("provider", "counts"),
    [
        ("openai", (449, 16)),
        ("groq", (72, 4)),
        ("mistral", (59, 0)),
        ("ollama", (1, 0)),
        ("azure_openai", (33, 3)),
        ("other", (88, 1)),
    ],
)
async def test_all_recorded_answers_are_read_and_their_usage_adds_up(
    provider: str, counts: tuple[int, int], server: LLMServer
) -> None:
    data = os.environ.get("JOURNEYMAN_DATA")
    if not data:
        pytest.skip("JOURNEYMAN_DATA does not name the folder of data sets")
    with gzip.open(Path(data) / "llm-http-cassettes" / f"{provider}.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = list(exchanges(lines))
    read, errors, usage = await replay(rows, server)
    assert (read, errors) == counts
    assert (usage.input_tokens, usage.output_tokens) == totals(rows)
