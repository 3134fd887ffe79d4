import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from journeyman.optimizers.planner.ppo import compute_gae

pytestmark = pytest.mark.training

numbers = st.floats(-5, 5)
shares = st.floats(0, 1)


def test_three_decisions_worked_out_by_hand() -> None:
    # δ = (1 + 0.5·2 - 1, 0 + 0.5·4 - 2, 2 + 0 - 4) = (1, 0, -2); γλ = 0.25.
    found = compute_gae([1.0, 0.0, 2.0], [1.0, 2.0, 4.0], gamma=0.5, lambda_gae=0.5)
    assert found == pytest.approx([1 + 0.25 * (0 + 0.25 * -2), 0 + 0.25 * -2, -2])


def test_the_documented_defaults_are_099_and_095() -> None:
    assert compute_gae([0.0, 1.0], [0.0, 0.0]) == pytest.approx([0.99 * 0.95, 1.0])


def test_what_is_expected_after_a_cut_episode_counts() -> None:
    assert compute_gae([1.0], [0.5], gamma=0.9, bootstrap=2.0) == pytest.approx([1 + 0.9 * 2 - 0.5])


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12), shares)
def test_lambda_one_gives_returns_less_values_and_lambda_zero_the_one_step_errors(
    steps: list[tuple[float, float]], gamma: float
) -> None:
    rewards, values = (np.asarray(of) for of in zip(*steps, strict=True))
    returns = [float(sum(gamma**k * reward for k, reward in enumerate(rewards[at:]))) for at in range(len(rewards))]
    assert compute_gae(rewards, values, gamma, 1.0) == pytest.approx(np.asarray(returns) - values, abs=1e-9)
    following = np.append(values[1:], 0.0)
    assert compute_gae(rewards, values, gamma, 0.0) == pytest.approx(rewards + gamma * following - values)


@given(
    st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6), st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6)
)
def test_episodes_laid_end_to_end_are_as_if_each_were_alone(
    one: list[tuple[float, float]], other: list[tuple[float, float]]
) -> None:
    together = np.asarray(one + other)
    dones = np.zeros(len(together))
    dones[[len(one) - 1, -1]] = 1
    apart = [compute_gae(*np.asarray(episode).T) for episode in (one, other)]
    assert compute_gae(*together.T, dones=dones) == pytest.approx(np.concatenate(apart))


def test_tensors_are_taken_as_arrays_are() -> None:
    assert compute_gae(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.5])) == pytest.approx(compute_gae([1.0, 2.0], [0.5, 0.5]))


def test_rewards_and_values_of_two_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rewards, 1 values"):
        compute_gae([1.0, 2.0], [1.0])
