"""What calls cost that others reported, from today's price list: a span tells tokens, model and provider, hardly a price."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from journeyman.models import prices
from journeyman.trace import ModelCall, Trace

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
    return replace(call, cost=prices.cost(provider, call.model, call.input_tokens, call.output_tokens, call.cached_tokens))


def provider_of(attributes: Mapping[str, Any]) -> str:
    """Who was asked, as `prices.cost` takes it; empty where it is not told. The address says more than the name: an
    instrumentation calls every server "openai" that speaks its API."""
    address = next((found for name in _ADDRESSES if isinstance(found := attributes.get(name), str) and found), "")
    if address:
        return address if "://" in address else f"https://{address}"
    name = next((found for key in _PROVIDERS if isinstance(found := attributes.get(key), str) and found), "").lower()
    # Vercel's SDK appends the API: openai.chat.
    return _IDS.get(name) or _IDS.get(name.partition(".")[0]) or name.partition(".")[0]
