"""Learned context: a playbook of short strategies, and the changes that can be made to one.

`Playbook.apply` is the only way from one playbook to the next. It is pure, the order of the deltas within a batch does not
matter, and applying a batch twice is applying it once, so a retry after a crash can do no harm.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from journeyman.release import Stage


class Verdict(StrEnum):
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
    section: str = Verdict.HELPFUL
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Bullet:
    """One strategy. Shown, cited and outcome are three different counts."""

    id: str
    content: str
    section: str = Verdict.HELPFUL
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
    """Locked by a person: no delta but `Unlock` changes it."""
    retired: str = ""
    """Why it is no longer used; empty while it is. A retired bullet stays, so that its id is never used again."""
    provenance: Provenance = Provenance()
    created_at: str = ""
    updated_at: str = ""
    version: int = 1
    """Grows by one whenever its text changes."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """What an imported file said beyond this, kept so that it can be exported again."""

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
    return "b-" + hashlib.sha256(text.encode()).hexdigest()[:12]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """New words for the same strategy."""

    bullet_id: str
    content: str
    section: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """`gone` say what `kept` says: their counts go to it and they are retired."""

    kept: str
    gone: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retire:
    bullet_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """By a person. `locked=False` takes it off again."""

    bullet_id: str
    locked: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTo:
    """To another stage, section or domain."""

    bullet_id: str
    stage: Stage | None = None
    section: str | None = None
    domain: str | None = None


Delta = Add | Support | Vote | Update | Merge | Retire | Lock | MoveTo


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Deltas that are merged together, whole or not at all."""

    id: str
    """What makes a retry recognisable, for instance run and batch number."""
    deltas: tuple[Delta, ...]
    at: str = ""
    """When, in ISO 8601; written on the bullets it changes."""


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

    @property
    def active(self) -> tuple[Bullet, ...]:
        return tuple(bullet for bullet in self.bullets if not bullet.retired)

    def of(self, domain: str) -> tuple[Bullet, ...]:
        """The active bullets of one domain: domains are isolated."""
        return tuple(bullet for bullet in self.active if bullet.domain == domain)
