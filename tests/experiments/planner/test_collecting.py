"""Collections of executions: they go on where they stopped, keep to a limit, and say how likely each choice was."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.agents.workers import Note as Take
from journeyman.agents.workers import SubtaskJob, Worker
from journeyman.core.errors import InputError, PlanError
from journeyman.core.plan import Plan, Subtask
from journeyman.core.policy import Card
from journeyman.core.task import Split
from journeyman.core.trace import ModelCall
from journeyman.experiments.planner import desk
from journeyman.experiments.planner.collect import (
    CollectionSummary,
    Instruction,
    at_the_desk,
    collect,
    explored,
    of_file,
)
from journeyman.experiments.planner.config import CollectConfig
from journeyman.tracing.importers.execution_log import LoggedExecution, read_executions

MODELS = ("cheap", "dear")


@dataclass(frozen=True, kw_only=True)
class Echo:
    """A worker that repeats what it is told, for a cent a job."""

    name: str
    done: list[str] = field(default_factory=list)
    price: float | None = 0.01

    @property
    def card(self) -> Card:
        return Card(name=self.name, call_price=self.price)

    def estimate(self, job: SubtaskJob) -> float | None:
        return self.price

    async def do(self, job: SubtaskJob, note: Take) -> Any:
        self.done.append(job.instruction)
        await asyncio.sleep(0)
        note(ModelCall(model=self.name, prompt=job.subtask.text, reply="", cost=self.price))
        return job.subtask.text


def crew(price: float | None = 0.01) -> dict[str, Worker]:
    return {name: Echo(name=name, price=price) for name in MODELS}


def steps(text: str) -> Plan:
    if "impossible" in text:
        raise PlanError("nobody can do that")
    parts = [Subtask(id=str(at), text=part, worker="dear") for at, part in enumerate(text.split(" then "))]
    return Plan(instruction=text, subtasks=tuple(parts))


def asked(n: int) -> list[Instruction]:
    return [Instruction(id=f"a{at}", text=f"do {at} then end") for at in range(n)]


def run(some: list[Instruction], folder: Path, workers: Mapping[str, Worker], **given: Any) -> CollectionSummary:
    return asyncio.run(collect(some, steps, workers, folder, CollectConfig(**given)))


def logged(folder: Path) -> list[LoggedExecution]:
    return [each for each in read_executions(folder) if isinstance(each, LoggedExecution)]


def test_a_test_set_is_held_out_under_every_name_and_a_split_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "asked.jsonl"
    file.write_text('{"instruction": "draw", "split": "test"}\n{"instruction": "\\ud800", "split": "Held-Out"}\n')
    assert [each.split for each in of_file(file)] == ["held_out", "held_out"]
    file.write_text('{"instruction": "draw", "split": "exam"}\n')
    with pytest.raises(InputError, match=r"asked.jsonl:1: there is no split 'exam'"):
        of_file(file)
    file.write_text('{"a": ' + "[" * 100_000)
    with pytest.raises(InputError, match=r"asked.jsonl:1: begins like JSON and is none"):
        of_file(file)


def test_what_was_logged_is_not_carried_out_again_and_the_rest_is(tmp_path: Path) -> None:
    first = run(asked(10), tmp_path, crew(), executions=4)
    workers = crew()
    second = run(asked(10), tmp_path, workers, executions=10)
    assert (first.ran, second.before, second.ran) == (4, 4, 6)
    done = [text for worker in workers.values() if isinstance(worker, Echo) for text in worker.done]
    assert not {"do 0 then end", "do 3 then end"} & set(done)
    assert sorted(each.task_id for each in logged(tmp_path)) == sorted(each.id for each in asked(10))


def test_a_line_torn_by_a_kill_is_carried_out_again(tmp_path: Path) -> None:
    run(asked(3), tmp_path, crew(), concurrency=1)
    file = tmp_path / "executions.jsonl"
    text = file.read_text()
    file.write_text(text[: text.rindex("execution_result")])
    assert run(asked(3), tmp_path, crew()).ran == 1
    assert len(logged(tmp_path)) == 3


def test_nothing_is_begun_that_could_exceed_the_limit(tmp_path: Path) -> None:
    made = run(asked(20), tmp_path, crew(), max_cost=0.075, concurrency=4)
    assert made.ran == 3
    assert made.cost == pytest.approx(0.06)
    assert "limit of $0.075" in made.stopped
    assert run(asked(20), tmp_path, crew(), executions=4).ran == 1


def test_a_limit_with_a_model_that_has_no_price_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no known price"):
        run(asked(2), tmp_path, crew(None), max_cost=1.0)


def test_an_instruction_that_nobody_can_plan_is_named_and_the_others_are_carried_out(tmp_path: Path) -> None:
    some = [*asked(2), Instruction(id="no", text="the impossible")]
    made = run(some, tmp_path, crew())
    assert made.ran == 2
    assert made.unplanned == ["no: nobody can do that"]


def test_every_choice_is_logged_with_its_propensity_and_who_else_there_was(tmp_path: Path) -> None:
    run(asked(40), tmp_path, crew(), explore=0.5, policy="expert")
    choices = [result.choice for each in logged(tmp_path) for result in each.results.values()]
    assert {choice.worker: choice.propensity for choice in choices if choice} == {"cheap": 0.25, "dear": 0.75}
    assert all(choice and choice.candidates == MODELS and choice.policy == "expert" for choice in choices)


@given(share=st.floats(0, 1), seed=st.integers(0, 99))
def test_propensities_of_all_that_could_be_chosen_sum_to_one(share: float, seed: int) -> None:
    config = CollectConfig(explore=share, seed=seed)
    _, choices = explored(steps("a then b then c"), MODELS, config, "x")
    for choice in choices.values():
        others = [share / 2 + (1 - share) * (name == "dear") for name in MODELS]
        assert sum(others) == pytest.approx(1.0)
        assert choice.propensity == pytest.approx(others[MODELS.index(choice.worker)])
        assert choice.propensity > 0


def test_instructions_come_from_lines_and_from_objects(tmp_path: Path) -> None:
    file = tmp_path / "asked.txt"
    file.write_text('sum the reports\n\n{"instruction": "draw the trend", "id": "t", "split": "held_out"}\nsum the reports\n')
    found = of_file(file)
    assert [each.text for each in found] == ["sum the reports", "draw the trend"]
    assert (found[1].id, found[1].split) == ("t", "held_out")


def test_an_instruction_may_name_its_cluster(tmp_path: Path) -> None:
    file = tmp_path / "asked.jsonl"
    file.write_text('{"instruction": "sum", "cluster": "shop"}\n{"instruction": "draw", "cluster": 3}\n')
    assert [each.task.cluster for each in of_file(file)] == ["shop", "3"]
    file.write_text('{"instruction": "sum", "cluster": ["shop"]}\n')
    with pytest.raises(InputError, match=r"asked.jsonl:1: cluster is \['shop'\], and must be a text or a number"):
        of_file(file)


@pytest.mark.parametrize(
    ("text", "said"), [("", "holds no instruction"), ('{"a": 1}', r'asked.txt:1: no "instruction"'), ("{", ":1: begins")]
)
def test_a_file_without_instructions_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "asked.txt").write_text(text)
    with pytest.raises(InputError, match=said):
        of_file(tmp_path / "asked.txt")


@pytest.mark.training
def test_notes_are_collected_for_real_and_a_second_time_is_only_what_is_new(tmp_path: Path) -> None:
    workers = desk.workers(replies=tmp_path / "replies")
    config = CollectConfig(executions=4, policy="expert")
    first = asyncio.run(collect(at_the_desk(6), desk.expert, workers, tmp_path / "logs", config))
    assert first.succeeded + first.failed == 4
    assert first.cost > 0
    again = asyncio.run(collect(at_the_desk(6), desk.expert, workers, tmp_path / "logs", CollectConfig(executions=6)))
    assert (again.before, again.ran) == (4, 2)
    line = json.loads((tmp_path / "logs" / "executions.jsonl").read_text().splitlines()[0])
    assert line["split"] == Split.TRAIN
    assert set(line["planner_outputs"]["models"][:2]) == set(desk.MODELS)
