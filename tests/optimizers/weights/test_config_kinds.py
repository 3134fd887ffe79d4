"""Settings of the wrong kind are told at once, by their name, and not by a traceback from the depths."""

from typing import Any

import pytest

from journeyman.core.errors import SettingError
from journeyman.optimizers.weights.config import TrainingConfig


@pytest.mark.parametrize(
    ("given", "must"),
    [
        ({"lora_r": "16"}, "lora_r is '16', and must be a whole number"),
        ({"lora_r": True}, "lora_r is True, and must be a whole number"),
        ({"max_steps": 2.5}, "max_steps is 2.5, and must be a whole number or None"),
        ({"learning_rate": "5e-5"}, "learning_rate is '5e-5', and must be a number or None"),
        ({"num_epochs": None}, "num_epochs is None, and must be a number"),
        ({"use_bf16": "yes"}, "use_bf16 is 'yes', and must be true or false or None"),
        ({"base_model": None}, "base_model is None, and must be text"),
        ({"rewards": "efficiency"}, "rewards is 'efficiency', and must be a list of names"),
        ({"target_modules": (1,)}, r"target_modules holds 1, and must be a list of names"),
    ],
)
def test_a_setting_of_the_wrong_kind_is_one_sentence(given: dict[str, Any], must: str) -> None:
    with pytest.raises(SettingError, match=f"^{must}$"):
        TrainingConfig(**given)


def test_lists_and_whole_numbers_are_taken_where_they_mean_the_same() -> None:
    config = TrainingConfig(target_modules=["q_proj"], num_epochs=3, learning_rate=5e-5)  # type: ignore[arg-type]
    assert config.target_modules == ("q_proj",)
    assert TrainingConfig(target_modules="all-linear").target_modules == ()  # type: ignore[arg-type]
    assert TrainingConfig.of(config.json()) == config
