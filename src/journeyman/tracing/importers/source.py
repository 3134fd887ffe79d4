"""What an importer is, and a file as the JSON values in it: one at a time, so that a file of any size fits into memory."""

import codecs
import gzip
import json
import re
import sqlite3
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, ClassVar, Protocol

from journeyman.core.errors import InputError, TraceError
from journeyman.tracing.base import RecordedTrace

Row = Mapping[str, Any]
LONGEST = 256 * 2**20
"""Bytes of one value at most: what is longer is no record, or a bomb."""
PATIENCE = 20
"""Records of no known format before a file is given up."""
_LIKE_JSON = re.compile(rb'\{\s*["}]|\[\s*[{\]]')
_CHUNK = 2**20
_GZIP, _ZSTD, _ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"
_PACKED, _WINDOW = 4096, 2**27
"""Bytes that are unpacked at once: four of them can stand for 128 kB. And the memory that a file may ask for."""
_BOM = codecs.BOM_UTF8
_BROKEN = (OSError, EOFError, zlib.error)
"""What a broken archive raises."""


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


class Importer(Protocol):
    """One way to write traces down; what a class of one's own must have. It may also say `unique`, as in `Format`."""

    def recognises(self, record: Row) -> bool:
        """Whether a record, a JSON object, is of this format."""

    def read(self, record: Row) -> Iterable[RecordedTrace | TraceError]:
        """The traces of a record; what of it is broken comes as an error between them, or is raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """An importer made of two functions."""

    name: str
    recognises: Callable[[Row], bool] = lambda _: False
    """Whether a record is of this format. Asked in the order of the registry's table: the narrower ones come first. No record
    is where only whole files are of the format."""
    read: Callable[[Row], Iterable[RecordedTrace | TraceError]] | None = None
    """The traces of a record; what of it is broken comes as an error between them, or is raised. `None` where only whole files
    are of the format."""
    unique: bool = False
    """Whether the ids that it writes are unique in the world."""
    repeats: bool = False
    """Whether files copy what others of them hold: of two traces with one id, the one that tells no more is a copy."""
    kinds: Callable[[Row], Iterable[tuple[str, bool]]] = lambda _: ()
    """Of a record of many lines, the kind of each and whether it is known here. See `LineCensus`."""
    several: "SeveralRecords | None" = None
    """How records of a file that are one trace together become one record."""
    whole: "WholeFile | None" = None
    """How a file is read that is no list of records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeveralRecords:
    """Records that stand behind each other in a file and belong together."""

    starts: Callable[["JsonRecord"], bool]
    """Whether a file whose first record is this one holds them."""
    begins: Callable[[Row], bool] = lambda _: False
    """Whether a record is the first of those that belong together; else all of a file do."""
    belongs: Callable[[Row], bool]
    """Whether a record goes on with them."""
    otherwise: str
    """What is said of a record that neither begins nor goes on."""
    joined: Callable[[list[Row]], Row]
    """The one record, as `read` takes it, that they are together."""
    carried: Callable[[Sequence[Row]], Row | None] = lambda _: None
    """A record to put in front of those that come next: what they do not say themselves, such as whose session it is."""


class LineCensus:
    """How many lines of a session's file are of kinds that nobody here knows, as a newer version of its program may write them.

    What is known of the file is read whatever is beside it. Above `SHARE` too much may be missing, and that is a problem.
    """

    SHARE: ClassVar[float] = 0.05

    def __init__(self, told: Mapping[str, Any] | None = None) -> None:
        """
        Args:
            told: What `told` gave when the file was read up to here.
        """
        self._lines: int = (told or {}).get("lines", 0)
        self._unknown: Counter[str] = Counter((told or {}).get("unknown", {}))

    def take(self, kinds: Iterable[tuple[str, bool]]) -> None:
        """Count lines: of each its kind, and whether that is known."""
        for kind, known in kinds:
            self._lines += 1
            if not known:
                self._unknown[kind[:60]] += 1

    def told(self) -> dict[str, Any]:
        """What was counted, to go on with."""
        return {"lines": self._lines, "unknown": dict(self._unknown)}

    def problems(self, where: str) -> Iterator["Problem"]:
        """The one sentence that names the kinds, where they are too many."""
        count = self._unknown.total()
        if count > self.SHARE * self._lines:
            named = ", ".join(f"{kind} ({number:,})" for kind, number in self._unknown.most_common(8))
            more = f" and {len(self._unknown) - 8} more kinds" if len(self._unknown) > 8 else ""
            yield Problem(
                where,
                f"{count:,} of its {self._lines:,} lines are of kinds that are not known ({count / self._lines:.0%}): "
                f"{named}{more}; the others were read; a newer Journeyman may know these, and --reprocess then reads them",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFile:
    """Files that are read in one go."""

    knows: Callable[["FileHead"], bool]
    """Whether a file that begins so is one."""
    read: Callable[[Sequence[Path]], Iterable[RecordedTrace | Problem]]
    """The traces of one file, or of several whose parts belong together.

    Raises:
        InputError: They are no such files, or cannot be opened.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChoice:
    """Which files of a folder are taken, by their paths in it.

    `*` stands for anything, slashes included; `**/` for nothing, too.
    """

    include: tuple[str, ...] = ()
    """Those that are like one of these; all where there are none."""
    exclude: tuple[str, ...] = ()
    """But not those that are like one of these."""

    def takes(self, within: str) -> bool:
        wanted = not self.include or any(_like(within, each) for each in self.include)
        return wanted and not any(_like(within, each) for each in self.exclude)


ALL_FILES = FileChoice()


def _like(path: str, pattern: str) -> bool:
    return fnmatch(path, pattern) or (pattern.startswith("**/") and fnmatch(path, pattern[3:]))


class FileHead:
    """How a file begins, as far as it must be read to know what it is."""

    def __init__(self, source: "JsonSource") -> None:
        """Raises `InputError` where the file cannot be unpacked."""
        self.path = source.path
        self.start = source.start()
        """Its first bytes; none where there is nothing but white space."""
        self._records = source.records()
        self._read: list[JsonRecord | Problem] = []

    @property
    def is_archive(self) -> bool:
        return self.start.startswith(_ZIP)

    @cached_property
    def like_json(self) -> bool:
        """Whether it begins as an object or a list of objects does; a table of TOML, or code, does not."""
        return _LIKE_JSON.match(self.start) is not None

    @cached_property
    def is_binary(self) -> bool:
        """Whether it is no text. A few bytes of a character may be cut off at the end."""
        try:
            codecs.getincrementaldecoder("utf-8")().decode(self.start)
        except UnicodeDecodeError:
            return True
        return b"\0" in self.start or self.start[:1] == b"\n"

    @cached_property
    def first(self) -> JsonRecord | None:
        """The first record; `None` where none of the first `PATIENCE` lines is one, or it is no text."""
        if self.is_archive or (self.is_binary and not self.like_json):
            return None
        for one in islice(self._records, PATIENCE):
            self._read.append(one)
            if isinstance(one, JsonRecord):
                return one
        return None

    def records(self) -> Iterator[JsonRecord | Problem]:
        """All of them, the first ones too."""
        return chain(self._read, self._records)


class _Watched:
    """A binary file that tells how far it was read."""

    def __init__(self, file: IO[bytes], done: Callable[[int], None]) -> None:
        self._file, self._done = file, done
        self.position = 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.position += len(data)
        self._done(len(data))
        return data


class _Zstd:
    """What a file packed with zstd holds, some at a time; the library is loaded when it is read."""

    def __init__(self, file: _Watched) -> None:
        self._file = file
        self._frame: Any = None
        self._ahead = b""

    def read(self, size: int) -> bytes:
        """About so many bytes; none at the end.

        Raises:
            EOFError: It is broken, or ends within a frame.
            ModuleNotFoundError: The extra is not installed.
        """
        import zstandard

        parts: list[bytes] = []
        held = 0
        while held < size and (packed := self._ahead or self._file.read(_PACKED)):
            self._frame = self._frame or zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
            try:
                parts.append(self._frame.decompress(packed))
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from None
            held += len(parts[-1])
            self._ahead = b""
            if self._frame.eof:
                self._ahead, self._frame = self._frame.unused_data, None
        if not held and self._frame is not None:
            raise EOFError("it ends before its end")
        return b"".join(parts)


class JsonSource:
    """A file that was opened, and unpacked where it is gzipped. Use it in a `with`."""

    def __init__(self, path: Path, done: Callable[[int], None] = lambda _: None) -> None:
        """Open it; `done` is called with how many more of its bytes were read.

        Raises:
            InputError: It cannot be opened.
        """
        self.path = path
        try:
            self._file = path.open("rb")
            start = self._file.read(4)
            self._file.seek(0)
        except FileNotFoundError:
            raise InputError(f"{path} is not there") from None
        except OSError as error:
            raise InputError(f"{path} could not be read: {error.strerror or error}") from None
        self._watched = _Watched(self._file, done)
        watched: Any = self._watched
        self._bytes: Any = watched
        if start[:2] == _GZIP:
            self._bytes = gzip.GzipFile(fileobj=watched)
        elif start == _ZSTD:
            self._bytes = _Zstd(watched)
        self._ahead = b""
        self._over = False

    def __enter__(self) -> "JsonSource":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def position(self) -> int:
        """How many bytes of the file were read."""
        return self._watched.position

    def head(self, size: int) -> bytes:
        """How it begins, as it stands there. Raises as `start` does."""
        while not self._over and len(self._ahead) < size:
            self._ahead += self._more()
        return self._ahead[:size]

    def start(self, size: int = 512) -> bytes:
        """How it begins, byte-order mark and white space left out; nothing where there is nothing.

        Raises:
            InputError: It is a broken archive, or packed in a way that is not read.
        """
        while not self._over and len(self._ahead) < size:
            self._ahead = (self._ahead + self._more()).removeprefix(_BOM).lstrip(b" \t\r\n")
        return self._ahead[:size]

    def whole(self, longest: int = LONGEST) -> bytes:
        """All that is left, at most `longest` bytes.

        Raises:
            InputError: It is longer, or a broken archive.
        """
        parts, size = [self._ahead], len(self._ahead)
        while not self._over and size <= longest:
            parts.append(self._more())
            size += len(parts[-1])
        if size > longest:
            raise InputError(
                f"{self.path} is longer than {longest >> 20} MB, and is no file of lines or list; bring it in parts"
            )
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
        except ModuleNotFoundError:
            said = f"is compressed with zstd: pip install 'journeyman[zstd]', or unpack it first: zstd -d {self.path.name}"
            raise InputError(f"{self.path} {said}") from None
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


def copied_database(path: Path, to: Path) -> Path:
    """A copy of a SQLite database that may be in use: some pages at a time, so that whoever writes to it never waits long.

    Raises:
        InputError: It is no database, or cannot be read.
    """
    try:
        opened = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        with closing(opened) as source, closing(sqlite3.connect(to)) as target:
            source.backup(target, pages=4096, sleep=0.01)
    except sqlite3.Error as error:
        raise InputError(f"{path} could not be read: {error}") from None
    return to
