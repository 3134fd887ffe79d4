"""Replays what a model once said, so that real results can be judged without a key.

Reads JSON lines, also gzipped, of three shapes:

    {"question": …, "output": …}                                  anybody's own
    {"question": …, "MODEL": {"solution": …, …}, …}               OpenAI's example model solutions for GSM8K
    {"i": 17, "output": …}                                        ZeroEval's outputs: row `i` of GSM8K's test file

The name is `recorded:PATH`, or `recorded:PATH#COLUMN` where the rows hold several models. Rows by number need the file of
questions: `recorded:PATH#QUESTIONS`, or else `test.jsonl[.gz]` is looked for beside the file and in `../gsm8k`.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError, ModelError
from journeyman.io.jsonl import iter_jsonl, json_object
from journeyman.models.base import Around, Dialect, Model, ModelRequest, Reply

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


# A model whose replies are kept in a file: the same question to the same deterministic model is not decoded again.

_KEPT = ("text", "model", "input_tokens", "output_tokens", "cached_tokens", "cost", "seconds", "finish")


class CachedModel(Around):
    """A model and what it once replied, with the tokens and seconds that it really took.

    Replies of a model that is not deterministic, and sampled ones without a seed, are not kept. The file is added to line by
    line; a line that cannot be read is as good as none, as a cache may always be lost.
    """

    def __init__(self, model: Model, path: Path) -> None:
        super().__init__(model)
        self.asked = 0
        """Requests that the model itself answered."""
        self._path = path
        self._known: dict[str, Reply] = {}
        self._waiting: dict[str, asyncio.Task[Reply]] = {}
        if path.exists():
            self._load()

    async def complete(self, request: ModelRequest) -> Reply:
        if not self.model.deterministic or (request.temperature and request.seed is None):
            self.asked += 1
            return await self.model.complete(request)
        key = self._key(request)
        if key in self._known:
            return self._known[key]
        if key not in self._waiting:
            self._waiting[key] = asyncio.create_task(self._ask(key, request))
        # Another who asks the same meanwhile waits for the same reply; one who gives up does not take it from the others.
        return await asyncio.shield(self._waiting[key])

    async def _ask(self, key: str, request: ModelRequest) -> Reply:
        try:
            self.asked += 1
            reply = await self.model.complete(request)
            self._known[key] = reply
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                told = {name: value for name, value in asdict(reply).items() if name in _KEPT}
                file.write(json.dumps({"key": key, **told}) + "\n")
            return reply
        finally:
            del self._waiting[key]

    def _key(self, request: ModelRequest) -> str:
        asked: list[Any] = [self.name, [[message.role, message.content] for message in request.messages]]
        asked += [request.temperature, request.max_tokens, request.seed, request.schema]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]

    def _load(self) -> None:
        bad = list[str]()
        lines = [line.value for line in iter_jsonl(self._path, _entry, bad=lambda where, _: bad.append(where))]
        self._known = dict(lines)
        if worse := len(bad) + len(lines) - len(self._known):
            log.warning("%s: %d of %d kept replies cannot be read or came twice", self._path, worse, len(bad) + len(lines))


def _entry(line: str) -> tuple[str, Reply]:
    told = json.loads(line)
    return told["key"], Reply(**{name: told[name] for name in _KEPT})
