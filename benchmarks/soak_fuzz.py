"""Broken input for every reader of files and bytes from outside: it ends in a value or in one sentence, and in nothing else.

A worker is a fork with a limit on its memory and on the time of each input. What it ends in otherwise (another exception, a
crash, no end) is kept in the corpus, one for each place in the code, with the seed that makes it again, and is tried first the
next time.
"""

import gzip
import hashlib
import json
import os
import random
import re
import resource
import signal
import struct
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

from benchmarks.soak_children import Acknowledge, Child, Counts, Turn
from journeyman.core.errors import JourneymanError

LONGEST = 64 * 1024
"""Bytes of a sample: what is longer is cut at the end of a line."""
SECONDS = 10.0
"""An input may take."""
MEMORY = 2 << 30
"""Bytes that a worker may ask for beyond those that it begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """What reads a file, and sound files to break."""

    name: str
    read: Callable[[Path], object]
    samples: Callable[[], Sequence[bytes]]
    file: str = "input"
    mend: Callable[[bytes], bytes] | None = None
    """Makes checksums fit again, so that what stands behind them is read as well; done to every second input."""


class TooLong(BaseException):
    """An input took more than its time; nothing that is read may catch it."""


# How input breaks.

_EXTREMES = (
    b"0", b"-1", b"1e400", b"-1e999", b"NaN", b"Infinity", b"9223372036854775808", b"-9223372036854775809", b"1" * 400,
    b"1e-400", b"18446744073709551616", b"3.5", b"null", b"true", b"[]", b"{}", b'""', b'"x"', b'"\\ud800"', b'"\\u0000"',
    b"[null]", b'[[]]', b'{"a": null}', b'"2026-13-45T99:99:99Z"', b'"9999-12-31T23:59:59+14:00"',
    b'"0001-01-01T00:00:00-14:00"',
)  # fmt: skip
_BYTES = (
    b"\xff\xfe",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\x00",
    b"\r",
    b"\xe2\x80\xa8",
    b"\xef\xbb\xbf",
    b"\x1b[2J",
)
_NUMBER = re.compile(rb"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_VALUE = re.compile(rb'"(?:[^"\\\n]|\\.){0,200}"|(?<![\w.])-?\d+(?:\.\d+)?|true|false|null')
_NESTED = ((b"[", b"]"), (b'{"a":', b"}"), (b"(", b")"))


def mutated(chance: random.Random, samples: Sequence[bytes]) -> bytes:
    """A sample with one to four breaks; now and then gzipped afterwards."""
    found = chance.choice(samples)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 4))):
        found = chance.choice(_BREAKS)(chance, found, samples)[: 4 * LONGEST]
    return gzip.compress(found, 1) if chance.random() < 0.03 else found


def _flip(chance: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _at in range(min(len(data), chance.choice((1, 1, 2, 8)))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(chance: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _without(chance: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    begin, end = _chunk(chance, data)
    return data[:begin] + data[end:]


def _twice(chance: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    begin, end = _chunk(chance, data)
    return data[:end] + data[begin:end] * chance.choice((1, 1, 3)) + data[end:]


def _spliced(chance: random.Random, data: bytes, samples: Sequence[bytes]) -> bytes:
    other = chance.choice(samples)
    begin, end = _chunk(chance, other)
    at = chance.randrange(len(data) + 1)
    return data[:at] + other[begin:end] + data[at + (end - begin) * chance.randrange(2) :]


def _number(chance: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return _replaced(chance, data, _NUMBER, chance.choice(_EXTREMES))


def _other_value(chance: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return _replaced(chance, data, _VALUE, chance.choice(_EXTREMES))


def _nested(chance: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    (begins, ends), deep = chance.choice(_NESTED), chance.choice((20, 150, 1100, 5000))
    return _replaced(chance, data, _VALUE, begins * deep + b"0" + ends * deep)


def _strange(chance: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(_BYTES) + data[at + chance.randrange(2) :]


def _length(chance: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A number of a binary format, where one may stand."""
    form = chance.choice(("<I", "<Q", ">I", "<H"))
    width = struct.calcsize(form)
    most = 2 ** (8 * width) - 1
    at = chance.randrange(max(1, len(data) - width))
    number = chance.choice((0, 1, most, most // 2, most // 2 + 1, min(most, len(data) + 1)))
    return data[:at] + struct.pack(form, number) + data[at + width :]


_BREAKS = (_flip, _cut, _without, _twice, _spliced, _number, _other_value, _other_value, _nested, _strange, _length)


def _chunk(chance: random.Random, data: bytes) -> tuple[int, int]:
    begin = chance.randrange(len(data) + 1)
    return begin, min(len(data), begin + chance.choice((1, 4, 32, 256, 4096)))


def _replaced(chance: random.Random, data: bytes, pattern: re.Pattern[bytes], new: bytes) -> bytes:
    found = [match.span() for match in pattern.finditer(data)]
    if not found:
        return data
    begin, end = chance.choice(found)
    return data[:begin] + new + data[end:]


# One reader for a while.


class Fuzzer:
    """Tries a reader, and remembers where it is."""

    def __init__(self, reader: Reader, *, seed: int, corpus: Path) -> None:
        self.reader = reader
        self._seed, self._corpus = seed, corpus / reader.name
        self._samples: Sequence[bytes] = ()
        self._next = 0
        self._kept = sorted(self._corpus.glob("*.input")) if self._corpus.is_dir() else []
        self._known: set[str] = set()

    def __call__(self, turn: Turn) -> Counts:
        """Try inputs for a while; those of the corpus first."""
        self._samples = self._samples or [each for each in self.reader.samples() if each]
        folder, counts = turn.folder, Counts()
        until = time.monotonic() + turn.seconds
        while True:
            child = Child(folder, partial(self._work, folder, until))
            while not child.ended and child.hear(SECONDS + 5):
                pass
            hung = not child.ended
            begun = self._count(child, counts)
            code = -signal.SIGKILL if hung else child.wait(10)
            child.kill()
            if not hung and not code:
                return counts
            end = "it hung, deaf to the alarm" if hung else f"the process ended with {code}: {child.traceback[-300:]}"
            self._fault(counts, begun, end, end)
            if time.monotonic() > until:
                return counts

    def input(self, number: int) -> bytes:
        """The input of a number: of the corpus below 0, made of the seed from 0 on."""
        if number < 0:
            return self._kept[number].read_bytes()
        chance = random.Random(f"{self._seed} {self.reader.name} {number}")
        found = mutated(chance, self._samples)
        return self.reader.mend(found) if self.reader.mend is not None and number % 2 else found

    def _work(self, folder: Path, until: float, tell: Acknowledge) -> None:
        space = _address_space() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (space, space))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.environ["TMPDIR"] = str(folder)
        signal.signal(signal.SIGALRM, _too_long)
        first = number = self._next or -len(self._kept)
        path = folder / self.reader.file
        while number <= max(first, 0) or time.monotonic() < until:
            tell(["begun", number])
            path.write_bytes(self.input(number))
            tell(self._outcome(path))
            number += 1

    def _outcome(self, path: Path) -> list[str]:
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            self.reader.read(path)
        except JourneymanError as error:
            signal.setitimer(signal.ITIMER_REAL, 0)
            return ["refused"] if str(error).strip() else ["broken", "an error without a word", "no sentence"]
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            signal.setitimer(signal.ITIMER_REAL, 0)
            return ["broken", f"{type(error).__name__}: {str(error)[:200]}", _place(error)]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return ["value"]

    def _count(self, child: Child, counts: Counts) -> int:
        """Count what a worker told; the number of the input that it told no outcome of, or of the last."""
        number = self._next
        for what, *more in child.acknowledged:
            if what == "begun":
                number = more[0]
                counts.tried += 1
                self._next = max(number + 1, 0)
            elif what == "value":
                counts.survived += 1
            elif what == "refused":
                counts.refused += 1
            else:
                self._fault(counts, number, *more)
        return number

    def _fault(self, counts: Counts, number: int, said: str, place: str) -> None:
        counts.tracebacks += 1
        if place in self._known:
            return
        self._known.add(place)
        content = self.input(number)
        path = self._corpus / f"{hashlib.sha256(content).hexdigest()[:16]}.input"
        self._corpus.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        about = {"seed": self._seed, "number": number, "said": said, "place": place}
        path.with_suffix(".json").write_text(json.dumps(about, indent=2) + "\n")
        counts.notes.append(f"{said} at {place}; the input is {path}")


def _too_long(_: int, __: FrameType | None) -> None:
    raise TooLong(f"no end after {SECONDS:.0f} s")


def _place(error: BaseException) -> str:
    """The innermost line of Journeyman's own on the way to it, and the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/journeyman/" in frame.filename]
    told = [own[-1], *([frames[-1]] if frames[-1] is not own[-1] else [])] if own else frames[-1:]
    return " < ".join(f"{'/'.join(Path(frame.filename).parts[-3:])}:{frame.lineno} {frame.name}" for frame in told)


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
