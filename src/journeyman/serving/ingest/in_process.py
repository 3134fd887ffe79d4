"""Recording an agent of one's own into the project's store.

    collector = TraceCollector()
    hook_into_agent(agent, collector)

The agent never waits for the store: a thread of its own writes, secrets are taken out before, and what the store does not take
at once waits in memory and then in a file. What is in memory is written when the program ends.
"""

import asyncio
import atexit
import inspect
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar, overload

from journeyman.core.errors import InputError, StoreError
from journeyman.core.feedback import Feedback, TargetKind
from journeyman.core.playbook import Playbook
from journeyman.core.reward import Source
from journeyman.core.rollout import Slot, SlotKind
from journeyman.core.task import Task
from journeyman.core.trace import Trace
from journeyman.experiments import settings
from journeyman.serving.ingest.base import Intake
from journeyman.serving.ingest.factory import open_intake
from journeyman.serving.ingest.hooks import Kind, hook_into_agent, traced_by
from journeyman.serving.releases.artifacts import CandidateLoader
from journeyman.serving.releases.context import FixedPlaybook, SessionArm
from journeyman.serving.releases.live import LiveContext
from journeyman.stores.traces import open_traces
from journeyman.stores.urls import MEMORY, as_url, is_url
from journeyman.tracing.collector import KEPT, Collector, Sink

_Function = TypeVar("_Function", bound=Callable[..., Any])

_ALL = 1_000_000
_PATIENCE = 10.0
"""Seconds that the end of a program, or a label, waits for what is to be written."""


class TraceCollector(Collector):
    """Collects the traces of agents in this process, and keeps them."""

    def __init__(
        self, store: str | Path | Sink | None = None, *, agent: str | None = None, session: str | None = None, kept: int = KEPT
    ) -> None:
        """
        Args:
            store: The URL or path of a store; without one the project's: what `journeyman.toml` says, or `.journeyman/` in the
                working folder. "memory:" keeps traces in memory alone. An object with `add` and `label` is called itself, in
                the thread in which a trace ends.
            agent: Who makes the attempts, where a trace does not say.
            session: What the traces have in common.
            kept: Traces that are held in memory for `traces`.

        Raises:
            InputError: The project's settings cannot be read.
        """
        self._store = _sink(store)
        super().__init__(self._store, agent=agent, session=session, kept=kept)

    def get_unlabeled_traces(self, limit: int | None = None) -> list[Trace]:
        """Those that no person has judged, newest first: of all that is in the store, whoever recorded it.

        Raises:
            StoreError: The store cannot be read.
        """
        if isinstance(self._store, _Background):
            return self._store.unlabelled(limit)
        return super().get_unlabeled_traces(limit)

    def label_trace(self, trace_id: str, good: bool | None, *, who: str | None = None) -> None:
        """Say whether a trace was good, of all that is in the store; `None` takes it back.

        Args:
            who: Whose word it is; $JOURNEYMAN_USER, else who is logged in, where nobody is named.

        Raises:
            KeyError: The collector has no store, and no such trace.
            StoreError: The store has no such trace, or could not keep the label.
        """
        super().label_trace(trace_id, good, who=who or settings.person() or "user")

    def close(self) -> None:
        """Write what there is, and stop. Traces that end later are in memory alone."""
        if isinstance(self._store, _Background):
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _sink(store: str | Path | Sink | None) -> Sink | None:
    if store is not None and not isinstance(store, str | Path):
        return store
    if store is not None and str(store) == MEMORY:
        return None
    project = settings.load()
    if store is None:
        return _Background(project.store_url, project)
    return _Background(_url(store), project)


def _url(store: str | Path) -> str:
    # The program may change its folder before the first trace.
    return str(store) if is_url(str(store)) else as_url(Path(store).absolute())


class _Background:
    """A store that is written to by a thread of its own, begun with the first trace."""

    def __init__(self, url: str, project: settings.Project) -> None:
        self._url = url
        self._project = project
        self._intake: Intake | None = None
        self._closed = False
        self._lock = threading.Lock()

    def add(self, traces: Iterable[Trace]) -> None:
        intake = self._opened()
        for trace in traces:
            intake.add(trace)

    def label(self, trace_id: str, good: bool | None, *, who: str, at: datetime) -> None:
        if not self.flush(_PATIENCE):
            raise StoreError("the store has not taken the traces yet; label again when it is back")
        with open_traces(self._url) as store:
            store.label(trace_id, good, who=who, at=at)

    def unlabelled(self, limit: int | None) -> list[Trace]:
        self.flush(_PATIENCE)
        with open_traces(self._url) as store:
            lines = store.unlabelled(_ALL if limit is None else limit)
            return [trace for line in lines if (trace := store.get(line.id)) is not None]

    def flush(self, timeout: float) -> bool:
        return self._intake is None or self._intake.flush(timeout)

    def close(self) -> None:
        with self._lock:
            intake, self._intake, self._closed = self._intake, None, True
        if intake is not None:
            intake.close(_PATIENCE)

    def _opened(self) -> Intake:
        # A collector that never gets a trace makes no store.
        with self._lock:
            if self._closed:
                raise StoreError("the collector was closed")
            if self._intake is None:
                self._project.folder.mkdir(parents=True, exist_ok=True)
                self._intake = open_intake(self._url, self._project.folder / "spill", self._project.settings.record)
                _OPEN.add(self)
        return self._intake


_OPEN: "weakref.WeakSet[_Background]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for each in list(_OPEN):
        each.close()


# What names no collector goes to the process's own.

_usual: TraceCollector | None = None
_making = threading.Lock()


def usual() -> TraceCollector:
    """The collector of what names none: one for the process, in the project's store."""
    global _usual
    with _making:
        if _usual is None:
            _usual = TraceCollector()
        return _usual


@overload
def traced(function: _Function, /) -> _Function: ...


@overload
def traced(
    *, collector: Collector | None = None, name: str | None = None, kind: Kind = "agent"
) -> Callable[[_Function], _Function]: ...


def traced(
    function: Any = None, /, *, collector: Collector | None = None, name: str | None = None, kind: Kind = "agent"
) -> Any:
    """Record each call of a function or method. Inside an open trace it is a step of it, else a trace of its own.

    Args:
        collector: Gets the trace of an outermost call; without one, the process's collector in the project's store.
        name: The agent's or the tool's; the function's where none is given.
        kind: What it is inside another trace: the work of an "agent", or a "tool".
    """
    wrap = traced_by(collector=collector or usual, name=name, kind=kind)
    return wrap if function is None else wrap(function)


_Agent = TypeVar("_Agent")


def watch(agent: _Agent, *, store: str | Path | None = None, name: str | None = None) -> _Agent:
    """Record what an agent does from now on, and give it back: an object as `hook_into_agent` does it, a function as `traced`.

    Args:
        store: The URL or path of a store; without one the project's.
        name: The agent's; else what stands in its attribute `name`, its class or the function's name.

    Raises:
        InputError: It has no method that runs it; `hook_into_agent(agent, TraceCollector(), method)` names one.
    """
    collector = usual() if store is None else TraceCollector(store)
    if inspect.isroutine(agent):
        return traced(collector=collector, name=name)(agent)
    hook_into_agent(agent, collector, name=name)
    return agent


# What is released in that store, for an agent in this process.


class StoreReleases:
    """Says what each session of an agent is served, and keeps the runs by which it counts in a test. For one event loop."""

    def __init__(self, store: str | Path, *, agent: str, domain: str) -> None:
        """
        Args:
            store: A URL or a path; empty for the project's.
            domain: Of what is in production.

        Raises:
            InputError: The project's settings cannot be read, nothing can be kept in the store, or no slot is of such a name.
            StoreError: The store cannot be read, and was not before.
        """
        project = settings.load()
        if str(store) == MEMORY:
            raise InputError(f"the store is {MEMORY}, and what is released must be kept; name a file or postgresql://…")
        Slot(SlotKind.CONTEXT, agent, domain)
        self._url = _url(store) if str(store) else project.store_url
        self._labels = {"agent": agent, "domain": domain}
        loader = CandidateLoader(project)
        self._live = LiveContext(self._url, project.folder / "releases", loader.load, kinds=(SlotKind.CONTEXT,))
        if not self._live.is_known:
            self._live.close()
            raise StoreError(f"what is released cannot be read: {self._live.state()['fault']}")
        self.collector = TraceCollector(self._url, agent=agent)
        """Keeps traces in the store, and nobody waits for it."""

    async def serves(self, task: Task, session: str | None) -> tuple[FixedPlaybook | None, SessionArm | None]:
        """What a task of a session is served, and on which arm the session is. A task without one is known by its words."""
        labels = {**self._labels, "domain": task.domain, **({"session": session} if session else {})}
        goal = _Goal(task.question.encode(errors="surrogatepass"))
        found, where = await self._live.serves(SlotKind.CONTEXT, labels, goal)
        return (found if isinstance(found, FixedPlaybook) else None), where

    def production(self) -> Playbook | None:
        """What is in production for the agent in its domain; `None` is nothing."""
        found = self._live.production(SlotKind.CONTEXT, self._labels)
        return found.playbook if isinstance(found, FixedPlaybook) else None

    def ended(self, where: SessionArm, *, failed: bool) -> None:
        """A task of a session on an arm is over."""
        self._live.ended(where, failed=failed)

    async def turned_out(self, trace_id: str, value: float) -> None:
        """Keep what a trace was worth in truth, whether or not the trace is in the store yet.

        Raises:
            StoreError: It is not kept.
        """
        word = Feedback(
            id=f"{trace_id}/feedback",
            target_kind=TargetKind.TRACE,
            target=trace_id,
            value=value,
            source=Source.TRUTH,
            at=datetime.now(UTC),
        )
        await asyncio.to_thread(self._say, word)

    def _say(self, word: Feedback) -> None:
        from journeyman.stores.rollouts import open_rollouts

        with open_rollouts(self._url) as store:
            store.add_feedback([word], now=word.at)

    def state(self) -> Mapping[str, Any]:
        """What is served, as the gateway's `/health` says it."""
        return self._live.state()

    def close(self) -> None:
        self.collector.close()
        self._live.close()


class _Goal(NamedTuple):
    """A task as a conversation, of which it is known how it begins."""

    beginning: bytes
