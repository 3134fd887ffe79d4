"""A conversation with a model, in whichever API's words or recorder's file it stands.

Every dialect and every format is read into these, and `tracing.builder` makes them the steps of a trace.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

ROLES: Mapping[str, str] = {
    "developer": "system",
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "gpt": "assistant",
    "function": "tool",
}
"""The roles that others have other names for."""


class ToolUse(NamedTuple):
    """A tool call that a model asks for, or that the server made itself."""

    tool: str
    arguments: str
    """JSON, as the model wrote it. `arguments_text` writes what was parsed."""
    id: str = ""
    """The provider's; empty where it gives none."""
    result: str | None = None
    """Of a tool that runs on the server; `None` while the client has not answered."""
    error: str | None = None
    raw: Mapping[str, Any] | None = None
    """What else the recorder says of it."""


class Usage(NamedTuple):
    """Tokens. `None` is unknown."""

    input: int | None = None
    """With those that were read from the cache and those that were written to it."""
    output: int | None = None
    cached: int | None = None
    """Read from the provider's cache."""
    written: int | None = None
    """Written to the provider's cache, where that has a price of its own."""

    @classmethod
    def beside_cache(
        cls, input: int | None, output: int | None, cached: int | None, written: int | None, *, apart: bool = True
    ) -> "Usage":
        """Usage of counts that may leave the cache out of the input.

        Args:
            apart: Whether they do, as Anthropic's own count does. Of `False` nobody knows: conventions say that the cache is
                among the input, and some instrumentations pass Anthropic's count on. Where the parts are more than the whole,
                they were left out.
        """
        beside = (cached or 0) + (written or 0)
        if input is not None and (apart or beside > input):
            input += beside
        return cls(input, output, cached, written)

    def known_or(self, other: "Usage") -> "Usage":
        """What is counted here, and else there."""
        return Usage(*(there if here is None else here for here, there in zip(self, other, strict=True)))


UNCOUNTED = Usage()


class Turn(NamedTuple):
    """One message of a conversation. What its recorder does not tell is `None`, or empty."""

    role: str
    """"system", "user", "assistant" or "tool"; a role that is not known is kept as it is."""
    text: str = ""
    """What is not text (a picture, a file) is named in brackets."""
    calls: tuple[ToolUse, ...] = ()
    answers: str | None = None
    """Of a tool's answer, the id of the call."""
    tool: str | None = None
    """Of a tool's answer, the name of the tool."""
    failed: bool | None = None
    """Of a tool's answer, whether it says that it failed, where it says so apart from its text."""
    error: str | None = None
    """Of a tool's answer, what went wrong; of the assistant's, why there is none."""
    thought: str = ""
    """What the model said to itself before."""
    finish: str | None = None
    """Why the model stopped, in the provider's word."""
    canned: bool = False
    """Of the assistant's, that no model wrote it, but a program, such as a greeting that is always the same."""
    id: str = ""
    model: str = ""
    usage: Usage = UNCOUNTED
    cost: float | None = None
    """US dollars."""
    started_at: datetime | None = None
    seconds: float | None = None
    first_token_seconds: float | None = None
    response_id: str | None = None
    raw: Mapping[str, Any] | None = None
    """What else was recorded of it."""


def joined(turns: Iterable[Turn]) -> Turn:
    """What an assistant said in several pieces, as one turn."""
    pieces = list(turns)
    return Turn(
        "assistant",
        "\n".join(each.text for each in pieces if each.text),
        calls=tuple(call for each in pieces for call in each.calls),
        thought="\n".join(each.thought for each in pieces if each.thought),
        finish=next((each.finish for each in pieces if each.finish), None),
    )


def arguments_text(value: Any) -> str:
    """The arguments of a tool call as JSON: as the model wrote them, or written anew where somebody parsed them."""
    if isinstance(value, str):
        return value
    return json.dumps({} if value is None else value, ensure_ascii=False, default=str)
