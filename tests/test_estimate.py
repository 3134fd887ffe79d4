"""What a run will cost, before it starts."""

from dataclasses import replace

import pytest

from journeyman.core.task import Split
from journeyman.experiments.playbook.cost_estimate import TrainingWork, parts, report
from tests.support.pupil import sums

WORK = TrainingWork(
    generator="openai:gpt-5-mini",
    reflector="openai:gpt-5-nano",
    tasks=[*sums(20), *sums(10, start=100, split=Split.HELD_OUT)],
    epochs=1,
    attempts=1,
    trials=1,
    token_budget=2000,
)


def test_every_role_has_its_calls() -> None:
    plan = replace(WORK, epochs=2, attempts=3, trials=4)
    assert [(part.role, part.calls) for part in parts(plan)] == [
        ("generator", 20 * 2 * 3),
        ("reflector", 20 * 2),
        ("evaluation", 10 * 2 * 4),
    ]


def test_the_cost_is_the_sum_of_its_parts_and_grows_with_the_work() -> None:
    found = report(WORK)
    assert found["cost"] == pytest.approx(sum(part["cost"] for part in found["parts"]))
    assert report(replace(WORK, epochs=2))["cost"] > found["cost"]
    assert report(replace(WORK, trials=0))["cost"] < found["cost"]
    assert found["parts"][1]["cost"] < found["parts"][0]["cost"], "the smaller model is the cheaper one"


def test_a_larger_playbook_makes_longer_prompts() -> None:
    short, long = (parts(replace(WORK, token_budget=budget))[0] for budget in (100, 4000))
    assert long.input_tokens is not None
    assert short.input_tokens is not None
    assert long.input_tokens - short.input_tokens == 20 * (2000 - 50)


def test_without_a_price_the_cost_is_unknown_and_the_tokens_are_not() -> None:
    found = report(replace(WORK, reflector="ollama:qwen3"))
    assert found["cost"] is None
    assert found["parts"][0]["cost"] > 0
    assert found["parts"][1]["input_tokens"] > 0


def test_the_model_that_ships_with_the_package_is_free() -> None:
    assert report(replace(WORK, generator="embedded", reflector="embedded"))["cost"] == 0
