"""Recording an agent of one's own into the project's store.

    collector = TraceCollector()
    hook_into_agent(agent, collector)

The agent never waits for the store: a thread of its own writes, secrets are taken out before, and what the store does not take
at once waits in memory and then in a file. What is in memory is written when the program ends. A function or method is recorded
from its beginning to its end, whatever kind of function it is.
"""

import atexit
import inspect
import logging
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Hashable, Iterable, Mapping
from datetime import datetime
from functools import partial, update_wrapper
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar, overload

from journeyman.core.errors import InputError, StoreError
from journeyman.core.trace import Trace
from journeyman.experiments import settings
from journeyman.serving.ingest.base import Intake
from journeyman.serving.ingest.factory import open_intake
from journeyman.stores.traces import open_traces
from journeyman.stores.urls import MEMORY, as_url, is_url
from journeyman.tracing.collector import CURRENT, KEPT, LONGEST_TEXT, Collector, Recording, Sink, as_text

_Function = TypeVar("_Function", bound=Callable[..., Any])

log = logging.getLogger(__name__)

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
    # The program may change its folder before the first trace.
    return _Background(str(store) if is_url(str(store)) else as_url(Path(store).absolute()), project)


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


# Running somebody's function, and recording it.


class RecordedWork(Protocol):
    """Something that is being recorded."""

    def begin(self) -> None: ...

    def pause(self) -> None: ...

    def end(self, output: Any = None, error: BaseException | None = None) -> None: ...


Start = Callable[[tuple[Any, ...], Mapping[str, Any]], RecordedWork | None]
"""Begins to record a call with these arguments; `None` where it is not to be recorded."""


class _Nothing:
    """Is not recorded."""

    def begin(self) -> None:
        pass

    def pause(self) -> None:
        pass

    def end(self, output: Any = None, error: BaseException | None = None) -> None:
        pass


_NOTHING = _Nothing()


def _started(start: Start, args: tuple[Any, ...], given: Mapping[str, Any]) -> RecordedWork:
    """The boundary to the program that is recorded: what fails in recording is not its business."""
    try:
        return start(args, given) or _NOTHING
    except Exception as error:  # noqa: BLE001 - the agent runs, whether or not it can be recorded
        log.warning("a call could not be recorded: %s", type(error).__name__)
        return _NOTHING


def wrapped(function: Any, start: Start) -> Any:
    """A function of the same kind that is recorded.

    Of a stream the pieces are its output. One that its reader does not read to the end has ended well. What a generator does
    belongs to its own work, and what its reader does between two pieces does not.
    """
    kind = _plain
    if inspect.iscoroutinefunction(function):
        kind = _coroutine
    elif inspect.isasyncgenfunction(function):
        kind = _async_generator
    elif inspect.isgeneratorfunction(function):
        kind = _generator
    return update_wrapper(kind(function, start), function)


def _plain(function: Any, start: Start) -> Any:
    def run(*args: Any, **given: Any) -> Any:
        work = _started(start, args, given)
        work.begin()
        try:
            result = function(*args, **given)
        except BaseException as error:
            work.pause()
            work.end(error=error)
            raise
        work.pause()
        # A function may give what it takes to get the answer, such as a method that only hands on to an asynchronous one.
        if inspect.iscoroutine(result):
            return _await(result, work)
        if inspect.isgenerator(result):
            return _drive(result, work)
        if inspect.isasyncgen(result):
            return _asynchronous(lambda: (result, work))()
        work.end(result)
        return result

    return run


def _coroutine(function: Any, start: Start) -> Any:
    async def run(*args: Any, **given: Any) -> Any:
        return await _await(function(*args, **given), _started(start, args, given))

    return run


def _generator(function: Any, start: Start) -> Any:
    def run(*args: Any, **given: Any) -> Generator[Any, Any, Any]:
        return (yield from _drive(function(*args, **given), _started(start, args, given)))

    return run


def _async_generator(function: Any, start: Start) -> Any:
    return _asynchronous(lambda *args, **given: (function(*args, **given), _started(start, args, given)))


async def _await(answer: Awaitable[Any], work: RecordedWork) -> Any:
    work.begin()
    try:
        result = await answer
    except BaseException as error:
        work.pause()
        work.end(error=error)
        raise
    work.pause()
    work.end(result)
    return result


def _drive(inner: Generator[Any, Any, Any], work: RecordedWork) -> Generator[Any, Any, Any]:
    pieces = _Pieces()
    go_on: Callable[[], Any] = partial(next, inner)
    while True:
        work.begin()
        try:
            piece = go_on()
        except StopIteration as end:
            work.pause()
            work.end(pieces.text or end.value)
            return end.value
        except BaseException as error:
            work.pause()
            work.end(pieces.text, error)
            raise
        work.pause()
        pieces.add(piece)
        try:
            go_on = partial(inner.send, (yield piece))
        except GeneratorExit:
            inner.close()
            work.end(pieces.text)
            raise
        except BaseException as error:  # noqa: BLE001 - it is thrown into the generator that it is meant for
            go_on = partial(inner.throw, error)


def _asynchronous(
    begun: Callable[..., tuple[AsyncGenerator[Any, Any], RecordedWork]],
) -> Callable[..., AsyncGenerator[Any, Any]]:
    """An asynchronous generator that does what another one does, and records it. `begun` makes that one, and the work."""

    async def run(*args: Any, **given: Any) -> AsyncGenerator[Any, Any]:
        inner, work = begun(*args, **given)
        pieces = _Pieces()
        go_on: Callable[[], Awaitable[Any]] = partial(inner.asend, None)
        while True:
            work.begin()
            try:
                piece = await go_on()
            except StopAsyncIteration:
                work.pause()
                work.end(pieces.text)
                return
            except BaseException as error:
                work.pause()
                work.end(pieces.text, error)
                raise
            work.pause()
            pieces.add(piece)
            try:
                go_on = partial(inner.asend, (yield piece))
            except GeneratorExit:
                await inner.aclose()
                work.end(pieces.text)
                raise
            except BaseException as error:  # noqa: BLE001 - it is thrown into the generator that it is meant for
                go_on = partial(inner.athrow, error)

    return run


class _Pieces:
    """What a stream gave, as one text: what is no text stands in a line of its own."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._length = 0

    def add(self, piece: Any) -> None:
        if self._length < LONGEST_TEXT:
            text = piece if isinstance(piece, str) else as_text(piece) + "\n"
            self._found.append(text)
            self._length += len(text)

    @property
    def text(self) -> str | None:
        return as_text("".join(self._found)) if self._found else None


METHODS = (
    "run", "arun", "a_run", "run_async", "run_sync", "run_stream", "invoke", "ainvoke", "stream", "astream",
    "execute", "aexecute", "forward", "aforward", "chat", "achat", "kickoff", "kickoff_async", "solve", "act",
)  # fmt: skip
"""Names under which agents are run, in the order in which they are looked for; `__call__` where there is none of them."""

Kind = Literal["agent", "tool"]
_MARK = "_journeyman_collector"


def hook_into_agent(
    agent: Any, collector: Collector, method: str | None = None, *, name: str | None = None
) -> Callable[[], None]:
    """Record what an agent does from now on; the function that is returned ends it.

    Args:
        agent: Any object with a method that runs it. Hooked again with the same collector, it is recorded once.
        method: The method's name. Without it all of `METHODS` that the agent has are recorded, or else its `__call__`; one that
            calls another is recorded once.
        name: The agent's; else what stands in its attribute `name`, or its class.

    Raises:
        InputError: It has no such method, or is a class or a function.
    """
    if isinstance(agent, type) or inspect.isroutine(agent):
        raise InputError(f"{agent!r} is no agent object; decorate a function with @traced, and hook an object, not its class")
    found = _methods(agent, method)
    called = name or _name(agent)
    new = [each for each in found if getattr(getattr(agent, each), _MARK, None) is not collector]
    undo = [_replaced(agent, each, _recorded(agent, each, collector, called)) for each in new]

    def unhook() -> None:
        while undo:
            undo.pop()()

    return unhook


def _methods(agent: Any, method: str | None) -> list[str]:
    if method and callable(getattr(agent, method, None)):
        return [method]
    wanted = [method] if method else [each for each in METHODS if callable(_static_attribute(agent, each))] or ["__call__"]
    missing = [each for each in wanted if not callable(_static_attribute(agent, each))]
    if missing:
        tried = f"no method {method!r}" if method else f"none of the methods {', '.join((*METHODS, '__call__'))}"
        raise InputError(
            f"{type(agent).__name__} has {tried}; name the one that runs it, as in hook_into_agent(…, method='go')"
        )
    return wanted


def _static_attribute(agent: Any, name: str) -> Any:
    """The attribute, unless the object makes up attributes as they are asked for."""
    known = inspect.getattr_static(agent, name, None)
    return None if known is None else getattr(agent, name, None)


def _name(agent: Any) -> str:
    named = inspect.getattr_static(agent, "name", None)
    return named if isinstance(named, str) and named else type(agent).__name__


def _recorded(agent: Any, method: str, collector: Collector, name: str) -> Callable[..., Any]:
    function = getattr(agent, method)
    names = _parameters(function)
    owner = (id(agent), method)

    def start(args: tuple[Any, ...], given: Mapping[str, Any]) -> RecordedWork | None:
        if _delegated(owner):
            return None
        work = collector.trace(_input_of(names, args, given), agent=name)
        work.owner = owner
        return work

    recorded: Callable[..., Any] = wrapped(function, start)
    setattr(recorded, _MARK, collector)
    return recorded


def _delegated(owner: tuple[int, str]) -> bool:
    """Whether another method of the same agent calls this one: it is one piece of work."""
    here = CURRENT.get()
    running: Hashable = here.owner if here else None
    return isinstance(running, tuple) and running[0] == owner[0] and running[1] != owner[1]


def _replaced(agent: Any, method: str, wrapper: Callable[..., Any]) -> Callable[[], None]:
    """Put the wrapper in the method's place; the function that undoes it."""
    own = getattr(agent, "__dict__", None)
    if method == "__call__" or own is None:
        return _replaced_in_class(agent, method, wrapper)
    before = own.get(method)
    # Some classes guard their attributes; the object's own dictionary is theirs to guard, and ours to put back.
    own[method] = wrapper

    def undo() -> None:
        if before is None:
            own.pop(method, None)
        else:
            own[method] = before

    return undo


def _replaced_in_class(agent: Any, method: str, wrapper: Callable[..., Any]) -> Callable[[], None]:
    """Python looks for `__call__` in the class, and slots leave no room in the object: it gets a class of its own."""
    before = type(agent)
    own = type(before.__name__, (before,), {"__slots__": (), method: staticmethod(wrapper), "__module__": before.__module__})
    try:
        agent.__class__ = own
    except TypeError as error:
        raise InputError(f"{before.__name__}.{method} cannot be replaced: {error}; decorate the method with @traced") from None

    def undo() -> None:
        agent.__class__ = before

    return undo


@overload
def traced_by(function: _Function, /) -> _Function: ...


@overload
def traced_by(
    *, collector: "Collector | Callable[[], Collector | None] | None" = None, name: str | None = None, kind: Kind = "agent"
) -> Callable[[_Function], _Function]: ...


def traced_by(
    function: Any = None,
    /,
    *,
    collector: "Collector | Callable[[], Collector | None] | None" = None,
    name: str | None = None,
    kind: Kind = "agent",
) -> Any:
    """Record each call of a function or method. Inside an open trace it is a step of it, else a trace of the collector.

    Args:
        collector: Gets the trace of an outermost call, or a function that gives one when it is first needed. Without one only
            what happens inside an open trace is recorded.
        name: The agent's or the tool's; the function's where none is given.
        kind: What it is inside another trace: the work of an "agent", or a "tool".
    """
    if function is None:
        return partial(_traced, collector=collector, name=name, kind=kind)
    return _traced(function, collector=collector, name=name, kind=kind)


def _traced(function: Any, *, collector: Any, name: str | None, kind: Kind) -> Any:
    if isinstance(function, staticmethod | classmethod):
        return type(function)(_traced(function.__func__, collector=collector, name=name, kind=kind))
    called = name or getattr(function, "__qualname__", type(function).__name__).rpartition(".<locals>.")[2]
    names = _parameters(function)

    def start(args: tuple[Any, ...], given: Mapping[str, Any]) -> RecordedWork | None:
        asked = _input_of(names, args, given)
        here = CURRENT.get()
        if here is not None and here.tree.ended is None:
            inside = Recording(here.tree)
            return inside.tool(called, asked) if kind == "tool" else inside.agent(called, asked)
        own = collector if isinstance(collector, Collector) or collector is None else collector()
        return None if own is None else own.trace(asked, agent=called)

    return wrapped(function, start)


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def _input_of(names: tuple[str, ...], args: tuple[Any, ...], given: Mapping[str, Any]) -> Any:
    """The arguments by name; a single text alone is what was asked. An object's own `self` is none."""
    known = dict(zip(names, args, strict=False))
    if names[:1] in (("self",), ("cls",)) and args:
        known.pop(names[0])
    known.update((f"argument {at}", each) for at, each in enumerate(args[len(names) :], start=len(names) + 1))
    known.update(given)
    values = list(known.values())
    return values[0] if len(values) == 1 and isinstance(values[0], str) else known


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
