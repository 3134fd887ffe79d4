"""What passed between a client and a model server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


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
