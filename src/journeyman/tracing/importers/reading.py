"""From a file to its traces: what it is, what each record tells, and the id by which it will be known."""

import codecs
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

from journeyman.core import registry
from journeyman.core.errors import InputError, JourneymanError, MissingExtra, TraceError
from journeyman.core.trace import Trace
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.base import Format, Row
from journeyman.tracing.importers.source import LONGEST, JsonRecord, JsonSource, Problem
from journeyman.tracing.otel.dumps import is_dump

# The formats that are read, by name, and how each knows its own.

OWN = "journeyman"
OTLP = "otlp"
CHECKPOINT = "checkpoint"


def _is_message(record: Row) -> bool:
    return isinstance(record.get("role"), str) and "content" in record


NAMES = (*registry.KINDS["importers"], CHECKPOINT, OTLP)
"""Those that are read here. Installed packages may add some by entry points, and `module:Class` is one's own."""


@cache
def importer(name: str) -> Format:
    """How files of a format are read.

    Raises:
        InputError: There is no such format, or what has the name is no importer.
    """
    found = registry.load("importers", name)
    if isinstance(found, Format):
        return found
    made = found() if isinstance(found, type) else found
    if not callable(getattr(made, "recognises", None)) or not callable(getattr(made, "read", None)):
        raise InputError(f"{name} is no importer: it lacks recognises or read; see docs/extend-importer.md")
    unique = bool(getattr(made, "unique", False))
    return Format(name=name, recognises=made.recognises, read=made.read, unique=unique)


def is_format(name: str) -> bool:
    """Whether files can be read as this."""
    return name in NAMES or registry.known("importers", name) or registry.is_class(name)


_ELSE: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"judge_response", "simulation_id"}), "verdicts of a judge on traces"),
    (frozenset({"total_judged", "entries"}), "verdicts of a judge on traces"),
    (frozenset({"submitting_organization", "results"}), "entries of a leaderboard"),
    (frozenset({"skills", "sections"}), "a skill book (see journeyman playbook import)"),
    (frozenset({"evaluation_criteria", "user_scenario"}), "tasks"),
)


def _is_extracted(value: Any) -> bool:
    parts = list(value.values()) if isinstance(value, dict) and set(value) <= {"input", "output"} else []
    return bool(parts) and all(isinstance(part, dict) and "success" in part for part in parts)


def recognise(record: Any) -> Format | None:
    """The format that a record is of."""
    if not isinstance(record, dict):
        return None
    return next((each for each in map(importer, registry.names("importers")) if each.recognises(record)), None)


def is_otlp(record: Any) -> bool:
    spans = {"resourceSpans", "resource_spans", "resourceLogs", "resource_logs"}
    return isinstance(record, dict) and (bool(spans & set(record)) or is_dump(record))


def is_bare_message(record: Any) -> bool:
    """A message that stands in a list which is a whole file: mini-swe-agent began so."""
    return isinstance(record, dict) and _is_message(record)


def said_of(record: Any) -> str | None:
    """What a record is that is known to be no trace."""
    if not isinstance(record, dict):
        return None
    if record and all(_is_extracted(each) for each in record.values()):
        return "messages that Langfuse took out of a trace"
    return next((what for keys, what in _ELSE if keys <= set(record)), None)


Found = RecordedTrace | Problem
_JSON = re.compile(rb'\{\s*["}]|\[\s*[{\]]')
"""How an object or a list of objects begins; a table of TOML, or code, does not."""
_PATIENCE = 20
"""Records of no known format before the file is given up."""


def read(path: Path | str, format: str | None = None, done: Callable[[int], None] = lambda _: None) -> Iterator[Found]:
    """The traces of a file, and the places in it that could not be read, in the order in which they stand there.

    A file of lines or a list is read piece by piece, also where it is gzipped: its size does not matter.

    Args:
        path: One file.
        format: One of `NAMES`; recognised by the content when there is none.
        done: Called with how many more bytes of the file were read.

    Raises:
        InputError: The file cannot be opened, or there is no such format.
    """
    path = Path(path)
    if format is not None and not is_format(format):
        raise InputError(f"there is no format {format!r}; there are {', '.join(NAMES)}, and your own as module:Class")
    if format is not None and format not in (CHECKPOINT, OTLP):
        importer(format)
    with JsonSource(path, done) as source:
        yield from _Reading(source, format, done).all()


class _Reading:
    """One file while it is read."""

    def __init__(self, source: JsonSource, format: str | None, done: Callable[[int], None]) -> None:
        self._done = done
        self._source, self._path, self._format = source, source.path, format
        self._seen: dict[bytes, int] = {}
        self._like_json = True

    def all(self) -> Iterator[Found]:
        if self._source.zipped:
            yield from self._archive()
            return
        try:
            start = self._source.start()
        except InputError as error:
            yield Problem(str(self._path), str(error).removeprefix(f"{self._path} "))
            return
        self._like_json = _JSON.match(start) is not None
        if not start:
            return
        if self._format == CHECKPOINT or (self._format is None and self._is_pickle(start)):
            yield from self._checkpoint()
        elif self._format == OTLP or _is_binary(start):
            yield from self._spans()
        else:
            yield from self._records()

    def _records(self) -> Iterator[Found]:
        from journeyman.tracing.importers import checkpoints, langsmith

        records = self._source.records()
        held: list[JsonRecord | Problem] = []
        for one in islice(records, _PATIENCE):
            held.append(one)
            if isinstance(one, JsonRecord):
                break
        last = held[-1] if held else None
        first = last.value if isinstance(last, JsonRecord) else None
        every = chain(held, records)
        if self._format is None and is_otlp(first):
            yield from self._spans()
        elif self._is(CHECKPOINT, checkpoints.recognised, first):
            yield from self._checkpoint()
        elif first is None and not self._like_json:
            yield Problem(str(self._path), _unknown(None), strange=True)
        elif self._is("openclaw", importer("openclaw").recognises, first):
            yield from self._sessions(every)
        elif self._is("langsmith", langsmith.recognised_run, first):
            yield from self._runs(every)
        elif isinstance(last, JsonRecord) and last.in_list and self._is("mini-swe-agent", is_bare_message, first):
            yield from self._conversation(every)
        else:
            yield from self._one_by_one(every)

    def _is(self, name: str, recognises: Callable[[Any], bool], record: Any) -> bool:
        return self._format in (None, name) and isinstance(record, dict) and recognises(record)

    def _one_by_one(self, records: Iterable[JsonRecord | Problem]) -> Iterator[Found]:
        strange: list[Problem] = []
        known = False
        what: str | None = None
        for one in records:
            if isinstance(one, Problem):
                yield one
                continue
            format = importer(self._format) if self._format else recognise(one.value)
            if format is not None:
                yield from strange
                strange, known = [], True
                yield from self._read(format, one)
                continue
            what = what or said_of(one.value)
            strange.append(Problem(one.where, "is of no format that is known"))
            if known:
                yield from strange
                strange = []
            elif len(strange) == _PATIENCE:
                break
        if strange:
            yield Problem(strange[0].where, _unknown(what), strange=True)

    def _read(self, format: Format, record: JsonRecord) -> Iterator[Found]:
        """What a record tells."""
        if not isinstance(record.value, dict) or (self._format and not format.recognises(record.value)):
            yield Problem(record.where, f"is no record of the format {format.name}")
            return
        key = None if format.unique else _digest(record.value)
        several = 0
        for found in _guarded(format.read, record.value):
            if isinstance(found, TraceError):
                yield Problem(record.where, str(found))
                continue
            several += 1
            yield self._finished(found, format.name, record.where, key, several)

    def _finished(self, found: RecordedTrace, name: str, where: str, key: bytes | None, number: int = 1) -> RecordedTrace:
        """With an id that is its own, the name of the format, and where it stands."""
        source = found.trace.source if name == OWN else ""
        trace, called = replace(found.trace, source=source or name), found.trace.id
        if key is not None or not trace.id:
            digest = _digest([(key or b"").hex(), number] if number > 1 else (key or _content(trace)).hex())
            again = self._seen.get(digest, 0)
            self._seen[digest] = again + 1
            # The same record twice in one file is two attempts that went the same way.
            own = digest.hex() if not again else f"{digest.hex()}.{again + 1}"
            id = f"{trace.id}-{own}" if trace.id else own
            trace = replace(trace, id=id, task_id=trace.task_id or id)
        return replace(found, trace=trace, name=called, where=where, format=name)

    def _archive(self) -> Iterator[Found]:
        if self._format not in (None, "inspect"):
            yield Problem(str(self._path), f"is an archive, and nothing of the format {self._format}")
            return
        from journeyman.tracing.importers import inspect_log

        for found in _guarded(inspect_log.read_archive, self._path):
            if isinstance(found, TraceError):
                yield Problem(str(self._path), str(found))
            elif isinstance(found, Problem):
                yield found
            else:
                name, recorded = found
                yield self._finished(recorded, "inspect", f"{self._path}:{name}", None)

    def _sessions(self, records: Iterable[JsonRecord | Problem]) -> Iterator[Found]:
        from journeyman.tracing.importers import openclaw

        held: list[dict[str, Any]] = []
        where = str(self._path)
        for one in records:
            if isinstance(one, Problem):
                yield one
            elif not isinstance(one.value, dict):
                yield Problem(one.where, "is no line of a session")
            elif openclaw.begins(one.value):
                if held:
                    yield from self._together(openclaw.read(held), "openclaw", where)
                held, where = [one.value], one.where
            elif openclaw.belongs(one.value):
                held.append(one.value)
            else:
                yield Problem(one.where, "is no line of a session: it has no type")
        yield from self._together(openclaw.read(held), "openclaw", where)

    def _runs(self, records: Iterable[JsonRecord | Problem]) -> Iterator[Found]:
        from journeyman.tracing.importers import langsmith

        held = []
        for one in records:
            if isinstance(one, Problem):
                yield one
            elif isinstance(one.value, dict) and langsmith.recognised_run(one.value):
                held.append(one.value)
            else:
                yield Problem(one.where, "is no run of LangSmith: it has no run_type")
        yield from self._together(langsmith.traces(held), "langsmith", str(self._path))

    def _conversation(self, records: Iterable[JsonRecord | Problem]) -> Iterator[Found]:
        held = []
        for one in records:
            if isinstance(one, Problem):
                yield one
            elif is_bare_message(one.value):
                held.append(one.value)
            else:
                yield Problem(one.where, "is no message: it has no role and content")
        record = JsonRecord(str(self._path), {"trajectory_format": "mini-swe-agent", "messages": held})
        yield from self._read(importer("mini-swe-agent"), record)

    def _together(self, found: Iterable[RecordedTrace], name: str, where: str) -> Iterator[Found]:
        for one in _guarded(lambda found: found, found):
            if isinstance(one, TraceError):
                yield Problem(where, str(one))
            else:
                yield self._finished(one, name, where, None)

    def _is_pickle(self, start: bytes) -> bool:
        """By its first opcode; the older protocols have none for it, and only the file's name tells."""
        return start[:1] == b"\x80" or (self._path.suffix in (".pkl", ".pickle") and not self._like_json)

    def _checkpoint(self) -> Iterator[Found]:
        from journeyman.tracing.importers import checkpoints

        try:
            with JsonSource(self._path, self._done) as source:
                found = checkpoints.parse(source.whole(), name=str(self._path), agent=self._path.parent.name or "agent")
        except InputError as error:
            yield Problem(str(self._path), str(error).removeprefix(f"{self._path} "), strange=self._format is None)
            return
        for trace in found.traces:
            yield RecordedTrace(trace=trace, name=trace.id, where=str(self._path), format=trace.source)
        yield from (Problem(str(self._path), why) for why in found.problems)

    def _spans(self) -> Iterator[Found]:
        if self._format is None and not self._like_json and not holds_spans(self._path):
            yield Problem(str(self._path), _unknown(None), strange=True)
            return
        found = list(read_spans([self._path]))
        self._done(self._path.stat().st_size)
        yield from found


def read_spans(paths: Sequence[Path]) -> Iterator[Found]:
    """The traces in files of OpenTelemetry spans; those of one trace may stand in several of them.

    Raises:
        InputError: A file cannot be opened.
        MissingExtra: The libraries for it are not installed.
    """
    try:
        from journeyman.tracing.otel.files import read_files
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[serve]'") from error
    where = str(paths[0]) if len(paths) == 1 else f"{len(paths)} files"
    collected = read_files(paths)
    for trace in collected.traces:
        yield RecordedTrace(trace=replace(trace, source=OTLP), name=trace.id, where=where, format=OTLP)
    yield from collected.problems


def holds_spans(path: Path) -> bool:
    """Whether a file is one of spans, by how it begins.

    Raises:
        InputError: It cannot be opened.
    """
    with JsonSource(path) as source:
        start = b"" if source.zipped else source.start()
        if not start or _is_binary(start):
            return bool(start) and path.stat().st_size <= LONGEST and _is_protobuf(path)
        first = next((one for one in islice(source.records(), _PATIENCE) if isinstance(one, JsonRecord)), None)
        return first is not None and recognise(first.value) is None and is_otlp(first.value)


def _is_protobuf(path: Path) -> bool:
    """Whether a binary file holds spans; without the libraries for it, none does."""
    try:
        from journeyman.tracing.otel.files import batches
    except ModuleNotFoundError:
        return False
    return any(not isinstance(one, Problem) and one.spans for one in batches(path))


def _is_binary(start: bytes) -> bool:
    """Whether it is no text. A few bytes of a character may be cut off at the end."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return True
    return b"\0" in start or start[:1] == b"\n"


def _unknown(what: str | None) -> str:
    if what is not None:
        return f"holds {what}, and no traces"
    return f"holds nothing of a format that is known; there are {', '.join(NAMES)}: name one with --format"


def _guarded(read: Callable[[Any], Iterable[Any]], value: Any) -> Iterator[Any]:
    """What a format reads; what goes wrong in it comes as the last of it."""
    try:
        yield from read(value)
    except TraceError as error:
        yield error
    except JourneymanError:
        raise
    except Exception as error:  # noqa: BLE001 - a record may hold anything where anything else is expected: it is data, and named
        yield TraceError(f"could not be read: {type(error).__name__}: {error!s:.200}")


def _digest(value: Any) -> bytes:
    """Of a JSON value, however it was written."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).digest()[:8]


def _content(trace: Trace) -> bytes:
    """Of a trace without an id."""
    return hashlib.sha256(repr(trace).encode("utf-8", "replace")).digest()[:8]


# Files and folders of them, as the files that are read together.


def walked(paths: Iterable[Path]) -> Iterator[tuple[Path, bool]]:
    """The files, those of folders included; whether a file was named itself.

    Raises:
        InputError: There is no such file.
    """
    for path in paths:
        if not path.exists():
            raise InputError(f"there is no file {path}")
        if not path.is_dir():
            yield path, True
            continue
        for folder, inner, names in os.walk(path):
            inner[:] = sorted(each for each in inner if not each.startswith("."))
            found = (Path(folder, each) for each in sorted(names) if not each.startswith("."))
            yield from ((each, False) for each in found if each.is_file())


def grouped(found: Sequence[tuple[Path, bool]], name: str | None) -> Iterator[tuple[list[Path], bool]]:
    """Each file alone, but those of spans together: a trace's spans may stand in several."""
    spans: list[Path] = []
    named = False
    for path, is_named in found:
        if len(found) > 1 and (name == OTLP or (name is None and holds_spans(path))):
            spans.append(path)
            named |= is_named
        else:
            yield [path], is_named
    if spans:
        yield spans, named


def read_folder(
    paths: list[Path], name: str | None, done: Callable[[int], None] = lambda _: None
) -> Iterator[RecordedTrace | Problem]:
    """The traces of a file, or of files of spans together; `done` is called with how many more bytes were read."""
    if len(paths) == 1:
        yield from read(paths[0], name, done)
    else:
        yield from read_spans(paths)
        done(sum(path.stat().st_size for path in paths))
