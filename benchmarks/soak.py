"""A standing campaign of faults: is anything lost that was acknowledged, does anything end in a traceback, is anything left?

    python -m benchmarks.soak                                        # five minutes
    python -m benchmarks.soak --minutes 20
    python -m benchmarks.soak --hours 8 --seed 7
    python -m benchmarks.soak --only kill/gateway --seed 3           # one kind, and the same moments again
    python -m benchmarks.soak --list

Kinds, by turns until the time is over (half of it goes to kill/), each turn in a folder of its own:

    fuzz/READER      broken input for everything that reads files or bytes from outside; and ends in a value or a sentence
    kill/WRITER      kill -9 of a process that writes, at a random moment after the first write that it acknowledged
    postgres/WRITER  PostgreSQL is stopped and started while a process writes to it
    disk/WRITER      the disk is full, and has room again
    clock/WRITER     the clock jumps by hours and days, both ways

What is counted: tried, survived (ended in a value, or all that was acknowledged is there), refused (ended in one sentence),
lost (acknowledged, and not there), tracebacks (any other end), left (processes, temporary and unfinished files, shared memory).
The exit code is 1 when one of the last three is not 0. Input that ended in a traceback is kept in the corpus, and tried first
the next time.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from itertools import cycle
from pathlib import Path

from benchmarks.soak_children import Counts, Ground, Skipped, Turn, adopt_orphans
from benchmarks.soak_faults import INJECTED, Campaign, pieces
from benchmarks.soak_fuzz import Fuzzer
from benchmarks.soak_readers import BROKEN, READERS

CORPUS = Path(".journeyman") / "soak" / "corpus"
_COLUMNS = ("tried", "survived", "refused", "lost", "tracebacks", "left")
_SLICE = 0.6
"""Seconds that a reader is tried at a stretch, in a campaign of some minutes."""
Piece = Callable[[Turn], Counts]


def chosen(campaign: Campaign, given: argparse.Namespace) -> dict[str, Piece]:
    """The pieces that were asked for, in the order of their turns: fuzzing stands between all else."""
    inject = tuple(given.inject or ())
    readers = [*READERS, *([BROKEN] if "traceback" in inject else [])]
    fuzz: dict[str, Piece] = {f"fuzz/{reader.name}": Fuzzer(reader, seed=given.seed, corpus=given.corpus) for reader in readers}
    injected = {name: piece for word, (name, piece) in INJECTED.items() if word in inject}
    found = {**pieces(campaign), **injected, **fuzz}
    if not given.only:
        return found
    asked = [*given.only, *injected, *(["fuzz/injected"] if "traceback" in inject else [])]
    return {name: piece for name, piece in found.items() if any(_is(name, each) for each in asked)}


def _is(name: str, asked: str) -> bool:
    return name == asked or name.startswith(f"{asked.rstrip('/')}/")


class Tally:
    """What came of each piece so far."""

    def __init__(self) -> None:
        self.counts: dict[str, Counts] = {}
        self.skipped: dict[str, str] = {}

    def turn(self, name: str, piece: Piece, ground: Ground, chance: random.Random, seconds: float) -> None:
        counts = self.counts.setdefault(name, Counts())
        with ground.piece() as (folder, left):
            try:
                counts.add(piece(Turn(folder=folder, chance=chance, seconds=seconds)))
            except Skipped as why:
                self.skipped[name] = str(why)
            except Exception as error:  # noqa: BLE001 - one turn does not end a campaign of hours
                counts.add(Counts(tried=1, tracebacks=1, notes=[f"the turn ended in {type(error).__name__}: {error}"]))
        counts.left += len(left)
        counts.notes += [f"left behind: {each}" for each in left]

    @property
    def total(self) -> Counts:
        total = Counts()
        for counts in self.counts.values():
            total.add(counts)
        return total

    def table(self) -> Iterator[str]:
        names = [name for name in self.counts if name not in self.skipped]
        width = max(map(len, (*names, *self.skipped, "together")))
        yield f"{'kind':{width}} " + " ".join(f"{column:>10}" for column in _COLUMNS)
        for name, counts in (*((name, self.counts[name]) for name in names), ("together", self.total)):
            yield f"{name:{width}} " + " ".join(f"{getattr(counts, column):10}" for column in _COLUMNS)
        for name, why in self.skipped.items():
            yield f"{name:{width}} skipped: {why}"


def soak(given: argparse.Namespace) -> Tally:
    """The whole campaign."""
    tally = Tally()
    with ExitStack() as held:
        scratch = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        # Programs of other users, such as PostgreSQL, must get to what is theirs.
        scratch.chmod(0o755)
        ground = Ground(scratch)
        tempfile.tempdir = os.environ["TMPDIR"] = str(ground.temporary)
        ground.temporary.chmod(0o1777)
        campaign = held.enter_context(Campaign(ground, scratch))
        turns = chosen(campaign, given)
        if not turns:
            raise SystemExit(f"nothing is called {', '.join(given.only)}; --list names what there is")
        # Who has seen enough is told what came of it so far.
        with suppress(KeyboardInterrupt):
            _rounds(tally, turns, ground, given)
        tempfile.tempdir = None
        left = ground.shared_memory()
        tally.counts.setdefault("the whole campaign", Counts()).add(Counts(left=len(left), notes=left))
    return tally


def _rounds(tally: Tally, turns: Mapping[str, Piece], ground: Ground, given: argparse.Namespace) -> None:
    until = time.monotonic() + (given.hours * 3600 if given.hours else given.minutes * 60)
    taken, spent = Counter[str](), {True: 0.0, False: 0.0}
    # Those that kill have half of the time, in a campaign that does other things too.
    kinds = {kills: [name for name in turns if name.startswith("kill/") is kills] for kills in spent}
    waiting = {kills: cycle(names) for kills, names in kinds.items() if names}
    while min(taken[name] for name in turns) < given.rounds if given.rounds else time.monotonic() < until:
        if len(tally.skipped) == len(turns):
            return
        kills = min(waiting, key=lambda each: spent[each])
        name, began = next(waiting[kills]), time.monotonic()
        if name not in tally.skipped:
            # Of the kind and the number of its turn alone, so that it is the same where only one kind is asked for.
            chance = random.Random(f"{given.seed} {name} {taken[name]}")
            tally.turn(name, turns[name], ground, chance, given.slice)
            _tell(name, tally.counts[name])
        taken[name] += 1
        spent[kills] += time.monotonic() - began


_told: set[str] = set()


def _tell(name: str, counts: Counts) -> None:
    """Say a fault as soon as it is found, once."""
    for note in counts.notes:
        if (line := f"{name}: {note}") not in _told:
            _told.add(line)
            print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--hours", type=float, default=0.0, help="instead of minutes")
    parser.add_argument("--rounds", type=int, default=0, help="so many turns of each, whatever time that takes")
    parser.add_argument("--seed", type=int, default=None, help="drawn, and told, unless said")
    parser.add_argument("--only", action="append", metavar="KIND", help="such as kill, or fuzz/gguf; may be said several times")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="where input that ended in a traceback is kept")
    parser.add_argument("--slice", type=float, default=_SLICE, help="seconds for a reader at a stretch")
    parser.add_argument("--inject", action="append", choices=("traceback", *INJECTED), help="a fault, to see it found")
    parser.add_argument("--list", action="store_true", help="name the kinds, and end")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    given.corpus = given.corpus.resolve()
    if given.list:
        print("\n".join([*pieces(None), *(f"fuzz/{reader.name}" for reader in READERS)]))
        return 0
    given.seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    print(f"seed {given.seed}; input that ends in a traceback is kept in {given.corpus}", file=sys.stderr, flush=True)
    # What is read may be as odd as it likes.
    warnings.simplefilter("ignore")
    adopt_orphans()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    tally = soak(given)
    if given.json:
        told = {name: {**asdict(counts)} for name, counts in tally.counts.items()}
        print(json.dumps({"seed": given.seed, "kinds": told, "skipped": tally.skipped, "together": asdict(tally.total)}))
    else:
        print("\n".join(tally.table()))
    return int(not tally.total.sound)


if __name__ == "__main__":
    raise SystemExit(main())
