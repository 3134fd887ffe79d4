"""A client and a server of the tests: what they send each other, as exchanges."""

import itertools
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from journeyman.tracing.wire.dialects import Dialect, Exchange

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_numbers = itertools.count(1)
Message = dict[str, Any]


def chat(messages: Sequence[Message], reply: Message | None, *, others: Sequence[Message] = (), **labels: Any) -> Exchange:
    """A call of chat completions; without a reply it failed."""
    number = next(_numbers)
    choices = [{"index": at, "message": each, "finish_reason": "stop"} for at, each in enumerate([reply, *others])]
    answer = {
        "id": f"chatcmpl-{number}",
        "model": "small-1",
        "choices": choices,
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    }
    failure = {"error": {"type": "server_error", "message": "try again"}}
    status = 503 if reply is None else 200
    request = {"model": "small", "messages": list(messages)}
    return exchange(number, Dialect.CHAT, request, failure if reply is None else answer, status, **labels)


def exchange(
    number: int, dialect: Dialect, request: Mapping[str, Any], answer: Mapping[str, Any], status: int = 200, **labels: Any
) -> Exchange:
    return Exchange(
        id=f"x{number}",
        dialect=dialect,
        request=json.dumps(request).encode(),
        response=json.dumps(answer).encode(),
        status=status,
        started_at=BEGIN + timedelta(seconds=10 * number),
        seconds=4.0,
        labels=labels,
    )


def responses(request: Mapping[str, Any], text: str, **labels: Any) -> Exchange:
    number = next(_numbers)
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    answer: Message = {"id": f"resp_{number}", "model": "small-1", "status": "completed", "output": [message]}
    return exchange(number, Dialect.RESPONSES, {"model": "small", **request}, answer, **labels)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str | None, *calls: tuple[str, str, str]) -> Message:
    """Calls are id, tool and arguments."""
    asked = [{"id": id, "type": "function", "function": {"name": name, "arguments": args}} for id, name, args in calls]
    return {"role": "assistant", "content": text, **({"tool_calls": asked} if asked else {})}


def tool(id: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": id, "content": text}
