"""Where outcomes and prices come from: files, logs of decisions, the project's store, the price list."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError, ModelError
from journeyman.core.policy import Card
from journeyman.io.files import read_text
from journeyman.models import pricing
from journeyman.optimizers.outcome_table import OutcomeRow
from journeyman.optimizers.router import decisions, outcomes
from journeyman.stores.traces.base import TraceStore
from journeyman.tasks.rows import Complaints
from journeyman.tasks.rows import read as read_lines

_NUMBERS = {
    "input_price": ("input_price", "input_token_price_per_million"),
    "output_price": ("output_price", "output_token_price_per_million"),
    "call_price": ("call_price",),
    "seconds": ("seconds",),
}
"""Fields of a card, and how files of prices call them."""
_DESCRIPTIONS = ("description", "feature")
_PRICES = 'prices stand there as {MODEL: {"input_price": 0.15, "output_price": 0.6}}, US dollars for a million tokens'


def rows_of_files(paths: Sequence[Path], left_out: list[str] | None = None) -> tuple[OutcomeRow, ...]:
    """The rows of files of outcomes and of logs of decisions; lines of one request may stand in several files.

    Args:
        left_out: Lines that cannot be used are named here, and left out. Without it they are an error.

    Raises:
        InputError: Some lines cannot be used; they are named by file and line. Or there is no row in any.
    """
    logs = [path for path in paths if decisions.is_log(path)]
    bad = Complaints("Some outcomes cannot be used (--skip-unusable leaves them out)")
    found = outcomes.rows(_lines([path for path in paths if path not in logs], bad))
    if left_out is None:
        bad.check()
    else:
        left_out += [f"{where}: {what}" for where, what in bad.found]
    found += tuple(row for path in logs for row in decisions.rows(decisions.read(path)))
    if paths and not found:
        raise InputError(f"{', '.join(map(str, paths))} holds no outcome; a line is {outcomes.SHAPES}")
    return found


def rows_of_store(store: TraceStore) -> tuple[OutcomeRow, ...]:
    """What models did alone, and somebody judged. Attempts at held-out tasks are never among them.

    Equal requests are one row, as are lines of a file, so that models can be compared on them.
    """
    return outcomes.merged(row for trace in store.traces() if (row := outcomes.of_trace(trace)) is not None)


def cards(names: Iterable[str], path: Path | None = None) -> dict[str, Card]:
    """What is known of workers: by a file of prices, else by the price list that comes with the package. No price is unknown.

    The file is one JSON object: `{MODEL: {"input_price": …, "output_price": …}}` in US dollars for a million tokens, or
    `"call_price"` in US dollars for a call; `description` and `seconds` are taken too.

    Raises:
        InputError: The file cannot be read, or a price in it is no number.
    """
    payload = _price_file(path) if path else {}
    return {name: payload.get(name) or _from_price_list(name) for name in names}


def _lines(paths: Sequence[Path], bad: Complaints) -> Iterator[tuple[Mapping[str, Any], outcomes.Complain]]:
    for path in paths:
        for line in read_lines(path, bad):
            yield line.value, partial(bad.add, line.where)


def _price_file(path: Path) -> dict[str, Card]:
    try:
        payload = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is no JSON ({error}); {_PRICES}") from None
    if not isinstance(payload, dict):
        raise InputError(f"{path} is no JSON object; {_PRICES}")
    return {name: _card(name, each, path) for name, each in payload.items()}


def _card(name: str, payload: object, path: Path) -> Card:
    if not isinstance(payload, dict):
        raise InputError(f"{path}: {name} is {payload!r}; {_PRICES}")
    numbers = {field: _number(payload, names, f"{path}: the {field} of {name}") for field, names in _NUMBERS.items()}
    return Card(
        name=name,
        description=next((str(payload[each]) for each in _DESCRIPTIONS if payload.get(each)), ""),
        input_price=numbers["input_price"],
        output_price=numbers["output_price"],
        call_price=numbers["call_price"],
        seconds=numbers["seconds"],
    )


def _number(payload: Mapping[str, Any], names: Sequence[str], what: str) -> float | None:
    value = next((payload[each] for each in names if payload.get(each) is not None), None)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= sys.float_info.max:
        raise InputError(f"{what} is {str(value)[:40]}, and must be a number of at least 0")
    return float(value)


def _from_price_list(name: str) -> Card:
    """By the price list; a model that is not on it, or under a name that nobody else uses, has no known price."""
    try:
        price = pricing.of(name)
    except ModelError:
        price = None
    return Card(name=name) if price is None else Card(name=name, input_price=price.input, output_price=price.output)
