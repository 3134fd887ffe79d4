"""`journeyman feedback`: what turned out of what was served; and `journeyman audit`: who changed what is served."""

import csv
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from journeyman.cli import console
from journeyman.cli.console import Column, bar, minute, say, short, write
from journeyman.cli.shared import cleaner, emit, json_option, person, read_store_url, store_option, store_url
from journeyman.core.errors import InputError
from journeyman.core.feedback import ANSWER, NOTE, SUCCESS, Feedback, LabelScheme, TargetKind, read_feedback
from journeyman.core.format import counted
from journeyman.core.reward import Source, source_named
from journeyman.io.jsonl import iter_jsonl

if TYPE_CHECKING:
    from journeyman.stores.base import AuditRecord
    from journeyman.stores.rollouts import RolloutStore

_LARGE = 1000
"""Words from which on it is told how far it is."""


@click.command()
@click.argument("target", required=False)
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in TargetKind]),
    help="What TARGET is.  [default: what the store knows it as]",
)
@click.option(
    "--metric", default=SUCCESS, show_default=True, metavar="NAME", help="What is judged; correct_answer takes a text."
)
@click.option("--value", metavar="VALUE", help="true, false, a number (of success from 0 to 1), or a text.")
@click.option("--text", metavar="TEXT", help="What there is to say beside the number.")
@click.option("--answer", metavar="TEXT", help="What should have been answered: --metric correct_answer --value TEXT.")
@click.option("--note", metavar="TEXT", help="A note for people: --metric note --value TEXT.")
@click.option("--clear", is_flag=True, help="Take back what the same rater said by this metric.")
@click.option(
    "--source", metavar="NAME", help="Whose word it is: ground truth, person, check, end user, judge.  [default: person]"
)
@click.option("--rater", metavar="NAME", help="Who of them.  [default of a person: $JOURNEYMAN_USER, else who is logged in]")
@click.option("--file", "path", type=click.Path(path_type=Path), metavar="FILE", help="Many words instead: .jsonl or .csv.")
@store_option
@json_option
def command(  # noqa: PLR0913 - a parameter an option
    *,
    target: str | None,
    kind: str | None,
    metric: str,
    value: str | None,
    text: str | None,
    answer: str | None,
    note: str | None,
    clear: bool,
    source: str | None,
    rater: str | None,
    path: Path | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Say how work that was served went, also weeks later.

    TARGET is the id of a session, task or trace, or of one request, as X-Journeyman-Request-Id told it. The last word of one
    rater on one thing counts; ground truth goes before people, these before checks, end users and judges. What is not known yet
    is joined when it comes.

    What a person corrects with --answer is ground truth of that trace: `dataset build` takes it as the wanted answer. A note
    enters no prompt.

    A FILE has an object or a row for each word: session, request, trace or task; metric, value, text, source, rater, at, id.
    All of it is kept or nothing, and the same file again adds nothing.

    \b
    Examples:
      journeyman feedback visit-7 --kind session --value 1
      journeyman feedback 4f2a90c1d35b4e6f8a7b6c5d4e3f2a1b --value 0 --text "wrong city"
      journeyman feedback 4f2a90c1d35b4e6f8a7b6c5d4e3f2a1b --answer "It ships to Oslo." --rater ada
      journeyman feedback --file truth.csv --source "ground truth"
    """
    from journeyman.experiments import settings
    from journeyman.stores.rollouts import open_rollouts

    if (target is None) is (path is None):
        raise InputError("feedback on what? name a TARGET, or a --file of many")
    whose = source_named(source or Source.PERSON)
    if whose is None:
        raise InputError(f"--source {source}: there are {', '.join(Source)}")
    by = _Rater(whose, rater, settings.load().settings.labels.scheme)
    with open_rollouts(store_url(store)) as rollouts:
        if path is not None:
            words = list(_in_file(path, by))
            if not words:
                raise InputError(f"{path}: there is no word in it")
        else:
            assert target is not None
            given = _given(metric, value, text, answer=answer, note=note, clear=clear)
            about = kind or _kind_of(rollouts, target).value
            words = [_word({about: target, **given}, "feedback", uuid4().hex, by)]
        known = _kept(rollouts, words, quiet=as_json)
    found = sum(known)
    if path is None:
        later = "" if known[0] else "; it is not in the store yet, and is joined when it comes"
        what = "taken back" if words[0].is_taken_back else "kept"
        say(f"{what}: {words[0].metric} of the {words[0].target_kind} {words[0].target}{later}")
    else:
        say(f"{counted(len(words), 'word')} kept; what {found} of them are about is in the store")
    emit({"words": len(words), "known": found, "ids": [word.id for word in words]}, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Rater:
    """Who speaks where a word does not say so, and what holds of words here."""

    source: Source
    name: str | None
    scheme: LabelScheme


def _given(
    metric: str, value: str | None, text: str | None, *, answer: str | None, note: str | None, clear: bool
) -> dict[str, Any]:
    """What the options say of one thing.

    Raises:
        InputError: Two of them say something else.
    """
    short = {ANSWER: answer, NOTE: note}
    named = {name: each for name, each in short.items() if each is not None}
    if named and (len(named) > 1 or clear or value is not None or text is not None or metric != SUCCESS):
        raise InputError(
            "--answer and --note stand alone: they are a metric and its value; take one, without --value and --clear"
        )
    if named:
        ((metric, value),) = named.items()
        return {"metric": metric, "value": value}
    return {"metric": metric, "value": _value(value), "text": text, **({"clear": True} if clear else {})}


def _kept(store: "RolloutStore", words: Sequence[Feedback], *, quiet: bool) -> Sequence[bool]:
    from journeyman.experiments import settings, wiring

    project = settings.load().settings
    clean = cleaner(project.record)
    words = [project.labels.scheme.cleaned(word, clean) for word in words]
    if len(words) < _LARGE:
        return store.add_feedback(words, now=wiring.now())
    with bar("words", len(words), quiet=quiet) as advance:
        last = 0

        def told(count: int) -> None:
            nonlocal last
            advance(count - last)
            last = count

        return store.add_feedback(words, now=wiring.now(), told=told)


def _kind_of(store: "RolloutStore", target: str) -> TargetKind:
    """What a target is known as. One call, whose trace has its id, is the trace; so is the task that was made of a trace."""
    kinds = [TargetKind.TRACE, TargetKind.REQUEST, TargetKind.SESSION, TargetKind.TASK]
    known = [kind for kind, is_known in zip(kinds, store.known([(kind, target) for kind in kinds]), strict=True) if is_known]
    of_trace = (TargetKind.REQUEST, TargetKind.TASK) if TargetKind.TRACE in known else ()
    meant = [kind for kind in known if kind not in of_trace]
    if not meant:
        raise InputError(f"the store knows no {target}; say what it is, and it is kept until that comes: --kind session")
    if len(meant) > 1:
        raise InputError(f"{target} is a {' and a '.join(meant)}; say which is meant: --kind {meant[0]}")
    return meant[0]


def _word(given: Mapping[str, Any], where: str, id: str, by: "_Rater") -> Feedback:
    from journeyman.experiments import wiring

    word = read_feedback(given, where, id=id, now=wiring.now(), source=by.source, rater=by.name)
    word = by.scheme.placed(word, where)
    # Of many people the last one's word counts, so that each must be told from the others.
    return replace(word, rater=person(None)) if word.source is Source.PERSON and word.rater is None else word


def _value(text: str | None) -> bool | float | str | None:
    """What was typed, or stands in a cell: a truth value or a number where it is one."""
    try:
        value = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, bool | int | float) else text


def _in_file(path: Path, by: "_Rater") -> Iterator[Feedback]:
    """The words of a file. One without an id has one of the file and its place, so that the same file again says nothing new.

    Raises:
        InputError: One cannot be used; its line is named.
    """
    rows = _csv(path) if path.suffix.lower() == ".csv" else ((line.where, line.value) for line in iter_jsonl(path, json.loads))
    digest = ""
    for number, (where, given) in enumerate(rows, start=1):
        digest = digest or _digest(path)
        yield _word(given, where, f"{digest}-{number}", by)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def _csv(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            for row in reader:
                where = f"{path}:{reader.line_num}"
                if None in row or None in row.values():
                    raise InputError(f"{where}: it has more or fewer cells than the first row names")
                cells = {name.strip(): cell for name, cell in row.items() if cell.strip()}
                yield where, cells | {name: _value(cells[name]) for name in ("value", "clear") if name in cells}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: {said}; check the path, and that it is CSV in UTF-8") from None


# `journeyman audit`.

_AUDIT = (
    Column(name="at", words=True, least=16),
    Column(name="who", words=True, least=10),
    Column(name="did", words=True, least=8),
    Column(name="to", words=True, least=16),
    Column(name="now", words=True, least=10, spare=1),
    Column(name="why", words=True, wraps=True, least=20),
)


@click.command()
@click.option(
    "--verify", is_flag=True, help="Look through all of it, and say whether it is whole; exit code 1 where it is not."
)
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, metavar="N", help="So many of the latest.")
@store_option
@json_option
def audit(*, verify: bool, limit: int, store: str | None, as_json: bool) -> int:
    """Show who or what changed what is served, when and why, and prove that nothing of it was changed since.

    Each row carries the hash of the one before it, and every event of a rollout is told here too: what was changed or left out
    by hand in between is found. Whoever could write to the database could also write the whole chain anew, so keep the hash of
    its head elsewhere now and then.

    \b
    Examples:
      journeyman audit
      journeyman audit --verify
    """
    from journeyman.stores.rollouts import open_rollouts

    with open_rollouts(read_store_url(store), make=False) as rollouts:
        rows = rollouts.audit(limit=1 if verify else limit, newest=True)
        problem = rollouts.verify() if verify else None
    head = rows[-1].hash if rows else ""
    result: dict[str, Any] = {"head": head}
    if verify:
        result |= {"whole": problem is None, "problem": problem}
        write(*([] if as_json else [problem or f"whole; the head is {head or 'not there yet: nothing was changed'}"]))
    else:
        result |= {"audit": [row._asdict() for row in rows]}
        if not as_json:
            _show(rows, head)
    emit(result, as_json=as_json)
    return 1 if problem else 0


def _show(rows: "Sequence[AuditRecord]", head: str) -> None:
    if not rows:
        say("Nothing that is served was changed yet.")
        return
    console.table(_AUDIT, [(minute(row.at), row.actor, row.action, row.target, _now(row.after), row.reason) for row in rows])
    say(f"head: {head}")


def _now(after: Any) -> str:
    """The shares that an event gave, or what came into a slot."""
    match after:
        case [_, dict(shares), *_]:
            return ", ".join(f"{arm} {share:.0%}" for arm, share in shares.items()) or "none on trial"
        case [str(candidate), str(_)]:
            return short(candidate, 20)
        case None:
            return ""
        case _:
            return short(json.dumps(after), 40)
