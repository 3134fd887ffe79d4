"""A cascade costs no more than all of its workers, and is worth no less than the best of them where it was tuned."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.optimizers.router.cascade import (
    NEVER,
    AnswerAgreement,
    Ladder,
    RecordedAnswers,
    by_agreement,
    by_scores,
    learn,
    search,
    tune,
)

words = st.sampled_from(["", "1", "2", "3"])


@st.composite
def records(draw: st.DrawFn) -> RecordedAnswers:
    n, m = draw(st.integers(2, 12)), draw(st.integers(1, 4))
    answers = np.array(draw(st.lists(st.lists(words, min_size=m, max_size=m), min_size=n, max_size=n)), np.str_)
    costs = draw(st.lists(st.floats(0.001, 1), min_size=m, max_size=m))
    return RecordedAnswers(
        workers=tuple("abcd"[:m]), answers=answers, success=(answers == "1").astype(float), cost=np.tile(costs, (n, 1))
    )


@given(records(), st.lists(st.floats(0, 1), min_size=3, max_size=3), st.permutations(range(4)))
def test_a_cascade_never_costs_more_than_all_its_workers_together(
    recorded: RecordedAnswers, thresholds: list[float], order: list[int]
) -> None:
    columns = [column for column in order if column < len(recorded.workers)]
    ladder = Ladder(workers=tuple(recorded.workers[c] for c in columns), thresholds=tuple(thresholds[: len(columns) - 1]))
    stages = by_agreement(recorded, columns, learn(recorded.answers, recorded.success))
    stop = ladder.stops(stages)
    cost = stages.cost[np.arange(len(stop)), stop]
    assert (cost >= recorded.cost[:, columns[0]] - 1e-12).all()
    assert (cost <= recorded.cost[:, columns].sum(axis=1) + 1e-12).all()


@given(records(), st.floats(0, 3))
def test_no_single_worker_is_worth_more_than_the_tuned_cascade_on_the_same_rows(
    recorded: RecordedAnswers, dollar: float
) -> None:
    ladder, worth = search(recorded, learn(recorded.answers, recorded.success), cost=dollar)
    assert worth >= (recorded.success - dollar * recorded.cost).mean(axis=0).max() - 1e-9
    columns = [recorded.workers.index(name) for name in ladder.workers]
    stages = by_agreement(recorded, columns, learn(recorded.answers, recorded.success))
    stop = ladder.stops(stages)
    assert stages.worth(dollar)[np.arange(len(stop)), stop].mean() == pytest.approx(worth)


@given(records())
def test_many_are_judged_as_each_alone(recorded: RecordedAnswers) -> None:
    agreement = learn(recorded.answers, recorded.success)
    leaders, scores = agreement.judge_all(recorded.answers)
    for row, answers in enumerate(recorded.answers.tolist()):
        for t in range(len(recorded.workers)):
            leader, score = agreement.judge(answers[: t + 1])
            assert score == pytest.approx(scores[row, t])
            assert answers[leader] == answers[leaders[row, t]]


def test_agreement_is_bayes_rule() -> None:
    agreement = AnswerAgreement(skill=(0.6, 0.8, 0.9), chance=0.25)
    # K is 5. "x" of two: 0.6*4/0.4 * 0.8*4/0.2 = 96; "y" of one: 0.9*4/0.1 = 36; none of them: 5 - 2 = 3.
    assert agreement.judge(["x", "x", "y"]) == pytest.approx((0, 96 / 135))
    # One alone is as good as it is.
    assert agreement.judge(["", "z"]) == pytest.approx((1, 0.8))
    assert agreement.judge(["", ""]) == (1, 0.0)


def test_skill_and_chance_are_learned_from_what_was_judged() -> None:
    answers = np.array([["1", "1"], ["2", "2"], ["3", "4"], ["1", ""]])
    found = learn(answers, np.array([[1, 1], [0, 0], [0, 0], [np.nan, 0]]))
    assert found.skill == pytest.approx((2 / 5, 2 / 6))
    # Two pairs were both wrong, and one of them the same.
    assert found.chance == pytest.approx(2 / 6)


def pool(n: int = 600, seed: int = 0) -> RecordedAnswers:
    """Three cheap workers and a dear one, right independently of each other."""
    rng = np.random.default_rng(seed)
    right = rng.random((n, 4)) < [0.75, 0.75, 0.75, 0.95]
    answers = np.where(right, "right", np.char.add("wrong", rng.integers(0, 8, (n, 4)).astype(np.str_)))
    return RecordedAnswers(
        workers=("a", "b", "c", "dear"),
        answers=answers,
        success=right.astype(float),
        cost=np.tile([1e-3, 1e-3, 1e-3, 0.1], (n, 1)),
    )


def test_cheap_workers_that_agree_save_most_of_the_dear_ones_price() -> None:
    train, test = pool(), pool(seed=1)
    agreement = learn(train.answers, train.success)
    ladder, _ = search(train, agreement, cost=1.0)
    columns = [train.workers.index(name) for name in ladder.workers]
    assert ladder.workers[-1] == "dear"
    stages = by_agreement(test, columns, agreement)
    stop = ladder.stops(stages)
    rows = np.arange(len(stop))
    assert stages.success[rows, stop].mean() > 0.93
    assert stages.cost[rows, stop].mean() < 0.06


def test_any_score_of_an_answer_can_be_the_verifier() -> None:
    recorded = pool()
    ladder_columns = [0, 3]
    stages = by_scores(recorded, ladder_columns, recorded.success * 0.8 + 0.1)
    thresholds, worth = tune(stages, cost=1.0)
    # A verifier that knows lets every right answer of the cheap worker pass, and no other.
    stop = Ladder(workers=("a", "dear"), thresholds=thresholds).stops(stages)
    assert (stop == 1 - recorded.success[:, 0]).all()
    assert worth > recorded.success[:, 3].mean() - 0.1


def test_a_verifier_that_knows_nothing_is_not_paid_for() -> None:
    recorded = pool()
    stages = by_scores(recorded, [0, 3], np.full((600, 4), 0.5))
    assert tune(stages, cost=0.0)[0] == (NEVER,)
    assert tune(stages, cost=100.0)[0] == (0.0,)


def test_where_nothing_was_judged_nothing_is_tuned() -> None:
    recorded = pool(4)
    unknown = RecordedAnswers(
        workers=recorded.workers, answers=recorded.answers, success=recorded.success * np.nan, cost=recorded.cost
    )
    with pytest.raises(InputError, match="there is none"):
        search(unknown, learn(recorded.answers, recorded.success), cost=1.0)
