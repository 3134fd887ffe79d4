"""Tool calls that were not seen when they were asked for stand in a recorded message in brackets: `[find {"id": 7}]`. Where
their answers follow, they are found again."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from journeyman.core.messages import Turn
from journeyman.trace import Message, ToolCall

_CALL = re.compile(r"\[(?:calls )?([\w.:/-]{1,200}) (?=[{\]])")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Messages, behind one in which the assistant asked for tools, but for the first part."""

    text: str = ""
    """What it said beside that."""
    calls: tuple[ToolCall, ...] = ()
    rest: tuple[Message, ...] = ()


def as_message(turn: Turn) -> Message:
    """A turn as a message, with the tool calls in it that it asks for."""
    asked = (f"[{call.tool} {call.arguments}]" for call in turn.calls)
    return Message(role=turn.role, text="\n".join(filter(None, (turn.text, *asked))), answers=turn.answers)


def parts(messages: Sequence[Message]) -> Iterator[Part]:
    """The messages in their order, cut before each that asks for tools and is answered."""
    text, calls, begin = "", tuple[ToolCall, ...](), 0
    for at, message in enumerate(messages):
        answers = list(takewhile(lambda said: said.role == "tool", messages[at + 1 :]))
        found = _asked(message.text) if answers and message.role == "assistant" else None
        if found is None:
            continue
        yield Part(text=text, calls=calls, rest=tuple(messages[begin:at]))
        text, asked = found
        ids = [said.answers or "" for said in answers] + [""] * len(asked)
        calls = tuple(
            ToolCall(tool=tool, arguments=arguments, result="", id=id)
            for (tool, arguments), id in zip(asked, ids, strict=False)
        )
        begin = at + 1
    yield Part(text=text, calls=calls, rest=tuple(messages[begin:]))


def _asked(text: str) -> tuple[str, list[tuple[str, str]]] | None:
    """What stands before the calls at the end of a text, and the calls; `None` where there are none."""
    for start in (match.start() for match in _CALL.finditer(text)):
        if start == 0 or text[start - 1] == "\n":
            calls = _calls(text, start)
            if calls:
                return text[: max(start - 1, 0)], calls
    return None


def _calls(text: str, at: int) -> list[tuple[str, str]]:
    """The calls from a place on; none where anything else is there, too."""
    found: list[tuple[str, str]] = []
    while at < len(text):
        match = _CALL.match(text, at)
        end = None if match is None else _end(text, match.end())
        if match is None or end is None or text[end : end + 1] != "]" or text[end + 1 : end + 2] not in ("", "\n"):
            return []
        found.append((match[1], text[match.end() : end]))
        at = end + 2
    return found


def _end(text: str, at: int) -> int | None:
    """Where the arguments end that begin here."""
    if text[at] == "]":
        return at
    try:
        return _DECODER.raw_decode(text, at)[1]
    except (ValueError, RecursionError):
        return None
