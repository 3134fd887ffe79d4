"""`journeyman releases simulate`: what a rollout would find, and that it says so when the traffic is too little."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from journeyman.cli import main
from journeyman.core.rollout import EventKind
from journeyman.core.rollout_plan import RolloutPlan
from journeyman.experiments.release_simulation import Traffic, forecast, only_primary

SIMULATE = ("releases", "simulate")


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main([*SIMULATE, *arguments, "--runs", "20", "--json"])
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_bad_candidate_is_found_after_few_sessions_of_its_own() -> None:
    bad = forecast(RolloutPlan(), Traffic(worse=0.3), per_day=2000, runs=10)
    assert bad.mostly is EventKind.ROLLBACK
    assert bad.rolled_back > 0.8
    assert bad.sessions[0] < 1000
    assert bad.canary[0] < 100


def test_the_same_seed_gives_the_same_forecast() -> None:
    first, again = (forecast(RolloutPlan(), Traffic(worse=0.5), per_day=2000, runs=2, seed=4) for _ in range(2))
    assert first == again


def test_the_primary_metric_alone_keeps_its_level() -> None:
    plan = only_primary(RolloutPlan())
    assert plan.guardrails == ()
    assert plan.alpha == pytest.approx(0.02)


def test_sessions_are_drawn_as_correlated_as_they_are_said_to_be() -> None:
    chance, count = np.random.default_rng(1), 40_000
    for icc in (0.0, 0.3, 1.0):
        tasks, right = Traffic(icc=icc, tasks=3).successes(chance, np.zeros(count, bool))
        share = (right / tasks)[tasks == 2]
        assert right.sum() / tasks.sum() == pytest.approx(0.7, abs=0.01)
        # Of two tasks the variance of the mean is p(1 - p)(1 + icc)/2.
        assert share.var() == pytest.approx(0.21 * (1 + icc) / 2, rel=0.06)


@pytest.mark.slow
def test_too_little_traffic_is_said_with_what_it_would_take(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = ran(capsys, "--sessions-per-day", "5.7", "--share", "0.5", "--worse", "0.3")
    assert code == 1
    assert not found["enough"]
    assert "too little: at 39.9 sessions a week" in found["reason"]
    assert "months" in found["reason"]
    assert [row["worse"] for row in found["rows"]] == [0.3, 0.05, 0.0, -0.05]


@pytest.mark.slow
def test_a_plan_of_ones_own_is_taken_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.toml"
    file.write_text("[release]\nmin_sessions = 50\n[release.primary]\nname = 'solved'\nmargin = 0.2\n")
    code, found = ran(capsys, "--sessions-per-day", "1000", "--share", "0.5", "--plan", str(file))
    assert code == 0
    assert found["enough"]
    assert found["plan"]["primary"]["name"] == "solved"
    assert [row["worse"] for row in found["rows"]] == [0.2, 0.0, -0.2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--share", "1.5"), "--share is above 0 and below 1"),
        (("--share", "1"), "--share is above 0 and below 1"),
        (("--share", "nan"), "--share is above 0 and below 1"),
        (("--sessions-per-day", "nan"), "--sessions-per-day is a number above 0"),
        (("--sessions-per-day", "-3"), "--sessions-per-day is a number above 0"),
        (("--icc", "1"), "--icc is from 0 to below 1"),
        (("--worse", "inf"), "--worse is above 0 and below 1"),
        (("--worse", "0.8"), "more than production's success of 0.7 can lose"),
        (("--plan", "nowhere.toml"), "nowhere.toml is not there"),
    ],
)
def test_what_cannot_be_simulated_is_refused_in_one_sentence(
    given: tuple[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SIMULATE, "--sessions-per-day", "100", *given]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [("steps = [", "is no TOML"), ("stepz = [0.1]", "there is no 'stepz'"), ("steps = [0.5, 0.1]", "steps are shares above 0")],
)
def test_a_plan_that_is_none_is_refused_with_its_key(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.toml").write_text(text)
    assert main([*SIMULATE, "--sessions-per-day", "100", "--plan", str(tmp_path / "plan.toml")]) == 2
    assert said in capsys.readouterr().err
