"""Replays what a model once said, so that real results can be judged without a key.

Reads JSON lines, also gzipped, of three shapes:

    {"question": …, "output": …}                                  anybody's own
    {"question": …, "MODEL": {"solution": …, …}, …}               OpenAI's example model solutions for GSM8K
    {"i": 17, "output": …}                                        ZeroEval's outputs: row `i` of GSM8K's test file

The name is `recorded:PATH`, or `recorded:PATH#COLUMN` where the rows hold several models. Rows by number need the file of
questions: `recorded:PATH#QUESTIONS`, or else `test.jsonl[.gz]` is looked for beside the file and in `../gsm8k`.
"""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError, ModelError
from journeyman.io.jsonl import iter_jsonl, json_object
from journeyman.models.base import Dialect, ModelRequest, Reply

log = logging.getLogger(__name__)

Row = tuple[str, dict[str, Any]]
"""Where it stands, as `file:line`, and what it holds."""


class RecordedModel:
    """A model that gives the recorded output of whichever known question it is asked."""

    dialect: Dialect = "full"
    deterministic = True

    def __init__(self, source: str) -> None:
        self.name = f"recorded:{source}"
        path, _, part = source.partition("#")
        self._outputs = _outputs(Path(path), part)
        self._by_length = sorted(self._outputs, key=len, reverse=True)

    @property
    def questions(self) -> tuple[str, ...]:
        """All that it knows an answer to, with normalised space."""
        return tuple(self._outputs)

    async def complete(self, request: ModelRequest) -> Reply:
        asked = next((m.content for m in reversed(request.messages) if m.role == "user"), "")
        question = self._find(_normalised(asked))
        if question is None:
            raise ModelError(f"{self.name} holds no answer to {asked[:60]!r}")
        return Reply(text=self._outputs[question], model=self.name, finish="stop")

    async def close(self) -> None:
        """There is nothing to give back."""

    def _find(self, asked: str) -> str | None:
        """The question itself, or else the longest one that stands in the prompt."""
        if asked in self._outputs:
            return asked
        return next((question for question in self._by_length if question in asked), None)


def _normalised(text: str) -> str:
    return " ".join(text.split())


def _outputs(path: Path, part: str) -> dict[str, str]:
    """Output by question. All rows that cannot be used are named in one error."""
    rows = list(_rows(path))
    if not rows:
        raise InputError(f"{path} holds no recorded outputs: it is empty")
    first = rows[0][1]
    by_number = "question" not in first and "i" in first
    questions = _questions(path, part) if by_number else ()
    column = "output" if by_number else _column(rows[0], part)
    outputs: dict[str, str] = {}
    bad: list[str] = []
    for where, row in rows:
        question, output = row.get("question"), _output(row.get(column))
        number = row.get("i")
        if by_number and isinstance(number, int) and 0 <= number < len(questions):
            question = questions[number]
        if not isinstance(question, str) or not question.strip():
            bad.append(f"{where}: no question")
        elif output is None:
            bad.append(f"{where}: no text under {column!r}")
        elif outputs.setdefault(_normalised(question), output) != output:
            log.warning("%s: this question was answered before, differently; the first answer is kept", where)
    if bad:
        raise InputError("; ".join(bad[:20]) + (f"; and {len(bad) - 20} more" if len(bad) > 20 else ""))
    return outputs


def _output(value: object) -> str | None:
    if isinstance(value, Mapping):
        value = value.get("solution")
    return value if isinstance(value, str) else None


def _column(row: Row, wanted: str) -> str:
    """Which column holds the outputs: the one that is wanted, or the only one there is."""
    where, cells = row
    columns = [key for key, value in cells.items() if key == "output" or (isinstance(value, dict) and "solution" in value)]
    if wanted in columns:
        return wanted
    if len(columns) == 1 and not wanted:
        return columns[0]
    if not columns:
        raise InputError(f"{where}: no outputs here; a row is {{question, output}}, or see journeyman.models.recorded")
    problem = f"there is no column {wanted!r}" if wanted else "it is not clear which column to replay"
    raise InputError(f"{where}: {problem}; write one of {', '.join('#' + column for column in columns)} after the path")


def _questions(path: Path, named: str) -> tuple[str, ...]:
    """The questions that rows are numbered by."""
    places = [Path(named)] if named else [path.parent / "test.jsonl", path.parent.parent / "gsm8k" / "test.jsonl"]
    files = [file for place in places for file in (place, place.with_name(place.name + ".gz")) if file.is_file()]
    if not files:
        raise InputError(f"{path} has its rows by number, and the questions were not found: write {path}#QUESTIONS.jsonl")
    return tuple(str(row.get("question", "")) for _, row in _rows(files[0]))


def _rows(path: Path) -> Iterator[Row]:
    missing = "recorded:PATH names a JSON-lines file, gzipped or not"
    return ((line.where, line.value) for line in iter_jsonl(path, json_object, missing=missing))
