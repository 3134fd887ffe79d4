"""A team's own work, from its sources into the store: without secrets, with personal data masked, and each thing once.

What was read and how far it was read are kept in one transaction: whoever is killed reads what was not kept again, and nothing
else.
"""

import asyncio
import hashlib
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from journeyman.core import extension, registry
from journeyman.core.document import Document
from journeyman.core.errors import InputError, JourneymanError, Unkeepable
from journeyman.core.trace import Trace
from journeyman.experiments import settings
from journeyman.experiments.settings import CollectionSettings, Project
from journeyman.io.executors import Spread, jobs
from journeyman.io.executors.jobs import JobItem
from journeyman.stores.documents import DocumentQuery, DocumentStore, SourceBatch
from journeyman.stores.traces.base import Query
from journeyman.tracing import fields
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.jsonl import line, parse
from journeyman.tracing.importers.reading import importer, is_format, read_folder
from journeyman.tracing.importers.source import ALL_FILES, FileChoice, Problem
from journeyman.tracing.personal import Personal, project_key
from journeyman.tracing.redaction import Redactor, shapes_only
from journeyman.tracing.sources.base import Bookmark, Item, SourceFinding, State, WorkSource

_log = logging.getLogger(__name__)
_TRACES, _DOCUMENTS, _CHARACTERS = 50, 500, 8_000_000
"""So much is kept together: some are megabytes."""
_RESCAN = 30.0
"""Seconds after which everything is looked at again while it is watched, whatever the system has told."""
_POLL = 1.0


def source(name: str, path: Path | str | None = None, choice: FileChoice = ALL_FILES) -> WorkSource:
    """The source of that name, at a path or where its program keeps it.

    Raises:
        InputError: There is no such source, it needs a path, or has no files to choose from.
    """
    if registry.is_class(name) and hasattr(found := registry.load("sources", name), "collect_data"):
        return _SampleSource(name, found)
    made: Any = extension.make("sources", name, path=path)
    if choice != ALL_FILES:
        if not hasattr(made, "choice"):
            raise InputError(f"{name} has no files to choose from: --include and --exclude say nothing of it")
        made.choice = choice
    whole: WorkSource = (
        made
        if all(hasattr(made, part) for part in ("find", "people", "watched"))
        else _OwnSource(made, Path(path) if path else None)
    )
    return whole


class _OwnSource:
    """A source of one's own that can be read, and need not say more."""

    def __init__(self, made: Any, path: Path | None) -> None:
        self.kind: str = made.kind
        self._made, self._path = made, path

    def find(self) -> SourceFinding | None:
        found: SourceFinding | None = self._made.find() if hasattr(self._made, "find") else None
        return found

    def read(self, states: Mapping[str, State]) -> Iterator[Item]:
        with extension.named("sources", self.kind):
            yield from self._made.read(states)

    def people(self) -> Iterable[str]:
        return list(self._made.people()) if hasattr(self._made, "people") else ()

    def watched(self) -> Sequence[Path]:
        if hasattr(self._made, "watched"):
            return list(self._made.watched())
        return [self._path] if self._path else []


class _SampleSource(_OwnSource):
    """A collector as earlier systems have it: `async def collect_data(self, max_samples)` gives all samples each time."""

    def __init__(self, name: str, made: Callable[[], Any]) -> None:
        self.kind = name
        with extension.named("sources", name):
            super().__init__(SimpleNamespace(kind=name, collect_data=made().collect_data), None)

    def read(self, states: Mapping[str, State]) -> Iterator[Item]:
        with extension.named("sources", self.kind):
            samples = asyncio.run(self._made.collect_data(settings.load().settings.collect.max_samples_per_source))
        for sample in samples:
            told = sample if isinstance(sample, Mapping) else {"text": sample} if isinstance(sample, str) else vars(sample)
            text = fields.text(fields.first(told, "content", "text", "data", "input_data", "input"))
            key = fields.text(fields.first(told, "sample_id", "id")) or hashlib.sha256(text.encode()).hexdigest()[:16]
            yield Document(
                source=self.kind,
                key=key,
                kind=fields.string(fields.first(told, "data_type", "kind", "type")) or "sample",
                text=text,
                at=fields.time(told.get("timestamp")),
                raw=fields.mapping(told.get("metadata")),
            )


@dataclass(kw_only=True)
class SourceReport:
    """What came of reading a source."""

    kind: str
    traces: int = 0
    documents: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    stored: int = 0
    """How many were new to the store, or not as they had been."""
    copies: int = 0
    """Traces that another file had told, too."""
    poor: int = 0
    """Documents whose quality was too low."""
    dropped: int = 0
    """What was left out for the personal data in it."""
    absent: int = 0
    """Reading again: what is in the source and not in the store, as it was forgotten, or not known when it was read."""
    gone: list[str] = field(default_factory=list)
    """Reading again: why a source could not be read."""
    more: bool = False
    """Whether there was more than one reading may take."""
    redacted: dict[str, int] = field(default_factory=dict)
    """How often something of each kind was taken out or masked."""
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def json(self) -> dict[str, Any]:
        return {**vars(self), "seconds": round(self.seconds, 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """Which part of a source is taken."""

    most: int | None = None
    """Traces and documents."""
    since: datetime | None = None
    """What began, or was written, before is left out."""


class SourceReader:
    """Reads sources into a store, or, without one, counts what is in them."""

    def __init__(self, project: Project, store: DocumentStore | None) -> None:
        self._store, self._record = store, project.settings.record
        self._settings: CollectionSettings = project.settings.collect
        keep = self._settings.personal == "keep"
        # Who only looks leaves nothing behind, and compares no names.
        key = b"" if store is None or keep else project_key(project.folder)
        self._personal = None if keep else Personal(key)
        self._redactor = Redactor(self._record.redact, self._personal)
        self._told: dict[str, tuple[int, str]] = {}

    def read(self, source: WorkSource, limits: ReadLimits = ReadLimits()) -> SourceReport:
        """Everything that is new in a source.

        Raises:
            InputError: It cannot be read at all.
            StoreError: The store cannot keep it.
        """
        report = SourceReport(kind=source.kind)
        began, before = time.monotonic(), self._counted()
        if self._personal is not None:
            self._personal.know(source.people())
        _Stream(self, source.kind, report, limits).take(source.read(self._states(source.kind)))
        report.seconds = time.monotonic() - began
        report.redacted = dict(self._counted() - before)
        return report

    def reprocess(self, kind: str, sources: Iterable[WorkSource] = ()) -> SourceReport:
        """Take what is kept of a source through what is taken out and masked today, and through today's readers.

        Args:
            sources: Of this kind. Where they are still there they are read from their beginning; what is stored of them is
                renewed, and nothing else comes in: what is not stored may have been forgotten. How far they were read stays.
        """
        report = SourceReport(kind=kind)
        began, before = time.monotonic(), self._counted()
        store = self._store
        if store is None:
            raise InputError("what is stored is read again: there is no store")
        there = list(sources)
        if self._personal is not None:
            for source in there:
                self._personal.know(source.people())
        self._clean_stored(store, kind, report)
        for source in there:
            try:
                _Stream(self, kind, report, ReadLimits(), renew=store).take(source.read({}))
            except InputError as error:
                report.gone.append(str(error))
        report.seconds = time.monotonic() - began
        report.redacted = dict(self._counted() - before)
        return report

    def _clean_stored(self, store: DocumentStore, kind: str, report: SourceReport) -> None:
        changed: list[Trace] = []
        for trace in store.traces(Query(source=kind)) if is_format(kind) else ():
            report.traces += 1
            # What was said of it here stays as it is, and no recorder said anything.
            if (clean := self.clean(trace)) != trace:
                changed.append(replace(clean, label=None, labelled_by=None, rewards=()))
        for begin in range(0, len(changed), _TRACES):
            report.stored += store.add(changed[begin : begin + _TRACES])
        for document in list(store.documents(DocumentQuery(source=kind))):
            report.documents += 1
            if (clean_one := self.clean_document(document)) != document:
                report.stored += store.rewrite({document.id: clean_one})

    def _states(self, kind: str) -> Mapping[str, State]:
        return {} if self._store is None else self._store.states(kind)

    def _counted(self) -> Counter[str]:
        return self._redactor.found + (self._personal.found if self._personal else Counter())

    # What the stream asks.

    @property
    def dry(self) -> bool:
        return self._store is None

    @property
    def settings(self) -> CollectionSettings:
        return self._settings

    def clean(self, trace: Trace) -> Trace:
        trace = self._redactor.trace(trace)
        return trace if self._record.content else shapes_only(trace)

    def clean_document(self, document: Document) -> Document:
        author = document.author
        if author and self._personal is not None:
            author = self._personal.person(self._redactor.text(author) if "<" not in author else author)
        text, title = self._redactor.text(document.text), self._redactor.text(document.title)
        if not self._record.content:
            text = title = ""
        return replace(document, text=text, title=title, author=author, raw=self._redactor.mapping(document.raw))

    def clean_state(self, state: State) -> State:
        return self._redactor.mapping(state)

    def personal_count(self) -> int:
        return 0 if self._personal is None else sum(self._personal.found.values())

    def is_copy(self, one: RecordedTrace) -> bool:
        """Whether another file has told as much of it."""
        if not importer(one.format).repeats:
            return False
        steps = len(one.trace.steps)
        if one.trace.id not in self._told and self._was_told_elsewhere(one.trace):
            return True
        before, where = self._told.get(one.trace.id, (-1, ""))
        if where != one.where and steps <= before:
            return True
        self._told[one.trace.id] = (steps, one.where)
        return False

    def _was_told_elsewhere(self, trace: Trace) -> bool:
        """Whether the store has it already from another session, with as much in it."""
        line = None if self._store is None else self._store.line(trace.id)
        if line is None or line.session == (trace.session and self._redactor.text(trace.session)):
            return False
        return line.model_calls + line.tool_calls >= len(trace.calls) + len(trace.tool_calls)

    def keep(self, batch: SourceBatch, problems: list[str]) -> int:
        """Keep a batch; of traces that no store takes, the others."""
        if self._store is None:
            return 0
        try:
            return sum(self._store.keep(batch))
        except Unkeepable as error:
            if len(batch.traces) + len(batch.documents) <= 1:
                ids = [*(each.id for each in batch.traces), *(each.id for each in batch.documents)]
                problems += [f"{id} is left out: {error}" for id in ids]
                return sum(self._store.keep(replace(batch, traces=(), documents=())))
            alone = [SourceBatch(source=batch.source, traces=[each]) for each in batch.traces]
            alone += [SourceBatch(source=batch.source, documents=[each]) for each in batch.documents]
            stored = sum(self.keep(each, problems) for each in alone)
            return stored + sum(self._store.keep(replace(batch, traces=(), documents=())))


class _Stream:
    """What comes from a source, while it comes."""

    def __init__(
        self,
        reader: SourceReader,
        kind: str,
        report: SourceReport,
        limits: ReadLimits,
        *,
        renew: DocumentStore | None = None,
    ) -> None:
        """
        Args:
            renew: The store, where only what is in it is kept anew, and no bookmark.
        """
        self._reader, self._kind, self._report, self._limits = reader, kind, report, limits
        self._renew = renew
        self._traces: list[Trace] = []
        self._documents: list[Document] = []
        self._states: dict[str, State | None] = {}
        self._size = 0
        self._skipped = False
        """Whether something was left out since the last bookmark that another reading might take."""

    def take(self, items: Iterable[Item]) -> None:
        limits, report = self._limits, self._report
        for item in items:
            if isinstance(item, Problem):
                report.problems.append(str(item))
            elif isinstance(item, Bookmark):
                self._mark(item)
            elif limits.most is not None and report.traces + report.documents >= limits.most:
                report.more = True
                break
            elif isinstance(item, Document):
                self._document(item)
            else:
                self._trace(item)
            if len(self._traces) >= _TRACES or len(self._documents) >= _DOCUMENTS or self._size > _CHARACTERS:
                self._flush()
        self._flush()

    def _mark(self, bookmark: Bookmark) -> None:
        if not self._skipped and self._renew is None:
            state = bookmark.state
            self._states[bookmark.key] = None if state is None else self._reader.clean_state(state)
        self._skipped = False
        if len(self._states) >= _DOCUMENTS:
            self._flush()

    def _left_out(self, at: datetime | None) -> bool:
        """Whether it is from before what is asked for."""
        since = self._limits.since
        old = since is not None and at is not None and at < since
        self._skipped |= old
        return old

    def _trace(self, one: RecordedTrace) -> None:
        report, reader = self._report, self._reader
        if self._left_out(one.trace.started_at):
            return
        if reader.is_copy(one):
            report.copies += 1
            return
        before = reader.personal_count()
        trace = reader.clean(one.trace)
        if reader.settings.personal == "drop" and reader.personal_count() > before:
            report.dropped += 1
            return
        if self._renew is None:
            report.traces += 1
            report.model_calls += len(trace.calls)
            report.tool_calls += len(trace.tool_calls)
        elif self._renew.line(trace.id) is None:
            report.absent += 1
            return
        self._traces.append(trace)
        self._size += sum(len(call.prompt) + len(call.reply) for call in trace.calls)
        self._size += sum(len(call.result) for call in trace.tool_calls)

    def _document(self, document: Document) -> None:
        report, reader = self._report, self._reader
        if self._left_out(document.at):
            return
        if document.quality < reader.settings.quality_threshold:
            report.poor += 1
            return
        before = reader.personal_count()
        clean = reader.clean_document(document)
        if reader.settings.personal == "drop" and reader.personal_count() > before:
            report.dropped += 1
            return
        if self._renew is None:
            report.documents += 1
        elif not self._renew.revisions(clean):
            report.absent += 1
            return
        self._documents.append(clean)
        self._size += len(clean.text)

    def _flush(self) -> None:
        if self._traces or self._documents or self._states:
            batch = SourceBatch(source=self._kind, traces=self._traces, documents=self._documents, states=self._states)
            self._report.stored += self._reader.keep(batch, self._report.problems)
        self._traces, self._documents, self._states, self._size = [], [], {}, 0


# Reading on.


def watch(
    sources: Sequence[WorkSource], read: Callable[[WorkSource], object], stop: threading.Event, *, polling: bool = False
) -> None:
    """Read sources whenever something changes in them, until told to stop.

    What the system says that changed is a reason to look, and nothing more: everything is looked at again after `_RESCAN`
    seconds, and where there is nobody who says so, each second.

    Args:
        read: Called with a source that may have changed; what it raises on purpose is logged, and tried again the next time.
        polling: Ask nobody, and look each second.
    """
    for each in sources:
        _tried(each, read)
    looked = time.monotonic()
    for paths in _changes(sources, stop, polling=polling):
        late = time.monotonic() - looked >= _RESCAN
        for each in sources:
            if late or polling or paths is None or any(_within(path, each.watched()) for path in paths):
                _tried(each, read)
        if late:
            looked = time.monotonic()


def _tried(source: WorkSource, read: Callable[[WorkSource], object]) -> None:
    try:
        read(source)
    except JourneymanError as error:
        _log.warning("%s: %s", source.kind, error)


def _within(path: str, folders: Sequence[Path]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


def _changes(sources: Sequence[WorkSource], stop: threading.Event, *, polling: bool) -> Iterator[set[str] | None]:
    """Where something changed; `None` where nobody says."""
    try:
        if polling:
            raise ImportError
        import watchfiles
    except ImportError:
        while not stop.wait(_POLL):
            yield None
        return
    while not stop.is_set():
        paths = sorted({path for each in sources for path in each.watched() if path.exists()})
        if not paths:
            stop.wait(_POLL)
            yield None
            continue
        again = time.monotonic() + _RESCAN
        for changes in watchfiles.watch(
            *paths, stop_event=stop, debounce=300, step=50, rust_timeout=1000, yield_on_timeout=True, raise_interrupt=False
        ):
            if changes or time.monotonic() > again:
                yield {path for _, path in changes}
            if time.monotonic() > again:
                # Places that were not there may be there now.
                break


# Files of others, read by workers.

_LARGE = 64 * 1024 * 1024
"""Bytes of files that are read here, a trace at a time: what a worker has read comes back as a whole."""


class _ReadItem(JobItem):
    paths: list[str]
    format: str | None


def read_with(
    spread: Spread, groups: Sequence[list[Path]], format: str | None, done: Callable[[int], None] = lambda _: None
) -> Iterator[Iterable[RecordedTrace | Problem]]:
    """What stands in each file, or files of spans together, as `read_folder` has it; workers find the files at the same place.

    Args:
        done: Called with how many more bytes were read.

    Raises:
        InputError: The format is a class of one's own, or a file cannot be read.
    """
    if format is not None:
        jobs.known("importers", format)
    sizes = [sum(path.stat().st_size for path in paths) for paths in groups]
    small = (paths for paths, size in zip(groups, sizes, strict=True) if size <= _LARGE)
    items = (_ReadItem(paths=list(map(str, paths)), format=format).json_item() for paths in small)
    results = spread.map(read_item, items, failed=lambda item, why: [["problem", [item["paths"][0], why, False]]])
    for paths, size in zip(groups, sizes, strict=True):
        if size > _LARGE:
            yield read_folder(paths, format, done)
        else:
            yield [_of_row(*row) for row in next(results)]
            done(size)


def read_item(item: dict[str, Any]) -> list[list[Any]]:
    """What `read_with` sends to workers: reads a file, or files of spans together; traces and problems as rows."""
    asked = _ReadItem.read(item)
    if asked.format is not None:
        jobs.known("importers", asked.format)
    found = read_folder([Path(path) for path in asked.paths], asked.format)
    return [["problem", [one.where, one.why, one.strange]] if isinstance(one, Problem) else _row(one) for one in found]


def _row(one: RecordedTrace) -> list[Any]:
    return ["trace", [json.loads(line(one.trace)), one.reward, one.goal, one.name, one.where, one.format]]


def _of_row(kind: str, row: list[Any]) -> RecordedTrace | Problem:
    if kind == "problem":
        return Problem(*row)
    told, reward, goal, name, where, format = row
    trace = parse(told, name=where).trace
    steps = tuple((tool, arguments) for tool, arguments in goal)
    return RecordedTrace(trace=trace, reward=reward, goal=steps, name=name, where=where, format=format)
