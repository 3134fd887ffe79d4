"""The history that aider keeps of its chats, `.aider.chat.history.md`: Markdown, so what a tool answered is not in it."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from journeyman.core.errors import InputError
from journeyman.core.messages import Turn, Usage
from journeyman.tracing import builder, fields
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.source import FileHead, Format, Problem, WholeFile

NAME = "aider"
_BEGINS = "# aider chat started at "
_TOKENS = re.compile(r"Tokens: ([\d.,]+k?) sent,(?: [\d.,]+k? cache \w+,)* ([\d.,]+k?) received")
_COST = re.compile(r"Cost: \$([\d.]+) message")
_MODEL = re.compile(r"(?:Main )?[Mm]odel: (\S+)")


def _knows(head: FileHead) -> bool:
    return head.start.startswith(_BEGINS.encode())


def _read(paths: Sequence[Path]) -> Iterator[RecordedTrace | Problem]:
    for path in paths:
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                yield from _chats(file, path)
        except OSError as error:
            raise InputError(f"{path} could not be read: {error.strerror or error}") from None


def _chats(lines: Iterator[str], path: Path) -> Iterator[RecordedTrace]:
    chat: _Chat | None = None
    seen: dict[str, int] = {}
    for line in lines:
        if line.startswith(_BEGINS):
            if chat is not None:
                yield from chat.traces()
            began = line.removeprefix(_BEGINS).strip()
            seen[began] = again = seen.get(began, 0) + 1
            # Two projects may be begun in the same second.
            name = sha256(f"{path.resolve().parent}\0{began}\0{again}".encode()).hexdigest()[:16]
            chat = _Chat(name, began)
        elif chat is not None:
            chat.take(line.rstrip("\n"))
    if chat is not None:
        yield from chat.traces()


class _Chat:
    """One chat while it is read."""

    def __init__(self, name: str, began: str) -> None:
        self._name, self._began = name, began
        self._turns: list[Turn] = []
        self._role, self._said = "", list[str]()
        self._model, self._usage = "", Usage()
        self._cost: float | None = None

    def take(self, line: str) -> None:
        if line.startswith("#### "):
            self._say("user", line.removeprefix("#### "))
        elif line.startswith("> ") or line == ">":
            self._told(line[2:].rstrip())
        elif self._role == "assistant" or line:
            self._say("assistant", line)

    def _say(self, role: str, text: str) -> None:
        if role != self._role:
            self._end()
            self._role = role
        self._said.append(text.rstrip())

    def _told(self, text: str) -> None:
        """What the program said: its model, its counts, what it did."""
        if (tokens := _TOKENS.search(text)) is not None:
            self._usage = Usage(_exact(tokens[1]), _exact(tokens[2]))
            if (cost := _COST.search(text)) is not None:
                self._cost = float(cost[1])
            self._end()
        elif (model := _MODEL.match(text)) is not None:
            self._model = model[1]
        elif self._turns or self._said:
            self._say("system", text)

    def _end(self) -> None:
        text = "\n".join(self._said).strip("\n")
        if self._role and text:
            turn = Turn(self._role, text, started_at=self._at)
            if self._role == "assistant":
                turn = turn._replace(model=self._model, usage=self._usage, cost=self._cost)
            self._turns.append(turn)
        self._role, self._said, self._usage, self._cost = "", [], Usage(), None

    @property
    def _at(self) -> datetime | None:
        return fields.time(self._began)

    def traces(self) -> Iterator[RecordedTrace]:
        self._end()
        if self._turns:
            yield from builder.by_prompt(self._turns, session=self._name, agent=NAME, raw={"began": self._began})


def _exact(text: str) -> int | None:
    """A count that is written out; `4.2k` was rounded, and so it is not known."""
    return int(text.replace(",", "")) if text.replace(",", "").isdigit() else None


FORMAT = Format(name=NAME, unique=True, whole=WholeFile(knows=_knows, read=_read))
