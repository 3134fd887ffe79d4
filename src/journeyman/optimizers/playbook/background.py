"""Learning beside the work: experiences wait in a bounded queue, are reflected on, and go into a playbook file.

Nothing that goes wrong here reaches whoever handed an experience in. It is logged and counted.
"""

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from journeyman.core.playbook import Batch, Bullet, Insight, Playbook
from journeyman.core.score import Experience
from journeyman.models.base import Model
from journeyman.optimizers.playbook.curator import Curator, Origin
from journeyman.optimizers.playbook.edit import merge
from journeyman.optimizers.playbook.reflector import Reflection, reflect
from journeyman.optimizers.playbook.retrieval import to_retire, votes
from journeyman.optimizers.playbook.run import Spent

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

    async def reflect(self, experience: Experience, shown: Sequence[Bullet]) -> Reflection:
        return await reflect(self.reflector, [experience], shown)

    def merge(self, experiences: Sequence[Experience], insights: Sequence[Insight]) -> int:
        """Merge what they taught and how the shown bullets fared into the file; how many bullets were new."""
        id, at = f"{self.name}/{uuid.uuid4().hex}", self.stamp()
        # One that nobody has judged yet may be judged later, and is counted then.
        judged = [experience for experience in experiences if experience.solved is not None]

        added = 0

        def make(playbook: Playbook) -> Batch:
            nonlocal added
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
            return replace(batch, deltas=(*batch.deltas, *to_retire(playbook.apply(batch))))

        merge(self.path, make, new=Playbook(created_at=at))
        return added


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
