"""What is served to live traffic, and the rollouts that bring something learned into it in steps.

A slot is a place of which it can be asked what is in production there: the context, the route or the weights, for one agent
and one domain or for all. A rollout brings one candidate (or several) into one slot. Its unit is the session: each is drawn
once, by a hash, and stays where it is. See docs/releases.md.
"""

import hashlib
import hmac
import math
import secrets
from collections.abc import Container, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self, get_args, get_origin, get_type_hints

from journeyman.core.candidate import BASE, Candidate, Kind, ServedModel
from journeyman.core.errors import InputError, ReleaseError
from journeyman.core.reward import Source

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


def slots_of(kind: SlotKind, agent: str | None, domain: str | None) -> tuple[Slot, ...]:
    """The slots that a request may be served by, the most specific first."""
    # An agent with a slash in its name has no slot of its own.
    agents = (agent, ANY) if agent and "/" not in agent else (ANY,)
    domains = (domain, ANY) if domain else (ANY,)
    return tuple(dict.fromkeys(Slot(kind, one, other) for one in agents for other in domains))


def most_specific(slots: Container[Slot], kind: SlotKind, agent: str | None, domain: str | None) -> Slot | None:
    """The one of some slots that serves a request; `None` where none does."""
    return next((slot for slot in slots_of(kind, agent, domain) if slot in slots), None)


# The plan of a rollout, whole and frozen when it begins.


def _require(holds: bool, key: str, must: str) -> None:
    if not holds:
        raise InputError(f"{key} {must}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What a session is judged by: a number from 0 to 1, where more is better."""

    name: str
    """A metric of feedback or a reward's name ("success"), or one that is measured: failed_requests, latency, cost, tokens; or
    labelled, which is whether anybody judged the session in time."""
    tolerance: float = 0.0
    """So much worse is not counted as harm."""
    require: Literal["not_worse", "better"] = "not_worse"
    """Of the primary metric: what must be shown before promotion."""
    margin: float = 0.05
    """Not worse means: by less than this."""
    window_seconds: float = 0.0
    """How long after its assignment a session is waited for."""
    sources: tuple[str, ...] = (Source.TRUTH, Source.PERSON, Source.CHECK, Source.JUDGE)
    """Whose word counts."""
    action: Literal["rollback", "hold"] = "rollback"
    """What harm leads to."""

    def __post_init__(self) -> None:
        _require(bool(self.name), "name", "names a metric")
        _require(0 <= self.tolerance < 1, "tolerance", "is from 0 to below 1")
        _require(0 < self.margin < 1, "margin", "is above 0 and below 1")
        _require(0 <= self.window_seconds < math.inf, "window_seconds", "is a number of seconds")
        known = {str(each) for each in Source}
        _require(set(self.sources) <= known, "sources", f"are of {', '.join(sorted(known))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrakePlan:
    """When a gateway stops serving an arm by itself, without store or monitor."""

    failures: float = 0.20
    """The share of the arm's sessions that may fail hard: no answer, an error of the server, an empty reply."""
    alpha: float = 0.01
    """How often it stops an arm that fails just so much."""
    least_sessions: int = 3

    def __post_init__(self) -> None:
        _require(0 < self.failures < 1, "failures", "is above 0 and below 1")
        _require(0 < self.alpha < 1, "alpha", "is above 0 and below 1")
        _require(self.least_sessions >= 1, "least_sessions", "is at least 1")


_DAY = 86_400.0
_GUARDRAILS = (
    Metric(name="failed_requests", tolerance=0.01),
    Metric(name="latency", tolerance=0.03),
    Metric(name="cost", tolerance=0.01),
    Metric(name="labelled", tolerance=0.005, window_seconds=_DAY, action="hold"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlan:
    """How a rollout goes: its steps, and what decides."""

    steps: tuple[float, ...] = (0.01, 0.05, 0.10, 0.25, 0.50)
    """The share of new sessions that goes to the candidate, step by step; several divide it among them."""
    shares: Literal["equal", "top_two"] = "equal"
    """How several candidates divide their share: equally, or so that the best and its rival get most of it (top-two Thompson
    sampling), none less than a tenth at a share of a half, anew every 50 sessions."""
    step_sessions: tuple[int, ...] = (50, 200, 500, 1000, 1000)
    """Sessions, of all arms, before the next step."""
    step_hours: tuple[float, ...] = (1, 6, 24, 24, 24)
    step_worst: tuple[float, ...] = (1.0, 0.30, 0.15, 0.10, 0.07)
    """How bad the lower end of the interval may be at most, to go on from the step."""
    on_harm: Literal["rollback", "hold"] = "rollback"
    on_end: Literal["hold", "rollback"] = "hold"
    """When the time is over without a verdict. Nothing is promoted by time."""
    promote: Literal["automatic", "ask"] = "automatic"
    max_days: float = 28
    holdback: float = 0.05
    """The share of new sessions that stays on what was in production before, after a promotion."""
    holdback_days: float = 7
    min_sessions: int = 300
    """Of each arm, before promotion."""
    alpha: float = 0.05
    """Of a false rollback, over all metrics and all looks together."""
    alpha_promote: float = 0.05
    primary: Metric = Metric(name="success", window_seconds=_DAY)
    guardrails: tuple[Metric, ...] = _GUARDRAILS
    brake: BrakePlan = BrakePlan()
    settle_seconds: float = 30
    """At the least so long after its assignment a session is closed: its first answer may take that long."""

    def __post_init__(self) -> None:
        rising = all(before < after for before, after in pairwise((0.0, *self.steps)))
        _require(bool(self.steps) and rising and self.steps[-1] <= 1, "steps", "are shares above 0, at most 1, and rising")
        for name in ("step_sessions", "step_hours", "step_worst"):
            told: Sequence[float] = getattr(self, name)
            whole = len(told) == len(self.steps) and min(told) >= 0
            _require(whole, name, f"has a number, 0 or more, for each of {len(self.steps)} steps")
        for name in ("alpha", "alpha_promote"):
            _require(0 < getattr(self, name) < 1, name, "is above 0 and below 1")
        _require(0 <= self.holdback < 1, "holdback", "is a share from 0 to below 1")
        _require(self.min_sessions >= 1, "min_sessions", "is at least 1")
        _require(0 <= self.settle_seconds < math.inf, "settle_seconds", "is a number of seconds")
        _require(0 < self.max_days < math.inf and 0 <= self.holdback_days < math.inf, "max_days and holdback_days", "are days")
        names = [self.primary.name, *(each.name for each in self.guardrails)]
        _require(len(set(names)) == len(names), "guardrails", "judge each metric once, and not the primary one again")

    @classmethod
    def read(cls, given: Mapping[str, Any], where: str = "the plan") -> Self:
        """A plan from what a file holds; what is not said is as by default.

        Raises:
            InputError: A key is not known, or its value cannot be; the sentence names it.
        """
        plan: Self = _read(cls, given, where)
        return plan

    def as_json(self) -> dict[str, Any]:
        """What `read` takes."""
        return asdict(self)


def _read(cls: type[Any], given: Any, where: str) -> Any:
    if not isinstance(given, Mapping):
        raise InputError(f"{where}: a table of settings is wanted, not {given!r:.40}")
    hints = get_type_hints(cls)
    if strange := [key for key in given if key not in hints]:
        raise InputError(f"{where}: there is no {strange[0]!r}; there are {', '.join(hints)}")
    if missing := [each.name for each in fields(cls) if each.default is MISSING and each.name not in given]:
        raise InputError(f"{where}: {missing[0]} is missing")
    values = {key: _value(hints[key], value, f"{where}: {key}") for key, value in given.items()}
    try:
        return cls(**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _value(hint: Any, value: Any, where: str) -> Any:
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{where} is a list")
        return tuple(_value(get_args(hint)[0], each, f"{where}[{at}]") for at, each in enumerate(value))
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise InputError(f"{where} is {' or '.join(map(repr, get_args(hint)))}, not {value!r:.40}")
        return value
    if hint in (Metric, BrakePlan):
        return _read(hint, value, where)
    kinds, must = _KINDS[hint]
    if isinstance(value, bool) or not isinstance(value, kinds) or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(f"{where} is a {must}, not {value!r:.40}")
    return value


_KINDS: Mapping[type, tuple[tuple[type, ...], str]] = {
    float: ((int, float), "number"),
    int: ((int,), "whole number"),
    str: ((str,), "text"),
}


# Which arm a session is on.


class Unit(NamedTuple):
    """A session as a rollout knows it."""

    id: str
    """32 hexadecimal digits, from which nobody gets back to the session."""
    bucket: float
    """Where it falls, from 0 to below 1."""


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
    RolloutState.PLANNED: {EventKind.RAMP: RolloutState.CANARY, EventKind.CLOSE: RolloutState.CLOSED},
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
        """What an arm is served; the baseline for whoever is on none."""
        return next((arm for arm in self.arms if arm.name == name), self.baseline)

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
