"""`journeyman collect`: bring in what others recorded, or record executions of plans."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from journeyman.cli import console
from journeyman.cli.console import Column, bar, number, say, say_some
from journeyman.cli.lazy import CommandGroup, Own
from journeyman.cli.shared import (
    choice_options,
    chosen,
    emit,
    format_option,
    json_option,
    store_option,
    store_url,
    workers_option,
)
from journeyman.core.errors import Unkeepable
from journeyman.core.format import counted
from journeyman.core.trace import Trace, average_known, total
from journeyman.io import executors
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import TraceStore
from journeyman.stores.urls import redacted
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers import Problem, reading

_BATCH = 50
"""Traces that are stored together: some are megabytes."""
_SHOWN = 20
"""Broken places that are named on the screen; `--json` names all."""
_PAUSE = 2.0
"""Seconds between two lines that say how far it is, where there is no bar."""


_SOURCES = {
    "sources": "Say what of a team's own work is on this machine, and what of it will be lost when.",
    "all": "Bring in all that journeyman.toml names below [collect.sources], and nothing else.",
    "claude-code": "Bring in sessions of Claude Code, which deletes them after 30 days.",
    "codex": "Bring in sessions of Codex.",
    "cursor": "Bring in conversations of Cursor.",
    "gemini": "Bring in sessions of Gemini CLI.",
    "opencode": "Bring in sessions of OpenCode.",
    "openhands": "Bring in conversations of OpenHands.",
    "aider": "Bring in chats with aider.",
    "git": "Bring in the history of a repository.",
    "messages": "Bring in what a team said: exports of Slack and Discord, and mail.",
    "devlogs": "Bring in logs of the day.",
    "workspaces": "Bring in the workspaces of agents.",
    "vectors": "Bring in the texts of a vector store: Chroma, Qdrant, LanceDB, FAISS or pgvector.",
}


class _Collect(CommandGroup):
    """Files, or a source by its name; `--watch` and `--reprocess` alone are of all sources."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and args[0] in ("--watch", "--reprocess"):
            args = ["all", *args]
        return super().make_context(info_name, args, parent, **extra)


@click.group(
    cls=_Collect,
    lines={"executions": "Carry out instructions of many kinds, and log what became of each step.", **_SOURCES},
    homes={
        "executions": "plan:executions",
        **{name: f"collect_sources:{name.replace('-', '_')}" for name in _SOURCES},
        "all": "collect_sources:everything",
    },
    invoke_without_command=True,
    subcommand_metavar="FILES... | SOURCE [PATH] | executions [OPTIONS]",
)
@click.argument("files", cls=Own, nargs=-1, required=True, type=click.Path(path_type=Path))
@format_option
@choice_options
@store_option
@click.option("--dry-run", is_flag=True, help="Read and count, and store nothing.")
@click.option("--agent", metavar="NAME", help="Who made the attempts, instead of what the files say.")
@click.option("--domain", metavar="NAME", help="Which domain they belong to, instead of what the files say.")
@click.option("--session", metavar="ID", help="Which session they belong to, instead of what the files say.")
@click.option("--no-content", is_flag=True, help="Keep only shapes and numbers: no prompt, reply, argument or result.")
@workers_option
@json_option
def command(as_json: bool, **given: Any) -> int:
    """Bring in what others recorded, from files and folders of them.

    A source by its name is read from where its program keeps it, and only what is new since the last time.

    Formats: journeyman, chat, tau-bench, tau2-bench, swe-agent, mini-swe-agent, langfuse, langsmith, inspect, execution-log,
    openclaw, smolagents, sharegpt, checkpoint (pickles too: they are read, and never loaded), otlp; and the sessions of
    claude-code, codex, cursor, gemini, opencode, aider and openhands; gzipped or not, or packed with zstd. MODULE:CLASS is an
    importer of your own. A format can also stand before the files. Keys and tokens are taken out. The same file twice is the
    same traces. What is broken in a file is named, and what is whole comes in: then the exit code is 1, and 2 when there was
    nothing to bring in.

    \b
    Examples:
      journeyman collect results.json logs/
      journeyman collect otlp spans.jsonl --session 2026-11-05
      journeyman collect export.json --dry-run --json
      journeyman collect exports/ --workers local:4
      journeyman collect claude-code --since 30d
    """
    result, code = _collect(given, quiet=as_json)
    emit(result, as_json=as_json)
    return code


# What came out of the files.


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

    def include(self, other: "_Tally") -> None:
        self.formats |= other.formats
        self.traces += other.traces
        self.model_calls += other.model_calls
        self.tool_calls += other.tool_calls
        self.input_tokens = total((self.input_tokens, other.input_tokens))
        self.output_tokens = total((self.output_tokens, other.output_tokens))
        self.rewards += other.rewards
        self.errors += other.errors
        self.left_out += other.left_out

    def add(self, found: RecordedTrace) -> None:
        trace = found.trace
        one = _Tally(
            file=self.file,
            formats={found.format},
            traces=1,
            model_calls=len(trace.calls),
            tool_calls=len(trace.tool_calls),
            input_tokens=trace.input_tokens,
            output_tokens=trace.output_tokens,
            rewards=[reward.value for reward in trace.rewards],
        )
        self.include(one)

    def json(self) -> dict[str, Any]:
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


def _collect(given: Mapping[str, Any], *, quiet: bool) -> tuple[dict[str, Any], int]:
    """Bring in what the options name; the summary, and the exit code. A table goes to stdout, words to stderr."""
    name, paths = _named(given["format_name"], given["files"])
    found = list(reading.walked(paths, chosen(given)))
    tallies = []
    with ExitStack() as stack:
        url = store_url(given["store"])
        store = None if given["dry_run"] else stack.enter_context(open_traces(url))
        keep = _Keeper(store, _prepared(given))
        size = sum(path.stat().st_size for path, _ in found)
        done = stack.enter_context(bar("kB", max(size >> 10, 1), quiet=quiet, pause=_PAUSE))
        groups = list(reading.grouped(found, name))
        spread = stack.enter_context(executors.spread(given["workers"], given["item_timeout"]))
        for (paths, is_named), read in zip(groups, _read(spread, groups, name, _kilobytes(done)), strict=True):
            tally = _Tally(file=str(paths[0]) if len(paths) == 1 else f"{len(paths)} files of spans")
            keep.all(read, tally, is_named=is_named)
            tallies.append(tally)
        keep.flush()
    summed = _summed(tallies)
    result = {**summed.json(), "stored": keep.stored, "dry_run": store is None, "left_out": summed.left_out}
    if len(tallies) > 1:
        result["files"] = [{"file": each.file, **each.json()} for each in tallies if each.traces or each.errors]
    if not quiet:
        _show(tallies, result, redacted(url))
    _complain(summed)
    if not summed.traces and not summed.errors and not quiet:
        say("there was nothing to bring in; journeyman collect --help names the formats")
    return result, 2 if not summed.traces else 1 if summed.errors else 0


def _read(
    spread: executors.Spread | None, groups: Sequence[tuple[list[Path], bool]], name: str | None, done: Callable[[int], None]
) -> Iterator[Iterable[RecordedTrace | Problem]]:
    """What stands in each group of files."""
    if spread is None:
        for paths, _ in groups:
            yield reading.read_folder(paths, name, done)
        return
    from journeyman.experiments.collecting import read_with

    yield from read_with(spread, [paths for paths, _ in groups], name, done)


def _named(format: str | None, paths: Sequence[Path]) -> tuple[str | None, Sequence[Path]]:
    """The format that was asked for, with `--format` or before the files, and the files."""
    first = str(paths[0])
    if format is None and len(paths) > 1 and reading.is_format(first) and not paths[0].exists():
        return first, paths[1:]
    if format is not None:
        reading.check_format(format)
    return format, paths


def _prepared(given: Mapping[str, Any]) -> Callable[[Trace], Trace]:
    """What happens to a trace before it is stored: secrets go, and the options have their say."""
    from journeyman.experiments import settings as config
    from journeyman.tracing.redaction import Redactor, shapes_only

    settings = config.load().settings.record
    redactor, content = Redactor(settings.redact), settings.content and not given["no_content"]
    changes = {key: given[key] for key in ("agent", "domain", "session") if given[key] is not None}

    def prepare(trace: Trace) -> Trace:
        trace = redactor.trace(replace(trace, **changes))
        return trace if content else shapes_only(trace)

    return prepare


class _Keeper:
    """Stores traces, some at a time, and counts them."""

    def __init__(self, store: TraceStore | None, prepare: Callable[[Trace], Trace]) -> None:
        self._store, self._prepare = store, prepare
        self._waiting: list[tuple[Trace, _Tally]] = []
        self._told: dict[str, int] = {}
        self.stored = 0
        """How many were new to the store, or not as they had been."""

    def all(self, found: Iterable[RecordedTrace | Problem], tally: _Tally, *, is_named: bool) -> None:
        for one in found:
            if not isinstance(one, Problem):
                if self._is_copy(one):
                    continue
                tally.add(one)
                self._add(one.trace, tally)
            elif one.strange and not is_named:
                tally.left_out.append(str(one))
            else:
                tally.errors.append(str(one))

    def _is_copy(self, one: RecordedTrace) -> bool:
        """Whether another file has told as much of it."""
        if not reading.importer(one.format).repeats:
            return False
        before, now = self._told.get(one.trace.id, -1), len(one.trace.steps)
        self._told[one.trace.id] = max(before, now)
        return now <= before

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
    together = _Tally(file="together")
    for each in tallies:
        together.include(each)
    return together


def _show(tallies: Sequence[_Tally], result: Mapping[str, Any], where: str) -> None:
    """A row for each format; what came out of each file, `--json` tells."""
    by_format: dict[str, list[_Tally]] = {}
    for each in tallies:
        if each.traces or each.errors:
            by_format.setdefault(" and ".join(sorted(each.formats)) or "unknown", []).append(each)
    rows = [(name, len(group), _summed(group).json()) for name, group in sorted(by_format.items())]
    if len(rows) > 1:
        rows.append(("together", sum(count for _, count, _ in rows), dict(result)))
    if rows:
        console.table(_COLUMNS, [_row(*row) for row in rows])
    if result["traces"]:
        stored = "read, and nothing stored" if result["dry_run"] else f"in {where}, {result['stored']} of them new or changed"
        say(f"{counted(result['traces'], 'trace')} {stored}")


_COLUMNS = (
    Column(name="format", words=True, least=13),
    Column(name="files", spare=2),
    Column(name="traces"),
    Column(name="model calls", spare=4),
    Column(name="tool calls", spare=3),
    Column(name="tokens in", spare=6),
    Column(name="tokens out", spare=6),
    Column(name="rewards", spare=5),
    Column(name="mean", spare=1),
    Column(name="broken"),
)


def _row(name: str, files: int, tally: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        name,
        *(str(count) for count in (files, tally["traces"], tally["model_calls"], tally["tool_calls"])),
        *(number(tally[name], "d", "?") for name in ("input_tokens", "output_tokens")),
        str(tally["rewards"] or ""),
        number(tally["mean_reward"], unknown=""),
        str(len(tally["errors"])),
    )


def _complain(summed: _Tally) -> None:
    """Name what is broken, and how much of the folders was left out."""
    say_some(summed.errors, _SHOWN, "broken places")
    for why, count in Counter(text.partition(": ")[2].partition(";")[0] for text in summed.left_out).most_common():
        say(f"1 file left out; it {why}" if count == 1 else f"{count} files left out; each {why}")
