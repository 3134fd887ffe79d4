"""Messages over a socket: a length, a JSON object, then the raw bytes of files and output."""

import json
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Any

LENGTH = struct.Struct("!I")
MAX_HEAD = 16 * 1024 * 1024
MAX_BLOBS = 1024 * 1024 * 1024
"""Bytes of all that follows one head. Sizes come from the other side, and nothing is reserved before they were checked."""

Message = dict[str, Any]
Blobs = list[bytes]


class Garbled(Exception):
    """What came is no message."""


def pack(message: Message, blobs: Sequence[bytes] = ()) -> bytes:
    head = json.dumps(message | {"blobs": [len(blob) for blob in blobs]}).encode()
    return b"".join((LENGTH.pack(len(head)), head, *blobs))


def head_size(prefix: bytes) -> int:
    """The length of the head that follows.

    Raises:
        Garbled: It is longer than any head may be.
    """
    (size,) = LENGTH.unpack(prefix)
    if size > MAX_HEAD:
        raise Garbled(f"a head of {size} bytes")
    return int(size)


def parse_head(head: bytes) -> tuple[Message, list[int]]:
    """The message and the sizes of the blobs that follow it.

    Raises:
        Garbled: It is no JSON object, or its blobs are too big.
    """
    try:
        message = json.loads(head)
        sizes = message.pop("blobs")
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise Garbled(f"{type(error).__name__}: {error}") from error
    if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes) or sum(sizes) > MAX_BLOBS:
        raise Garbled(f"blobs of {str(sizes)[:80]} bytes")
    return message, sizes


class Inbox:
    """Takes bytes as they come and gives whole messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Message, Blobs]]:
        """The messages that are complete by now.

        Raises:
            Garbled: What came is no message.
        """
        self._bytes += data
        while (found := self._next()) is not None:
            yield found

    def _next(self) -> tuple[Message, Blobs] | None:
        start = LENGTH.size
        if len(self._bytes) < start:
            return None
        end = start + head_size(bytes(self._bytes[:start]))
        if len(self._bytes) < end:
            return None
        message, sizes = parse_head(bytes(self._bytes[start:end]))
        if len(self._bytes) < end + sum(sizes):
            return None
        blobs = []
        for size in sizes:
            blobs.append(bytes(self._bytes[end : end + size]))
            end += size
        del self._bytes[:end]
        return message, blobs


def send(channel: socket.socket, message: Message, blobs: Sequence[bytes] = ()) -> None:
    channel.sendall(pack(message, blobs))


def receive(channel: socket.socket) -> tuple[Message, Blobs]:
    """The next message.

    Raises:
        EOFError: The other side is gone.
        Garbled: What came is no message.
    """
    message, sizes = parse_head(_exactly(channel, head_size(_exactly(channel, LENGTH.size))))
    return message, [_exactly(channel, size) for size in sizes]


def _exactly(channel: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = channel.recv(min(size - len(data), 1 << 20))
        if not chunk:
            raise EOFError("the other side is gone")
        data += chunk
    return bytes(data)


def line(message: Message) -> bytes:
    """A message on a line of its own, for the code's end."""
    return json.dumps(message).encode() + b"\n"


def parse_line(text: bytes) -> Message:
    """The first message of such lines.

    Raises:
        ValueError: It is no JSON object.
    """
    message = json.loads(text.partition(b"\n")[0])
    if not isinstance(message, dict):
        raise ValueError("no object")
    return message
