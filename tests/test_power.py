"""What so many tasks can show is what the gate then finds."""

import json
from pathlib import Path

import numpy as np
import pytest

from journeyman.cli import main
from journeyman.core.evaluation import Evaluation, Pair
from journeyman.core.gate import PlannedEvaluation

ALIKE = (1 / 30,) * 30
UNLIKE = tuple(size / 300 for size in (50, 50, 30, *[10] * 16, 10))
"""Three large families among seventeen small ones."""


def passes(chance: np.random.Generator, plan: PlannedEvaluation, gain: float, tasks: int) -> bool:
    """One evaluation of the kind that was planned."""
    sizes = [round(tasks * share) for share in plan.clusters] or [1] * tasks
    of = np.repeat(np.arange(len(sizes)), sizes)
    gains = np.clip(chance.normal(gain, plan.apart, len(sizes)), -plan.changed, plan.changed)[of]
    drawn = chance.random(tasks)
    wins, losses = (plan.changed + gains) / 2, (plan.changed - gains) / 2
    pairs = [
        Pair(
            task_id=str(n),
            baseline=float(wins[n] <= drawn[n] < wins[n] + losses[n]),
            candidate=float(drawn[n] < wins[n]),
            cluster=str(of[n]) if plan.clusters else "",
        )
        for n in range(tasks)
    ]
    return plan.gate.decide(Evaluation(pairs=tuple(pairs), looks=plan.looks)).passed


@pytest.mark.parametrize(
    ("plan", "gain", "tasks"),
    [
        (PlannedEvaluation(changed=0.25), 0.1, 210),
        (PlannedEvaluation(changed=0.1), 0.06, 130),
        (PlannedEvaluation(changed=0.5, looks=3), 0.2, 150),
        (PlannedEvaluation(changed=0.5, clusters=ALIKE, apart=0.15), 0.2, 300),
        (PlannedEvaluation(changed=0.5, clusters=UNLIKE, apart=0.15), 0.3, 300),
        (PlannedEvaluation(changed=0.5, clusters=(1 / 8,) * 8), 0.4, 400),
        (PlannedEvaluation(changed=0.5), 0.4, 29),
    ],
    ids=["many change", "few change", "a later look", "families", "families of unlike sizes", "few families", "few tasks"],
)
def test_a_gain_passes_as_often_as_was_said_before(plan: PlannedEvaluation, gain: float, tasks: int) -> None:
    chance = np.random.default_rng(9)
    found = sum(passes(chance, plan, gain, tasks) for _ in range(300)) / 300
    assert found == pytest.approx(plan.power(gain, tasks), abs=0.08)


def test_tasks_needed_and_the_least_gain_are_each_others_answer() -> None:
    plan = PlannedEvaluation(changed=0.3)
    needed = plan.tasks_needed(0.1)
    assert needed is not None
    assert plan.power(0.1, needed) >= 0.8 > plan.power(0.1, needed - 1)
    assert plan.least_gain(needed) == pytest.approx(0.1, abs=0.001)


def test_few_clusters_show_no_small_gain_however_many_tasks_they_have() -> None:
    assert PlannedEvaluation(changed=0.5, clusters=(0.1,) * 10, apart=0.1).tasks_needed(0.1) is None


def test_large_families_among_small_ones_count_as_few() -> None:
    alike = PlannedEvaluation(changed=0.5, clusters=(1 / 20,) * 20, apart=0.1)
    unlike = PlannedEvaluation(changed=0.5, clusters=UNLIKE, apart=0.1)
    assert (unlike.least_gain(300) or 1.0) > (alike.least_gain(300) or 1.0) + 0.02


def test_the_command_says_what_tasks_can_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "power", "--tasks", "200", "--gain", "0.1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["changed"] for row in found["rows"]] == [0.1, 0.25, 0.5]
    least = [row["least_gain"] for row in found["rows"]]
    assert least == sorted(least)
    assert main(["evaluate", "power", "--tasks", "40", "--gain", "0.4", "--changed", "0.3"]) == 0
    assert "no number" in capsys.readouterr().out
    assert main(["evaluate", "power", "--gain", "2"]) == 2


def test_what_the_gate_refuses_in_any_case_is_never_seen(capsys: pytest.CaptureFixture[str]) -> None:
    for options in (["--tasks", "29"], ["--tasks", "400", "--clusters", "9"]):
        assert main(["evaluate", "power", *options, "--gain", "0.5", "--changed", "0.5", "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
        assert (row["least_gain"], row["power"]) == (None, 0)
        assert main(["evaluate", "power", *options]) == 0
        assert "nothing can pass" in capsys.readouterr().err


# Of a data set.


def questions(path: Path, families: int = 0, rows: int = 400) -> Path:
    """Families of unlike sizes: the n-th has about n times as many rows as the first."""
    of = [family for family in range(families) for _ in range(family + 1)] or [0]
    lines = (
        {"question": f"{n} + 1?", "answer": str(n + 1), **({"cluster": f"shop {of[n % len(of)]}"} if families else {})}
        for n in range(rows)
    )
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def told(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, object]:
    assert main(["evaluate", "power", *options, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_data_set_is_reckoned_with_as_it_is_examined(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(questions(here / "all.jsonl", families=14))
    before = told(capsys, "--dataset", "custom", "--input", file)
    examined = ["--dataset", "custom", "--input", file, "--model", "scripted:42", "--json"]
    assert main(["evaluate", *examined]) == 1
    verdict = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (before["tasks"], before["clusters"], before["looks"]) == (verdict["tasks"], verdict["clusters"], 0)
    assert verdict["clusters"] == 14
    after = told(capsys, "--dataset", "custom", "--input", file)
    assert after["looks"] == 1, "what an examination has seen costs the next one"
    assert after["rows"] != before["rows"]
    assert told(capsys, "--dataset", "custom", "--input", file)["looks"] == 1, "and to reckon is no look"
    few = told(capsys, "--dataset", "custom", "--input", file, "--held-out", "40")
    assert (few["tasks"], few["there_are"]) == (40, before["tasks"])


def test_a_store_is_not_made_to_reckon(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "--input", str(questions(here / "all.jsonl")), "--dataset", "custom")
    assert [path.name for path in here.iterdir()] == ["all.jsonl"]


def test_the_table_says_what_these_tasks_are(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(questions(here / "all.jsonl", families=12))
    assert main(["evaluate", "power", "--dataset", "custom", "--input", file, "--gain", "0.3"]) == 0
    out, err = capsys.readouterr()
    assert "held-out tasks in 12 clusters" in err
    assert "tasks that change" in out
    assert main(["evaluate", "power", "--dataset", "custom", "--input", str(questions(here / "few.jsonl", rows=40))]) == 0
    assert "and the gate needs 30: nothing can pass" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tasks", "50"], "the data set says how many tasks there are"),
        (["--clusters", "20"], "the data set says how many clusters there are"),
        (["--domain", "sea"], "has no tasks of domain 'sea'"),
    ],
)
def test_what_contradicts_the_data_set_is_one_sentence(
    options: list[str], said: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(questions(here / "all.jsonl"))
    assert main(["evaluate", "power", "--dataset", "custom", "--input", file, *options]) == 2
    assert said in capsys.readouterr().err
