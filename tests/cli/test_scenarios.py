"""`journeyman scenarios`, and the scenario options of `journeyman train playbook`."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from journeyman.cli import main, root
from journeyman.experiments import wiring
from journeyman.experiments.playbook.config import ScenarioConfig
from journeyman.experiments.playbook.scenarios import ScenarioTrainer
from journeyman.models.scripted import Scripted
from tests.support.builder import block

HELLO = {
    "name": "Hello",
    "goal": "A program main.py that prints hello to a customer",
    "requirements": ["prints hello"],
    "category": "custom",
    "checks": ['test "$(python main.py)" = hello'],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return tmp_path


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    nothing = '{"insights": [], "shown": []}'
    made = Scripted(lambda request: nothing if request.schema else block("main.py", "print('hello')\n"))
    monkeypatch.setattr(wiring, "connect", lambda *_, **__: made)
    return made


def write(name: str = "s.json", *scenarios: dict[str, Any]) -> str:
    Path(name).write_text(json.dumps({"scenarios": list(scenarios) or [HELLO]}))
    return name


def train(*arguments: str) -> int:
    return main(["train", "playbook", "--model", "scripted", *arguments])


@pytest.mark.parametrize("kind", ["yaml", "json"])
def test_a_template_is_sound_and_is_not_written_over(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenarios", "template", "--format", kind, "-o", f"t.{kind}"]) == 0
    assert main(["scenarios", "validate", f"t.{kind}", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["valid"], found["scenarios"], found["faults"], found["warnings"]) == (True, 2, [], [])
    assert main(["scenarios", "template", "-o", f"t.{kind}"]) == 2
    assert "is there already" in capsys.readouterr().err


def test_faults_end_with_1_and_are_named_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.yaml").write_text("scenarios:\n  - name: A\n    goals: x\n")
    assert main(["scenarios", "validate", "s.yaml"]) == 1
    out = capsys.readouterr().out
    assert "s.yaml:3: scenarios[0].goals: there is no such field" in out
    assert "0 scenarios can be used, 0 with checks; 2 faults, 0 warnings" in out
    assert main(["scenarios", "validate", "s.yaml", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["faults"][0] == {
        "file": "s.yaml",
        "line": 2,
        "field": "scenarios[0].goal",
        "text": "is missing; every scenario needs one",
    }


def test_one_scenario_with_one_fault_is_counted_in_the_singular(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenarios", "validate", write("one.json", HELLO, {"name": "A"})]) == 1
    assert "1 scenario can be used, 1 with checks; 1 fault, 0 warnings" in capsys.readouterr().out


def test_the_examples_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenarios", "examples", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["scenarios"]) == 5


def test_a_run_says_what_users_know_and_keeps_the_skillbook(model: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    write()
    assert train("--scenarios", "s.json", "--unsafe-local", "--skillbook", "old/training.json") == 0
    out, err = capsys.readouterr()
    assert "[1/1]\nRunning: Hello\n   Goal: A program" in err
    assert "   Success\n   Score: 1.00\n   Cost: unknown" in err
    assert "Successful: 1 (100.0%)" in out
    assert "Results saved to: results/training_results_" in out
    assert Path("old/training.json").exists()


def test_a_run_that_another_process_goes_on_with_is_refused_before_anything_is_said_or_written(
    model: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = ScenarioTrainer(ScenarioConfig(input_path=write(), generator_model="scripted", sandbox="unsafe-local"))
    with trainer.begin().alone():
        assert main(["train", "playbook", "--resume"]) == 2
    told = capsys.readouterr().err
    assert "is under way in another process" in told
    assert "Starting training" not in told
    assert not Path("results").exists()


def test_reflections_that_could_not_be_used_are_told_in_the_summary(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Scripted(lambda request: "I would rather not" if request.schema else block("main.py", "print('hello')\n"))
    monkeypatch.setattr(wiring, "connect", lambda *_, **__: made)
    write()
    assert train("--scenarios", "s.json", "--unsafe-local") == 0
    assert "Skills gained: 0\n1 reflection could not be used: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scenarios", "nowhere.yaml"], "nowhere.yaml could not be read"),
        (["--scenarios", "s.json", "--examples"], "and there is --scenarios, --examples"),
        (["--max-repairs", "2"], "needs one of --scenarios FILE, --examples and --interactive"),
        (["--examples", "--rounds", "0"], "--rounds is 0, and must be from 1 to 20"),
        (["--examples", "--dataset", "desk"], "leave out --dataset and --input"),
        (["--examples", "--dataset", "gsm8k"], "leave out --dataset and --input"),
        (["--examples", "--ptc-url", "http://127.0.0.1:9", "--unsafe-local"], "leave one of them out"),
        (["--examples", "--skillbook", "a.json", "--output", "b.json"], "leave out --initial-playbook and --output"),
        (["--examples", "--domain", "wood"], "no scenario is of category 'wood'"),
        (["--scenarios", "s.json", "--held-out-input", "s.json", "--unsafe-local"], "'Hello' is trained on too"),
        (["--examples", "--held-out-input", "bare.json", "--unsafe-local"], "'Bare' has no checks"),
        (["--examples", "--ptc-url", "http://127.0.0.1:9"], "journeyman sandbox serve"),
    ],
)
def test_what_cannot_be_used_ends_with_2_before_a_model_is_asked(
    model: Scripted, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    write()
    write("bare.json", {"name": "Bare", "goal": "A program that has no checks", "requirements": ["prints 1"]})
    assert train(*arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert model.requests == []
    assert not Path("results").exists()


def test_every_fault_of_a_file_is_named_before_money_is_spent(model: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    write("s.json", {"name": "A"}, {"goal": "a thing that has no name"})
    assert train("--scenarios", "s.json") == 2
    err = capsys.readouterr().err
    assert "scenarios[0].goal: is missing" in err
    assert "scenarios[1].name: is missing" in err
    assert model.requests == []


def test_vague_scenarios_are_warned_of_before_the_run(model: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    write("s.json", {"name": "API", "goal": "Make an API", "requirements": ["Make it good"]})
    assert train("--scenarios", "s.json", "--dry-run") == 0
    err = capsys.readouterr().err
    assert "warning: s.json:1: scenarios[0].goal: 'Make an API' says little" in err
    assert "'Make it good' cannot be checked" in err
    assert model.requests == []


def test_without_walls_a_run_is_refused_with_the_command_that_builds_them(
    model: Scripted, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    write()
    monkeypatch.setenv("PATH", str(folder))
    assert train("--scenarios", "s.json") == 2
    assert "install bubblewrap" in capsys.readouterr().err
    assert model.requests == []


def typed(lines: str, *arguments: str) -> Any:
    command = ["train", "playbook", "--interactive", "--model", "scripted", "--dry-run", *arguments]
    return CliRunner().invoke(root, command, input=lines, standalone_mode=False)


def test_scenarios_can_be_typed_in_with_their_kind_of_work_and_what_it_is_checked_by(model: Scripted) -> None:
    ended = typed(
        "Adder\nA module that adds two numbers\nadd(a, b) gives the sum\n\nautomation\n\npython adder.py\n\n"
        "Adder\nSub\n\nA minus b\n\n\nart\nreview\n\ndone\n"
    )
    assert ended.exception is None, ended.output
    (path,) = Path("scenarios").glob("interactive_*.json")
    first, second = json.loads(path.read_text())["scenarios"]
    assert first == {
        "name": "Adder",
        "goal": "A module that adds two numbers",
        "requirements": ["add(a, b) gives the sum"],
        "category": "automation",
        "task_type": "CODE_INTERPRET",
        "checks": ["python adder.py"],
    }
    assert (second["task_type"], second["checks"]) == ("CODE_REVIEW", [])
    assert "its success stays unknown" in ended.output
    assert (second["name"], second["category"], second["requirements"]) == ("Sub", "custom", [])
    assert not Path(".journeyman/interactive.json").exists()


@pytest.mark.parametrize("answers", range(1, 10))
def test_an_interruption_loses_no_answer_and_the_next_time_they_are_offered(model: Scripted, answers: int) -> None:
    lines = ["Adder", "A module that adds numbers", "adds two", "", "automation", "code", "python adder.py", "", "done"]
    first = typed("".join(f"{line}\n" for line in lines[:answers]))
    if answers < len(lines):
        assert first.exception is not None, "the input ended in the middle, as Ctrl-C would"
        again = typed("y\n" + "".join(f"{line}\n" for line in lines[answers:]))
        assert again.exception is None, again.output
    (path,) = Path("scenarios").glob("interactive_*.json")
    (found,) = json.loads(path.read_text())["scenarios"]
    assert (found["name"], found["goal"], found["requirements"], found["category"]) == (
        "Adder",
        "A module that adds numbers",
        ["adds two"],
        "automation",
    )


@pytest.mark.parametrize(("name", "format_"), [("t.json", []), ("t.yaml", []), ("t.json", ["--format", "json"])])
def test_a_template_is_one_that_is_valid_by_how_its_file_ends(
    capsys: pytest.CaptureFixture[str], name: str, format_: list[str]
) -> None:
    assert main(["scenarios", "template", "-o", name, *format_]) == 0
    assert main(["scenarios", "validate", name]) == 0
    assert main(["scenarios", "template", "-o", "other.json", "--format", "yaml"]) == 2
    assert "would be read as JSON; leave out --format yaml" in capsys.readouterr().err
    assert not Path("other.json").exists()


def test_what_was_typed_before_can_be_left(model: Scripted) -> None:
    typed("Adder\n")
    ended = typed("n\nOther\nA module that says hello\n\n\n\n\ndone\n")
    assert ended.exception is None
    (path,) = Path("scenarios").glob("interactive_*.json")
    assert [scenario["name"] for scenario in json.loads(path.read_text())["scenarios"]] == ["Other"]


@pytest.mark.parametrize("place", [".journeyman", "scenarios"])
def test_nothing_is_asked_where_no_answer_could_be_kept(model: Scripted, place: str) -> None:
    Path(place).touch()
    ended = typed("Adder\n")
    assert f"{place} is a file" in str(ended.exception)
    assert "Scenario name" not in ended.output


def test_nothing_typed_in_is_nothing_to_train_on(model: Scripted) -> None:
    assert "no scenario was entered" in str(typed("done\n").exception)
