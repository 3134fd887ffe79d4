"""What a reported call costs is known when its tokens, its model and its provider are, and unknown otherwise."""

from datetime import UTC, datetime
from typing import Any

import pytest

from journeyman.core.trace import ModelCall, Trace
from journeyman.models import pricing
from journeyman.models.pricing import priced, provider_of

MODEL = "gpt-4o-mini-2024-07-18"


def cost(raw: dict[str, Any], **call: Any) -> float | None:
    told = {"input_tokens": 1000, "output_tokens": 500, "model": MODEL, **call}
    step = ModelCall(prompt="", reply="", raw=raw, **told)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return priced(Trace(id="t", task_id="t", candidate_id="base", started_at=at, steps=(step,))).cost


@pytest.mark.parametrize(
    "raw",
    [
        {"gen_ai.system": "openai", "server.address": "api.openai.com"},
        {"gen_ai.provider.name": "openai", "gen_ai.openai.api_base": "https://api.openai.com/v1/"},
        {"llm.provider": "openai"},
        {"ai.model.provider": "openai.chat"},
    ],
)
def test_every_dialect_is_priced_from_the_list(raw: dict[str, Any]) -> None:
    assert cost(raw) == pytest.approx(pricing.cost("openai", MODEL, 1000, 500))
    assert cost(raw, cached_tokens=800) == pytest.approx(pricing.cost("openai", MODEL, 1000, 500, 800))


def test_a_server_that_only_speaks_like_openai_is_not_priced_like_it() -> None:
    assert cost({"gen_ai.system": "openai", "server.address": "localhost"}) is None
    assert cost({"gen_ai.system": "openai", "gen_ai.openai.api_base": "http://10.0.0.7:8000/v1"}) is None


def test_what_is_not_known_stays_unknown_and_what_was_recorded_stays() -> None:
    assert cost({}) is None
    assert cost({"llm.provider": "openai"}, input_tokens=None) is None
    assert cost({"llm.provider": "openai"}, model="no-such-model") is None
    assert cost({"llm.provider": "openai"}, cost=7.0) == 7.0


def test_providers_are_found_under_the_names_of_the_conventions() -> None:
    assert provider_of({"gen_ai.provider.name": "gcp.gemini"}) == "google"
    assert provider_of({"gen_ai.system": "aws.bedrock"}) == "aws"
    assert provider_of({"gen_ai.system": "Anthropic"}) == "anthropic"
