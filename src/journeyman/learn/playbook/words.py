"""What changed from one playbook to another, in words."""

from collections.abc import Iterator
from dataclasses import dataclass

from journeyman.playbook import MERGED, Bullet, Playbook

_COUNTS = ("shown", "cited", "helpful", "harmful", "support")
_PLACES = ("domain", "section", "stage", "about")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it was."""

    kind: str
    """added, removed, retired, revived, merged, reworded, moved, locked, unlocked or counted."""
    bullet_id: str
    words: str
    """A sentence without the id."""


def describe(before: Playbook, after: Playbook) -> list[str]:
    """The differences, one line each, in the order of the playbooks; nothing when they say the same."""
    return [f"{difference.bullet_id} {difference.words}" for difference in differences(before, after)]


def differences(before: Playbook, after: Playbook) -> list[Difference]:
    """As `describe`, for programs. Dates, provenance and what other systems said are not compared."""
    old = {bullet.id: bullet for bullet in before.bullets}
    new = {bullet.id: bullet for bullet in after.bullets}
    found: list[Difference] = []
    for bullet in after.bullets:
        was = old.get(bullet.id)
        found += _changed(was, bullet) if was else [_added(bullet)]
    found += [Difference("removed", id, f"is gone: {was.content!r}") for id, was in old.items() if id not in new]
    return found


def _added(bullet: Bullet) -> Difference:
    retired = f", retired already ({bullet.retired})" if bullet.retired else ""
    place = f"{bullet.domain}, {bullet.section}, {bullet.stage.value}"
    return Difference("added", bullet.id, f"is new ({place}){retired}: {bullet.content!r}")


def _changed(was: Bullet, now: Bullet) -> Iterator[Difference]:
    if was.content != now.content:
        yield Difference("reworded", now.id, f"was {was.content!r} and is now {now.content!r}")
    if was.retired != now.retired:
        yield _retired(was, now)
    moves = [(name, getattr(was, name), getattr(now, name)) for name in _PLACES]
    moved = [f"from {name} {old or '(none)'} to {new or '(none)'}" for name, old, new in moves if old != new]
    if moved:
        yield Difference("moved", now.id, f"moved {', '.join(moved)}")
    if was.locked != now.locked:
        kind = "locked" if now.locked else "unlocked"
        yield Difference(kind, now.id, f"was {kind}")
    counts = [(name, getattr(was, name), getattr(now, name)) for name in _COUNTS]
    counted = [f"{name} {old} to {new} ({new - old:+d})" for name, old, new in counts if old != new]
    if counted:
        yield Difference("counted", now.id, f"went from {', '.join(counted)}")


def _retired(was: Bullet, now: Bullet) -> Difference:
    if not now.retired:
        return Difference("revived", now.id, f"is used again; it had been retired: {was.retired}")
    if was.retired:
        return Difference("retired", now.id, f"stays retired, now because: {now.retired}")
    if now.retired.startswith(MERGED):
        return Difference("merged", now.id, f"was {now.retired}")
    return Difference("retired", now.id, f"was retired: {now.retired}")
