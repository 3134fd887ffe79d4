"""What so many tasks can show is what the gate then finds."""

import json

import numpy as np
import pytest

from journeyman.cli import main
from journeyman.core.evaluation import Evaluation, Pair
from journeyman.core.gate import BetterOnHeldOut, PlannedEvaluation
from journeyman.stats import spent


def passes(chance: np.random.Generator, plan: PlannedEvaluation, gain: float, tasks: int, looks: int = 0) -> bool:
    """One evaluation of the kind that was planned."""
    count = plan.clusters or tasks
    gains = np.clip(chance.normal(gain, plan.apart, count), -plan.changed, plan.changed)[np.arange(tasks) % count]
    drawn = chance.random(tasks)
    wins, losses = (plan.changed + gains) / 2, (plan.changed - gains) / 2
    pairs = [
        Pair(
            task_id=str(n),
            baseline=float(wins[n] <= drawn[n] < wins[n] + losses[n]),
            candidate=float(drawn[n] < wins[n]),
            cluster=str(n % count) if plan.clusters else "",
        )
        for n in range(tasks)
    ]
    return BetterOnHeldOut().decide(Evaluation(pairs=tuple(pairs), looks=looks)).passed


@pytest.mark.parametrize(
    ("plan", "gain", "tasks", "looks"),
    [
        (PlannedEvaluation(changed=0.25), 0.1, 210, 0),
        (PlannedEvaluation(changed=0.1), 0.06, 130, 0),
        (PlannedEvaluation(changed=0.5, alpha=spent(0.05, 4)), 0.2, 150, 3),
        (PlannedEvaluation(changed=0.5, clusters=30, apart=0.15), 0.2, 300, 0),
    ],
)
def test_a_gain_passes_as_often_as_was_said_before(plan: PlannedEvaluation, gain: float, tasks: int, looks: int) -> None:
    chance = np.random.default_rng(9)
    found = sum(passes(chance, plan, gain, tasks, looks) for _ in range(300)) / 300
    assert found == pytest.approx(plan.power(gain, tasks), abs=0.08)


def test_tasks_needed_and_the_least_gain_are_each_others_answer() -> None:
    plan = PlannedEvaluation(changed=0.3)
    needed = plan.tasks_needed(0.1)
    assert needed is not None
    assert plan.power(0.1, needed) >= 0.8 > plan.power(0.1, needed - 1)
    assert plan.least_gain(needed) == pytest.approx(0.1, abs=0.001)


def test_few_clusters_show_no_small_gain_however_many_tasks_they_have() -> None:
    assert PlannedEvaluation(changed=0.5, clusters=10, apart=0.1).tasks_needed(0.1) is None


def test_the_command_says_what_tasks_can_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "power", "--tasks", "200", "--gain", "0.1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["changed"] for row in found["rows"]] == [0.1, 0.25, 0.5]
    least = [row["least_gain"] for row in found["rows"]]
    assert least == sorted(least)
    assert main(["evaluate", "power", "--tasks", "20", "--gain", "0.4", "--changed", "0.3"]) == 0
    assert "no number" in capsys.readouterr().out
    assert main(["evaluate", "power", "--gain", "2"]) == 2
