"""Phase 1's steps, done by whom phase 2 chooses: valid whatever the weights, and one file for both."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError, PlanError
from journeyman.core.policy import Card
from journeyman.models.embedders import HashingEmbedder
from journeyman.optimizers.planner import artifact
from journeyman.optimizers.planner.network import PlannerModel
from journeyman.optimizers.planner.policy import LearnedPlanner, ReinforcedPlanner, features_of_plans, selector_for
from tests.support.examples import examples
from tests.support.planners import KINDS, MODELS, SMALL, bakery, opened, shake, written

pytestmark = pytest.mark.training

EMBEDDER = HashingEmbedder(64)
THIRD = Card(name="third", description="came yesterday", input_price=1.0, output_price=1.0)
TYPES = ("loaf", "letter", "stamp")
types = st.lists(st.sampled_from(TYPES), unique=True, max_size=2).map(tuple)


@cache
def bare() -> PlannerModel:
    return artifact.build(bakery(12), EMBEDDER, SMALL)


@examples(0.5)
@given(
    st.lists(st.tuples(types, types), max_size=5),
    st.sampled_from([(), MODELS, (THIRD,), (*MODELS, THIRD)]),
    st.integers(0, 10**6),
    st.sampled_from([0.1, 3.0, 100.0]),
    st.text(max_size=60),
)
def test_random_weights_make_a_valid_plan_by_known_models_or_say_why_not(
    said: list[tuple[tuple[str, ...], tuple[str, ...]]], models: tuple[Card, ...], seed: int, scale: float, instruction: str
) -> None:
    tools = [Card(name=f"tool{at}", kind="tool", takes=takes, gives=gives) for at, (takes, gives) in enumerate(said)]
    model = bare()
    selector = selector_for(model)
    shake(model, scale, seed)
    shake(selector, scale, seed + 1)
    names, reasons = {card.name for card in models or MODELS}, list[str]()
    for planner in (LearnedPlanner(model, hires=True), ReinforcedPlanner(LearnedPlanner(model, hires=True), selector)):
        try:
            plan = planner.plan(instruction, tools=tools, models=models)
        except PlanError as refused:
            reasons.append(str(refused))
            continue
        places = {step.id: at for at, step in enumerate(plan.subtasks)}
        for step in plan.subtasks:
            assert all(places[parent] < places[step.id] for parent in step.after)
            assert step.worker == "" if step.tool else step.worker in names
    assert all(len(reason.split()) > 3 for reason in reasons)


def test_untrained_it_chooses_as_phase_1_does(tmp_path: Path) -> None:
    planner = opened(written(tmp_path))
    same = ReinforcedPlanner(planner, selector_for(planner.model))
    for example in bakery(8).examples:
        plan = planner.plan(example.plan.instruction)
        assert same.plan(example.plan.instruction) == plan
        assert same.chances(planner.model, plan).sum(axis=1) == pytest.approx(np.ones(len(plan.subtasks)))


def test_both_come_back_from_one_file_and_phase_1_is_still_in_it(tmp_path: Path) -> None:
    start = written(tmp_path)
    planner = opened(start)
    selector = selector_for(planner.model)
    shake(selector, 3.0, 5)
    artifact.save_reinforced(tmp_path / "phase2_best.safetensors", start, selector, {"episodes": 3})
    found = artifact.load(tmp_path / "phase2_best", EMBEDDER)
    assert isinstance(found, ReinforcedPlanner)
    asked = [example.plan.instruction for example in bakery(6).examples]
    assert [found.plan(text) for text in asked] == [ReinforcedPlanner(planner, selector).plan(text) for text in asked]
    assert opened(tmp_path / "phase2_best.safetensors").plans(asked) == planner.plans(asked)
    assert isinstance(artifact.load(start, EMBEDDER), LearnedPlanner)


def test_to_reinforce_what_was_reinforced_keeps_one_policy_only(tmp_path: Path) -> None:
    start = written(tmp_path)
    selector = selector_for(opened(start).model)
    once, twice = (tmp_path / f"{name}.safetensors" for name in ("once", "twice"))
    artifact.save_reinforced(once, start, selector, {})
    artifact.save_reinforced(twice, once, selector, {})
    assert once.read_bytes() == twice.read_bytes()


def test_who_joined_since_is_among_those_to_choose_from(tmp_path: Path) -> None:
    planner = opened(written(tmp_path))
    made = ReinforcedPlanner(planner, selector_for(planner.model))
    plan = made.plan("easy letter number 3", models=(THIRD,))
    assert {step.worker for step in plan.subtasks if not step.tool} == {"third"}
    assert made.chances(planner.model_for((), (*MODELS, THIRD)), plan).shape == (len(plan.subtasks), 3)


def test_where_nobody_is_known_who_does_it_is_left_open(tmp_path: Path) -> None:
    planner = opened(written(tmp_path, bakery(workers=False)))
    made = ReinforcedPlanner(planner, selector_for(planner.model_for((), MODELS)))
    assert set(made.plan("easy letter number 3").workers) == {""}
    assert set(made.plan("easy letter number 3", models=MODELS).workers) <= {"small", "large", ""}


def test_a_policy_that_cannot_be_read_is_refused_with_the_files_name(tmp_path: Path) -> None:
    start = written(tmp_path)
    tensors, said = artifact.read(start)
    spoilt = tmp_path / "spoilt.safetensors"
    artifact.write(spoilt, {**tensors, "selector.cards": tensors["models"].clone()}, said)
    with pytest.raises(InputError, match=r"spoilt\.safetensors holds no policy of workers"):
        artifact.load(spoilt, EMBEDDER)


def test_plans_seen_together_are_seen_as_alone(tmp_path: Path) -> None:
    model = opened(written(tmp_path)).model
    plans = [example.plan for example in bakery(5).examples]
    assert {kind for plan in plans for kind in plan.types} >= set(KINDS)
    for seen, plan in zip(features_of_plans(model, plans), plans, strict=True):
        alone = features_of_plans(model, [plan])[0]
        np.testing.assert_allclose(seen.prior, alone.prior, atol=1e-5)
        np.testing.assert_array_equal(seen.nodes, alone.nodes)
