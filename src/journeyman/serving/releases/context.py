"""What a release makes of a live request: learned context is put into it, and another model may answer it.

The gateway asks one thing, a `Releases`: what is served for this request? What it is told (`ServedContext`, `ServedTarget`) is
put into the body by an edit at its place, every other byte as it came. A body is read where it stands, and not written anew:
numbers, escapes, blanks, the order of keys and keys that stand twice are the client's. What cannot be understood is left alone,
and counted.
"""

import asyncio
import json
import logging
import re
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from itertools import takewhile
from typing import Any, NamedTuple, Protocol, Self

from journeyman.agents.answer import BETWEEN, CHARACTERS_PER_TOKEN, strategies
from journeyman.core.errors import InputError, JourneymanError
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.policy import Choice
from journeyman.core.task import Task
from journeyman.experiments.settings import ContextSettings, Place, Settings
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


class ServedRelease(NamedTuple):
    """What is served for a request."""

    context: ServedContext | None = None
    """What is put into it; `None` for nothing."""
    arms: tuple[SessionArm, ...] = ()
    """On which arms its session is, of those rollouts that it is in: one of each kind of slot at most."""
    target: ServedTarget | None = None
    """Who answers it; `None` for whom the client names."""

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

    async def served(self, labels: Mapping[str, str], body: "RequestBody", *, production: bool = False) -> ServedRelease:
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


# The splice: a text put into a body by one edit.

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_TEXTS = ("text", "input_text")
_SYSTEM = ("system", "developer")


class UnreadableBody(ValueError):
    """No JSON, or of a shape that is not known."""


class Edit(NamedTuple):
    """What becomes of a body: `piece` instead of what stood from `start` to `end`, which is nothing, or the word null."""

    start: int
    end: int
    piece: bytes

    def of(self, body: bytes) -> bytes:
        return b"".join((body[: self.start], self.piece, body[self.end :]))


class _Span(NamedTuple):
    """A value and where it stands. Of a list that is looked into, the value is the spans of its elements."""

    value: Any
    start: int
    end: int


class RequestBody:
    """A request's body, read where it stands."""

    __slots__ = ("_body", "_dialect", "_members", "_start", "_text")

    def __init__(self, body: bytes, dialect: Dialect) -> None:
        """
        Raises:
            UnreadableBody: It is no JSON object in UTF-8, or no conversation.
        """
        self._body, self._dialect = body, dialect
        try:
            if not body.isascii():
                body.decode()
            # One character a byte, so that places in the text are places in the body. Whatever JSON is made of is ASCII.
            self._text = body.decode("latin-1")
            self._start = _behind_space(self._text, 0)
            self._members, end = _object(self._text, self._start, within=("messages", "input"))
            if _behind_space(self._text, end) != len(self._text):
                raise UnreadableBody("something follows behind the object")
        except (ValueError, RecursionError) as error:
            raise UnreadableBody(str(error)) from None
        if not self._known():
            raise UnreadableBody("no conversation")

    def _known(self) -> bool:
        said = self._said
        if said is None:
            return self._dialect is Dialect.RESPONSES and "input" in self._members and isinstance(self._input.value, str)
        return bool(said) and all(isinstance(each.value, dict) for each in said)

    @property
    def _input(self) -> _Span:
        return self._members["input" if self._dialect is Dialect.RESPONSES else "messages"]

    @property
    def _said(self) -> Sequence[_Span] | None:
        """The messages; `None` where there is no list of them."""
        found = self._members.get("input" if self._dialect is Dialect.RESPONSES else "messages")
        return found.value if found is not None and isinstance(found.value, list) else None

    @property
    def model(self) -> str | None:
        """The model that is asked for."""
        span = self._members.get("model")
        return span.value if span is not None and isinstance(span.value, str) else None

    @property
    def tokens(self) -> int:
        """About how many it takes."""
        return len(self._body) // CHARACTERS_PER_TOKEN

    def with_model(self, name: str) -> Edit:
        """How another model comes into it.

        Raises:
            UnreadableBody: It names none.
        """
        if self.model is None:
            raise UnreadableBody("no model is named")
        span = self._members["model"]
        return Edit(span.start, span.end, json.dumps(name).encode())

    @property
    def question(self) -> str:
        """What the user says first."""
        first = self._first_user()
        if first is None:
            return ""
        content = json.loads(self._body[first.start : first.end])
        content = content.get("content") if isinstance(content, dict) else content
        if isinstance(content, list):
            texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") in _TEXTS]
            return "\n".join(text for text in texts if isinstance(text, str))
        return content if isinstance(content, str) else ""

    @property
    def beginning(self) -> bytes:
        """What all requests of one conversation have in common: the conversation that the server keeps, else what stands
        before the user's first words and these."""
        if (kept := self._members.get("conversation")) is not None and kept.value:
            return self._body[kept.start : kept.end]
        told = [self._members[name] for name in ("instructions", "system") if name in self._members]
        first = self._first_user()
        spans = [*told, *self._leading(), *([first] if first is not None else ())]
        return b"\n".join(self._body[span.start : span.end] for span in spans)

    def _leading(self) -> list[_Span]:
        return list(takewhile(lambda each: each.value.get("role") in _SYSTEM, self._said or ()))

    def _first_user(self) -> _Span | None:
        said = self._said
        if said is None:
            return self._input
        return next((each for each in said if each.value.get("role") == "user"), None)

    def edit(self, text: str, place: Place) -> Edit:
        """How a text comes into it.

        Raises:
            UnreadableBody: What stands at the place is of a kind that is not known.
        """
        if place == "user_first":
            return self._before_the_user(text)
        at_end = place == "system_end"
        if self._dialect is Dialect.CHAT:
            return self._in_messages(text, at_end=at_end)
        name = "instructions" if self._dialect is Dialect.RESPONSES else "system"
        span = self._members.get(name)
        if span is None:
            # The object is not empty: there is a conversation in it.
            piece = f"{json.dumps(name)}: {_quoted(text)}, "
            return Edit(self._start + 1, self._start + 1, piece.encode())
        if name == "instructions" and isinstance(span.value, list):
            raise UnreadableBody("instructions are a text")
        return self._into(span, text, at_end=at_end)

    def _in_messages(self, text: str, *, at_end: bool) -> Edit:
        """In those system messages that the conversation begins with: one that comes later is another in the next request,
        and what a provider has cached is lost with every byte that changes."""
        said, leading = self._said or (), self._leading()
        if leading:
            return self._into_message(leading[-1 if at_end else 0], text, at_end=at_end)
        role = "developer" if any(each.value.get("role") == "developer" for each in said) else "system"
        at = said[0].start
        return Edit(at, at, f'{{"role": "{role}", "content": {_quoted(text)}}}, '.encode())

    def _before_the_user(self, text: str) -> Edit:
        first = self._first_user()
        if first is None:
            raise UnreadableBody("no user says anything")
        if isinstance(first.value, str):
            return self._into(first, text, at_end=False)
        return self._into_message(first, text, at_end=False)

    def _into_message(self, message: _Span, text: str, *, at_end: bool) -> Edit:
        members, _ = _object(self._text, message.start)
        if "content" not in members:
            raise UnreadableBody("a message without content")
        return self._into(members["content"], text, at_end=at_end)

    def _into(self, span: _Span, text: str, *, at_end: bool) -> Edit:
        """Into a text, a list of parts, or nothing."""
        if span.value is None:
            return Edit(span.start, span.end, _quoted(text).encode())
        if isinstance(span.value, str):
            at = span.end - 1 if at_end else span.start + 1
            whole = text if not span.value else BETWEEN + text if at_end else text + BETWEEN
            return Edit(at, at, _quoted(whole)[1:-1].encode())
        if not isinstance(span.value, list):
            raise UnreadableBody("what stands there is neither a text nor a list of parts")
        return self._into_parts(span, text, at_end=at_end)

    def _into_parts(self, span: _Span, text: str, *, at_end: bool) -> Edit:
        parts, end = _list(self._text, span.start)
        # Within a part that is there: one that is marked to be cached stays the last of what is.
        for part in reversed(parts) if at_end else parts:
            if isinstance(part.value, dict) and part.value.get("type") in _TEXTS:
                members, _ = _object(self._text, part.start)
                if "text" in members and isinstance(members["text"].value, str):
                    return self._into(members["text"], text, at_end=at_end)
        kind = "input_text" if self._dialect is Dialect.RESPONSES else "text"
        piece = f'{{"type": "{kind}", "text": {_quoted(text)}}}'
        if not parts:
            return Edit(span.start + 1, span.start + 1, piece.encode())
        at, written = (end - 1, f", {piece}") if at_end else (parts[0].start, f"{piece}, ")
        return Edit(at, at, written.encode())


@lru_cache(maxsize=256)
def _quoted(text: str) -> str:
    """As a JSON string. In ASCII, whatever the rest of a body is written in."""
    return json.dumps(text)


def _object(text: str, start: int, within: Sequence[str] = ()) -> tuple[Mapping[str, _Span], int]:
    """The members of an object, and where it ends. Of a key that stands twice the last, as servers read it.

    Args:
        within: Keys whose lists are looked into.

    Raises:
        ValueError: No object stands there.
    """
    members: dict[str, _Span] = {}

    def member(at: int) -> int:
        if text[at : at + 1] != '"':
            raise UnreadableBody(f"no key at {at}")
        key, at = _DECODER.raw_decode(text, at)
        at = _behind_space(text, at)
        if text[at : at + 1] != ":":
            raise UnreadableBody(f"no colon at {at}")
        at = _behind_space(text, at + 1)
        value, end = _list(text, at) if key in within and text[at : at + 1] == "[" else _DECODER.raw_decode(text, at)
        members[key] = _Span(value, at, end)
        return int(end)

    return members, _walk(text, start, "{}", member)


def _list(text: str, start: int) -> tuple[list[_Span], int]:
    """The elements of a list, and where it ends."""
    elements: list[_Span] = []

    def element(at: int) -> int:
        value, end = _DECODER.raw_decode(text, at)
        elements.append(_Span(value, at, end))
        return end

    return elements, _walk(text, start, "[]", element)


def _walk(text: str, start: int, brackets: str, each: Callable[[int], int]) -> int:
    """From bracket to bracket; what stands between two commas is read by `each`, which says where it ends."""
    if text[start : start + 1] != brackets[0]:
        raise UnreadableBody(f"no {brackets[0]} at {start}")
    at = _behind_space(text, start + 1)
    if text[at : at + 1] == brackets[1]:
        return at + 1
    while True:
        at = _behind_space(text, each(at))
        found = text[at : at + 1]
        if found == brackets[1]:
            return at + 1
        if found != ",":
            raise UnreadableBody(f"no comma at {at}")
        at = _behind_space(text, at + 1)


def _behind_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found is not None else at
