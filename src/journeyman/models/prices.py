"""What calls cost, from the price list that comes with genai-prices. No network is used.

Everything here answers `None` for "unknown", never 0: a model without a price is not a free one.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from genai_prices import Usage, calc_price

from journeyman.models import parse

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PerMillion:
    """List prices in US dollars for a million tokens, for prompts of ordinary length."""

    input: float
    output: float

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """What so many tokens cost, when none of them come from the provider's cache."""
        return (self.input * input_tokens + self.output * output_tokens) / _MILLION


def cost(
    provider: str, model: str, input_tokens: int | None, output_tokens: int | None, cached: int | None = None
) -> float | None:
    """US dollars for one call at today's list price.

    `provider` is an id ("openai") or the base URL of a server. `input_tokens` include the `cached` ones.
    """
    if input_tokens is None or output_tokens is None:
        return None
    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens, cache_read_tokens=cached)
    price = _price(provider, model, usage)
    return None if price is None else float(price)


def per_million(provider: str, model: str) -> PerMillion | None:
    """The list price of a model, to price a run before it starts."""
    # A million tokens in one call could reach a tier for long prompts, so a thousand are priced and scaled up.
    sent = _price(provider, model, Usage(input_tokens=1000, output_tokens=0))
    written = _price(provider, model, Usage(input_tokens=0, output_tokens=1000))
    if sent is None or written is None:
        return None
    return PerMillion(input=float(sent * 1000), output=float(written * 1000))


def of(name: str) -> PerMillion | None:
    """The list price of a model by the name that a user types, as in `openai:gpt-5-mini`."""
    parsed = parse(name)
    if parsed.kind == "embedded":
        return PerMillion(input=0.0, output=0.0)
    if parsed.kind != "openai":
        return None
    return per_million(parsed.base_url or "openai", parsed.rest)


def _price(provider: str, model: str, usage: Usage) -> Decimal | None:
    now = datetime.now(UTC)
    try:
        if "://" in provider:
            found = calc_price(usage, model, provider_api_url=provider, genai_request_timestamp=now)
        else:
            found = calc_price(usage, model, provider_id=provider, genai_request_timestamp=now)
    except (LookupError, ValueError):
        # No such provider or model; or counts that contradict each other, which some servers do send.
        return None
    listed = found.model_price.__dict__
    if listed.get("input_mtok") is None or listed.get("output_mtok") is None:
        return None
    return found.total_price
