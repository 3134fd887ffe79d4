"""From a file to its traces: what it is, what each record tells, and the id by which it will be known."""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from journeyman.core import extension, registry
from journeyman.core.errors import InputError, JourneymanError, TraceError
from journeyman.core.trace import Trace
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.jsonl import check
from journeyman.tracing.importers.source import (
    ALL_FILES,
    PATIENCE,
    FileChoice,
    FileHead,
    Format,
    JsonRecord,
    JsonSource,
    LineCensus,
    Problem,
    Row,
    SeveralRecords,
)

_log = logging.getLogger(__name__)
OWN = "journeyman"
OTLP = "otlp"
NAMES = tuple(registry.KINDS["importers"])
"""Those that are read here. Installed packages may add some by entry points, and `module:Class` is one's own."""


@cache
def importer(name: str) -> Format:
    """How files of a format are read.

    Raises:
        InputError: There is no such format, or what has the name is no importer.
    """
    made = extension.make("importers", name)
    if name in NAMES:
        ours: Format = made
        return ours
    if isinstance(made, Format):
        return replace(made, name=name)
    return Format(name=name, recognises=made.recognises, read=made.read, unique=bool(getattr(made, "unique", False)))


def is_format(name: str) -> bool:
    """Whether files can be read as this."""
    return registry.known("importers", name) or registry.is_class(name)


def check_format(name: str) -> None:
    """
    Raises:
        InputError: There is no such format.
    """
    if not is_format(name):
        raise InputError(registry.unknown("importers", name))


_NO_TRACES: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"judge_response", "simulation_id"}), "verdicts of a judge on traces"),
    (frozenset({"total_judged", "entries"}), "verdicts of a judge on traces"),
    (frozenset({"submitting_organization", "results"}), "entries of a leaderboard"),
    (frozenset({"skills", "sections"}), "a skill book (see journeyman playbook import)"),
    (frozenset({"evaluation_criteria", "user_scenario"}), "tasks"),
)
"""Keys of records that hold something else, and what that is."""


def _ours() -> Iterator[Format]:
    return map(importer, NAMES)


def _added() -> Iterator[Format]:
    """Those of installed packages. One that cannot be loaded is named, and keeps nobody from the others."""
    for name in registry.names("importers"):
        if name not in NAMES and (format := _working(name)) is not None:
            yield format


@cache
def _working(name: str) -> Format | None:
    """A format of an installed package, which nobody has asked for; said once where it cannot be used."""
    try:
        return importer(name)
    except JourneymanError as error:
        _log.warning("%s; no file is shown to it; journeyman doctor names the package that it is from", error)
        return None


def _says(format: Format, knows: Callable[[Any], bool], it: Any, *, named: bool = False) -> bool:
    """Whether a format knows a record, or the head of a file. One that fails over it, and that nobody has `named`, is said
    once."""
    try:
        return bool(knows(it))
    except Exception as error:
        if format.name in NAMES:
            raise
        said = f"the format {format.name!r} failed in {getattr(knows, '__name__', 'recognises')}: {extension.ended(error)}"
        if named:
            raise TraceError(said) from error
        _warn_once(f"{said}; what it cannot be asked about is left to others")
        return False


@cache
def _warn_once(said: str) -> None:
    _log.warning("%s", said)


def recognise(record: Any) -> Format | None:
    """The format that a record is of."""
    if not isinstance(record, dict):
        return None
    everyone = chain(_ours(), _added())
    return next((each for each in everyone if each.read is not None and _says(each, each.recognises, record)), None)


def other_content(record: Any) -> str | None:
    """What a record is that is known to be no trace."""
    if not isinstance(record, dict):
        return None
    if record and all(_is_extracted(each) for each in record.values()):
        return "messages that Langfuse took out of a trace"
    return next((what for keys, what in _NO_TRACES if keys <= set(record)), None)


def _is_extracted(value: Any) -> bool:
    parts = list(value.values()) if isinstance(value, dict) and set(value) <= {"input", "output"} else []
    return bool(parts) and all(isinstance(part, dict) and "success" in part for part in parts)


def read(
    path: Path | str, format: str | None = None, done: Callable[[int], None] = lambda _: None
) -> Iterator[RecordedTrace | Problem]:
    """The traces of a file, and the places in it that could not be read, in the order in which they stand there.

    A file of lines or a list is read piece by piece, also where it is gzipped: its size does not matter.

    Args:
        path: One file.
        format: One of `NAMES`; recognised by the content when there is none.
        done: Called with how many more bytes of the file were read.

    Raises:
        InputError: The file cannot be opened, or there is no such format.
        MissingExtra: It holds spans of OpenTelemetry, and the libraries for them are not installed.
    """
    path = Path(path)
    if format is not None:
        check_format(format)
    wanted = None if format is None else importer(format)
    with JsonSource(path, done) as source:
        yield from _FileReader(source, wanted).traces()
        done(path.stat().st_size - source.position)


class _FileReader:
    """One file while it is read."""

    def __init__(self, source: JsonSource, format: Format | None) -> None:
        self._source, self._path, self._format = source, source.path, format
        self._seen: dict[bytes, int] = {}
        self._census = LineCensus()

    def traces(self) -> Iterator[RecordedTrace | Problem]:
        yield from self._traces()
        yield from self._census.problems(str(self._path))

    def _traces(self) -> Iterator[RecordedTrace | Problem]:
        try:
            head = FileHead(self._source)
        except InputError as error:
            yield self._problem(error)
            return
        if not head.start:
            return
        for format in [self._format] if self._format else chain(_ours(), self._foreign(head)):
            if (whole := format.whole) is not None and (
                _says(format, whole.knows, head) or (self._format and format.read is None)
            ):
                yield from self._whole(format)
                return
            with extension.named("importers", format.name):
                if format.several is not None and head.first is not None and _starts(format.several, head.first):
                    yield from self._several(format, format.several, head.records())
                    return
        if head.is_archive:
            yield Problem(str(self._path), f"is an archive, and nothing of the format {self._format and self._format.name}")
        elif head.first is None and not head.like_json:
            yield Problem(str(self._path), _NO_JSON if self._format else _unknown(None), strange=True)
        else:
            yield from self._one_by_one(head.records())

    @staticmethod
    def _foreign(head: FileHead) -> Iterator[Format]:
        """Those of installed packages, where nothing of ours knows what the file begins with."""
        record = head.first.value if head.first else None
        if isinstance(record, dict) and any(each.read is not None and each.recognises(record) for each in _ours()):
            return
        yield from _added()

    def _problem(self, error: Exception, *, strange: bool = False) -> Problem:
        return Problem(str(self._path), str(error).removeprefix(f"{self._path} "), strange)

    def _whole(self, format: Format) -> Iterator[RecordedTrace | Problem]:
        assert format.whole is not None
        try:
            for found in _guarded(format, format.whole.read, [self._path]):
                if isinstance(found, Problem):
                    yield found
                elif isinstance(found, TraceError):
                    yield self._problem(found)
                else:
                    yield self._finished(found, format.name, found.where or str(self._path), None)
        except InputError as error:
            yield self._problem(error, strange=self._format is None)

    def _several(
        self, format: Format, several: SeveralRecords, records: Iterable[JsonRecord | Problem]
    ) -> Iterator[RecordedTrace | Problem]:
        rows: list[Row] = []
        where = str(self._path)
        carried = 0
        for one in records:
            if isinstance(one, Problem):
                yield one
            elif isinstance(one.value, dict) and several.begins(one.value):
                head = several.carried(rows) if rows else None
                if rows:
                    self._census.take(format.kinds(several.joined(rows[carried:])))
                    yield from self._read(format, several.joined([*rows]), where)
                rows, where, carried = [*([] if head is None else [head]), one.value], one.where, int(head is not None)
            elif isinstance(one.value, dict) and several.belongs(one.value):
                rows.append(one.value)
            else:
                yield Problem(one.where, several.otherwise)
        if rows:
            self._census.take(format.kinds(several.joined(rows[carried:])))
            yield from self._read(format, several.joined([*rows]), where)

    def _one_by_one(self, records: Iterable[JsonRecord | Problem]) -> Iterator[RecordedTrace | Problem]:
        strange: list[Problem] = []
        known = False
        what: str | None = None
        for one in records:
            if isinstance(one, Problem):
                yield one
                continue
            format = self._format or recognise(one.value)
            if format is not None:
                yield from strange
                strange, known = [], True
                yield from self._one(format, one)
                continue
            what = what or other_content(one.value)
            strange.append(Problem(one.where, "is of no format that is known"))
            if known:
                yield from strange
                strange = []
            elif len(strange) == PATIENCE:
                break
        if strange:
            yield Problem(strange[0].where, _unknown(what), strange=True)

    def _one(self, format: Format, one: JsonRecord) -> Iterator[RecordedTrace | Problem]:
        try:
            strange = not isinstance(one.value, dict) or (
                self._format is not None and not _says(format, format.recognises, one.value, named=True)
            )
        except TraceError as error:
            yield Problem(one.where, str(error))
            return
        if strange:
            yield Problem(one.where, f"is no record of the format {format.name}")
        else:
            self._census.take(format.kinds(one.value))
            yield from self._read(format, one.value, one.where)

    def _read(self, format: Format, record: Any, where: str) -> Iterator[RecordedTrace | Problem]:
        """What a record tells."""
        assert format.read is not None
        key = None if format.unique else _digest(record)
        number = 0
        for found in _guarded(format, format.read, record):
            if isinstance(found, TraceError):
                yield Problem(where, str(found))
                continue
            number += 1
            yield self._finished(found, format.name, where, key, number)

    def _finished(self, found: RecordedTrace, name: str, where: str, key: bytes | None, number: int = 1) -> RecordedTrace:
        """With an id that is its own, the name of the format, and where it stands."""
        source = found.trace.source if name == OWN else ""
        trace, called = replace(found.trace, source=source or name), found.trace.id
        if key is not None or not trace.id:
            digest = _digest([key.hex(), number] if key and number > 1 else (key or _content(trace)).hex())
            again = self._seen.get(digest, 0)
            self._seen[digest] = again + 1
            # The same record twice in one file is two attempts that went the same way.
            own = digest.hex() if not again else f"{digest.hex()}.{again + 1}"
            id = f"{trace.id}-{own}" if trace.id else own
            trace = replace(trace, id=id, task_id=trace.task_id or id)
        return replace(found, trace=trace, name=called, where=where, format=name)


def complete(found: RecordedTrace, format: Format, where: str) -> RecordedTrace:
    """What was read of a format whose ids are unique in the world, with the format's name and where it stands."""
    trace = replace(found.trace, source=format.name)
    return replace(found, trace=trace, name=trace.id, where=where, format=format.name)


def _starts(several: SeveralRecords, first: JsonRecord) -> bool:
    return isinstance(first.value, dict) and several.starts(first)


def read_spans(paths: Sequence[Path]) -> Iterator[RecordedTrace | Problem]:
    """The traces in files of OpenTelemetry spans; those of one trace may stand in several of them.

    Raises:
        InputError: A file cannot be opened.
        MissingExtra: The libraries for it are not installed.
    """
    where = str(paths[0]) if len(paths) == 1 else f"{len(paths)} files"
    spans = importer(OTLP).whole
    assert spans is not None
    for found in spans.read(paths):
        if isinstance(found, Problem):
            yield found
        else:
            yield replace(found, trace=replace(found.trace, source=OTLP), name=found.trace.id, where=where, format=OTLP)


def holds_spans(path: Path) -> bool:
    """Whether a file is one of spans, by how it begins.

    Raises:
        InputError: It cannot be opened.
    """
    spans = importer(OTLP).whole
    assert spans is not None
    with JsonSource(path) as source:
        try:
            head = FileHead(source)
        except InputError:
            return False
        return bool(head.start) and not (head.first and recognise(head.first.value)) and spans.knows(head)


def _unknown(what: str | None) -> str:
    if what is not None:
        return f"holds {what}, and no traces"
    known = ", ".join(registry.names("importers"))
    return f"holds nothing of a format that is known; there are {known}: name one with --format"


_NO_JSON = "holds no JSON; an importer gets JSON records, and other files as a whole: see docs/extend-importer.md"


def _guarded(format: Format, read: Callable[[Any], Iterable[Any]], value: Any) -> Iterator[Any]:
    """What a format reads; what goes wrong in it comes as the last of it."""
    try:
        for found in read(value):
            if format.name not in NAMES:
                _check(found)
            yield found
    except TraceError as error:
        yield error
    except JourneymanError as error:
        if format.name in NAMES:
            raise
        yield TraceError(str(error))
    except Exception as error:  # noqa: BLE001 - a record may hold anything where anything else is expected: it is data, and named
        yield TraceError(f"could not be read: {extension.ended(error)}")


def _check(found: Any) -> None:
    """What an importer of somebody else gives, before it is counted and stored.

    Raises:
        TraceError: It is no trace, or a field of it cannot be what it is.
    """
    if isinstance(found, TraceError | Problem):
        return
    if not isinstance(found, RecordedTrace) or not isinstance(found.trace, Trace):
        what = (
            f"a RecordedTrace of a {type(found.trace).__name__}"
            if isinstance(found, RecordedTrace)
            else f"a {type(found).__name__}"
        )
        raise TraceError(f"could not be read: the importer gave {what}, and no RecordedTrace of a Trace")
    check(found.trace)


def _digest(value: Any) -> bytes:
    """Of a JSON value, however it was written."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).digest()[:8]


def _content(trace: Trace) -> bytes:
    """Of a trace without an id."""
    return hashlib.sha256(repr(trace).encode("utf-8", "replace")).digest()[:8]


# Files and folders of them, as the files that are read together.


def walked(paths: Iterable[Path], choice: FileChoice = ALL_FILES) -> Iterator[tuple[Path, bool]]:
    """The files, and those of folders that are of the choice; whether a file was named itself.

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
            files = (Path(folder, each) for each in sorted(names) if not each.startswith("."))
            yield from ((each, False) for each in files if each.is_file() and choice.takes(each.relative_to(path).as_posix()))


def grouped(files: Sequence[tuple[Path, bool]], name: str | None) -> Iterator[tuple[list[Path], bool]]:
    """Each file alone, but those of spans together: a trace's spans may stand in several."""
    spans: list[Path] = []
    named = False
    for path, is_named in files:
        if len(files) > 1 and (name == OTLP or (name is None and holds_spans(path))):
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
