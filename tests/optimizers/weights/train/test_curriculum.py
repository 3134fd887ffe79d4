"""Tasks that teach something are drawn more often, and a run that goes on draws what it would have drawn."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.optimizers.weights.train.online import Curriculum

pytestmark = pytest.mark.training

TASKS = [f"task-{number}" for number in range(20)]
SEEN = st.lists(
    st.tuples(st.sampled_from(TASKS), st.lists(st.none() | st.floats(0, 1), min_size=1, max_size=8)), min_size=1, max_size=12
)


def test_what_was_always_or_never_solved_is_drawn_less_than_what_was_sometimes() -> None:
    curriculum = Curriculum(["always", "never", "sometimes", "new"], seed=0)
    curriculum.draw(1)
    curriculum.saw("always", [1.0] * 8)
    curriculum.saw("never", [0.0] * 8)
    curriculum.saw("sometimes", [0.0, 1.0] * 4)
    assert curriculum.weight("always") == pytest.approx(curriculum.weight("never"))
    assert curriculum.weight("always") < 0.25 * curriculum.weight("sometimes")
    assert curriculum.weight("new") == pytest.approx(0.25)


def test_the_weight_of_a_task_is_the_variance_of_its_rewards() -> None:
    curriculum = Curriculum(["task"], seed=0)
    curriculum.saw("task", [0.0, 0.5, 1.0])
    # With a completion that got everything and one that got nothing, each counting half.
    mean = (0.5 + 1.5) / 4
    assert curriculum.weight("task") == pytest.approx((0.5 + 1.25) / 4 - mean**2)


def test_what_is_known_fades_with_the_draws() -> None:
    curriculum = Curriculum(["a", "b"], seed=0, half_life=4)
    curriculum.saw("a", [0.0] * 8)
    weights = [curriculum.weight("a")]
    for _ in range(40):
        curriculum.draw(1)
        weights.append(curriculum.weight("a"))
    assert weights == sorted(weights)
    # After one half-life 8 completions count as 4.
    assert weights[4] == pytest.approx(0.5 / 5 - (0.5 / 5) ** 2)
    assert weights[-1] == pytest.approx(0.25, abs=0.01)


def test_tasks_with_spread_come_more_often() -> None:
    curriculum = Curriculum(TASKS, seed=0, half_life=1e9)
    for number, task in enumerate(TASKS):
        curriculum.saw(task, [0.0] * 8 if number % 2 else [0.0, 1.0] * 4)
    drawn = [task for _ in range(200) for task in curriculum.draw(2)]
    odd = sum(int(task.removeprefix("task-")) % 2 for task in drawn)
    assert 0 < odd < 0.35 * len(drawn)


@given(count=st.integers(1, 50), without=st.sets(st.sampled_from(TASKS)))
def test_a_draw_repeats_no_task_while_there_are_others(count: int, without: set[str]) -> None:
    drawn = Curriculum(TASKS, seed=1).draw(count, without=without)
    assert len(drawn) == count
    assert len(set(drawn)) == min(count, len(TASKS))
    others = len(TASKS) - len(without)
    assert not without & set(drawn[: min(count, others)])


@given(seen=SEEN, seed=st.integers(0, 5))
def test_a_run_that_goes_on_draws_what_it_would_have_drawn(seen: list[tuple[str, list[float | None]]], seed: int) -> None:
    whole = Curriculum(TASKS, seed=seed)
    for task, rewards in seen:
        whole.draw(3)
        whole.saw(task, rewards)
    resumed = Curriculum(TASKS, seed=seed)
    resumed.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    for task, rewards in seen:
        assert resumed.draw(4) == whole.draw(4)
        resumed.saw(task, rewards)
        whole.saw(task, rewards)
    assert resumed.state_dict() == whole.state_dict()
    assert resumed.pass_rate == whole.pass_rate


def test_an_unknown_reward_is_no_failure() -> None:
    told, untold = Curriculum(["task"], seed=0), Curriculum(["task"], seed=0)
    told.saw("task", [1.0, None, 0.0, None])
    untold.saw("task", [1.0, 0.0])
    assert told.state_dict() == untold.state_dict()
    untold.saw("task", [None, None])
    assert told.state_dict() == untold.state_dict()
    assert told.pass_rate == 0.5
    assert Curriculum(["task"], seed=0).pass_rate is None
