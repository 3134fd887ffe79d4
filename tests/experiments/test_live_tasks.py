"""Recorded questions as the tasks of a data set: of which somebody said what is right, and no others."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from journeyman.core.errors import InputError
from journeyman.core.task import Split
from journeyman.core.trace import Message, ModelCall, ToolCall, Trace, spoken
from journeyman.experiments import wiring
from journeyman.experiments.playbook.config import TrainingConfig
from journeyman.stores import open_traces

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)
STORE = ".journeyman/journeyman.db"
CONFIG = TrainingConfig(dataset_name="live", min_tasks=4)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def asked(number: int, *more: Message, domain: str = "oslo") -> Trace:
    said = (Message(role="system", text="Reply by a number."), Message(role="user", text=f"What is {number} + 1?"), *more)
    call = ModelCall(model="m", prompt=spoken(said), messages=said, reply=f"{number + 1}", finish="stop", id="call")
    at = NOON + timedelta(minutes=number)
    return Trace(
        id=f"t{number}", task_id="", candidate_id="base", started_at=at, steps=(call,), domain=domain, source="gateway"
    )


def test_questions_that_somebody_called_right_are_tasks_with_what_the_agent_was_told_and_the_right_answer() -> None:
    with open_traces(STORE) as store:
        store.add([asked(number) for number in range(20)])
        for number in range(12):
            store.label(f"t{number}", number != 3, who="ada", at=NOON)
    found = wiring.load_dataset(CONFIG).tasks
    assert {task.question for task in found} == {f"What is {number} + 1?" for number in range(12) if number != 3}
    assert {(task.instructions, task.domain) for task in found} == {("Reply by a number.", "oslo")}
    assert all(int(task.answer) == int(task.question.split()[2]) + 1 for task in found)
    assert sum(task.split is Split.HELD_OUT for task in found) >= 4
    again = {task.question: task.split for task in wiring.load_dataset(CONFIG).tasks}
    assert again == {task.question: task.split for task in found}


def test_conversations_and_what_was_done_with_tools_are_none() -> None:
    turns = (Message(role="assistant", text="Of what?"), Message(role="user", text="Of numbers."))
    tool = ToolCall(tool="add", arguments="{}", result="3", id="tool", parent="call")
    worked = asked(2)
    with open_traces(STORE) as store:
        store.add([asked(1, *turns), replace(worked, steps=(*worked.steps, tool)), asked(3, domain="lima")])
        for number in (1, 2, 3):
            store.label(f"t{number}", True, who="ada", at=NOON)
    assert [task.id[:8] for task in wiring.load_dataset(CONFIG).tasks] == ["answered"]
    with pytest.raises(InputError, match="nothing was recorded in the domain oslo that can be asked again"):
        wiring.load_dataset(TrainingConfig(dataset_name="live", domain="oslo"))


def test_a_file_beside_it_is_refused() -> None:
    with pytest.raises(InputError, match=r"no file is read; leave out x\.jsonl"):
        wiring.load_dataset(TrainingConfig(dataset_name="live", input_path="x.jsonl"))
