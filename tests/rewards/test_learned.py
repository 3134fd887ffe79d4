import json
import math
from pathlib import Path

import numpy as np
import pytest

from journeyman import rewards
from journeyman.core.errors import InputError
from journeyman.core.trace import ModelCall, Reasoning, Step, Trace
from journeyman.models.embedders import HashingEmbedder
from journeyman.rewards import learned, train_learned
from journeyman.rewards.learned import LearnedModel, LearnedReward
from journeyman.rewards.train_learned import LabelledAttempt
from journeyman.rewards.train_learned import train as teach
from tests.support.traces import done, reply, used

pytestmark = pytest.mark.training


def attempt(number: int, success: bool, rng: np.random.Generator, skill: float = 1.0) -> LabelledAttempt:
    """Failures have more failed calls, by chance."""
    count = int(rng.integers(3, 9))
    trouble = 0.15 if success else 0.15 + 0.4 * skill
    steps: list[Step] = [used("edit", ok=bool(rng.random() > trouble), arguments=str(place)) for place in range(count)]
    words = "all tests are green" if success and skill else "I could not find it"
    trace = done(*steps, reply(words), task=f"task {number // 2}", id=str(number))
    return LabelledAttempt(trace, success, trace.task_id)


def attempts(count: int, skill: float = 1.0, successes: float = 0.5, seed: int = 0) -> list[LabelledAttempt]:
    rng = np.random.default_rng(seed)
    return [attempt(number, bool(rng.random() < successes), rng, skill) for number in range(count)]


@pytest.fixture(scope="module")
def model() -> LearnedModel:
    return teach(attempts(200))


@pytest.fixture
def path(model: LearnedModel, tmp_path: Path) -> Path:
    path = tmp_path / "reward.json"
    path.write_text(json.dumps(model.json()))
    return path


def test_it_tells_successes_from_failures_on_tasks_it_never_saw(model: LearnedModel) -> None:
    assert model.report.silence is None
    assert model.report.auc is not None
    assert model.report.auc.value > 0.75
    unseen = attempts(200, seed=9)
    guesses = [model.probability(example.trace, None) for example in unseen]
    good = np.mean([guess for guess, example in zip(guesses, unseen, strict=True) if example.success])
    bad = np.mean([guess for guess, example in zip(guesses, unseen, strict=True) if not example.success])
    assert good > bad + 0.2


@pytest.mark.parametrize("strength", [0.001, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_regression_is_that_of_scikit_learn(strength: float, seed: int) -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(seed)
    table = rng.normal(size=(50, 20))
    labels = (table[:, 0] + 0.3 * rng.normal(size=50) > 0).astype(float)
    coefficients, intercept = train_learned._regression(table, labels, strength)
    found = LogisticRegression(C=strength, tol=1e-10, max_iter=10_000).fit(table, labels)
    assert coefficients == pytest.approx(found.coef_[0], abs=1e-4 * max(1.0, float(abs(found.coef_).max())))
    assert intercept == pytest.approx(float(found.intercept_[0]), abs=1e-3)


def test_its_probabilities_mean_what_they_say(model: LearnedModel) -> None:
    assert model.report.ece is not None
    assert model.report.ece.value < 0.12


def test_labels_that_follow_from_nothing_make_it_silent() -> None:
    model = teach(attempts(200, skill=0.0))
    assert "cannot tell" in str(model.report.silence)
    result = LearnedReward(model).compute(done(reply("Done.")))
    assert result.score is None
    assert "cannot tell" in str(result.details["evidence"])


@pytest.mark.parametrize(("count", "successes"), [(4, 0.5), (38, 0.5), (200, 0.05), (30, 0.0), (1, 1.0)])
def test_too_few_labels_of_a_kind_make_it_silent(count: int, successes: float) -> None:
    report = teach(attempts(count, successes=successes)).report
    assert "it takes 20 of each" in str(report.silence)


def test_labels_of_too_few_tasks_make_it_silent() -> None:
    examples = [LabelledAttempt(one.trace, one.success, str(number % 3)) for number, one in enumerate(attempts(100))]
    assert "of 3 tasks, too few" in str(teach(examples).report.silence)


def test_teaching_is_deterministic(model: LearnedModel) -> None:
    assert teach(attempts(200)).json() == model.json()


def test_words_help_where_they_tell(model: LearnedModel) -> None:
    worded = teach(attempts(200), HashingEmbedder(32))
    assert worded.report.auc is not None
    assert model.report.auc is not None
    assert worded.report.auc.value > model.report.auc.value


def test_a_model_is_read_as_it_was_written_and_judges_alike(model: LearnedModel, path: Path) -> None:
    read = learned.load(path)
    assert read.json() == model.json()
    trace = attempts(1)[0].trace
    assert read.probability(trace, None) == model.probability(trace, None)


def test_it_is_loaded_by_name_with_its_embedder(tmp_path: Path) -> None:
    path = tmp_path / "worded-reward.json"
    path.write_text(json.dumps(teach(attempts(120), HashingEmbedder(16)).json()))
    reward = rewards.load(f"learned:{path}")
    result = reward.compute(attempts(1)[0].trace)
    assert result.score is not None
    assert 0 < result.score < 1
    assert result.details["verifiable"] is False


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"intercept": 9.0}, "was changed since"),
        ({"coefficients": []}, "was changed since"),
        ({"report": {}}, "was changed since"),
        ({"format": "pickle"}, "is no learned reward"),
        ({"version": 99}, "another version"),
        ({"features": ["luck"]}, "another version"),
    ],
)
def test_a_file_that_was_tampered_with_is_refused(path: Path, change: dict[str, object], said: str) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError, match=said):
        learned.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"coefficients": [1.0]},
        {"coefficients": ["x"] * len(learned.NAMES)},
        {"scale": [0.0] * len(learned.NAMES)},
        {"scale": None},
        {"embedder": "sentence:/etc/passwd"},
        {"embedder": "hashing:7"},
        {"calibration": {"kind": "oracle"}},
        {"report": {"successes": 1}},
        {"intercept": math.inf},
    ],
)
def test_one_whose_digest_was_forged_too_still_cannot_hold_nonsense(path: Path, change: dict[str, object]) -> None:
    content = {**json.loads(path.read_text()), **change}
    del content["digest"]
    path.write_text(json.dumps({**content, "digest": learned._digest(content)}))
    with pytest.raises(InputError, match="no sound learned reward"):
        learned.load(path)


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", "\x80\x04", '{"format": "journeyman-learned-reward"}'])
def test_a_file_that_is_something_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError, match=str(path)):
        learned.load(path)


def test_a_missing_file_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="journeyman rewards train"):
        learned.load(tmp_path / "none.json")


def test_the_unknown_is_the_mean_and_not_zero(model: LearnedModel) -> None:
    table = learned.numbers([done(reply("x"))])
    tokens = learned.NAMES.index("input_tokens")
    assert np.isnan(table[0, tokens])
    assert 0 < model.probability(done(reply("x")), None) < 1


def test_features_count_what_was_done() -> None:
    steps = (
        ModelCall(model="m", prompt="p", reply="Shall I?", input_tokens=7, output_tokens=3, seconds=1.0),
        Reasoning(text="hm"),
        used("read", "12345", arguments="{}"),
        used("read", "", ok=False, arguments="{}"),
    )
    row = dict(zip(learned.NAMES, learned.numbers([done(*steps, error="E: x")])[0], strict=True))
    found = {name: round(math.expm1(value)) for name, value in row.items() if name in learned._COUNTS and not math.isnan(value)}
    assert found["tool_calls"] == 2
    assert found["tool_errors"] == found["retries"] == found["reasoning"] == found["questions"] == 1
    assert found["input_tokens"] == 7
    assert found["result_characters"] == 5
    assert row["tool_error_share"] == 0.5
    assert row["stopped_early"] == row["ends_with_a_tool"] == 1.0
    assert math.isnan(row["seconds"])


def test_an_empty_trace_has_features() -> None:
    trace: Trace = done()
    assert learned.columns([trace], HashingEmbedder(8)).shape == (1, len(learned.NAMES) + 8)
