"""Names become a crew, and who plans for it."""

from dataclasses import replace
from pathlib import Path

import pytest

from journeyman.core.errors import InputError, PlanError
from journeyman.core.policy import Card
from journeyman.experiments.planner import desk, workers
from journeyman.optimizers.planner.data import TrainingData
from tests.support.crews import model, says
from tests.support.planners import bakery, written

pytestmark = pytest.mark.training

OWN = """
from journeyman.agents.workers import ByFunction
from journeyman.core.policy import Card

CREW = {"bake": ByFunction(call=lambda: "bread", card=Card(name="bake", kind="tool", call_price=0.0))}
WRONG = {"bake": print}
"""
NOTE = "for oslo: we need 4 green bowls to lima"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    monkeypatch.chdir(tmp_path)
    name = f"bakers_{abs(hash(request.node.name))}"
    Path(f"{name}.py").write_text(OWN)
    return name


def test_ones_own_crew_comes_from_the_working_folder(mine: str) -> None:
    assert list(workers.crew_of(own=f"{mine}:CREW")) == ["bake"]
    assert list(workers.crew_of(["scripted:hello"], f"{mine}:CREW")) == ["scripted:hello", "bake"]


@pytest.mark.parametrize("rest", [":NOBODY", ":WRONG", "", ":"])
def test_what_is_no_crew_is_said_by_its_name(mine: str, rest: str) -> None:
    with pytest.raises(InputError, match=f"the crew '{mine}{rest}'"):
        workers.crew_of(own=f"{mine}{rest}")
    with pytest.raises(InputError, match=r"the crew 'no\.such\.module:CREW' cannot be loaded"):
        workers.crew_of(own="no.such.module:CREW")


def test_only_the_embedded_models_are_at_the_desk() -> None:
    assert workers.at_the_desk(desk.MODELS)
    assert not workers.at_the_desk([*desk.MODELS, "openai:gpt-5"])
    assert not workers.at_the_desk(["a name that is no model's"])


def test_without_a_planner_the_desk_has_its_expert_and_others_one_step() -> None:
    clerk = replace(model("hello"), card=Card(name="embedded:base"))
    made = workers.planner_for({"embedded:base": clerk})
    assert (made.make(NOTE).types, made.make(NOTE).workers) == (("oslo",), ("embedded:base",))
    with pytest.raises(PlanError):
        made.make("sing a song")
    alone = workers.planner_for({"m": model("hello")}).make("sing a song")
    assert (alone.subtasks[0].text, alone.workers) == ("sing a song", ("m",))


def test_a_crew_of_tools_alone_needs_a_planner_and_is_told_so_when_it_is_to_plan() -> None:
    made = workers.planner_for({"t": says("x")})
    with pytest.raises(InputError, match="nobody who plans; name a planner"):
        made.make("anything")


def test_a_planner_plans_with_the_crew_or_with_what_it_learned_from(tmp_path: Path) -> None:
    kept = workers.find_planner(str(written(tmp_path)))
    text = "easy letter number 4, and bread for it"
    own = workers.planner_for({}, kept, dealt=False).make(text)
    assert {step.tool for step in own.subtasks} <= {"bake", ""}
    dealt = workers.planner_for({"m": model("hello"), "tool": says("x")}, kept).make(text)
    assert set(dealt.workers) <= {"m", "tool"}
    assert {step.tool for step in dealt.subtasks} <= {"tool", ""}


def test_a_planner_that_never_learned_who_leaves_it_to_the_last_model_named(tmp_path: Path) -> None:
    kept = workers.find_planner(str(written(tmp_path, bakery(workers=False))))
    made = workers.planner_for({"m": model("hello")}, kept, dealt=False).make("easy letter number 4")
    assert set(made.workers) <= {"m", "bake"}


def test_the_crew_is_whom_the_planner_knows_where_nobody_is_named(tmp_path: Path) -> None:
    known = (Card(name="scripted:one"), Card(name="scripted:two"))
    training = TrainingData(examples=bakery().examples, task_types=bakery().task_types, tools=bakery().tools, models=known)
    kept = workers.find_planner(str(written(tmp_path, training)))
    assert list(workers.crew_of(kept=kept))[:2] == ["scripted:one", "scripted:two"]
    assert list(workers.crew_of(["scripted:three"], kept=kept)) == ["scripted:three"]
