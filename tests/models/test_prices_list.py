"""What a call costs is what the price list says it does, however it is counted."""

from datetime import UTC, datetime

import pytest
from genai_prices import Usage, calc_price
from hypothesis import given
from hypothesis import strategies as st

from journeyman.models.pricing import cost

MODELS = [
    ("openai", "gpt-4o-mini"),
    ("openai", "gpt-5"),
    ("https://api.openai.com/v1", "o3-mini"),
    ("anthropic", "claude-sonnet-4-5"),
    ("https://api.anthropic.com/v1", "claude-3-5-haiku-latest"),
    ("google", "gemini-2.5-pro"),
    ("groq", "llama-3.3-70b-versatile"),
]
TOKENS = st.integers(0, 500_000)


@given(st.sampled_from(MODELS), TOKENS, TOKENS, TOKENS, TOKENS)
def test_a_call_costs_what_the_list_says(named: tuple[str, str], fresh: int, out: int, cached: int, written: int) -> None:
    provider, model = named
    sent = fresh + cached + written
    usage = Usage(input_tokens=sent, output_tokens=out, cache_read_tokens=cached, cache_write_tokens=written)
    now = datetime.now(UTC)
    if "://" in provider:
        listed = calc_price(usage, model, provider_api_url=provider, genai_request_timestamp=now)
    else:
        listed = calc_price(usage, model, provider_id=provider, genai_request_timestamp=now)
    assert cost(provider, model, sent, out, cached, written) == pytest.approx(float(listed.total_price), rel=1e-9, abs=1e-12)


def test_counts_that_contradict_each_other_have_no_price() -> None:
    assert cost("openai", "gpt-4o-mini", 10, 5, cached=20) is None
    assert cost("openai", "no-such-model", 10, 5) is None
