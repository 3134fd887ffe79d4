"""A few answers place a worker, because the others have shown how hard the questions are."""

import numpy as np
import pytest

from journeyman.core.errors import InputError
from journeyman.optimizers.router.cold_start import anchors, fit, place
from journeyman.stats import Floats


def answered(abilities: Floats, questions: int = 600, seed: int = 0) -> tuple[Floats, Floats]:
    """Who was right on what, drawn from the two-parameter model, and the probabilities themselves."""
    rng = np.random.default_rng(seed)
    difficulty, discrimination = rng.normal(0, 1.5, (questions, 1)), rng.choice([0.7, 1.5], (questions, 1))
    likely = 1 / (1 + np.exp(-discrimination * (abilities - difficulty)))
    return (rng.random(likely.shape) < likely).astype(float), likely


def test_abilities_come_out_in_their_order() -> None:
    true = np.array([-2.0, -1.0, -0.3, 0.3, 1.0, 2.0])
    found = fit(answered(true)[0]).abilities
    assert (np.argsort(found) == np.arange(6)).all()
    assert np.corrcoef(found, true)[0, 1] > 0.98


def test_thirty_anchors_tell_more_of_each_question_than_the_newcomers_own_mean_over_all() -> None:
    abilities = np.append(np.linspace(-2, 2, 10), 0.7)
    outcomes, likely = answered(abilities)
    bank, newcomer = fit(outcomes[:, :10]), outcomes[:, 10]
    asked = anchors(bank, 30)
    placed = place(bank, asked, newcomer[asked])
    rest = np.setdiff1d(np.arange(600), asked)
    naive = float(np.mean((newcomer.mean() - likely[rest, 10]) ** 2))
    assert np.mean((placed.success[rest] - likely[rest, 10]) ** 2) < naive / 2
    assert placed.accuracy_interval[0] < newcomer.mean() < placed.accuracy_interval[1]
    assert placed.success[asked].tolist() == newcomer[asked].tolist()


def test_the_interval_holds_the_true_accuracy_as_often_as_it_says() -> None:
    held = 0
    for seed in range(20):
        ability = float(np.random.default_rng(seed).normal())
        outcomes, _ = answered(np.append(np.linspace(-2, 2, 8), ability), 200, seed)
        bank = fit(outcomes[:, :8])
        asked = anchors(bank, 20)
        low, high = place(bank, asked, outcomes[asked, 8]).accuracy_interval
        held += low <= outcomes[:, 8].mean() <= high
    assert held >= 16


def test_more_answers_narrow_the_interval() -> None:
    outcomes, _ = answered(np.linspace(-2, 2, 9))
    bank = fit(outcomes[:, :8])
    few, many = (place(bank, rows, outcomes[rows, 8]) for rows in (anchors(bank, 5), anchors(bank, 100)))
    assert np.diff(many.ability_interval)[0] < np.diff(few.ability_interval)[0] / 2


def test_anchors_are_of_every_difficulty_and_asked_once() -> None:
    outcomes, _ = answered(np.linspace(-2, 2, 9))
    bank = fit(outcomes)
    asked = anchors(bank, 20)
    assert len(set(asked.tolist())) == 20
    ease = outcomes[asked].mean(axis=1)
    assert ease[:5].mean() > ease[-5:].mean() + 0.4
    assert set(anchors(bank, 5, among=[3, 4, 5]).tolist()) == {3, 4, 5}


def test_nobody_judged_is_not_wrong() -> None:
    outcomes, _ = answered(np.linspace(-2, 2, 5))
    bank = fit(outcomes)
    rows = [0, 1, 2]
    assert place(bank, rows, [1.0, np.nan, np.nan]).ability == place(bank, rows[:1], [1.0]).ability
    assert place(bank, [], []).ability == pytest.approx(bank.abilities.mean(), abs=0.05)


def test_holes_in_the_table_are_no_wrong_answers() -> None:
    outcomes, _ = answered(np.linspace(-2, 2, 9))
    whole = fit(outcomes).abilities[8]
    outcomes[::2, 8] = np.nan
    assert fit(outcomes).abilities[8] == pytest.approx(whole, abs=0.4)
    assert fit(np.nan_to_num(outcomes)).abilities[8] < whole - 1


def test_one_worker_alone_tells_no_difficulty() -> None:
    with pytest.raises(InputError, match="at least two workers"):
        fit(np.ones((10, 1)))
