"""`journeyman train planner --phase 2` on one's own workers: a good one, one that is slow, and one that always fails."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.core.policy import Card
from journeyman.experiments.planner.workers import find_planner
from journeyman.models.embedders import HashingEmbedder
from journeyman.optimizers.planner.config import NetworkConfig, SupervisedConfig
from journeyman.optimizers.planner.data import TrainingData
from journeyman.optimizers.planner.policy import ReinforcedPlanner
from journeyman.optimizers.planner.supervised import train
from tests.support.llm_server import Answer, completion, error, serving
from tests.support.planners import sums

pytestmark = pytest.mark.training

SECOND = ["train", "planner", "--phase", "2", "--checkpoint", "checkpoints/phase1_best", "--tracker", "none", "--json"]
CHECK = r"""
import re

def right(instruction, outputs):
    wanted = [int(a) + int(b) if sign == "plus" else int(a) * int(b)
              for a, sign, b in re.findall(r"(\d+) (plus|times) (\d+)", instruction)]
    return {str(at): outputs.get(str(at)) == str(each) for at, each in enumerate(wanted, start=1)}

def strange(answer):
    return "perhaps"

async def later(answer):
    return True
"""


def work(body: dict[str, Any]) -> Answer:
    """What the server's three models do with a step."""
    name, step = body["model"], body["messages"][-1]["content"].rsplit("Your step:", 1)[-1]
    if name == "failing":
        return error(400, "internal failure")
    found = re.search(r"(\d+) (plus|times) (\d+)", step)
    a, sign, b = found.groups() if found else ("0", "", "0")
    said = str(int(a) + int(b) if sign == "plus" else int(a) * int(b)) if found else step.strip().upper()
    return Answer(body=completion(said).body, delay=0.25 if name == "slow" else 0.0)


@pytest.fixture(scope="module")
def workers() -> Iterator[tuple[str, ...]]:
    with serving() as server:
        server.default = work
        yield tuple(f"openai:{name}@{server.url}" for name in ("good", "slow", "failing"))


@pytest.fixture(scope="module")
def started(workers: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A phase 1 that learned of all three, from annotators who took any."""
    folder = tmp_path_factory.mktemp("started")
    cards = tuple(Card(name=name, input_price=1.0, output_price=2.0) for name in workers)
    config = SupervisedConfig(epochs=8, network=NetworkConfig(width=32, rank=16))
    train(TrainingData.of(sums(120, workers=workers), models=cards), HashingEmbedder(256), folder, config)
    return folder / "phase1_best.safetensors"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, started: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JOURNEYMAN_STORE", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("checkpoints").mkdir()
    Path("checkpoints/phase1_best.safetensors").write_bytes(started.read_bytes())
    Path("sum_checks.py").write_text(CHECK)


def asked(*, answers: bool = True) -> None:
    rows = []
    for at, example in enumerate(sums(72, seed=4)):
        row: dict[str, Any] = {"instruction": example.plan.instruction, "split": "held_out" if at >= 60 else "train"}
        wanted = [re.sub(r"\D+", " ", step.text).split() for step in example.plan.subtasks if step.type != "shout"]
        if answers:
            signs = [step.type == "sum" for step in example.plan.subtasks]
            numbers = [int(a) + int(b) if plus else int(a) * int(b) for (a, b), plus in zip(wanted, signs, strict=False)]
            row["answer"] = {str(place): number for place, number in enumerate(numbers, start=1)}
        rows.append(json.dumps(row))
    Path("asked.jsonl").write_text("\n".join(rows))


def told(capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    found = capsys.readouterr()
    return json.loads(found.out.splitlines()[-1]), found.err


def test_it_avoids_the_worker_that_fails_and_prefers_the_quick_one_of_two_that_are_as_good(
    workers: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    asked()
    arguments = ["--instructions", "asked.jsonl", "--check", "sum_checks:right", "--episodes", "384", "--held-out", "12"]
    assert main([*SECOND, *arguments]) == 1, "no better than the good one alone, which is no loss"
    found, _ = told(capsys)
    sides = {name.partition("@")[0].removeprefix("openai:"): side for name, side in found["sides"].items()}
    assert (sides["failing"]["success"], sides["reinforced"]["success"]) == (0.0, 1.0)
    assert sides["reinforced"]["utility"] > max(sides["supervised"]["utility"], sides["slow"]["utility"])
    assert found["judge"] == "sum_checks:right"
    assert 0.0 < found["utility"]["seconds_reference"] < 5.0, "as it was measured, not as phase 1's examples have it"
    planner = find_planner("checkpoints/phase2_best").planner
    assert isinstance(planner, ReinforcedPlanner)
    for example in sums(3, seed=8):
        plan = planner.plan(example.plan.instruction)
        chances = planner.chances(planner.planner.model, plan)
        assert chances[:, 2].max() < 0.15
        assert set(plan.workers) == {workers[0]}
    lines = [json.loads(line) for line in Path("checkpoints/metrics.jsonl").read_text().splitlines()]
    assert [(line["phase"], line["step"]) for line in lines] == [(2, at) for at in range(1, 7)]
    assert "reward" in lines[0]


@pytest.mark.parametrize("answers", [True, False])
def test_answers_in_the_file_judge_and_without_them_what_fails_is_a_failure(
    answers: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(answers=answers)
    main([*SECOND, "--instructions", "asked.jsonl", "--episodes", "16", "--held-out", "4"])
    found, err = told(capsys)
    assert found["judge"] == ("answers" if answers else "errors")
    assert ("nobody judges 72 of 72 instructions" in err) is not answers
    successes = {name.partition("@")[0]: side["success"] for name, side in found["sides"].items()}
    assert (successes["openai:failing"], successes["openai:slow"]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--check", "sum_checks:right"], "--instructions FILE"),
        (["--instructions", "asked.jsonl", "--check", "sum_checks"], "name it as MODULE:FUNCTION"),
        (["--instructions", "asked.jsonl", "--check", "sum_checks:none"], "has no 'none'"),
        (["--instructions", "asked.jsonl", "--check", "sum_checks:strange", "--episodes", "8"], "it must be true or false"),
        (["--instructions", "asked.jsonl", "--check", "sum_checks:later"], "waits for nothing"),
        (["--instructions", "asked.jsonl", "--steps", "expert"], "the expert knows the desk's notes alone"),
    ],
)
def test_what_cannot_be_judged_is_one_sentence(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked()
    assert main([*SECOND, *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err


def test_weights_of_the_documented_reward_are_used_or_said_to_be_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    asked()
    weights = "alpha: 10.0, beta: 0.5, gamma_latency: 0.01"
    Path("config.yaml").write_text(f"training: {{phase2_rl: {{algorithm: PPO, num_episodes: 8, {weights}}}}}\n")
    arguments = [*SECOND, "--config", "config.yaml", "--instructions", "asked.jsonl", "--dry-run"]
    assert main(arguments) == 0
    found, err = told(capsys)
    assert "alpha, beta, gamma_latency are weights of the documented reward, and are ignored" in err
    assert found["config"]["reward"] is None
    assert main([*arguments, "--reward", "documented"]) == 0
    found, err = told(capsys)
    assert "ignored" not in err
    assert found["config"]["reward"] == {"alpha": 10.0, "beta": 0.5, "gamma_latency": 0.01, "shaped_reward": 0.1}
