"""Learning a playbook: attempt a batch of tasks, reflect on it, merge what was learned, and again.

Everything that a batch gives is merged at once and in an order that does not depend on which answer came first. The line that
the merge writes into the run's journal is the commit: a run that is killed goes on after the last line.
"""

import asyncio
import logging
import random
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from journeyman.agents.answer import Answer, MakeAgent
from journeyman.agents.attempt import Attempt, attempt_all, together
from journeyman.core.errors import ModelBusy, ModelError, ModelRefused, SandboxError, TaskError
from journeyman.core.playbook import Add, Batch, Bullet, Insight, InsightVerdict, Playbook, Retire
from journeyman.core.score import Experience
from journeyman.core.task import Split, Task
from journeyman.models.base import Model
from journeyman.models.embedders import Embedder
from journeyman.optimizers.playbook.config import LearnConfig
from journeyman.optimizers.playbook.curator import CurateReport, Curator, Origin
from journeyman.optimizers.playbook.edit import merge
from journeyman.optimizers.playbook.reflector import Reflection, reflect
from journeyman.optimizers.playbook.retrieval import Chooser, proven, to_retire, votes
from journeyman.optimizers.playbook.run import PlaybookRun, Progress, Spent, Tally
from journeyman.tasks.base import Verifier


class Watcher(Protocol):
    """Whoever wants to see a run: a progress bar, a log, a store of attempts."""

    def attempted(self, attempt: Attempt) -> None: ...

    def merged(self, playbook: Playbook, progress: Progress, tasks: int) -> None:
        """After each batch: the playbook, the sums over the run, and how many tasks are behind it."""

    def evaluated(self, done: int, total: int) -> None:
        """After each attempt at a held-out task, when the learning is over."""


class Unwatched:
    """The watcher that looks away."""

    def attempted(self, attempt: Attempt) -> None:
        pass

    def merged(self, playbook: Playbook, progress: Progress, tasks: int) -> None:
        pass

    def evaluated(self, done: int, total: int) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerTools:
    """What the trainer works with."""

    generator: Model
    reflector: Model
    verifier: Verifier
    curator: Curator
    embedder: Embedder
    clock: Callable[[], datetime]
    """For traces."""
    stamp: Callable[[], str]
    """ISO 8601, for bullets. A constant one makes runs on a deterministic model equal to the byte."""
    name: str = ""
    """Stands in the provenance of every bullet."""
    agent: MakeAgent = Answer
    """Who attempts the tasks, with the generator as its model."""


@dataclass(frozen=True, slots=True)
class Learned:
    """How a run ended."""

    playbook: Playbook
    progress: Progress
    finished: bool
    """False when the cost reached its limit first, or was not known any more while there is one."""


async def learn(
    tasks: Sequence[Task], run: PlaybookRun, tools: TrainerTools, config: LearnConfig, watcher: Watcher | None = None
) -> Learned:
    """Train from where the run is to its end.

    Raises:
        TaskError: A task is held out; no model was asked.
        ModelError: No call of a whole batch was answered; a `ModelRefused` when a model said no for good to all of them.
            What was merged before is kept.
        SandboxError: Whatever checks the attempts is down. What was merged before is kept, here too.
        PlaybookError: The run's journal is not what was written.
    """
    for task in tasks:
        if task.split is Split.HELD_OUT:
            raise TaskError(f"{task.id} is held out: nobody may learn from it; train on other tasks")
    watcher = watcher or Unwatched()
    behind = 0
    chosen = Chooser(tools.embedder, budget=config.token_budget, min_support=config.min_support)
    planned = list(batches(tasks, config))
    for number, (epoch, group) in enumerate(planned):
        behind += len(group)
        if number < run.batches:
            continue
        if config.max_cost is not None and (run.progress.cost >= config.max_cost or run.progress.unknown_costs):
            return Learned(run.playbook, run.progress, finished=False)
        step = _Step(tools, config, watcher, f"{epoch}.{number}", chosen, last=number == len(planned) - 1)
        started = tools.clock()
        batch, progress, refused = await step.take(group, run.playbook, run.refused)
        progress = replace(progress, seconds=(tools.clock() - started).total_seconds())
        run.commit(batch, progress, refused, tasks=behind)
        watcher.merged(run.playbook, run.progress, behind)
    lost = config.max_cost is not None and run.progress.unknown_costs > 0
    return Learned(run.playbook, run.progress, finished=not lost)


def batches(tasks: Sequence[Task], config: LearnConfig) -> Iterator[tuple[int, list[Task]]]:
    """The epoch and the tasks of every batch of a run, always the same for the same tasks and config."""
    for epoch in range(1, config.epochs + 1):
        order = list(tasks)
        if epoch > 1:
            random.Random(f"{config.seed} {epoch}").shuffle(order)
        for start in range(0, len(order), config.batch_size):
            yield epoch, order[start : start + config.batch_size]


class _Step:
    """One batch."""

    def __init__(
        self, tools: TrainerTools, config: LearnConfig, watcher: Watcher, id: str, chosen: Chooser, *, last: bool
    ) -> None:
        self._tools = tools
        self._config = config
        self._watcher = watcher
        self._id = id
        self._chosen = chosen
        self._last = last

    async def take(
        self, tasks: Sequence[Task], playbook: Playbook, refused: frozenset[str]
    ) -> tuple[Batch, Progress, frozenset[str]]:
        attempts = await self._attempt(tasks, playbook)
        self._stop([_failure(attempt) for attempt in attempts])
        experiences = [Experience(a.task, a.trace, a.score) for a in attempts]
        reflections = await self._reflect(tasks, experiences, playbook)
        self._stop([_silence(reflection) for reflection in reflections])
        insights = [insight for reflection in reflections for insight in reflection.insights]
        batch, report = self._merge(playbook, experiences, insights, refused)
        refused_now = frozenset(rejection.id for rejection in report.rejected)
        return batch, self._progress(attempts, reflections, report, batch), refused_now

    def _stop(self, failures: Sequence[ModelError | None]) -> None:
        """Raise when no call was answered: to go on would cost time or money and teach nothing.

        Calls may fail for what they say themselves: one alone, and several that are refused for different reasons. Then the
        run goes on, unless it has only begun.
        """
        known = [failure for failure in failures if failure is not None]
        if not known or len(known) < len(failures):
            return
        refused = all(isinstance(failure, ModelRefused) for failure in known)
        reasons = [str(failure) for failure in known]
        own = (refused and len(set(reasons)) > 1) or (len(known) == 1 and not isinstance(known[0], ModelBusy))
        if own and not self._id.endswith(".0"):
            return
        kind = ModelRefused if refused else ModelError
        raise kind(f"{_sentence(reasons[0])} The run stopped, as a whole batch met with this; {_MEND}")

    async def _attempt(self, tasks: Sequence[Task], playbook: Playbook) -> list[Attempt]:
        choose = self._chosen.of(playbook)
        tries = [
            attempt_all(
                self._tools.agent(
                    model=self._tools.generator,
                    choose=choose,
                    candidate_id=f"{self._tools.name}@{self._id}",
                    temperature=self._config.temperature if number else None,
                    seed=self._config.seed + number if number else None,
                ),
                tasks,
                self._tools.verifier,
                prefix=f"{self._tools.name}/{self._id}.{number}",
                clock=self._tools.clock,
                done=self._watcher.attempted,
            )
            for number in range(self._config.attempts)
        ]
        try:
            return [attempt for group in await together(tries) for attempt in group]
        except SandboxError as error:
            raise SandboxError(
                f"{_sentence(str(error))} The run stopped, as nobody could check what the model would write; {_MEND}"
            ) from error

    async def _reflect(self, tasks: Sequence[Task], experiences: Sequence[Experience], playbook: Playbook) -> list[Reflection]:
        by_id = {bullet.id: bullet for bullet in playbook.bullets}
        reflecting = []
        for task in tasks:
            group = [e for e in experiences if e.task.id == task.id and e.solved is not None]
            if group and (self._config.reflect_on == "all" or any(e.solved is False for e in group)):
                shown = [by_id[id] for id in sorted({id for e in group for id in e.trace.shown})]
                reflecting.append(reflect(self._tools.reflector, group, shown))
        return list(await asyncio.gather(*reflecting))

    def _merge(
        self,
        playbook: Playbook,
        experiences: Sequence[Experience],
        insights: Sequence[Insight],
        refused: frozenset[str],
    ) -> tuple[Batch, CurateReport]:
        curated, report = self._tools.curator.curate(
            playbook,
            [insight for insight in insights if insight.content],
            Origin(
                batch_id=f"{self._tools.name}/{self._id}",
                at=self._tools.stamp(),
                run=self._tools.name,
                model=self._tools.reflector.name,
                questions=tuple(experience.task.question for experience in experiences),
                rejected=refused,
            ),
        )
        batch = replace(curated, deltas=(*curated.deltas, *votes(experiences, playbook, insights)))
        after = playbook.apply(batch)
        noise = self._noise(after) if self._last else []
        return replace(batch, deltas=(*batch.deltas, *to_retire(after), *noise)), report

    def _noise(self, playbook: Playbook) -> list[Retire]:
        """What one attempt alone has said, and nothing has borne out by the end: shown to nobody yet, it must not be later."""
        least = self._config.min_support
        reason = f"reflection on fewer than {least} tasks wrote it, and no attempt was credited to it"
        return [Retire(bullet_id=b.id, reason=reason) for b in playbook.active if not proven(b, least)]

    def _progress(
        self, attempts: Sequence[Attempt], reflections: Sequence[Reflection], report: CurateReport, batch: Batch
    ) -> Progress:
        sections = [i.section for r in reflections for i in r.insights if i.content]
        domains = {attempt.task.domain for attempt in attempts}
        return Progress(
            attempts=_tally(attempts),
            by_epoch={self._id.split(".")[0]: _tally(attempts)},
            by_domain={d: _tally([a for a in attempts if a.task.domain == d]) for d in sorted(domains)},
            helpful=sections.count(InsightVerdict.HELPFUL),
            harmful=sections.count(InsightVerdict.HARMFUL),
            neutral=sections.count(InsightVerdict.NEUTRAL),
            unusable=sum(bool(reflection.unusable) for reflection in reflections),
            refused=Counter(rejection.reason for rejection in report.rejected),
            added=len(report.added),
            incremented=len(report.incremented),
            retired=sum(isinstance(delta, Retire) for delta in batch.deltas),
            generator=Spent.of(call for attempt in attempts for call in attempt.trace.calls),
            reflector=Spent.of(call for reflection in reflections for call in reflection.calls),
        )


_MEND = "mend it, and go on with --resume"


def _sentence(reason: str) -> str:
    return reason if reason.endswith(("?", "!", ".")) else f"{reason}."


_FAILURES: dict[str, type[ModelError]] = {kind.__name__: kind for kind in (ModelError, ModelRefused, ModelBusy)}


def _failure(attempt: Attempt) -> ModelError | None:
    """What a model's client raised in an attempt that broke off."""
    name, _, message = (attempt.trace.error or "").partition(": ")
    return _FAILURES[name](message) if name in _FAILURES else None


def _silence(reflection: Reflection) -> ModelError | None:
    """Why the reflector did not answer at all."""
    if not reflection.unusable or reflection.calls:
        return None
    return (ModelRefused if reflection.refused else ModelError)(reflection.unusable)


def _tally(attempts: Sequence[Attempt]) -> Tally:
    return Tally.of(attempt.score.total for attempt in attempts)


# Learning beside the work: experiences wait in a bounded queue, are reflected on, and go into a playbook file. Nothing that
# goes wrong there reaches whoever handed an experience in. It is logged and counted.

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningStats:
    """What became of the experiences that were handed in."""

    offered: int = 0
    learned: int = 0
    """Those whose lesson, if they had one, is in the file."""
    failed: int = 0
    """Those that were lost to a failure: a reflector that did not answer usably, or a file that could not be written."""
    dropped: int = 0
    """Those that gave way to newer ones while the queue was full."""
    abandoned: int = 0
    """Those that were not learned from when time was up at the end."""
    waiting: int = 0
    """In the queue, or being learned from."""
    added: int = 0
    """Bullets that were new."""
    reflector: Spent = field(default_factory=Spent)
    last_failure: str = ""
    """The newest failure, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lessons:
    """Where experiences become bullets."""

    path: Path
    """The playbook file, made when it is first written."""
    reflector: Model
    curator: Curator
    stamp: Callable[[], str]
    """ISO 8601, for bullets."""
    name: str
    """Stands in the provenance of every bullet."""
    base: Callable[[], Playbook] = Playbook
    """What the file begins as, and holds at the least: what is in production, where the file is to come after it."""

    async def reflect(self, experience: Experience, shown: Sequence[Bullet]) -> Reflection:
        return await reflect(self.reflector, [experience], shown)

    def merge(self, experiences: Sequence[Experience], insights: Sequence[Insight]) -> int:
        """Merge what they taught and how the shown bullets fared into the file; how many bullets were new."""
        id, at = f"{self.name}/{uuid.uuid4().hex}", self.stamp()
        # One that nobody has judged yet may be judged later, and is counted then.
        judged = [experience for experience in experiences if experience.solved is not None]

        added, base = 0, self.base()

        def make(found: Playbook) -> Batch:
            nonlocal added
            caught_up = _missing(base, found, f"{id}/base", at)
            playbook = found.apply(caught_up)
            origin = Origin(
                batch_id=id,
                at=at,
                run=self.name,
                model=self.reflector.name,
                questions=tuple(experience.task.question for experience in experiences),
            )
            batch, report = self.curator.curate(playbook, [insight for insight in insights if insight.content], origin)
            added = len(report.added)
            batch = replace(batch, deltas=(*batch.deltas, *votes(judged, playbook, insights)))
            learned = (*caught_up.deltas, *batch.deltas, *to_retire(playbook.apply(batch)))
            return replace(batch, deltas=learned, trained_on=batch.trained_on | caught_up.trained_on)

        merge(self.path, make, new=replace(base, created_at=base.created_at or at))
        return added


def _missing(base: Playbook, found: Playbook, id: str, at: str) -> Batch:
    """What brings a playbook up to another one: bullets that it lacks, and those that are retired there."""
    known = {bullet.id: bullet for bullet in found.bullets}
    added = [Add(bullet=bullet) for bullet in base.bullets if bullet.id not in known]
    gone = [bullet for bullet in base.bullets if bullet.retired and (old := known.get(bullet.id)) and not old.retired]
    retired = [Retire(bullet_id=bullet.id, reason=bullet.retired) for bullet in gone]
    return Batch(id=id, deltas=(*added, *retired), at=at, trained_on=base.trained_on)


@dataclass(frozen=True, slots=True)
class _Waiting:
    experience: Experience
    shown: tuple[Bullet, ...]
    done: asyncio.Future[None]


class Learner:
    """Learns from experiences in the background, in the order in which they came. Belongs to one event loop."""

    def __init__(self, lessons: Lessons, *, most_waiting: int = 100, most_together: int = 10) -> None:
        self._lessons = lessons
        self._most_waiting = most_waiting
        self._most_together = most_together
        self._queue: deque[_Waiting] = deque()
        self._busy: list[_Waiting] = []
        self._worker: asyncio.Task[None] | None = None
        self._stats = LearningStats()

    @property
    def stats(self) -> LearningStats:
        return replace(self._stats, waiting=len(self._queue) + len(self._busy))

    def offer(self, experience: Experience, shown: Sequence[Bullet]) -> asyncio.Future[None]:
        """Hand an experience in, with the bullets that it was shown; the future is done once it is behind us. Never waits.

        When the queue is full the oldest gives way: the newest comes of the playbook as it is now.
        """
        done = asyncio.get_running_loop().create_future()
        self._count(offered=1)
        if len(self._queue) >= self._most_waiting:
            self._queue.popleft().done.set_result(None)
            self._count(dropped=1)
            log.warning("learning is behind: an experience was dropped, as %d were waiting", self._most_waiting)
        self._queue.append(_Waiting(experience, tuple(shown), done))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return done

    async def close(self, patience: float) -> None:
        """Learn from what is waiting, for so many seconds; what is left then is abandoned, and counted."""
        if self._worker is None:
            return
        _, late = await asyncio.wait([self._worker], timeout=patience)
        if not late:
            return
        self._worker.cancel()
        await asyncio.wait([self._worker])
        left = [*self._busy, *self._queue]
        self._busy = []
        self._queue.clear()
        self._count(abandoned=len(left))
        log.warning("%d experiences were not learned from: there was no time left", len(left))
        for waiting in left:
            waiting.done.set_result(None)

    async def _work(self) -> None:
        while self._queue:
            self._busy = [self._queue.popleft() for _ in range(min(self._most_together, len(self._queue)))]
            try:
                await self._learn(self._busy)
            except Exception as error:  # noqa: BLE001 - the boundary: no failure to learn may stop the work
                self._fail(len(self._busy), f"{type(error).__name__}: {error}")
            for waiting in self._busy:
                waiting.done.set_result(None)
            self._busy = []

    async def _learn(self, group: Sequence[_Waiting]) -> None:
        reflections = await asyncio.gather(*(self._lessons.reflect(one.experience, one.shown) for one in group))
        calls = [call for reflection in reflections for call in reflection.calls]
        self._stats = replace(self._stats, reflector=self._stats.reflector + Spent.of(calls))
        unusable = [reflection.unusable for reflection in reflections if reflection.unusable]
        insights = [insight for reflection in reflections for insight in reflection.insights]
        # A merge waits for other processes, and that is not for the loop to do. How bullets fared is known without a lesson.
        added = await asyncio.to_thread(self._lessons.merge, [one.experience for one in group], insights)
        self._count(learned=len(group) - len(unusable), added=added)
        if unusable:
            self._fail(len(unusable), unusable[-1])

    def _fail(self, count: int, why: str) -> None:
        log.warning("nothing was learned from %d experiences: %s", count, why)
        self._count(failed=count)
        self._stats = replace(self._stats, last_failure=why)

    def _count(self, **more: int) -> None:
        self._stats = replace(self._stats, **{name: getattr(self._stats, name) + count for name, count in more.items()})
