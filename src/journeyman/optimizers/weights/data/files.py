"""Files of rows: JSON lines, or Parquet where the name ends so."""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from journeyman.core.errors import InputError, MissingExtra
from journeyman.io.atomic import atomic_write
from journeyman.io.jsonl import check_unicode, iter_jsonl
from journeyman.optimizers.weights.rows import LabelledCompletion, Row, is_plain, json_of, loads, row_of

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET = ".parquet"
_NO_ROW = "no line of JSON; a file of rows has an object in each"


def read(path: Path | str) -> Iterator[Row]:
    """The rows of a file, one after the other: its size does not matter.

    Raises:
        InputError: It is not there, or a row cannot be used; the message names file and line (of Parquet, the row).
    """
    path = Path(path)
    first: Row | None = None
    for number, value in _rows_of_parquet(path) if path.suffix == PARQUET else _lines(path):
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
            return _write_parquet(part, (row for row, _ in lines))
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


# Rows in Parquet. Messages and schemas are JSON in it, and say so in Hugging Face's way: `datasets` gives them back as they
# were, without the empty fields that a table would add. pyarrow is loaded when such a file is read or written.

_AT_ONCE = 256
"""Rows in memory."""
_OF_JSON = frozenset({"prompt", "completion", "completions", "tools", "source"})
"""Columns."""
_HF_JSON = {"_type": "Json"}


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[weights]'") from error
    return pyarrow


def _write_parquet(path: Path, rows: Iterable[Row]) -> int:
    pa = _parquet()
    left = iter(rows)
    first = next(left, None)
    schema = _schema(first)
    count = 0
    with pa.parquet.ParquetWriter(path, schema, compression="zstd") as file:
        together = chain(() if first is None else (first,), left)
        while some := list(islice(together, _AT_ONCE)):
            columns = [_column(field, [json_of(row).get(field.name) for row in some]) for field in schema]
            file.write_table(pa.Table.from_arrays(columns, schema=schema))
            count += len(some)
    return count


def _rows_of_parquet(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The number and the columns of each row, JSON unpacked."""
    pa = _parquet()
    try:
        with pa.parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(_AT_ONCE):
                for row in batch.to_pylist():
                    number += 1
                    yield number, {name: _opened(name, value) for name, value in row.items()}
    except FileNotFoundError:
        raise InputError(f"{path} is not there; journeyman dataset build makes one") from None
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{path} is no Parquet file of rows: {str(error).splitlines()[0] if str(error) else error!r}"
        ) from None


def _schema(first: Row | None) -> "pa.Schema":
    """All columns that a row of this kind may have: those of a later row are not known when the file begins."""
    import pyarrow as pa

    plain = first is None or is_plain(first)
    messages = pa.list_(pa.json_())
    text, hf_text = (pa.string(), _hf("string")) if plain else (messages, _hf_list(_HF_JSON))
    numbers, hf_numbers = pa.list_(pa.float64()), _hf_list(_hf("float64"))
    columns = {"prompt": (text, hf_text)}
    if first is None or isinstance(first, LabelledCompletion):
        columns |= {"completion": (text, hf_text), "label": (pa.bool_(), _hf("bool"))}
    else:
        columns |= {
            "completions": (pa.list_(text), _hf_list(hf_text)),
            "rewards": (numbers, hf_numbers),
            "scores": (numbers, hf_numbers),
            "logprobs": (pa.list_(numbers), _hf_list(hf_numbers)),
        }
    columns |= {"tools": (messages, _hf_list(_HF_JSON)), "source": (pa.json_(), _HF_JSON)}
    features = {name: hf for name, (_, hf) in columns.items()}
    return pa.schema(
        [pa.field(name, kind) for name, (kind, _) in columns.items()],
        metadata={"huggingface": json.dumps({"info": {"features": features}})},
    )


def _hf(name: str) -> dict[str, Any]:
    return {"dtype": name, "_type": "Value"}


def _hf_list(of: Mapping[str, Any]) -> dict[str, Any]:
    return {"feature": of, "_type": "List"}


def _column(field: "pa.Field", values: list[Any]) -> "pa.Array":
    import pyarrow as pa

    storage = _stored(field.type)
    return pa.array([_packed(value, field.type) for value in values], storage).cast(field.type)


def _stored(kind: "pa.DataType") -> "pa.DataType":
    """The type with text where there is JSON: Arrow makes the one of the other, but not of objects."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        return pa.list_(_stored(kind.value_type))
    return pa.string() if kind == pa.json_() else kind


def _packed(value: Any, kind: "pa.DataType") -> Any:
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_list(kind):
        return [_packed(each, kind.value_type) for each in value]
    return json.dumps(value, ensure_ascii=False) if kind == pa.json_() else value


def _opened(name: str, value: Any) -> Any:
    if name not in _OF_JSON or isinstance(value, str):
        return _object(value) if name in ("source", "tools") and value else value
    if isinstance(value, list):
        return [_item(each, inner=name == "completions") for each in value]
    return _without_nothing(value)


def _item(value: Any, *, inner: bool) -> Any:
    """A message, a schema, or one of several completions: each a list of messages, or text."""
    if isinstance(value, list):
        return [_item(each, inner=False) for each in value]
    return _object(value) if not inner else value


def _object(value: Any) -> Any:
    """What a text of JSON holds; a text that is none, as it is."""
    if not isinstance(value, str):
        return _without_nothing(value)
    try:
        return loads(value)
    except (ValueError, RecursionError):
        return value


def _without_nothing(value: Any) -> Any:
    """Without the empty fields that a table of objects of several shapes has."""
    if isinstance(value, dict):
        return {name: _without_nothing(each) for name, each in value.items() if each is not None}
    return [_without_nothing(each) for each in value] if isinstance(value, list) else value
