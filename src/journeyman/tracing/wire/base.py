"""What passed between a client and a model server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from journeyman.core.messages import UNCOUNTED, Turn, Usage
from journeyman.tracing.fields import mapping, objects, string


class Dialect(StrEnum):
    """Whose API it is."""

    CHAT = "openai.chat"
    RESPONSES = "openai.responses"
    EMBEDDINGS = "openai.embeddings"
    MESSAGES = "anthropic.messages"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and its answer, as bytes. Credentials are never part of it."""

    id: str
    """Made by whoever recorded it; unique."""
    dialect: Dialect
    request: bytes
    """The body, as the client sent it (content-encoding undone)."""
    response: bytes
    """The body as it came (content-encoding undone): also a stream of server-sent events, also only the beginning of one."""
    status: int | None
    """HTTP status; `None` when no upstream answered."""
    streamed: bool = False
    started_at: datetime
    first_byte_seconds: float | None = None
    """Until the first byte of the answer's body."""
    seconds: float
    upstream: str = ""
    """The name, in the settings, of the server that answered."""
    base_url: str = ""
    """Its address, without credentials: what the call costs depends on it."""
    error: str | None = None
    """Why the answer is missing or cut: the upstream broke off, or the client hung up."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What the client's headers say: task, session, agent, domain, parent, candidate, trace."""


# What one exchange says, in the same words for every dialect.

NOTHING = Turn("assistant", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedExchange:
    """What was asked and answered. Everything that could not be read is missing, and `error` says why."""

    model: str = ""
    """As answered, else as asked for."""
    turns: tuple[Turn, ...] = ()
    """All that was sent, oldest first."""
    reply: Turn = NOTHING
    others: tuple[Turn, ...] = ()
    """Of several answers to one request, those behind the first."""
    reasoning: tuple[str, ...] = ()
    finish: str | None = None
    usage: Usage = UNCOUNTED
    response_id: str | None = None
    behind: str | None = None
    """The id of an earlier answer that the server was told to go on from."""
    thread: str | None = None
    """The id of a conversation that the server keeps."""
    error: str | None = None
    """`name: message` of what went wrong."""
    raw: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the request, the provider's own count of tokens, and other answers."""

    @property
    def answered(self) -> bool:
        """Whether there is anything that a conversation could go on from."""
        return bool(self.reply.text or self.reply.calls)


def beside(request: Mapping[str, Any], usage: Mapping[str, Any], *but: str) -> dict[str, Any]:
    """What is kept of an exchange beside its steps: the provider's own count of tokens, and the parameters of the request,
    which are everything `but` what is kept elsewhere. Of tools the names stay."""
    kept = {key: value for key, value in request.items() if key not in but and value is not None}
    for key in ("tools", "functions"):
        if key in kept:
            kept[key] = [_tool_name(tool) for tool in objects(kept[key])]
    return {"request": kept, "usage": usage} if usage else {"request": kept}


def _tool_name(tool: Mapping[str, Any]) -> str:
    return string(tool.get("name")) or string(mapping(tool.get("function")).get("name")) or string(tool.get("type"))
