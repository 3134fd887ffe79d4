"""`journeyman traces`: find, read, label, export and forget what was recorded.

What stands in a trace was written by anybody: nothing in it is taken for markup, or for a command to the terminal.
"""

import json
import os
import re
import select
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from journeyman.cli import console
from journeyman.cli.console import Column, duration, minute, number, plain, say, short
from journeyman.cli.shared import emit, json_option, store_option, store_url
from journeyman.core.errors import InputError
from journeyman.core.format import money
from journeyman.core.trace import AgentCall, Message, ModelCall, Reasoning, Step, ToolCall, Trace, walk
from journeyman.stores.base import whole_id
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import (
    AUTO,
    Given,
    Label,
    Page,
    Query,
    Statistics,
    StatisticsGroup,
    ToolStatistics,
    TraceStore,
    TraceSummary,
)
from journeyman.stores.urls import is_nowhere, redacted
from journeyman.tracing.base import NO_TIME

if TYPE_CHECKING:
    from journeyman.stores.traces.labels import LabelAgreement

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MOST = 10_000
"""Nobody asks how many more than this there are, and counting them takes its time."""
_LONG = 2_000
"""Characters of a message that are shown unless all was asked for."""
_COLOURS = {"user": "cyan", "assistant": "green", "tool": "yellow"}

_FILTERS = (
    click.option("--agent", metavar="NAME", help="Of one agent."),
    click.option("--model", metavar="NAME", help="That called this model."),
    click.option("--tool", metavar="NAME", help="That used this tool."),
    click.option("--task", "task_id", metavar="ID", help="Of one task."),
    click.option("--session", metavar="ID", help="Of one session."),
    click.option("--domain", metavar="NAME", help="Of one domain."),
    click.option("--source", metavar="NAME", help="That came in this way: gateway, otlp, hook, run, or a file's format."),
    click.option("--candidate", "candidate_id", metavar="ID", help="Made while this playbook, policy or adapter was in force."),
    click.option(
        "--label", type=click.Choice(("good", "bad", "none", "some")), help="Labelled so; some, none: by a person, or not."
    ),
    click.option("--min-reward", type=float, metavar="R", help="With a mean reward of at least R."),
    click.option("--max-reward", type=float, metavar="R", help="With a mean reward of at most R."),
    click.option("--error/--no-error", "failed", default=None, help="With an error in it, or without."),
    click.option(
        "--text", metavar="WORDS", help='With all these words; "in quotes" for a phrase, the last may be a beginning.'
    ),
    click.option("--since", metavar="TIME", help="Begun at TIME or after it: 2026-11-05, 2026-11-05T14:00, …+02:00."),
    click.option("--until", metavar="TIME", help="Begun before TIME. Without a zone it is the time of this machine."),
    click.option("--last", metavar="SPAN", help="Begun within the last 30m, 12h, 7d or 2w."),
)


def filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options that say which traces are meant; `query` reads them."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


def _reading(read: Callable[..., dict[str, Any]]) -> Callable[..., int]:
    """Gives a command `--store` and `--json`. What it finds has "silent" where its answer is no."""

    @wraps(read)
    def run(as_json: bool, **given: Any) -> int:
        result = read(quiet=as_json, **given)
        emit(result, as_json=as_json)
        return 1 if result.get("silent") else 0

    return store_option(json_option(run))


_PAGED = (
    click.option("--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="Show so many at most."),
    click.option("--after", metavar="MARK", help="Go on where the list before ended: the `next` of its --json."),
)


def _paged(command: Callable[..., Any]) -> Callable[..., Any]:
    return _PAGED[0](_PAGED[1](command))


@click.group()
def command() -> None:
    """Find, read, label, export and forget what agents did.

    They come in through `journeyman serve`, `journeyman collect`, or a TraceCollector in your program.

    \b
    Examples:
      journeyman traces list --last 7d --error
      journeyman traces label --who ada
    """


@command.command("list")
@filters
@_paged
@_reading
def list_(*, store: str | None, limit: int, after: str | None, quiet: bool, **wanted: Any) -> dict[str, Any]:
    """List traces, newest first.

    \b
    Examples:
      journeyman traces list --last 7d --error
      journeyman traces list --agent desk --label none --limit 50
    """
    return _listed(store, query(wanted), limit, after, quiet=quiet)


@command.command()
@click.argument("words", nargs=-1, required=True)
@filters
@_paged
@_reading
def search(
    *, words: tuple[str, ...], store: str | None, limit: int, after: str | None, quiet: bool, **wanted: Any
) -> dict[str, Any]:
    """Find traces by words that stand in them, newest first.

    All the words must be there, in any order and case; "in quotes" is a phrase, and the last word may be a beginning.

    \b
    Examples:
      journeyman traces search refund damaged
      journeyman traces search '"cannot be exchanged" order' --agent desk
    """
    wanted["text"] = " ".join((wanted["text"] or "", *words)).lstrip()
    return _listed(store, query(wanted), limit, after, quiet=quiet)


def _listed(url: str | None, wanted: Query, limit: int, after: str | None, *, quiet: bool) -> dict[str, Any]:
    where = store_url(url)
    if is_nowhere(where) and after is None:
        # Half of the time that a list takes goes into loading what opens a store.
        _say_that_there_are_none(where)
        page, count = Page(lines=(), next=None), 0
    else:
        with opened(url) as store:
            page = store.page(wanted, limit=limit, after=after)
            count = store.count(wanted, most=_MOST)
    if not quiet:
        if page.lines:
            _show_list(page.lines)
        more = f"{_MOST} or more" if count == _MOST else str(count)
        say(f"{len(page.lines)} of {more} traces" + (f"; go on with --after {page.next}" if page.next else ""))
    return {"count": count, "counted_to": _MOST, "next": page.next, "traces": [_json(asdict(line)) for line in page.lines]}


@command.command()
@click.argument("trace_id", metavar="ID")
@click.option("--full", is_flag=True, help="Unfold the tool calls, and shorten nothing.")
@_reading
def show(*, trace_id: str, full: bool, store: str | None, quiet: bool) -> dict[str, Any]:
    """Show one trace as a conversation, and its steps as a tree.

    As much of the ID as tells it apart is enough.

    \b
    Examples:
      journeyman traces show 4f2a
      journeyman traces show 4f2a --full
    """
    from journeyman.tracing.importers import jsonl

    with opened(store) as traces:
        trace = traces.get(_id(traces, trace_id))
        # Between the two looks it may have been pruned.
        if trace is None:
            raise InputError(f"{trace_id}: no trace has this id")
        labels, given = traces.labels(trace.id), traces.rewards(trace.id)
    if not quiet:
        _show_trace(trace, labels, given, full=full)
    return {
        "trace": json.loads(jsonl.line(trace)),
        "labels": [_json(asdict(label)) for label in labels],
        "given": [_json({**asdict(each.reward), "by": each.by, "at": each.at}) for each in given],
    }


@command.command()
@filters
@click.option(
    "--format", "name", type=click.Choice(("jsonl", "chat")), default="jsonl", show_default=True, help="See the text above."
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write here.  [default: stdout]")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="So many at most.")
@_reading
def export(*, name: str, out: Path | None, limit: int | None, store: str | None, quiet: bool, **wanted: Any) -> dict[str, Any]:
    """Write traces to a file, oldest first.

    jsonl is ours: a trace a line, whole, and `journeyman collect` reads it again. chat is what OpenAI's fine-tuning takes:
    a conversation a line, and what it has no place for is said.

    \b
    Examples:
      journeyman traces export --out traces.jsonl
      journeyman traces export --label good --format chat --out train.jsonl
    """
    from journeyman.tracing.importers import jsonl
    from journeyman.tracing.importers.finetuning import Losses, lines

    meant = query(wanted)
    if quiet and out is None:
        raise InputError("--json and the traces would both be on stdout; name a file with --out")
    losses, traces, written = Losses(), 0, 0
    with opened(store) as found, _written(out) as file:
        for trace in islice(found.traces(meant), limit):
            traces += 1
            for line in lines(trace, losses) if name == "chat" else [jsonl.line(trace)]:
                file.write(line + "\n")
                written += 1
    lost = list(losses)
    if name == "chat" and written:
        lost.append("Times, tokens, costs, labels and rewards have no place in this format")
    say(*lost)
    say(f"{traces} traces, {written} lines" + (f" in {out}" if out else ""))
    return {"format": name, "traces": traces, "lines": written, "losses": lost, "out": None if out is None else str(out)}


@contextmanager
def _written(out: Path | None) -> Iterator[IO[str]]:
    """Where to write; a file is there whole when all went well, and else as it was. It is its owner's alone: traces may hold
    what is private."""
    if out is None:
        yield sys.stdout
        return
    from journeyman.io.atomic import atomic_write

    if not out.parent.is_dir():
        raise InputError(f"{out} could not be written: {out.parent} is no folder; make it, or name another place")
    with atomic_write(out) as part, part.open("w", encoding="utf-8") as file:
        yield file


@command.command()
@filters
@click.option("--agreement", is_flag=True, help="How far the people who labelled agree, too.")
@_reading
def stats(*, store: str | None, agreement: bool, quiet: bool, **wanted: Any) -> dict[str, Any]:
    """Say what went well, what it cost and how long it took, by agent, model, day and tool.

    \b
    Examples:
      journeyman traces stats --last 7d
      journeyman traces stats --agent desk --agreement
    """
    with opened(store) as traces:
        found = traces.statistics(query(wanted))
        if not quiet and found.all.traces:
            _show_statistics(found)
        return asdict(found) | (_agreement(traces, quiet=quiet) if agreement else {})


def _agreement(store: TraceStore, *, quiet: bool) -> dict[str, Any]:
    """How far every two people agree."""
    from journeyman.stores.traces.labels import agreed

    found = agreed(store.labels())
    if not found and not quiet:
        say("No two people have labelled the same trace: journeyman traces label --others --who NAME")
    elif not quiet:
        names = ("people", "both labelled", "agreed", "Cohen's κ")
        console.table([Column(name=name, words=not place) for place, name in enumerate(names)], map(_agreement_row, found))
    return {"agreement": [asdict(each) for each in found]}


def _agreement_row(each: "LabelAgreement") -> tuple[str, ...]:
    kappa = number(each.kappa, ".2f", "unknown: all the same")
    return " and ".join(map(short, each.people)), str(each.traces), f"{each.agreed / each.traces:.0%}", kappa


@command.command()
@click.option("--older-than", metavar="SPAN", required=True, help="What began longer ago: 12h, 30d, 8w.")
@click.option("--keep", type=click.Choice(("labelled",)), help="Spare what a person has labelled.")
@click.option("--dry-run", is_flag=True, help="Say what would go, and let nothing go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_reading
def prune(*, older_than: str, keep: str | None, dry_run: bool, yes: bool, store: str | None, quiet: bool) -> dict[str, Any]:
    """Forget old traces, with their spans and contents.

    What a run attempted goes with the run: journeyman runs rm.

    \b
    Examples:
      journeyman traces prune --older-than 30d --keep labelled --dry-run
      journeyman traces prune --older-than 30d --keep labelled --yes
    """
    before = datetime.now(UTC) - span(older_than, "--older-than")
    with opened(store) as traces:
        found = traces.prune(before=before, keep_labelled=keep is not None, dry_run=True)
        if not dry_run and found.traces:
            if not yes:
                question = f"Forget {_traces(found.traces)} from before {minute(before)} for good?"
                click.confirm(question, abort=True, err=True)
            found = traces.prune(before=before, keep_labelled=keep is not None)
    if not quiet:
        bytes_ = f" and {found.bytes / 1e6:.1f} MB of contents" if found.bytes else ""
        spans = f", {found.spans} spans" if found.spans else ""
        say(f"{_traces(found.traces)}{spans}{bytes_} {'would go' if dry_run else 'are forgotten'}")
    return {**asdict(found), "before": before.isoformat(), "dry_run": dry_run}


@command.command()
@click.option(
    "--threshold", type=click.FloatRange(0.5, 1), default=0.9, show_default=True, help="Least probability of being right."
)
@click.option("--embedder", metavar="NAME", default="", help="Look at the words, too: hashing:32, for instance.")
@click.option("--dry-run", is_flag=True, help="Say what would be labelled, and label nothing.")
@_reading
def autolabel(*, threshold: float, embedder: str, dry_run: bool, store: str | None, quiet: bool) -> dict[str, Any]:
    """Learn from people's labels, and label the rest where that is sure enough.

    What it labels says so, still waits for a person's word, and is withdrawn by a later round that does not stand by it. It
    is silent, with exit code 1, until people have labelled 20 good and 20 bad traces of different tasks, and an examination
    shows that it can tell them apart.

    \b
    Examples:
      journeyman traces label --telling
      journeyman traces autolabel --dry-run
    """
    from journeyman.experiments import wiring
    from journeyman.models import embedders
    from journeyman.rewards import train_learned as labeler

    with opened(store) as traces:
        taught = labeler.teach(traces, embedders.load(embedder) if embedder else None)
        report = taught.model.report
        found = {**report.json(), "silent": taught.silence, "threshold": threshold, "dry_run": dry_run}
        if taught.silence is not None:
            say(f"The labeler does not speak: {taught.silence}. To help it: journeyman traces label --telling")
            return found
        applied = labeler.apply(traces, taught, at=wiring.now(), threshold=threshold, dry_run=dry_run)
    if not quiet:
        would = "would be " if dry_run else ""
        say(
            f"{would}labelled {applied.good} good and {applied.bad} bad; {applied.unsure} are left to people, and "
            f"{applied.withdrawn} earlier labels {would}withdrawn. AUC on tasks it had not seen: {report.auc}"
        )
    return found | asdict(applied)


# Which store and which traces are meant.


@contextmanager
def opened(url: str | None) -> Iterator[TraceStore]:
    """The store that is meant: the project's, or another. Looking for traces where there is no store makes none."""
    where = store_url(url)
    with open_traces(where, make=False) as store:
        if not store.count(Query(), most=1):
            _say_that_there_are_none(where)
        yield store


def _say_that_there_are_none(where: str) -> None:
    say(
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
    since, until = (time_of(given.pop(name), f"--{name}") for name in ("since", "until"))
    if last is not None:
        if since is not None:
            raise InputError("--last and --since both say where to begin; give one of them")
        since = datetime.now(UTC) - span(last, "--last")
    good = {"good": True, "bad": False}.get(label)
    return Query(since=since, until=until, label=good, labelled={"none": False, "some": True}.get(label or ""), **given)


def time_of(text: str | None, option: str) -> datetime | None:
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


def _id(store: TraceStore, prefix: str) -> str:
    return whole_id(prefix, lambda begin, limit: store.starting(begin, limit=limit), one="trace", many="traces")


def _json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Times as ISO 8601."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in fields.items()}


def _traces(count: int) -> str:
    return f"{count} trace{'' if count == 1 else 's'}"


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


@command.command()
@click.argument("trace_id", metavar="[ID]", required=False)
@click.argument("word", metavar="[good|bad|clear]", type=click.Choice(("good", "bad", "clear")), required=False)
@click.option("--who", metavar="NAME", help="Whose word it is.  [default: $JOURNEYMAN_USER, else who is logged in]")
@click.option("--others", is_flag=True, help="The ones, too, that others have labelled and WHO has not: to see if you agree.")
@click.option("--agreement", is_flag=True, help="Say how far the people who labelled agree, and ask nothing.")
@click.option("--telling", is_flag=True, help="Ask first for the labels that an auto-labeler would learn most from.")
@filters
@click.option("--limit", type=click.IntRange(1), default=200, show_default=True, metavar="N", help="Ask about so many at most.")
@_reading
def label(  # noqa: PLR0913 - a parameter an option
    *,
    trace_id: str | None,
    word: str | None,
    who: str | None,
    others: bool,
    agreement: bool,
    telling: bool,
    limit: int,
    store: str | None,
    quiet: bool,
    **wanted: Any,
) -> dict[str, Any]:
    """Say of traces whether they went well, one key each.

    Without an ID the traces that nobody has labelled are shown one after the other, newest first: y good, n bad, s skip,
    f the whole of it, u undo, q quit. Where there is no terminal, the same letters are read from stdin, a line each. Every word
    is kept at once, with who said it and when; of one person the latest word holds.

    \b
    Examples:
      journeyman traces label --who ada --agent desk
      journeyman traces label 4f2a good
      journeyman traces label --agreement
    """
    with opened(store) as traces:
        if agreement:
            return _agreement(traces, quiet=quiet)
        who = person(who)
        if trace_id is not None:
            return _label_one(traces, trace_id, word, who)
        meant = query(wanted)
        waiting = _most_telling(traces, meant, limit) if telling else _waiting(traces, meant, who, limit, others=others)
        return _label_many(traces, list(waiting), who)


def _most_telling(store: TraceStore, wanted: Query, limit: int) -> list[TraceSummary]:
    """What a person should judge next, the most telling first."""
    from journeyman.rewards import train_learned as labeler

    wanted_ids = [trace.id for trace in labeler.ask(store, labeler.teach(store), limit, wanted)]
    lines = {line.id: line for line in store.unlabelled(labeler.POOL, wanted)}
    return [lines[id] for id in wanted_ids]


def person(named: str | None) -> str:
    """Whose word it is.

    Raises:
        InputError: Nobody can be named, or it is the name that stands for no person.
    """
    from journeyman.experiments import settings

    who = (named or "").strip() or settings.person()
    if not who:
        raise InputError(f"who says so is not known; write --who NAME, or set {settings.USER_VARIABLE}")
    if who == AUTO:
        raise InputError(f"--who {AUTO}: that name stands for what no person said; write another")
    return who


def _label_one(store: TraceStore, prefix: str, word: str | None, who: str) -> dict[str, Any]:
    from journeyman.experiments import wiring

    if word is None:
        raise InputError(f"what of {prefix}? journeyman traces label {prefix} good, bad or clear")
    found = _id(store, prefix)
    store.label(found, _WORDS[word], who=who, at=wiring.now())
    say(f"{found}: {'taken back' if word == 'clear' else word} ({who})")
    return {"trace_id": found, "label": _WORDS[word], "who": who}


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
        say(f"{len(lines)} traces for {who} to judge.  {_HELP}")
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


# How traces are shown: a table of many, one as a conversation and as a tree, and statistics.


_LIST = (
    Column(name="id", words=True, least=12),
    Column(name="begun", words=True, least=11, spare=4),
    Column(name="agent", words=True, least=8, spare=5),
    Column(name="what was asked", words=True, least=24),
    *(Column(name=name, spare=spare) for name, spare in (("calls", 8), ("tools", 7), ("tokens", 3), ("cost", 6))),
    *(Column(name=name, spare=spare) for name, spare in (("time", 3), ("reward", 2), ("label", 1))),
)


def _show_list(lines: Sequence[TraceSummary]) -> None:
    console.table(_LIST, map(_list_row, lines), styles=["red" if line.error else None for line in lines])


def _list_row(line: TraceSummary) -> tuple[str, ...]:
    failed = f" ({line.failed_tool_calls}✗)" if line.failed_tool_calls else ""
    return (
        short(line.id, 20),
        _moment(line.started_at, "%m-%d %H:%M"),
        short(line.agent or "", 16),
        ("✗ " if line.error else "") + (short(line.title) or f"({short(line.task_id)})"),
        str(line.model_calls),
        f"{line.tool_calls}{failed}",
        _tokens(line.input_tokens, line.output_tokens) if line.model_calls else "",
        money(line.cost) if line.model_calls or line.cost else "",
        duration(line.seconds),
        number(line.reward, ".2f", ""),
        _verdict(line.label, line.labelled_by),
    )


def _show_trace(trace: Trace, labels: Sequence[Label], given: Sequence[Given], *, full: bool) -> None:
    """The head, the conversation, and the steps as a tree."""
    for name, value in _head(trace):
        click.echo(click.style(f"{name:<9}", dim=True) + plain(value))
    for label in labels:
        word = "taken back" if label.good is None else _verdict(label.good, None)
        sure = "" if label.probability is None else f", {label.probability:.0%} sure"
        click.echo(f"{'label':<9}{word} ({short(label.who)}{sure}, {minute(label.at)})")
    by = {each.reward: each.by for each in given}
    for reward in trace.rewards:
        source = f" [{short(by[reward])}]" if reward in by else ""
        value = number(reward.value, "g")
        click.echo(f"{'reward':<9}{short(reward.name)} {value}{source}  {short(reward.evidence, 400)}")
    click.echo()
    for text in conversation(trace, full=full):
        click.echo(text)
    click.echo()
    steps = list(walk(trace.steps))
    styles = ["red" if _is_bad(step) else None for _, step in steps]
    columns = [Column(name="step", words=True, least=24), *(Column(name=name, spare=1) for name in ("tokens", "cost", "time"))]
    console.table(columns, [_step_row(depth, step) for depth, step in steps], styles=styles)


def _head(trace: Trace) -> Iterator[tuple[str, str]]:
    models = Counter(call.model for call in trace.calls)
    yield "trace", trace.id
    yield "task", f"{trace.task_id} ({trace.domain})"
    yield from ((name, value) for name, value in (("agent", trace.agent), ("session", trace.session)) if value)
    begun = _moment(trace.started_at, "%Y-%m-%d %H:%M:%S") or "unknown"
    yield "begun", f"{begun}, took {duration(trace.seconds) or 'unknown'}"
    if models:
        yield "models", ", ".join(f"{model} ({count})" for model, count in models.most_common())
        yield "tokens", _tokens(trace.input_tokens, trace.output_tokens) + f", cost {money(trace.cost)}"
    yield "in force", ", ".join(trace.candidate_ids) + (f", came in by {trace.source}" if trace.source else "")
    set_itself = (("created", trace.tasks_created), ("done", trace.tasks_completed), ("failed", trace.tasks_failed))
    yield from ((name, "; ".join(short(task) for task in tasks)) for name, tasks in set_itself if tasks)
    if trace.error:
        yield "error", trace.error


def conversation(trace: Trace, *, full: bool) -> Iterator[str]:
    """What was said, in the order of the steps. What a tool answered stands with its call, not again as a message."""
    answered = {step.id for step in trace.tool_calls if step.id}
    if trace.input is not None and not trace.calls:
        yield _message("user", trace.input, 0, full=full)
    for depth, step in walk(trace.steps):
        match step:
            case ModelCall():
                yield from _exchange(step, answered, depth, full=full)
            case ToolCall():
                yield _tool(step, depth, full=full)
            case Reasoning():
                yield _message("thinking", step.text, depth, full=full)
            case AgentCall():
                yield click.style("  " * depth + f"▸ agent {short(step.agent)}  {short(step.input)}", fg="magenta")
    # The last call's reply has been shown.
    if trace.output is not None and trace.output != (trace.calls[-1].reply if trace.calls else None):
        yield _message("answer", trace.output, 0, full=full)


def _exchange(call: ModelCall, answered: set[str], depth: int, *, full: bool) -> Iterator[str]:
    messages = call.messages or ((Message(role="prompt", text=call.prompt),) if call.prompt else ())
    for message in messages:
        if message.role != "tool" or message.answers not in answered:
            yield _message(message.role, message.text, depth, full=full)
    if call.reply:
        yield _message("assistant", call.reply, depth, full=full)
    if call.error:
        yield click.style("  " * depth + f"✗ {short(call.error, 400)}", fg="red")


def _message(role: str, text: str, depth: int, *, full: bool) -> str:
    text = plain(text).rstrip()
    if not full and len(text) > _LONG:
        text = f"{text[:_LONG]}… (+{len(text) - _LONG} characters: --full)"
    margin = "  " * depth
    body = "\n".join(f"{margin}  {line}" for line in text.splitlines())
    return f"{margin}{click.style(plain(role), fg=_COLOURS.get(role), bold=True)}\n{body}"


def _tool(call: ToolCall, depth: int, *, full: bool) -> str:
    margin, mark = "  " * depth, "→" if call.ok else "✗"
    colour = "yellow" if call.ok else "red"
    answer = call.error if call.error and not call.result else call.result
    if not full:
        line = f"{margin}⚒ {short(call.tool, 40)}({short(call.arguments, 60)}) {mark} {short(answer, 80)}"
        return click.style(line, fg=colour)
    parts = ((call.arguments, "  "), (f"{mark} {answer}", "  "))
    body = [f"{margin}{indent}{line}" for text, indent in parts for line in plain(text).splitlines()]
    return click.style("\n".join([f"{margin}⚒ {short(call.tool, 200)}", *body]), fg=colour)


def _is_bad(step: Step) -> bool:
    return not step.ok if isinstance(step, ToolCall) else not isinstance(step, Reasoning) and step.error is not None


def _step_row(depth: int, step: Step) -> tuple[str, ...]:
    """A step below the one that caused it, with what it took."""
    used = _tokens(step.input_tokens, step.output_tokens) if isinstance(step, ModelCall) else ""
    cost = money(step.cost) if isinstance(step, ModelCall) or (isinstance(step, ToolCall) and step.cost) else ""
    return "  " * depth + _named(step), used, cost, duration(step.seconds)


def _named(step: Step) -> str:
    match step:
        case ModelCall():
            return f"model {short(step.model, 40)}  {short(step.error or step.reply, 60)}"
        case ToolCall():
            return f"tool {short(step.tool, 40)}" + ("" if step.ok else f"  failed: {short(step.error or step.result, 60)}")
        case Reasoning():
            return f"thinking  {short(step.text, 60)}"
        case AgentCall():
            return f"agent {short(step.agent, 40)}" + (f"  {short(step.error, 60)}" if step.error else "")


def _moment(time: datetime, form: str) -> str:
    """On this machine's clock; nothing for the time that stands for none."""
    return "" if time == NO_TIME else f"{time.astimezone():{form}}"


def _tokens(given: int | None, made: int | None) -> str:
    """Into the model → out of it."""
    return "?" if given is None and made is None else f"{_thousands(given)}→{_thousands(made)}"


def _thousands(count: int | None) -> str:
    if count is None:
        return "?"
    return str(count) if count < 10_000 else f"{count / 1e3:.0f}k" if count < 10_000_000 else f"{count / 1e6:.0f}M"


def _verdict(good: bool | None, by: str | None) -> str:
    """A label in a word; with a question mark when no person gave it."""
    return "" if good is None else ("good" if good else "bad") + ("?" if by == AUTO else "")


_GROUP: Mapping[str, tuple[int, Callable[[StatisticsGroup], str]]] = {
    "traces": (0, lambda group: str(group.traces)),
    "good": (5, lambda group: str(group.good or "")),
    "bad": (5, lambda group: str(group.bad or "")),
    "reward": (3, lambda group: number(group.mean_reward, unknown="")),
    "errors": (4, lambda group: str(group.errors)),
    "calls": (8, lambda group: str(group.model_calls)),
    "tools failed": (9, lambda group: f"{group.failed_tool_calls}/{group.tool_calls}"),
    "tokens": (6, lambda group: _group_tokens(group)),
    "cost": (1, lambda group: _group_cost(group)),
    "median": (2, lambda group: duration(group.median_seconds)),
    "p95": (7, lambda group: duration(group.p95_seconds)),
}
"""What is said of traces that belong together, by column, with when it is left out."""


def _show_statistics(found: Statistics) -> None:
    """A table of all, then one for each way to group them."""
    _show_groups("", [found.all])
    for title, groups in (("agent", found.by_agent), ("model", found.by_model), ("day (UTC)", found.by_day)):
        if groups:
            click.echo()
            _show_groups(title, groups)
    if found.tools:
        click.echo()
        spare = {"share": 2, "mean time": 1}
        columns = [Column(name=name, spare=spare.get(name, 0)) for name in ("calls", "failed", "share", "mean time")]
        console.table([Column(name="tool", words=True), *columns], map(_tool_row, found.tools))
    if found.all.unpriced or found.all.uncounted:
        click.echo(f"+ more: {found.all.unpriced} calls have no price, {found.all.uncounted} were not counted")


def _show_groups(title: str, groups: Sequence[StatisticsGroup]) -> None:
    columns = [
        Column(name=title, words=True, least=16),
        *(Column(name=name, spare=spare) for name, (spare, _) in _GROUP.items()),
    ]
    rows = ([short(group.name, 40) or "unknown", *(cell(group) for _, cell in _GROUP.values())] for group in groups)
    console.table(columns, rows)


def _tool_row(tool: ToolStatistics) -> tuple[str, ...]:
    share = f"{tool.failures / tool.calls:.1%}" if tool.calls else ""
    return short(tool.tool, 40), str(tool.calls), str(tool.failures), share, duration(tool.mean_seconds)


def _group_tokens(group: StatisticsGroup) -> str:
    if group.uncounted and group.uncounted == group.model_calls:
        return "?"
    return _tokens(group.input_tokens, group.output_tokens) + ("+" if group.uncounted else "")


def _group_cost(group: StatisticsGroup) -> str:
    if group.unpriced and group.unpriced == group.model_calls and not group.cost:
        return "?"
    return money(group.cost) + ("+" if group.unpriced else "")
