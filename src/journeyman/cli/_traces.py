"""Lists, single traces and forgetting, for `journeyman traces`."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from journeyman import config
from journeyman.errors import InputError
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import Line, Page, Query, TraceStore
from journeyman.stores.urls import as_url, is_nowhere, redacted

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
    return config.load().store_url if url is None else as_url(url)


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
            from journeyman.cli import _traces_screen as screen

            screen.table(page.lines)
        more = f"{_MOST} or more" if count == _MOST else str(count)
        tell(f"{len(page.lines)} of {more} traces" + (f"; go on with --after {page.next}" if page.next else ""))
    return {"count": count, "counted_to": _MOST, "next": page.next, "traces": [line_json(line) for line in page.lines]}


def shown(url: str | None, prefix: str, *, full: bool, quiet: bool) -> dict[str, Any]:
    from journeyman.capture import jsonl
    from journeyman.cli import _traces_screen as screen

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


def line_json(line: Line) -> dict[str, Any]:
    return plain_json(asdict(line))


def plain_json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Times as ISO 8601."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in fields.items()}


def tell(text: str) -> None:
    click.echo(text, err=True)


def _traces(count: int) -> str:
    return f"{count} trace{'' if count == 1 else 's'}"
