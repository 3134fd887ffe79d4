"""A run in the store: that it began, what it attempted, and how it ended."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self, TypeVar

from journeyman.agents.attempt import Attempt
from journeyman.core.errors import JourneymanError, StoreError
from journeyman.experiments import wiring
from journeyman.io.processes import this_process
from journeyman.stores import AttemptRecord, RunRecord, RunState, Store
from journeyman.tracing.redaction import Redactor

log = logging.getLogger(__name__)
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a command that learns. Whoever writes runs into a store does it by one of these."""

    id: str
    kind: str
    """What runs, as a user would type it: "train playbook"."""
    config: Mapping[str, Any]
    """As resolved, defaults and all. Secrets do not belong here."""
    store: Store
    clock: Callable[[], datetime] = wiring.now

    @classmethod
    def new(cls, name: str, **more: Any) -> Self:
        """A run with an id of its own, made of a name and the time."""
        return cls(id=f"{name}-{wiring.now():%Y%m%d-%H%M%S-%f}", **more)

    @contextmanager
    def tracked(self) -> Iterator[Self]:
        """It is in the store as running, and as stopped, with the reason, when what is done here breaks off, by whatever it
        be."""
        self.store.add_run(RunRecord(id=self.id, kind=self.kind, config=self.config, started_at=self.clock()))
        self.store.mark_run(self.id, RunState.RUNNING, self.clock(), {"process": this_process()})
        try:
            yield self
        except BaseException as error:
            try:
                self.store.mark_run(self.id, RunState.STOPPED, self.clock(), {"reason": _reason(error)})
            except StoreError as lost:
                # What broke it off is what must be told.
                log.warning("the store does not know that the run %s stopped: %s", self.id, lost)
            raise

    def end(self, result: Mapping[str, Any], *, finished: bool = True) -> None:
        """Keep how it ended: for good, or so that it can go on."""
        state = RunState.FINISHED if finished else RunState.STOPPED
        self.store.mark_run(self.id, state, self.clock(), result)

    def keep(self, attempts: Iterable[Attempt]) -> None:
        """Keep attempts; those that are there already stay as they are."""
        self.store.add_attempts(self.records(attempts))

    def records(self, attempts: Iterable[Attempt]) -> Iterator[AttemptRecord]:
        """Attempts of this run, as a store keeps them."""
        for attempt in attempts:
            yield AttemptRecord(run_id=self.id, split=attempt.task.split, trace=attempt.trace, score=attempt.score)


def _reason(error: BaseException) -> str:
    """Why a run broke off, in one line; what is said of it may hold a key."""
    if isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
        return "it was interrupted"
    said = str(error) if isinstance(error, JourneymanError) else f"{type(error).__name__}: {error}"
    return Redactor(()).text(" ".join(said.split()))


def blocking(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Do work none of whose steps waits, without an event loop: what it calls may then block, or run a loop of its own.

    Raises:
        RuntimeError: A step waits.
    """
    try:
        work.send(None)
    except StopIteration as done:
        found: _Result = done.value
        return found
    work.close()
    raise RuntimeError("a step of this work waits for something; run it in an event loop")
