"""Server-sent events, as the WHATWG's standard for them says: https://html.spec.whatwg.org/multipage/server-sent-events.html.

One thing differs: what stands behind the last empty line is an event too, because of a stream that was cut off every piece
counts, and some servers do not end their last event.
"""

from collections.abc import Iterator
from typing import NamedTuple

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
