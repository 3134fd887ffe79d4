import numpy as np
import pytest

from benchmarks.sim_off_policy import logged
from journeyman.core.errors import InputError
from journeyman.core.policy import Choice, Ending, Outcome
from journeyman.rewards.utility import Runs, Utility, total
from journeyman.stats import Floats, LoggedDecisions, OffPolicyResult, evaluate_policy, request_features

WORKERS = ("a", "b", "c")
RATES = np.asarray([[0.9, 0.5, 0.3], [0.2, 0.5, 0.8]])
"""Of right answers, for each of two kinds of requests."""


def log(decisions: int, seed: int, share: float = 0.5, features: bool = True) -> tuple[LoggedDecisions, Floats]:
    """By a policy that prefers the first worker and explores a share; and a target that knows the kinds."""
    chance = np.random.default_rng(seed)
    kinds = chance.integers(2, size=decisions)
    serving = np.asarray([1 - share, 0, 0]) + share / 3
    actions = chance.choice(3, size=decisions, p=serving)
    rewards = (chance.random(decisions) < RATES[kinds, actions]).astype(float)
    known = np.eye(2)[kinds] if features else np.zeros((decisions, 0))
    logged = LoggedDecisions(
        workers=WORKERS,
        actions=actions,
        propensities=serving[actions],
        rewards=rewards,
        candidates=np.ones((decisions, 3), bool),
        features=known,
    )
    return logged, np.asarray([[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]])[kinds]


TRUTH = float(np.mean([0.8 * 0.9 + 0.1 * 0.5 + 0.1 * 0.3, 0.1 * 0.2 + 0.1 * 0.5 + 0.8 * 0.8]))


@pytest.mark.parametrize("features", [True, False])
def test_all_but_the_model_alone_find_the_truth_and_their_intervals_hold_it(features: bool) -> None:
    verdicts = [evaluate_policy(*log(1200, seed, features=features), folds=2) for seed in range(64)]
    assert not any(verdict.refused for verdict in verdicts)
    for name in ("IPS", "SNIPS", "DR"):
        values = np.asarray([verdict.estimates[name].value for verdict in verdicts])
        assert values.mean() == pytest.approx(TRUTH, abs=4 * values.std() / 8)
        held = np.mean([verdict.estimates[name].low <= TRUTH <= verdict.estimates[name].high for verdict in verdicts])
        assert held >= 0.86


def test_doubly_robust_errs_less_than_plain_inverse_propensities() -> None:
    verdicts = [evaluate_policy(*log(1200, seed), folds=2) for seed in range(60)]
    errors = {name: np.mean([(v.estimates[name].value - TRUTH) ** 2 for v in verdicts]) for name in ("IPS", "DR")}
    assert errors["DR"] < 0.5 * errors["IPS"]


def two_workers(decisions: int, explored: float, successes: tuple[float, float], seed: int) -> OffPolicyResult:
    """What the log says of always taking the second of two workers, where the first was taken but for a share."""
    drawn = logged(np.random.default_rng(seed), decisions, explored, successes)
    return evaluate_policy(drawn, np.tile([0.0, 1.0], (decisions, 1)), folds=2)


@pytest.mark.parametrize("success", [0.02, 0.97, 0.99])
@pytest.mark.parametrize(("decisions", "explored"), [(2200, 0.1), (220, 1.0)])
def test_of_two_equal_workers_none_is_called_better_for_a_failure_that_did_not_come(
    success: float, decisions: int, explored: float
) -> None:
    verdicts = [two_workers(decisions, explored, (success, success), seed) for seed in range(60)]
    told = [verdict for verdict in verdicts if verdict.gain is not None]
    assert len(told) > 30
    assert sum(verdict.better for verdict in told) <= 3
    assert sum(verdict.gain.high < 0 for verdict in told if verdict.gain) <= 3
    assert all(verdict.estimates["DR"].high - verdict.estimates["DR"].low > 0.01 for verdict in told)


def test_a_worker_that_fails_a_tenth_as_often_is_still_found() -> None:
    assert all(two_workers(8000, 0.2, (0.90, 0.99), seed).better for seed in range(10))


def test_a_log_without_a_single_failure_tells_no_worker_from_another() -> None:
    verdict = two_workers(2200, 0.1, (1.0, 1.0), 0)
    assert verdict.gain is None
    assert "all 2200 decisions brought the same" in verdict.refused


def test_the_policy_in_force_is_estimated_as_what_it_brought() -> None:
    logged, _ = log(500, 0)
    serving = np.tile([0.5 + 0.5 / 3, 0.5 / 3, 0.5 / 3], (500, 1))
    verdict = evaluate_policy(logged, serving)
    assert verdict.effective == pytest.approx(500)
    assert verdict.estimates["IPS"].value == pytest.approx(logged.rewards.mean())
    assert verdict.gain is not None
    assert verdict.gain.value == pytest.approx(0.0, abs=0.02)
    assert not verdict.better


def test_a_better_policy_is_told_to_be_better_with_its_interval() -> None:
    verdict = evaluate_policy(*log(3000, 1))
    assert verdict.better
    assert verdict.gain is not None
    assert verdict.gain.low < TRUTH - RATES.mean(axis=0) @ [0.5 + 0.5 / 3, 0.5 / 3, 0.5 / 3] < verdict.gain.high


def test_too_little_exploration_is_refused_with_what_to_do() -> None:
    verdict = evaluate_policy(*log(300, 0, share=0.06))
    assert (verdict.estimates, verdict.gain, verdict.better) == ({}, None, False)
    assert "100 are needed; log more of them, or explore a larger share" in verdict.refused


def test_workers_that_the_log_never_tried_cannot_be_judged() -> None:
    logged, _ = log(500, 0)
    never = LoggedDecisions(
        workers=WORKERS,
        actions=np.zeros(500, np.int64),
        propensities=np.ones(500),
        rewards=logged.rewards,
        candidates=logged.candidates,
        features=logged.features,
    )
    verdict = evaluate_policy(never, np.tile([0.5, 0.0, 0.5], (500, 1)))
    assert "50.0% of its choices lie where the log has none, most of them c" in verdict.refused


def test_propensities_that_cannot_be_true_are_noticed() -> None:
    logged, target = log(3000, 0)
    wrong = LoggedDecisions(
        workers=WORKERS,
        actions=logged.actions,
        propensities=np.full(3000, 1 / 3),
        rewards=logged.rewards,
        candidates=logged.candidates,
        features=logged.features,
    )
    assert "propensities are not those" in evaluate_policy(wrong, np.tile([1.0, 0.0, 0.0], (3000, 1))).refused
    assert not evaluate_policy(logged, target).refused


def decision(worker: str, success: float | None, propensity: float = 0.5) -> tuple[Choice, Outcome]:
    choice = Choice(worker=worker, propensity=propensity, candidates=("large", "small"), policy="base")
    ending = Ending.UNJUDGED if success is None else Ending.RIGHT if success else Ending.WRONG
    return choice, Outcome(ending=ending, success=success, cost=0.01, seconds=1.0)


def worths(decisions: list[tuple[Choice, Outcome]]) -> tuple[list[Choice], Floats]:
    """The choices, and what each was worth by the utility."""
    runs = Runs.of((choice.worker, outcome) for choice, outcome in decisions)
    return [choice for choice, _ in decisions], total(Utility(), runs)


def test_a_log_of_decisions_is_read_and_what_nobody_judged_is_counted() -> None:
    decisions = [decision("small", 1.0), decision("large", None), decision("large", 0.0)]
    logged = LoggedDecisions.of(*worths(decisions), [[1.0], [2.0], [3.0]])
    assert (logged.workers, logged.skipped, len(logged)) == (("large", "small"), 1, 2)
    assert (logged.actions.tolist(), logged.rewards.tolist(), logged.features.tolist()) == ([1, 0], [1.0, 0.0], [[1.0], [3.0]])
    with pytest.raises(InputError, match="no decision of the log has a known worth"):
        LoggedDecisions.of(*worths([decision("large", None)]))
    with pytest.raises(InputError, match="a propensity is 0"):
        LoggedDecisions.of(*worths([decision("large", 1.0, propensity=0.0)]))


def test_probabilities_of_another_shape_are_refused() -> None:
    logged, target = log(200, 0)
    for wrong in (target[:, :2], target * 2):
        with pytest.raises(InputError, match="each row adding up to 1"):
            evaluate_policy(logged, wrong)


def test_features_are_the_main_directions_and_the_types() -> None:
    chance = np.random.default_rng(0)
    vectors = chance.normal(size=(50, 30)) * np.linspace(3, 0.1, 30)
    assert request_features(vectors, most=4).shape == (50, 4)
    assert request_features(vectors, ["x", "y"] * 25, most=4).shape == (50, 6)
    assert request_features(vectors, ["x"] * 50, most=4).shape == (50, 4)
