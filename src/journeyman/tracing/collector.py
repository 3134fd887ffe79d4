"""Where traces that are recorded in the process come together."""

import inspect
import logging
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Hashable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial, update_wrapper
from typing import Any, Literal, Protocol, TypeVar, overload

from journeyman.core.errors import InputError
from journeyman.core.trace import Trace
from journeyman.tracing.recorder import CURRENT, LONGEST_TEXT, OpenTrace, Recording, as_text, open_recording

log = logging.getLogger(__name__)

KEPT = 10_000
"""Traces that a collector holds in memory; older ones are in the store alone."""


class Sink(Protocol):
    """Where traces go that shall last. A store of traces is one."""

    def add(self, traces: Iterable[Trace]) -> object: ...

    def label(self, trace_id: str, good: bool | None, *, who: str, at: datetime) -> None: ...


class Collector:
    """Collects traces. May be used by several threads. What its sink makes of them never reaches the agent that is recorded."""

    def __init__(
        self, sink: Sink | None = None, *, agent: str | None = None, session: str | None = None, kept: int = KEPT
    ) -> None:
        """
        Args:
            sink: Gets every trace when it ends, in the thread that ended it; `None` keeps them in memory alone.
            agent: Who makes the attempts, where a trace does not say.
            session: What the traces have in common.
            kept: Traces that are held in memory.
        """
        self._sink = sink
        self._agent = agent
        self._session = session
        self._kept = kept
        self._traces: OrderedDict[str, Trace] = OrderedDict()
        self._lock = threading.Lock()
        self._lost = 0

    def trace(self, input: Any = None, *, agent: str | None = None, **about: Any) -> Recording:
        """A trace that begins now, for a `with`. Inside another one of this collector it is the work of a sub-agent there.

        Args:
            input: What is asked.
            about: Other fields of `Trace`: id, task_id, candidate_id, domain, session, raw, …
        """
        if self._session is not None:
            about.setdefault("session", self._session)
        return open_recording(self._keep, input, agent=agent or self._agent, about=about)

    @property
    def traces(self) -> tuple[Trace, ...]:
        """Those that ended and are in memory, oldest first."""
        with self._lock:
            return tuple(self._traces.values())

    def get_unlabeled_traces(self, limit: int | None = None) -> list[Trace]:
        """Those that nobody has judged, newest first."""
        return [trace for trace in reversed(self.traces) if trace.label is None][:limit]

    def label_trace(self, trace_id: str, good: bool | None, *, who: str = "user") -> None:
        """Say whether a trace was good; `None` takes it back.

        Raises:
            KeyError: The collector has no such trace, and neither has its store.
            StoreError: The store could not keep it.
        """
        with self._lock:
            held = self._traces.get(trace_id)
            if held is not None:
                self._traces[trace_id] = replace(held, label=good)
        if self._sink is not None:
            self._sink.label(trace_id, good, who=who, at=datetime.now(UTC))
        elif held is None:
            raise KeyError(f"no trace {trace_id!r} was collected")

    def get_statistics(self) -> Mapping[str, int]:
        """Counts over the traces in memory; `lost` counts those that the store did not take."""
        traces = self.traces
        labels = [trace.label for trace in traces]
        return {
            "total": len(traces),
            "labeled": len(labels) - labels.count(None),
            "unlabeled": labels.count(None),
            "good": labels.count(True),
            "bad": labels.count(False),
            "failed": sum(trace.error is not None for trace in traces),
            "model_calls": sum(len(trace.calls) for trace in traces),
            "tool_calls": sum(len(trace.tool_calls) for trace in traces),
            "lost": self._lost,
        }

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until all that ended is in the store; whether that came in time."""
        wait = getattr(self._sink, "flush", None)
        return True if wait is None else bool(wait(timeout))

    def keep(self, trace: Trace) -> None:
        """Take a trace that is ready, or one that was given before and has grown. Never raises: an agent goes on, whatever a
        store says."""
        self._store_safely(lambda: trace)

    def _keep(self, tree: OpenTrace) -> None:
        self._store_safely(tree.trace)

    def _store_safely(self, made: Callable[[], Trace]) -> None:
        try:
            trace = made()
            with self._lock:
                known = self._traces.get(trace.id)
                self._traces[trace.id] = replace(trace, label=known.label) if known else trace
                while len(self._traces) > self._kept:
                    self._traces.popitem(last=False)
            if self._sink is not None:
                self._sink.add([trace])
        except Exception as error:  # noqa: BLE001 - the boundary to the agent that is recorded
            self._lost += 1
            log.warning("a trace could not be kept: %s", type(error).__name__)


# Running somebody's function, and recording from its beginning to its end, whatever kind of function it is.


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


_Function = TypeVar("_Function", bound=Callable[..., Any])

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
def traced(function: _Function, /) -> _Function: ...


@overload
def traced(
    *, collector: "Collector | Callable[[], Collector | None] | None" = None, name: str | None = None, kind: Kind = "agent"
) -> Callable[[_Function], _Function]: ...


def traced(
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
