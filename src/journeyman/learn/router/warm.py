"""What changing the model inside a session costs: another one has to read the whole session again, at full price.

Providers keep what they have read of a prompt for some minutes and charge a part of the price for it, to the model that read it
and to no other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from journeyman.policy import Card, Forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSession:
    """What stands before the request."""

    tokens: int
    """Of the session so far: they are sent again with every request."""
    worker: str = ""
    """Who has read them; empty where nobody has."""
    idle: float = 0.0
    """Seconds since then."""
    kept: float = 300.0
    """Seconds for which the provider keeps what was read: OpenAI and Anthropic say five minutes at least."""
    share: float = 0.1
    """Of the price of input that a kept token costs. It is 0.1 for most models of 2025 and 0.5 for older ones of OpenAI."""

    def of(self, card: Card) -> float | None:
        """US dollars for reading the session by a worker, besides the request itself; `None` where its price is not known.

        A worker that is paid by the call reads for nothing.
        """
        if card.input_price is None:
            return None if card.call_price is None else 0.0
        warm = card.name == self.worker and self.idle <= self.kept
        return card.input_price * self.tokens * (self.share if warm else 1.0) / 1e6


def in_session(forecasts: Sequence[Forecast], session: RoutingSession, cards: Mapping[str, Card]) -> tuple[Forecast, ...]:
    """The forecasts of one request with the session's tokens in their cost. Who has no card has no known cost."""
    return tuple(replace(forecast, cost=_with(forecast.cost, session, cards.get(forecast.worker))) for forecast in forecasts)


def _with(cost: float | None, session: RoutingSession, card: Card | None) -> float | None:
    read = None if card is None else session.of(card)
    return None if cost is None or read is None else cost + read
