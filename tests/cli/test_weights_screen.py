import json
from dataclasses import replace
from typing import Any

import pytest

from journeyman.cli.console import WeightsScreen
from journeyman.optimizers.weights.job import Ended
from journeyman.optimizers.weights.job import TrainingReport as Report
from journeyman.optimizers.weights.metrics import UpdateMetrics as Update


def told(update: Update) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(update.line())
    return found


UPDATE = Update(step=0, of=20)
REPORT = Report(
    ended=Ended.GUARDED,
    reason="the loss was no number at update 7",
    steps=7,
    kept_step=5,
    seconds=9.0,
    cpu_seconds=9.0,
    peak_memory=None,
    peak_gpu_memory=None,
    parameters=10,
    trained=2,
    tokens=30,
    validation_before=0.2,
    validation_after=0.4,
)


def test_without_a_terminal_a_few_lines_tell_how_it_goes(capsys: pytest.CaptureFixture[str]) -> None:
    with WeightsScreen() as screen:
        screen.metrics(told(replace(UPDATE, validation=0.25)))
        for step in range(1, 21):
            screen.metrics(told(replace(UPDATE, step=step, loss=0.01, reward=step / 20, entropy=0.1)))
        screen.trained(REPORT)
        for done in range(1, 41):
            screen.evaluated(done, 40)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert lines[0] == "0/20 updates  validation 0.250"
    assert lines[1].startswith("2/20 updates  reward 0.100  validation 0.250  entropy 0.100")
    assert len(lines) == 1 + 10 + 1 + 4
    assert lines[11] == "training was stopped by a guard: the loss was no number at update 7"
    assert lines[-1] == "40/40 attempts at held-out tasks"


def test_each_look_at_the_validation_tasks_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with WeightsScreen() as screen:
        for step in range(10):
            screen.metrics(told(Update(step=step, of=1000, loss=0.5, validation=0.1 * step if step % 3 == 0 else None)))
    assert [line.split()[0] for line in capsys.readouterr().err.splitlines()] == ["0/1000", "3/1000", "6/1000", "9/1000"]


def test_what_is_unknown_is_not_shown_and_what_is_no_number_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with WeightsScreen() as screen:
        screen.metrics(told(Update(step=1, of=2, entropy=0.1, broken=("loss",))))
    assert capsys.readouterr().err == "1/2 updates  entropy 0.100  no number: loss\n"


def test_nothing_is_shown_to_those_who_asked_for_json(capsys: pytest.CaptureFixture[str]) -> None:
    with WeightsScreen(quiet=True) as screen:
        screen.metrics(told(replace(UPDATE, loss=0.5, validation=0.1)))
        screen.trained(REPORT)
        screen.evaluated(4, 4)
        screen.say("done")
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_a_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with WeightsScreen() as screen:
        screen.metrics(told(replace(UPDATE, step=5, reward=0.5)))
    assert "━" in (err := capsys.readouterr().err)
    assert "5/20" in err
