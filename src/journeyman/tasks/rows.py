"""Rows from a file that somebody else wrote: JSON lines or one JSON list, gzipped or not, each with the line it stands at."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError
from journeyman.io.jsonl import Unusable, as_object, iter_jsonl, json_object, open_maybe_compressed

_GAP = re.compile(r"[\s,]*")
_START = 512
"""Bytes in which a file has begun."""
_ALIKE, _NAMED = 5, 10
"""Faults that are named with their line: of one kind, and in all."""


@dataclass(frozen=True, slots=True)
class FileRow:
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


def read(path: Path | str, bad: Complaints) -> Iterator[FileRow]:
    """The objects in a file, in order. What is no object is added to `bad` on the way, and left out.

    Raises:
        InputError: The file cannot be read at all.
    """
    if not _is_list(path):
        for line in iter_jsonl(path, json_object, bad=bad.add):
            yield FileRow(line.where, line.value)
        return
    with open_maybe_compressed(path) as file:
        text = file.read().decode("utf-8-sig")
    for number, value in _listed(text):
        where = f"{path}:{number}"
        if isinstance(value, _NoJson):
            bad.add(where, f"no JSON ({value})")
            continue
        try:
            yield FileRow(where, as_object(value, text))
        except Unusable as error:
            bad.add(where, str(error))


def _is_list(path: Path | str) -> bool:
    with open_maybe_compressed(path) as file:
        return file.read(_START).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


class _NoJson(str):
    """Why a piece of text is not JSON."""

    __slots__ = ()


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


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at
