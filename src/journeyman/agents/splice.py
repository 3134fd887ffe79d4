"""Where in a request what was learned is put: a text put into a body by one edit, in any dialect.

A body is read where it stands, and not written anew: numbers, escapes, blanks, the order of keys and keys that stand twice are
the client's.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any, NamedTuple

from journeyman.agents.answer import BETWEEN, CHARACTERS_PER_TOKEN
from journeyman.core.playbook import Place
from journeyman.tracing.wire.dialects import Dialect

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_TEXTS = ("text", "input_text")
_SYSTEM = ("system", "developer")


_WITH_EFFECTS = (
    "tools", "functions", "web_search_options", "mcp_servers", "container", "conversation", "previous_response_id",
    "background",
)  # fmt: skip
"""What a request asks for beside an answer: tools that act, work and conversations that the server keeps."""


class UnreadableBody(ValueError):
    """No JSON, or of a shape that is not known."""


class Edit(NamedTuple):
    """What becomes of a body: `piece` instead of what stood from `start` to `end`, which is nothing, or the word null."""

    start: int
    end: int
    piece: bytes

    def of(self, body: bytes) -> bytes:
        return b"".join((body[: self.start], self.piece, body[self.end :]))


class _Span(NamedTuple):
    """A value and where it stands. Of a list that is looked into, the value is the spans of its elements."""

    value: Any
    start: int
    end: int


class RequestBody:
    """A request's body, read where it stands."""

    __slots__ = ("_body", "_dialect", "_members", "_start", "_text")

    def __init__(self, body: bytes, dialect: Dialect) -> None:
        """
        Raises:
            UnreadableBody: It is no JSON object in UTF-8, or no conversation.
        """
        self._body, self._dialect = body, dialect
        try:
            if not body.isascii():
                body.decode()
            # One character a byte, so that places in the text are places in the body. Whatever JSON is made of is ASCII.
            self._text = body.decode("latin-1")
            self._start = _behind_space(self._text, 0)
            self._members, end = _object(self._text, self._start, within=("messages", "input"))
            if _behind_space(self._text, end) != len(self._text):
                raise UnreadableBody("something follows behind the object")
        except (ValueError, RecursionError) as error:
            raise UnreadableBody(str(error)) from None
        if not self._known():
            raise UnreadableBody("no conversation")

    def _known(self) -> bool:
        said = self._said
        if said is None:
            return self._dialect is Dialect.RESPONSES and "input" in self._members and isinstance(self._input.value, str)
        return bool(said) and all(isinstance(each.value, dict) for each in said)

    @property
    def _input(self) -> _Span:
        return self._members["input" if self._dialect is Dialect.RESPONSES else "messages"]

    @property
    def _said(self) -> Sequence[_Span] | None:
        """The messages; `None` where there is no list of them."""
        found = self._members.get("input" if self._dialect is Dialect.RESPONSES else "messages")
        return found.value if found is not None and isinstance(found.value, list) else None

    @property
    def model(self) -> str | None:
        """The model that is asked for."""
        span = self._members.get("model")
        return span.value if span is not None and isinstance(span.value, str) else None

    @property
    def tokens(self) -> int:
        """About how many it takes."""
        return len(self._body) // CHARACTERS_PER_TOKEN

    def with_model(self, name: str) -> Edit:
        """How another model comes into it.

        Raises:
            UnreadableBody: It names none.
        """
        if self.model is None:
            raise UnreadableBody("no model is named")
        span = self._members["model"]
        return Edit(span.start, span.end, json.dumps(name).encode())

    @property
    def has_effects(self) -> bool:
        """Whether asking a second time may do more than cost."""
        return any(name in self._members and self._members[name].value for name in _WITH_EFFECTS)

    @property
    def question(self) -> str:
        """What the user says first."""
        first = self._first_user()
        if first is None:
            return ""
        content = json.loads(self._body[first.start : first.end])
        content = content.get("content") if isinstance(content, dict) else content
        if isinstance(content, list):
            texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") in _TEXTS]
            return "\n".join(text for text in texts if isinstance(text, str))
        return content if isinstance(content, str) else ""

    @property
    def beginning(self) -> bytes:
        """What all requests of one conversation have in common: the conversation that the server keeps, else what stands
        before the user's first words and these."""
        if (kept := self._members.get("conversation")) is not None and kept.value:
            return self._body[kept.start : kept.end]
        told = [self._members[name] for name in ("instructions", "system") if name in self._members]
        first = self._first_user()
        spans = [*told, *self._leading(), *([first] if first is not None else ())]
        return b"\n".join(self._body[span.start : span.end] for span in spans)

    def _leading(self) -> list[_Span]:
        return list(takewhile(lambda each: each.value.get("role") in _SYSTEM, self._said or ()))

    def _first_user(self) -> _Span | None:
        said = self._said
        if said is None:
            return self._input
        return next((each for each in said if each.value.get("role") == "user"), None)

    def edit(self, text: str, place: Place) -> Edit:
        """How a text comes into it.

        Raises:
            UnreadableBody: What stands at the place is of a kind that is not known.
        """
        if place == "user_first":
            return self._before_the_user(text)
        at_end = place == "system_end"
        if self._dialect is Dialect.CHAT:
            return self._in_messages(text, at_end=at_end)
        name = "instructions" if self._dialect is Dialect.RESPONSES else "system"
        span = self._members.get(name)
        if span is None:
            # The object is not empty: there is a conversation in it.
            piece = f"{json.dumps(name)}: {_quoted(text)}, "
            return Edit(self._start + 1, self._start + 1, piece.encode())
        if name == "instructions" and isinstance(span.value, list):
            raise UnreadableBody("instructions are a text")
        return self._into(span, text, at_end=at_end)

    def _in_messages(self, text: str, *, at_end: bool) -> Edit:
        """In those system messages that the conversation begins with: one that comes later is another in the next request,
        and what a provider has cached is lost with every byte that changes."""
        said, leading = self._said or (), self._leading()
        if leading:
            return self._into_message(leading[-1 if at_end else 0], text, at_end=at_end)
        role = "developer" if any(each.value.get("role") == "developer" for each in said) else "system"
        at = said[0].start
        return Edit(at, at, f'{{"role": "{role}", "content": {_quoted(text)}}}, '.encode())

    def _before_the_user(self, text: str) -> Edit:
        first = self._first_user()
        if first is None:
            raise UnreadableBody("no user says anything")
        if isinstance(first.value, str):
            return self._into(first, text, at_end=False)
        return self._into_message(first, text, at_end=False)

    def _into_message(self, message: _Span, text: str, *, at_end: bool) -> Edit:
        members, _ = _object(self._text, message.start)
        if "content" not in members:
            raise UnreadableBody("a message without content")
        return self._into(members["content"], text, at_end=at_end)

    def _into(self, span: _Span, text: str, *, at_end: bool) -> Edit:
        """Into a text, a list of parts, or nothing."""
        if span.value is None:
            return Edit(span.start, span.end, _quoted(text).encode())
        if isinstance(span.value, str):
            at = span.end - 1 if at_end else span.start + 1
            whole = text if not span.value else BETWEEN + text if at_end else text + BETWEEN
            return Edit(at, at, _quoted(whole)[1:-1].encode())
        if not isinstance(span.value, list):
            raise UnreadableBody("what stands there is neither a text nor a list of parts")
        return self._into_parts(span, text, at_end=at_end)

    def _into_parts(self, span: _Span, text: str, *, at_end: bool) -> Edit:
        parts, end = _list(self._text, span.start)
        # Within a part that is there: one that is marked to be cached stays the last of what is.
        for part in reversed(parts) if at_end else parts:
            if isinstance(part.value, dict) and part.value.get("type") in _TEXTS:
                members, _ = _object(self._text, part.start)
                if "text" in members and isinstance(members["text"].value, str):
                    return self._into(members["text"], text, at_end=at_end)
        kind = "input_text" if self._dialect is Dialect.RESPONSES else "text"
        piece = f'{{"type": "{kind}", "text": {_quoted(text)}}}'
        if not parts:
            return Edit(span.start + 1, span.start + 1, piece.encode())
        at, written = (end - 1, f", {piece}") if at_end else (parts[0].start, f"{piece}, ")
        return Edit(at, at, written.encode())


@lru_cache(maxsize=256)
def _quoted(text: str) -> str:
    """As a JSON string. In ASCII, whatever the rest of a body is written in."""
    return json.dumps(text)


def _object(text: str, start: int, within: Sequence[str] = ()) -> tuple[Mapping[str, _Span], int]:
    """The members of an object, and where it ends. Of a key that stands twice the last, as servers read it.

    Args:
        within: Keys whose lists are looked into.

    Raises:
        ValueError: No object stands there.
    """
    members: dict[str, _Span] = {}

    def member(at: int) -> int:
        if text[at : at + 1] != '"':
            raise UnreadableBody(f"no key at {at}")
        key, at = _DECODER.raw_decode(text, at)
        at = _behind_space(text, at)
        if text[at : at + 1] != ":":
            raise UnreadableBody(f"no colon at {at}")
        at = _behind_space(text, at + 1)
        value, end = _list(text, at) if key in within and text[at : at + 1] == "[" else _DECODER.raw_decode(text, at)
        members[key] = _Span(value, at, end)
        return int(end)

    return members, _walk(text, start, "{}", member)


def _list(text: str, start: int) -> tuple[list[_Span], int]:
    """The elements of a list, and where it ends."""
    elements: list[_Span] = []

    def element(at: int) -> int:
        value, end = _DECODER.raw_decode(text, at)
        elements.append(_Span(value, at, end))
        return end

    return elements, _walk(text, start, "[]", element)


def _walk(text: str, start: int, brackets: str, each: Callable[[int], int]) -> int:
    """From bracket to bracket; what stands between two commas is read by `each`, which says where it ends."""
    if text[start : start + 1] != brackets[0]:
        raise UnreadableBody(f"no {brackets[0]} at {start}")
    at = _behind_space(text, start + 1)
    if text[at : at + 1] == brackets[1]:
        return at + 1
    while True:
        at = _behind_space(text, each(at))
        found = text[at : at + 1]
        if found == brackets[1]:
            return at + 1
        if found != ",":
            raise UnreadableBody(f"no comma at {at}")
        at = _behind_space(text, at + 1)


def _behind_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found is not None else at
