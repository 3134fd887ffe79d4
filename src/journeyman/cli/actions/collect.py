"""The work behind `journeyman collect`, apart from its options."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from journeyman.cli.console import Column, bar, fitted
from journeyman.cli.console import console as data
from journeyman.cli.shared import console
from journeyman.core.errors import InputError, Unkeepable
from journeyman.core.trace import Trace, average_known, total
from journeyman.experiments import settings as config
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import TraceStore
from journeyman.stores.urls import as_url, redacted
from journeyman.tracing import importers
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers import Problem, reading
from journeyman.tracing.redaction import Redactor, shapes_only

_BATCH = 50
"""Traces that are stored together: some are megabytes."""
_TOLD = 20
"""Broken places that are named on the screen; `--json` names all."""
_PAUSE = 2.0
"""Seconds between two lines that say how far it is, where there is no bar."""

Prepare = Callable[[Trace], Trace]


@dataclass(kw_only=True)
class _Tally:
    """What came out of a file, or of several."""

    file: str
    formats: set[str] = field(default_factory=set)
    traces: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    rewards: list[float | None] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Files of a folder that hold no traces."""

    def add(self, found: RecordedTrace) -> None:
        trace = found.trace
        self.formats.add(found.format)
        self.traces += 1
        self.model_calls += len(trace.calls)
        self.tool_calls += len(trace.tool_calls)
        self.input_tokens = total((self.input_tokens, trace.input_tokens))
        self.output_tokens = total((self.output_tokens, trace.output_tokens))
        self.rewards += [reward.value for reward in trace.rewards]

    def told(self) -> dict[str, Any]:
        return {
            "format": next(iter(self.formats)) if len(self.formats) == 1 else None,
            "traces": self.traces,
            "model_calls": self.model_calls,
            "tool_calls": self.tool_calls,
            # The sum of no calls is no figure either.
            "input_tokens": self.input_tokens if self.model_calls else None,
            "output_tokens": self.output_tokens if self.model_calls else None,
            "rewards": len(self.rewards),
            "mean_reward": average_known(self.rewards),
            "errors": self.errors,
        }


def run(given: Mapping[str, Any], *, quiet: bool) -> tuple[dict[str, Any], int]:
    """Bring in what the options name; the summary, and the exit code. A table goes to stdout, words to stderr."""
    name, paths = _named(given["format_name"], given["files"])
    found = list(reading.walked(paths))
    tallies = []
    with ExitStack() as stack:
        url = _url(given["store"])
        store = None if given["dry_run"] else stack.enter_context(open_traces(url))
        keep = _Keeper(store, _prepared(given))
        size = sum(path.stat().st_size for path, _ in found)
        done = stack.enter_context(bar("kB", max(size >> 10, 1), quiet=quiet, pause=_PAUSE))
        for paths, is_named in reading.grouped(found, name):
            tally = _Tally(file=str(paths[0]) if len(paths) == 1 else f"{len(paths)} files of spans")
            keep.all(reading.read_folder(paths, name, _kilobytes(done)), tally, is_named=is_named)
            tallies.append(tally)
        keep.flush()
    summed = _summed(tallies)
    result = {**summed.told(), "stored": keep.stored, "dry_run": store is None, "left_out": summed.left_out}
    if len(tallies) > 1:
        result["files"] = [{"file": each.file, **each.told()} for each in tallies if each.traces or each.errors]
    if not quiet:
        _tell(tallies, result, redacted(url))
    _complain(summed)
    if not summed.traces and not summed.errors and not quiet:
        console().print("there was nothing to bring in; journeyman collect --help names the formats")
    return result, 2 if not summed.traces else 1 if summed.errors else 0


def _named(format: str | None, paths: Sequence[Path]) -> tuple[str | None, Sequence[Path]]:
    """The format that was asked for, with `--format` or before the files, and the files."""
    first = str(paths[0])
    if format is None and len(paths) > 1 and reading.is_format(first) and not paths[0].exists():
        return first, paths[1:]
    if format is not None and not reading.is_format(format):
        known = ", ".join(importers.NAMES)
        raise InputError(f"there is no format {format!r}; --format is one of {known}, or your own as module:Class")
    return format, paths


def _prepared(given: Mapping[str, Any]) -> Prepare:
    """What happens to a trace before it is stored: secrets go, and the options have their say."""
    settings = config.load().settings.record
    redactor, content = Redactor(settings.redact), settings.content and not given["no_content"]
    changes = {key: given[key] for key in ("agent", "domain", "session") if given[key] is not None}

    def prepare(trace: Trace) -> Trace:
        trace = redactor.trace(replace(trace, **changes))
        return trace if content else shapes_only(trace)

    return prepare


def _url(url: str | None) -> str:
    return config.load().store_url if url is None else as_url(url)


class _Keeper:
    """Stores traces, some at a time, and counts them."""

    def __init__(self, store: TraceStore | None, prepare: Prepare) -> None:
        self._store, self._prepare = store, prepare
        self._waiting: list[tuple[Trace, _Tally]] = []
        self.stored = 0
        """How many were new to the store, or not as they had been."""

    def all(self, found: Iterable[RecordedTrace | Problem], tally: _Tally, *, is_named: bool) -> None:
        for one in found:
            if not isinstance(one, Problem):
                tally.add(one)
                self._add(one.trace, tally)
            elif one.strange and not is_named:
                tally.left_out.append(str(one))
            else:
                tally.errors.append(str(one))

    def _add(self, trace: Trace, tally: _Tally) -> None:
        if self._store is None:
            return
        self._waiting.append((self._prepare(trace), tally))
        if len(self._waiting) == _BATCH:
            self.flush()

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if self._store is not None and waiting:
            self._store_all(self._store, waiting)

    def _store_all(self, store: TraceStore, some: Sequence[tuple[Trace, _Tally]]) -> None:
        try:
            self.stored += store.add([trace for trace, _ in some])
        except Unkeepable as error:
            if len(some) == 1:
                ((trace, tally),) = some
                tally.errors.append(f"{tally.file}: trace {trace.id!r} is left out: {error}")
                return
            for each in some:
                self._store_all(store, [each])


def _kilobytes(done: Callable[[int], None]) -> Callable[[int], None]:
    """Tells a bar of kilobytes of bytes."""
    held = 0

    def more(count: int) -> None:
        nonlocal held
        held += count
        if held >= 1024:
            done(held >> 10)
            held &= 1023

    return more


def _summed(tallies: Iterable[_Tally]) -> _Tally:
    found = _Tally(file="together")
    for each in tallies:
        found.formats |= each.formats
        found.traces += each.traces
        found.model_calls += each.model_calls
        found.tool_calls += each.tool_calls
        found.input_tokens = total((found.input_tokens, each.input_tokens))
        found.output_tokens = total((found.output_tokens, each.output_tokens))
        found.rewards += each.rewards
        found.errors += each.errors
        found.left_out += each.left_out
    return found


def _tell(tallies: Sequence[_Tally], result: Mapping[str, Any], where: str) -> None:
    """A row for each format; what came out of each file, `--json` tells."""
    by_format: dict[str, list[_Tally]] = {}
    for each in tallies:
        if each.traces or each.errors:
            by_format.setdefault(" and ".join(sorted(each.formats)) or "unknown", []).append(each)
    rows = [(name, len(group), _summed(group).told()) for name, group in sorted(by_format.items())]
    if len(rows) > 1:
        rows.append(("together", sum(count for _, count, _ in rows), dict(result)))
    if rows:
        out = data()
        out.print(_formats(rows, out.width))
    if not result["traces"]:
        return
    told = "read, and nothing stored" if result["dry_run"] else f"in {where}, {result['stored']} of them new or changed"
    console().print(f"{result['traces']} traces {told}", markup=False, soft_wrap=True)


def _formats(rows: Sequence[tuple[str, int, Mapping[str, Any]]], width: int) -> Table:
    def numbers(name: str, spare: int, told: Callable[[Mapping[str, Any]], str]) -> Column:
        return Column(name=name, spare=spare, cells=[Text(told(row)) for _, _, row in rows])

    return fitted(
        (
            Column(name="format", words=True, least=13, cells=[Text(name) for name, _, _ in rows]),
            Column(name="files", spare=2, cells=[Text(str(count)) for _, count, _ in rows]),
            numbers("traces", 0, lambda row: str(row["traces"])),
            numbers("model calls", 4, lambda row: str(row["model_calls"])),
            numbers("tool calls", 3, lambda row: str(row["tool_calls"])),
            numbers("tokens in", 6, lambda row: _count(row["input_tokens"])),
            numbers("tokens out", 6, lambda row: _count(row["output_tokens"])),
            numbers("rewards", 5, lambda row: str(row["rewards"] or "")),
            numbers("mean", 1, lambda row: "" if row["mean_reward"] is None else f"{row['mean_reward']:.3f}"),
            numbers("broken", 0, lambda row: str(len(row["errors"]))),
        ),
        width,
    )


def _count(tokens: int | None) -> str:
    return "?" if tokens is None else str(tokens)


def _complain(summed: _Tally) -> None:
    """Name what is broken, and how much of the folders was left out."""
    out = console()
    for told in summed.errors[:_TOLD]:
        out.print(told, markup=False, soft_wrap=True)
    if len(summed.errors) > _TOLD:
        out.print(f"and {len(summed.errors) - _TOLD} more broken places; --json names all")
    for why, count in Counter(told.partition(": ")[2].partition(";")[0] for told in summed.left_out).most_common():
        out.print("1 file left out; it" if count == 1 else f"{count} files left out; each", why, markup=False, soft_wrap=True)
