"""Files of settings of earlier systems, by our names."""

from pathlib import Path

import pytest

from journeyman.cli.shared import worth_of
from journeyman.cli.train_planner import merged, read, reinforced_settings, supervised
from journeyman.core.errors import InputError

pytestmark = pytest.mark.training

DOCUMENTED = """
training:
  phase1_supervised:
    num_epochs: 20
    batch_size: 16.0
    learning_rate: 1e-3
    lambda_dag: 0.3
    synthetic_augmentations: 5
    train_data_size: large
  phase2_rl:
    algorithm: PPO
    learning_rate: 3.0e-5
    num_episodes: 300
    gamma: 0.99
    epsilon: 0.2
    max_steps_per_episode: 50
    alpha: 10
    gamma_latency: 1e-2
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(DOCUMENTED)
    return path


def test_the_documented_file_is_read_words_for_numbers_included(file: Path) -> None:
    first = supervised(merged({"phase": "1", "config_file": file}))
    assert (first.epochs, first.batch_size, first.augmentations) == (20, 16, 5)
    assert (first.learning_rate, first.lambda_dag) == (1e-3, 0.3)
    told = merged({"phase": "2", "config_file": file, "reward": "documented"})
    second = reinforced_settings(told)
    assert (second.ppo.learning_rate, second.ppo.episodes, second.ppo.most_steps) == (3e-5, 300, 50)
    assert told["weights"] == {"alpha": 10.0, "gamma_latency": 0.01}
    assert getattr(second.reward, "alpha", None) == 10.0


def test_an_option_stands_over_the_file(file: Path) -> None:
    assert supervised(merged({"phase": "1", "config_file": file, "epochs": 3})).epochs == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("training: {phase1_supervised: {speed: 3}}", "has no setting 'speed'; there are algorithm"),
        (
            "training: {phase1_supervised: {num_epochs: many}}",
            "num_epochs in training.phase1_supervised is 'many', and",
        ),
        ("training: {phase1_supervised: {num_epochs: true}}", "is True, and must be a number"),
        ("training: {phase2_rl: {}}", "has no training.phase1_supervised with settings in it"),
        ("training: [", "is no YAML"),
        ("", "has no training.phase1_supervised"),
    ],
)
def test_what_cannot_be_a_setting_is_said_with_the_file(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        read(path, "1")
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("batch_size: 0", "batch_size is 0, and must be at least 1"),
        ("num_epochs: 2.5", "epochs is 2.5, and must be a whole number"),
        ("num_epochs: .nan", "epochs is nan, and must be a whole number"),
        ("learning_rate: -1", "learning_rate is -1, and must be above 0"),
        ("lambda_dag: -1", "lambda_dag is -1, and must not be negative"),
    ],
)
def test_numbers_that_nobody_can_train_with_are_refused(tmp_path: Path, setting: str, said: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"training: {{phase1_supervised: {{{setting}}}}}")
    with pytest.raises(InputError, match=said):
        supervised(merged({"phase": "1", "config_file": path}))


def test_patience_of_nothing_is_patience_to_the_end() -> None:
    assert supervised({"epochs": 30, "patience": 0}).patience == 30


def test_what_a_success_is_worth_is_money_and_time_and_either_may_be_left_out() -> None:
    assert [worth_of(said) for said in ("0.5,30", "0.5", ",30", "")] == [(0.5, 30.0), (0.5, None), (None, 30.0), (None, None)]
    with pytest.raises(InputError, match="is not USD,SECONDS"):
        worth_of("a lot")
