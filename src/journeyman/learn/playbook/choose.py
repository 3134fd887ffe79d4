"""Which bullets go into a prompt: all of them while they fit, else the best for the task."""

from collections.abc import Callable, Sequence

import numpy as np

from journeyman.embed.base import Embedder
from journeyman.learn.playbook.curate import usable
from journeyman.learn.playbook.index import Hit, MatrixShelf
from journeyman.playbook import Bullet, Playbook
from journeyman.task import Task

CHARACTERS_PER_TOKEN = 4
"""A rule of thumb for English under BPE tokenizers; a budget needs no more."""
LINE = 8
"""Tokens of a bullet's id and marks."""


def tokens(bullet: Bullet) -> int:
    """About how many tokens the bullet takes in a prompt."""
    return len(bullet.content) // CHARACTERS_PER_TOKEN + LINE


def chooser(playbook: Playbook, embedder: Embedder, *, budget: int = 2000) -> Callable[[Task], tuple[Bullet, ...]]:
    """A function from task to the bullets that its prompt should hold, in the playbook's order.

    Bullets are of the task's domain; of two that contradict each other only the one with more evidence is shown. While all of
    them fit into `budget` tokens, all are given; else the best by likeness to the question times confidence, until the
    budget is full.
    """
    shelves: dict[str, _Domain] = {}

    def choose(task: Task) -> tuple[Bullet, ...]:
        if task.domain not in shelves:
            shelves[task.domain] = _Domain(usable(playbook, task.domain), embedder, budget)
        return shelves[task.domain].choose(task.question)

    return choose


class _Domain:
    """The bullets of one domain, embedded once, and only when they do not fit as a whole."""

    def __init__(self, bullets: Sequence[Bullet], embedder: Embedder, budget: int) -> None:
        self._bullets = tuple(bullets)
        self._embedder = embedder
        self._budget = budget
        self._fits = sum(map(tokens, bullets)) <= budget
        if not self._fits:
            self._shelf = MatrixShelf()
            self._shelf.put([bullet.id for bullet in bullets], embedder.embed([bullet.content for bullet in bullets]))
            self._confidence = np.array([bullet.confidence for bullet in bullets], np.float32)
            self._place = {bullet.id: place for place, bullet in enumerate(bullets)}
            self._least = min(map(tokens, bullets))

    def choose(self, question: str) -> tuple[Bullet, ...]:
        if self._fits:
            return self._bullets
        query = self._embedder.embed([question])[0]
        # Only where long bullets of the first rank were passed over is there room for those of the second.
        for most in (self._budget // self._least + 1, len(self._bullets)):
            chosen, left = self._filled(self._shelf.top(query, most, self._confidence))
            if left < self._least:
                break
        return tuple(sorted(chosen, key=lambda bullet: self._place[bullet.id]))

    def _filled(self, ranked: Sequence[Hit]) -> tuple[list[Bullet], int]:
        """The bullets that fit, best first, and the tokens that are left."""
        chosen, left = [], self._budget
        for id, _ in ranked:
            bullet = self._bullets[self._place[id]]
            if tokens(bullet) <= left:
                chosen.append(bullet)
                left -= tokens(bullet)
        return chosen, left
