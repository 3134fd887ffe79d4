"""Tidying a playbook: the deltas that merge what says the same and retire what is not worth its place."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from journeyman.embed.base import Embedder
from journeyman.errors import InputError
from journeyman.learn.playbook.attribute import to_retire
from journeyman.learn.playbook.conflict import distinct
from journeyman.learn.playbook.index import alike
from journeyman.playbook import Bullet, Merge, Playbook, Retire, Verdict, normalised


@dataclass(frozen=True, slots=True)
class Duplicates:
    """What `duplicates` found."""

    merges: tuple[Merge, ...]
    exact: int
    """Bullets that are gone since an older one has their text, case and spacing apart."""
    near: int
    """Bullets that are gone since an older one says the same in other words."""
    kept_apart: int
    """Bullets that are near an older one and yet say something else: another number or name, or the opposite."""


def duplicates(playbook: Playbook, embedder: Embedder, similarity_threshold: float = 0.8) -> Duplicates:
    """The merges after which no two active bullets of a domain say the same. The older one is kept.

    The same text is found by its normalised words, then near texts by their embeddings. A bullet is merged into one that
    itself stays, never along a chain of likenesses. Locked bullets are left alone.
    """
    if not 0 < similarity_threshold <= 1:
        raise InputError(f"a similarity threshold of {similarity_threshold} cannot be; it lies above 0 and at most at 1")
    gone: defaultdict[str, list[str]] = defaultdict(list)
    exact = near = apart = 0
    for bullets in _domains(playbook):
        by_text: dict[tuple[bool, str], Bullet] = {}
        for bullet in bullets:
            # The same words as something to do and as something to avoid are a contradiction.
            kept = by_text.setdefault((bullet.section == Verdict.HARMFUL, normalised(bullet.content)), bullet)
            if kept is not bullet:
                gone[kept.id].append(bullet.id)
                exact += 1
        rest = list(by_text.values())
        into = _near(rest, alike(embedder.embed([bullet.content for bullet in rest]), similarity_threshold))
        near += sum(target is not None for target in into.values())
        apart += sum(target is None for target in into.values())
        for bullet in rest:
            if target := into.get(bullet.id):
                # What was merged into it by its text goes with it.
                gone[target] += [bullet.id, *gone.pop(bullet.id, [])]
    merges = tuple(Merge(kept=kept, gone=tuple(ids)) for kept, ids in gone.items())
    return Duplicates(merges, exact, near, apart)


def _near(bullets: Sequence[Bullet], alike: Sequence[Sequence[int]]) -> dict[str, str | None]:
    """For each bullet that is near an older one, the one that it is merged into, or `None` if it says something else."""
    into: dict[str, str | None] = {}
    for bullet, places in zip(bullets, alike, strict=True):
        older = [bullets[place] for place in places if into.get(bullets[place].id) is None]
        if older:
            into[bullet.id] = next((one.id for one in older if not distinct(bullet, one)), None)
    return into


def _domains(playbook: Playbook) -> Iterator[list[Bullet]]:
    domains: defaultdict[str, list[Bullet]] = defaultdict(list)
    for bullet in playbook.active:
        if not bullet.locked:
            domains[bullet.domain].append(bullet)
    yield from domains.values()


def superfluous(
    playbook: Playbook, *, min_confidence: float = 0.0, max_bullets: int | None = None, harmful: bool = False
) -> tuple[Retire, ...]:
    """What to retire, each with its reason, in the order of the playbook. Locked bullets stay, and count as bullets.

    Args:
        playbook: The playbook to look at.
        min_confidence: Bullets with votes whose confidence is below are retired; without votes nothing is known of one.
        max_bullets: Of more active bullets than this, the least confident are retired; of equals the less supported, and of
            those the newer.
        harmful: Retire bullets whose harmful votes outweigh the helpful ones, by the rule that training has, too.
    """
    reasons = {retire.bullet_id: retire.reason for retire in to_retire(playbook)} if harmful else {}
    for bullet in playbook.active:
        voted = bullet.helpful + bullet.harmful > 0
        if voted and bullet.confidence < min_confidence and bullet.id not in reasons and not bullet.locked:
            votes = f"{bullet.helpful} helpful, {bullet.harmful} harmful"
            reasons[bullet.id] = f"confidence {bullet.confidence:.2f} is below {min_confidence} ({votes})"
    if max_bullets is not None:
        left = [bullet for bullet in playbook.active if bullet.id not in reasons]
        weakest = sorted(reversed(left), key=lambda bullet: (bullet.locked, bullet.confidence, bullet.support))
        for bullet in weakest[: max(0, len(left) - max_bullets)]:
            if not bullet.locked:
                reasons[bullet.id] = f"only {max_bullets} bullets are kept, and others are worth more"
    return tuple(Retire(bullet_id=b.id, reason=reasons[b.id]) for b in playbook.active if b.id in reasons)
