"""Which bullets go into a prompt: all of them while they fit, else the best for the task."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from math import comb

import numpy as np

from journeyman.agents.answer import CHARACTERS_PER_TOKEN, strategies
from journeyman.core.playbook import Bullet, Insight, InsightVerdict, Playbook, Retire, Vote
from journeyman.core.score import Experience
from journeyman.core.task import Task
from journeyman.models.embedders import Embedder, HashingEmbedder
from journeyman.optimizers.playbook.conflict import Contradictions, contradicts
from journeyman.optimizers.playbook.index import Hit, MatrixShelf

LINE = 8
"""Tokens of a bullet's id and marks."""


def tokens(bullet: Bullet) -> int:
    """About how many tokens the bullet takes in a prompt."""
    return len(bullet.content) // CHARACTERS_PER_TOKEN + LINE


def chooser(
    playbook: Playbook, embedder: Embedder, *, budget: int = 2000, min_support: int = 1
) -> Callable[[Task], tuple[Bullet, ...]]:
    """A function from task to the bullets that its prompt should hold: for one playbook, as `Chooser` for many."""
    return Chooser(embedder, budget=budget, min_support=min_support).of(playbook)


def prompt(playbook: Playbook, task: Task, embedder: Embedder | None = None, *, budget: int = 2000) -> str:
    """The text that agents are given of a playbook for a task; empty where it has nothing for it."""
    return strategies(chooser(playbook, embedder or HashingEmbedder(), budget=budget)(task))


class Chooser:
    """Chooses bullets for prompts. Follows a playbook from revision to revision: what it remembers only saves work.

    Bullets are of the task's domain; of two that contradict each other only the one with more evidence is shown. While all of
    them fit into `budget` tokens, all are given; else the best by likeness to the question times confidence, until the
    budget is full. A bullet that reflection on fewer than `min_support` different tasks has written is not shown before an
    attempt is credited to it or a person locks it: one attempt's noise is no rule. One that no task has written, as an
    imported one, is.
    """

    def __init__(self, embedder: Embedder, *, budget: int = 2000, min_support: int = 1) -> None:
        self._embedder = embedder
        self._budget = budget
        self._min_support = min_support
        self._domains: dict[str, _Domain] = {}

    def of(self, playbook: Playbook) -> Callable[[Task], tuple[Bullet, ...]]:
        """A function from task to the bullets that its prompt should hold, in the playbook's order."""

        def choose(task: Task) -> tuple[Bullet, ...]:
            if task.domain not in self._domains:
                self._domains[task.domain] = _Domain(task.domain, self._embedder, self._budget, self._min_support)
            domain = self._domains[task.domain]
            domain.follow(playbook)
            return domain.choose(task.question)

        return choose


def proven(bullet: Bullet, min_support: int) -> bool:
    """Whether it rests on more than one attempt: on several tasks' reflections, an attempt that went well, or a person."""
    written = len(bullet.provenance.tasks)
    return not written or written >= min_support or bool(bullet.helpful) or bullet.locked


class _Domain:
    """The bullets of one domain, embedded once, and only when they do not fit as a whole."""

    def __init__(self, name: str, embedder: Embedder, budget: int, min_support: int) -> None:
        self._name = name
        self._embedder = embedder
        self._budget = budget
        self._min_support = min_support
        self._playbook: Playbook | None = None
        self._contradictions = Contradictions()
        self._shelf = MatrixShelf()
        self._texts: dict[str, str | None] = {}
        """What was embedded for each row of the shelf; `None` for a bullet that was not shown yet."""

    def follow(self, playbook: Playbook) -> None:
        if playbook is self._playbook:
            return
        members = [bullet for bullet in playbook.bullets if bullet.domain == self._name]
        candidates = [bullet for bullet in playbook.of(self._name) if proven(bullet, self._min_support)]
        self._contradictions.follow(candidates)
        losers = self._contradictions.losers()
        self._bullets = tuple(bullet for bullet in candidates if bullet.id not in losers)
        sizes = [tokens(bullet) for bullet in self._bullets]
        self._fits = sum(sizes) <= self._budget
        if not self._fits:
            self._least = min(sizes)
            self._rank(members)
        self._playbook = playbook

    def _rank(self, members: Sequence[Bullet]) -> None:
        """Bring the shelf up to date. It has a row for every bullet there ever was, so that likeness is the same to the last
        digit whether revisions were followed or the last one was read anew."""
        if list(self._texts) != [bullet.id for bullet in members[: len(self._texts)]]:
            self._shelf, self._texts = MatrixShelf(), {}
        fresh = [bullet for bullet in self._bullets if self._texts.get(bullet.id) != bullet.content]
        vectors = self._embedder.embed([bullet.content for bullet in fresh]) if fresh else self._shelf.vectors[:0]
        born = [bullet.id for bullet in members[len(self._texts) :]]
        self._shelf.put(born, np.zeros((len(born), vectors.shape[1]), np.float32))
        self._shelf.put([bullet.id for bullet in fresh], vectors)
        self._texts |= dict.fromkeys(born) | {bullet.id: bullet.content for bullet in fresh}
        self._place = {id: place for place, id in enumerate(self._texts)}
        self._shown = {bullet.id: bullet for bullet in self._bullets}
        self._without = [place for id, place in self._place.items() if id not in self._shown]
        self._confidence = np.zeros(len(self._place), np.float32)
        self._confidence[[self._place[id] for id in self._shown]] = [bullet.confidence for bullet in self._bullets]

    def choose(self, question: str) -> tuple[Bullet, ...]:
        if self._fits:
            return self._bullets
        query = self._embedder.embed([question])[0]
        # Only where long bullets of the first rank were passed over is there room for those of the second.
        for most in (self._budget // self._least + 1, len(self._bullets)):
            chosen, left = self._filled(self._shelf.top(query, most, self._confidence, self._without))
            if left < self._least:
                break
        return tuple(sorted(chosen, key=lambda bullet: self._place[bullet.id]))

    def _filled(self, ranked: Sequence[Hit]) -> tuple[list[Bullet], int]:
        """The bullets that fit, best first, and the tokens that are left."""
        chosen, left = [], self._budget
        for id, _ in ranked:
            bullet = self._shown[id]
            if tokens(bullet) <= left:
                chosen.append(bullet)
                left -= tokens(bullet)
        return chosen, left


# Who is credited with an attempt that went well, and who is blamed for one that did not.
#
# Shown, cited and outcome are three counts. A vote comes from the outcome of an attempt that showed the bullet, never from a
# similar insight having been written again.


def votes(experiences: Sequence[Experience], playbook: Playbook, insights: Sequence[Insight]) -> tuple[Vote, ...]:
    """One vote a bullet, over all the attempts, in the order of ids.

    Solved: helpful for the bullets that were cited, or for all that were shown where none was. Failed: harmful for those
    alone that an insight from the same attempt calls harmful, or contradicts; a failure that no rule caused is no rule's
    fault. Unknown outcome: shown, and no more. Locked and unknown bullets get no votes.
    """
    bullets = {bullet.id: bullet for bullet in playbook.bullets if not bullet.locked}
    drawn: defaultdict[str, list[Insight]] = defaultdict(list)
    for insight in insights:
        for trace_id in insight.trace_ids:
            drawn[trace_id].append(insight)
    counts = Counter(
        (id, count)
        for experience in experiences
        for id, count in _counted(experience, bullets, drawn[experience.trace.id])
        if id in bullets
    )
    return tuple(
        Vote(
            bullet_id=id,
            shown=counts[id, "shown"],
            cited=counts[id, "cited"],
            helpful=counts[id, "helpful"],
            harmful=counts[id, "harmful"],
        )
        for id in sorted({id for id, _ in counts})
    )


def _counted(experience: Experience, bullets: dict[str, Bullet], drawn: Sequence[Insight]) -> Iterator[tuple[str, str]]:
    shown = experience.trace.shown
    # A model may cite what it was never shown; that is no use of it.
    cited = experience.trace.cited & shown
    yield from ((id, "shown") for id in shown)
    yield from ((id, "cited") for id in cited)
    if experience.solved:
        yield from ((id, "helpful") for id in cited or shown)
    elif experience.solved is False:
        yield from ((id, "harmful") for id in shown if id in bullets and _blamed(bullets[id], drawn))


def _blamed(bullet: Bullet, drawn: Sequence[Insight]) -> bool:
    return any(
        (insight.section == InsightVerdict.HARMFUL and bullet.id in insight.concerns) or contradicts(insight, bullet)
        for insight in drawn
    )


LEAST_HARM = 3
"""Harmful votes without which nothing is retired."""
CERTAINTY = 0.95


def chance_of_harm(helpful: int, harmful: int) -> float:
    """The chance that the bullet's true rate of going well is below one half, given its votes.

    The rate is Beta(1 + helpful, 1 + harmful): a uniform prior (Gelman et al., Bayesian Data Analysis, 3rd ed., section 2.1).
    For whole numbers its distribution function at one half is a sum of binomials (Abramowitz and Stegun, 26.5.24).
    """
    trials = helpful + harmful + 1
    return sum(comb(trials, wins) for wins in range(helpful + 1, trials + 1)) / (1 << trials)


def to_retire(playbook: Playbook) -> tuple[Retire, ...]:
    """The bullets that do harm: at least 3 harmful votes, and 95 % sure that they harm more often than they help."""
    return tuple(
        Retire(
            bullet_id=bullet.id,
            reason=f"{bullet.harmful} harmful votes against {bullet.helpful} helpful: {chance:.1%} sure it harms",
        )
        for bullet in playbook.active
        if not bullet.locked and bullet.harmful >= LEAST_HARM and bullet.harmful > bullet.helpful
        if (chance := chance_of_harm(bullet.helpful, bullet.harmful)) > CERTAINTY
    )
