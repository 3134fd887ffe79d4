"""The plan of a rollout, whole and frozen when it begins."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from itertools import pairwise
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from journeyman.core.errors import InputError
from journeyman.core.reward import Source

SCALED: Mapping[str, str] = {"latency": "seconds", "cost": "cost", "tokens": "tokens"}
"""Metrics that have no bound, and what of a call each is the sum or the mean of."""


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
    on_decay: Literal["alert", "rollback"] = "alert"
    """When what was promoted becomes worse than it was shown to be, with nobody left to compare it with. Harder work looks the
    same."""
    decay_tolerance: float = 0.03
    """So much worse than was shown is not counted."""
    shadow_share: float = 0.0
    """Of requests without tools, how many are asked of the candidate a second time, behind production's answer, before anybody
    is served it. 0: none."""
    shadow_pairs: int = 50
    """Sessions in which both answered, before the first step."""
    shadow_budget: float = 1.0
    """US dollars that mirrored answers may cost."""
    shadow_unpriced: Literal["stop", "go_on"] = "stop"
    """What follows when it is not known what a mirrored answer costs, so that no budget can be kept."""
    shadow_rewards: tuple[str, ...] = ()
    """Rewards that judge both answers, by name or as `module:Class`; besides them, errors, time and cost are compared."""
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
        _require(0 < self.decay_tolerance < 1, "decay_tolerance", "is above 0 and below 1")
        _require(0 <= self.shadow_share <= 1, "shadow_share", "is a share from 0 to 1")
        _require(self.shadow_pairs >= 1, "shadow_pairs", "is at least 1")
        _require(0 < self.shadow_budget < math.inf, "shadow_budget", "is an amount of US dollars above 0")
        _require(len(set(self.shadow_rewards)) == len(self.shadow_rewards), "shadow_rewards", "are named once each")
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
