"""The registry: what was run, learned, evaluated and released, as values to read.

with Registry.open(".journeyman/journeyman.db") as registry:
    for run in registry.runs(limit=10):
        print(run.id, run.state)
    evaluation = registry.evaluation("20260305-120000")
    print([pair.task_id for pair in evaluation.lost])

Wherever an id is asked for, as much of it as tells it apart is enough.
"""

import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from enum import StrEnum
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from journeyman.core.candidate import Candidate, Kind
from journeyman.core.comparison import ComparisonVerdict
from journeyman.core.errors import InputError
from journeyman.core.evaluation import Pair, Result, pair
from journeyman.core.release import Release, Stage
from journeyman.core.rollout import Rollout, Slot, SlotKind
from journeyman.core.task import Split
from journeyman.io.processes import is_gone
from journeyman.stores import open_store
from journeyman.stores.base import AttemptRecord, AttemptTotals, EvaluationRecord, Listed, RunRecord, RunState, Store, whole_id

_ONE: Mapping[Listed, str] = {
    "runs": "run",
    "candidates": "candidate",
    "evaluations": "evaluation",
    "releases": "release",
}
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetails:
    """A run, and what belongs to it."""

    run: RunRecord
    attempts: tuple[AttemptTotals, ...]
    """By split; empty where none were kept."""
    evaluations: tuple[EvaluationRecord, ...]
    """Made in this run, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateDetails:
    """A candidate, and what became of it."""

    candidate: Candidate
    evaluations: tuple[EvaluationRecord, ...]
    """Of this candidate against any baseline, oldest first."""
    release: Release | None
    children: tuple[str, ...]
    """Ids of the candidates that were learned from this one, oldest first."""

    @property
    def stage(self) -> Stage | None:
        """How far it is released; `None` when it never was."""
        return self.release.stage if self.release else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationDetails:
    """An evaluation with its tasks, before and after side by side."""

    evaluation: EvaluationRecord
    pairs: tuple[Pair, ...]
    """By task id. Empty where neither the record nor the attempts of its run tell of single tasks."""

    @property
    def won(self) -> tuple[Pair, ...]:
        """Tasks on which the candidate is better, the largest gain first."""
        return tuple(sorted((pair for pair in self.pairs if pair.difference > 0), key=lambda pair: -pair.difference))

    @property
    def lost(self) -> tuple[Pair, ...]:
        """Tasks on which the candidate is worse, the deepest fall first."""
        return tuple(sorted((pair for pair in self.pairs if pair.difference < 0), key=lambda pair: pair.difference))

    @property
    def same(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.pairs if not pair.difference)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """A setting or a figure that differs between two runs."""

    name: str
    """Where it stands, with dots between the levels: `config.gate.min_gain`."""
    before: Any
    """`None` where it is null, or not there at all."""
    after: Any


class GateVerdict(StrEnum):
    """The word of the gate that a candidate comes to live traffic with."""

    PASSED = "passed"
    CHECKED = "checked"
    """Only a part of it could be examined: it is promoted as better, never as not worse."""
    NOT_EXAMINABLE = "not_examinable"
    """What it changes cannot be examined on held-out tasks."""
    REFUSED = "refused"
    UNEXAMINED = "unexamined"
    """No evaluation of it is in the store."""

    @property
    def may_start(self) -> bool:
        """Whether a rollout begins without a person's force."""
        return self in (GateVerdict.PASSED, GateVerdict.CHECKED)


class GateWord(NamedTuple):
    """What the gate says of a candidate today."""

    verdict: GateVerdict
    reason: str
    """One sentence."""
    evaluation_id: str = ""
    """That it stands on, where there is one."""


class Registry:
    """Reads a store, and forgets runs. Raises `InputError` for an id that is none, with those nearest to it.

    Whatever is listed comes newest first.
    """

    def __init__(self, store: Store) -> None:
        """`store` stays the caller's to close."""
        self._store = store

    @classmethod
    def open(cls, url: str | Path) -> Self:
        """The registry of the store at a URL or path; an empty one where there is none. Close it, or use it in a `with`.

        Raises:
            InputError: The URL is not one of a store.
            StoreError: It cannot be reached, is not a database, or was written by a newer Journeyman.
        """
        return cls(open_store(url, make=False))

    def runs(self, *, kind: str | None = None, state: RunState | None = None, limit: int | None = None) -> list[RunRecord]:
        """
        Args:
            kind: What ran, as a user would type it: "train playbook".
            limit: So many at most.
        """
        found = map(_as_seen, self._store.runs(kind, newest_first=True))
        return list(islice((run for run in found if state in (None, run.state)), limit))

    def run(self, run_id: str) -> RunDetails:
        run = self.run_record(run_id)
        totals = tuple(self._store.attempt_totals(run.id))
        return RunDetails(run=run, attempts=totals, evaluations=tuple(self._store.evaluations(run_id=run.id)))

    def run_record(self, run_id: str) -> RunRecord:
        """A run without what it made."""
        return _as_seen(self._one("runs", run_id, self._store.run))

    def diff_runs(self, before: str, after: str) -> list[RunChange]:
        """In what the settings and the results of two runs differ, by name."""
        old, new = (_flat(self.run_record(id)) for id in (before, after))
        names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
        return [RunChange(name=name, before=old.get(name), after=new.get(name)) for name in names]

    def remove_run(self, run_id: str) -> int:
        """Forget a run with its attempts, their traces and its evaluations; how many attempts that were.

        Raises:
            StoreError: A release stands on one of its evaluations.
        """
        return self._store.remove_run(self._one("runs", run_id, self._store.run).id)

    def attempts(self, run_id: str) -> Iterator[AttemptRecord]:
        """Every attempt of a run, oldest first, with its whole trace and its score."""
        return self._store.attempts(run_id=self._one("runs", run_id, self._store.run).id)

    def candidates(self, *, kind: Kind | None = None, limit: int | None = None) -> list[Candidate]:
        return list(islice(self._store.candidates(kind, newest_first=True), limit))

    def candidate(self, candidate_id: str) -> CandidateDetails:
        candidate = self._one("candidates", candidate_id, self._store.candidate)
        return CandidateDetails(
            candidate=candidate,
            evaluations=tuple(self._store.evaluations(candidate_id=candidate.id)),
            release=self._store.release(candidate.id),
            children=tuple(each.id for each in self._store.candidates() if candidate.id in each.parents),
        )

    def diff_candidates(self, before: str, after: str) -> list[str]:
        """The lines of a unified diff of what two candidates hold; empty where they are the same. JSON is laid out first."""
        old, new = (self._one("candidates", id, self._store.candidate) for id in (before, after))
        return list(unified_diff(_laid_out(old.body), _laid_out(new.body), old.id, new.id, lineterm=""))

    def count(self, what: Listed, *, kind: Kind | None = None) -> int:
        """How many there are; with a kind, of the candidates those of it."""
        return self._store.count(what, kind=kind)

    def evaluations(
        self, *, candidate_id: str | None = None, passed: bool | None = None, limit: int | None = None
    ) -> list[EvaluationRecord]:
        """
        Args:
            candidate_id: Of the candidate, or of all whose ids begin so.
        """
        found = self._store.evaluations(newest_first=True)
        meant = (each for each in found if each.candidate_id.startswith(candidate_id or "") and passed in (None, each.passed))
        return list(islice(meant, limit))

    def evaluation(self, evaluation_id: str) -> EvaluationDetails:
        found = self._one("evaluations", evaluation_id, self._store.evaluation)
        return EvaluationDetails(evaluation=found, pairs=self._pairs(found))

    def answers(self, evaluation_id: str, task_ids: Container[str]) -> Mapping[str, Mapping[str, AttemptRecord]]:
        """Of some tasks of an evaluation, an attempt of each side: by task, then by the candidate's or the baseline's id. Empty
        where its run kept none."""
        evaluation = self._one("evaluations", evaluation_id, self._store.evaluation)
        sides = (evaluation.baseline_id, evaluation.candidate_id)
        found: dict[str, dict[str, AttemptRecord]] = {}
        for each in self._store.attempts(run_id=evaluation.run_id, split=Split.HELD_OUT):
            trace = each.trace
            if trace.task_id in task_ids and trace.candidate_id in sides:
                found.setdefault(trace.task_id, {}).setdefault(trace.candidate_id, each)
        return found

    def releases(self, *, stage: Stage | None = None, limit: int | None = None) -> list[Release]:
        """Those that were moved last come first."""
        moved = sorted(self._store.releases(stage), key=lambda release: release.moves[-1].at, reverse=True)
        return moved[:limit]

    def release(self, candidate_id: str) -> Release:
        """The release of a candidate, with every move that it has made."""
        return self._one("releases", candidate_id, self._store.release)

    def contradicted(self, candidate_id: str) -> EvaluationRecord | None:
        """The evaluation that takes back what a release stands on; `None` where none does."""
        return contradiction(tuple(self._store.evaluations(candidate_id=candidate_id)))

    def gate_word(self, candidate_id: str) -> GateWord:
        """What the gate says of a candidate today."""
        return gate_word(tuple(self._store.evaluations(candidate_id=candidate_id)))

    def close(self) -> None:
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _pairs(self, evaluation: EvaluationRecord) -> tuple[Pair, ...]:
        """As they were kept with the evaluation, else from the attempts of its run."""
        # A finding of its own form, as a router's, holds the pairs' report in it.
        kept = evaluation.report.get("pairs", (evaluation.report.get("report") or {}).get("pairs"))
        if kept is not None:
            return tuple(Pair(**each) for each in kept)
        sides: dict[str, list[Result]] = {evaluation.baseline_id: [], evaluation.candidate_id: []}
        for each in self._store.attempts(run_id=evaluation.run_id, split=Split.HELD_OUT):
            trace = each.trace
            if trace.candidate_id in sides and trace.id.startswith(f"{evaluation.run_id}/evaluation/"):
                sides[trace.candidate_id].append(Result(task_id=trace.task_id, score=each.score.total))
        return pair(sides[evaluation.baseline_id], sides[evaluation.candidate_id]).pairs

    def _one(self, what: Listed, prefix: str, get: Callable[[str], _T | None]) -> _T:
        """The one whose id begins so."""

        def starting(prefix: str, limit: int) -> Sequence[str]:
            return self._store.starting(what, prefix, limit=limit)

        id = whole_id(prefix, starting, one=_ONE[what], many=what)
        if (found := get(id)) is None:
            raise InputError(f"{id}: this {_ONE[what]} was removed a moment ago")
        return found


def contradiction(evaluations: Sequence[EvaluationRecord]) -> EvaluationRecord | None:
    """The later evaluation of a candidate, oldest first, that takes back what the gate last let pass; `None` where none does.

    On the same tasks it does where all of its interval lies below all of the one that passed; on others, which may be of
    another kind, where all of it lies below 0. Either is of the same baseline.
    """
    passes = [(at, each) for at, each in enumerate(evaluations) if each.passed and _ends(each)]
    for at, passed in reversed(passes[-1:]):
        for later in evaluations[at + 1 :]:
            ends, before = _ends(later), _ends(passed)
            if later.passed or later.baseline_id != passed.baseline_id or not ends or not before:
                continue
            if ends[1] < (before[0] if later.held_out_id == passed.held_out_id else 0):
                return later
    return None


def comparison_of(evaluation: EvaluationRecord) -> ComparisonVerdict:
    """What an evaluation came to. A finding of its own form, as a router's, holds the comparison in it."""
    inner = evaluation.report.get("report")
    told = inner if isinstance(inner, Mapping) else evaluation.report

    def number(*names: str) -> float | None:
        found = next((told[name] for name in names if told.get(name) is not None), None)
        return float(found) if isinstance(found, int | float) else None

    looks, left_out = int(number("looks") or 0), len(told.get("contaminated") or ())
    caveats = [f"look {looks + 1}" if looks else "", f"{left_out} left out, as they were trained on" if left_out else ""]
    return ComparisonVerdict(
        before=number("baseline"),
        after=number("candidate"),
        low=number("decided_low", "low"),
        high=number("decided_high", "high"),
        count=int(number("tasks") or 0),
        withheld="" if number("decided_low") is not None or evaluation.passed else evaluation.reason,
        caveat=", ".join(filter(None, caveats)),
    )


def gate_word(evaluations: Sequence[EvaluationRecord]) -> GateWord:
    """What the gate says of a candidate by its evaluations, oldest first: the latest holds, and a pass that was contradicted
    is none."""
    if not evaluations:
        return GateWord(GateVerdict.UNEXAMINED, "no evaluation of it is in the store")
    if against := contradiction(evaluations):
        return GateWord(GateVerdict.REFUSED, f"its pass is contradicted by {against.id}: {against.reason}", against.id)
    last = evaluations[-1]
    return GateWord(verdict_of(last), last.reason, last.id)


def verdict_of(evaluation: EvaluationRecord) -> GateVerdict:
    """The gate's word on one evaluation."""
    said = evaluation.report.get("verdict")
    if said not in tuple(GateVerdict):
        said = GateVerdict.PASSED if evaluation.passed else GateVerdict.REFUSED
    return GateVerdict(said)


def names_rollout(rollouts: Sequence[Rollout], text: str) -> bool:
    """Whether a text names a rollout, by its id or its slot, and not a candidate."""
    return _is_slot(text) or any(text and each.id.startswith(text) for each in rollouts)


def find_rollout(rollouts: Sequence[Rollout], text: str) -> Rollout:
    """The one that is named by as much of its id as tells it apart, or by the slot that it is open in.

    Raises:
        InputError: There is none, or several; the sentence names the nearest.
    """
    if _is_slot(text):
        slot = Slot.parse(text)
        found = [each for each in rollouts if each.slot == slot and each.is_open]
        if not found:
            raise InputError(f"no rollout is open in {slot}; journeyman releases rollouts shows those that were")
        return found[0]
    known = {each.id: each for each in rollouts}

    def starting(prefix: str, limit: int) -> Sequence[str]:
        return [id for id in sorted(known) if id.startswith(prefix)][:limit]

    return known[whole_id(text, starting, one="rollout", many="releases rollouts")]


def _is_slot(text: str) -> bool:
    return text.partition(":")[0] in tuple(SlotKind)


def _ends(evaluation: EvaluationRecord) -> tuple[float, float] | None:
    """Of the interval that decided, where it was come to."""
    report = evaluation.report.get("report") or evaluation.report
    low, high = report.get("decided_low"), report.get("decided_high")
    return None if low is None or high is None else (float(low), float(high))


def _as_seen(run: RunRecord) -> RunRecord:
    """A run whose process is gone does not run, whatever it last said of itself."""
    return replace(run, state=RunState.KILLED) if run.process and is_gone(run.process) else run


def _flat(run: RunRecord) -> dict[str, Any]:
    """Settings, state and result by their dotted names."""
    told = {"kind": run.kind, "state": run.state.value, "config": run.config, "result": run.result or {}}
    return dict(_leaves("", told))


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _leaves(f"{name}.{key}" if name else str(key), each)
    else:
        yield name, value


def _laid_out(body: str) -> Sequence[str]:
    try:
        told = json.loads(body)
    except ValueError:
        return body.splitlines()
    return json.dumps(told, indent=1, ensure_ascii=False).splitlines()


# Routers and planners in the store.


def manifest(candidate: Candidate, format: str) -> Mapping[str, Any] | None:
    """What the body of a policy says; `None` where it is of another format."""
    try:
        said = json.loads(candidate.body)
    except ValueError:
        return None
    return said if isinstance(said, dict) and said.get("format") == format else None


def find_policy(id: str, store: Store, format: str, *, what: str, kept_as: str) -> Candidate:
    """The one policy of a format by its id, or the beginning of it.

    Args:
        what: "router" or "planner": what it is called, and how its training is.
        kept_as: Where else it is looked for: "file" or "folder".

    Raises:
        InputError: There is no such policy, or several.
    """
    found = [each for each in store.candidates(Kind.POLICY) if each.id.startswith(id) and manifest(each, format) is not None]
    if len(found) != 1:
        known = f"{len(found)} of them begin so; type more of it" if found else f"train one with `journeyman train {what}`"
        raise InputError(f"no {what} {id!r} is in the store, and no {kept_as} is called that: {known}")
    return found[0]


def in_production(store: Store, format: str) -> str | None:
    """The id of the policy of a format that is in production, the newest of several; `None` where there is none."""
    found = [
        release.candidate_id
        for release in store.releases(Stage.PRODUCTION)
        if (candidate := store.candidate(release.candidate_id)) is not None and manifest(candidate, format) is not None
    ]
    return found[-1] if found else None
