"""Waiting for a coroutine, also where an event loop runs already: a cell of a notebook is within one."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

_Made = TypeVar("_Made")


def waited(work: Coroutine[Any, Any, _Made]) -> _Made:
    """What a coroutine gives, run to its end. As `asyncio.run`; where a loop runs in this thread, in a thread of its own.

    Whoever interrupts the waiting cancels the work, and gets the word back when it has ended.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()

    async def cancellable() -> _Made:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result((asyncio.get_running_loop(), task))
        return await work

    with ThreadPoolExecutor(1, thread_name_prefix="journeyman") as thread:
        done = thread.submit(copy_context().run, asyncio.run, cancellable())
        try:
            return done.result()
        except BaseException:
            if not done.done():
                loop, task = begun.result()
                loop.call_soon_threadsafe(task.cancel)
            raise
