"""What passed between a client and a model server."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

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


# Server-sent events
_BOM = b"\xef\xbb\xbf"
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")


class ServerSentEvent(NamedTuple):
    """One event. Its id and its time to retry are for clients that come back, and are not kept."""

    name: str
    """"message" where the server gave none."""
    data: str


class Parser:
    """Reads a stream piece by piece, wherever it is cut. Bytes that are no UTF-8 become U+FFFD."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._name = b""
        self._data: list[bytes] = []
        self._begun = False

    def feed(self, piece: bytes) -> list[ServerSentEvent]:
        """The events that are whole now."""
        if b"\n" not in piece and b"\r" not in piece and not self._held_cr():
            self._rest.append(piece)
            return []
        lines = b"".join((*self._rest, piece)).splitlines(keepends=True)
        # A carriage return at the very end may be the half of a line's end.
        self._rest = [lines.pop()] if lines and not lines[-1].endswith(b"\n") else []
        return [event for line in lines if (event := self._take(line.rstrip(b"\r\n"))) is not None]

    def end(self) -> list[ServerSentEvent]:
        """What was not ended by an empty line."""
        last = b"".join(self._rest).rstrip(b"\r\n")
        self._rest = []
        found = (self._take(last) if last else None, self._take(b""))
        return [event for event in found if event is not None]

    def _held_cr(self) -> bool:
        return bool(self._rest) and self._rest[-1].endswith(b"\r")

    def _take(self, line: bytes) -> ServerSentEvent | None:
        if not self._begun:
            self._begun = True
            line = line.removeprefix(_BOM)
        if not line:
            return self._whole()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        return None

    def _whole(self) -> ServerSentEvent | None:
        name, data = self._name, self._data
        self._name, self._data = b"", []
        if not data:
            return None
        return ServerSentEvent(name.decode(errors="replace") or "message", b"\n".join(data).decode(errors="replace"))


def events(body: bytes) -> Iterator[ServerSentEvent]:
    """The events of a whole stream, or of as much of it as there is."""
    parser = Parser()
    yield from parser.feed(body)
    yield from parser.end()


def looks_like(body: bytes) -> bool:
    """Whether this is a stream of events rather than one answer."""
    return body[:64].removeprefix(_BOM).lstrip().startswith(_FIELDS)
