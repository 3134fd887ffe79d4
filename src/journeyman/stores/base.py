"""What is kept, and what a store promises.

Rows are added, never changed, and adding twice is adding once: whoever is not sure that a row arrived adds it again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, Self

from journeyman.core.candidate import Candidate, Kind
from journeyman.core.errors import InputError, StoreError
from journeyman.core.release import Move, Release, Stage
from journeyman.core.score import Score
from journeyman.core.task import Split
from journeyman.core.trace import Trace, total


class RunState(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"
    """At a limit or by a person; it can go on."""
    FINISHED = "finished"
    FAILED = "failed"
    KILLED = "killed"
    """Its process is gone and did not say how it ended; it can go on. Told by the registry, as no process can write it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run of a command that learns or measures."""

    id: str
    kind: str
    """What ran, as a user would type it: "train playbook"."""
    config: Mapping[str, Any]
    """As resolved, defaults and all. Secrets do not belong here."""
    started_at: datetime
    state: RunState = RunState.RUNNING
    ended_at: datetime | None = None
    """When it stopped, finished or failed; `None` while it runs."""
    result: Mapping[str, Any] | None = None
    process: Mapping[str, Any] | None = None
    """Which process runs it, as `io.processes.this_process` says; `None` where it does not run, or nobody said."""

    @property
    def seconds(self) -> float | None:
        """How long it took; `None` while it runs."""
        return (self.ended_at - self.started_at).total_seconds() if self.ended_at else None

    @property
    def said(self) -> str:
        """What it says of itself in one line: the gate's sentence, where it had one."""
        return str((self.result or {}).get("reason") or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt of a run: the whole trace, and what it was worth."""

    run_id: str
    split: Split
    trace: Trace
    score: Score

    @property
    def id(self) -> str:
        """The trace's; unique within a run."""
        return self.trace.id

    @property
    def tokens(self) -> int | None:
        """In and out; unknown as soon as one call's are."""
        return total((self.trace.input_tokens, self.trace.output_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRecord:
    """A candidate against a baseline on held-out tasks, and the gate's word on it."""

    id: str
    candidate_id: str
    baseline_id: str
    held_out_id: str
    """Made of the held-out tasks, so that looks at the same ones are counted together."""
    passed: bool
    reason: str
    report: Mapping[str, Any]
    at: datetime

    @property
    def run_id(self) -> str:
        """The run or the command that made it, which its id begins with."""
        return self.id.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptTotals:
    """What the attempts of a run on one split of its tasks come to; those at held-out tasks by what was in force, as a mean
    of both sides of an examination is of neither."""

    split: Split
    candidate_id: str | None = None
    """What was in force in attempts at held-out tasks; `None` of others, where it changes from batch to batch."""
    attempts: int
    unscored: int
    """Attempts whose score is unknown; they are not in the mean."""
    mean_score: float | None
    tokens: int | None
    """In and out; `None` as soon as those of one attempt are unknown."""
    cost: float | None
    """US dollars; `None` as soon as that of one attempt is unknown."""


# What is served live.


DRAWN, DEGRADED = "drawn", "degraded"
"""Why a session is on its arm: by chance; or on production as the store did not answer, and therefore out of the test."""


class Assignment(NamedTuple):
    """Which arm a session is on."""

    rollout_id: str
    unit: str
    arm: str
    event: int
    """The number of the event by whose shares it was drawn."""
    why: str
    """`DRAWN` or `DEGRADED`."""
    at: datetime
    seq: int = 0
    """Its place in the order of assignments; 0 where it is not kept yet."""


class EvidenceRecord(NamedTuple):
    """What a rollout's test had come to."""

    number: int
    upto: int
    """The `seq` of the last assignment that is in it."""
    state: Mapping[str, Any]
    summary: Mapping[str, Any]
    at: datetime


class SessionScore(NamedTuple):
    """What a session counts in the test of a metric."""

    unit: str
    metric: str
    value: float | None
    """From 0 to 1; `None` where nobody knows."""


class AuditRecord(NamedTuple):
    seq: int
    actor: str
    action: str
    target: str
    before: Any
    after: Any
    reason: str
    at: datetime
    previous: str
    hash: str


Listed = Literal["runs", "candidates", "evaluations", "releases"]
"""What has an id in a store."""


class Store(Protocol):
    """Keeps what happened. Times must have a zone. Raises `StoreError`, never a library's own error.

    Whatever is listed comes oldest first unless the newest is asked for first. A batch of attempts is kept whole or not at all.
    """

    def add_run(self, run: RunRecord) -> None:
        """Keep that a run has begun."""

    def mark_run(self, run_id: str, state: RunState, at: datetime, result: Mapping[str, Any] | None = None) -> None:
        """Add what became of a run: the latest word holds. A resumed run is marked as running again."""

    def run(self, run_id: str) -> RunRecord | None: ...

    def runs(self, kind: str | None = None, *, newest_first: bool = False) -> Iterator[RunRecord]: ...

    def remove_run(self, run_id: str) -> int:
        """Forget a run with its attempts, the traces of these, and its evaluations; how many attempts that were.

        Candidates stay, and looks: that somebody has looked is not undone by forgetting what was seen.

        Raises:
            StoreError: There is no such run, or a release stands on one of its evaluations.
        """

    def count(self, what: Listed, *, kind: Kind | None = None) -> int:
        """How many there are; with a kind, of the candidates those of it."""

    def starting(self, what: Listed, prefix: str, *, limit: int = 2) -> Sequence[str]:
        """The ids that begin so, in the order of the alphabet: people type as much of an id as tells it apart. A release has
        the id of its candidate."""

    def add_attempts(self, attempts: Iterable[AttemptRecord]) -> None:
        """Keep a batch of attempts, of runs that are known."""

    def attempts(
        self,
        *,
        run_id: str | None = None,
        task_id: str | None = None,
        candidate_id: str | None = None,
        domain: str | None = None,
        split: Split | None = None,
    ) -> Iterator[AttemptRecord]:
        """The attempts for which everything that is named holds."""

    def attempt_totals(self, run_id: str) -> Sequence[AttemptTotals]:
        """What the attempts of a run come to, by split in the order of the alphabet; empty where there are none."""

    def add_candidate(self, candidate: Candidate) -> None: ...

    def candidate(self, candidate_id: str) -> Candidate | None: ...

    def candidates(self, kind: Kind | None = None, *, newest_first: bool = False) -> Iterator[Candidate]: ...

    def add_evaluation(self, evaluation: EvaluationRecord, attempts: Iterable[AttemptRecord] = ()) -> None:
        """Keep an evaluation and, all or nothing, the attempts that it stands on."""

    def evaluation(self, evaluation_id: str) -> EvaluationRecord | None: ...

    def evaluations(
        self,
        *,
        candidate_id: str | None = None,
        held_out_id: str | None = None,
        run_id: str | None = None,
        newest_first: bool = False,
    ) -> Iterator[EvaluationRecord]: ...

    def record_look(self, held_out_id: str, candidate_id: str, at: datetime, evaluation_id: str = "") -> int:
        """Count a look at held-out tasks; which one it is, from 1.

        Every look has a number of its own, also with many processes at work. The same look (same candidate, same evaluation)
        recorded again is not a new one, and has the number that it had.
        """

    def looks(self, held_out_id: str) -> int:
        """How often these held-out tasks have been looked at."""

    def add_release(self, release: Release) -> None:
        """Keep the moves that are not kept yet.

        Raises:
            StoreError: What is kept is not how this release begins; somebody else has moved it.
        """

    def release(self, candidate_id: str) -> Release | None: ...

    def releases(self, stage: Stage | None = None) -> Iterator[Release]:
        """All releases, or those that are at a stage now."""

    def close(self) -> None:
        """Give back files and connections; the store is not used afterwards."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


def utc(at: datetime) -> datetime:
    """The same moment in UTC.

    Raises:
        StoreError: It has no time zone, so nobody can tell which moment it is.
    """
    if at.tzinfo is None:
        raise StoreError(f"the time {at.isoformat()} has no zone; make it with datetime.now(UTC)")
    return at.astimezone(UTC)


_NEAR = 1000
"""Ids, in the order of the alphabet, among which the nearest to a mistyped one are looked for."""


def whole_id(prefix: str, starting: Callable[[str, int], Sequence[str]], *, one: str, many: str) -> str:
    """The id that begins so: people type as much of an id as tells it apart.

    Args:
        starting: The first ids that begin with a text, at most so many.
        one: What has the id: "trace".
        many: The command whose `list` shows them all: "traces". Of two words it is the whole command: "releases rollouts".

    Raises:
        InputError: There is none, or several; the sentence names the nearest.
    """
    matches = starting(prefix, 4) if prefix else ()
    if prefix in matches or len(matches) == 1:
        return prefix if prefix in matches else matches[0]
    if matches:
        listed = ", ".join(matches[:3]) + (", …" if len(matches) > 3 else "")
        raise InputError(f"{prefix}: more than one {one} has an id that begins so ({listed}); write more of it")
    from difflib import get_close_matches  # Who finds what was asked for need not wait for it.

    nearest = get_close_matches(prefix, starting("", _NEAR), n=3, cutoff=0.3)
    near = f"; the nearest are {', '.join(nearest)}" if nearest else ""
    shown = many if " " in many else f"{many} list"
    raise InputError(f"{prefix}: no {one} has an id that begins so{near}; journeyman {shown} shows them")


def unknown_run(run_id: str) -> StoreError:
    return StoreError(f"no run {run_id!r} is in the store; add the run before what belongs to it")


def other_moves(candidate_id: str) -> StoreError:
    return StoreError(f"the release of {candidate_id} was moved by somebody else meanwhile; read it again and decide anew")


def new_moves(kept: Release | None, release: Release) -> tuple[Move, ...]:
    """The moves of a release that are not kept yet.

    Raises:
        StoreError: The two tell different stories.
    """
    before = kept.moves if kept else ()
    both = min(len(before), len(release.moves))
    if before[:both] != release.moves[:both]:
        raise other_moves(release.candidate_id)
    return release.moves[both:]
