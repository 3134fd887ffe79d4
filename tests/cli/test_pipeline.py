"""`journeyman pipeline`: stages of a file are carried out once, in order, and begun again for a reason."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main, root
from journeyman.cli.pipeline_file import read
from journeyman.core.errors import InputError
from journeyman.experiments.pipeline.stages import PipelineStage, StagePlan, StageRecord, cost_of, expected_of_all
from journeyman.stores.traces import open_traces
from tests.optimizers.weights.data.attempts import answered

STAGES = """
[pipeline]
name = "rows"

[rows]
command = "dataset build"
method = "kto"
out = "{out}/kto.jsonl"
agent = "desk"

[check]
command = "dataset check"
arguments = ["{rows.out}"]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    with open_traces(".journeyman/journeyman.db") as traces:
        traces.add(answered(f"desk{at}", f"{at}", agent="desk", reward=at / 3) for at in range(4))
    (tmp_path / "pipeline.toml").write_text(STAGES)
    return tmp_path


def ran(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main(["pipeline", *arguments, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def states(found: dict[str, Any]) -> dict[str, str]:
    return {name: state for name, (state, _) in found["stages"].items()}


def at_work(here: Path) -> bool:
    return any('"running"' in path.read_text() for path in here.glob(".journeyman/pipelines/rows/rows-*.json"))


def refusal(file: Path, text: str, **more: Any) -> str:
    file.write_text(text)
    with pytest.raises(InputError) as raised:
        read(file, root, **more)
    return str(raised.value)


@pytest.mark.slow
def test_what_is_there_is_taken_what_changed_is_made_again_and_what_hangs_on_it_only_if_that_differs(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    plan = ran(capsys, "plan")["stages"]
    assert [(each["stage"], each["why"]) for each in plan] == [("rows", "was never carried out"), ("check", "waits for rows")]
    first = ran(capsys, "run")
    assert states(first) == {"rows": "done", "check": "done"}
    (rows,) = [path for path in first["results"]["rows"]["outputs"] if path.endswith("kto.jsonl")]
    assert len(Path(rows).read_text().splitlines()) == first["results"]["rows"]["result"]["rows"] > 0
    assert first["results"]["check"]["result"]["faults"] == []

    # A comment is nothing; a setting that makes no difference costs its own stage and nothing further on.
    (here / "pipeline.toml").write_text(STAGES + "# told again\n")
    again = ran(capsys, "run")
    assert states(again) == {"rows": "cached", "check": "cached"}
    assert ran(capsys, "diff", first["id"], again["id"])["differences"] == {}
    other = ran(capsys, "run", "--set", "rows.threshold=0.9")
    assert states(other) == {"rows": "done", "check": "done"}
    differences = ran(capsys, "diff", first["id"], other["id"], code=1)["differences"]
    assert any("--threshold 0.9" in line for line in differences["rows"])
    # Put back, it is there still.
    assert states(ran(capsys, "run")) == {"rows": "cached", "check": "cached"}
    timed = ran(capsys, "plan", "--from", "rows")["stages"][0]
    assert timed["why"] == "asked for"
    low, middle, high = timed["seconds"]
    assert 0 < low <= middle <= high

    assert main(["pipeline", "show"]) == 0
    assert "rows" in capsys.readouterr().out

    # By hand is not by the pipeline.
    Path(rows).write_text("{}\n")
    assert main(["pipeline", "run"]) == 2
    assert "was changed since the stage rows made it" in capsys.readouterr().err
    assert states(ran(capsys, "run", "--trust"))["rows"] == "cached"
    Path(rows).unlink()
    assert states(ran(capsys, "run"))["rows"] == "done"


@pytest.mark.slow
def test_what_nothing_bounds_is_not_begun_where_it_cost_more_before_than_is_left(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    ran(capsys, "run")
    (record,) = here.glob(".journeyman/pipelines/rows/rows-*.json")
    # No command that asks nobody costs anything: so it is said that this one did.
    record.write_text(json.dumps({**json.loads(record.read_text()), "cost": 0.2}))
    (here / "pipeline.toml").write_text(f"{STAGES}\n[pipeline.budget]\ncost = 0.1\n")
    stopped = ran(capsys, "run", "--set", "rows.threshold=0.9", code=1)
    assert states(stopped) == {"rows": "stopped", "check": "not reached"}
    assert "it cost $0.2000 before, and $0.1000 of the budget is left" in stopped["reason"]
    (here / "pipeline.toml").write_text(f"{STAGES}\n[pipeline.budget]\ncost = 0.19\n")
    assert states(ran(capsys, "run", "--set", "rows.threshold=0.9")) == {"rows": "done", "check": "done"}


@pytest.mark.slow
def test_a_stage_that_fails_or_a_gate_that_refuses_stops_what_comes_after(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    failing = STAGES.replace('agent = "desk"', 'agent = "nobody"')
    (here / "pipeline.toml").write_text(failing)
    found = ran(capsys, "run", code=2)
    assert states(found) == {"rows": "failed", "check": "not reached"}
    assert found["reason"].startswith("rows: ")
    refused = STAGES + '\n[gate]\nafter = ["rows"]\n[more]\ncommand = "dataset check"\narguments = ["{rows.out}"]\n'
    (here / "pipeline.toml").write_text(refused)
    assert main(["pipeline", "run"]) == 2
    assert "the stage rows says nothing that a gate decides by" in capsys.readouterr().err


@pytest.mark.slow
def test_a_budget_stops_before_the_next_stage_and_two_runs_do_not_share_a_folder(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    bounded = STAGES.replace('name = "rows"', 'name = "rows"\nbudget = { cpu_seconds = 0.01 }')
    (here / "pipeline.toml").write_text(bounded)
    found = ran(capsys, "run", code=1)
    assert "stopped" in states(found).values()
    assert "budget of" in found["reason"]
    assert states(found)["check"] in ("stopped", "not reached")

    (here / "pipeline.toml").write_text(STAGES)
    command = [sys.executable, "-m", "journeyman", "pipeline", "run", "--from", "rows"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as first:
        until = time.monotonic() + 30
        while not at_work(here) and time.monotonic() < until:
            time.sleep(0.01)
        assert main(["pipeline", "run"]) == 2
        assert "is being run by another process" in capsys.readouterr().err
        # Whoever started a stage is killed, and the stage with it; the next run begins it anew.
        os.kill(first.pid, signal.SIGKILL)
    assert states(ran(capsys, "run"))["rows"] == "done"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[train]\nmethd = 'kto'\ncommand = 'train weights'", "line 2: [train] has no methd; did you mean method?"),
        ("[train]\ncommand = 'train wieghts'", "and there is none; did you mean weights?"),
        ("[mine]\nx = 1", "the stage mine does not say which command it is"),
        ("[mine]\ncommand = 'serve'", "cannot be 'serve', which does not end by itself"),
        ("[pipeline]\nbudget = { cots = 1 }\n[monitor]", "[pipeline.budget] has no cots; did you mean cost?"),
        ("[pipeline]\nbudget = { cost = -1 }\n[monitor]", "the budget's cost is -1, and must be a number above 0"),
        ("[pipeline]\nname = 'a/b'\n[monitor]", "must be of letters, digits, - and _"),
        ("[pipeline]\nstages = ['train', 'monitor']\n[monitor]", "names the stage train, and has no table [train]"),
        ("x = 1\n[monitor]", "line 1: x stands outside of a table"),
        ("[monitor", "is no TOML"),
        ("", "has no stages"),
        ("[monitor]\nonce = 3", "--once is yes or no, and is said as true or false, not 3"),
        (
            "[a]\ncommand = 'monitor'\nafter = ['b']\n[b]\ncommand = 'monitor'\nafter = ['a']",
            "wait for each other; one of them must not",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(tmp_path / "pipeline.toml", text)


def took(seconds: float, command: str, **more: Any) -> StageRecord:
    parts = {"command": command}
    return StageRecord(
        stage="train", key="k", command=tuple(command.split()), parts=parts, state="done", began="", seconds=seconds, **more
    )


def forecast(command: str, *earlier: StageRecord) -> tuple[float, float, float] | None:
    stage = PipelineStage(name="train", command=("train", "weights"))
    plan = StagePlan(stage=stage, key="k", command=(), parts={"command": command}, record=None, why="new", earlier=earlier)
    return plan.expected("seconds")


def test_what_a_stage_will_take_is_what_it_took_with_the_settings_that_are_most_like_these() -> None:
    short, long = "train weights --quick --seed 1", "train weights --seed 1"
    assert forecast(long, took(5.0, short), took(200.0, long)) == (200.0, 200.0, 200.0)
    assert forecast("train weights --seed 2", took(5.0, short), took(200.0, long), took(180.0, long)) == (180.0, 200.0, 200.0)
    # Nothing is more alike than the same.
    again = took(190.0, long, before=({"seconds": 170.0}, {"seconds": 260.0}))
    assert forecast(long, again, took(5.0, short)) == (170.0, 190.0, 260.0)
    assert forecast(long) is None


def test_what_all_stages_take_is_known_where_each_is() -> None:
    stage = PipelineStage(name="train", command=("train", "weights"))
    known = StagePlan(
        stage=stage, key="k", command=(), parts={}, record=None, why="new", earlier=(took(5.0, "train weights", cost=0.2),)
    )
    there, new = replace(known, why=""), replace(known, earlier=())
    gate = replace(new, stage=PipelineStage(name="gate", command=()))
    assert expected_of_all([known, known, there, gate], "seconds") == (10.0, 10.0, 10.0)
    assert expected_of_all([known, known], "cost") == (0.4, 0.4, 0.4)
    assert expected_of_all([known, new], "seconds") is None


ROLES = {"generator": {"calls": 3, "cost": 0.2}, "reflector": {"calls": 1, "cost": 0.1}}
SPENT = {"baseline": {"attempts": 4, "cost": 0.5}, "candidate": {"attempts": 4, "cost": 1.0}}


@pytest.mark.parametrize(
    ("said", "cost"),
    [
        ({"cost": 2}, 2.0),
        ({"spent": {"cost": 0.5}}, 0.5),
        ({"slots": [{"cost": 0.25}, {"cost": 0.5}]}, 0.75),
        ({"slots": []}, 0.0),
        ({"slots": [{"cost": 0.25}, {"cost": None}]}, None),
        ({"metrics": {"roles": ROLES}, "evaluation": None}, 0.3),
        ({"metrics": {"roles": ROLES}, "evaluation": {"spent": SPENT}}, 1.8),
        ({"metrics": {"roles": {**ROLES, "reflector": {"calls": 1, "cost": None}}}}, None),
        ({"passed": True, "spent": SPENT}, 1.5),
        ({"spent": {**SPENT, "baseline": {"cost": 0.5, "calls_without_price": 2}}}, None),
        ({"rows": 3}, None),
    ],
)
def test_what_a_command_cost_is_the_sum_of_all_that_it_says_and_unknown_where_a_part_is(
    said: dict[str, Any], cost: float | None
) -> None:
    assert cost_of(said) == (None if cost is None else pytest.approx(cost))


def test_a_value_of_one_run_names_a_table_and_a_key(tmp_path: Path) -> None:
    assert "there is no table [trian]" in refusal(tmp_path / "p.toml", "[monitor]", sets=["trian.x=1"])
    assert "is not STAGE.KEY=VALUE" in refusal(tmp_path / "p.toml", "[monitor]", sets=["monitor"])


@pytest.mark.parametrize("preset", ["desk", "repository", "traces"])
def test_every_preset_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str], preset: str) -> None:
    assert main(["pipeline", "init", "--preset", preset]) == 0
    file = tmp_path / "pipeline.toml"
    file.write_text(capsys.readouterr().out)
    found = read(file, root)
    assert found.name == preset
    assert ("gate" in [stage.name for stage in found.stages]) == (preset != "traces")


SAMPLE = """
model:
  hidden_size: 512          # Hidden layer size
  num_layers: 4            # Number of transformer layers
  dropout: 0.1             # Dropout rate
  max_sequence_length: 2048 # Maximum input sequence length
  vocab_size: 1000         # Vocabulary size
  num_task_types: 10       # Number of task types
training:
  learning_rate: 1e-4      # Learning rate
  batch_size: 16           # Batch size
  num_epochs: 100          # Number of training epochs
  warmup_steps: 1000       # Warmup steps
  weight_decay: 0.01       # Weight decay
  gradient_clip_norm: 1.0  # Gradient clipping
data_collection:
  enabled_sources: [agent_workspaces, devlogs, vector_database, messaging_system]
  max_samples_per_source: 10000
  quality_threshold: 0.5
  batch_size: 100
reward_system:
  component_weights: {code_quality: 0.25, functionality: 0.2}
  penalty_multiplier: 0.5
  bonus_threshold: 0.8
"""
TRAINING = """
base_model: Qwen/Qwen2.5-1.5B-Instruct
method: grpo
lora_r: 16
per_device_batch_size: 2
learning_rate: 5e-5
use_bf16: true
colour: blue
"""


def test_configurations_of_earlier_systems_are_pipelines_and_every_key_is_accounted_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(SAMPLE)
    assert main(["pipeline", "import", str(file), "--json"]) == 0
    keys = {each["key"]: each["fate"] for each in json.loads(capsys.readouterr().out)["keys"]}
    assert len(keys) == 6 + 6 + 4 + 4
    assert {key for key, fate in keys.items() if fate == "renamed"} == {
        *("training.learning_rate", "training.batch_size", "training.num_epochs"),
        *("model.dropout", "model.max_sequence_length"),
        *("data_collection.max_samples_per_source", "data_collection.quality_threshold"),
    }
    collect, train, gate = read(file, root).stages
    assert (collect.name, train.name, gate.name) == ("collect", "train", "gate")
    assert collect.settings["JOURNEYMAN_COLLECT__MAX_SAMPLES_PER_SOURCE"] == "10000"
    assert "--learning-rate 0.0001" in " ".join(train.arguments)
    # What is printed is the same pipeline.
    assert main(["pipeline", "import", str(file)]) == 0
    (tmp_path / "agent.toml").write_text(capsys.readouterr().out)
    assert read(tmp_path / "agent.toml", root).stages == read(file, root).stages


def test_the_settings_of_one_training_are_a_pipeline_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "training.yaml"
    file.write_text(TRAINING)
    assert main(["pipeline", "import", str(file), "--json"]) == 0
    keys = {each["key"]: each["fate"] for each in json.loads(capsys.readouterr().out)["keys"]}
    assert (keys["method"], keys["per_device_batch_size"], keys["colour"]) == ("taken", "renamed", "without meaning here")
    assert "--bf16" in read(file, root).stages[0].arguments
    file.write_text("colour: blue\n")
    assert main(["pipeline", "plan", str(file)]) == 2
    assert "is no configuration that is known" in capsys.readouterr().err
