"""What one exchange says, in the same words for every dialect."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from journeyman.capture.fields import mapping, objects, string
from journeyman.core.messages import UNCOUNTED, Turn, Usage

NOTHING = Turn("assistant", "")


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
