from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError, PlanError
from journeyman.core.plan import Plan, Subtask
from journeyman.core.policy import Card
from journeyman.models.embedders import HashingEmbedder
from journeyman.optimizers.planner import artifact
from journeyman.optimizers.planner.config import NetworkConfig
from journeyman.optimizers.planner.data import TrainingData
from journeyman.optimizers.planner.network import PlannerModel
from journeyman.optimizers.planner.policy import LearnedPlanner

from .worlds import MODELS, TOOLS, kitchen

pytestmark = pytest.mark.training

SMALL = NetworkConfig(width=16, rank=8, dropout=0.0)
TYPES = ("image", "text", "audio", "video")
types = st.lists(st.sampled_from(TYPES), unique=True, max_size=2).map(tuple)


def untrained(training: TrainingData | None = None, seed: int = 0) -> PlannerModel:
    model = artifact.build(training or kitchen(20), HashingEmbedder(64), SMALL, seed)
    model.eval()
    return model


@given(
    st.lists(st.tuples(types, types), min_size=1, max_size=12),
    st.integers(0, 10**6),
    st.sampled_from([0.1, 3.0, 100.0]),
    st.none() | st.frozensets(st.sampled_from(TYPES)),
    st.text(max_size=60),
)
def test_random_weights_make_a_valid_plan_or_say_why_not(
    said: list[tuple[tuple[str, ...], tuple[str, ...]]], seed: int, scale: float, given: frozenset[str] | None, instruction: str
) -> None:
    tools = [Card(name=f"tool{at} {takes}", kind="tool", takes=takes, gives=gives) for at, (takes, gives) in enumerate(said)]
    model = untrained()
    with torch.no_grad():
        for at, parameter in enumerate(model.parameters()):
            parameter.copy_(scale * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed + at)))
    planner = LearnedPlanner(model, hires=True)
    try:
        plan = planner.plan(instruction, tools=tools, models=MODELS, given=given)
    except PlanError as refused:
        sentence = str(refused)
        plan = Plan(instruction=instruction, subtasks=())
        assert "must be handed" in sentence
    places = {subtask.id: at for at, subtask in enumerate(plan.subtasks)}
    for subtask in plan.subtasks:
        assert subtask.worker in ({""} if subtask.tool else {"small", "large"})
        assert all(places[parent] < places[subtask.id] for parent in subtask.after)
        handed = {kind for parent in subtask.after for kind in plan.by_id[parent].gives}
        assert given is None or set(subtask.takes) <= given | handed


def test_the_documented_outputs_have_the_documented_shapes() -> None:
    model = untrained()
    outputs = model(["Make me plain toast", "A fried egg and a cup of tea, please"])
    b, k = outputs["real"].shape
    assert b == 2
    assert outputs["subtask_embeddings"].shape == (b, k, SMALL.width)
    assert outputs["task_types"].shape == (b, k, 2)
    assert outputs["model_selections"].shape == (b, k, 2)
    graph = outputs["workflow_graph"].detach()
    assert graph.shape == (b, k, k)
    assert float(graph.diagonal(dim1=1, dim2=2).abs().max()) == 0
    assert 0 <= float(graph.min()) <= float(graph.max()) <= 1
    targets = {"task_types": torch.zeros(2, 3, dtype=torch.long), "model_selections": torch.zeros(2, 3, dtype=torch.long)}
    found = model.compute_supervised_loss(outputs, targets, lambda_dag=0.3)
    assert found["total_loss"].requires_grad


def test_scores_of_workers_have_gradients_and_padding_is_marked() -> None:
    model = untrained()
    plans = [example.plan for example in kitchen(6).examples]
    requests = model.encoder.encode([plan.instruction for plan in plans])
    found = model.score_workers(model.batch(requests, [model.places(plan) for plan in plans]))
    assert found.real.sum(1).tolist() == [len(plan.subtasks) for plan in plans]
    assert found.logits.shape == (*found.real.shape, 2)
    (found.logits.log_softmax(-1)[..., 0][found.real].sum() + found.value.sum()).backward()
    for layer in (model.hire, model.hire_card, model.worth, model.know[0], model.read[0]):
        weights = layer[0].weight if isinstance(layer, torch.nn.Sequential) else layer.weight
        assert float(weights.grad.abs().sum()) > 0


def test_the_plan_of_a_request_does_not_depend_on_what_else_is_asked() -> None:
    planner = LearnedPlanner(untrained(), hires=True)
    asked = [example.plan.instruction for example in kitchen(8, seed=3).examples]
    assert planner.plans(asked) == [planner.plan(text) for text in asked]


def test_an_untrained_planner_already_plans_as_the_nearest_past_plans_did() -> None:
    past = kitchen(40)
    planner = LearnedPlanner(untrained(past), hires=False)
    right = [example.plan for example in past.examples[:20]]
    made = planner.plans([plan.instruction for plan in right])
    same = [sorted(s.tool for s in a.subtasks) == sorted(s.tool for s in b.subtasks) for a, b in zip(made, right, strict=True)]
    assert np.mean(same) > 0.6


def test_a_tool_that_came_yesterday_is_used_by_its_card() -> None:
    planner = LearnedPlanner(untrained(), hires=False)
    new = Card(name="squeeze_orange", description="Squeeze an orange into juice", kind="tool")
    plan = planner.plan("squeeze an orange into juice", tools=[*TOOLS, new])
    assert "squeeze_orange" in {subtask.tool for subtask in plan.subtasks}


def test_work_without_tools_is_planned_by_kinds() -> None:
    examples = kitchen(20).examples
    bare = [
        replace(e, plan=Plan(instruction=e.plan.instruction, subtasks=tuple(replace(s, tool="") for s in e.plan.subtasks)))
        for e in examples
    ]
    planner = LearnedPlanner(untrained(TrainingData.of(bare, models=MODELS)), hires=True)
    plan = planner.plan("Make me a fried egg")
    assert {subtask.type for subtask in plan.subtasks} <= {"frying", "heating"}
    assert {subtask.tool for subtask in plan.subtasks} == {""}


def test_a_plan_of_other_tools_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="tool 'fly'"):
        untrained().places(Plan(instruction="x", subtasks=(Subtask(id="1", text="x", tool="fly"),)))


def test_a_planner_without_cards_is_refused() -> None:
    with pytest.raises(InputError, match="at least one tool"):
        artifact.build(TrainingData(examples=()), HashingEmbedder(64), SMALL)
