import numpy as np
from numpy.typing import NDArray

from journeyman.optimizers.router.fit import weights
from journeyman.stats import Floats


def told(n: int, noise: NDArray[np.float64]) -> tuple[Floats, Floats]:
    """What members with errors of their own say of n rows with one target."""
    chance = np.random.default_rng(0)
    targets = chance.standard_normal((n, 1))
    return targets[:, None] + noise[:, None] * chance.standard_normal((n, len(noise), 1)), targets


def test_few_rows_leave_members_alike_and_many_tell_the_better_one() -> None:
    few, many = (weights(*told(n, np.array([0.5, 1.5]))) for n in (60, 20_000))
    assert few[1] > 0.7 * few[0]
    assert many[1] < 0.2 * many[0]


def test_members_that_know_nothing_have_no_say() -> None:
    chance = np.random.default_rng(1)
    said = [weights(chance.standard_normal((400, 3, 1)), chance.standard_normal((400, 1))) for _ in range(20)]
    assert np.mean(said) < 0.03
    assert (weights(np.zeros((50, 3, 1)), chance.standard_normal((50, 1))) == 0).all()
