"""`journeyman traces label`: what people say of traces, one key each."""

import heapq
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import click

from journeyman.cli.console import say, short
from journeyman.cli.shared import person
from journeyman.cli.trace_filters import filters, id_of, opened, query, reading, show_agreement
from journeyman.cli.trace_view import conversation
from journeyman.core.errors import InputError
from journeyman.core.format import counted
from journeyman.stores.traces.base import AUTO, Query, TraceStore, TraceSummary

# `journeyman traces label`: one word on one trace, or one key each on many. Every word is kept before the next is asked.

_WORDS = {"good": True, "bad": False, "clear": None}
_KEYS = {"y": True, "g": True, "n": False, "b": False}
_HELP = "y good  n bad  s skip  f full  u undo  q quit"
_EVERY = 1_000_000
"""Traces among which is drawn."""
_PAGE = 200
"""Lines read at a time while looking for those that one person has not labelled."""


@dataclass(slots=True)
class Sitting:
    """Somebody goes through traces, forwards and back. Knows nothing of keyboards and screens."""

    lines: Sequence[TraceSummary]
    word: Callable[[str, bool | None], None]
    """Keeps a word on a trace; `None` takes it back."""
    before: Mapping[str, bool]
    """What the same person had said of traces when the sitting began."""
    answers: list[bool | None] = field(default_factory=list)
    """Of each trace so far; `None` for one that was skipped."""

    @property
    def line(self) -> TraceSummary | None:
        """The trace that is to be judged now."""
        return self.lines[len(self.answers)] if len(self.answers) < len(self.lines) else None

    def judge(self, good: bool) -> None:
        if self.line is not None:
            self.word(self.line.id, good)
            self.answers.append(good)

    def skip(self) -> None:
        if self.line is not None:
            self.answers.append(None)

    def undo(self) -> bool:
        """Go back by one, with what had been said of it before; whether there was one."""
        if not self.answers:
            return False
        if self.answers.pop() is not None and self.line is not None:
            self.word(self.line.id, self.before.get(self.line.id))
        return True


@click.command()
@click.argument("trace_id", metavar="[ID]", required=False)
@click.argument("word", metavar="[good|bad|clear]", type=click.Choice(("good", "bad", "clear")), required=False)
@click.option("--who", metavar="NAME", help="Whose word it is.  [default: $JOURNEYMAN_USER, else who is logged in]")
@click.option("--others", is_flag=True, help="The ones, too, that others have labelled and WHO has not: to see if you agree.")
@click.option("--agreement", is_flag=True, help="Say how far the people who labelled agree, and ask nothing.")
@click.option("--telling", is_flag=True, help="Ask first for the labels that teach most: see the text above.")
@click.option("--random", "drawn", is_flag=True, help="Ask in an order that chance made: what autolabel's promise rests on.")
@click.option("--audit", is_flag=True, help="Ask only about the share of the auto-labeler's labels that waits for a person.")
@filters
@click.option("--limit", type=click.IntRange(1), default=200, show_default=True, metavar="N", help="Ask about so many at most.")
@reading
def label(  # noqa: PLR0913 - a parameter an option
    *,
    trace_id: str | None,
    word: str | None,
    who: str | None,
    others: bool,
    agreement: bool,
    telling: bool,
    drawn: bool,
    audit: bool,
    limit: int,
    store: str | None,
    quiet: bool,
    **wanted: Any,
) -> dict[str, Any]:
    """Say of traces whether they went well, one key each.

    Without an ID the traces that nobody has labelled are shown one after the other, newest first: y good, n bad, s skip,
    f the whole of it, u undo, q quit. Where there is no terminal, the same letters are read from stdin, a line each. Every word
    is kept at once, with who said it and when; of one person the latest word holds. --who ground-truth tells what turned out
    later and goes before every person; --who end-user tells what those who were served said, and goes behind checks.

    --telling asks by turns for attempts at one request that did different things, one of each kind, as a right and a wrong one
    side by side show what went wrong, and for traces that an auto-labeler would learn most from. What the auto-labeler labelled
    and is to be held to comes first, without what it said; --audit asks about nothing else.

    \b
    Examples:
      journeyman traces label --who ada --agent desk
      journeyman traces label --random --limit 50
      journeyman traces label 4f2a good
      journeyman traces label --agreement
    """
    with opened(store) as traces:
        if agreement:
            return show_agreement(traces, quiet=quiet)
        who = person(who)
        if trace_id is not None:
            return _label_one(traces, trace_id, word, who)
        if telling + drawn + audit > 1:
            raise InputError("--telling, --random and --audit are three orders to be asked in; give one of them")
        meant = query(wanted)
        if telling:
            return _label_many(traces, _most_telling(traces, meant, limit), who)
        if drawn:
            return _label_many(traces, _at_random(traces, meant, limit), who)
        audited = [] if others or meant != Query() else _to_audit(traces)[:limit]
        if audit:
            return _label_many(traces, audited or _to_audit(traces)[:limit], who)
        asked = {line.id for line in audited}
        rest = (line for line in _waiting(traces, meant, who, limit, others=others) if line.id not in asked)
        return _label_many(traces, [*audited, *rest][:limit], who)


def _most_telling(store: TraceStore, wanted: Query, limit: int) -> list[TraceSummary]:
    """What a person should judge next, the most telling first."""
    from journeyman.rewards import auto_labeler as labeler

    wanted_ids = [trace.id for trace in labeler.ask(store, labeler.teach(store), limit, wanted)]
    lines = {line.id: line for line in store.unlabelled(labeler.POOL, wanted)}
    return [lines[id] for id in wanted_ids]


def _at_random(store: TraceStore, wanted: Query, limit: int) -> list[TraceSummary]:
    """What a person should judge next in an order that has nothing to do with what it is."""
    from journeyman.stores.traces.labels import ticket

    waiting = _waiting(store, wanted, "", _EVERY, others=False)
    return heapq.nsmallest(limit, waiting, key=lambda line: ticket(line.id))


def _to_audit(store: TraceStore) -> list[TraceSummary]:
    """What the auto-labeler labelled and a person has not yet said anything of, of the share that it is held to."""
    from journeyman.stores.traces.labels import to_audit

    lines = (store.line(id) for id in to_audit(store.labels()))
    return [line for line in lines if line is not None and line.labelled_by == AUTO]


def _label_one(store: TraceStore, prefix: str, word: str | None, who: str) -> dict[str, Any]:
    from journeyman.experiments import wiring

    if word is None:
        raise InputError(f"what of {prefix}? journeyman traces label {prefix} good, bad or clear")
    whole_id = id_of(store, prefix)
    store.label(whole_id, _WORDS[word], who=who, at=wiring.now())
    say(f"{whole_id}: {'taken back' if word == 'clear' else word} ({who})")
    return {"trace_id": whole_id, "label": _WORDS[word], "who": who}


def _waiting(store: TraceStore, wanted: Query, who: str, limit: int, *, others: bool) -> Iterator[TraceSummary]:
    """What is to be judged, newest first: the filters decide, and where they do not speak of labels, what has none."""
    if not others and wanted.label is None:
        yield from store.unlabelled(limit, wanted)
        return
    mine = _own_words(store, who) if others else {}
    after, left = None, limit
    while left:
        page = store.page(wanted, limit=_PAGE, after=after)
        for line in page.lines:
            if left and line.id not in mine:
                left -= 1
                yield line
        if (after := page.next) is None:
            return


def _own_words(store: TraceStore, who: str) -> dict[str, bool]:
    """What a person says of traces now."""
    from journeyman.stores.traces.labels import said

    return said(store.labels()).get(who, {})


def _label_many(store: TraceStore, lines: Sequence[TraceSummary], who: str) -> dict[str, Any]:
    from journeyman.experiments import wiring

    def word(id: str, good: bool | None) -> None:
        store.label(id, good, who=who, at=wiring.now())

    sitting = Sitting(lines, word, _own_words(store, who))
    if not lines:
        say("Nothing waits for a label. Ones that others have labelled: --others")
    else:
        say(f"{counted(len(lines), 'trace')} for {who} to judge.  {_HELP}")
        with _keyboard() as keys:
            _sit(store, sitting, keys)
    good, bad, skipped = (sum(each is kind for each in sitting.answers) for kind in (True, False, None))
    say(f"{good} good, {bad} bad, {skipped} skipped; {len(lines) - len(sitting.answers)} left")
    return {"who": who, "good": good, "bad": bad, "skipped": skipped, "left": len(lines) - len(sitting.answers)}


def _sit(store: TraceStore, sitting: Sitting, keys: Iterator[str]) -> None:
    shown = -1
    while (line := sitting.line) is not None:
        if shown != len(sitting.answers):
            shown = len(sitting.answers)
            _show_waiting(store, line, f"{shown + 1}/{len(sitting.lines)}", full=False)
        key = next(keys, "q")
        if key in _KEYS:
            sitting.judge(_KEYS[key])
            say("good" if _KEYS[key] else "bad", colour="green" if _KEYS[key] else "red")
        elif key == "s":
            sitting.skip()
            say("skipped")
        elif key == "u":
            say("undone" if sitting.undo() else "there is nothing to undo")
        elif key == "f":
            _show_waiting(store, line, "", full=True)
        elif key == "q":
            return
        else:
            say(_HELP)


def _show_waiting(store: TraceStore, line: TraceSummary, place: str, *, full: bool) -> None:
    trace = store.get(line.id)
    if place:
        task = None if line.task_id == line.id else line.task_id
        about = ", ".join(short(each, 40) for each in (line.agent, *line.models, task) if each)
        say("", f"── {place}  {short(line.id, 40)}  {about} ".ljust(80, "─"))
    # Somebody may have pruned it since the list was made; a word on it is refused then.
    for text in conversation(trace, full=full) if trace else ():
        click.echo(text, err=True)
    if line.error:
        say(f"ended with {short(line.error, 400)}", colour="red")


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
