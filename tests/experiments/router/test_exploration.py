import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.optimizers.exploration import Thompson, ThompsonConfig, pareto_front

pytestmark = pytest.mark.training

WORKERS = ("small", "middle", "large")


def taught(rates: dict[str, tuple[float, ...]], rounds: int, cap: float = 0.5, seed: int = 0) -> tuple[Thompson, float]:
    """What it learned by choosing itself, and what the last quarter of its choices brought."""
    policy, chance = Thompson(workers=WORKERS, config=ThompsonConfig(cap=cap)), np.random.default_rng(seed)
    types, brought = sorted(rates), []
    for at in range(rounds):
        type = types[at % len(types)]
        choice = policy.choose(type, chance)
        worth = float(chance.random() < rates[type][WORKERS.index(choice.worker)])
        policy.learn(type, choice.worker, worth)
        brought.append(worth)
    return policy, float(np.mean(brought[-rounds // 4 :]))


@pytest.mark.parametrize("seed", range(3))
def test_the_best_worker_for_each_type_is_found(seed: int) -> None:
    policy, brought = taught({"a": (0.9, 0.4, 0.5), "b": (0.2, 0.4, 0.9)}, 1500, seed=seed)
    assert (policy.best("a"), policy.best("b")) == ("small", "large")
    assert brought > 0.8


def test_a_type_that_was_never_seen_gets_who_is_best_in_general() -> None:
    policy = Thompson(workers=WORKERS)
    for type in "abcd":
        for worker, worth in zip(WORKERS, (0.2, 0.9, 0.5), strict=True):
            for _ in range(20):
                policy.learn(type, worker, worth)
    assert policy.best("new") == "middle"


def test_types_that_do_not_matter_are_pooled_and_types_that_do_are_not() -> None:
    """After 4 outcomes of a type, which contradict all others: an accident where types never mattered before."""
    chance = np.random.default_rng(0)
    means = []
    for apart in (False, True):
        policy = Thompson(workers=WORKERS)
        for at in range(40):
            flipped = apart and at % 2
            for worker, rate in zip(WORKERS, (0.1, 0.5, 0.9) if flipped else (0.9, 0.5, 0.1), strict=True):
                for _ in range(25):
                    policy.learn(f"type {at}", worker, float(chance.random() < rate))
        for _ in range(4):
            policy.learn("new", "small", 0.0)
            policy.learn("new", "large", 1.0)
        mean, _ = policy.posterior("new")
        means.append(mean[0] - mean[2])
    assert means[0] > 0 > means[1]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(WORKERS), st.floats(-1, 1)), max_size=30), st.floats(0.01, 1))
def test_probabilities_add_up_none_is_zero_and_the_cap_is_kept(seen: list[tuple[str, str, float]], cap: float) -> None:
    policy = Thompson(workers=WORKERS, config=ThompsonConfig(cap=cap))
    for type, worker, worth in seen:
        policy.learn(type, worker, worth)
    chances = policy.probabilities("a", np.random.default_rng(0))
    assert chances.sum() == pytest.approx(1.0)
    assert (chances > 0).all()
    best = WORKERS.index(policy.best("a"))
    assert 1 - chances[best] <= cap + 1e-9


def test_logged_propensities_are_those_it_was_drawn_by() -> None:
    """Outcomes weighted by them estimate what each worker brings, although the policy prefers one."""
    policy, _ = taught({"a": (0.6, 0.5, 0.4)}, 150)
    chance, rates = np.random.default_rng(1), (0.6, 0.5, 0.4)
    sums = np.zeros(3)
    rounds = 4000
    for _ in range(rounds):
        choice = policy.choose("a", chance)
        at = WORKERS.index(choice.worker)
        sums[at] += float(chance.random() < rates[at]) / choice.propensity
        assert choice.candidates == WORKERS
    assert sums / rounds == pytest.approx(rates, abs=0.12)


def test_written_down_and_read_again_it_decides_the_same() -> None:
    policy, _ = taught({"a": (0.9, 0.4, 0.5), "b": (0.2, 0.4, 0.9)}, 200)
    again = Thompson.from_json(policy.to_json())
    assert again.to_json() == policy.to_json()
    for type in ("a", "b", "new"):
        assert (
            again.probabilities(type, np.random.default_rng(5)) == policy.probabilities(type, np.random.default_rng(5))
        ).all()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"workers": ["a"], "config": {}, "name": "x", "types": {"t": [[1], [NaN], [1]]}}']
)
def test_what_is_no_such_policy_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="no Thompson policy"):
        Thompson.from_json(text)


def test_what_is_not_known_is_not_learned_from() -> None:
    policy = Thompson(workers=WORKERS)
    with pytest.raises(InputError, match="leave out what is not known"):
        policy.learn("a", "small", float("nan"))
    with pytest.raises(InputError, match="none of the workers"):
        policy.learn("a", "huge", 1.0)
    with pytest.raises(InputError, match="exploration cap"):
        ThompsonConfig(cap=0.0)


def test_only_who_is_beaten_in_nothing_stays_on_the_front() -> None:
    # The second costs more and is no better than the first; the third is best; the fourth's cost is not known.
    assert pareto_front([0.8, 0.8, 0.9, 0.7], [1.0, 2.0, 5.0, None], [1.0, 1.0, 1.0, 0.5]) == (0, 2, 3)


front = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 9), st.floats(0, 9)), min_size=1, max_size=8)


@given(front)
def test_the_front_holds_the_best_in_each_and_is_never_empty(rows: list[tuple[float, float, float]]) -> None:
    success, cost, seconds = ([row[at] for row in rows] for at in range(3))
    found = pareto_front(success, cost, seconds)
    assert max(success[at] for at in found) == max(success)
    assert min(cost[at] for at in found) == min(cost)
    assert min(seconds[at] for at in found) == min(seconds)
