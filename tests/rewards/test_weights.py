import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.rewards import weight_fitting
from journeyman.rewards.weight_fitting import Scored, fit
from tests.support.examples import examples

pytestmark = pytest.mark.training

DEFAULTS = {"good": 1.0, "noise": 2.0, "mute": 1.0}


def rows(count: int, signal: float, seed: int = 0, each: int = 4) -> list[Scored]:
    """One reward that agrees with the label as far as `signal`, one of noise, and one that often cannot tell."""
    rng = np.random.default_rng(seed)
    made = []
    for place in range(count):
        label = float(rng.random() < 0.5)
        good = float(np.clip(0.5 + signal * (label - 0.5) + 0.2 * rng.normal(), 0, 1))
        mute = None if rng.random() < 0.5 else float(rng.random())
        values = {"good": good, "noise": float(rng.random()), "mute": mute}
        made.append(Scored(values=values, label=label, group=str(place // each)))
    return made


def test_weights_move_to_the_reward_that_agrees_and_say_by_how_much() -> None:
    found = fit(rows(400, 0.3), DEFAULTS)
    assert found.better
    assert found.after.value > found.before.value + 0.1
    assert found.weights["good"] > 3 * found.weights["noise"]
    assert sum(found.weights.values()) == pytest.approx(sum(DEFAULTS.values()), abs=1e-4)
    assert all(weight >= 0 for weight in found.weights.values())
    assert found.intervals.keys() == found.fitted.keys()
    assert all(low <= high for low, high in found.intervals.values())
    assert found.intervals["good"][0] > found.intervals["noise"][1], "so far apart that chance does not explain it"
    low, high = found.intervals["good"]
    wide_low, wide_high = fit(rows(80, 0.3), DEFAULTS).intervals["good"]
    assert high - low < wide_high - wide_low, "fewer tasks, less certain weights"


def test_the_gain_it_reports_is_there_on_tasks_it_never_saw() -> None:
    found = fit(rows(400, 0.3), DEFAULTS)
    unseen = rows(2000, 0.3, seed=77)

    def agreement(used: dict[str, float]) -> float:
        known = [{name: value for name, value in row.values.items() if value is not None} for row in unseen]
        scores = np.array([sum(used[name] * row[name] for name in row) / sum(used[name] for name in row) for row in known])
        labels = np.array([row.label for row in unseen])
        return float((scores[labels == 1][:, None] > scores[labels == 0][None]).mean())

    gain = agreement(dict(found.weights)) - agreement(DEFAULTS)
    assert found.gain.low - 0.02 < gain < found.gain.high + 0.02


def test_a_verdict_that_weights_made_unknown_does_not_count_as_a_bad_one() -> None:
    """Where only the lenient reward could tell, dropping it leaves nothing to tell by: that agrees with no label."""
    strict = [
        Scored(values={"strict": label, "lenient": 0.5}, label=label, group=str(n)) for n in range(30) for label in (0.0, 1.0)
    ]
    alone = [Scored(values={"strict": None, "lenient": 1.0}, label=0.0, group=str(n)) for n in range(30)]
    found = fit([*strict, *alone], {"strict": 1.0, "lenient": 1.0})
    assert found.before.value == pytest.approx(0.5)
    assert found.after.value == pytest.approx(0.75)


def test_where_nothing_agrees_the_defaults_stay() -> None:
    kept = 0
    for seed in range(4):
        found = fit(rows(120, 0.0, seed=seed), DEFAULTS)
        assert found.weights == (found.fitted if found.better else DEFAULTS)
        kept += not found.better
    assert kept >= 3


def test_good_defaults_are_not_left_for_a_hair() -> None:
    found = fit(rows(200, 0.5), {"good": 1.0, "noise": 0.0, "mute": 0.0})
    assert not found.better
    assert found.weights == {"good": 1.0, "noise": 0.0, "mute": 0.0}
    assert "the defaults stay" in found.verdict


def test_labels_may_be_graded() -> None:
    graded = [Scored(values=row.values, label=(row.values["good"] or 0.0) ** 2, group=row.group) for row in rows(200, 0.3)]
    assert fit(graded, DEFAULTS).after.value > 0.9


def test_the_order_of_rows_does_not_matter_to_what_is_kept() -> None:
    some = rows(200, 0.3)
    one, other = fit(some, DEFAULTS), fit(some[::-1], DEFAULTS)
    assert one.better == other.better
    assert one.weights == pytest.approx(other.weights, abs=0.02)


def test_rows_on_which_no_reward_could_tell_are_counted_and_left_out() -> None:
    lost = [Scored(values=dict.fromkeys(DEFAULTS), label=1.0, group="x")] * 3
    assert fit([*rows(100, 0.3), *lost], DEFAULTS).dropped == 3


@pytest.mark.parametrize(
    ("some", "defaults", "said"),
    [
        (rows(200, 0.3), {"good": 1.0}, "1 rewards"),
        (rows(200, 0.3), {"good": 0.0, "noise": 0.0}, "must weigh something"),
        (rows(36, 0.3), DEFAULTS, "9 tasks"),
        ([], DEFAULTS, "0 tasks"),
        (
            [Scored(values=row.values, label=1.0, group=row.group) for row in rows(100, 0.3)],
            DEFAULTS,
            "all labels are the same",
        ),
    ],
)
def test_what_cannot_be_fitted_is_said_in_a_sentence(some: list[Scored], defaults: dict[str, float], said: str) -> None:
    with pytest.raises(InputError, match=said):
        fit(some, defaults)


@examples(0.1)
@given(st.integers(0, 1000), st.floats(0, 0.5))
def test_any_fit_gives_weights_an_engine_takes(seed: int, signal: float) -> None:
    found = fit(rows(80, signal, seed=seed), DEFAULTS)
    assert set(found.weights) == set(DEFAULTS)
    assert all(weight >= 0 for weight in found.weights.values())
    assert found.gain.low <= found.gain.high
    json.dumps(found.json())


@given(st.dictionaries(st.text(min_size=1).filter(lambda name: name.isprintable()), st.floats(0.1, 9), min_size=1))
def test_weights_are_read_as_they_were_written(tmp_path_factory: pytest.TempPathFactory, made: dict[str, float]) -> None:
    path = tmp_path_factory.mktemp("weights") / "weights.toml"
    path.write_text(weight_fitting.dumps(made, "better\nby far"), encoding="utf-8")
    assert weight_fitting.load(path) == made


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no weights"),
        ("[rewards]\nweights = 3\n", "holds no weights"),
        ('[rewards.weights]\na = "much"\nb = -1\n', "weight of a .* weight of b"),
        ("[rewards.weights]\na = 0\n", "above 0"),
        ("[rewards.weights]\na = inf\n", "must be a number"),
        ("[rewards", "could not be read"),
    ],
)
def test_a_file_without_sound_weights_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "w.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        weight_fitting.load(path)
