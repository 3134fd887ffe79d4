"""On what terms a plan is carried out."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from journeyman.agents.crew.base import Job
from journeyman.io.retry import RetryPolicy
from journeyman.plan import Plan
from journeyman.plan_result import Try
from journeyman.policy import Choice
from journeyman.score import Reward

Choose = Callable[[Job], Choice]
"""Who does a subtask that names nobody; asked when it can begin, with the outputs that it needs."""
Check = Callable[[Job, Any], Awaitable[Reward | None]]
"""What an output is worth, 1 for right; `None`, or a value of `None`, where it has no opinion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(RetryPolicy):
    """How much runs at once, and how long anything is waited for."""

    together: int = 8
    """Jobs under way at once."""
    each: Mapping[str, int] = field(default_factory=dict)
    """Jobs of one worker at once, by its name; without an entry only `together` holds."""
    seconds: float = 120.0
    """For one try."""
    retries: int = 2
    """Tries of one worker after the first, where the same call may succeed later."""
    first_wait: float = 0.5
    """Seconds before the second try, doubled each time; the real wait is a random part of it between half and all."""
    longest_wait: float = 30.0
    """Seconds. A server that asks for more is not waited for: the next worker is asked."""
    replans: int = 2
    """Times that the rest of a plan may be made anew."""

    def __post_init__(self) -> None:
        if self.together < 1 or min(self.each.values(), default=1) < 1:
            raise ValueError("together and each are at least 1: nothing could be begun")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """For the whole plan. `None` is without an end."""

    money: float | None = None
    """US dollars. What could exceed it, by its worker's estimate, is not begun."""
    seconds: float | None = None
    """Wall time. What is under way at its end is cancelled; what would take longer than is left, by its card, is not begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A subtask that nobody brought to an end."""

    id: str
    tries: tuple[Try, ...]
    why: str

    @property
    def workers(self) -> tuple[str, ...]:
        """Who failed at it."""
        return tuple(dict.fromkeys(each.worker for each in self.tries))


Replan = Callable[[Plan, Failure], Awaitable[Plan | None]]
"""A plan whose rest is another, or `None` to leave it. Every subtask that is done stands in it as it was; what is under way
and no longer in it is cancelled."""
