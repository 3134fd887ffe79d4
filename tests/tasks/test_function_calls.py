"""Requests with functions, as the leaderboard's files have them, and calls as models write them."""

import json
from pathlib import Path
from typing import Any

import pytest

from journeyman.agents.answer import ToolCaller
from journeyman.core.errors import InputError
from journeyman.core.messages import ToolUse
from journeyman.core.task import Split
from journeyman.experiments import wiring
from journeyman.experiments.playbook.config import TrainingConfig
from journeyman.tasks.function_calls import category, functions, read_tasks, right_reply, written_calls
from journeyman.tasks.questions import guessed

BFCL = Path(__file__).parents[1] / "data" / "bfcl"


def test_a_folder_is_read_whole_with_its_categories_and_each_function_as_models_take_it() -> None:
    tasks = read_tasks(BFCL)
    assert [category(task.id) for task in tasks] == [
        *["irrelevance"] * 2, *["live_parallel_multiple"] * 2, *["parallel"] * 2, *["simple_python"] * 8,
    ]  # fmt: skip
    named = {tool["name"] for task in tasks for tool in functions(task)}
    assert "spotify_play" in named
    assert not any("." in name for name in named)
    assert '"dict"' not in json.dumps([tool["parameters"] for task in tasks for tool in functions(task)])
    assert all(json.dumps(functions(task), ensure_ascii=False) in task.instructions for task in tasks)


def test_what_is_right_is_not_in_what_an_agent_is_told() -> None:
    for task in read_tasks(BFCL):
        assert "ground_truth" not in f"{task.instructions}{task.question}"
        assert right_reply(task) == "[]" or right_reply(task) not in task.instructions


@pytest.mark.parametrize(
    ("reply", "calls"),
    [
        ('[{"name": "f", "arguments": {"x": 1}}]', [("f", {"x": 1})]),
        ('Two:\n```json\n[{"f": {"x": 1}}, {"g": {}}]\n```\nThat is all.', [("f", {"x": 1}), ("g", {})]),
        ('```\n{"name": "f", "arguments": "{\\"x\\": 1}"}\n```', [("f", {"x": 1})]),
        ("[]", []),
        ("I cannot help with that.", []),
        ("[1, null]", []),
    ],
)
def test_calls_are_read_from_a_reply_in_the_forms_in_which_models_write_them(reply: str, calls: list[Any]) -> None:
    assert [(use.tool, json.loads(use.arguments)) for use in written_calls(reply)] == calls
    assert all(isinstance(use, ToolUse) for use in written_calls(reply))


def test_it_is_a_data_set_that_is_guessed_split_and_attempted_by_calls() -> None:
    assert guessed(str(BFCL)) == guessed(str(BFCL / "BFCL_v4_parallel.jsonl")) == "bfcl"
    found = wiring.load_dataset(TrainingConfig(dataset_name="bfcl", input_path=str(BFCL), min_tasks=4))
    assert wiring.agent_for(found) is ToolCaller
    assert len(found.tasks) == 14
    assert len(found.split(Split.HELD_OUT)) >= 4


def test_a_folder_without_the_leaderboard_s_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no requests with functions"):
        read_tasks(tmp_path)
