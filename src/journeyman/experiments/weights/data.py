"""Sets of rows from what was recorded: from a store of traces, from files of traces, or from the attempts of a run.

pipeline = DatasetPipeline("my_agent")
examples = pipeline.build_kto_dataset("kto_data.jsonl")
print(len(examples), examples.sheet.good)
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from journeyman.core.errors import InputError
from journeyman.core.trace import OWN, Trace
from journeyman.experiments import settings as project
from journeyman.optimizers.weights.data import DatasetCard, DatasetConfig, JudgedTrace, build, read
from journeyman.optimizers.weights.data.config import Method
from journeyman.optimizers.weights.rows import Row
from journeyman.stores import engine
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import Query, TraceStore
from journeyman.stores.urls import MEMORY, as_url, redacted
from journeyman.tracing.importers import Problem, reading
from journeyman.tracing.redaction import Redactor

_MOST = 1_000_000
"""Nobody waits for a longer count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFile:
    """A set that was built."""

    path: Path
    sheet: DatasetCard

    def __len__(self) -> int:
        return self.sheet.rows

    def __iter__(self) -> Iterator[Row]:
        return read(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSource:
    """Where traces come from."""

    files: tuple[Path, ...] = ()
    """Of any format that is collected; without one, the store."""
    store: str | None = None
    """A URL or a file; the project's without one."""
    query: Query = field(default_factory=Query)
    """Which traces of a store."""
    agent: str | None = None
    """Of files, whose traces."""
    run: str | None = None
    """The attempts of one run alone."""

    @property
    def url(self) -> str:
        return project.load().store_url if self.store is None else as_url(self.store)

    def count(self) -> int | None:
        """How many traces there are to go through; `None` for files, of which that is not known before."""
        if self.files:
            return None
        with _opened(self.url) as store:
            return store.count(self._query, most=_MOST)

    def judged(self, unread: list[str]) -> Iterator[JudgedTrace]:
        """The traces with the verdicts on them, one after the other. What of a file cannot be read is told in `unread`.

        Raises:
            InputError: There is no such file or store.
        """
        yield from self._of_files(unread) if self.files else self._of_store()

    @property
    def _query(self) -> Query:
        return self.query if self.run is None else replace(self.query, source=OWN)

    def _of_files(self, unread: list[str]) -> Iterator[JudgedTrace]:
        # What is collected into a store went through this on its way.
        redactor = Redactor(project.load().settings.record.redact)
        for paths, is_named in reading.grouped(list(reading.walked(self.files)), None):
            for found in reading.read_folder(paths, None):
                if isinstance(found, Problem):
                    # A folder may hold what is no trace at all.
                    unread += [str(found)] if is_named or not found.strange else []
                elif self._wanted(found.trace) and self.agent in (None, found.trace.agent):
                    yield JudgedTrace.of(redactor.trace(found.trace))

    def _of_store(self) -> Iterator[JudgedTrace]:
        with _opened(self.url) as store:
            for trace in store.traces(self._query):
                if self._wanted(trace):
                    yield JudgedTrace.of(trace)

    def _wanted(self, trace: Trace) -> bool:
        return self.run is None or trace.raw.get("run_id") == self.run


class DatasetPipeline:
    """Builds sets of rows from what an agent did, as it was recorded."""

    def __init__(
        self,
        agent_name: str | None = None,
        *,
        source: TraceSource | None = None,
        config: DatasetConfig | None = None,
    ) -> None:
        """
        Args:
            agent_name: Whose traces; all without one.
            source: Where they come from; the project's store without one.
            config: Everything but the method; without one, the rows are plain text, `"User: <query>"` and the last answer.
        """
        given = source or TraceSource()
        self.source = (
            given if agent_name is None else replace(given, agent=agent_name, query=replace(given.query, agent=agent_name))
        )
        self.config = config or DatasetConfig(form="plain")

    def build_kto_dataset(self, path: Path | str, *, done: Callable[[int], None] = lambda _: None) -> RowFile:
        """Rows `{prompt, completion, label}`, a datasheet beside them."""
        return self._build("kto", Path(path), done)

    def build_grpo_dataset(self, path: Path | str, *, done: Callable[[int], None] = lambda _: None) -> RowFile:
        """Rows `{prompt, completions, rewards}`, rewards normalised among the attempts at one task, a datasheet beside them."""
        return self._build("grpo", Path(path), done)

    def _build(self, method: Method, path: Path, done: Callable[[int], None]) -> RowFile:
        return RowFile(path=path, sheet=from_source(self.source, path, replace(self.config, method=method), done=done))


def from_source(
    source: TraceSource, path: Path | None, config: DatasetConfig, *, done: Callable[[int], None] = lambda _: None
) -> DatasetCard:
    """Build a set; without a path nothing is written, and the sheet says what would be.

    Raises:
        InputError: There is nothing to learn from, or something cannot be read or written.
    """
    if source.count() == 0:
        of = f" of {source.query.agent!r}" if source.query.agent else ""
        raise InputError(f"there are no traces{of} to learn from; `journeyman traces list` shows what there is")
    unread: list[str] = []
    return build(source.judged(unread), path, config, done=done, unread=unread)


def _opened(url: str) -> TraceStore:
    if url == MEMORY or engine.step_of(url) is None:
        raise InputError(f"there is no store of traces at {redacted(url)}; name files of traces, or another one with --store")
    return open_traces(url)
