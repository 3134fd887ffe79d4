"""Learned context: a playbook of short strategies, and the changes that can be made to one.

`Playbook.apply` is the only way from one playbook to the next. It is pure, the order of the deltas within a batch does not
matter, and applying a batch twice is applying it once, so a retry after a crash can do no harm.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib import import_module
from itertools import groupby
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal

from journeyman.core.errors import InputError, PlaybookError
from journeyman.core.format import counted, html_table
from journeyman.core.release import Stage

if TYPE_CHECKING:
    from journeyman.core.task import Task


Place = Literal["system_end", "system_start", "user_first"]
"""Where in a request a playbook's text stands: behind or before what the client tells the model, or before what the user says
first."""


class InsightVerdict(StrEnum):
    """What an insight says of a strategy."""

    HELPFUL = "helpful"
    """Do this."""
    HARMFUL = "harmful"
    """Avoid this."""
    NEUTRAL = "neutral"
    """Worth knowing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Insight:
    """What a reflector drew from attempts, before it is known whether the playbook has it already."""

    content: str
    section: str = InsightVerdict.HELPFUL
    """A `Verdict`, or the section's name in an imported playbook."""
    domain: str = "general"
    about: str = ""
    """The one setting this rule fixes ("dates"), where only one value can be right; two rules about one thing conflict."""
    concerns: tuple[str, ...] = ()
    """Ids of the shown bullets that it speaks of."""
    task_ids: tuple[str, ...] = ()
    trace_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a bullet came from."""

    run: str = ""
    tasks: tuple[str, ...] = ()
    model: str = ""
    """The reflector that wrote it, or the file it was imported from."""
    origin: str = ""
    """Whose word it is, where it was learned from recorded traces: a `BulletOrigin`."""
    traces: tuple[str, ...] = ()
    """Ids of some of the traces that it was learned from."""
    trace_count: int = 0
    """Of all of them."""
    principals: int = 0
    """On behalf of how many different people these were made."""
    evidence: str = ""
    """Which evidence it was drawn from, such as the template of an error: by it new traces are counted for it or against it."""

    @property
    def documents(self) -> tuple[str, ...]:
        """Ids of the documents that it was drawn from."""
        named = (each.partition(FROM_DOCUMENT) for each in self.evidence.split())
        return tuple(id for before, mark, id in named if mark and not before)


FROM_DOCUMENT = "document:"
"""What evidence is called that is a document: this, and the document's id."""


class BulletOrigin(StrEnum):
    """Who is the source of a rule that was learned from what was recorded. A customer's words never are one."""

    ENVIRONMENT = "environment"
    """What a tool said, a schema, a check."""
    PERSON = "person"
    """A label or a correction of somebody with a name."""
    CONTRAST = "contrast"
    """The difference between right and wrong attempts at the same request."""
    TEMPLATE = "template"
    """The environment, put into words by a template, where no reflector was asked."""
    DOCUMENT = "document"
    """What somebody wrote down: a claim, until a person approves of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bullet:
    """One strategy. Shown, cited and outcome are three different counts."""

    id: str
    content: str
    section: str = InsightVerdict.HELPFUL
    domain: str = "general"
    stage: Stage = Stage.SHADOW
    about: str = ""
    shown: int = 0
    """Attempts whose prompt held it (`activation_count` in the file)."""
    cited: int = 0
    """Attempts whose answer said that it was used."""
    helpful: int = 0
    """Attempts that went well and are credited to it."""
    harmful: int = 0
    """Attempts that went wrong and are blamed on it."""
    support: int = 1
    """How often reflection wrote it, the first time included. Not a vote: writing is not proving."""
    locked: bool = False
    """Locked by a person: no delta but `Lock(locked=False)` changes it, and the gate its stage."""
    retired: str = ""
    """Why it is no longer used; empty while it is. A retired bullet stays, so that its id is never used again."""
    held: str = ""
    """Why a person must approve it before it is shown to anybody; empty where nobody must."""
    expires_at: str = ""
    """When it is retired unless its evidence was met again, in ISO 8601; empty where it does not expire."""
    provenance: Provenance = Provenance()
    created_at: str = ""
    updated_at: str = ""
    version: int = 1
    """Grows by one whenever its text changes."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """What an imported file said beyond this, kept so that it can be exported again."""

    def __post_init__(self) -> None:
        if min(self.shown, self.cited, self.helpful, self.harmful, self.support) < 0:
            raise PlaybookError(f"bullet {self.id}: a count is below 0; counts start at 0 and only grow")

    @property
    def confidence(self) -> float:
        """Posterior mean of the chance that an attempt credited or blamed on it goes well, under a uniform prior.

        `(helpful + 1) / (helpful + harmful + 2)`, Laplace's rule of succession: the mean of Beta(1 + helpful, 1 + harmful)
        (Gelman et al., Bayesian Data Analysis, 3rd ed., section 2.1). 0.5 while there is no evidence.
        """
        return (self.helpful + 1) / (self.helpful + self.harmful + 2)


def normalised(content: str) -> str:
    """The text as it is compared: case, space and closing punctuation do not make a new strategy."""
    return " ".join(content.casefold().split()).rstrip(".!;, ")


def bullet_id(domain: str, content: str) -> str:
    """Made of the content at birth, so that learning the same thing twice gives one bullet."""
    text = json.dumps([domain, normalised(content)], ensure_ascii=False)
    return "b-" + hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """A new bullet. One that is there already, also retired, gains its support instead."""

    bullet: Bullet


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """Reflection wrote it again."""

    bullet_id: str
    task_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """What became of attempts that were shown the bullet."""

    bullet_id: str
    shown: int = 0
    cited: int = 0
    helpful: int = 0
    harmful: int = 0

    def __post_init__(self) -> None:
        if min(self.shown, self.cited, self.helpful, self.harmful) < 0:
            raise PlaybookError(f"a vote on {self.bullet_id} is below 0; votes are only ever added")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateBullet:
    """New words for the same strategy. Of several in one batch, one wins: the last in alphabetical order."""

    bullet_id: str
    content: str
    section: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """`gone` say what `kept` says: their counts go to it and they are retired.

    Only active, unlocked bullets of one domain are merged; the others, also what is held, stay as they are.
    """

    kept: str
    gone: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retire:
    """Not used any more. It stays in the playbook, and so does the first reason given."""

    bullet_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """By a person. `locked=False` takes it off again."""

    bullet_id: str
    locked: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """It is not shown until a person approves it. Without a reason it is approved; of both in one batch it is held."""

    bullet_id: str
    reason: str = ""
    by: str = ""
    """Who approved it."""
    why: str = ""
    """Why that person did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What stands behind it now: counted anew from traces, which may have become more, or fewer where some were forgotten."""

    bullet_id: str
    traces: tuple[str, ...] = ()
    trace_count: int = 0
    principals: int = 0
    expires_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTo:
    """To another stage, section or domain."""

    bullet_id: str
    stage: Stage | None = None
    section: str | None = None
    domain: str | None = None
    by_gate: bool = False
    """What the gate decided. Holds for a locked bullet too: a person locks the words, and not what they have proven."""

    def __post_init__(self) -> None:
        if self.by_gate and (self.stage is None or self.section is not None or self.domain is not None):
            raise PlaybookError(f"a gate cannot move {self.bullet_id} like that; it decides on the stage alone")


Delta = Add | Support | Vote | UpdateBullet | Merge | Retire | Lock | MoveTo | Hold | Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Deltas that are merged together, whole or not at all."""

    id: str
    """What makes a retry recognisable, for instance run and batch number."""
    deltas: tuple[Delta, ...]
    at: str = ""
    """When, in ISO 8601; written on the bullets it changes."""
    trained_on: frozenset[str] = frozenset()
    """`task.fingerprint`s of the questions that it was learned from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Playbook:
    bullets: tuple[Bullet, ...] = ()
    """In the order of their birth, the retired ones too."""
    batches: frozenset[str] = frozenset()
    """Ids of the batches that it is made of."""
    created_at: str = ""
    training_config: Mapping[str, object] = field(default_factory=dict)
    extra: Mapping[str, object] = field(default_factory=dict)
    """What an imported file said beyond this."""
    trained_on: frozenset[str] = frozenset()
    """`task.fingerprint`s of all questions that it was ever learned from: on none of them can it be examined."""

    @property
    def active(self) -> tuple[Bullet, ...]:
        """Those that may be shown: neither retired nor held."""
        return tuple(bullet for bullet in self.bullets if not bullet.retired and not bullet.held)

    @property
    def held(self) -> tuple[Bullet, ...]:
        """Those that wait for a person."""
        return tuple(bullet for bullet in self.bullets if bullet.held and not bullet.retired)

    def of(self, domain: str) -> tuple[Bullet, ...]:
        """The active bullets of one domain: domains are isolated."""
        return tuple(bullet for bullet in self.active if bullet.domain == domain)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Playbook":
        """The playbook in a file, of whatever format; `FILE@3` is its revision 3.

        Raises:
            InputError: The file is not there or cannot be read.
            PlaybookError: It holds no playbook, or a part of one. Names the file and the line.
        """
        found: Playbook = _door("edit").at_revision(fspath(path))
        return found

    def save(self, path: str | PathLike[str]) -> None:
        """Write it into a file, whole or not at all; `load` gives it back, and every command takes it.

        Raises:
            InputError: Nothing can be written there.
        """
        _door("files").save(self, fspath(path))

    def prompt(self, task: "Task | str", *, domain: str = "") -> str:
        """What agents are told of it for a task, and what `journeyman serve --playbook` puts into chats: the task's domain's
        bullets, all while they fit into 2,000 tokens, else the best for its question. Empty where there are none.

        Args:
            task: A task, or only its question.
            domain: Of the question; without one that of the bullets, where they are of one alone.

        Raises:
            InputError: The domain of a question is not told.
        """
        from journeyman.core.task import Task

        if not isinstance(task, Task):
            task = Task(id="", question=task, domain=domain or self._only_domain())
        found: str = _door("retrieval").prompt(self, task)
        return found

    def _only_domain(self) -> str:
        domains = sorted({bullet.domain for bullet in self.active})
        if len(domains) > 1:
            known = ", ".join(domains)
            raise InputError(f"the playbook has bullets of {known}; say which: prompt(question, domain={domains[0]!r})")
        return domains[0] if domains else "general"

    def diff(self, other: "Playbook | str | PathLike[str]") -> list[str]:
        """What became of it in another, perhaps named by its file: a line each, as `journeyman playbook diff` has them. Empty
        where both say the same.

        Raises:
            InputError: The file is not there or cannot be read.
        """
        found: list[str] = _door("edit").describe(self, other if isinstance(other, Playbook) else Playbook.load(other))
        return found

    def __repr__(self) -> str:
        held = f", {len(self.held)} held" if self.held else ""
        domains = ", ".join(sorted({bullet.domain for bullet in self.active}))
        return f"Playbook({counted(len(self.active), 'bullet')}{f' of {domains}' if domains else ''}{held})"

    def _repr_html_(self) -> str:
        """A table, where a notebook shows it: the newest at the end, as in the file."""
        shown = self.active[:_SHOWN]
        rows = [(b.id, b.domain, b.content, b.stage.value, str(b.shown), str(b.helpful), str(b.harmful)) for b in shown]
        more = f"<p>and {len(self.active) - len(shown)} more</p>" if len(self.active) > len(shown) else ""
        head = ("Bullet", "Domain", "Strategy", "Stage", "Shown", "Helpful", "Harmful")
        return html_table(head, rows, title=repr(self), below=more)

    def apply(self, *batches: Batch) -> "Playbook":
        """A new playbook with the batches merged, one after the other.

        Within a batch the order of the deltas does not matter: they are taken kind by kind (add, lock, update, move,
        hold, evidence, support, vote, merge, retire), then by bullet. A batch that is part of the playbook already changes
        nothing. A delta to an unknown bullet does nothing, a locked bullet only changes by being unlocked or in its stage by
        the gate, and a retired one gains counts and nothing else. Bullets that no delta names are the same objects as before.
        """
        by_id = {bullet.id: bullet for bullet in self.bullets}
        done, trained_on = set(self.batches), set(self.trained_on)
        for batch in batches:
            if batch.id not in done:
                done.add(batch.id)
                trained_on |= batch.trained_on
                _merge(by_id, batch)
        if len(done) == len(self.batches):
            return self
        return replace(self, bullets=tuple(by_id.values()), batches=frozenset(done), trained_on=frozenset(trained_on))


_SHOWN = 50
"""Bullets that a notebook shows."""


def _door(name: str) -> Any:
    """Files and retrieval stand floors above. Users meet a playbook here, so what they ask of it is passed up when they do."""
    return import_module(f"journeyman.optimizers.playbook.{name}")


MERGED = "merged into "
"""What the reason of a bullet retired by `Merge` begins with; the id of the one that was kept follows."""
LAPSED = "it lapsed: "
"""What the reason of a bullet begins with that nobody decided against: what it was drawn from was not met any more, or it did
not hold any more. It may come back when the same is met anew."""

_ORDER = {
    kind: place for place, kind in enumerate((Add, Lock, UpdateBullet, MoveTo, Hold, Evidence, Support, Vote, Merge, Retire))
}
"""A bullet is there before it is spoken of, a lock holds for its whole batch, and what is retired has its counts first."""


def _place(delta: Delta) -> tuple[int, str]:
    match delta:
        case Add():
            return _ORDER[Add], delta.bullet.id
        case Merge():
            return _ORDER[Merge], delta.kept
        case _:
            return _ORDER[type(delta)], delta.bullet_id


def _ordered(deltas: Iterable[Delta]) -> Iterator[Delta]:
    """In an order that only depends on what the deltas say."""
    for _, group in groupby(sorted(deltas, key=_place), key=_place):
        same = list(group)
        # Writing a delta out is dear, and only needed between deltas of one kind to one bullet.
        if len(same) > 1:
            same.sort(key=_rank)
        # Several texts cannot all be the text; the last one stands. So with what else replaces what was there.
        yield from same[-1:] if isinstance(same[0], UpdateBullet | Hold | Evidence) else same


def _rank(delta: Delta) -> tuple[bool, str]:
    """The order of deltas of one kind to one bullet. What is held by one of them is held: nobody approves by chance."""
    match delta:
        case Add():
            return not delta.bullet.held, repr(delta)
        case Hold():
            return bool(delta.reason), repr(delta)
        case _:
            return False, repr(delta)


def _merge(by_id: dict[str, Bullet], batch: Batch) -> None:
    for delta in _ordered(batch.deltas):
        match delta:
            case Add():
                _add(by_id, delta.bullet, batch.at)
            case Merge():
                _fold(by_id, delta, batch.at)
            case _:
                if old := by_id.get(delta.bullet_id):
                    by_gate = isinstance(delta, MoveTo) and delta.by_gate
                    by_id[old.id] = _with(old, _change(old, delta), batch.at, even_locked=by_gate)


def _with(old: Bullet, change: dict[str, Any], at: str, *, even_locked: bool = False) -> Bullet:
    """The bullet after a change, or the very same one if that says nothing new or the bullet is locked."""
    locked = old.locked and change.get("locked", True) and not even_locked
    if locked or all(getattr(old, name) == value for name, value in change.items()):
        return old
    return replace(old, **change, updated_at=at or old.updated_at)


def _change(old: Bullet, delta: Support | Vote | UpdateBullet | Retire | Lock | MoveTo | Hold | Evidence) -> dict[str, Any]:
    match delta:
        case Lock():
            return {"locked": delta.locked}
        case Support():
            return _support(old, 1, delta.task_ids)
        case Vote():
            return {name: getattr(old, name) + getattr(delta, name) for name in ("shown", "cited", "helpful", "harmful")}
        case _ if old.retired:
            return {}
        case Retire():
            return {"retired": delta.reason or "no reason was given"}
        case Hold():
            return {"held": delta.reason}
        case Evidence():
            told = {name: getattr(delta, name) for name in ("traces", "trace_count", "principals")}
            return {"provenance": replace(old.provenance, **told), "expires_at": delta.expires_at}
        case MoveTo():
            places = {"stage": delta.stage, "section": delta.section, "domain": delta.domain}
            return {name: place for name, place in places.items() if place is not None}
        case UpdateBullet():
            version = old.version + (delta.content != old.content)
            return {"content": delta.content, "section": delta.section or old.section, "version": version}


def _support(old: Bullet, times: int, task_ids: tuple[str, ...]) -> dict[str, Any]:
    tasks = tuple(dict.fromkeys((*old.provenance.tasks, *task_ids)))
    return {"support": old.support + times, "provenance": replace(old.provenance, tasks=tasks)}


def _add(by_id: dict[str, Bullet], bullet: Bullet, at: str) -> None:
    if old := by_id.get(bullet.id):
        by_id[old.id] = _with(old, _support(old, bullet.support, bullet.provenance.tasks), at)
    else:
        born = bullet.created_at or at
        by_id[bullet.id] = replace(bullet, created_at=born, updated_at=bullet.updated_at or born)


def _fold(by_id: dict[str, Bullet], delta: Merge, at: str) -> None:
    kept = by_id.get(delta.kept)
    if kept is None or kept.locked or kept.retired or kept.held:
        return
    for id in sorted(set(delta.gone) - {kept.id}):
        gone = by_id.get(id)
        if gone is None or gone.locked or gone.retired or gone.held or gone.domain != kept.domain:
            continue
        change = _support(kept, gone.support, gone.provenance.tasks)
        change |= {name: getattr(kept, name) + getattr(gone, name) for name in ("shown", "cited", "helpful", "harmful")}
        kept = by_id[kept.id] = _with(kept, change, at)
        by_id[id] = _with(gone, {"retired": MERGED + kept.id}, at)
