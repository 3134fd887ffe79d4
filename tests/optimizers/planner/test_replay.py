from dataclasses import replace

import numpy as np
import pytest

from journeyman.core.errors import InputError
from journeyman.optimizers.outcome_table import Table
from journeyman.optimizers.planner.ppo import Chosen, TableReplay, worths
from journeyman.rewards.utility import Utility
from journeyman.stats import Floats

pytestmark = pytest.mark.training


def table(success: Floats) -> Table:
    n, m = success.shape
    return Table.judged([f"request {at}" for at in range(n)], success, [f"worker-{at}" for at in range(m)])


def test_a_replay_gives_what_was_recorded_and_lets_nobody_choose_what_was_not() -> None:
    records = table(np.asarray([[1.0, np.nan], [0.0, 1.0], [np.nan, np.nan]]))
    environment = TableReplay.of(records, np.eye(3), Utility())
    assert len(environment) == 2
    assert environment.state(0).allowed.tolist() == [True, False]
    (first,), (second,) = environment.episodes([1, 0], lambda state: Chosen(action=int(state.episode == 0), log_prob=0.0))
    assert (first.reward, second.reward) == (1.0, 1.0)
    assert first.state.node.tolist() == [0, 1, 0]


def test_who_may_not_be_chosen_is_masked_and_nobody_left_is_refused() -> None:
    records = table(np.ones((2, 2)))
    environment = TableReplay.of(records, np.eye(2), Utility(), allowed=("worker-1",))
    assert environment.state(0).allowed.tolist() == [False, True]
    with pytest.raises(InputError, match="nothing to replay"):
        TableReplay.of(records, np.eye(2), Utility(), allowed=("nobody",))


def test_what_outcomes_are_worth_is_unknown_where_nobody_was_asked() -> None:
    records = replace(table(np.asarray([[1.0, np.nan]])))
    assert np.isnan(worths(records, Utility())).tolist() == [[False, True]]
