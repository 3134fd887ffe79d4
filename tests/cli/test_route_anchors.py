"""A new model joins from a few answers: asked, placed, trained and forecast, end to end on files."""

import json
from pathlib import Path

import numpy as np
import pytest

from journeyman.cli import main
from journeyman.optimizers.outcome_table import parts
from journeyman.optimizers.router import cold_start, outcomes
from journeyman.serving.router import Router
from tests.optimizers.router import worlds
from tests.support import routing

pytestmark = pytest.mark.training

SUM = "How many are 12 apples plus 30 coins? Compute the sum."


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Outcomes of two models; what a third would have answered is known to the test alone."""
    monkeypatch.chdir(tmp_path)
    with Path("outcomes.jsonl").open("w") as file:
        for line in routing.lines(600):
            known = {name: line["outcomes"][name] for name in ("counter", "poet")}
            file.write(json.dumps({**line, "outcomes": known}) + "\n")
    return tmp_path


def asked(count: int) -> list[dict[str, str]]:
    words = ["route", "anchors", "--outcomes", "outcomes.jsonl", "--count", str(count), "--output", "anchors.jsonl"]
    assert main(words) == 0
    return [json.loads(line) for line in Path("anchors.jsonl").read_text().splitlines()]


def answer(lines: list[dict[str, str]]) -> None:
    """As the third model does."""
    truth = {line["request"]: line["outcomes"]["sage"] for line in routing.lines(600)}
    told = [{**line, "model": "sage", **truth[line["request"]]} for line in lines]
    Path("answers.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in told))


def test_the_questions_are_different_ones_that_are_not_held_out(project: Path) -> None:
    lines = asked(30)
    table = outcomes.table(outcomes.rows_of_files([project / "outcomes.jsonl"]))
    learned = {table.requests[row] for row in parts(table, held_out=0.2, validation=0.15, seed=0).train}
    requests = [line["request"] for line in lines]
    assert len(set(requests)) == 30
    assert set(requests) <= learned


def test_from_thirty_answers_a_model_joins_and_is_forecast(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(asked(30))
    words = ["train", "router", "--outcomes", "outcomes.jsonl", "--outcomes", "answers.jsonl", "--newcomer", "sage", "--json"]
    main(words)
    trained = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert trained["workers"] == ["counter", "poet", "sage"]
    assert trained["best_single"] != "sage"
    router = Router.load("routers/trained", unproven=True)
    forecasts = {each.worker: each for each in router.route(SUM).forecasts}
    # Right in 98 of 100 cases; thirty answers among two models that know different things are not believed so far.
    assert 0.7 < forecasts["sage"].success < 0.98
    assert forecasts["sage"].success > forecasts["poet"].success + 0.4
    assert forecasts["sage"].cost == pytest.approx(routing.COST["sage"], rel=0.1)


def test_a_question_asked_under_another_id_is_the_same_question() -> None:
    """And what is filled in lies between what is known of nobody and of itself: few answers are not believed too far."""
    chance = np.random.default_rng(0)
    hard = chance.normal(0, 1.5, 400)
    right = (chance.random((400, 4)) < 1 / (1 + np.exp(hard[:, None] - [-1.0, 0.0, 1.0, 2.0]))).astype(float)
    known, new = right.copy(), np.full((30, 4), np.nan)
    known[:, 3], new[:, 3] = np.nan, right[:30, 3]
    requests = [f"question {at}" for at in (*range(400), *range(30))]
    table = worlds.table(np.vstack([known, new]), requests=requests)
    filled = cold_start.placed(table, range(430), ["model-3"]).success
    assert np.array_equal(filled[400:, 3], right[:30, 3])
    assert np.array_equal(filled[:30, 3], right[:30, 3])
    rest = filled[30:400, 3]
    assert abs(rest.mean() - right[30:, 3].mean()) < 0.1
    assert np.corrcoef(rest, hard[30:])[0, 1] < -0.5
    assert np.array_equal(filled[:, :3], table.success[:, :3], equal_nan=True)


def test_a_newcomer_with_too_few_answers_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(asked(30)[:3])
    words = ["train", "router", "--outcomes", "outcomes.jsonl", "--outcomes", "answers.jsonl", "--newcomer", "sage"]
    assert main(words) == 2
    assert "'sage' is new, and 3 of its answers are judged" in capsys.readouterr().err
