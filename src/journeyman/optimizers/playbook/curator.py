"""From insights to deltas: what is new is added, what is there already gains support, what may not be learned is refused.

In stages, the cheap ones first: the same text is found by its normalised words, then near texts by the embeddings of the new
insights alone, in one exact search a batch, among the active bullets of the same domain and within the batch itself.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from journeyman.core.errors import InputError
from journeyman.core.playbook import (
    MERGED,
    Add,
    Batch,
    Bullet,
    Delta,
    Insight,
    InsightVerdict,
    Playbook,
    Provenance,
    Support,
    bullet_id,
    normalised,
)
from journeyman.core.task import fingerprints
from journeyman.models.embedders import Cached, Embedder
from journeyman.optimizers.playbook.conflict import conflicts, contradicts, distinct, usable, winner
from journeyman.optimizers.playbook.index import Index, alike

__all__ = [
    "CurateReport",
    "Curator",
    "Origin",
    "Rejection",
    "conflicts",
    "contradicts",
    "copied",
    "distinct",
    "usable",
    "winner",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a batch of insights comes from."""

    batch_id: str
    at: str = ""
    """When, in ISO 8601."""
    run: str = ""
    model: str = ""
    """The reflector that wrote them."""
    questions: tuple[str, ...] = ()
    """The texts of the batch's training tasks, which may not be learned by heart."""
    rejected: frozenset[str] = frozenset()
    """`Rejection.id`s of earlier batches: what was refused once is not considered again."""
    returning: frozenset[str] = frozenset()
    """Retired bullets that may be learned again, each as one of its own: what was told of it before stays with the old one."""


@dataclass(frozen=True, slots=True)
class Rejection:
    id: str
    """Made of domain and content, as a bullet's."""
    content: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CurateReport:
    """What became of each insight: it was added, it incremented a bullet, or it was rejected."""

    added: tuple[str, ...] = ()
    """Ids of the new bullets."""
    incremented: tuple[str, ...] = ()
    """The bullet for each insight that was there already; one that came twice stands here twice."""
    rejected: tuple[Rejection, ...] = ()
    conflicts: tuple[tuple[str, str], ...] = ()
    """A new bullet and one that it contradicts. Both are kept; evidence decides (`usable`)."""


@dataclass(slots=True)
class _Work:
    """A batch in the making."""

    origin: Origin
    fresh: dict[str, Insight] = field(default_factory=dict)
    """By the id that it would have; not found by its text."""
    again: list[tuple[str, Insight]] = field(default_factory=list)
    """Insights that are there already, each with the bullet's id."""
    near: dict[str, str] = field(default_factory=dict)
    """For the id of a fresh one that turned out to be near a bullet, that bullet's."""
    added: dict[str, Bullet] = field(default_factory=dict)
    rejected: list[Rejection] = field(default_factory=list)
    conflicts: list[tuple[str, str]] = field(default_factory=list)

    def result(self) -> tuple[Batch, CurateReport]:
        adds: list[Delta] = [Add(bullet=bullet) for bullet in self.added.values()]
        again = [(self.near.get(id, id), insight) for id, insight in self.again]
        supports = [Support(bullet_id=id, task_ids=insight.task_ids) for id, insight in again]
        report = CurateReport(
            added=tuple(self.added),
            incremented=tuple(id for id, _ in again),
            rejected=tuple(self.rejected),
            conflicts=tuple(self.conflicts),
        )
        origin = self.origin
        trained_on = fingerprints(origin.questions)
        return Batch(id=origin.batch_id, deltas=(*adds, *supports), at=origin.at, trained_on=trained_on), report


class Curator:
    """Decides what to do with insights. What it remembers between batches only saves work: it never changes a decision."""

    def __init__(self, embedder: Embedder, similarity_threshold: float = 0.8, index: Index | None = None) -> None:
        if not 0 < similarity_threshold <= 1:
            raise InputError(f"a similarity threshold of {similarity_threshold} cannot be; it lies above 0 and at most at 1")
        self.embedder = embedder if isinstance(embedder, Cached) else Cached(embedder)
        self.similarity_threshold = similarity_threshold
        self._known = _Known(self.embedder, index or Index())

    def curate(self, playbook: Playbook, insights: Iterable[Insight], origin: Origin) -> tuple[Batch, CurateReport]:
        """The deltas that bring the insights in, and what became of each. The order of the insights does not matter."""
        self._known.follow(playbook)
        work = _Work(origin)
        copies = _Copies(origin.questions)
        for insight in sorted(map(_clean, insights), key=_canonical):
            self._by_text(insight, work, copies)
        self._by_likeness(work)
        return work.result()

    def _by_text(self, insight: Insight, work: _Work, copies: "_Copies") -> None:
        id = bullet_id(insight.domain, insight.content)
        there = self._known.bullet(insight, id)
        if there is not None and there.retired and there.id in work.origin.returning:
            id, there = bullet_id(insight.domain, f"{insight.content} {there.id}"), None
        rule: Bullet | Insight | None = there or work.fresh.get(id)
        if reason := _refusal(insight, id, rule, work.origin.rejected, copies):
            work.rejected.append(Rejection(id, insight.content, reason))
        elif rule:
            work.again.append((there.id if there else id, insight))
        else:
            work.fresh[id] = insight

    def _by_likeness(self, work: _Work) -> None:
        domains: defaultdict[str, list[tuple[str, Insight]]] = defaultdict(list)
        for id, insight in work.fresh.items():
            domains[insight.domain].append((id, insight))
        for domain, fresh in domains.items():
            vectors = self.embedder.embed([insight.content for _, insight in fresh])
            hits = self._known.index.search(domain, vectors, self.similarity_threshold)
            for (id, insight), old, new in zip(fresh, hits, alike(vectors, self.similarity_threshold), strict=True):
                bullets = self._known.oldest_first(old)
                bullets += [work.added[fresh[place][0]] for place in new if fresh[place][0] in work.added]
                same = next((bullet for bullet in bullets if not distinct(insight, bullet)), None)
                if same:
                    work.near[id] = same.id
                    work.again.append((same.id, insight))
                else:
                    self._add(id, insight, bullets, work)

    def _add(self, id: str, insight: Insight, near: Sequence[Bullet], work: _Work) -> None:
        rivals = {bullet.id: bullet for bullet in near} | {bullet.id: bullet for bullet in self._known.about(insight)}
        if insight.about:
            rivals |= {bullet.id: bullet for bullet in work.added.values() if bullet.about == insight.about}
        work.conflicts += [(id, rival.id) for rival in rivals.values() if contradicts(insight, rival)]
        work.added[id] = Bullet(
            id=id,
            content=insight.content,
            section=insight.section,
            domain=insight.domain,
            about=insight.about,
            provenance=Provenance(run=work.origin.run, tasks=insight.task_ids, model=work.origin.model),
            created_at=work.origin.at,
            updated_at=work.origin.at,
        )


def _clean(insight: Insight) -> Insight:
    # Half a surrogate pair, which a model's JSON may hold, fits into no file.
    content = insight.content.encode(errors="replace").decode().strip()
    return insight if content == insight.content else replace(insight, content=content)


_SECTIONS = {InsightVerdict.HELPFUL.value: 0, InsightVerdict.HARMFUL.value: 2}


def _canonical(insight: Insight) -> tuple[str, str, int, str]:
    """An order made of what insights say. Of one text with two verdicts the helpful one comes first."""
    return insight.domain, normalised(insight.content), _SECTIONS.get(insight.section, 1), repr(insight)


def _refusal(insight: Insight, id: str, there: Bullet | Insight | None, rejected: frozenset[str], copies: "_Copies") -> str:
    """Why an insight may not become a bullet; nothing if it may."""
    if not normalised(insight.content):
        return "it says nothing"
    if isinstance(there, Bullet) and there.retired:
        return "a bullet that said so was retired"
    if isinstance(there, Bullet) and there.domain != insight.domain:
        return "the bullet that said so was moved to another domain"
    if not there and id in rejected:
        return "it was rejected before"
    if there and contradicts(insight, there):
        return "the same words are there with the opposite verdict: votes decide"
    if not there and copies.hold(insight.content):
        return "it is copied from a training task"
    return ""


class _Known:
    """A playbook as the curator looks things up in it. Follows it from batch to batch, looking at what changed alone."""

    def __init__(self, embedder: Embedder, index: Index) -> None:
        self.embedder = embedder
        self.index = index
        self._forget()

    def _forget(self) -> None:
        self._held: dict[str, Bullet] = {}
        self._place: dict[str, int] = {}
        self._by_text: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._by_about: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def follow(self, playbook: Playbook) -> None:
        if list(self._held) != [bullet.id for bullet in playbook.bullets[: len(self._held)]]:
            # Another playbook than before.
            for bullet in self._held.values():
                self.index.remove(bullet.domain, [bullet.id])
            self._forget()
        changed: defaultdict[str, list[Bullet]] = defaultdict(list)
        for bullet in playbook.bullets:
            old = self._held.get(bullet.id)
            # A merge leaves what it does not change as the very same object.
            if old is not bullet:
                self._take(old, bullet)
                if not bullet.retired and (old is None or _shelved(old) != _shelved(bullet)):
                    changed[bullet.domain].append(bullet)
        for domain, bullets in changed.items():
            vectors = self.embedder.embed([bullet.content for bullet in bullets])
            self.index.put(domain, [bullet.id for bullet in bullets], vectors)

    def bullet(self, insight: Insight, id: str) -> Bullet | None:
        """The bullet with the same text in the insight's domain, an active one before a retired, else the one that was retired
        last; or the one with its id.

        Where it was merged into another, that other.
        """
        same = [self._held[found] for found in self._by_text.get((insight.domain, normalised(insight.content)), ())]
        bullet = min(same, key=self._active_first, default=self._held.get(id))
        while bullet and bullet.retired.startswith(MERGED):
            bullet = self._held.get(bullet.retired.removeprefix(MERGED))
        return bullet

    def _active_first(self, bullet: Bullet) -> tuple[bool, int]:
        place = self._place[bullet.id]
        return bool(bullet.retired), -place if bullet.retired else place

    def oldest_first(self, hits: Sequence[tuple[str, float]]) -> list[Bullet]:
        """The bullets of a search, the nearest first and of equals the oldest."""
        order = sorted(hits, key=lambda hit: (-round(hit[1], 5), self._place[hit[0]]))
        return [self._held[id] for id, _ in order]

    def about(self, insight: Insight) -> list[Bullet]:
        """The active bullets that fix the same setting."""
        found = self._by_about.get((insight.domain, insight.about), set()) if insight.about else set()
        return [self._held[id] for id in sorted(found, key=self._place.__getitem__)]

    def _take(self, old: Bullet | None, new: Bullet) -> None:
        if old is not None:
            self._by_text[old.domain, normalised(old.content)].discard(old.id)
            self._by_about[old.domain, old.about].discard(old.id)
            if new.retired or new.domain != old.domain:
                self.index.remove(old.domain, [old.id])
        self._held[new.id] = new
        self._place.setdefault(new.id, len(self._place))
        self._by_text[new.domain, normalised(new.content)].add(new.id)
        if new.about and not new.retired:
            self._by_about[new.domain, new.about].add(new.id)


def _shelved(bullet: Bullet) -> tuple[str, str, bool]:
    """What decides where a bullet's vector lies."""
    return bullet.domain, bullet.content, bool(bullet.retired)


def copied(content: str, questions: Iterable[str], n: int = 8) -> bool:
    """Whether a text is taken from a task: n words in a row are the same, or three quarters of a text that is shorter than n.

    Texts of fewer than four words are never taken for copies.
    """
    return _Copies(tuple(questions), n).hold(content)


class _Copies:
    """The word n-grams of some questions."""

    def __init__(self, questions: tuple[str, ...], n: int = 8) -> None:
        self._questions = [_words(question) for question in questions]
        self._n = n
        self._grams: dict[int, set[tuple[str, ...]]] = {}

    def hold(self, content: str) -> bool:
        words = _words(content)
        size = self._n if len(words) >= self._n else max(4, ceil(0.75 * len(words)))
        if size not in self._grams:
            self._grams[size] = {gram for question in self._questions for gram in _grams(question, size)}
        return not self._grams[size].isdisjoint(_grams(words, size))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _grams(words: Sequence[str], size: int) -> Iterable[tuple[str, ...]]:
    return (tuple(words[at : at + size]) for at in range(len(words) - size + 1))
