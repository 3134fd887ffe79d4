"""What steps are told: their own words, each once, and never another step's."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.plan import Plan, Subtask
from journeyman.core.task import Split
from journeyman.experiments.planner import desk
from journeyman.models.embedders import HashingEmbedder
from journeyman.optimizers.planner import artifact
from journeyman.optimizers.planner.config import NetworkConfig, SupervisedConfig
from journeyman.optimizers.planner.data import Example, TrainingData
from journeyman.optimizers.planner.features import clauses
from journeyman.optimizers.planner.policy import LearnedPlanner
from journeyman.optimizers.planner.supervised import agreement, mean_agreement, train
from journeyman.optimizers.planner.texts import _cut, learn, located, own_texts, same
from tests.support.planners import sums

pytestmark = pytest.mark.training


def test_a_planner_of_ones_own_examples_tells_each_step_its_own_words(tmp_path: Path) -> None:
    config = SupervisedConfig(epochs=12, network=NetworkConfig(width=32, rank=16))
    made = train(TrainingData.of(sums(120)), HashingEmbedder(256), tmp_path, config)
    assert made.validation.texts is not None
    assert made.validation.texts >= 0.98
    fresh = [example.plan for example in sums(90, seed=9)]
    plans = artifact.load_learned(made.best, HashingEmbedder(256)).plans([plan.instruction for plan in fresh])
    assert mean_agreement([agreement(*pair) for pair in zip(plans, fresh, strict=True)]).texts == 1.0
    told = {(step.type, step.text) for plan in plans for step in plan.subtasks}
    right = {(step.type, step.text) for plan in fresh for step in plan.subtasks}
    assert len(told & right) / len(right) >= 0.98, "to the letter"
    dealt = LearnedPlanner(made.model).plan(fresh[1].instruction, models=desk.cards(("embedded:small",))[:1])
    assert [step.text for step in dealt.subtasks] == [step.text for step in fresh[1].subtasks]


def test_the_desks_steps_are_told_what_its_expert_tells_them() -> None:
    notes = desk.instructions(Split.TRAIN, 100, 0)
    texts = learn([Example(plan=note.plan, success=1.0) for note in notes])
    assert texts is not None
    right = number = 0
    for note in desk.instructions(Split.HELD_OUT, 60, 5):
        plan = note.plan.with_texts([""] * len(note.plan.subtasks))
        found = texts.write(plan, clauses(note.text) or [note.text], [0] * len(plan.subtasks))
        right += sum(same(*pair) for pair in zip(found, (step.text for step in note.plan.subtasks), strict=True))
        number += len(found)
    assert right / number >= 0.95


def test_texts_that_are_swapped_are_seen_by_the_score_of_a_plan() -> None:
    right = sums(3)[1].plan
    first, second, third = (step.text for step in right.subtasks)
    for texts in ([second, first, third], [third, second, third], [right.instruction] * 3):
        swapped = agreement(right.with_texts(texts), right)
        assert (swapped.node_f1, swapped.exact) == (1.0, 1.0)
        assert swapped.texts is not None
        assert swapped.texts <= 2 / 3
        assert swapped.score < agreement(right, right).score == 1.0
    both = right.with_texts([f"Compute {first} and {second}"] * 2 + [third])
    assert own_texts(both, right) == pytest.approx(1 / 3), "a step that is told two steps' words is not told its own"


def test_where_nobody_said_what_steps_are_told_the_texts_are_unknown() -> None:
    plan = sums(2)[1].plan
    silent = plan.with_texts([plan.instruction] * 3)
    found = agreement(plan, silent)
    assert found.texts is None
    assert found.score == 1.0
    assert mean_agreement([found, agreement(plan, plan)]).texts == 1.0
    assert learn([Example(plan=silent, success=1.0)]) is None


def test_a_step_that_is_not_handed_what_it_takes_is_no_valid_workflow() -> None:
    plan = desk.instructions(Split.TRAIN, 1, 0)[0].plan
    assert agreement(plan, plan).valid == 1.0
    (last,) = [step for step in plan.subtasks if step.tool][-1:]
    cut = Plan(
        instruction=plan.instruction, subtasks=tuple(replace(s, after=()) if s.id == last.id else s for s in plan.subtasks)
    )
    assert agreement(cut, plan).valid == 0.0
    assert agreement(cut, plan).score == 0.0


@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 10**6))
def test_stretches_are_as_many_as_are_asked_for_and_do_not_overlap(n: int, number: int, seed: int) -> None:
    spans = _cut(np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32), number)
    assert len(spans) == (number if number <= n else 0)
    assert all(0 <= a < b <= n for a, b in spans)
    assert all(one[1] <= two[0] for one, two in pairwise(spans))


def test_a_text_is_found_once_for_each_step_and_only_as_whole_words() -> None:
    steps = (Subtask(id="1", text="art"), Subtask(id="2", text="buy the cart"), Subtask(id="3", text="art"))
    found = located(Plan(instruction="Please buy the cart, art and art.", subtasks=steps))
    assert sorted(found.values()) == [(1, 4), (5, 6), (7, 8)]
    assert found["2"] == (1, 4)
