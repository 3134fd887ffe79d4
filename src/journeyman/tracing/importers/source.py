"""A file, as the JSON values in it: one after the other, so that a file of any size fits into memory."""

import codecs
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from journeyman.core.errors import InputError

LONGEST = 256 * 2**20
"""Bytes of one value at most: what is longer is no record, or a bomb."""
_CHUNK = 2**20
_GZIP, _ZSTD, _ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"
_BOM = codecs.BOM_UTF8
_BROKEN = (OSError, EOFError, zlib.error)
"""What a broken gzip file raises."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A place that could not be read. What stands around it came in."""

    where: str
    """File and line, or file and item."""
    why: str
    strange: bool = False
    """It is the whole file that holds no traces, or none of a format that is known."""

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


@dataclass(frozen=True, slots=True)
class JsonRecord:
    """One JSON value, and where it stands."""

    where: str
    value: Any
    in_list: bool = False
    """It is an item of a list that is the whole file."""


class Watched:
    """A binary file that tells how far it was read."""

    def __init__(self, file: IO[bytes], done: Callable[[int], None]) -> None:
        self._file, self._done = file, done

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._done(len(data))
        return data


class JsonSource:
    """A file that was opened, and unpacked where it is gzipped. Use it in a `with`."""

    def __init__(self, path: Path, done: Callable[[int], None] = lambda _: None) -> None:
        """Open it; `done` is called with how many more of its bytes were read.

        Raises:
            InputError: It cannot be opened, or is packed in a way that is not known.
        """
        self.path = path
        self._done = done
        try:
            self._file = path.open("rb")
            start = self._file.read(4)
            self._file.seek(0)
        except FileNotFoundError:
            raise InputError(f"{path} is not there") from None
        except OSError as error:
            raise InputError(f"{path} could not be read: {error.strerror or error}") from None
        self.zipped = start == _ZIP
        if start == _ZSTD:
            self._file.close()
            raise InputError(f"{path} is compressed with zstd; unpack it first: zstd -d {path.name}")
        watched: Any = Watched(self._file, done)
        self._bytes: Any = gzip.GzipFile(fileobj=watched) if start[:2] == _GZIP else watched
        self._ahead = b""
        self._over = False

    def __enter__(self) -> "JsonSource":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def start(self, size: int = 512) -> bytes:
        """How it begins, byte-order mark and white space left out; nothing where there is nothing.

        Raises:
            InputError: It is a broken archive.
        """
        while not self._over and len(self._ahead) < size:
            self._ahead = (self._ahead + self._more()).removeprefix(_BOM).lstrip(b" \t\r\n")
        return self._ahead[:size]

    def whole(self) -> bytes:
        """All that is left, at most `LONGEST`.

        Raises:
            InputError: It is longer, or a broken archive.
        """
        parts, size = [self._ahead], len(self._ahead)
        while not self._over and size <= LONGEST:
            parts.append(self._more())
            size += len(parts[-1])
        if size > LONGEST:
            raise InputError(f"{self.path} is longer than {LONGEST >> 20} MB, and is no file of lines or list")
        self._ahead = b"".join(parts)
        return self._ahead

    def records(self) -> Iterator[JsonRecord | Problem]:
        """The values: of a list its items, of JSON lines the lines, else the whole as one."""
        try:
            if self.start(1) == b"[":
                yield from _items(self)
            else:
                yield from _lines(self)
        except InputError as error:
            yield Problem(str(self.path), str(error).removeprefix(f"{self.path} "))

    def _more(self) -> bytes:
        """The next bytes; none at the end."""
        try:
            data: bytes = self._bytes.read(_CHUNK)
        except _BROKEN as error:
            self._over = True
            raise InputError(f"{self.path} is a broken archive: {error}") from None
        self._over = not data
        return data

    def take(self) -> bytes:
        """What was read ahead, else the next bytes; none at the end."""
        data, self._ahead = self._ahead, b""
        return data or (b"" if self._over else self._more())


def _split(source: JsonSource) -> Iterator[bytes]:
    """The lines, without their ends. What was whole before an archive broke is given first."""
    rest: list[bytes] = []
    held = 0
    while data := source.take():
        *lines, last = data.split(b"\n")
        if lines:
            yield b"".join([*rest, lines[0]])
            yield from lines[1:]
            rest, held = [], 0
        rest.append(last)
        held += len(last)
        if held > LONGEST:
            raise InputError(f"{source.path} has a line of more than {LONGEST >> 20} MB")
    if held:
        yield b"".join(rest)


def _lines(source: JsonSource) -> Iterator[JsonRecord | Problem]:
    """JSON lines, or one value over several lines."""
    lines = enumerate(_split(source), start=1)
    first = next(((number, text) for number, text in lines if text.strip()), None)
    if first is None:
        return
    second = next(((number, text) for number, text in lines if text.strip()), None)
    where = str(source.path)
    if second is None:
        yield _value(f"{where}:{first[0]}", first[1])
        return
    if isinstance(_value("", first[1]), Problem) and isinstance(_value("", second[1]), Problem):
        # Neither line is a value of its own: they are parts of one.
        held = [first[1], second[1]]
        size = 0
        for _, text in lines:
            held.append(text)
            size += len(text)
            if size > LONGEST:
                raise InputError(f"{where} is neither JSON lines nor one value of less than {LONGEST >> 20} MB")
        yield _value(where, b"\n".join(held))
        return
    for number, text in (first, second):
        yield _value(f"{where}:{number}", text)
    for number, text in lines:
        if text.strip():
            yield _value(f"{where}:{number}", text)


def _value(where: str, text: bytes) -> JsonRecord | Problem:
    try:
        return JsonRecord(where, json.loads(text.removeprefix(_BOM)))
    except RecursionError:
        return Problem(where, "is nested too deeply")
    except ValueError as error:
        return Problem(where, f"is not JSON: {error}")


_SPACE = " \t\r\n"


def _items(source: JsonSource) -> Iterator[JsonRecord | Problem]:
    """The items of a list, each when it has been read."""
    decode = json.JSONDecoder().raw_decode
    text = _Text(source)
    text.next()
    where = str(source.path)
    for number in range(1, 2**63):
        mark = text.peek()
        if mark == "]" and number == 1:
            break
        try:
            value = text.decode(decode)
        except RecursionError:
            yield Problem(f"{where} item {number}", "is nested too deeply; what follows was not read")
            return
        except ValueError as error:
            yield Problem(f"{where} item {number}", f"is not JSON: {error}; what follows was not read")
            return
        yield JsonRecord(f"{where} item {number}", value, in_list=True)
        mark = text.next()
        if mark == "]":
            break
        if mark != ",":
            said = "the list ends here" if not mark else f"{mark!r} where a comma or ] was expected"
            yield Problem(f"{where} item {number}", f"is not JSON: {said}; what follows was not read")
            return
    if text.peek():
        yield Problem(where, "has something behind the end of its list, which was not read")


class _Text:
    """The text of a source, read as it is needed."""

    def __init__(self, source: JsonSource) -> None:
        self._source = source
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._held, self._at, self._over = "", 0, False

    def _read(self) -> None:
        data = self._source.take()
        self._over = not data
        try:
            self._held, self._at = self._held[self._at :] + self._decoder.decode(data, final=not data), 0
        except UnicodeDecodeError as error:
            raise InputError(f"{self._source.path} is no UTF-8 text: {error.reason}") from None

    def peek(self) -> str:
        """The next character that is no space; nothing at the end."""
        while True:
            while self._at < len(self._held) and self._held[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._held):
                return self._held[self._at]
            if self._over:
                return ""
            self._read()

    def next(self) -> str:
        found = self.peek()
        self._at += len(found)
        return found

    def decode(self, decode: Callable[[str, int], tuple[Any, int]]) -> Any:
        """The next value.

        Raises:
            ValueError: There is none.
        """
        self.peek()
        wanted = _CHUNK
        while True:
            try:
                value, end = decode(self._held, self._at)
            except ValueError:
                if self._over or len(self._held) - self._at > LONGEST:
                    raise
                end = -1
            # A number may go on in what was not read yet.
            if end >= 0 and (end < len(self._held) or self._over):
                self._at = end
                return value
            # Twice as much each time: what is read anew is never more than what was read.
            wanted = max(wanted, 2 * (len(self._held) - self._at))
            while not self._over and len(self._held) - self._at < wanted:
                self._read()
