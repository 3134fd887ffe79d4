import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.core.plan import Plan, Subtask
from journeyman.core.policy import Card
from journeyman.optimizers.planner import data
from journeyman.optimizers.planner.data import Example, TrainingData

from .worlds import TOOLS, kitchen

DOCUMENTED = [
    {
        "instruction": "Summarize document...",
        "targets": {"model_selections": [2, 0, 1], "task_types": [3, 5, 7], "dependencies": [[], [0], [1]]},
        "rewards": {"success": 1.0, "cost": -0.045, "latency": -1.2},
    }
]


def test_the_documented_list_is_read() -> None:
    found = data.parse(json.dumps(DOCUMENTED), "training_data.json")
    (example,) = found.examples
    assert example.plan.instruction == "Summarize document..."
    assert example.plan.types == ("type 3", "type 5", "type 7")
    assert example.plan.workers == ("model 2", "model 0", "model 1")
    assert example.plan.is_chain
    assert (example.success, example.cost, example.seconds) == (1.0, 0.045, 1.2)


def test_numbers_are_names_where_the_names_stand_beside() -> None:
    beside = {"models": ["a", "b", {"name": "c", "input_price": 2.0}], "task_types": [f"kind {at}" for at in range(8)]}
    found = data.parse(json.dumps({**beside, "examples": DOCUMENTED}), "x")
    assert found.examples[0].plan.workers == ("c", "a", "b")
    assert found.examples[0].plan.types == ("kind 3", "kind 5", "kind 7")
    assert found.models[2] == Card(name="c", input_price=2.0)


def test_numbers_that_were_not_measured_stay_unknown() -> None:
    row = {**DOCUMENTED[0], "rewards": {"success": None}}
    (example,) = data.parse(json.dumps([row]), "x").examples
    assert (example.success, example.cost, example.seconds) == (None, None, None)


texts = st.text(min_size=1, max_size=12).filter(lambda text: not any(0xD800 <= ord(c) < 0xE000 for c in text))


@st.composite
def examples(draw: st.DrawFn) -> Example:
    k = draw(st.integers(1, 5))
    subtasks = []
    for at in range(k):
        after = draw(st.lists(st.integers(0, at - 1), unique=True)) if at else []
        subtasks.append(
            Subtask(
                id=str(at + 1),
                text=draw(texts),
                after=tuple(str(parent + 1) for parent in after),
                type=draw(texts),
                tool=draw(st.just("") | texts),
                worker=draw(st.just("") | texts),
            )
        )
    unknown = st.none() | st.floats(0, 1e6)
    return Example(
        plan=Plan(instruction=draw(texts), subtasks=tuple(subtasks)),
        success=draw(st.none() | st.floats(0, 1)),
        cost=draw(unknown),
        seconds=draw(unknown),
        group=draw(st.just("") | texts),
        synthetic=draw(st.booleans()),
    )


@given(st.lists(examples(), max_size=4))
def test_what_is_written_is_read_again(made: list[Example]) -> None:
    training = TrainingData.of(made, tools=TOOLS, models=(Card(name="m", description="d", window=8, input_price=0.5),))
    assert data.parse(data.dumps(training), "x") == training


def test_a_file_is_whole_and_comes_back(tmp_path: Path) -> None:
    made = kitchen(5)
    data.write(made, tmp_path / "deep" / "training_data.json")
    assert data.read(tmp_path / "deep" / "training_data.json") == made
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["training_data.json"]


WRONG: list[tuple[Any, str]] = [
    ("no", "holds no examples"),
    ([{}], "example 0: no instruction"),
    ([{"instruction": "x"}], "example 0: no targets"),
    ([{"instruction": "x", "targets": {"task_types": [1]}}], "dependencies: a list is needed"),
    ([{"instruction": "x", "targets": {"task_types": [1], "dependencies": [[], []]}}], "1 entries for 2 subtasks"),
    ([{"instruction": "x", "targets": {"task_types": [1], "dependencies": [[4]]}}], "there are subtasks 0 to 0"),
    ([{"instruction": "x", "targets": {"task_types": [1, 1], "dependencies": [[1], [0]]}}], "in a circle"),
    ([{"instruction": "x", "targets": {"task_types": [1.5], "dependencies": [[]]}}], "1.5 is no type"),
    (
        {"models": ["a"], "examples": [{"instruction": "x", "targets": {"model_selections": [3], "dependencies": [[]]}}]},
        "3 is no model",
    ),
    ({"models": [{}], "examples": []}, "a card needs a name"),
    ([{"instruction": "x", "targets": {"dependencies": [[]]}, "rewards": {"cost": "dear"}}], "'dear' is no number"),
    ([{"instruction": "x", "targets": {"dependencies": [[]]}, "rewards": {"cost": 10**400}}], "is no number"),
    ([{"instruction": "x", "targets": {"dependencies": [[]]}, "rewards": {"success": 7}}], "7 is no number from 0 to 1"),
    ([{"instruction": "x", "targets": {"dependencies": [[]]}, "rewards": [1]}], "rewards is no object"),
    ({"models": 5, "examples": []}, "models: a list is needed"),
    ({"models": [{"name": "a", "input_price": "low"}], "examples": []}, "models 0: input_price: 'low' is no number"),
    ({"tools": [{"name": "a", "takes": "text"}], "examples": []}, "tools 0: takes: a list is needed"),
    ({"tools": [{"name": "a", "description": 3}], "examples": []}, "description is 3, and must be a text"),
]


@pytest.mark.parametrize(("found", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_cannot_be_used_is_named(found: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        data.parse(json.dumps(found), "training_data.json")


def test_a_file_that_is_not_there_or_no_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not there"):
        data.read(tmp_path / "none.json")
    (tmp_path / "half.json").write_text('[\n{"instruction": ')
    with pytest.raises(InputError, match=r"half.json:2: no JSON"):
        data.read(tmp_path / "half.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"deep.json: no JSON that can be read"):
        data.read(tmp_path / "deep.json")


def test_about_a_fifth_is_validated_on_and_the_seed_decides_which() -> None:
    real = kitchen(200).examples
    sizes = [len(data.split(real, seed=seed)[1]) for seed in range(5)]
    assert min(sizes) > 25
    assert max(sizes) < 60
    assert data.split(real, seed=1) == data.split(real, seed=1)
    assert data.split(real, seed=1) != data.split(real, seed=2)


def test_the_sample_that_ships_is_whole() -> None:
    found = data.read(Path(__file__).parents[2] / "data" / "restbench" / "training_data.json")
    assert (len(found.examples), len(found.tools)) == (100, 46)
    assert all(example.plan.is_chain for example in found.examples)
