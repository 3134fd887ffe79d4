"""Conversations in ShareGPT's form, as AgentGym and many data sets write them."""

from collections.abc import Iterator, Mapping
from typing import Any

from journeyman.core.errors import TraceError
from journeyman.core.messages import Turn
from journeyman.tracing import builder, fields
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.source import Format

_ROLES = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "function_response": "tool",
    "observation": "tool",
}
_VERDICTS = ("reward", "success", "score")


def recognised(record: Mapping[str, Any]) -> bool:
    said = fields.objects(record.get("conversations"))
    return bool(said) and "from" in said[0] and "value" in said[0]


def read(record: Mapping[str, Any]) -> Iterator[RecordedTrace]:
    """The conversation that a record is, with the verdicts that stand beside it.

    Raises:
        TraceError: Something among its messages is no message.
    """
    turns = []
    for number, message in enumerate(record["conversations"], start=1):
        if not isinstance(message, dict) or not isinstance(message.get("from"), str):
            raise TraceError(f"conversations.{number}: is no message: it does not say who it is from")
        said_by: str = message["from"]
        role = _ROLES.get(said_by, said_by)
        # Environments write half of the conversation, and a reply of theirs may be empty.
        raw = fields.without_empty(loss=message.get("loss")) if role == "assistant" else {}
        turns.append(Turn(role, fields.text(message.get("value")), raw=raw))
    name = record.get("item_id", record.get("id"))
    rewards = tuple(fields.reward(key, record[key]) for key in _VERDICTS if isinstance(record.get(key), int | float))
    id = str(name) if name is not None else ""
    yield builder.recorded(
        id,
        task_id=id or ("sharegpt" if name is None else ""),
        steps=builder.steps(turns, model=fields.text(record.get("model"))),
        domain=str(name).partition("_")[0] if "item_id" in record and "_" in str(name) else "general",
        rewards=rewards,
        reward=fields.number(record.get("reward")),
        raw=fields.without_empty(system=record.get("system"), tools=record.get("tools")),
    )


FORMAT = Format(name="sharegpt", recognises=recognised, read=read)
