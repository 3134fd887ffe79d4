"""What a release makes of a live request: learned context is put into it, and another model may answer it.

The gateway asks one thing, a `Releases`: what is served for this request? What it is told (`ServedContext`, `ServedTarget`) is
put into the body by an edit at its place (`agents.splice`), every other byte as it came. What cannot be understood is left
alone, and counted.
"""

import asyncio
import logging
import sys
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol, Self

from journeyman.agents.answer import CHARACTERS_PER_TOKEN, strategies
from journeyman.agents.splice import RequestBody, UnreadableBody
from journeyman.core.errors import InputError, JourneymanError
from journeyman.core.playbook import Bullet, Place, Playbook
from journeyman.core.policy import Choice
from journeyman.core.task import Task
from journeyman.experiments.settings import ContextSettings, Settings
from journeyman.tracing.wire.dialects import Dialect

_log = logging.getLogger(__name__)

# What is served, and who says so.


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedContext:
    """What is put into a request."""

    text: str
    candidate_id: str
    digest: str
    """Of the playbook as it was read, whole: what was examined is what is served."""
    domain: str
    shown: tuple[str, ...]
    """Ids of the bullets that stand in the text."""
    tokens: int
    """About how many it takes."""
    place: Place
    max_tokens: int
    """A text of more is not put in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTarget:
    """Who answers a request, where it is not whom the client names."""

    asked: str
    """The model that the client names."""
    model: str
    """The one that is asked instead."""
    url: str = ""
    """The server: an address, or the name of an upstream; empty for the upstream that serves such a model."""
    candidates: tuple[str, ...]
    """Who decided it: the policy, the weights."""
    choice: Choice | None = None
    """What a policy chose, with its probability."""
    is_chosen: bool = False
    """Whether whom the policy chose is asked, and no learned weights instead."""


class Degraded(StrEnum):
    """Why a request went on as it came although something was to be put in."""

    ENCODED = "encoded"
    """The body came compressed."""
    UNREADABLE = "unreadable"
    """It is no JSON, or of a shape that is not known."""
    TOO_LONG = "too_long"
    """The text is longer than the plan allows."""
    UNDECIDED = "undecided"
    """Nobody could say what is served."""


@dataclass(frozen=True, slots=True)
class SessionArm:
    """Where a session is in a rollout."""

    rollout_id: str
    unit: str
    arm: str
    event: int
    """The number of the event by whose shares it was drawn."""
    counts: bool = True
    """Whether it is in the test."""

    @property
    def labels(self) -> Mapping[str, str]:
        """What the record of a call says of it: a call with these is one of a session of the test."""
        return {"rollout": self.rollout_id, "unit": self.unit, "arm": self.arm}


class MirrorTarget(NamedTuple):
    """Where a request is to be mirrored to, behind its answer."""

    rollout_id: str
    arm: str
    unit: str
    serve: "Callable[[], Awaitable[ServedRelease]]"
    """What is served for the second request."""
    may_go: "Callable[[set[str]], Awaitable[bool]]"
    """Whether another one may be asked, by what is on record. Takes out those of some pairs that are; while more than one is
    left, it is not known what was spent."""

    def told(self, arm: str, pair: str) -> Mapping[str, str]:
        """What the record of one of the two answers says."""
        return {"rollout": self.rollout_id, "arm": arm, "unit": self.unit, "pair": pair}


class ServedRelease(NamedTuple):
    """What is served for a request."""

    context: ServedContext | None = None
    """What is put into it; `None` for nothing."""
    arms: tuple[SessionArm, ...] = ()
    """On which arms its session is, of those rollouts that it is in: one of each kind of slot at most."""
    target: ServedTarget | None = None
    """Who answers it; `None` for whom the client names."""
    mirror: MirrorTarget | None = None
    """Whom it is asked of a second time; `None` for nobody."""

    @property
    def candidates(self) -> tuple[str, ...]:
        """All that are in force for it."""
        contexts = () if self.context is None else (self.context.candidate_id,)
        return (*contexts, *(() if self.target is None else self.target.candidates))


class Injected(NamedTuple):
    """A request with what was put into it, or why nothing was."""

    body: bytes
    served: ServedRelease
    degraded: Degraded | None = None


class Releases(Protocol):
    """Says what is served. For one event loop."""

    async def served(self, labels: Mapping[str, str], body: RequestBody, *, production: bool = False) -> ServedRelease:
        """What is served for a request.

        Args:
            labels: What the client's headers say: session, agent, domain, task, …
            production: Whether it gets what is in production, on whichever arm its session is.

        Raises:
            JourneymanError: It cannot be told. The request then passes as it came.
        """

    def ended(self, where: SessionArm, *, failed: bool) -> None:
        """A request of a session on an arm is over."""

    def state(self) -> Mapping[str, Any]:
        """What is served, for `/health`."""


SPOKEN = frozenset({Dialect.CHAT, Dialect.RESPONSES, Dialect.MESSAGES})
"""Where there is a place to put it."""


async def inject(
    releases: Releases,
    labels: Mapping[str, str],
    dialect: Dialect,
    encoding: str,
    body: bytes,
    *,
    production: bool = False,
) -> Injected:
    """A body with what is served for it; else the body, and why it goes on as it came where something was to be put in.

    Args:
        production: As `Releases.served` takes it.
    """
    served = ServedRelease()
    if encoding not in ("", "identity"):
        return Injected(body, served, Degraded.ENCODED)
    try:
        read = RequestBody(body, dialect)
        served = await releases.served(labels, read, production=production)
    except UnreadableBody:
        return Injected(body, served, Degraded.UNREADABLE)
    except JourneymanError as error:
        _log.warning("a request passes as it came, as it cannot be told what is served: %s", error)
        return Injected(body, served, Degraded.UNDECIDED)
    return with_release(read, body, served)


def with_release(read: RequestBody, body: bytes, served: ServedRelease) -> Injected:
    """A body that was read, with what is served for it."""
    edits, degraded = [], None
    if served.target is not None:
        edits.append(read.with_model(served.target.model))
    if (context := served.context) is not None:
        try:
            if context.tokens > context.max_tokens:
                degraded = Degraded.TOO_LONG
            else:
                edits.append(read.edit(context.text, context.place))
        except UnreadableBody:
            degraded = Degraded.UNREADABLE
    # From behind, so that the places of the others stay.
    for edit in sorted(edits, key=lambda each: each.start, reverse=True):
        body = edit.of(body)
    return Injected(body, served._replace(context=None) if degraded else served, degraded)


GENERAL = "general"
UNITS = 5_000
"""Sessions whose bullets are remembered; one that comes again later is chosen for again, by what it says then."""


class FixedPlaybook:
    """Serves one playbook to everybody, as it was when it was read. Implements `Releases`.

    A request is given the bullets of the domain that it names. One that names none is given those of the playbook's only
    domain, where it has no more, else those of "general".
    """

    def __init__(
        self,
        playbook: Playbook,
        settings: ContextSettings | None = None,
        *,
        token_budget: int = 2000,
        embedder: str = "hashing",
        name: str = "",
    ) -> None:
        """
        Args:
            token_budget: Tokens of bullets at most, where they are chosen for the request.
            name: Of the file.

        Raises:
            InputError: There is no bullet in it.
        """
        # Late: without a playbook nobody needs them, and they take as much memory as a quarter of the gateway.
        from journeyman.experiments.agents import candidate_of
        from journeyman.models import embedders
        from journeyman.optimizers.playbook import files
        from journeyman.optimizers.playbook.retrieval import Chooser

        settings = settings or ContextSettings()
        candidate = candidate_of(playbook)
        if candidate is None:
            raise InputError(f"{name or 'the playbook'} holds no bullets, so there is nothing to serve; name another playbook")
        if not _is_whole(strategies(playbook.active)):
            raise InputError(f"{name or 'the playbook'} holds half a surrogate pair, which servers refuse; mend it")
        self.playbook, self.candidate_id = playbook, candidate.id
        self._name, self._digest, self._settings = name, files.digest(playbook), settings
        # Where all are shown there is nothing to choose, and nothing is embedded.
        whole = settings.select == "whole"
        budget = sys.maxsize if whole else min(token_budget, settings.max_tokens)
        self._choose = Chooser(embedders.load(embedder), budget=budget).of(playbook)
        self._domains = Counter(bullet.domain for bullet in playbook.active)
        self._usual = next(iter(self._domains)) if len(self._domains) == 1 else GENERAL
        self._whole = {domain: self._of(self._bullets(domain, ""), domain) for domain in self._domains} if whole else {}
        self._frozen: OrderedDict[tuple[str, bytes], ServedContext | None] = OrderedDict()
        self._choosing = asyncio.Lock()

    @classmethod
    def configured(cls, playbook: Playbook, settings: Settings, name: str = "") -> Self:
        """As a project's settings say."""
        budget, embedder = settings.playbook.token_budget, settings.models.embedder
        return cls(playbook, settings.context, token_budget=budget, embedder=embedder, name=name)

    async def served(self, labels: Mapping[str, str], body: "RequestBody", *, production: bool = False) -> ServedRelease:
        return ServedRelease(await self.context(labels, body))

    def ended(self, where: SessionArm, *, failed: bool) -> None:
        """Nobody is on an arm here."""

    async def context(self, labels: Mapping[str, str], body: "RequestBody") -> ServedContext | None:
        """What is put into a request; `None` for nothing."""
        domain = labels.get("domain") or self._usual
        if domain not in self._domains:
            return None
        if self._whole:
            return self._whole[domain]
        session = labels.get("session")
        unit = (domain, _unit(b"session", session.encode()) if session else _unit(b"beginning", body.beginning))
        async with self._choosing:
            if unit not in self._frozen:
                bullets = await asyncio.to_thread(self._bullets, domain, body.question)
                self._frozen[unit] = self._of(bullets, domain)
            self._frozen.move_to_end(unit)
            if len(self._frozen) > UNITS:
                self._frozen.popitem(last=False)
            return self._frozen[unit]

    def state(self) -> Mapping[str, Any]:
        return {
            "playbook": self._name,
            "candidate": self.candidate_id,
            "digest": self._digest,
            "bullets": dict(self._domains),
            "usual_domain": self._usual,
            "place": self._settings.place,
            "select": self._settings.select,
            "max_tokens": self._settings.max_tokens,
        }

    def too_long(self) -> Sequence[str]:
        """A sentence for each domain whose text is longer than the settings allow."""
        most = self._settings.max_tokens
        return [
            f"the bullets of {domain} take some {each.tokens} tokens, and context.max_tokens is {most}, so its chats pass as "
            "they come; raise it, or set context.select to retrieved"
            for domain, each in self._whole.items()
            if each is not None and each.tokens > most
        ]

    def _bullets(self, domain: str, question: str) -> tuple[Bullet, ...]:
        return tuple(self._choose(Task(id="", question=question, domain=domain)))

    def _of(self, bullets: tuple[Bullet, ...], domain: str) -> ServedContext | None:
        if not bullets:
            return None
        text = strategies(bullets)
        return ServedContext(
            text=text,
            candidate_id=self.candidate_id,
            digest=self._digest,
            domain=domain,
            shown=tuple(bullet.id for bullet in bullets),
            tokens=len(text) // CHARACTERS_PER_TOKEN,
            place=self._settings.place,
            max_tokens=self._settings.max_tokens,
        )


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unit(kind: bytes, of: bytes) -> bytes:
    return blake2b(of, digest_size=16, person=kind).digest()
