import json
from typing import Any

import pytest

from journeyman.core.errors import InputError
from journeyman.core.task import Task
from journeyman.rewards.answers import AnswerReward, chosen, load, schema_fault
from tests.support.traces import done, reply, said, used

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}


def answer(check: str, truth: Any, *steps: Any) -> float | None:
    task = Task(id="task", question="?", answer=truth if isinstance(truth, str) else json.dumps(truth))
    return AnswerReward(load(check), [task]).compute(done(*steps)).score


@pytest.mark.parametrize(
    ("check", "truth", "given", "score"),
    [
        ("exact", "the blue mug", "Answer: Blue mug.", 1),
        ("exact", "the blue mug", "Answer: red mug", 0),
        ("numeric", "#### 1,234", "so it is $1234.", 1),
        ("numeric", "#### 1,234", "so it is 12", 0),
        ("numeric", "none", "12", None),
        ("multiple_choice", "B", "Answer: (B) because", 1),
        ("multiple-choice", "(b)", "B", 1),
        ("multiple_choice", "B", "A", 0),
        ("multiple_choice", "B", "I cannot tell.", 0),
        ("multiple_choice", "seven", "B", None),
        ("json_schema", SCHEMA, 'Here:\n```json\n{"n": 3}\n```', 1),
        ("json_schema", SCHEMA, '{"n": 0}', 0),
        ("json_schema", SCHEMA, "three", 0),
        ("json_schema", "{", "1", None),
        ("json_schema", {"type": "nonsense"}, "1", None),
        ("tool_calls", {"call": []}, "1", None),
        ("tool_calls", {"calls": [{"f": {}, "g": {}}]}, "1", None),
    ],
)
def test_a_reply_is_checked_against_the_truth(check: str, truth: Any, given: str, score: float | None) -> None:
    assert answer(check, truth, reply(given)) == score


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("C", "C"),
        ("c)", "C"),
        ("Answer: **D**", "D"),
        ("The answer is (A).", "A"),
        ("Let me see.\nFinal answer: B. It boils.", "B"),
        ("Option C", "C"),
        ("It must be (D)", "D"),
        ("A quick look says nothing", "A"),
        ("a quick look says nothing", None),
        ("", None),
    ],
)
def test_the_chosen_letter_is_found(text: str, letter: str | None) -> None:
    assert chosen(text) == letter


def test_tool_calls_are_checked_whatever_the_reply_says() -> None:
    right = {"calls": [{"book": {"flight": ["HAT1", "HAT2"]}}]}
    assert answer("tool_calls", right, used("book", arguments='{"flight": "hat1"}'), reply("no idea")) == 1
    assert answer("tool_calls", right, reply('book(flight="HAT1")')) == 0
    assert answer("tool_calls", right, used("book", arguments="HAT1")) == 0


def test_whether_a_tool_was_called_at_all() -> None:
    assert answer("tool_relevance", "no call", reply("No tool helps here.")) == 1
    assert answer("tool_relevance", "no call", used("a")) == 0
    assert answer("tool_relevance", "call", used("a")) == 1
    assert answer("tool_relevance", "perhaps", used("a")) is None


def test_a_task_without_a_truth_is_unknown() -> None:
    reward = AnswerReward(load("exact"), [Task(id="other", question="?", answer="1")])
    assert reward.compute(said("1")).score is None


def test_the_version_knows_the_truths() -> None:
    versions = {AnswerReward(load("exact"), [Task(id="t", question="?", answer=text)]).version for text in "12"}
    assert len(versions) == 2


def test_a_schema_that_is_none_or_points_elsewhere_is_refused_without_a_network() -> None:
    with pytest.raises(InputError, match="JSON schema cannot be used"):
        schema_fault(1, {"type": "nonsense"})
    with pytest.raises(InputError, match="JSON schema cannot be used"):
        schema_fault(1, {"$ref": "http://127.0.0.1:9/schema.json"})
    assert schema_fault({"a": [1, "x"]}, {"properties": {"a": {"items": {"type": "integer"}}}}).startswith("$.a[1]: ")


def test_an_unknown_check_is_said_in_one_sentence() -> None:
    with pytest.raises(InputError, match="no answer check 'luck'; there are exact, numeric"):
        load("luck")
