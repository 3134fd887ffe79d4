"""How much better than expected each decision turned out."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from journeyman.stats import Floats


def compute_gae(
    rewards: ArrayLike,
    values: ArrayLike,
    gamma: float = 0.99,
    lambda_gae: float = 0.95,
    *,
    dones: ArrayLike | None = None,
    bootstrap: float = 0.0,
) -> Floats:
    """Generalized advantage estimates, shape (T,).

    A_t = δ_t + γλ·(1 - done_t)·A_{t+1}, with δ_t = r_t + γ·(1 - done_t)·V_{t+1} - V_t: Schulman et al., "High-Dimensional
    Continuous Control Using Generalized Advantage Estimation" (arXiv 1506.02438), eq. 16. With λ = 0 they are the one-step
    errors δ, with λ = 1 the discounted returns less the values. Adding `values` gives the returns a value head learns from.

    Args:
        rewards: Shape (T,), what followed each decision. Anything that numpy reads, tensors without a gradient too.
        values: Shape (T,), what was expected before each decision.
        gamma: Discount from one decision to the next.
        lambda_gae: 0 trusts the values, 1 what was seen.
        dones: Shape (T,), true where an episode ends with that decision. None: one episode, cut after the last decision.
        bootstrap: What is expected after the last decision, where it does not end an episode; 0 where nothing follows.

    Raises:
        ValueError: The lengths differ.
    """
    seen, expected = np.asarray(rewards, np.float64), np.asarray(values, np.float64)
    ends: NDArray[Any] = np.zeros(len(seen)) if dones is None else np.asarray(dones, np.float64)
    if not len(seen) == len(expected) == len(ends):
        raise ValueError(f"{len(seen)} rewards, {len(expected)} values and {len(ends)} ends; each decision has one of each")
    goes_on = 1.0 - ends
    following = np.append(expected[1:], bootstrap)
    errors = seen + gamma * goes_on * following - expected
    advantages: Floats = np.empty(len(errors))
    carried = 0.0
    for at in reversed(range(len(errors))):
        carried = errors[at] + gamma * lambda_gae * goes_on[at] * carried
        advantages[at] = carried
    return advantages
