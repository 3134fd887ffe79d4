"""Attempts to make rows of."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from journeyman.core.reward import Reward
from journeyman.core.trace import Trace
from journeyman.optimizers.weights.data import JudgedTrace
from journeyman.tracing import builder
from journeyman.tracing.importers import chat

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
FIND = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}


def said(role: str, text: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": text, **more}


def asks(text: str = "", *, id: str = "c1", arguments: str = '{"id": 7}') -> dict[str, Any]:
    call = {"id": id, "type": "function", "function": {"name": "find", "arguments": arguments}}
    return said("assistant", text, tool_calls=[call])


ONE = (said("system", "Be brief."), said("user", "Where is order 7?"), asks("I look."), said("tool", "Oslo", tool_call_id="c1"))
TALK = (*ONE, said("assistant", "In Oslo."))


def attempt(
    id: str, messages: Sequence[dict[str, Any]] = TALK, *, reward: float | None = None, minute: int = 0, **more: Any
) -> Trace:
    """An attempt with a transcript, rewarded where `reward` is known."""
    turns = (turn for message in messages for turn in chat.ChatMessage.model_validate(message).turns)
    told: dict[str, Any] = {"task_id": "t", "candidate_id": "base", "raw": {"tools": [FIND]}, **more}
    return Trace(
        id=id,
        started_at=BEGIN + timedelta(minutes=minute),
        steps=builder.steps(turns),
        rewards=() if reward is None else (Reward(name="r", value=reward),),
        **told,
    )


def answered(id: str, answer: str, *, question: str = "2+2?", **more: Any) -> Trace:
    return attempt(id, (said("user", question), said("assistant", answer)), **{"raw": {}, **more})


def judged(*traces: Trace) -> list[JudgedTrace]:
    return [JudgedTrace.of(trace) for trace in traces]
