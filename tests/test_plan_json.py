"""Plans as JSON: written and read back; what is none is refused by its subtask and field."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core import plan as plan_json
from journeyman.core.errors import PlanError
from journeyman.core.plan import Plan, Subtask

text = st.text(st.characters(codec="utf-8"), max_size=8)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    subtasks: list[Subtask] = []
    for id in draw(st.lists(text.filter(bool), max_size=6, unique=True)):
        after = draw(st.sets(st.sampled_from([each.id for each in subtasks]))) if subtasks else set()
        subtasks.append(
            Subtask(
                id=id,
                text=draw(text),
                type=draw(text),
                tool=draw(text),
                worker=draw(text),
                after=tuple(sorted(after)),
                takes=tuple(draw(st.lists(text, max_size=2))),
                gives=tuple(draw(st.lists(text, max_size=2))),
                arguments=draw(st.dictionaries(text, text | st.integers() | st.lists(st.booleans()), max_size=2)),
            )
        )
    return Plan(instruction=draw(text), subtasks=tuple(subtasks))


@given(plan=plans())
def test_a_plan_is_read_as_it_was_written(plan: Plan) -> None:
    assert plan_json.read(json.loads(json.dumps(plan_json.written(plan)))) == plan


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], 'a plan is an object with "instruction"'),
        ({"instruction": "x"}, "subtasks: a plan has a list"),
        ({"instruction": "x", "subtasks": ["a"]}, "subtask 1 is no object"),
        ({"instruction": "x", "subtasks": [{"id": "a"}]}, "subtask 'a': text is missing"),
        ({"instruction": "x", "subtasks": [{"text": "a"}]}, "subtask 1: id is missing"),
        ({"instruction": "x", "subtasks": [{"id": "a", "text": "", "after": "b"}]}, "'a': after is no list of texts"),
        ({"instruction": "x", "subtasks": [{"id": "a", "text": "", "arguments": 3}]}, "'a': arguments is no object"),
        ({"instruction": "x", "subtasks": [{"id": "a", "text": "", "modle": "b"}]}, "has a field 'modle'"),
        ({"instruction": "x", "subtasks": [{"id": "a", "text": "", "after": ["a"]}]}, "circle: a -> a"),
    ],
)
def test_what_is_no_plan_is_refused_by_its_field(value: Any, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        plan_json.read(value)
