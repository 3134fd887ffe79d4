"""Changes made to a playbook file by hand: each goes to the journal beside the file first, so each can be undone.

The journal of `oslo.json` is `oslo.journal.jsonl`. It begins with the first change. Who changes a file is alone with it from
reading to writing, so processes that share one lose none of each other's changes.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from journeyman.core.errors import InputError, PlaybookError
from journeyman.core.format import counted
from journeyman.core.playbook import (
    MERGED,
    Batch,
    Bullet,
    Delta,
    Hold,
    InsightVerdict,
    Merge,
    Playbook,
    Retire,
    normalised,
)
from journeyman.io.files import locked, read_text
from journeyman.optimizers.playbook import files, formats
from journeyman.optimizers.playbook.conflict import distinct
from journeyman.optimizers.playbook.formats import json_of
from journeyman.optimizers.playbook.journal import Entry, Journal, read, replay

if TYPE_CHECKING:
    from journeyman.models.embedders import Embedder


@dataclass(frozen=True, slots=True)
class Edited:
    """A playbook after a change."""

    playbook: Playbook
    revision: int | None
    """In the journal; `None` where nothing was written to one."""
    moved: Path | None = None
    """Where the journal went that knew nothing of the file as it was found."""


def journal_of(path: Path) -> Path:
    """The journal of a playbook file; a journal is its own."""
    return path if path.suffix == ".jsonl" else path.with_suffix(".journal.jsonl")


def at_revision(name: str) -> Playbook:
    """The playbook called `FILE`, or `FILE@3`: its revision 3, out of the journal beside it."""
    path, _, revision = name.rpartition("@")
    if path and revision.isdecimal() and not Path(name).exists():
        return replay(_journal(Path(path)), int(revision))
    return replay(Path(name)) if name.endswith(".jsonl") else files.load(name)


def batch(playbook: Playbook, verb: str, deltas: Sequence[Delta], at: str) -> Batch:
    """Deltas as one batch, whose id says what was done to which playbook."""
    return Batch(id=f"{verb} {files.digest(playbook)[:16]}", deltas=tuple(deltas), at=at)


def change(path: Path, batch: Batch) -> Edited:
    """Merge a batch into a playbook file, in place: `merge`, where the batch does not depend on what is there."""
    return merge(path, lambda _: batch)


def merge(path: Path, make: Callable[[Playbook], Batch], *, new: Playbook | None = None) -> Edited:
    """Merge a batch into a playbook file, in place. The journal is written first, then the file.

    What a crash kept from the file between the two is in the journal, and is merged upon. A file that its journal knows nothing
    of, since a training run or an editor has written it, begins a new journal; the old one is moved aside.

    Args:
        make: The batch for the newest playbook. It is called while the file is locked, so it should not wait for anybody.
        new: What a file begins as that is not there.

    Raises:
        InputError: The file is not there (and there is no `new`), or of another system's format.
        PlaybookError: Another process was busy with it for too long.
    """
    with locked(path):
        if new is not None and not path.exists():
            files.save(new, path)
        found = editable(path)
        journal, moved = _following(path), None
        before = journal.playbook if journal else found
        batch = make(before)
        after = before.apply(batch)
        if replace(after, batches=before.batches) == before:
            if before != found:
                # A crash kept the last change from the file, and whoever made it comes back.
                files.save(before, path)
            return Edited(before, None)
        if journal is None:
            journal, moved = _begun(path, found)
        after = journal.append(batch)
        files.save(after, path)
        return Edited(after, journal.revision, moved)


def approve(path: Path, ids: Sequence[str], *, by: str, why: str, at: str) -> Edited:
    """Let held bullets of a playbook file be shown. Who says so, and why, stands in the journal.

    Raises:
        InputError: One of them is not there, or not held. Then none is approved.
    """
    return _decided(path, ids, "approve", at, lambda id: Hold(bullet_id=id, by=by, why=why))


def reject(path: Path, ids: Sequence[str], *, by: str, why: str, at: str) -> Edited:
    """Retire held bullets of a playbook file, as `approve` lets them be shown."""
    return _decided(path, ids, "reject", at, lambda id: Retire(bullet_id=id, reason=f"rejected by {by}: {why}"))


def one(path: Path, id: str, verb: str, delta: Delta, at: str) -> Edited:
    """Lock, unlock or retire one bullet of a playbook file.

    Raises:
        InputError: It is not there, or is locked and to be retired.
    """

    def made(playbook: Playbook) -> Batch:
        bullet = next((bullet for bullet in playbook.bullets if bullet.id == id), None)
        if bullet is None:
            raise InputError(f"{path} has no bullet {id}; `journeyman playbook show {path} --all` lists them")
        if verb == "retire" and bullet.locked:
            raise InputError(f"bullet {id} is locked; `journeyman playbook unlock {path} {id}` comes first")
        return batch(playbook, verb, [delta], at)

    return merge(path, made)


def _decided(path: Path, ids: Sequence[str], verb: str, at: str, delta: Callable[[str], Delta]) -> Edited:
    def made(playbook: Playbook) -> Batch:
        # Looked for once more while nobody else writes the file.
        chosen = [waiting(playbook, id, path) for id in ids]
        return batch(playbook, verb, [delta(bullet.id) for bullet in chosen], at)

    return merge(path, made)


def bullet_named(playbook: Playbook, prefix: str, path: Path | str) -> Bullet:
    """The bullet whose id begins so; people type as much of an id as tells it apart.

    Raises:
        InputError: There is none, or several.
    """
    found = [bullet for bullet in playbook.bullets if bullet.id == prefix]
    found = found or [bullet for bullet in playbook.bullets if prefix and bullet.id.startswith(prefix)]
    if not found:
        raise InputError(f"{path} has no bullet {prefix}; `journeyman playbook show {path} --all` lists them")
    if len(found) > 1:
        listed = ", ".join(bullet.id for bullet in found[:3]) + (", …" if len(found) > 3 else "")
        raise InputError(f"{prefix}: more than one bullet of {path} has an id that begins so ({listed}); write more of it")
    return found[0]


def waiting(playbook: Playbook, prefix: str, path: Path | str) -> Bullet:
    """The same, of a bullet that waits for a person.

    Raises:
        InputError: It does not, or is locked.
    """
    bullet = bullet_named(playbook, prefix, path)
    if bullet.retired:
        raise InputError(f"bullet {bullet.id} is retired ({bullet.retired}), so there is nothing to decide")
    if not bullet.held:
        raise InputError(
            f"bullet {bullet.id} is not held, so there is nothing to decide; `journeyman playbook retire` takes it out of use"
        )
    if bullet.locked:
        raise InputError(f"bullet {bullet.id} is locked; `journeyman playbook unlock {path} {bullet.id}` comes first")
    return bullet


def restore(path: Path, revision: int, at: str) -> Edited:
    """Bring an earlier revision back, as a new one, and write the file."""
    _journal(path)
    with locked(path):
        journal = Journal(_journal(path))
        if path != journal.path and path.exists() and not _known(path, journal):
            raise PlaybookError(
                f"{path} was written by another program since revision {journal.revision}; "
                "move it elsewhere, then restore again"
            )
        after = journal.restore(revision, at)
        if path != journal.path:
            files.save(after, path)
        return Edited(after, journal.revision)


def revisions(path: Path) -> list[Entry]:
    """The entries of the journal beside a playbook file, oldest first, each verified."""
    return list(read(_journal(path)))


def _kind_of(delta: Delta) -> str:
    if isinstance(delta, Hold):
        return "held" if delta.reason else "approved"
    return type(delta).__name__.casefold()


def time_of(entry: Entry) -> str | None:
    return None if isinstance(entry.change, Playbook) else entry.change.at or None


def change_of(entry: Entry) -> str:
    """An entry of a journal in a few words."""
    change = entry.change
    if isinstance(change, Playbook):
        return f"begun with {counted(len(change.bullets), 'bullet')}"
    if isinstance(change, Batch):
        kinds = Counter(map(_kind_of, change.deltas))
        said = dict.fromkeys(f"{delta.by}: {delta.why}" for delta in change.deltas if isinstance(delta, Hold) and delta.by)
        said |= dict.fromkeys(d.reason for d in change.deltas if isinstance(d, Retire) and change.id.startswith("reject "))
        done = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "nothing"
        return f"{change.id}: {done}" + (f" ({'; '.join(said)})" if said else "")
    return f"revision {change.revision} brought back"


def _known(path: Path, journal: Journal) -> bool:
    """Whether a file is as the journal says, or as it was before the last change, which a crash may have kept from the file."""
    found = files.digest(files.load(path))
    if found == files.digest(journal.playbook):
        return True
    return journal.revision > 0 and found == files.digest(replay(journal.path, journal.revision - 1))


def _journal(path: Path) -> Path:
    journal = journal_of(path)
    if not journal.exists():
        playbook = files.load(path)
        runs = sorted({bullet.provenance.run for bullet in playbook.bullets if bullet.provenance.run})
        own = (
            f"; what training did to it is in the journals of its runs: .journeyman/runs/*-{runs[-1]}/journal.jsonl"
            if runs
            else ""
        )
        raise InputError(f"{path} has no journal of changes by commands; one begins with the first such change{own}")
    return journal


def editable(path: Path) -> Playbook:
    """The playbook in a file that may be changed in place.

    Raises:
        InputError: It is not there, or of another system's format.
        PlaybookError: It holds no playbook.
    """
    text = read_text(path)
    data = json_of(text, str(path)) if formats.is_json(text) else None
    if not (isinstance(data, dict) and isinstance(data.get("bullets"), list)):
        files.loads(text, str(path))
        raise InputError(f"{path} is not a playbook file: bring it in with `journeyman playbook import {path} --output FILE`")
    return files.loads(text, str(path))


def _following(path: Path) -> Journal | None:
    """The journal beside a file, if it knows the file."""
    there = journal_of(path)
    journal = Journal(there) if there.exists() else None
    return journal if journal and _known(path, journal) else None


def _begun(path: Path, playbook: Playbook) -> tuple[Journal, Path | None]:
    """A new journal; one that is in its place goes aside."""
    there, moved = journal_of(path), None
    if there.exists():
        moved = _aside(there)
        there.rename(moved)
    return Journal.create(there, playbook), moved


def _aside(path: Path) -> Path:
    for number in range(1, 10_000):
        aside = path.with_name(f"{path.name}.{number}")
        if not aside.exists():
            return aside
    raise PlaybookError(f"{path} cannot be moved aside: there are too many old journals; remove some")


# Tidying a playbook: the deltas that merge what says the same and retire what is not worth its place.


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


def duplicates(playbook: Playbook, embedder: "Embedder", similarity_threshold: float = 0.8) -> Duplicates:
    """The merges after which no two active bullets of a domain say the same. The older one is kept.

    The same text is found by its normalised words, then near texts by their embeddings. A bullet is merged into one that
    itself stays, never along a chain of likenesses. Locked bullets are left alone.
    """
    # Late: it loads numpy, and whoever only looks at a playbook needs none.
    from journeyman.optimizers.playbook.index import alike

    if not 0 < similarity_threshold <= 1:
        raise InputError(f"a similarity threshold of {similarity_threshold} cannot be; it lies above 0 and at most at 1")
    gone: defaultdict[str, list[str]] = defaultdict(list)
    exact = near = apart = 0
    for bullets in _domains(playbook):
        by_text: dict[tuple[bool, str], Bullet] = {}
        for bullet in bullets:
            # The same words as something to do and as something to avoid are a contradiction.
            kept = by_text.setdefault((bullet.section == InsightVerdict.HARMFUL, normalised(bullet.content)), bullet)
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
    from journeyman.optimizers.playbook.retrieval import to_retire

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


# What changed from one playbook to another, in words.

_COUNTS = ("shown", "cited", "helpful", "harmful", "support")
_PLACES = ("domain", "section", "stage", "about")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it was."""

    kind: str
    """added, removed, retired, revived, merged, reworded, held, approved, met, moved, locked, unlocked or counted."""
    bullet_id: str
    words: str
    """A sentence without the id."""


def describe(before: Playbook, after: Playbook) -> list[str]:
    """The differences, one line each, in the order of the playbooks; nothing when they say the same."""
    return [f"{difference.bullet_id} {difference.words}" for difference in differences(before, after)]


def differences(before: Playbook, after: Playbook) -> list[Difference]:
    """As `describe`, for programs. Dates, what other systems said, and where a bullet came from are not compared; on how many
    traces it stands is."""
    old = {bullet.id: bullet for bullet in before.bullets}
    new = {bullet.id: bullet for bullet in after.bullets}
    found: list[Difference] = []
    for bullet in after.bullets:
        was = old.get(bullet.id)
        found += _changed(was, bullet) if was else [_added(bullet)]
    found += [Difference("removed", id, f"is gone: {was.content!r}") for id, was in old.items() if id not in new]
    return found


def _added(bullet: Bullet) -> Difference:
    held = f", held ({bullet.held})" if bullet.held else ""
    retired = f", retired already ({bullet.retired})" if bullet.retired else held
    place = f"{bullet.domain}, {bullet.section}, {bullet.stage.value}"
    return Difference("added", bullet.id, f"is new ({place}){retired}: {bullet.content!r}")


def _changed(was: Bullet, now: Bullet) -> Iterator[Difference]:
    if was.content != now.content:
        yield Difference("reworded", now.id, f"was {was.content!r} and is now {now.content!r}")
    if was.retired != now.retired:
        yield _retired(was, now)
    if was.held != now.held:
        yield _held(was, now)
    if before_after := _evidence(was, now):
        yield Difference("met", now.id, before_after)
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


def _held(was: Bullet, now: Bullet) -> Difference:
    if not now.held:
        return Difference("approved", now.id, f"was approved; it had been held: {was.held}")
    return Difference(
        "held", now.id, f"{'stays held, now because' if was.held else 'is held until a person approves it'}: {now.held}"
    )


def _evidence(was: Bullet, now: Bullet) -> str:
    """What became of the evidence behind a bullet, in words."""
    old, new = was.provenance, now.provenance
    said = []
    if (old.trace_count, old.principals) != (new.trace_count, new.principals):
        met = f"{counted(new.trace_count, 'trace')} of {counted(new.principals, 'principal')}"
        said.append(f"stands on {met}, before on {old.trace_count} of {old.principals}")
    elif old.traces != new.traces:
        said.append("stands on other traces, as many as before")
    if was.expires_at != now.expires_at:
        said.append(f"expires {now.expires_at or 'never'}, before {was.expires_at or 'never'}")
    return ", ".join(said)


def _retired(was: Bullet, now: Bullet) -> Difference:
    if not now.retired:
        return Difference("revived", now.id, f"is used again; it had been retired: {was.retired}")
    if was.retired:
        return Difference("retired", now.id, f"stays retired, now because: {now.retired}")
    if now.retired.startswith(MERGED):
        return Difference("merged", now.id, f"was {now.retired}")
    return Difference("retired", now.id, f"was retired: {now.retired}")
