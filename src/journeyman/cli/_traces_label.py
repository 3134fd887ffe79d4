"""`journeyman traces label`: one word on one trace, or one key each on many. Every word is kept before the next is asked."""

import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from journeyman import app, config
from journeyman.cli import _traces, _traces_stats
from journeyman.cli import _traces_screen as screen
from journeyman.errors import InputError
from journeyman.stores.traces.agreement import said
from journeyman.stores.traces.base import AUTO, Line, Query, TraceStore

_WORDS = {"good": True, "bad": False, "clear": None}
_KEYS = {"y": True, "g": True, "n": False, "b": False}
_HELP = "y good  n bad  s skip  f full  u undo  q quit"
_PAGE = 200
"""Lines read at a time while looking for those that one person has not labelled."""


@dataclass(slots=True)
class Sitting:
    """Somebody goes through traces, forwards and back. Knows nothing of keyboards and screens."""

    lines: Sequence[Line]
    word: Callable[[str, bool | None], None]
    """Keeps a word on a trace; `None` takes it back."""
    before: Mapping[str, bool]
    """What the same person had said of traces when the sitting began."""
    said: list[bool | None] = field(default_factory=list)
    """Of each trace so far; `None` for one that was skipped."""

    @property
    def line(self) -> Line | None:
        """The trace that is to be judged now."""
        return self.lines[len(self.said)] if len(self.said) < len(self.lines) else None

    def judge(self, good: bool) -> None:
        if self.line is not None:
            self.word(self.line.id, good)
            self.said.append(good)

    def skip(self) -> None:
        if self.line is not None:
            self.said.append(None)

    def undo(self) -> bool:
        """Go back by one, with what had been said of it before; whether there was one."""
        if not self.said:
            return False
        if self.said.pop() is not None and self.line is not None:
            self.word(self.line.id, self.before.get(self.line.id))
        return True


def label(trace_id: str | None, word: str | None, given: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    url, named, others, limit = (given.pop(name) for name in ("store", "who", "others", "limit"))
    agreement, telling = given.pop("agreement"), given.pop("telling")
    with _traces.opened(url) as store:
        if agreement:
            return _traces_stats.agreement_of(store, quiet=quiet)
        who = person(named)
        if trace_id is not None:
            return _one(store, trace_id, word, who)
        wanted = _traces.query(given)
        if telling:
            from journeyman.cli import _traces_auto

            return _many(store, _traces_auto.telling(store, wanted, limit), who)
        return _many(store, list(_waiting(store, wanted, who, limit, others=others)), who)


def person(named: str | None) -> str:
    """Whose word it is.

    Raises:
        InputError: Nobody can be named, or it is the name that stands for no person.
    """
    who = (named or "").strip() or config.person()
    if not who:
        raise InputError(f"who says so is not known; write --who NAME, or set {config.USER_VARIABLE}")
    if who == AUTO:
        raise InputError(f"--who {AUTO}: that name stands for what no person said; write another")
    return who


def _one(store: TraceStore, prefix: str, word: str | None, who: str) -> dict[str, Any]:
    if word is None:
        raise InputError(f"what of {prefix}? journeyman traces label {prefix} good, bad or clear")
    found = _traces.whole_id(store, prefix)
    store.label(found, _WORDS[word], who=who, at=app.now())
    _traces.tell(f"{found}: {'taken back' if word == 'clear' else word} ({who})")
    return {"trace_id": found, "label": _WORDS[word], "who": who}


def _waiting(store: TraceStore, wanted: Query, who: str, limit: int, *, others: bool) -> Iterator[Line]:
    """What is to be judged, newest first: the filters decide, and where they do not speak of labels, what has none."""
    if not others and wanted.label is None:
        yield from store.unlabelled(limit, wanted)
        return
    mine = own_words(store, who) if others else {}
    after, left = None, limit
    while left:
        page = store.page(wanted, limit=_PAGE, after=after)
        for line in page.lines:
            if left and line.id not in mine:
                left -= 1
                yield line
        if (after := page.next) is None:
            return


def own_words(store: TraceStore, who: str) -> dict[str, bool]:
    """What a person says of traces now."""
    return said(store.labels()).get(who, {})


def _many(store: TraceStore, lines: Sequence[Line], who: str) -> dict[str, Any]:
    def word(id: str, good: bool | None) -> None:
        store.label(id, good, who=who, at=app.now())

    sitting = Sitting(lines, word, own_words(store, who))
    if not lines:
        _traces.tell("Nothing waits for a label. Ones that others have labelled: --others")
    else:
        _traces.tell(f"{len(lines)} traces for {who} to judge.  {_HELP}")
        console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        with _keyboard() as keys:
            _sit(store, sitting, keys, console)
    good, bad, skipped = (sum(each is kind for each in sitting.said) for kind in (True, False, None))
    _traces.tell(f"{good} good, {bad} bad, {skipped} skipped; {len(lines) - len(sitting.said)} left")
    return {"who": who, "good": good, "bad": bad, "skipped": skipped, "left": len(lines) - len(sitting.said)}


def _sit(store: TraceStore, sitting: Sitting, keys: Iterator[str], console: Console) -> None:
    shown = -1
    while (line := sitting.line) is not None:
        if shown != len(sitting.said):
            shown = len(sitting.said)
            _show(console, store, line, f"{shown + 1}/{len(sitting.lines)}", full=False)
        key = next(keys, "q")
        if key in _KEYS:
            sitting.judge(_KEYS[key])
            console.print("good" if _KEYS[key] else "bad", style="green" if _KEYS[key] else "red")
        elif key == "s":
            sitting.skip()
            console.print("skipped", style="dim")
        elif key == "u":
            console.print("undone" if sitting.undo() else "there is nothing to undo", style="dim")
        elif key == "f":
            _show(console, store, line, "", full=True)
        elif key == "q":
            return
        else:
            console.print(_HELP, style="dim")


def _show(console: Console, store: TraceStore, line: Line, place: str, *, full: bool) -> None:
    trace = store.get(line.id)
    if place:
        task = None if line.task_id == line.id else line.task_id
        about = ", ".join(screen.short(each, 40) for each in (line.agent, *line.models, task) if each)
        console.print()
        console.rule(Text(f"{place}  {screen.short(line.id, 40)}  {about}", "bold"), align="left")
    # Somebody may have pruned it since the list was made; a word on it is refused then.
    for text in screen.conversation(trace, full=full) if trace else ():
        console.print(text, soft_wrap=True)
    if line.error:
        console.print(Text(f"ended with {screen.short(line.error, 400)}", "red"))


@contextmanager
def _keyboard() -> Iterator[Iterator[str]]:
    """Keys as they are pressed; where there is no terminal, the first letter of each line. Ends when there are no more.

    The terminal is asked for single keys once, and not before each: what is typed ahead would be lost in between.
    """
    if not sys.stdin.isatty():
        yield (line.strip()[:1].lower() for line in sys.stdin)
        return
    try:
        import termios
        import tty
    except ImportError:
        yield (click.getchar().lower() for _ in iter(int, 1))
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal, termios.TCSADRAIN)
    try:
        yield _pressed(terminal)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _pressed(terminal: int) -> Iterator[str]:
    while key := os.read(terminal, 1):
        if key == b"\x1b":
            # An arrow or the like: several bytes, that come together and are no decision.
            while select.select([terminal], [], [], 0)[0] and os.read(terminal, 16):
                pass
        if key == b"\x04":
            return
        yield key.decode("ascii", "replace").lower()
