"""A turn of learning that nobody asked for: what makes it due, what it may spend, and what became of it.

Nothing here reads a clock, a file or a store, so a day of it is tried in a moment.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from itertools import takewhile
from typing import Any, NamedTuple

from journeyman.core.format import counted, money


class TurnState(StrEnum):
    """What became of a turn, so far."""

    RUNNING = "running"
    LEARNED = "learned"
    """The gate let it pass; where rules of release let it go further, it went there."""
    REFUSED = "refused"
    """Something was learned, and the gate did not let it pass: nothing is left of it but its journal."""
    NOTHING = "nothing"
    """Nothing new was learned."""
    FAILED = "failed"
    STOPPED = "stopped"
    """It was told to stop, or its budget was spent; the next one goes on with it."""
    LOST = "lost"
    """Whoever carried it out is gone without a word; the next one goes on with it."""
    UNDONE = "undone"


GOES_ON = (TurnState.STOPPED, TurnState.LOST)
_MOST_LOST = 3
"""Turns in a row that were lost, after which it counts as a failure: something in it may kill whoever carries it out."""
_MOST_FAILED = 5
"""Failures in a row with the same data, after which only other data are tried."""
_LONGEST_WAIT = timedelta(days=1)
DAY, MONTH = timedelta(days=1), timedelta(days=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSpent:
    """What a turn took, or may have taken."""

    cost: float | None = 0.0
    """US dollars; `None` where nobody knows."""
    cpu_seconds: float = 0.0
    looks: int = 0
    """At held-out tasks: how often something was examined on them."""

    def json(self) -> dict[str, Any]:
        return asdict(self)


class LearnSubject(NamedTuple):
    """What learns: a kind of optimizer, for one agent and one domain where it tells them apart."""

    kind: str
    agent: str = ""
    domain: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.agent or '*'}/{self.domain}" if self.domain else self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEvent:
    """Something that happened to a turn. Rows are added, never changed: the last one says how it stands."""

    number: int
    state: TurnState
    at: datetime
    spent: TurnSpent = TurnSpent()
    """So far; of a turn that runs, what it may have spent by the next word of it."""
    candidate: str = ""
    """The id of what was learned; empty where nothing was."""
    reason: str = ""
    report: Mapping[str, Any] = field(default_factory=dict)
    """What its commands said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnTurn:
    """One time round for one subject, with all that it takes to do it again."""

    id: str
    subject: LearnSubject
    began: datetime
    trigger: str
    """Why it was due, in words."""
    data_digest: str
    """Of the experience that there was."""
    seen: int
    """Pieces of experience that there were."""
    parent: str = ""
    """The turn that it goes on with."""
    before: Mapping[str, Any] = field(default_factory=dict)
    """How things were: `files` by path with their SHA-256 (nothing for what was not there), and `command`."""
    events: tuple[TurnEvent, ...] = ()

    @property
    def last(self) -> TurnEvent:
        return self.events[-1]

    @property
    def state(self) -> TurnState:
        return self.last.state

    @property
    def outcome(self) -> TurnEvent:
        """How it ended, whatever was undone since."""
        return next(each for each in reversed(self.events) if each.state is not TurnState.UNDONE)

    @property
    def is_over(self) -> bool:
        return self.state is not TurnState.RUNNING

    def then(self, state: TurnState, at: datetime, **more: Any) -> "LearnTurn":
        """With one event more."""
        return replace(self, events=(*self.events, TurnEvent(number=len(self.events), state=state, at=at, **more)))


class LearnExperience(NamedTuple):
    """What there is to learn from."""

    seen: int
    """Traces."""
    digest: str
    """Of which they are, and of what was said of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnRules:
    """When a turn is due, and what turns may spend. `None` is no bound."""

    every: timedelta = timedelta(hours=1)
    """Between two turns of one subject."""
    min_new: int = 50
    """Traces that were recorded since the last turn."""
    at: tuple[time, time] | None = None
    """The time of day, in UTC, in which turns may begin; it may go over midnight."""
    alerts: tuple[str, ...] = ()
    """Rules whose alert makes a turn due at once, however long ago the last one was and however little is new."""
    cost_per_day: float | None = None
    cost_per_turn: float | None = None
    """Which is counted for a turn of which it is not known what it cost."""
    cpu_seconds_per_day: float | None = None
    looks_per_month: int | None = None


class Allowance(NamedTuple):
    """What is left of the budgets; `None` is no bound."""

    cost: float | None = None
    cpu_seconds: float | None = None
    looks: int | None = None
    cost_per_turn: float | None = None

    @property
    def cost_of_turn(self) -> float | None:
        """What the next turn may cost."""
        bounds = [each for each in (self.cost, self.cost_per_turn) if each is not None]
        return min(bounds) if bounds else None

    @property
    def gone(self) -> str:
        """Which of them is spent, in words; empty where none is."""
        if self.cost is not None and self.cost < max(self.cost_per_turn or 0.0, 1e-9) - 1e-9:
            return f"of the budget of these 24 hours {money(max(0.0, self.cost))} are left, and no turn is begun with that"
        if self.cpu_seconds is not None and self.cpu_seconds < LEAST_CPU:
            return f"of the budget of these 24 hours less than {LEAST_CPU:g} s of CPU are left"
        return "the looks at held-out tasks of these 30 days are taken" if self.looks is not None and self.looks < 1 else ""

    def told(self) -> str:
        said = ["" if self.cost is None else money(self.cost)]
        said += ["" if self.cpu_seconds is None else f"{self.cpu_seconds:.0f} s of CPU"]
        said += ["" if self.looks is None else counted(self.looks, "look")]
        return ", ".join(filter(None, said)) or "no bound"


LEAST_CPU = 10.0
"""Seconds of CPU without which no turn is begun: to load what it needs takes as much."""


def allowance(turns: Iterable[LearnTurn], now: datetime, rules: LearnRules) -> Allowance:
    """What is left of the budgets, by all turns that ended within the window, or have not ended.

    A turn counts whole until its end leaves the window, so that in no window of 24 hours (30 days for looks), wherever it
    begins, more was spent than the budget. Where nobody knows what a turn cost, it cost what it might have.
    """
    cost = cpu = 0.0
    looks = 0
    for turn in turns:
        spent, ended = turn.outcome.spent, turn.outcome.at if turn.is_over else now
        if ended > now - MONTH:
            looks += spent.looks
        if ended > now - DAY:
            cpu += spent.cpu_seconds
            cost += (rules.cost_per_turn or 0.0) if spent.cost is None else spent.cost
    return Allowance(
        cost=None if rules.cost_per_day is None else rules.cost_per_day - cost,
        cost_per_turn=rules.cost_per_turn,
        cpu_seconds=None if rules.cpu_seconds_per_day is None else rules.cpu_seconds_per_day - cpu,
        looks=None if rules.looks_per_month is None else rules.looks_per_month - looks,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPlan:
    """Whether a turn is due, and why or why not."""

    subject: LearnSubject
    experience: LearnExperience
    trigger: str = ""
    """Empty where it is not due."""
    why_not: str = ""
    parent: str = ""
    urgent: bool = False

    @property
    def is_due(self) -> bool:
        return bool(self.trigger)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is known at a moment of all that may be due."""

    now: datetime
    experience: Mapping[LearnSubject, LearnExperience]
    turns: Sequence[LearnTurn]
    """Oldest first: those of the last 30 days, and the last of each subject."""
    firing: Mapping[str, datetime] = field(default_factory=dict)
    """Since when alerts fire, by their rule."""
    occupied: Mapping[LearnSubject, str] = field(default_factory=dict)
    """Subjects for which something is brought to live traffic just now, and what."""


def plan(found: Situation, rules: LearnRules) -> list[TurnPlan]:
    """Each subject, and whether it is due: first those for which an alert fires, then those with most that is new."""
    left = allowance(found.turns, found.now, rules)
    plans = [_planned(subject, experience, found, rules, left.gone) for subject, experience in found.experience.items()]
    new = {each.subject: each.experience.seen - _seen(found.turns, each.subject) for each in plans}
    return sorted(plans, key=lambda each: (not each.is_due, not each.urgent, -new[each.subject], each.subject))


def _seen(turns: Iterable[LearnTurn], subject: LearnSubject) -> int:
    return max((turn.seen for turn in turns if turn.subject == subject), default=0)


def _planned(subject: LearnSubject, experience: LearnExperience, found: Situation, rules: LearnRules, gone: str) -> TurnPlan:
    ours = [turn for turn in found.turns if turn.subject == subject]
    word = _of_last(ours, found.now, rules, experience) if ours else None
    word = word or _of_news(ours[-1] if ours else None, found, rules, experience)
    if word.trigger and (why := found.occupied.get(subject) or _not_at(found.now, rules) or gone):
        word = _Word(why_not=why)
    return TurnPlan(subject=subject, experience=experience, **word._asdict())


class _Word(NamedTuple):
    """As in a plan."""

    trigger: str = ""
    why_not: str = ""
    parent: str = ""
    urgent: bool = False


def _of_last(ours: Sequence[LearnTurn], now: datetime, rules: LearnRules, experience: LearnExperience) -> _Word | None:
    """What follows from what became of the last turn; `None` where it is what is new that decides."""
    last = ours[-1]
    if not last.is_over:
        return _Word(why_not=f"{last.id} is at work")
    same = experience.digest == last.data_digest
    if tries := _tries(ours):
        again = last.outcome.at + min(_LONGEST_WAIT, rules.every * 2 ** min(tries - 1, 20))
        if tries >= _MOST_FAILED and same:
            why = f"it failed {tries} times with the same data ({last.outcome.reason}): only other data are tried"
            return _Word(why_not=why)
        if now < again:
            return _Word(why_not=f"{last.id} {last.state} ({last.outcome.reason}); again at {again:%Y-%m-%d %H:%M:%S} UTC")
        return _Word(trigger=f"{last.id} {last.state}", parent=last.id if last.state in GOES_ON else "")
    if last.state in GOES_ON:
        return _Word(trigger=f"goes on with {last.id}, which was {last.state}", parent=last.id)
    return _Word(why_not=f"nothing is new since {last.id}") if same else None


def _of_news(last: LearnTurn | None, found: Situation, rules: LearnRules, experience: LearnExperience) -> _Word:
    """What follows from what is new."""
    if experience.seen == 0:
        return _Word(why_not="there is no experience yet")
    since = last.began if last is not None else None
    for name in rules.alerts:
        if name in found.firing and (since is None or found.firing[name] > since):
            return _Word(trigger=f"the alert {name} fires", urgent=True)
    if since is not None and found.now < (next_at := since + rules.every):
        return _Word(why_not=f"the last turn began at {since:%H:%M:%S} UTC; not before {next_at:%H:%M:%S}")
    new = experience.seen - (last.seen if last is not None else 0)
    if new < rules.min_new:
        return _Word(why_not=f"{max(0, new)} of {rules.min_new} new traces")
    return _Word(trigger=counted(new, "new trace"))


def _tries(ours: Sequence[LearnTurn]) -> int:
    """Failures in a row; so many that were lost in a row are one."""
    failed = len(list(takewhile(lambda each: each.outcome.state is TurnState.FAILED, reversed(ours))))
    lost = len(list(takewhile(lambda each: each.outcome.state is TurnState.LOST, reversed(ours))))
    return failed or max(0, lost - _MOST_LOST + 1)


def _not_at(now: datetime, rules: LearnRules) -> str:
    if rules.at is None:
        return ""
    begin, end = rules.at
    here = now.astimezone(UTC).time()
    within = begin <= here < end if begin < end else here >= begin or here < end
    return "" if within else f"turns begin from {begin:%H:%M} to {end:%H:%M} UTC"
