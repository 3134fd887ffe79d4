"""The work behind `journeyman traces`, apart from its options. What only looks loads no learner."""

import json
import os
import re
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from journeyman.core.errors import InputError
from journeyman.experiments import settings
from journeyman.io.atomic import atomic_write
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import AUTO, Page, Query, TraceStore, TraceSummary
from journeyman.stores.urls import as_url, is_nowhere, redacted

if TYPE_CHECKING:
    from rich.console import Console

    from journeyman.stores.traces.labels import LabelAgreement

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MOST = 10_000
"""Nobody asks how many more than this there are, and counting them takes its time."""


@contextmanager
def opened(url: str | None) -> Iterator[TraceStore]:
    """The store that is meant: the project's, or another. Looking for traces where there is no store makes none."""
    where = _where(url)
    with open_traces(where, make=False) as store:
        if not store.count(Query(), most=1):
            _tell_of_none(where)
        yield store


def _where(url: str | None) -> str:
    return settings.load().store_url if url is None else as_url(url)


def _tell_of_none(where: str) -> None:
    tell(
        f"There are no traces in {redacted(where)} yet. To record an agent: journeyman serve. "
        "To bring in what was recorded elsewhere: journeyman collect FILES…"
    )


def query(filters: Mapping[str, Any]) -> Query:
    """What the filters of a command mean.

    Raises:
        InputError: A time or a span cannot be read, or two filters speak of the same thing.
    """
    given = dict(filters)
    label, last = given.pop("label"), given.pop("last")
    since, until = (moment(given.pop(name), f"--{name}") for name in ("since", "until"))
    if last is not None:
        if since is not None:
            raise InputError("--last and --since both say where to begin; give one of them")
        since = datetime.now(UTC) - span(last, "--last")
    good = {"good": True, "bad": False}.get(label)
    return Query(since=since, until=until, label=good, labelled={"none": False, "some": True}.get(label or ""), **given)


def moment(text: str | None, option: str) -> datetime | None:
    """A time as people type it; without a zone it is this machine's."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        raise InputError(f"{option} {text}: not a time; write 2026-11-05, or 2026-11-05T14:00") from None


def span(text: str, option: str) -> timedelta:
    """A length of time as people type it: 30m, 12h, 7d."""
    found = re.fullmatch(r"(\d{1,6})([smhdw])", text.strip().lower())
    if found is None:
        raise InputError(f"{option} {text}: not a length of time; write 30m, 12h, 7d or 2w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def listed(url: str | None, filters: Mapping[str, Any], *, limit: int, after: str | None, quiet: bool) -> dict[str, Any]:
    wanted, where = query(filters), _where(url)
    if is_nowhere(where) and after is None:
        # Half of the time that a list takes goes into loading what opens a store.
        _tell_of_none(where)
        page, count = Page(lines=(), next=None), 0
    else:
        with opened(url) as store:
            page = store.page(wanted, limit=limit, after=after)
            count = store.count(wanted, most=_MOST)
    if not quiet:
        if page.lines:
            # An empty list is told without what draws tables.
            from journeyman.cli.actions import traces_screen as screen

            screen.table(page.lines)
        more = f"{_MOST} or more" if count == _MOST else str(count)
        tell(f"{len(page.lines)} of {more} traces" + (f"; go on with --after {page.next}" if page.next else ""))
    return {"count": count, "counted_to": _MOST, "next": page.next, "traces": [line_json(line) for line in page.lines]}


def shown(url: str | None, prefix: str, *, full: bool, quiet: bool) -> dict[str, Any]:
    from journeyman.cli.actions import traces_screen as screen
    from journeyman.tracing.importers import jsonl

    with opened(url) as store:
        trace = store.get(whole_id(store, prefix))
        # Between the two looks it may have been pruned.
        if trace is None:
            raise InputError(f"{prefix}: no trace has this id")
        labels, given = store.labels(trace.id), store.rewards(trace.id)
    if not quiet:
        screen.show(trace, labels, given, full=full)
    told: dict[str, Any] = {"trace": json.loads(jsonl.line(trace))}
    told["labels"] = [plain_json(asdict(label)) for label in labels]
    told["given"] = [plain_json({**asdict(each.reward), "by": each.by, "at": each.at}) for each in given]
    return told


def whole_id(store: TraceStore, prefix: str) -> str:
    """The id that begins so.

    Raises:
        InputError: None does, or more than one.
    """
    found: Sequence[str] = store.starting(prefix, limit=4)
    if prefix in found or len(found) == 1:
        return prefix if prefix in found else found[0]
    if not found:
        raise InputError(f"{prefix}: no trace has an id that begins so; journeyman traces list shows them")
    listed = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
    raise InputError(f"{prefix}: more than one trace has an id that begins so ({listed}); write more of it")


def pruned(url: str | None, older_than: str, *, keep_labelled: bool, dry_run: bool, yes: bool, quiet: bool) -> dict[str, Any]:
    before = datetime.now(UTC) - span(older_than, "--older-than")
    with opened(url) as store:
        found = store.prune(before=before, keep_labelled=keep_labelled, dry_run=True)
        if not dry_run and found.traces:
            if not yes:
                asked = f"Forget {_traces(found.traces)} from before {before.astimezone():%Y-%m-%d %H:%M} for good?"
                click.confirm(asked, abort=True, err=True)
            found = store.prune(before=before, keep_labelled=keep_labelled)
    if not quiet:
        bytes_ = f" and {found.bytes / 1e6:.1f} MB of contents" if found.bytes else ""
        spans = f", {found.spans} spans" if found.spans else ""
        tell(f"{_traces(found.traces)}{spans}{bytes_} {'would go' if dry_run else 'are forgotten'}")
    return {**asdict(found), "before": before.isoformat(), "dry_run": dry_run}


def line_json(line: TraceSummary) -> dict[str, Any]:
    return plain_json(asdict(line))


def plain_json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Times as ISO 8601."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in fields.items()}


def tell(text: str) -> None:
    click.echo(text, err=True)


def _traces(count: int) -> str:
    return f"{count} trace{'' if count == 1 else 's'}"


# `journeyman traces autolabel`, and what it would like to be told.


def autolabel(url: str | None, *, threshold: float, embedder: str, dry_run: bool, quiet: bool) -> dict[str, Any]:
    """Teach a labeler and let it label; what it did, and how it stood its examination."""
    from journeyman.experiments import wiring
    from journeyman.models import embedders
    from journeyman.rewards import train_learned as labeler

    with opened(url) as store:
        taught = labeler.teach(store, embedders.load(embedder) if embedder else None)
        report = taught.model.report
        found = {**report.json(), "silent": taught.silence, "threshold": threshold, "dry_run": dry_run}
        if taught.silence is not None:
            tell(f"The labeler does not speak: {taught.silence}. To help it: journeyman traces label --telling")
            return found
        applied = labeler.apply(store, taught, at=wiring.now(), threshold=threshold, dry_run=dry_run)
    if not quiet:
        would = "would be " if dry_run else ""
        tell(
            f"{would}labelled {applied.good} good and {applied.bad} bad; {applied.unsure} are left to people, and "
            f"{applied.withdrawn} earlier labels {would}withdrawn. AUC on tasks it had not seen: {report.auc}"
        )
    return found | asdict(applied)


def telling(store: TraceStore, wanted: Query, limit: int) -> list[TraceSummary]:
    """What a person should judge next, the most telling first."""
    from journeyman.rewards import train_learned as labeler

    asked = [trace.id for trace in labeler.ask(store, labeler.teach(store), limit, wanted)]
    lines = {line.id: line for line in store.unlabelled(labeler.POOL, wanted)}
    return [lines[id] for id in asked]


# `journeyman traces export`.


def export(
    url: str | None, filters: Mapping[str, Any], name: str, out: Path | None, *, limit: int | None, quiet: bool
) -> dict[str, Any]:
    """Write what the filters let through; how many traces and lines there were, and what was lost."""
    from journeyman.tracing.importers import jsonl
    from journeyman.tracing.importers.finetuning import Losses, lines

    wanted = query(filters)
    if quiet and out is None:
        raise InputError("--json and the traces would both be on stdout; name a file with --out")
    losses, traces, written = Losses(), 0, 0
    with opened(url) as store, _written(out) as file:
        for trace in islice(store.traces(wanted), limit):
            traces += 1
            for line in lines(trace, losses) if name == "chat" else [jsonl.line(trace)]:
                file.write(line + "\n")
                written += 1
    lost = list(losses)
    if name == "chat" and written:
        lost.append("Times, tokens, costs, labels and rewards have no place in this format")
    for each in lost:
        tell(each)
    tell(f"{traces} traces, {written} lines" + (f" in {out}" if out else ""))
    return {"format": name, "traces": traces, "lines": written, "losses": lost, "out": None if out is None else str(out)}


@contextmanager
def _written(out: Path | None) -> Iterator[IO[str]]:
    """Where to write; a file is there whole when all went well, and else as it was. It is its owner's alone: traces may hold
    what is private."""
    if out is None:
        yield sys.stdout
        return
    if not out.parent.is_dir():
        raise InputError(f"{out} could not be written: {out.parent} is no folder; make it, or name another place")
    with atomic_write(out) as part, part.open("w", encoding="utf-8") as file:
        yield file


# `journeyman traces stats`, and how far people agree.


def statistics(url: str | None, filters: Mapping[str, Any], *, agreement: bool, quiet: bool) -> dict[str, Any]:
    with opened(url) as store:
        found = store.statistics(query(filters))
        agreements = _agreed(store) if agreement else None
    if not quiet and found.all.traces:
        from journeyman.cli.actions import traces_screen as screen

        screen.statistics(found)
    told = asdict(found)
    if agreements is not None:
        if not quiet:
            _print_agreement(agreements)
        told["agreement"] = [asdict(each) for each in agreements]
    return told


def agreement_of(store: TraceStore, *, quiet: bool) -> dict[str, Any]:
    found = _agreed(store)
    if not quiet:
        _print_agreement(found)
    return {"agreement": [asdict(each) for each in found]}


def _agreed(store: TraceStore) -> "Sequence[LabelAgreement]":
    from journeyman.stores.traces.labels import agreed

    return agreed(store.labels())


def _print_agreement(found: "Sequence[LabelAgreement]") -> None:
    from journeyman.cli.actions import traces_screen as screen

    if found:
        screen.agreement(found)
    else:
        tell("No two people have labelled the same trace: journeyman traces label --others --who NAME")


# `journeyman traces label`: one word on one trace, or one key each on many. Every word is kept before the next is asked.

_WORDS = {"good": True, "bad": False, "clear": None}
_KEYS = {"y": True, "g": True, "n": False, "b": False}
_HELP = "y good  n bad  s skip  f full  u undo  q quit"
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
    said: list[bool | None] = field(default_factory=list)
    """Of each trace so far; `None` for one that was skipped."""

    @property
    def line(self) -> TraceSummary | None:
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
    agreement, telling_ = given.pop("agreement"), given.pop("telling")
    with opened(url) as store:
        if agreement:
            return agreement_of(store, quiet=quiet)
        who = person(named)
        if trace_id is not None:
            return _one(store, trace_id, word, who)
        wanted = query(given)
        if telling_:
            return _many(store, telling(store, wanted, limit), who)
        return _many(store, list(_waiting(store, wanted, who, limit, others=others)), who)


def person(named: str | None) -> str:
    """Whose word it is.

    Raises:
        InputError: Nobody can be named, or it is the name that stands for no person.
    """
    who = (named or "").strip() or settings.person()
    if not who:
        raise InputError(f"who says so is not known; write --who NAME, or set {settings.USER_VARIABLE}")
    if who == AUTO:
        raise InputError(f"--who {AUTO}: that name stands for what no person said; write another")
    return who


def _one(store: TraceStore, prefix: str, word: str | None, who: str) -> dict[str, Any]:
    from journeyman.experiments import wiring

    if word is None:
        raise InputError(f"what of {prefix}? journeyman traces label {prefix} good, bad or clear")
    found = whole_id(store, prefix)
    store.label(found, _WORDS[word], who=who, at=wiring.now())
    tell(f"{found}: {'taken back' if word == 'clear' else word} ({who})")
    return {"trace_id": found, "label": _WORDS[word], "who": who}


def _waiting(store: TraceStore, wanted: Query, who: str, limit: int, *, others: bool) -> Iterator[TraceSummary]:
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
    from journeyman.stores.traces.labels import said

    return said(store.labels()).get(who, {})


def _many(store: TraceStore, lines: Sequence[TraceSummary], who: str) -> dict[str, Any]:
    from rich.console import Console

    from journeyman.experiments import wiring

    def word(id: str, good: bool | None) -> None:
        store.label(id, good, who=who, at=wiring.now())

    sitting = Sitting(lines, word, own_words(store, who))
    if not lines:
        tell("Nothing waits for a label. Ones that others have labelled: --others")
    else:
        tell(f"{len(lines)} traces for {who} to judge.  {_HELP}")
        console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        with _keyboard() as keys:
            _sit(store, sitting, keys, console)
    good, bad, skipped = (sum(each is kind for each in sitting.said) for kind in (True, False, None))
    tell(f"{good} good, {bad} bad, {skipped} skipped; {len(lines) - len(sitting.said)} left")
    return {"who": who, "good": good, "bad": bad, "skipped": skipped, "left": len(lines) - len(sitting.said)}


def _sit(store: TraceStore, sitting: Sitting, keys: Iterator[str], console: "Console") -> None:
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


def _show(console: "Console", store: TraceStore, line: TraceSummary, place: str, *, full: bool) -> None:
    from rich.text import Text

    from journeyman.cli.actions import traces_screen as screen

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
