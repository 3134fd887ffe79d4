"""`journeyman task-generation`, and what users of an earlier training system wrote, unchanged."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.cli.task_generation import agent_of
from journeyman.compat.agent_training import input_data
from journeyman.core.errors import InputError
from journeyman.core.trace import ModelCall, ToolCall, Trace
from journeyman.experiments.task_generation.generate import FOLDER
from journeyman.rewards.repository import check_of
from journeyman.rewards.repository.verdict import TestsPass
from journeyman.tasks import repository
from tests.support import repository_tasks, wheels
from tests.support.repositories import package

LABELS = """
def label(name, city):
    '''The lines of a label.

    >>> label("ann", "Oslo")
    ['ANN', 'OSLO']
    '''
    return [name.upper(), city.upper()]
"""
SMALL = {
    "parcels/__init__.py": "from parcels.labels import label\nfrom parcels.rates import price, zone\n",
    "parcels/labels.py": LABELS,
    "tests/test_labels.py": "from parcels import label\n\n\ndef test_it():\n    assert label('x', 'y') == ['X', 'Y']\n",
}
"""Nothing of the package grows with what it is given: to find that it cannot be made slow takes more than a minute."""
CUSTOM = """
from enum import Enum
from typing import Any, Dict
from journeyman.compat.agent_training import RewardComponent

class CustomReward(RewardComponent):
    def calculate(self, input_data: Dict[str, Any]) -> float:
        # Implement custom reward logic
        reward_value = 1.0 if "Oslo" in input_data["output"] else 0.25
        return reward_value

class CustomTaskCategory(Enum):
    CUSTOM_TASK = "custom_task"
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.service
def test_tasks_are_made_and_agents_measured_by_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    wheels.without_network(monkeypatch, tmp_path / "wheels")
    repository_tasks.environment(tmp_path / FOLDER)
    source = package(tmp_path / "team", changed=SMALL)

    def told(*arguments: str, code: int) -> Any:
        assert main(["task-generation", *arguments, "--json"]) == code, capfd.readouterr().err
        return json.loads(capfd.readouterr().out.splitlines()[-1])

    # Fewer than were asked for is an answer of its own: so small a package has no task of some categories.
    made = told("--generate-tasks", "--count", "12", "--from", str(source), code=1)
    assert made["file"] == "tasks.jsonl"
    tasks = repository.read(Path("tasks.jsonl"))
    assert tasks
    right = told("--evaluate-agent", "--model-path", "reference", code=1)
    assert (right["baseline"], right["candidate"]) == (0.0, 1.0)
    same = told("--benchmark", "--baseline", "reference", "--model-path", "nothing", code=1)
    assert (same["baseline"], same["candidate"]) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "one of --generate-tasks, --evaluate-agent, --benchmark says what is to be done"),
        (["--evaluate-agent"], "--model-path is missing"),
        (["--benchmark"], "--baseline is missing"),
        (["--generate-tasks", "--baseline", "x"], "--baseline is not for --generate-tasks"),
        (["--evaluate-agent", "--model-path", "models/agent.pth"], "another program's"),
        (["--benchmark", "--baseline", "models/baseline.pth"], "another program's"),
        (["--evaluate-agent", "--model-path", "reference"], "tasks.jsonl"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["task-generation", *arguments]) == 2
    assert said in capfd.readouterr().err


def test_an_agent_is_named_by_the_path_of_its_weights(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    assert agent_of("model") == "local:model"
    assert agent_of("openai:m@http://h/v1") == "openai:m@http://h/v1"
    with pytest.raises(InputError, match="journeyman deploy"):
        agent_of("models/agent.gguf")


def test_a_reward_component_is_a_reward_as_it_was_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my_training.py").write_text(CUSTOM)
    said = [{"role": "user", "content": "Where is order 7?"}, {"role": "assistant", "content": "In Oslo."}]
    other = [*said[:1], {"role": "assistant", "content": "Look it up."}]
    rows = [{"id": "a", "messages": said}, {"id": "b", "messages": other}]
    (tmp_path / "traces.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert main(["score", "traces.jsonl", "--rewards", "my_training:CustomReward"]) == 0
    out = capfd.readouterr().out
    assert "custom_reward" in out
    assert "0.625" in out


def test_a_category_that_is_but_a_name_is_checked_by_the_tests_of_its_tasks(tmp_path: Path) -> None:
    (tmp_path / "my_categories.py").write_text(CUSTOM)
    assert isinstance(check_of("my_categories:CustomTaskCategory.CUSTOM_TASK"), TestsPass)
    with pytest.raises(InputError):
        check_of("custom_task")


def test_what_a_component_is_given_says_unknown_where_it_is() -> None:
    steps = (
        ModelCall(model="m", prompt="[user]\nDo it.", reply="Done."),
        ToolCall(tool="submit", arguments='{"files": {"a.py": "x = 1\\n"}}', result=""),
    )
    found = input_data(
        Trace(id="t", task_id="t", candidate_id="base", started_at=datetime(2026, 1, 1, tzinfo=UTC), steps=steps)
    )
    assert (found["task"], found["output"], found["files"]) == ("Do it.", "Done.", {"a.py": "x = 1\n"})
    assert (found["tokens"], found["cost"], found["tests_passed"]) == (None, None, None)
    assert [tool["name"] for tool in found["tools"]] == ["submit"]


@pytest.mark.service
async def test_a_task_of_a_category_of_ones_own_is_judged(tmp_path: Path) -> None:
    from dataclasses import replace

    from journeyman.agents.attempt import attempt, score
    from journeyman.agents.workshop import PreparedAgent

    (tmp_path / "my_kinds.py").write_text(CUSTOM)
    digest = repository_tasks.environment(tmp_path / "envs")
    made = repository_tasks.tasks_of(repository_tasks.kept_package(tmp_path, tmp_path / "envs"), digest)
    own = replace(made[0], category="my_kinds:CustomTaskCategory.CUSTOM_TASK")
    workshop = repository_tasks.workshop((own,), tmp_path / "envs")
    agent = PreparedAgent(workshop=workshop, changes=lambda task: task.reference, candidate_id="reference")
    trace = await attempt(agent, own.task(), id="t", clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    assert (await score(workshop, own.task(), trace)).total == 1.0
    await workshop.close()
