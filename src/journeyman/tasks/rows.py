"""Rows from a file that somebody else wrote: JSON lines, one JSON list or CSV, gzipped or not, or Parquet; each with its place.

JSON is recognised by what it holds. A table is recognised by how its file is named, or as Parquet by its first bytes.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError, MissingExtra
from journeyman.io.jsonl import LONGEST, Unusable, as_object, iter_jsonl, json_object, open_maybe_compressed

_GAP = re.compile(r"[\s,]*")
_START = 512
"""Bytes in which a file has begun."""
_ALIKE, _NAMED = 5, 10
"""Faults that are named with their line: of one kind, and in all."""


@dataclass(frozen=True, slots=True)
class FileRow:
    where: str
    """`file:line`; of Parquet `file:row`."""
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
        # What is no JSON is found when a file is opened, the rest as its rows are looked at.
        for where, what in sorted(self.found, key=lambda each: _place(each[0])):
            alike[what] += 1
            if alike[what] <= _ALIKE and len(named) < _NAMED:
                named.append(f"{where}: {what}")
        if more := len(self.found) - len(named):
            named.append(f"and {more} more")
        told = f" {named[0]}" if len(named) == 1 else "".join(f"\n  {line}" for line in named)
        raise InputError(f"{self.summary}:{told}")


def _place(where: str) -> tuple[str, int]:
    """As places are read: by file, and in it by line."""
    file, _, line = where.rpartition(":")
    return (file, int(line)) if line.isdecimal() else (where, 0)


def read(path: Path | str, bad: Complaints) -> Iterator[FileRow]:
    """The objects in a file, in order. What is no object is added to `bad` on the way, and left out.

    Raises:
        InputError: The file cannot be read at all.
    """
    if _is_parquet(path):
        yield from _of_parquet(path)
        return
    if Path(path).name.removesuffix(".gz").endswith((".csv", ".tsv")):
        yield from _of_table(path, bad)
        return
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


def of_values(values: Iterable[Mapping[str, Any]], bad: Complaints) -> Iterator[FileRow]:
    """Rows that a program has in memory, as mappings, as a DataFrame (of pandas or polars), as a table of pyarrow or a data set
    of `datasets`; each is told by its number, from 1. A pair is a question and its answer."""
    for number, value in enumerate(_records(values), start=1):
        where = f"row {number}"
        if isinstance(value, tuple) and len(value) == 2:
            value = {"question": value[0], "answer": value[1]}
        # What pandas calls missing is a float that equals nothing.
        if isinstance(value, Mapping):
            yield FileRow(where, {str(name): each for name, each in value.items() if each == each})
        else:
            bad.add(where, f"a {type(value).__name__}, and no mapping of columns to values")


def _records(values: Any) -> Iterable[Any]:
    for name in ("to_dicts", "to_pylist"):
        if (listed := getattr(values, name, None)) is not None:
            return listed()  # type: ignore[no-any-return]  # polars, pyarrow
    return values.to_dict("records") if hasattr(values, "iloc") else values  # type: ignore[no-any-return]  # pandas


_DELIMITERS = ",;\t|"


def _of_table(path: Path | str, bad: Complaints) -> Iterator[FileRow]:
    """The rows below the first, which names the columns. An empty cell is no value."""
    with open_maybe_compressed(path) as file:
        text = file.read().decode("utf-8-sig")
    first = text[: text.find("\n")] if "\n" in text else text
    # The first row holds names, which hardly hold one: guessing from the texts below it goes wrong.
    delimiter = "\t" if ".tsv" in Path(path).name else max(_DELIMITERS, key=first.count)
    csv.field_size_limit(LONGEST)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = [name.strip() for name in next(reader, [])]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"{path}: two columns are called {twice!r}; give each a name of its own")
        before = reader.line_num
        for cells in reader:
            where, before = f"{path}:{before + 1}", reader.line_num
            if len(cells) > len(names):
                bad.add(
                    where, f"{len(cells)} cells, and there are {len(names)} columns; put a text with {delimiter!r} into quotes"
                )
            elif any(cells):
                yield FileRow(where, {name: cell for name, cell in zip(names, cells, strict=False) if cell.strip()})
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: no CSV ({error})") from None


def _is_parquet(path: Path | str) -> bool:
    if Path(path).suffix == ".parquet":
        return True
    with open_maybe_compressed(path) as file:
        return file.read(4) == b"PAR1"


def _of_parquet(path: Path | str) -> Iterator[FileRow]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise MissingExtra(f"{path} is Parquet: pip install 'journeyman[data]' to read it, or save it as CSV") from None
    with open_maybe_compressed(path) as file:
        try:
            table = parquet.read_table(file)
        except pyarrow.ArrowException as error:
            raise InputError(f"{path} is no Parquet: {next(iter(str(error).splitlines()), '')}") from None
    for number, value in enumerate(table.to_pylist(), start=1):
        yield FileRow(f"{path}:{number}", {name: each for name, each in value.items() if each is not None})


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
