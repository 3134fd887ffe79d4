"""What is served to live traffic, and the rollouts that bring something learned into it in steps.

A slot is a place of which it can be asked what is in production there: the context, the route or the weights, for one agent
and one domain or for all. A rollout brings one candidate (or several) into one slot. Its unit is the session: each is drawn
once, by a hash, and stays where it is. See docs/releases.md.
"""

import hashlib
import hmac
import secrets
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from journeyman.core.candidate import BASE, Candidate, Kind, ServedModel
from journeyman.core.errors import InputError, ReleaseError
from journeyman.core.rollout_plan import RolloutPlan

ANY = "*"
"""Every agent, or every domain."""
PRODUCTION = "production"
"""The arm of those who get what was in production when the rollout began."""
CANARY = "canary"
"""The arm of a rollout's only candidate; those of several are canary-1, canary-2, …"""
MOST_TOP_TWO = 5
"""Candidates that can each have their least share of top-two shares."""
MOST_OF_SEVERAL = 0.5
"""The share that several candidates have together at most: production keeps the rest until one of them is promoted."""


class SlotKind(StrEnum):
    """What of a request is decided there."""

    CONTEXT = "context"
    """What is put into it: a playbook."""
    ROUTE = "route"
    """Who answers: a policy."""
    WEIGHTS = "weights"
    """With which weights: an adapter, or a model."""


SLOT_KINDS: Mapping[Kind, SlotKind] = {
    Kind.PLAYBOOK: SlotKind.CONTEXT,
    Kind.POLICY: SlotKind.ROUTE,
    Kind.ADAPTER: SlotKind.WEIGHTS,
}
"""Where each kind of candidate goes."""


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """Written `context:desk/oslo`; `context` alone is every agent's and every domain's."""

    kind: SlotKind
    agent: str = ANY
    domain: str = ANY

    def __post_init__(self) -> None:
        if not self.agent or not self.domain or "/" in self.agent:
            raise InputError(f"{self}: a slot is written KIND:AGENT/DOMAIN, with {ANY} for all, and no / in the agent's name")

    def __str__(self) -> str:
        return f"{self.kind}:{self.agent}/{self.domain}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        Raises:
            InputError: It names no slot.
        """
        kind, _, rest = text.partition(":")
        if kind not in (known := [each.value for each in SlotKind]):
            raise InputError(
                f"{text!r} is no slot: it begins with {', '.join(known[:-1])} or {known[-1]}, as in context:desk/oslo"
            )
        agent, slash, domain = rest.partition("/")
        return cls(SlotKind(kind), agent if rest else ANY, domain if slash else ANY)


@lru_cache(maxsize=1024)
def slots_of(kind: SlotKind, agent: str | None, domain: str | None) -> tuple[Slot, ...]:
    """The slots that a request may be served by, the most specific first."""
    # An agent with a slash in its name has no slot of its own.
    agents = (agent, ANY) if agent and "/" not in agent else (ANY,)
    domains = (domain, ANY) if domain else (ANY,)
    return tuple(dict.fromkeys(Slot(kind, one, other) for one in agents for other in domains))


def most_specific(slots: Container[Slot], kind: SlotKind, agent: str | None, domain: str | None) -> Slot | None:
    """The one of some slots that serves a request; `None` where none does."""
    return next((slot for slot in slots_of(kind, agent, domain) if slot in slots), None)


# Which arm a session is on.


class Unit(NamedTuple):
    """A session as a rollout knows it."""

    id: str
    """32 hexadecimal digits, from which nobody gets back to the session."""
    bucket: float
    """Where it falls, from 0 to below 1."""


@lru_cache(maxsize=8192)
def unit_of(salt: str, session: str) -> Unit:
    """A session's place in a rollout: HMAC-SHA256 under the rollout's salt. The same anywhere, and another in each rollout."""
    digest = hmac.digest(salt.encode(), session.encode(errors="surrogatepass"), hashlib.sha256)
    return Unit(digest[:16].hex(), int.from_bytes(digest[16:23]) / 2**56)


def drawn(bucket: float, shares: Mapping[str, float]) -> str:
    """The arm that a bucket falls into. The candidates' ranges begin at 0, one behind the other: a share that grows takes
    nobody out of a single candidate's arm."""
    end = 0.0
    for arm, share in shares.items():
        end += share
        if bucket < end:
            return arm
    return PRODUCTION


# The rollout itself: what it is of, and what happened to it.


class RolloutState(StrEnum):
    PLANNED = "planned"
    SHADOW = "shadow"
    """Nobody is served it; some requests are asked of it a second time, behind production's answer."""
    CANARY = "canary"
    HELD = "held"
    """The shares stay as they are: nothing grows, nothing is promoted; a rollback is possible."""
    HOLDBACK = "holdback"
    """Promoted; some sessions stay on what was there before."""
    CONCLUDED = "concluded"
    ROLLED_BACK = "rolled_back"
    CLOSED = "closed"
    """Ended by a person, without a verdict."""


class EventKind(StrEnum):
    START = "start"
    SHADOW = "shadow"
    """Requests are mirrored from now on."""
    RAMP = "ramp"
    REBALANCE = "rebalance"
    """Several candidates divide their share anew."""
    DROP = "drop"
    """One of several is taken out: its sessions go to production at their next request, and the others go on."""
    HOLD = "hold"
    RESUME = "resume"
    PROMOTE = "promote"
    ROLLBACK = "rollback"
    CONCLUDE = "conclude"
    CLOSE = "close"


_OUT = {EventKind.ROLLBACK: RolloutState.ROLLED_BACK, EventKind.CLOSE: RolloutState.CLOSED}
NEXT_STATE: Mapping[RolloutState, Mapping[EventKind, RolloutState]] = {
    RolloutState.PLANNED: {
        EventKind.SHADOW: RolloutState.SHADOW,
        EventKind.RAMP: RolloutState.CANARY,
        EventKind.CLOSE: RolloutState.CLOSED,
    },
    RolloutState.SHADOW: {
        EventKind.RAMP: RolloutState.CANARY,
        # Nothing is mirrored until somebody resumes it, or goes on.
        EventKind.HOLD: RolloutState.SHADOW,
        EventKind.RESUME: RolloutState.SHADOW,
        **_OUT,
    },
    RolloutState.CANARY: {
        EventKind.RAMP: RolloutState.CANARY,
        EventKind.REBALANCE: RolloutState.CANARY,
        EventKind.DROP: RolloutState.CANARY,
        EventKind.HOLD: RolloutState.HELD,
        EventKind.PROMOTE: RolloutState.HOLDBACK,
        **_OUT,
    },
    RolloutState.HELD: {
        EventKind.RESUME: RolloutState.CANARY,
        EventKind.DROP: RolloutState.HELD,
        EventKind.PROMOTE: RolloutState.HOLDBACK,
        **_OUT,
    },
    RolloutState.HOLDBACK: {EventKind.ROLLBACK: RolloutState.ROLLED_BACK, EventKind.CONCLUDE: RolloutState.CONCLUDED},
    RolloutState.CONCLUDED: {},
    RolloutState.ROLLED_BACK: {},
    RolloutState.CLOSED: {},
}
"""The whole life of a rollout. What is not here cannot happen. A candidate is tried again in a rollout of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A candidate in a rollout."""

    name: str
    candidate_id: str
    digest: str = ""
    """SHA-256 of what the gate examined: nothing else is served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Who did something, when, why, and on what evidence."""

    reason: str
    """One sentence."""
    actor: str
    """monitor, brake, api, or person:NAME."""
    at: datetime
    evidence: Mapping[str, Any] = field(default_factory=dict)
    forced: bool = False
    """By a person, although something stood against it."""

    @property
    def said(self) -> str:
        return f"forced: {self.reason}" if self.forced else self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutEvent:
    """Something happened to a rollout. Events are added, never changed, and numbered from 1 without a gap."""

    number: int
    kind: EventKind
    shares: Mapping[str, float]
    """Of the arms, from now on; production has the rest."""
    cause: Cause

    @property
    def said_shares(self) -> str:
        """A number where there is one arm; nothing where there is none."""
        if len(self.shares) == 1:
            return f"{next(iter(self.shares.values())):.4g}"
        return ", ".join(f"{share:.4g} {arm}" for arm, share in self.shares.items())

    def as_json(self) -> dict[str, Any]:
        cause = self.cause
        told: dict[str, Any] = {"reason": cause.reason, "actor": cause.actor, "at": cause.at.isoformat()}
        told |= {"evidence": dict(cause.evidence), "forced": cause.forced}
        return {"number": self.number, "kind": self.kind.value, "shares": dict(self.shares), "cause": told}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One attempt to bring one candidate, or several, into a slot."""

    id: str
    slot: Slot
    arms: tuple[Arm, ...]
    baseline: Arm
    """What was in production when it began; the candidate is `base` where that was nothing."""
    salt: str
    """Sessions are drawn under it."""
    plan: RolloutPlan
    verdict: str
    """The word of the gate that the candidate came with; of several, the one that asks most of what is shown live."""
    created_at: datetime
    events: tuple[RolloutEvent, ...]
    """Oldest first, never empty."""

    @classmethod
    def begin(
        cls, candidates: Sequence[Candidate], slot: Slot, baseline: Arm, plan: RolloutPlan, verdict: str, cause: Cause
    ) -> "Rollout":
        """Of one candidate or several, planned. Its id tells when it began.

        Raises:
            InputError: Such a candidate does not go into such a slot, one is named twice, or the plan is none for so many.
        """
        for candidate in candidates:
            if SLOT_KINDS[candidate.kind] is not slot.kind:
                raise InputError(f"{slot} takes no {candidate.kind}; one goes into a slot {SLOT_KINDS[candidate.kind]}:…")
        _may_divide(candidates, plan)
        several = len(candidates) > 1
        return cls(
            id=f"{cause.at:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
            slot=slot,
            arms=tuple(
                Arm(name=f"{CANARY}-{number}" if several else CANARY, candidate_id=each.id, digest=each.digest)
                for number, each in enumerate(candidates, start=1)
            ),
            baseline=baseline,
            salt=secrets.token_hex(16),
            plan=plan,
            verdict=verdict,
            created_at=cause.at,
            events=(RolloutEvent(number=1, kind=EventKind.START, shares={}, cause=cause),),
        )

    @property
    def state(self) -> RolloutState:
        state = RolloutState.PLANNED
        for event in self.events[1:]:
            state = NEXT_STATE[state][event.kind]
        return state

    @property
    def is_open(self) -> bool:
        return bool(NEXT_STATE[self.state])

    @property
    def is_drawing(self) -> bool:
        """Whether sessions are on different arms."""
        return self.state in (RolloutState.CANARY, RolloutState.HELD, RolloutState.HOLDBACK)

    @property
    def is_held(self) -> bool:
        """Whether nothing goes on until somebody resumes it."""
        last = self.events[-1].kind is EventKind.HOLD
        return self.state is RolloutState.HELD or (self.state is RolloutState.SHADOW and last)

    @property
    def is_mirroring(self) -> bool:
        """Whether requests are asked of its candidate a second time."""
        return self.state is RolloutState.SHADOW and not self.is_held

    @property
    def was_mirrored(self) -> bool:
        return any(event.kind is EventKind.SHADOW for event in self.events)

    @property
    def shares(self) -> Mapping[str, float]:
        return self.events[-1].shares

    @property
    def said_shares(self) -> str:
        return self.events[-1].said_shares

    @property
    def step(self) -> int:
        """How many steps of the plan were begun."""
        return sum(event.kind is EventKind.RAMP for event in self.events)

    @property
    def since(self) -> datetime:
        """When the step that it is at began."""
        return next((event.cause.at for event in reversed(self.events) if event.kind is EventKind.RAMP), self.created_at)

    def arm(self, name: str) -> Arm:
        """What an arm is served; the baseline for whoever is on none, or on one that was taken out."""
        return next((arm for arm in self.arms if arm.name == name and name in self.going), self.baseline)

    @property
    def going(self) -> tuple[str, ...]:
        """The arms of candidates that were neither taken out nor left behind by a promotion."""
        return tuple(arm.name for arm in self.arms if arm.name in self.shares or not self.is_drawing)

    @property
    def share(self) -> float:
        """Of all candidates together, as the last step gave it to them."""
        return sum(next((each.shares for each in reversed(self.events) if each.kind is EventKind.RAMP), self.shares).values())

    def named_arm(self, name: str | None) -> str:
        """The arm that is meant, by its name or the beginning of its candidate's id; the only one where nothing is said.

        Raises:
            InputError: There is no such arm, or none is said and there are several.
        """
        going = {arm.name: arm.candidate_id for arm in self.arms if arm.name in self.going}
        if name is None and len(going) == 1:
            return next(iter(going))
        found = [arm for arm, id in going.items() if name and (arm == name or id.startswith(name))]
        if len(found) != 1:
            said = "several candidates are on their way" if name is None else f"{name!r} is not one arm of {self.id}"
            raise InputError(f"{said}; name one of {', '.join(f'{arm} ({id})' for arm, id in going.items())}")
        return found[0]

    def next_shares(self, share: float | None = None) -> Mapping[str, float]:
        """The shares of the plan's next step, or of a share of all candidates together, which divide it equally.

        Raises:
            InputError: The share is none, or too large for several.
            ReleaseError: The plan has no step left.
        """
        if share is None:
            if self.step >= len(self.plan.steps):
                raise ReleaseError(
                    f"{self.id}: the plan has no step after {self.plan.steps[-1]:.0%}; promote it, or say a share"
                )
            share = self.plan.steps[self.step]
        if not 0 < share <= 1:
            raise InputError(f"a share is above 0 and at most 1, not {share:g}")
        going = self.going
        if len(going) > 1 and share > MOST_OF_SEVERAL:
            raise InputError(f"{len(going)} candidates have {MOST_OF_SEVERAL:.0%} together at most, and {share:g} is more")
        return MappingProxyType(dict.fromkeys(going, share / len(going)))

    def then(self, kind: EventKind, cause: Cause, shares: Mapping[str, float] | None = None) -> "Rollout":
        """The same with one event more. Where no shares are said they stay, and there are none where the rollout ends.

        Raises:
            ReleaseError: That cannot happen to it now.
        """
        allowed = NEXT_STATE[self.state]
        if kind not in allowed:
            can = f"what can is {', '.join(allowed)}" if allowed else "its story is over; start another rollout to try again"
            raise ReleaseError(f"{self.id} is {self.state.replace('_', ' ')}: {kind} cannot happen to it; {can}")
        if shares is None:
            shares = self.shares if NEXT_STATE[allowed[kind]] else {}
        event = RolloutEvent(number=len(self.events) + 1, kind=kind, shares=shares, cause=cause)
        return replace(self, events=(*self.events, event))

    def without(self, arm: str, cause: Cause) -> "Rollout":
        """The same with one candidate less: the others divide its share, except while it is held; rolled back where it was the
        last.

        Raises:
            ReleaseError: As `then` does.
        """
        rest = [each for each in self.going if each != arm]
        if not rest or self.state is RolloutState.HOLDBACK:
            return self.then(EventKind.ROLLBACK, cause)
        held = self.state is RolloutState.HELD
        return self.then(EventKind.DROP, cause, {each: self.shares[each] if held else self.share / len(rest) for each in rest})

    def promoted(self, cause: Cause, arm: str | None = None) -> "Rollout":
        """The same with a candidate in production: some sessions are held back, or it is concluded at once where the plan
        holds nobody back.

        Raises:
            InputError: As `named_arm` does.
            ReleaseError: As `then` does.
        """
        holdback = self.plan.holdback
        after = self.then(EventKind.PROMOTE, cause, {self.named_arm(arm): 1 - holdback})
        if holdback:
            return after
        return after.then(EventKind.CONCLUDE, replace(cause, reason="the plan holds nobody back"))

    def as_json(self) -> dict[str, Any]:
        """What `from_json` takes."""
        return {
            "id": self.id,
            "slot": str(self.slot),
            "arms": [asdict(arm) for arm in self.arms],
            "baseline": asdict(self.baseline),
            "salt": self.salt,
            "plan": self.plan.as_json(),
            "verdict": self.verdict,
            "created_at": self.created_at.isoformat(),
            "events": [event.as_json() for event in self.events],
        }

    def told(self) -> dict[str, Any]:
        """For whoever asks. Without the salt: who has it can find out of a session which it is."""
        known = {name: value for name, value in self.as_json().items() if name != "salt"}
        return known | {"state": self.state.value, "open": self.is_open, "shares": dict(self.shares), "step": self.step}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "Rollout":
        """A rollout that was written by Journeyman itself."""
        return cls(
            id=told["id"],
            slot=Slot.parse(told["slot"]),
            arms=tuple(Arm(**arm) for arm in told["arms"]),
            baseline=Arm(**told["baseline"]),
            salt=told["salt"],
            plan=RolloutPlan.read(told["plan"], told["id"]),
            verdict=told["verdict"],
            created_at=datetime.fromisoformat(told["created_at"]),
            events=tuple(
                RolloutEvent(
                    number=each["number"],
                    kind=EventKind(each["kind"]),
                    shares=each["shares"],
                    cause=Cause(**{**each["cause"], "at": datetime.fromisoformat(each["cause"]["at"])}),
                )
                for each in told["events"]
            ),
        )


def _may_divide(candidates: Sequence[Candidate], plan: RolloutPlan) -> None:
    """
    Raises:
        InputError: Candidates cannot divide a share as the plan says.
    """
    ids = [candidate.id for candidate in candidates]
    if not ids or len(set(ids)) < len(ids):
        raise InputError("a rollout is of one candidate or several different ones")
    if len(ids) > 1 and plan.steps[-1] > MOST_OF_SEVERAL:
        most = f"{MOST_OF_SEVERAL:.0%} of new sessions at most"
        raise InputError(f"steps: several candidates have {most} together, and the plan ends at {plan.steps[-1]:.0%}")
    if len(ids) > MOST_TOP_TWO and plan.shares == "top_two":
        raise InputError(f"shares: top_two divides a share among {MOST_TOP_TWO} candidates at most, not {len(ids)}")
    if len(ids) > 1 and plan.shadow_share:
        raise InputError("shadow_share: requests are mirrored to one candidate; start several without it")


def nothing() -> Arm:
    """What is served where nothing is in production: the request as it came."""
    return Arm(name=PRODUCTION, candidate_id=BASE)


# What is in production, and all that decides what is served.


class SlotMove(NamedTuple):
    """Something came into production of a slot."""

    slot: Slot
    number: int
    candidate_id: str
    """`base` is nothing: the request as it came."""
    digest: str
    rollout_id: str | None
    reason: str
    actor: str
    at: datetime

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "slot": str(self.slot), "at": self.at.isoformat()}

    @property
    def arm(self) -> Arm:
        return Arm(name=PRODUCTION, candidate_id=self.candidate_id, digest=self.digest)

    @property
    def serves(self) -> bool:
        """Not where it was taken back to nothing: then a slot that is less specific serves, as before."""
        return self.candidate_id != BASE


@dataclass(frozen=True, slots=True)
class LiveReleases:
    """All that decides what is served, as of one moment."""

    production: Mapping[Slot, SlotMove]
    rollouts: tuple[Rollout, ...]
    """The open ones, one at most in a slot."""
    models: Mapping[str, ServedModel] = field(default_factory=dict)
    """Where learned weights answer, by candidate."""

    def slot_of(self, kind: SlotKind, agent: str | None, domain: str | None) -> Slot | None:
        """The slot that serves a request."""
        drawing = {rollout.slot for rollout in self.rollouts if rollout.is_drawing}
        return most_specific(drawing | {slot for slot, move in self.production.items() if move.serves}, kind, agent, domain)

    def baseline(self, slot: Slot) -> Arm:
        """What the requests of a slot are served now: its own, else that of a slot that is less specific."""
        serving = {each: move for each, move in self.production.items() if move.serves}
        found = most_specific(serving, slot.kind, slot.agent, slot.domain)
        return nothing() if found is None else serving[found].arm
