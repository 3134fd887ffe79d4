"""Recording what a program does, as it does it: its agents, their tools, and their calls of models.

    unhook = hook_into_agent(agent, collector)

A function or method is recorded from its beginning to its end, whatever kind of function it is. Calls of models are seen where
the SDKs of openai, anthropic and litellm send them: at the HTTP client, inside of what is recorded and nowhere else.
"""

import asyncio
import importlib
import inspect
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
)  # fmt: skip
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial, update_wrapper
from time import perf_counter
from typing import Any, Literal, Protocol, Self, TypeVar, overload
from uuid import uuid4

from journeyman.core.errors import InputError
from journeyman.serving.ingest.factory import price
from journeyman.tracing.collector import CURRENT, LONGEST_TEXT, Collector, Position, Recording, as_text, failure
from journeyman.tracing.wire.dialects import Exchange, dialect_of

_Function = TypeVar("_Function", bound=Callable[..., Any])

log = logging.getLogger(__name__)

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
    agent: Any,
    collector: Collector,
    method: str | None = None,
    *,
    name: str | None = None,
    tools: Iterable[str] | None = None,
) -> Callable[[], None]:
    """Record what an agent does from now on; the function that is returned ends it.

    Calls that the SDKs of openai, anthropic and litellm make while it runs are recorded with it, with their tokens and their
    cost; those that go through a Journeyman gateway are recorded there.

    Args:
        agent: Any object with a method that runs it. Hooked again with the same collector, it is recorded once.
        method: The method's name. Without it all of `METHODS` that the agent has are recorded, or else its `__call__`; one that
            calls another is recorded once.
        name: The agent's; else what stands in its attribute `name`, or its class.
        tools: Names of its methods that are tools. Without it those whose name begins with `tool_`, and the functions in its
            attribute `tools`, a list or a mapping of names.

    Raises:
        InputError: It has no such method, or is a class or a function.
    """
    if isinstance(agent, type) or inspect.isroutine(agent):
        raise InputError(f"{agent!r} is no agent object; decorate a function with @traced, and hook an object, not its class")
    found = _methods(agent, method)
    called = name or _name(agent)
    used = _tool_methods(agent, tools, found)
    see_model_calls()
    new = [each for each in found if not _hooked(getattr(agent, each), collector)]
    undo = [_replaced(agent, each, _recorded(agent, each, collector, called)) for each in new]
    undo += [
        _replaced(agent, each, _recorded_tool(getattr(agent, each), collector, each))
        for each in used
        if not _hooked(getattr(agent, each), collector)
    ]
    if tools is None:
        undo += _replaced_in_table(inspect.getattr_static(agent, "tools", None), collector)

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


def _hooked(function: Any, collector: Collector) -> bool:
    return getattr(function, _MARK, None) is collector


_NO_TOOLS = frozenset({"tool_calls", "tool_choice", "tool_definitions", "tool_descriptions", "tool_names", "tool_schemas"})
"""Methods that tell of tools."""


def _tool_methods(agent: Any, named: Iterable[str] | None, run: Iterable[str]) -> list[str]:
    if named is None:
        likely = [each for each in dir(agent) if each.startswith("tool_") and each not in _NO_TOOLS]
        return [each for each in likely if inspect.isroutine(_static_attribute(agent, each)) and each not in run]
    wanted = [named] if isinstance(named, str) else list(named)
    for each in wanted:
        if not callable(getattr(agent, each, None)):
            raise InputError(
                f"{type(agent).__name__} has no method {each!r} that could be a tool; `tools` takes names of methods"
            )
    return wanted


def _recorded_tool(function: Callable[..., Any], collector: Collector, name: str) -> Callable[..., Any]:
    recorded: Callable[..., Any] = _traced(function, collector=None, name=name, kind="tool")
    setattr(recorded, _MARK, collector)
    return recorded


def _replaced_in_table(table: Any, collector: Collector) -> list[Callable[[], None]]:
    """Put wrappers in the place of the functions in a list, or in a mapping, of tools; the functions that undo it."""
    if not isinstance(table, MutableSequence | MutableMapping):
        return []
    places: list[tuple[Any, Any]] = list(table.items() if isinstance(table, MutableMapping) else enumerate(table))
    undo: list[Callable[[], None]] = []
    for place, function in places:
        if not inspect.isroutine(function) or _hooked(function, collector):
            continue
        name = place if isinstance(place, str) else function.__name__
        table[place] = _recorded_tool(function, collector, name)
        undo.append(partial(table.__setitem__, place, function))
    return undo


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


# Calls of models, where the SDKs send them.

_CLIENTS = ("httpx2", "httpx")
"""The HTTP clients of openai's, anthropic's and litellm's SDKs."""
_LARGEST = 32 << 20
"""Bytes of an answer that are recorded."""
_GATEWAY = "x-journeyman-request-id"
"""Stands in the answers of a gateway, which records them itself."""


def see_model_calls() -> None:
    """Record the calls of models that are made inside of what is recorded, from now on. Other requests pass as before."""
    for name in _CLIENTS:
        with suppress(ImportError):
            library = importlib.import_module(name)
            for client, seen in ((library.Client, _seen), (library.AsyncClient, _seen_async)):
                if not hasattr(client.send, _MARK):
                    client.send = _marked(seen(client.send), client.send)


def _marked(wrapper: Any, send: Any) -> Any:
    setattr(wrapper, _MARK, True)
    return update_wrapper(wrapper, send)


def _seen(send: Any) -> Any:
    def run(client: Any, request: Any, **given: Any) -> Any:
        call = _ModelRequest.of(request)
        if call is None:
            return send(client, request, **given)
        try:
            response = send(client, request, **given)
        except BaseException as error:
            call.end(error)
            raise
        call.answered(response, _Stream if given.get("stream") else None)
        return response

    return run


def _seen_async(send: Any) -> Any:
    async def run(client: Any, request: Any, **given: Any) -> Any:
        call = _ModelRequest.of(request)
        if call is None:
            return await send(client, request, **given)
        try:
            response = await send(client, request, **given)
        except BaseException as error:
            call.end(error)
            raise
        call.answered(response, _AsyncStream if given.get("stream") else None)
        return response

    return run


class _ModelRequest:
    """One request to a model server, from when it is sent until its answer has been read. Nothing here raises."""

    def __init__(self, here: Position, dialect: Any, request: Any) -> None:
        self._here = here
        self._dialect = dialect
        self._url = request.url
        self._sent = request.content
        self._started_at = datetime.now(UTC)
        self._began = perf_counter()
        self._first: float | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._response: Any = None
        self._streamed = False
        self._over = False

    @classmethod
    def of(cls, request: Any) -> Self | None:
        """`None` for what is no call of a model, or happens outside of what is recorded."""
        here = CURRENT.get()
        if here is None or request.method != "POST" or (dialect := dialect_of(request.url.path)) is None:
            return None
        # A body that is sent as it is made is held nowhere.
        with suppress(Exception):
            return cls(here, dialect, request)
        return None

    def answered(self, response: Any, stream: "type[_Stream | _AsyncStream] | None") -> None:
        self._response = response
        self._streamed = stream is not None
        try:
            if _GATEWAY in response.headers:
                self._over = True
            elif stream is None:
                self.add(response.content)
                self.end()
            else:
                response.stream = stream.around(response.stream, self)
        except Exception as error:  # noqa: BLE001 - the agent has its answer, whether or not it can be recorded
            log.warning("a call of a model could not be recorded: %s", type(error).__name__)

    def add(self, piece: bytes) -> None:
        if self._first is None:
            self._first = perf_counter() - self._began
        self._size += len(piece)
        if self._size <= _LARGEST:
            self._parts.append(piece)

    def end(self, error: BaseException | None = None) -> None:
        if self._over:
            return
        self._over = True
        try:
            self._here.tree.hear(self._exchange(error), price)
        except Exception as fault:  # noqa: BLE001 - the agent has its answer, whether or not it can be recorded
            log.warning("a call of a model could not be recorded: %s", type(fault).__name__)

    def _exchange(self, error: BaseException | None) -> Exchange:
        body, wrong = self._body()
        if self._size > _LARGEST:
            wrong = f"the record is cut after {_LARGEST} bytes"
        address = f"{self._url.scheme}://{self._url.netloc.decode()}{self._url.path}"
        labels = {"trace": self._here.tree.id, **({"parent": self._here.step} if self._here.step else {})}
        return Exchange(
            id=uuid4().hex,
            dialect=self._dialect,
            request=self._sent,
            response=body,
            status=None if self._response is None else self._response.status_code,
            streamed=self._streamed,
            started_at=self._started_at,
            first_byte_seconds=self._first,
            seconds=perf_counter() - self._began,
            base_url=address.removesuffix(self._dialect.path),
            error=failure(error) if error is not None else wrong,
            labels=labels,
        )

    def _body(self) -> tuple[bytes, str | None]:
        """What came, without its content-encoding; and why it could not be read."""
        raw = b"".join(self._parts)
        if not self._streamed or "content-encoding" not in self._response.headers:
            return raw, None
        try:
            return type(self._response)(200, headers=self._response.headers, content=raw).content, None
        except Exception as error:  # noqa: BLE001 - also a stream that was cut, of which no decoder makes anything
            return b"", f"the record lacks a body, which came as {self._response.headers['content-encoding']}: {failure(error)}"


class _Stream:
    """The pieces of an answer, passed on as they come and kept for the record."""

    def __init__(self, inner: Any, call: _ModelRequest) -> None:
        self._inner = inner
        self._call = call

    @classmethod
    def around(cls, inner: Any, call: _ModelRequest) -> Any:
        """One that its client takes for its own kind of stream."""
        kind = next(each for each in type(inner).__mro__ if each.__name__ in ("SyncByteStream", "AsyncByteStream"))
        return type(cls.__name__, (cls, kind), {})(inner, call)

    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._inner:
                self._call.add(piece)
                yield piece
        except Exception as error:
            self._call.end(error)
            raise

    def close(self) -> None:
        self._call.end()
        self._inner.close()


class _AsyncStream(_Stream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._inner:
                self._call.add(piece)
                yield piece
        except (Exception, asyncio.CancelledError) as error:
            self._call.end(error)
            raise

    async def aclose(self) -> None:
        self._call.end()
        await self._inner.aclose()
