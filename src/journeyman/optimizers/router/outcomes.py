"""What became of earlier requests, as rows of a table: of files of several shapes, logs of decisions and traces; and prices.

A line tells of one request with all workers that were asked (`outcomes`, `scores`, or `weak_correct` and `strong_correct`), or
of one worker's answer alone (`model`). Which of these it is, its fields say.
"""

import hashlib
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from journeyman.core.errors import InputError, ModelError
from journeyman.core.policy import Card, Ending, Outcome
from journeyman.core.task import Split, is_name
from journeyman.core.trace import ModelCall, Trace
from journeyman.io.files import read_text
from journeyman.models import pricing
from journeyman.optimizers.outcome_table import OutcomeRow, Table
from journeyman.optimizers.router import decisions
from journeyman.stores.traces.base import TraceStore
from journeyman.tasks.rows import Complaints
from journeyman.tasks.rows import read as read_lines

SHAPES = (
    '{"request": …, "outcomes": {MODEL: {"success": 0 to 1, "cost": …, "seconds": …}}}, or a line for each answer: '
    '{"request": …, "model": …, "success": …}'
)
"""What is told when a line is of none."""

_REQUEST = ("request", "question", "prompt", "instruction", "query")
_ID = ("id", "request_id", "global_index")
_TYPE = ("type", "task_type", "task_name", "domain")
_SUCCESS = ("success", "score", "correct")
_ERRORS = ("error", "provider_error")
_SPLITS = {"val": "validation", "dev": "validation", "test": "held_out", "held-out": "held_out"}
_PAIR = ("weak", "strong")
"""The workers of a line with `weak_correct` and `strong_correct`."""

Complain = Callable[[str], None]
"""Is told what is wrong with a line. Nothing of that line is used."""


_LARGEST = sys.float_info.max
"""What is more is no amount; whole numbers in JSON know no bound."""


class _Unusable(Exception):
    """Why a line cannot be used."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one line told, before lines of one request are brought together."""

    row: OutcomeRow
    complain: Complain


def rows(lines: Iterable[tuple[Mapping[str, Any], Complain]]) -> tuple[OutcomeRow, ...]:
    """The rows of a file's objects, in the order in which requests first come.

    Lines of one request (of one id, else of one text) are one row. A worker that stands there twice has begun another row of
    the same id and a number, so that every answer counts. Lines that say they are `contaminated` are left out.
    """
    found: list[_Answer] = []
    for line, complain in lines:
        if line.get("contaminated"):
            continue
        try:
            found.append(_Answer(_row(line), complain))
        except _Unusable as error:
            complain(str(error))
    return _together(found)


def merged(rows: Iterable[OutcomeRow]) -> tuple[OutcomeRow, ...]:
    """The same for rows that were made elsewhere."""
    return _together([_Answer(row, lambda _: None) for row in rows])


def table(
    rows: Sequence[OutcomeRow],
    cards: Mapping[str, Card] | None = None,
    *,
    workers: Sequence[str] = (),
    output_tokens: int | None = None,
) -> Table:
    """The rows as arrays.

    Args:
        cards: What is known of workers, by name. A price turns tokens that were counted into a cost that was not recorded.
        workers: The columns, in this order; without them all workers, in the order in which they first come.
        output_tokens: What is assumed where an answer's length was not recorded; the request is then taken to have a token for
            every four characters. Without it such a cost is unknown.
    """
    names = tuple(workers) or tuple(dict.fromkeys(name for row in rows for name in row.outcomes))
    known = tuple((cards or {}).get(name, Card(name=name)) for name in names)
    shape = (len(rows), len(names))
    success, cost, seconds = (np.full(shape, math.nan) for _ in range(3))
    errors, malformed = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    for i, row in enumerate(rows):
        for j, card in enumerate(known):
            if (outcome := row.outcomes.get(card.name)) is None:
                continue
            success[i, j] = _nan(_judged(outcome))
            cost[i, j] = _nan(_priced(outcome, card, row.request, output_tokens))
            seconds[i, j] = _nan(outcome.seconds)
            errors[i, j] = outcome.ending is Ending.ERROR
            malformed[i, j] = outcome.ending is Ending.FORMAT
    return Table(
        ids=tuple(row.id for row in rows),
        requests=tuple(row.request for row in rows),
        types=tuple(row.type for row in rows),
        cards=known,
        success=success,
        cost=cost,
        seconds=seconds,
        errors=errors,
        malformed=malformed,
        splits=tuple(row.split for row in rows) if any(row.split for row in rows) else (),
        clusters=tuple(row.cluster for row in rows) if any(row.cluster for row in rows) else (),
    )


def of_trace(trace: Trace) -> OutcomeRow | None:
    """A whole trace as the outcome of its model, where one model alone did it and somebody judged it, or it failed.

    `None` where several models took part, where nothing was asked or nobody knows how it went, and of every attempt at a
    validation or held-out task: of those nobody may learn.
    """
    models = {call.model for call in trace.calls}
    if trace.raw.get("split") in (Split.HELD_OUT, Split.VALIDATION) or len(models) != 1 or not trace.query.strip():
        return None
    outcome = _traced(trace)
    if outcome.ending is Ending.UNJUDGED:
        return None
    return OutcomeRow(id="", request=trace.query, type=trace.domain, outcomes={models.pop(): outcome})


def _traced(trace: Trace) -> Outcome:
    worth = trace.verdict.worth
    failed = bool(trace.calls) and all(_failed(call) for call in trace.calls)
    return Outcome(
        ending=Ending.ERROR if failed else _ending(worth),
        success=None if failed else worth,
        cost=trace.cost,
        seconds=trace.seconds,
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
    )


def _failed(call: ModelCall) -> bool:
    return call.error is not None and not call.reply


def _row(line: Mapping[str, Any]) -> OutcomeRow:
    outcomes = _outcomes(line)
    request = _text(line, _REQUEST)
    id = _name(line, _ID)
    if not request and not id:
        raise _Unusable(f"no request; a line is {SHAPES}")
    split = str(line.get("split") or "")
    split = _SPLITS.get(split, split)
    if split and split not in tuple(Split):
        raise _Unusable(f"split is {split!r}, and must be train, validation or held_out")
    cluster = line.get("cluster")
    if cluster is not None and not is_name(cluster):
        raise _Unusable(f"cluster is {cluster!r}, and must be a text or a number")
    return OutcomeRow(
        id=id,
        request=request,
        type=_text(line, _TYPE) or _prefix(line) or "general",
        outcomes=outcomes,
        split=split,
        cluster="" if cluster is None else str(cluster),
        propensity=_number(line, "propensity", low=0, high=1) if "model" in line else None,
    )


def _outcomes(line: Mapping[str, Any]) -> dict[str, Outcome]:
    """By worker, from whichever fields the line has."""
    if isinstance(payload := line.get("outcomes"), Mapping):
        return {str(name): _outcome(_object(name, each), str(name)) for name, each in payload.items()}
    if isinstance(payload := line.get("scores"), Mapping):
        return {str(name): _outcome({"success": score}, str(name)) for name, score in payload.items()}
    if all(f"{side}_correct" in line for side in _PAIR):
        return {side: _outcome({"success": line[f"{side}_correct"]}, side) for side in _PAIR}
    if isinstance(name := line.get("model", line.get("worker")), str) and name:
        return {name: _outcome(line, name)}
    raise _Unusable(f"neither outcomes nor a model; a line is {SHAPES}")


def _object(name: object, payload: object) -> Mapping[str, Any]:
    if not isinstance(payload, Mapping):
        raise _Unusable(f"the outcome of {name!r} is {payload!r}, and must be an object with success, cost and so on")
    return payload


def _outcome(payload: Mapping[str, Any], worker: str) -> Outcome:
    success = next((payload[field] for field in _SUCCESS if payload.get(field) is not None), None)
    if success is not None and (not isinstance(success, bool | int | float) or not 0 <= success <= 1):
        raise _Unusable(f"success of {worker!r} is {success!r}, and must be between 0 and 1, or null")
    ending = _given_ending(payload, worker)
    if ending in (Ending.ERROR, Ending.UNJUDGED):
        # What is recorded as 0 where there was no answer says nothing about the worker.
        success = None
    elif ending is None:
        ending = _ending(success)
    millis = _number(payload, "latency_ms")
    return Outcome(
        ending=ending,
        success=None if success is None else float(success),
        cost=_number(payload, "cost"),
        seconds=_number(payload, "seconds") if millis is None else millis / 1000,
        input_tokens=_count(payload, "input_tokens"),
        output_tokens=_count(payload, "output_tokens"),
    )


def _given_ending(payload: Mapping[str, Any], worker: str) -> Ending | None:
    ending = payload.get("ending")
    if ending is None:
        return Ending.ERROR if any(payload.get(field) for field in _ERRORS) else None
    if ending not in tuple(Ending):
        raise _Unusable(f"ending of {worker!r} is {ending!r}, and must be one of {', '.join(Ending)}")
    return Ending(ending)


def _ending(success: float | None) -> Ending:
    if success is None:
        return Ending.UNJUDGED
    return Ending.RIGHT if success >= 0.5 else Ending.WRONG


def _judged(outcome: Outcome) -> float | None:
    if outcome.success is not None or outcome.ending in (Ending.ERROR, Ending.UNJUDGED):
        return outcome.success
    return float(outcome.ending is Ending.RIGHT)


def _priced(outcome: Outcome, card: Card, request: str, output_tokens: int | None) -> float | None:
    if outcome.cost is not None:
        return outcome.cost
    if outcome.ending is Ending.ERROR:
        # Whether a call that failed was charged, only the provider knows.
        return None
    sent, written = outcome.input_tokens, outcome.output_tokens
    if output_tokens is not None:
        sent = math.ceil(len(request) / 4) if sent is None else sent
        written = output_tokens if written is None else written
    if sent is None or written is None:
        return card.call_price if card.input_price is None and card.output_price is None else None
    return card.price(sent, written)


def _together(found: Sequence[_Answer]) -> tuple[OutcomeRow, ...]:
    """One row for each request; a second answer of the same worker goes into a row of its own."""
    texts: dict[str, set[str]] = {}
    for answer in found:
        texts.setdefault(answer.row.id, set()).update({answer.row.request} - {""})
    merged: dict[tuple[str, str], _Same] = {}
    clusters: dict[tuple[str, str], str] = {}
    for answer in found:
        row = answer.row
        if not row.request and len(texts[row.id]) != 1:
            known = "several lines of this id tell different ones" if texts[row.id] else "no other line of this id tells one"
            answer.complain(f"no request, and {known}: {row.id!r}")
            continue
        text = row.request or next(iter(texts[row.id]))
        if row.cluster and clusters.setdefault((row.id, text), row.cluster) != row.cluster:
            answer.complain(f"the request is of cluster {clusters[row.id, text]} and of {row.cluster}; it is of one")
            continue
        merged.setdefault((row.id, text), _Same()).add(replace(row, request=text))
    return tuple(_named(row for same in merged.values() for row in same.rows))


class _Same:
    """Rows of one request."""

    def __init__(self) -> None:
        self.rows: list[OutcomeRow] = []
        self._next: Counter[str] = Counter()
        """By worker, the first row from which on it stands in none."""

    def add(self, row: OutcomeRow) -> None:
        at = max(self._next[worker] for worker in row.outcomes) if row.outcomes else len(self.rows)
        for worker in row.outcomes:
            self._next[worker] = at + 1
        if at == len(self.rows):
            self.rows.append(row)
            return
        old = self.rows[at]
        said = {name: getattr(old, name) or getattr(row, name) for name in ("split", "cluster")}
        # A propensity belongs to one decision alone.
        self.rows[at] = replace(old, outcomes={**old.outcomes, **row.outcomes}, propensity=None, **said)


def _named(rows: Iterable[OutcomeRow]) -> Iterator[OutcomeRow]:
    """With ids that are told apart: an evaluation pairs by them."""
    seen: Counter[str] = Counter()
    for row in rows:
        id = row.id or hashlib.sha256(row.request.encode(errors="surrogatepass")).hexdigest()[:12]
        seen[id] += 1
        yield replace(row, id=id if seen[id] == 1 else f"{id}#{seen[id]}")


def _text(line: Mapping[str, Any], fields: Sequence[str]) -> str:
    for field in fields:
        value = line.get(field)
        if isinstance(value, str) and value.strip():
            return value
        if value is not None and not isinstance(value, str):
            raise _Unusable(f"{field} is {value!r}, and must be text")
    return ""


def _name(line: Mapping[str, Any], fields: Sequence[str]) -> str:
    return next((str(line[field]) for field in fields if isinstance(line.get(field), str | int)), "")


def _prefix(line: Mapping[str, Any]) -> str:
    """The data set in front of an index, as in `AIME_112`."""
    index = line.get("global_index")
    return index.rpartition("_")[0] if isinstance(index, str) else ""


def _number(payload: Mapping[str, Any], field: str, *, low: float = 0.0, high: float = math.inf) -> float | None:
    value = payload.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= min(high, _LARGEST):
        raise _Unusable(f"{field} is {str(value)[:40]}, and must be a number of at least {low:g}, or null")
    return float(value)


def _count(payload: Mapping[str, Any], field: str) -> int | None:
    value = _number(payload, field)
    return None if value is None else int(value)


def _nan(value: float | None) -> float:
    return math.nan if value is None else value


# Where outcomes and prices come from: files, logs of decisions, the project's store, the price list.

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
    found = rows(_lines([path for path in paths if path not in logs], bad))
    if left_out is None:
        bad.check()
    else:
        left_out += [f"{where}: {what}" for where, what in bad.found]
    found += tuple(row for path in logs for row in decisions.rows(decisions.read(path)))
    if paths and not found:
        raise InputError(f"{', '.join(map(str, paths))} holds no outcome; a line is {SHAPES}")
    return found


def rows_of_store(store: TraceStore) -> tuple[OutcomeRow, ...]:
    """What models did alone, and somebody judged. Attempts at held-out tasks are never among them.

    Equal requests are one row, as are lines of a file, so that models can be compared on them.
    """
    return merged(row for trace in store.traces() if (row := of_trace(trace)) is not None)


def cards(names: Iterable[str], path: Path | None = None) -> dict[str, Card]:
    """What is known of workers: by a file of prices, else by the price list that comes with the package. No price is unknown.

    The file is one JSON object: `{MODEL: {"input_price": …, "output_price": …}}` in US dollars for a million tokens, or
    `"call_price"` in US dollars for a call; `description` and `seconds` are taken too.

    Raises:
        InputError: The file cannot be read, or a price in it is no number.
    """
    payload = _price_file(path) if path else {}
    return {name: payload.get(name) or _from_price_list(name) for name in names}


def _lines(paths: Sequence[Path], bad: Complaints) -> Iterator[tuple[Mapping[str, Any], Complain]]:
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
    numbers = {field: _price(payload, names, f"{path}: the {field} of {name}") for field, names in _NUMBERS.items()}
    return Card(
        name=name,
        description=next((str(payload[each]) for each in _DESCRIPTIONS if payload.get(each)), ""),
        input_price=numbers["input_price"],
        output_price=numbers["output_price"],
        call_price=numbers["call_price"],
        seconds=numbers["seconds"],
    )


def _price(payload: Mapping[str, Any], names: Sequence[str], what: str) -> float | None:
    value = next((payload[each] for each in names if payload.get(each) is not None), None)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LARGEST:
        raise InputError(f"{what} is {str(value)[:40]}, and must be a number of at least 0")
    return float(value)


def _from_price_list(name: str) -> Card:
    """By the price list; a model that is not on it, or under a name that nobody else uses, has no known price."""
    try:
        price = pricing.of(name)
    except ModelError:
        price = None
    return Card(name=name) if price is None else Card(name=name, input_price=price.input, output_price=price.output)
