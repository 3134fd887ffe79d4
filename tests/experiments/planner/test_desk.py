"""The desk as a world of plans: verdicts are exact, whoever planned is understood, and it runs for real."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from journeyman.agents.orchestrator import Orchestrator
from journeyman.agents.workers import Note as Take
from journeyman.agents.workers import SubtaskJob, Worker
from journeyman.core.plan import ExecutionResult, Plan, SubtaskState
from journeyman.core.policy import Card, Ending
from journeyman.core.task import Split
from journeyman.experiments.planner import desk
from journeyman.tasks.desk import Note, notes, read

NOTES = notes(Split.TRAIN, 60)
CARD = Card(name=desk.MODELS[0], input_price=1.0, output_price=1.0)


@dataclass(frozen=True, kw_only=True)
class Knows:
    """A clerk who writes what is right, but for those subtasks that it is told to get wrong."""

    note: Note
    card: Card = CARD
    wrong: Mapping[str, Any] = field(default_factory=dict)

    def estimate(self, job: SubtaskJob) -> float | None:
        return 0.0

    async def do(self, job: SubtaskJob, note: Take) -> Any:
        return self.wrong.get(job.subtask.id, self.note.expected[job.subtask.id])


def crew(clerk: Worker) -> Mapping[str, Worker]:
    return {**desk.workers(()), clerk.card.name: clerk}


def carried_out(note: Note, plan: Plan | None = None, **wrong: Any) -> ExecutionResult:
    clerk = Knows(note=note, wrong=wrong)
    return asyncio.run(Orchestrator(crew=crew(clerk)).run(plan or desk.expert(note.text, clerk.card.name)))


@pytest.mark.parametrize("note", NOTES[:20], ids=lambda note: note.id)
def test_a_note_done_right_is_right_in_every_step_and_as_a_whole(note: Note) -> None:
    result = desk.judged(note, carried_out(note))
    assert result.success is True
    assert {outcome.ending for outcome in result.outcomes.values()} == {Ending.RIGHT}
    assert result.trace.task_id == note.id
    assert result.trace.raw["split"] == "train"


def test_one_wrong_call_makes_its_step_and_the_whole_wrong_even_where_the_answer_is_the_same() -> None:
    note = next(note for note in NOTES if "total" in note.plan.types and note.plan.types.count("due") == 0)
    right = note.expected["call1"]
    spoilt = {**right, "arguments": {**right["arguments"], "note": "extra"}}
    result = desk.judged(note, carried_out(note, call1=spoilt))
    assert result.outcomes["call1"].success == 0.0
    assert result.outcomes["total1"].success == 1.0
    assert result.success is False


def test_a_plan_that_leaves_a_step_out_is_no_success() -> None:
    note = next(note for note in NOTES if len(note.plan.ends) == 1 and len(note.plan.subtasks) > 2)
    short = replace(note.plan, subtasks=note.plan.subtasks[:-1])
    result = desk.judged(
        note, carried_out(note, short.with_workers(["" if step.tool else desk.MODELS[0] for step in short.subtasks]))
    )
    assert result.success is False


def test_steps_are_judged_by_what_they_are_also_under_other_names() -> None:
    note = next(note for note in NOTES if len(note.plan.levels) == 3)
    names = {step.id: f"s{at}" for at, step in enumerate(note.plan.subtasks)}
    renamed = Plan(
        instruction=note.text,
        subtasks=tuple(
            replace(
                step, id=names[step.id], after=tuple(names[id] for id in step.after), worker="" if step.tool else desk.MODELS[0]
            )
            for step in note.plan.subtasks
        ),
    )
    clerk = Knows(note=replace(note, expected={names[id]: value for id, value in note.expected.items()}))
    result = asyncio.run(Orchestrator(crew=crew(clerk)).run(renamed))
    assert desk.judged(note, result).success is True


def test_a_step_without_words_gets_the_sentence_of_its_shop() -> None:
    note = next(note for note in NOTES if len({step.type for step in note.plan.subtasks if not step.tool}) >= 3)
    bare = replace(note.plan, subtasks=tuple(replace(step, text="Do your part") for step in note.plan.subtasks))
    for step, known in zip(bare.subtasks, note.plan.subtasks, strict=True):
        if not step.tool and not step.after:
            assert desk.sentence(SubtaskJob(plan=bare, subtask=step, inputs={})) == known.text


def test_a_call_that_its_sentence_does_not_bear_out_goes_to_the_next_worker() -> None:
    note = next(note for note in NOTES if note.plan.types.count("sheet") == 1)
    right = note.expected["call1"]
    name = "quote" if right["name"] == "order" else "order"
    careless = Knows(note=note, wrong={"call1": {**right, "name": name}})
    careful = Knows(note=note, card=Card(name=desk.MODELS[1]))
    orchestrator = Orchestrator(
        crew={**crew(careless), desk.MODELS[1]: careful},
        check=desk.plausible,
        fallbacks={desk.MODELS[0]: (desk.MODELS[1],)},
    )
    result = desk.judged(note, asyncio.run(orchestrator.run(desk.expert(note.text, desk.MODELS[0]))))
    assert result.results["call1"].worker == desk.MODELS[1]
    assert result.success is True


def test_a_paper_that_cannot_be_written_fails_with_the_reason() -> None:
    note = next(note for note in NOTES if "total" in note.plan.types)
    right = note.expected["call1"]
    unreadable = {**right, "arguments": {**right["arguments"], "amount": "many"}}
    result = desk.judged(note, carried_out(note, call1=unreadable))
    assert result.results["total1"].state is SubtaskState.FAILED
    assert "cannot be read" in str(result.results["total1"].why)
    assert result.success is False


def test_prices_are_as_the_parameters_are() -> None:
    small, large = (card.input_price for card in desk.cards()[:2])
    assert small is not None
    assert large == pytest.approx(4.58 * small, rel=0.01)


@pytest.mark.training
def test_both_sizes_do_a_note_for_real_and_what_it_cost_is_what_they_counted(tmp_path: Path) -> None:
    note = NOTES[0]
    crew = desk.workers(replies=tmp_path)
    for model in desk.MODELS:
        result = desk.judged(note, asyncio.run(Orchestrator(crew=crew).run(desk.expert(note.text, model))))
        tokens = sum((call.input_tokens or 0) + (call.output_tokens or 0) for call in result.trace.calls)
        assert result.total_cost == pytest.approx(tokens * desk.PRICES[model] / 1e6)
        assert all(isinstance(read(result.outputs[step.id]).amount, int) for step in note.plan.subtasks if not step.tool)
