"""Who does it: what is known of a worker beforehand, what became of asking it, what is expected, what was chosen and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Ending(StrEnum):
    """How a call to a worker ended. A server that is down, an answer that cannot be read and a wrong one are three things."""

    RIGHT = "right"
    WRONG = "wrong"
    FORMAT = "format"
    """An answer that could not be read."""
    ERROR = "error"
    """No answer: the provider or tool failed. Says nothing about how good the worker is."""
    UNJUDGED = "unjudged"
    """An answer that nobody judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What is known of a model or tool before it is asked. A new one is used by its card, without retraining."""

    name: str
    """As after `--model`, or as the tool is called."""
    description: str = ""
    kind: str = "model"
    """"model" or "tool"."""
    takes: tuple[str, ...] = ()
    """Types of what it must be handed."""
    gives: tuple[str, ...] = ()
    input_price: float | None = None
    """US dollars for a million input tokens; `None` when it is not known, which is not free."""
    output_price: float | None = None
    call_price: float | None = None
    """US dollars for a call, whatever its length."""
    seconds: float | None = None
    """What a call takes, half of the time."""
    window: int | None = None
    """Tokens that it can be sent."""

    def price(self, input_tokens: float, output_tokens: float) -> float | None:
        """US dollars for a call of that size; `None` where a part of the price is not known."""
        if self.input_price is None and self.output_price is None:
            return self.call_price
        if self.input_price is None or self.output_price is None:
            return None
        return (self.call_price or 0.0) + (self.input_price * input_tokens + self.output_price * output_tokens) / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one request to one worker. What was not measured is `None`, never 0."""

    ending: Ending = Ending.UNJUDGED
    success: float | None = None
    """0 to 1, by an evaluator; `None` when nobody judged, and when there was no answer to judge."""
    cost: float | None = None
    """US dollars."""
    seconds: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a worker is expected to bring, for one request."""

    worker: str
    success: float
    """Calibrated probability of a right answer."""
    cost: float | None
    """US dollars expected; `None` when its price is not known."""
    p50: float | None
    """Seconds that half of its answers take."""
    p95: float | None
    """Seconds within which 95 of 100 answers come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One decision as it is logged: without the propensity nobody can tell later what another policy would have brought."""

    worker: str
    propensity: float
    """The probability with which this policy chose it here, above 0."""
    candidates: tuple[str, ...]
    """Who could have been chosen."""
    policy: str
    """The id of the candidate in force, or "base"."""
    forecasts: tuple[Forecast, ...] = ()
    reason: str = ""
    """One sentence with its numbers."""
    explored: bool = False
    """Whether it was drawn at random, to learn."""
    fallback: str = ""
    """Why the safe worker was taken instead of the chosen one, where it was."""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
