"""Telling by its messages which conversation a request goes on with.

A conversation is sent whole each time. Its messages are hashed one behind the other, so that two conversations have the same
digest at a place exactly when they were the same up to there. What clients change while they send a message again is not
hashed: ids, spaces in JSON and around texts, whether a text comes as a string or in parts, reasoning.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Self

from journeyman.capture.exchanges.reading import Reading
from journeyman.core.messages import Turn

_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Marks:
    """The digests of one exchange."""

    seed: bytes
    """Of its labels: conversations whose labels differ never meet."""
    begin: bytes
    """Before its first turn: of the labels, and of what the server was told to go on from."""
    turns: tuple[bytes, ...]
    """Behind each turn that was sent."""
    end: bytes
    """Behind the reply."""
    again: bytes
    """Of the same request, sent again."""

    @classmethod
    def of(cls, reading: Reading, labels: Iterable[str | None]) -> Self:
        seed = begin = _seed(tuple(labels))
        if reading.behind:
            begin = named(seed, "behind", reading.behind)
        elif reading.thread:
            begin = named(seed, "thread", reading.thread)
        turns = []
        last = begin
        for turn in reading.turns:
            last = link(last, turn)
            turns.append(last)
        return cls(seed, begin, tuple(turns), link(last, reading.reply), named(last, "again"))

    @property
    def sent(self) -> bytes:
        """Behind all that was sent."""
        return self.before(0)

    def before(self, last: int) -> bytes:
        """Behind all that was sent but for the last turns."""
        place = len(self.turns) - last
        return self.turns[place - 1] if place > 0 else self.begin


@lru_cache(maxsize=1024)
def _seed(labels: tuple[str | None, ...]) -> bytes:
    return named(b"", *labels)


def link(before: bytes, turn: Turn) -> bytes:
    """The digest behind a turn."""
    role, text, calls = turn[0], turn[1], turn[2]
    if role == "assistant":
        # Some clients cut out what a model thought aloud before they send its reply again.
        text = _THOUGHT.sub("", text) if "</think>" in text else text
        if calls:
            text = "\x1e".join((text.strip(), *(f"{call.tool}\x1f{_canonical(call.arguments)}" for call in calls)))
    return _digest(before, f"{role}\x1d{text.strip()}")


def named(before: bytes, *words: str | None) -> bytes:
    """The digest of words behind another digest."""
    return _digest(before, "\x1f".join("\x00" if word is None else word for word in words))


def _canonical(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments or "{}"), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return arguments.strip()


def _digest(before: bytes, text: str) -> bytes:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16, key=before).digest()
