"""Held-out tasks are looked at here alone: each look is counted, what was trained on is left out, what was found is kept.

A look is known by everything that can change its answer. To look again is free only where all of that is deterministic, as
the same comes out then; anything else is another chance to be lucky, and is counted before it is taken.
"""

import hashlib
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from inspect import isawaitable
from typing import Any, Protocol, TypeVar

from journeyman.core.candidate import Candidate
from journeyman.core.errors import InputError
from journeyman.core.evaluation import Evaluation
from journeyman.core.format import named
from journeyman.core.release import Stage
from journeyman.core.task import Task, check_clusters, content, fingerprint
from journeyman.experiments import wiring
from journeyman.stores import AttemptRecord, EvaluationRecord, Store
from journeyman.stores.registry import contradiction

log = logging.getLogger(__name__)

LANDMARKS = 8


class Recorded(Protocol):
    """A finding that can be kept."""

    @property
    def passed(self) -> bool: ...

    @property
    def reason(self) -> str: ...

    def record(self) -> dict[str, Any]:
        """All of it, for JSON."""


_Found = TypeVar("_Found")
Restore = Callable[[Mapping[str, Any]], _Found]
"""Makes a finding of what its `record` gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is examined, with everything that can change the answer."""

    candidate: str
    """Its id: made of its content."""
    baseline: str
    tasks: Sequence[Task]
    """The held-out ones."""
    settings: Mapping[str, object]
    """Whatever else decides: models, objective, gate, trials, token budget, agent, verifier, recorded outcomes."""
    deterministic: bool = False
    """Whether all of it gives the same again. What is not known to is not."""
    trained_on: frozenset[str] = frozenset()
    """`task.fingerprint`s of what candidate, baseline and those that they began from were trained on."""
    learned: Candidate | None = None
    """The candidate, where it is to be kept with its evaluation."""

    @property
    def key(self) -> str:
        """A digest of all that can change the answer, but for the candidate."""
        # A cluster is said only where there is one, so that a look of before they were known is known again.
        tasks = sorted(
            [task.id, task.question, task.answer, task.domain, task.instructions, *([task.cluster] if task.cluster else [])]
            for task in self.tasks
        )
        said = json.dumps([self.baseline, tasks, self.settings], sort_keys=True, default=repr)
        return hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest()[:32]

    def clean(self) -> "tuple[Subject, tuple[str, ...]]":
        """Without the held-out tasks that were trained on, and the ids of these, in order.

        Raises:
            InputError: That is all of them.
        """
        tasks, contaminated = untrained(self.tasks, self.trained_on)
        return replace(self, tasks=tasks), contaminated


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look, which is counted already."""

    number: int
    """At these tasks, from 1."""
    tasks: Sequence[Task]
    """To be examined on: those of the subject that neither side was trained on."""
    contaminated: tuple[str, ...] = ()
    """Ids of the others."""

    @property
    def before(self) -> int:
        """How many looks were taken before this one."""
        return self.number - 1

    def rows(self, tasks: Sequence[Task]) -> list[int]:
        """Where the tasks of the look stand among those of its subject, several of which may have one id."""
        at = {id(task): row for row, task in enumerate(tasks)}
        return [at[id(task)] for task in self.tasks]

    def at(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation with what its gate must know of the look."""
        return replace(evaluation, looks=self.before, contaminated=self.contaminated)


FIRST = Look(number=1, tasks=())
"""For what is measured without a store to count in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutEvaluator:
    """Lets a subject be measured on held-out tasks."""

    store: Store
    clock: Callable[[], datetime] = wiring.now
    nonce: Callable[[], str] = field(default=lambda: secrets.token_hex(8))
    """Tells looks apart that are never the same again."""

    async def evaluate(
        self,
        subject: Subject,
        measure: Callable[[Look], Awaitable[_Found] | _Found],
        *,
        id: str,
        records: Callable[[_Found], Iterable[tuple[str, Recorded]]],
        attempts: Callable[[_Found], Iterable[AttemptRecord]] = lambda _: (),
        restore: Restore[_Found] | None = None,
    ) -> _Found:
        """Count the look, measure, and keep what was found.

        Args:
            measure: Both sides on the tasks of the look, and the gate's word on them.
            id: Of the run or command; part of the evaluation's.
            records: The baselines that it was compared with, by id, and what is kept of each.
            attempts: Those that it stands on, where they are to be kept. They are kept with it, all or nothing: a run that is
                killed has both or looks again.
            restore: Where a run is gone on with: an evaluation of its own that is kept already is taken again.

        Raises:
            InputError: All held-out tasks were trained on, or some alone have a cluster; nothing was looked at.
        """
        check_clusters({task.id: task.cluster for task in subject.tasks})
        subject, contaminated = subject.clean()
        examined, key = held_out_id(subject.tasks), subject.key
        if restore is not None and (known := self._known(subject, examined, key, f"{id}/")) is not None:
            return restore(known.report)
        at = self.clock()
        number = self._look(subject, key, at)
        measured = measure(Look(number=number, tasks=subject.tasks, contaminated=contaminated))
        found = await measured if isawaitable(measured) else measured
        if subject.learned is not None:
            self.store.add_candidate(subject.learned)
        attempted = list(attempts(found))
        for baseline, kept in records(found):
            self.store.add_evaluation(
                EvaluationRecord(
                    id=f"{id}/{subject.candidate}/{baseline}/{examined}/{number}",
                    candidate_id=subject.candidate,
                    baseline_id=baseline,
                    held_out_id=examined,
                    passed=kept.passed,
                    reason=kept.reason,
                    report={**kept.record(), "key": key},
                    at=at,
                ),
                attempted,
            )
            attempted = []
        self._warn(subject.candidate)
        return found

    def _warn(self, candidate: str) -> None:
        """Say so where a repeat takes back what a release stands on: nothing else looks again."""
        release = self.store.release(candidate)
        if release is None or release.stage in (Stage.ROLLED_BACK, Stage.RETIRED):
            return
        against = contradiction(tuple(self.store.evaluations(candidate_id=candidate)))
        if against is not None:
            log.warning(
                "%s stands in %s, and this evaluation contradicts the one that let it pass: %s",
                candidate,
                release.stage.value,
                against.reason,
            )

    def _look(self, subject: Subject, key: str, at: datetime) -> int:
        """Count a look, before it is taken: whoever breaks off after a glance has looked. Which one it is, from 1."""
        again = key if subject.deterministic else f"{key}/{self.nonce()}"
        numbers = (self.store.record_look(mark, subject.candidate, at, again) for mark in landmarks(subject.tasks))
        return max(numbers, default=1)

    def _known(self, subject: Subject, examined: str, key: str, prefix: str) -> EvaluationRecord | None:
        found = self.store.evaluations(candidate_id=subject.candidate, held_out_id=examined)
        return next((each for each in found if each.id.startswith(prefix) and each.report.get("key") == key), None)


def untrained(held_out: Sequence[Task], trained_on: Collection[str]) -> tuple[tuple[Task, ...], tuple[str, ...]]:
    """Those of the held-out tasks that were not trained on, and the ids of the others, in order.

    Args:
        trained_on: `task.fingerprint`s.

    Raises:
        InputError: All of them were.
    """
    clean = tuple(task for task in held_out if fingerprint(task.question) not in trained_on)
    contaminated = sorted({task.id for task in held_out} - {task.id for task in clean})
    if held_out and not clean:
        raise InputError(
            f"all {len(held_out)} held-out tasks were trained on ({named(contaminated)}), so they prove nothing; "
            "examine on others"
        )
    return clean, tuple(contaminated)


def looks_taken(store: Store, held_out: Sequence[Task]) -> int:
    """How many looks at these tasks, or at most of them, are on record."""
    return max((store.looks(mark) for mark in landmarks(held_out)), default=0)


def landmarks(held_out: Sequence[Task]) -> list[str]:
    """A few of the tasks, by which an overlapping set is recognised: looks are counted at each of them.

    Those with the smallest hashes: a bottom-k sketch (Broder 1997, "On the resemblance and containment of documents"). A set
    that has most tasks in common shares most of them, so leaving out some tasks is no way to look anew. Nor is writing them
    with other blanks or in another case: each is known by its content too, besides the letters by which it always was.
    """
    forms = ([task.question for task in held_out], [content(task.question) for task in held_out])
    return sorted({mark for questions in forms for mark in _smallest(questions)})


def _smallest(questions: Iterable[str]) -> list[str]:
    hashes = (hashlib.sha256(question.encode(errors="surrogatepass")) for question in questions)
    return sorted(each.hexdigest()[:16] for each in hashes)[:LANDMARKS]


def held_out_id(held_out: Iterable[Task]) -> str:
    """Made of the held-out tasks: evaluations on the same ones are found together."""
    rows = sorted(f"{task.id} {task.question}" for task in held_out)
    return hashlib.sha256("\n".join(rows).encode(errors="surrogatepass")).hexdigest()[:16]
