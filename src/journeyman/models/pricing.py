"""What calls cost: as the user says, else from the price list that comes with genai-prices. No network is used.

Everything here answers `None` for "unknown", never 0: a model without a price is not a free one.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal

from genai_prices import Usage, calc_price
from genai_prices.types import PriceCalculation, TieredPrices

from journeyman.core.trace import ModelCall, Trace
from journeyman.models import own_price, parse

_MILLION = 1_000_000
_PROBE = 1_000_000
_SLOT = 1800
"""Seconds for which a price holds: some change at the half hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerMillion:
    """List prices in US dollars for a million tokens, for prompts of ordinary length."""

    input: float
    output: float

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """What so many tokens cost, when none of them come from the provider's cache."""
        return (self.input * input_tokens + self.output * output_tokens) / _MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """US dollars for one token, where the price of a token does not depend on how many there are."""

    input: float
    output: float
    cached: float
    written: float


def cost(
    provider: str,
    model: str,
    input_tokens: int | None,
    output_tokens: int | None,
    cached: int | None = None,
    written: int | None = None,
) -> float | None:
    """US dollars for one call at today's list price.

    `provider` is an id ("openai") or the base URL of a server. `input_tokens` include those that were read from the provider's
    cache (`cached`) and those that were `written` to it.
    """
    if input_tokens is None or output_tokens is None:
        return None
    read, wrote = cached or 0, written or 0
    if own := own_price(provider, model):
        kept = own.input if own.cached is None else own.cached
        fresh = input_tokens - read
        return None if fresh < 0 else (fresh * own.input + read * kept + output_tokens * own.output) / _MILLION
    rates = _rates(provider, model, int(time.time()) // _SLOT)
    if rates is None:
        return None
    if not isinstance(rates, _Rates):
        usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens, cache_read_tokens=read, cache_write_tokens=wrote)
        price = _price(provider, model, usage)
        return None if price is None else float(price)
    fresh = input_tokens - read - wrote
    if fresh < 0:
        # Counts that contradict each other, which some servers do send.
        return None
    return fresh * rates.input + output_tokens * rates.output + read * rates.cached + wrote * rates.written


@lru_cache(maxsize=4096)
def _rates(provider: str, model: str, slot: int) -> _Rates | Literal["by length"] | None:
    """What the list says now. It answers in a fifth of a millisecond, which a recorder would pay for every call."""
    found = _listed(provider, model, Usage(input_tokens=_PROBE, output_tokens=0))
    if found is None:
        return None
    if any(isinstance(price, TieredPrices) for price in found.model_price.__dict__.values()):
        return "by length"
    probes = (
        Usage(input_tokens=0, output_tokens=_PROBE),
        Usage(input_tokens=_PROBE, output_tokens=0, cache_read_tokens=_PROBE),
        Usage(input_tokens=_PROBE, output_tokens=0, cache_write_tokens=_PROBE),
    )
    output, cached, written = (float(_price(provider, model, usage) or 0) / _PROBE for usage in probes)
    return _Rates(input=float(found.total_price) / _PROBE, output=output, cached=cached, written=written)


def per_million(provider: str, model: str) -> PerMillion | None:
    """The price of a model, to price a run before it starts."""
    if own := own_price(provider, model):
        return PerMillion(input=own.input, output=own.output)
    # A million tokens in one call could reach a tier for long prompts, so a thousand are priced and scaled up.
    sent = _price(provider, model, Usage(input_tokens=1000, output_tokens=0))
    written = _price(provider, model, Usage(input_tokens=0, output_tokens=1000))
    if sent is None or written is None:
        return None
    return PerMillion(input=float(sent * 1000), output=float(written * 1000))


def of(name: str) -> PerMillion | None:
    """The price of a model by the name that a user types, as in `openai:gpt-5-mini`."""
    parsed = parse(name)
    if own := own_price(parsed.base_url or parsed.kind, parsed.rest):
        return PerMillion(input=own.input, output=own.output)
    if parsed.kind == "embedded":
        return PerMillion(input=0.0, output=0.0)
    if parsed.kind != "openai":
        return None
    return per_million(parsed.base_url or "openai", parsed.rest)


def _price(provider: str, model: str, usage: Usage) -> Decimal | None:
    found = _listed(provider, model, usage)
    return None if found is None else found.total_price


def _listed(provider: str, model: str, usage: Usage) -> PriceCalculation | None:
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
    return found


# What calls cost that others reported, from today's price list: a span tells tokens, model and provider, hardly a price.

_ADDRESSES = ("server.address", "gen_ai.openai.api_base", "url.full", "llm.request.base_url")
_PROVIDERS = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system", "ai.model.provider")
_IDS = {
    "gcp.gemini": "google",
    "gcp.gen_ai": "google",
    "gcp.vertex_ai": "google",
    "vertex_ai": "google",
    "gemini": "google",
    "aws.bedrock": "aws",
    "bedrock": "aws",
    "azure.ai.openai": "azure",
    "az.ai.openai": "azure",
    "azure_openai": "azure",
    "mistral_ai": "mistral",
    "mistralai": "mistral",
    "xai": "x-ai",
    "x_ai": "x-ai",
}
"""Providers as the semantic conventions spell them, by their names in the price list."""


def priced(trace: Trace) -> Trace:
    """The trace with a cost on each call whose tokens, model and provider are known, and that has none."""
    return replace(trace, steps=tuple(_priced(step) if isinstance(step, ModelCall) else step for step in trace.steps))


def _priced(call: ModelCall) -> ModelCall:
    if call.cost is not None or call.input_tokens is None or call.output_tokens is None:
        return call
    provider = provider_of(call.raw)
    if not provider or not call.model:
        return call
    return replace(call, cost=cost(provider, call.model, call.input_tokens, call.output_tokens, call.cached_tokens))


def provider_of(attributes: Mapping[str, Any]) -> str:
    """Who was asked, as `prices.cost` takes it; empty where it is not told. The address says more than the name: an
    instrumentation calls every server "openai" that speaks its API."""
    address = next((found for name in _ADDRESSES if isinstance(found := attributes.get(name), str) and found), "")
    if address:
        return address if "://" in address else f"https://{address}"
    name = next((found for key in _PROVIDERS if isinstance(found := attributes.get(key), str) and found), "").lower()
    # Vercel's SDK appends the API: openai.chat.
    return _IDS.get(name) or _IDS.get(name.partition(".")[0]) or name.partition(".")[0]
