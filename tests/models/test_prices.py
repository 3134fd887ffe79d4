import pytest

from journeyman.models import pricing


def test_a_known_model_costs_what_the_list_says() -> None:
    listed = pricing.per_million("openai", "gpt-4o")
    assert listed == pricing.PerMillion(input=2.5, output=10.0)
    assert pricing.cost("openai", "gpt-4o", 1_000, 100) == pytest.approx(listed.of(1_000, 100))


def test_cached_tokens_are_cheaper() -> None:
    full, cached = pricing.cost("openai", "gpt-4o", 1_000, 0), pricing.cost("openai", "gpt-4o", 1_000, 0, cached=800)
    assert full is not None
    assert cached is not None
    assert 0 < cached < full


def test_a_dated_model_has_the_price_of_its_family() -> None:
    assert pricing.cost("openai", "gpt-4o-2024-08-06", 10, 10) == pricing.cost("openai", "gpt-4o", 10, 10)


@pytest.mark.parametrize(
    ("provider", "model"),
    [("openai", "no-such-model"), ("nobody", "gpt-4o"), ("http://localhost:11434/v1", "gpt-4o"), ("openai", "")],
)
def test_what_has_no_price_costs_unknown_and_not_zero(provider: str, model: str) -> None:
    assert pricing.cost(provider, model, 10, 10) is None
    assert pricing.per_million(provider, model) is None


@pytest.mark.parametrize("counts", [(None, 1, None), (1, None, None), (1, 1, 5)])
def test_unknown_or_contradictory_counts_cost_unknown(
    counts: tuple[int | None, int | None, int | None],
) -> None:
    assert pricing.cost("openai", "gpt-4o", *counts) is None


def test_the_provider_may_be_given_by_its_url() -> None:
    assert pricing.cost("https://api.groq.com/openai/v1", "llama-3.1-8b-instant", 1000, 1000) is not None


def test_a_run_can_be_priced_by_the_name_a_user_types() -> None:
    assert pricing.of("openai:gpt-5-mini") == pricing.of("gpt-5-mini") == pricing.PerMillion(input=0.25, output=2.0)
    assert pricing.of("embedded:small") == pricing.PerMillion(input=0.0, output=0.0)
    assert pricing.of("ollama:qwen3:4b") is None
    assert pricing.of("openai:gpt-4o@http://localhost:1/v1") is None
