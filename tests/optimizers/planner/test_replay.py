from dataclasses import replace

import numpy as np
import pytest

from journeyman.core.errors import InputError
from journeyman.core.gate import BetterOnHeldOut
from journeyman.core.plan import Plan, Subtask
from journeyman.optimizers.outcome_table import Table
from journeyman.optimizers.planner.replay import (
    Chosen,
    PlanReplay,
    RecordedPlan,
    TableReplay,
    always,
    best_single,
    compare_policies,
    worths,
)
from journeyman.rewards.utility import Utility
from journeyman.stats import Floats


def table(success: Floats, cost: Floats | None = None) -> Table:
    n, m = success.shape
    names = [f"worker-{at}" for at in range(m)]
    known = {} if cost is None else {"cost": cost}
    return Table.judged([f"request {at}" for at in range(n)], success, names, ids=tuple(f"r{at}" for at in range(n)), **known)


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


def diamond(success: Floats, seconds: Floats) -> RecordedPlan:
    subtasks = (
        Subtask(id="a", text="read"),
        Subtask(id="b", text="draw", after=("a",)),
        Subtask(id="c", text="count", after=("a",)),
        Subtask(id="d", text="say", after=("b", "c")),
    )
    n, m = success.shape
    return RecordedPlan(
        plan=Plan(instruction="report", subtasks=subtasks),
        success=success,
        cost=np.full((n, m), 0.1),
        seconds=seconds,
        nodes=np.zeros((n, 1), np.float32),
        prior=np.zeros((n, m), np.float32),
    )


UTILITY = Utility(cost_reference=0.1, seconds_reference=1.0, cost_weight=0.01, latency_weight=0.02)


def test_a_plan_is_paid_its_utility_with_time_along_the_critical_path() -> None:
    recorded = diamond(np.ones((4, 1)), np.asarray([[1.0], [2.0], [5.0], [1.0]]))
    (episode,) = PlanReplay(workers=("w",), plans=(recorded,), reward=UTILITY).episodes(
        [0], lambda _: Chosen(action=0, log_prob=0.0)
    )
    assert len(episode) == 4
    # a, then the longer of b and c, then d: 1 + 5 + 1 seconds; four costs of one reference.
    assert sum(step.reward for step in episode) == pytest.approx(1 - 4 * 0.01 - 7 * 0.02)
    # b runs while c does, so only what c takes longer is c's.
    assert [step.reward for step in episode[:3]] == pytest.approx([-0.01 - 0.02, -0.01 - 0.04, -0.01 - 0.06])


def test_what_follows_a_failure_is_not_done_and_costs_nothing() -> None:
    success = np.ones((4, 1))
    success[1] = 0.0
    recorded = diamond(success, np.ones((4, 1)))
    (episode,) = PlanReplay(workers=("w",), plans=(recorded,), reward=UTILITY).episodes(
        [0], lambda _: Chosen(action=0, log_prob=0.0)
    )
    assert [step.state.at for step in episode] == [0, 1, 2]
    assert sum(step.reward for step in episode) == pytest.approx(-3 * 0.01 - 2 * 0.02)


def test_a_policy_is_told_how_its_parents_did_and_what_is_left_of_the_budget() -> None:
    success = np.ones((4, 1))
    success[0] = 0.5
    replay = PlanReplay(workers=("w",), plans=(diamond(success, np.ones((4, 1))),), reward=UTILITY, budget=0.4)
    (episode,) = replay.episodes([0], lambda _: Chosen(action=0, log_prob=0.0))
    told = np.asarray([step.state.node[1:] for step in episode])
    assert told[:, 0] == pytest.approx([1, 0.5, 0.5, 1])
    assert told[:, 2] == pytest.approx([1, 0.75, 0.5, 0.25])


def test_policies_are_compared_by_request_in_a_form_that_the_gate_decides() -> None:
    chance = np.random.default_rng(0)
    records = table((chance.random((300, 3)) < [0.5, 0.6, 0.6]).astype(float))
    oracle = (records.success == records.success.max(axis=1, keepdims=True)).astype(float)
    oracle /= oracle.sum(axis=1, keepdims=True)
    single = best_single(records, Utility())
    found = compare_policies(
        records,
        {"single": always(records, single), "other": always(records, "worker-0"), "oracle": oracle},
        "oracle",
        Utility(),
    )
    assert set(found) == {"single", "other"}
    assert found["single"].candidate == pytest.approx(records.success.max(axis=1).mean())
    assert found["single"].baseline == pytest.approx(records.success.mean(axis=0).max())
    assert BetterOnHeldOut().decide(found["single"]).passed
    same = compare_policies(records, {"a": always(records, single), "b": always(records, single)}, "b", Utility())
    assert not BetterOnHeldOut().decide(same["a"]).passed


def test_a_request_is_unknown_where_a_policy_may_choose_whom_nobody_asked() -> None:
    records = table(np.asarray([[1.0, np.nan], [1.0, 0.0]]))
    policies = {"first": always(records, "worker-0"), "second": always(records, "worker-1")}
    (found,) = compare_policies(records, policies, "second", Utility()).values()
    assert (found.tasks, found.unknown, [pair.task_id for pair in found.pairs]) == (1, 1, ["r1"])


def test_utilities_with_costs_are_compared_as_scores_from_0_to_1() -> None:
    records = table(np.ones((2, 2)), np.asarray([[0.0, 50.0], [1.0, 1.0]]))
    utility = Utility(cost_reference=1.0, cost_weight=0.1)
    policies = {"first": always(records, "worker-0"), "second": always(records, "worker-1")}
    (found,) = compare_policies(records, policies, "second", utility).values()
    # Ten references at most, so worth lies between -1 and 1.
    assert [(pair.baseline, pair.candidate) for pair in found.pairs] == [(1.0, 0.5), pytest.approx((0.95, 0.95))]


def test_what_outcomes_are_worth_is_unknown_where_nobody_was_asked() -> None:
    records = replace(table(np.asarray([[1.0, np.nan]])))
    assert np.isnan(worths(records, Utility())).tolist() == [[False, True]]
