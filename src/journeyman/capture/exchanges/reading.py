"""What one exchange says, in the same words for every dialect."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Asked(NamedTuple):
    """A tool call that a model asks for, or that the server made itself."""

    id: str
    """The provider's; empty where it gives none."""
    tool: str
    arguments: str
    """JSON, as the model wrote it."""
    result: str | None = None
    """Of a tool that runs on the server; `None` while the client has not answered."""
    error: str | None = None


class Turn(NamedTuple):
    """One message of a conversation."""

    role: str
    """"system", "user", "assistant" or "tool"."""
    text: str
    calls: tuple[Asked, ...] = ()
    answers: str | None = None
    """Of a tool's answer, the id of the call."""
    tool: str | None = None
    """Of a tool's answer, the name of the tool, where that is said."""
    failed: bool | None = None
    """Of a tool's answer, whether it says that it failed, where it says so apart from its text."""


class Usage(NamedTuple):
    """Tokens. `None` is unknown."""

    input: int | None = None
    """With those that were read from the cache and those that were written to it."""
    output: int | None = None
    cached: int | None = None
    """Read from the provider's cache."""
    written: int | None = None
    """Written to the provider's cache, where that has a price of its own."""


NOTHING = Turn("assistant", "")
UNCOUNTED = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
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
