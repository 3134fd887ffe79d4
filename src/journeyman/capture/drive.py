"""Running somebody's function, and recording from its beginning to its end, whatever kind of function it is."""

import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from functools import partial, update_wrapper
from typing import Any, Protocol

from journeyman.capture.told import MOST, told

log = logging.getLogger(__name__)


class Work(Protocol):
    """Something that is being recorded."""

    def begin(self) -> None: ...

    def pause(self) -> None: ...

    def end(self, output: Any = None, error: BaseException | None = None) -> None: ...


Start = Callable[[tuple[Any, ...], Mapping[str, Any]], Work | None]
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


def _begun(start: Start, args: tuple[Any, ...], given: Mapping[str, Any]) -> Work:
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
        work = _begun(start, args, given)
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
        return await _await(function(*args, **given), _begun(start, args, given))

    return run


def _generator(function: Any, start: Start) -> Any:
    def run(*args: Any, **given: Any) -> Generator[Any, Any, Any]:
        return (yield from _drive(function(*args, **given), _begun(start, args, given)))

    return run


def _async_generator(function: Any, start: Start) -> Any:
    return _asynchronous(lambda *args, **given: (function(*args, **given), _begun(start, args, given)))


async def _await(answer: Awaitable[Any], work: Work) -> Any:
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


def _drive(inner: Generator[Any, Any, Any], work: Work) -> Generator[Any, Any, Any]:
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


def _asynchronous(begun: Callable[..., tuple[AsyncGenerator[Any, Any], Work]]) -> Callable[..., AsyncGenerator[Any, Any]]:
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
        if self._length < MOST:
            text = piece if isinstance(piece, str) else told(piece) + "\n"
            self._found.append(text)
            self._length += len(text)

    @property
    def text(self) -> str | None:
        return told("".join(self._found)) if self._found else None
