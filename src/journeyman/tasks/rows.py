"""Rows from a file that somebody else wrote: JSON lines or one JSON list, gzipped or not, each with the line it stands at."""

import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from journeyman.errors import InputError

_GAP = re.compile(r"[\s,]*")
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""Two in a row are one character."""
_ALIKE, _NAMED = 5, 10
"""Faults that are named with their line: of one kind, and in all."""


@dataclass(frozen=True, slots=True)
class Row:
    where: str
    """`file:line`."""
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Complaints:
    """Everything wrong with a file, gathered before anything is done with it, so that it is mended in one go."""

    summary: str
    """What is said first."""
    found: list[tuple[str, str]] = field(default_factory=list)
    """Where, and what."""

    def add(self, where: str, what: str) -> None:
        self.found.append((where, what))

    def check(self) -> None:
        """Raise an `InputError`, if there are any: a line for each, up to five of a kind and ten in all, and how many more."""
        if not self.found:
            return
        named, alike = list[str](), Counter[str]()
        for where, what in self.found:
            alike[what] += 1
            if alike[what] <= _ALIKE and len(named) < _NAMED:
                named.append(f"{where}: {what}")
        if more := len(self.found) - len(named):
            named.append(f"and {more} more")
        told = f" {named[0]}" if len(named) == 1 else "".join(f"\n  {line}" for line in named)
        raise InputError(f"{self.summary}:{told}")


def read(path: Path | str, bad: Complaints) -> Iterator[Row]:
    """The objects in a file, in order. What is no object is added to `bad` on the way, and left out.

    Raises:
        InputError: The file cannot be read at all.
    """
    text = _text(Path(path))
    halves = _HALF.search(text) is not None
    items = _listed(text) if text.lstrip().startswith("[") else _lines(text)
    for line, value in items:
        where = f"{path}:{line}"
        if isinstance(value, dict) and halves and not _is_unicode(value):
            bad.add(where, "text in it is not valid Unicode: half of a surrogate pair (\\ud800 to \\udfff) stands alone")
        elif isinstance(value, dict):
            yield Row(where, value)
        elif isinstance(value, _NoJson):
            bad.add(where, f"no JSON ({value})")
        else:
            bad.add(where, "not a JSON object")


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path} is not there; check the path") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start})") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} could not be read: {error}") from None


class _NoJson(str):
    """Why a piece of text is not JSON."""

    __slots__ = ()


def _lines(text: str) -> Iterator[tuple[int, object]]:
    # Not splitlines: JSON strings may hold other line separators than these.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                yield number, _NoJson(error)


def _listed(text: str) -> Iterator[tuple[int, object]]:
    """The items of a list, one by one, so that each has its line. After what is no JSON nothing more can be read."""
    decoder = json.JSONDecoder()
    at, line, counted = text.index("[") + 1, 1, 0
    while True:
        at = _after(_GAP, text, at)
        line, counted = line + text.count("\n", counted, at), at
        if text[at : at + 1] == "]":
            if text[at + 1 :].strip():
                yield line, _NoJson("something stands behind the end of the list")
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            yield error.lineno, _NoJson(f"{error.msg}, column {error.colno}")
            return
        except RecursionError as error:
            yield line, _NoJson(error)
            return
        yield line, value


def _is_unicode(value: dict[str, Any]) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at
