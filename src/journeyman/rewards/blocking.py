"""Awaiting for those who cannot: rewards are asked one by one, and sandboxes work on an event loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import lru_cache
from multiprocessing.util import Finalize
from typing import Any, TypeVar

from journeyman.sandbox.base import Program, RunOutcome, Sandbox

_Result = TypeVar("_Result")


def wait(doing: Coroutine[Any, Any, _Result]) -> _Result:
    """What becomes of it, on a loop in a thread of its own, so that it also works where a loop is running already."""
    return asyncio.run_coroutine_threadsafe(doing, _loop()).result()


class Blocking:
    """Runs programs in a sandbox and waits for them. May be used by several threads at once, and be pickled where what makes
    the sandbox can be: every process makes its own, once."""

    def __init__(self, make: Callable[[], Sandbox]) -> None:
        """Nothing is made before the first program comes."""
        self._make = make
        self._sandbox: Sandbox | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Callable[[Callable[[], Sandbox]], "Blocking"], tuple[Callable[[], Sandbox]]]:
        return _shared, (self._make,)

    def run(self, program: Program) -> RunOutcome:
        """What happened to the program.

        Raises:
            SandboxError: The sandbox itself failed.
        """
        with self._lock:
            if self._sandbox is None:
                self._sandbox = self._make()
            sandbox = self._sandbox
        return wait(sandbox.run(program))

    def close(self) -> None:
        """End the sandbox. A later `run` makes another."""
        with self._lock:
            sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            wait(sandbox.close())


@lru_cache(maxsize=8)
def _shared(make: Callable[[], Sandbox]) -> Blocking:
    """The one of this process, however often it is sent here."""
    blocking = Blocking(make)
    # Workers of a pool do not run `atexit`; of these the higher comes first.
    Finalize(None, blocking.close, exitpriority=20)
    return blocking


@lru_cache(maxsize=1)
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="journeyman-rewards", daemon=True)
    thread.start()

    def end() -> None:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        if not thread.is_alive():
            loop.close()

    Finalize(None, end, exitpriority=10)
    return loop
