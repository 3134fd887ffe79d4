"""Rows in Parquet. Messages and schemas are JSON in it, and say so in Hugging Face's way: `datasets` gives them back as they
were, without the empty fields that a table would add."""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from journeyman.core.errors import InputError
from journeyman.optimizers.weights.rows import LabelledCompletion, Row, is_plain, json_of, loads

_AT_ONCE = 256
"""Rows in memory."""
_BROKEN = (pa.ArrowException, OSError, ValueError, KeyError)
"""What pyarrow raises at a file that is none."""
_JSON = pa.json_()
_MESSAGES = pa.list_(_JSON)
_HF_JSON = {"_type": "Json"}


def write(path: Path, rows: Iterable[Row]) -> int:
    """Write rows of one kind and form; how many they were."""
    left = iter(rows)
    first = next(left, None)
    schema = _schema(first)
    count = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as file:
        together = chain(() if first is None else (first,), left)
        while some := list(islice(together, _AT_ONCE)):
            columns = [_column(field, [json_of(row).get(field.name) for row in some]) for field in schema]
            file.write_table(pa.Table.from_arrays(columns, schema=schema))
            count += len(some)
    return count


def read(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The number and the columns of each row, JSON unpacked.

    Raises:
        InputError: It is no such file.
    """
    try:
        with pq.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(_AT_ONCE):
                for row in batch.to_pylist():
                    number += 1
                    yield number, {name: _opened(name, value) for name, value in row.items()}
    except FileNotFoundError:
        raise InputError(f"{path} is not there; journeyman dataset build makes one") from None
    except _BROKEN as error:
        raise InputError(
            f"{path} is no Parquet file of rows: {str(error).splitlines()[0] if str(error) else error!r}"
        ) from None


def _schema(first: Row | None) -> pa.Schema:
    """All columns that a row of this kind may have: those of a later row are not known when the file begins."""
    plain = first is None or is_plain(first)
    text, hf_text = (pa.string(), _hf("string")) if plain else (_MESSAGES, _hf_list(_HF_JSON))
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
    columns |= {"tools": (_MESSAGES, _hf_list(_HF_JSON)), "source": (_JSON, _HF_JSON)}
    features = {name: hf for name, (_, hf) in columns.items()}
    return pa.schema(
        [pa.field(name, kind) for name, (kind, _) in columns.items()],
        metadata={"huggingface": json.dumps({"info": {"features": features}})},
    )


def _hf(name: str) -> dict[str, Any]:
    return {"dtype": name, "_type": "Value"}


def _hf_list(of: Mapping[str, Any]) -> dict[str, Any]:
    return {"feature": of, "_type": "List"}


def _column(field: pa.Field, values: list[Any]) -> pa.Array:
    storage = _stored(field.type)
    return pa.array([_packed(value, field.type) for value in values], storage).cast(field.type)


def _stored(kind: pa.DataType) -> pa.DataType:
    """The type with text where there is JSON: Arrow makes the one of the other, but not of objects."""
    if pa.types.is_list(kind):
        return pa.list_(_stored(kind.value_type))
    return pa.string() if kind == _JSON else kind


def _packed(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [_packed(each, kind.value_type) for each in value]
    return json.dumps(value, ensure_ascii=False) if kind == _JSON else value


_OF_JSON = frozenset({"prompt", "completion", "completions", "tools", "source"})


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
