"""The simplest store: it forgets everything when it goes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from journeyman.candidate import Candidate, Kind
from journeyman.release import Release, Stage
from journeyman.stores.base import AttemptRecord, EvaluationRecord, RunRecord, RunState, new_moves, unknown_run, utc
from journeyman.task import Split


class MemoryStore:
    """For tests and experiments; one thread."""

    def __init__(self) -> None:
        self._runs: dict[str, RunRecord] = {}
        self._marks: dict[str, dict[tuple[datetime, RunState], Mapping[str, Any] | None]] = {}
        self._attempts: dict[tuple[str, str], AttemptRecord] = {}
        self._candidates: dict[str, Candidate] = {}
        self._evaluations: dict[str, EvaluationRecord] = {}
        self._looks: dict[str, dict[tuple[str, str], int]] = {}
        self._releases: dict[str, Release] = {}

    def add_run(self, run: RunRecord) -> None:
        utc(run.started_at)
        if run.id not in self._runs:
            self._runs[run.id] = run
            self._marks[run.id] = {}
            if run.state is not RunState.RUNNING:
                self.mark_run(run.id, run.state, run.ended_at or run.started_at, run.result)

    def mark_run(self, run_id: str, state: RunState, at: datetime, result: Mapping[str, Any] | None = None) -> None:
        if run_id not in self._runs:
            raise unknown_run(run_id)
        self._marks[run_id].setdefault((utc(at), state), result)
        # `sorted` is stable: of two words at one moment, the one that was added later holds.
        (last, state), result = sorted(self._marks[run_id].items(), key=lambda mark: mark[0][0])[-1]
        ended = None if state is RunState.RUNNING else last
        self._runs[run_id] = replace(self._runs[run_id], state=state, ended_at=ended, result=result)

    def run(self, run_id: str) -> RunRecord | None:
        return self._runs.get(run_id)

    def runs(self, kind: str | None = None) -> Iterator[RunRecord]:
        return (run for run in tuple(self._runs.values()) if kind in (None, run.kind))

    def add_attempts(self, attempts: Iterable[AttemptRecord]) -> None:
        batch = list(attempts)
        for attempt in batch:
            utc(attempt.trace.started_at)
            if attempt.run_id not in self._runs:
                raise unknown_run(attempt.run_id)
        for attempt in batch:
            self._attempts.setdefault((attempt.run_id, attempt.id), attempt)

    def attempts(
        self,
        *,
        run_id: str | None = None,
        task_id: str | None = None,
        candidate_id: str | None = None,
        domain: str | None = None,
        split: Split | None = None,
    ) -> Iterator[AttemptRecord]:
        wanted = (run_id, task_id, candidate_id, domain, split)
        for found in tuple(self._attempts.values()):
            trace = found.trace
            has = (found.run_id, trace.task_id, trace.candidate_id, trace.domain, found.split)
            if all(want in (None, value) for want, value in zip(wanted, has, strict=True)):
                yield found

    def add_candidate(self, candidate: Candidate) -> None:
        self._candidates.setdefault(candidate.id, candidate)

    def candidate(self, candidate_id: str) -> Candidate | None:
        return self._candidates.get(candidate_id)

    def candidates(self, kind: Kind | None = None) -> Iterator[Candidate]:
        return (found for found in tuple(self._candidates.values()) if kind in (None, found.kind))

    def add_evaluation(self, evaluation: EvaluationRecord) -> None:
        utc(evaluation.at)
        self._evaluations.setdefault(evaluation.id, evaluation)

    def evaluations(self, *, candidate_id: str | None = None, held_out_id: str | None = None) -> Iterator[EvaluationRecord]:
        for found in tuple(self._evaluations.values()):
            if candidate_id in (None, found.candidate_id) and held_out_id in (None, found.held_out_id):
                yield found

    def record_look(self, held_out_id: str, candidate_id: str, at: datetime, evaluation_id: str = "") -> int:
        utc(at)
        looks = self._looks.setdefault(held_out_id, {})
        return looks.setdefault((candidate_id, evaluation_id), len(looks) + 1)

    def looks(self, held_out_id: str) -> int:
        return len(self._looks.get(held_out_id, {}))

    def add_release(self, release: Release) -> None:
        for move in release.moves:
            utc(move.at)
        kept = self._releases.get(release.candidate_id)
        if new_moves(kept, release):
            self._releases[release.candidate_id] = release

    def release(self, candidate_id: str) -> Release | None:
        return self._releases.get(candidate_id)

    def releases(self, stage: Stage | None = None) -> Iterator[Release]:
        return (release for release in tuple(self._releases.values()) if stage in (None, release.stage))

    def close(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
