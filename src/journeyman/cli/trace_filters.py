"""Which traces a command means: the options that say so, and what is read with them."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli import console
from journeyman.cli.console import named_columns, say, short
from journeyman.cli.shared import emit, json_option, read_store_url, store_option, together
from journeyman.core.errors import InputError
from journeyman.core.format import counted
from journeyman.stores.base import whole_id
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import Query, TraceStore
from journeyman.stores.urls import redacted

if TYPE_CHECKING:
    from journeyman.stores.traces.agreement import LabelAgreement

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

filters = together(
    click.option("--agent", metavar="NAME", help="Of one agent."),
    click.option("--model", metavar="NAME", help="That called this model."),
    click.option("--tool", metavar="NAME", help="That used this tool."),
    click.option("--task", "task_id", metavar="ID", help="Of one task."),
    click.option("--session", metavar="ID", help="Of one session."),
    click.option("--domain", metavar="NAME", help="Of one domain."),
    click.option(
        "--source",
        metavar="NAME",
        help="That came in this way: gateway, otlp, hook, run, or a file's format; agents: any but Journeyman's own (run).",
    ),
    click.option("--candidate", "candidate_id", metavar="ID", help="Made while this playbook, policy or adapter was in force."),
    click.option(
        "--label", type=click.Choice(("good", "bad", "none", "some")), help="Labelled so; some, none: by a person, or not."
    ),
    click.option("--min-reward", type=float, metavar="R", help="With a mean reward of at least R."),
    click.option("--max-reward", type=float, metavar="R", help="With a mean reward of at most R."),
    click.option("--error/--no-error", "failed", default=None, help="With an error in it, or without."),
    click.option(
        "--ended-in-error",
        is_flag=True,
        default=None,
        flag_value=True,
        help="That ended in one, or a call of a model or an agent in it: a tool that refused is none.",
    ),
    click.option("--scored/--not-scored", default=None, help="Whose reward is known, or is not."),
    click.option(
        "--text", metavar="WORDS", help='With all these words; "in quotes" for a phrase, the last may be a beginning.'
    ),
    click.option("--since", metavar="TIME", help="Begun at TIME or after it: 2026-11-05, 2026-11-05T14:00, …+02:00."),
    click.option("--until", metavar="TIME", help="Begun before TIME. Without a zone it is the time of this machine."),
    click.option("--last", metavar="SPAN", help="Begun within the last 30m, 12h, 7d or 2w."),
)
"""Gives a command the options that say which traces are meant; `query` reads them."""


def reading(read: Callable[..., dict[str, Any]]) -> Callable[..., int]:
    """Gives a command `--store` and `--json`. What it finds has "silent" where its answer is no."""

    @wraps(read)
    def run(as_json: bool, **given: Any) -> int:
        result = read(quiet=as_json, **given)
        emit(result, as_json=as_json)
        return 1 if result.get("silent") else 0

    return store_option(json_option(run))


@contextmanager
def opened(url: str | None) -> Iterator[TraceStore]:
    """The store that is meant: the project's, or another. Looking for traces where there is no store makes none."""
    where = read_store_url(url)
    with open_traces(where, make=False) as store:
        if not store.count(Query(), most=1):
            say_that_there_are_none(where)
        yield store


def say_that_there_are_none(where: str) -> None:
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
    match = re.fullmatch(r"(\d{1,6})([smhdw])", text.strip().lower())
    if match is None:
        raise InputError(f"{option} {text}: not a length of time; write 30m, 12h, 7d or 2w")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def id_of(store: TraceStore, prefix: str) -> str:
    return whole_id(prefix, lambda begin, limit: store.starting(begin, limit=limit), one="trace", many="traces")


def show_agreement(store: TraceStore, *, quiet: bool) -> dict[str, Any]:
    """How far people agree, and on which traces they do not."""
    from journeyman.stores.traces.agreement import agreed

    agreements = agreed(store.labels(by_several=True), store.ratings_by_people())
    if not agreements and not quiet:
        say("No two people have labelled the same trace: journeyman traces label --others --who NAME")
    elif not quiet:
        console.table(named_columns("people", "metric", "both", "agreed", "agreement"), map(_agreement_row, agreements))
        apart = list(dict.fromkeys(id for each in agreements for id in each.apart))
        if apart:
            shown = ", ".join(apart[-_APART:]) + (f" and {len(apart) - _APART} more" if len(apart) > _APART else "")
            say(f"They differ on {counted(len(apart), 'trace')}: {shown}. To read one: journeyman traces show ID")
    return {"agreement": [each.json() for each in agreements]}


_APART = 10


def _agreement_row(each: "LabelAgreement") -> tuple[str, ...]:
    people = " and ".join(map(short, each.people)) if len(each.people) < 3 else f"all {len(each.people)}"
    return people, each.metric, str(each.traces), f"{each.agreed / each.traces:.0%}", each.sentence
