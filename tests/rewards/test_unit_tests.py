"""Programming tasks, verified by tests that the program cannot reach. What runs here is code of this file."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from journeyman import OfflineTrainer
from journeyman.cli import main
from journeyman.core.errors import InputError, SandboxError
from journeyman.core.task import Split, Task
from journeyman.core.trace import ModelCall, Trace
from journeyman.experiments import wiring
from journeyman.experiments.playbook.config import TrainingConfig
from journeyman.models.scripted import Scripted
from journeyman.rewards.unit_tests import UnitTests, limits
from journeyman.sandbox.supervised import Unsafe
from journeyman.tasks.code import CodeTests

pytestmark = pytest.mark.service


@pytest.fixture
async def verifier() -> AsyncIterator[UnitTests]:
    box = Unsafe()
    yield UnitTests(box, limits(3.0))
    await box.close()


ADD = CodeTests(
    prompt='def add(a, b):\n    """The sum."""\n',
    entry_point="add",
    test="def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate([1], [2]) == [1, 2]\n",
)


def replied(text: str) -> Trace:
    call = ModelCall(model="m", prompt="p", reply=text)
    return Trace(id="t", task_id="a", candidate_id="base", started_at=datetime(2026, 1, 1, tzinfo=UTC), steps=(call,))


async def test_the_program_in_a_reply_is_tested(verifier: UnitTests) -> None:
    task = Task(id="a", question=ADD.prompt, answer=ADD.json())
    good = await verifier.verify(task, replied("Here:\n```python\ndef add(a, b):\n    return a + b\n```\nDone."))
    bad = await verifier.verify(task, replied("```python\ndef add(a, b):\n    return 3\n```"))
    assert (good.value, bad.value) == (1.0, 0.0)
    assert "candidate([1], [2]) == [1, 2]" in bad.evidence


async def test_a_task_without_tests_is_unknown_and_no_exception(verifier: UnitTests) -> None:
    reward = await verifier.verify(Task(id="a", question="q", answer="42"), replied("x"))
    assert reward.value is None


async def test_a_program_that_is_no_python_fails(verifier: UnitTests) -> None:
    verdict = await verifier.check(ADD, "def add(a, b) return")
    assert verdict.passed is False
    assert "SyntaxError" in verdict.evidence


async def test_a_program_that_takes_too_long_fails_and_is_called_out_of_time(verifier: UnitTests) -> None:
    verdict = await verifier.check(ADD, "def add(a, b):\n    while True: pass\n")
    assert verdict.passed is False
    assert verdict.timed_out


async def test_arguments_changed_in_place_are_seen_by_the_tests(verifier: UnitTests) -> None:
    tests = CodeTests(test="xs = [3, 1, 2]\nassert order(xs) is None\nassert xs == [1, 2, 3]")
    assert (await verifier.check(tests, "def order(xs):\n    xs.sort()\n")).passed
    assert (await verifier.check(tests, "def order(xs):\n    xs = sorted(xs)\n")).passed is False


async def test_the_tests_use_the_prompts_helpers_and_not_the_solutions(verifier: UnitTests) -> None:
    tests = CodeTests(
        prompt='import math\n\ndef area(r):\n    return math.pi * r * r\n\ndef radius(a):\n    """Of a circle."""\n',
        entry_point="radius",
        test="def check(candidate):\n    assert math.isclose(area(candidate(12.0)), 12.0)\n",
    )
    good = "def radius(a):\n    return math.sqrt(a / math.pi)\n"
    assert (await verifier.check(tests, tests.program(good, continues=False))).passed
    cheat = "def area(r):\n    return 12.0\ndef radius(a):\n    return 0.0\n"
    assert (await verifier.check(tests, tests.program(cheat, continues=False))).passed is False


async def test_a_class_of_the_solution_can_be_handed_back_to_it(verifier: UnitTests) -> None:
    tests = CodeTests(test="root = Node(1)\nroot.left = Node(2)\nassert depth(root) == 2")
    code = """
class Node:
    def __init__(self, value):
        self.value, self.left, self.right = value, None, None

def depth(node):
    return 0 if node is None else 1 + max(depth(node.left), depth(node.right))
"""
    verdict = await verifier.check(tests, code)
    assert verdict.passed, verdict.evidence


async def test_what_the_code_prints_and_reads_is_its_own_business(verifier: UnitTests) -> None:
    assert (await verifier.check(ADD, "def add(a, b):\n    print('{\"value\": 3}')\n    return a + b\n")).passed
    asks = await verifier.check(ADD, "def add(a, b):\n    return input()\n")
    assert asks.passed is False
    assert "EOFError" in asks.evidence


def test_the_formats_are_data_sets_that_training_and_examination_know(tmp_path: Path) -> None:
    row = {"task_id": "a", "prompt": ADD.prompt, "entry_point": "add", "test": ADD.test}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(row))
    config = TrainingConfig(dataset_name="humaneval", held_out_path=str(tmp_path / "tasks.jsonl"))
    found = wiring.load_dataset(config)
    assert [task.id for task in found.split(Split.HELD_OUT)] == ["a"]
    assert isinstance(found.verifier, UnitTests)
    with pytest.raises(InputError, match="--input FILE"):
        wiring.load_dataset(TrainingConfig(dataset_name="mbpp"))


def test_the_sandbox_of_a_data_sets_programs_can_be_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"task_id": f"t{n}", "prompt": f"# {n}\n{ADD.prompt}", "entry_point": "add", "test": ADD.test} for n in range(20)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    nothing, right = '{"insights": [], "shown": []}', "```python\ndef add(a, b):\n    return a + b\n```"
    made = Scripted(lambda request: nothing if request.schema else right)
    monkeypatch.setattr(wiring, "connect", lambda *_, **__: made)
    monkeypatch.setenv("PATH", str(tmp_path))
    few = ["--dataset", "humaneval", "--num-examples", "2", "--model", "scripted"]
    examine, train = ["evaluate", *few, "--held-out-input"], ["train", "playbook", *few, "--no-evaluate", "--input"]
    assert main([*examine, "tasks.jsonl", "--sandbox", "unsafe-local"]) == 1
    assert "candidate  1.0000" in capsys.readouterr().out
    assert main([*train, "tasks.jsonl", "--unsafe-local", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["metrics"]["training_summary"]["correct_answers"] == 2
    for nowhere in ([*examine, "tasks.jsonl", "--sandbox"], [*train, "tasks.jsonl", "--ptc-url"]):
        assert main([*nowhere, "http://127.0.0.1:9"]) == 2
        assert "127.0.0.1:9" in capsys.readouterr().err
    assert main(["evaluate", "--dataset", "desk", "--sandbox", "unsafe-local"]) == 2
    assert "leave out --sandbox" in capsys.readouterr().err


def test_training_on_programs_begins_with_walls_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"task_id": f"t{n}", "prompt": f"# {n}\n{ADD.prompt}", "entry_point": "add", "test": ADD.test} for n in range(20)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.setenv("PATH", str(tmp_path))
    config = TrainingConfig(dataset_name="humaneval", input_path="tasks.jsonl", generator_model="scripted:x", evaluate=False)
    with pytest.raises(SandboxError, match="bubblewrap is not installed"):
        OfflineTrainer(config).train()
    assert not Path(".journeyman").exists()
