"""Files of rows: JSON lines, or Parquet where the name ends so."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError, MissingExtra
from journeyman.io.atomic import atomic_write
from journeyman.io.jsonl import check_unicode, iter_jsonl
from journeyman.optimizers.weights.rows import LabelledCompletion, Row, is_plain, json_of, loads, row_of

PARQUET = ".parquet"
_NO_ROW = "no line of JSON; a file of rows has an object in each"


def read(path: Path | str) -> Iterator[Row]:
    """The rows of a file, one after the other: its size does not matter.

    Raises:
        InputError: It is not there, or a row cannot be used; the message names file and line (of Parquet, the row).
    """
    path = Path(path)
    first: Row | None = None
    for number, value in _parquet().read(path) if path.suffix == PARQUET else _lines(path):
        try:
            row = row_of(value)
            first = first or row
            _same(first, row)
        except ValueError as error:
            raise InputError(f"{path}:{number} {error}") from None
        yield row


def write(path: Path | str, rows: Iterable[Row]) -> int:
    """Write rows of one kind and one form; how many they were. The file is there whole, or as it was before.

    The same rows give the same bytes (of Parquet, with the same version of pyarrow).

    Raises:
        InputError: The file cannot be written, the rows are of several kinds, or one of them holds what no file can keep.
    """
    path = Path(path)
    with atomic_write(path) as part:
        lines = _encoded(rows)
        if path.suffix == PARQUET:
            return int(_parquet().write(part, (row for row, _ in lines)))
        return _write_lines(part, (line for _, line in lines))


def line_of(row: Row) -> bytes:
    """A row as a line of JSON.

    Raises:
        ValueError: It holds what JSON or UTF-8 has no word for: a number that is none, or half a surrogate pair.
    """
    return json.dumps(json_of(row), ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _encoded(rows: Iterable[Row]) -> Iterator[tuple[Row, bytes]]:
    first: Row | None = None
    for number, row in enumerate(rows, start=1):
        first = first or row
        try:
            _same(first, row)
            line = line_of(row)
        except UnicodeEncodeError:
            raise InputError(f"row {number} holds half a surrogate pair, which is no text") from None
        except (ValueError, TypeError, RecursionError) as error:
            raise InputError(f"row {number} cannot be written: it {error}") from None
        yield row, line


def _same(first: Row, row: Row) -> None:
    """TRL looks at the first row alone to see of what kind they all are."""
    if type(row) is not type(first):
        kinds = ("labelled", "a group") if isinstance(first, LabelledCompletion) else ("a group", "labelled")
        raise ValueError(f"is {kinds[1]}, and the first row is {kinds[0]}: a file holds one kind")
    if is_plain(row) != is_plain(first):
        forms = ("text", "a conversation") if is_plain(first) else ("a conversation", "text")
        raise ValueError(f"is {forms[1]}, and the first row is {forms[0]}: a file holds one form")


def _write_lines(path: Path, lines: Iterable[bytes]) -> int:
    count = 0
    with path.open("wb") as file:
        for line in lines:
            file.write(line)
            count += 1
    return count


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    missing = "journeyman dataset build makes one"
    return ((line.number, line.value) for line in iter_jsonl(path, _value, what=_NO_ROW, missing=missing))


def _value(text: str) -> Any:
    value = loads(text)
    check_unicode(value, text)
    return value


def _parquet() -> Any:
    try:
        from journeyman.optimizers.weights.data import parquet
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[weights]'") from error
    return parquet
