"""What a tool's refusal names, and what verifies an answer to a recorded request."""

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import TaskError
from journeyman.core.task import Task
from journeyman.core.trace import ModelCall, ToolCall, Trace
from journeyman.io.json_schema import schema_faults
from journeyman.tasks.desk.world import compare
from journeyman.tasks.recorded import (
    AskedCall,
    FaultKind,
    NamedFault,
    RecordedAnswer,
    RecordedVerifier,
    TaskKind,
    effect,
    is_well_formed,
    named_faults,
    not_rejected,
)

ARGUMENTS = {"date": "5", "city": "Oslo", "sku": "a"}


def _said(text: str) -> list[tuple[str, str, object]]:
    found = named_faults(text, "order", ARGUMENTS, ("date", "city", "sku", "place"))
    return [(each.argument, each.problem.value, each.expected_value or each.expected_name or each.allowed) for each in found]


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ('date: expected "05.09.2026", got "5"', [("date", "value", "05.09.2026")]),
        ('city: unknown field, expected "place"', [("city", "renamed", "place")]),
        ('Error: place: missing, expected "Oslo"', [("place", "missing", "Oslo")]),
        ("city: unknown field", [("city", "unknown", ())]),
        ("unknown argument 'city'", [("city", "unknown", ())]),
        ("order() got an unexpected keyword argument 'city'", [("city", "unknown", ())]),
        ("missing required argument 'place'", [("place", "missing", ())]),
        (
            "order() missing 2 required positional arguments: 'place' and 'date'",
            [("place", "missing", ()), ("date", "missing", ())],
        ),
        ('date must be one of ["1", "2"]', [("date", "value", ("1", "2"))]),
        ("place is required", [("place", "missing", ())]),
        ("'place' is a required property", [("place", "missing", ())]),
        ("Additional properties are not allowed ('city' was unexpected)", [("city", "unknown", ())]),
        ('{"error": "date: expected \\"3\\", got \\"5\\""}', [("date", "value", "3")]),
        ('{"detail": [{"loc": ["body", "place"], "msg": "Field required", "type": "missing"}]}', [("place", "missing", ())]),
        ('{"detail": [{"loc": ["body", "city"], "msg": "Extra inputs are not permitted"}]}', [("city", "unknown", ())]),
        ('{"errors": {"place": ["This field is required."]}}', [("place", "missing", ())]),
        ('[{"code": "unrecognized_keys", "path": ["city"], "message": "Unrecognized key"}]', [("city", "unknown", ())]),
        (
            "2 validation errors\ndate\n  Input should be '1', '2' or '3' [type=enum]\nplace\n  Field required [type=m]",
            [("date", "value", ("1", "2", "3")), ("place", "missing", ())],
        ),
        ('name: expected "quote", got "order"', [("name", "tool", "quote")]),
    ],
)
def test_a_refusal_names_its_fields_and_what_they_should_be(text: str, faults: object) -> None:
    assert _said(text) == faults


@pytest.mark.parametrize(
    "text",
    [
        "",
        "User not found",
        "503 service unavailable",
        "call: not a JSON object",
        "Error: gift card balance is not enough",
        "Error: payment amount does not add up, total price is 375, but paid 299",
        "Error: flight HAT030 not available on another day than 2024-05-13",
        "Traceback (most recent call last):\n  File 'x.py', line 3\nAttributeError: a required attribute is missing",
        "Your edit has new errors. Please retry.\nErrors:\n- E999\n\nData: a table whose rows are missing, nobody can tell why",
        "cat: ./missing_colon.py: No such file or directory",
    ],
)
def test_a_refusal_that_names_no_field_names_none(text: str) -> None:
    assert named_faults(text, "order", ARGUMENTS) == ()


@given(st.text(max_size=200))
def test_any_text_can_be_read_for_faults(text: str) -> None:
    for fault in named_faults(text, "order", ARGUMENTS):
        assert fault.argument


_VALUES = st.text(st.characters(categories=("L", "N"), include_characters=" .-/"), min_size=1, max_size=8)


@given(
    got=st.dictionaries(st.sampled_from(("sku", "date", "price")), _VALUES),
    right=st.dictionaries(st.sampled_from(("sku", "date", "price")), _VALUES),
)
def test_what_is_right_by_an_exact_refusal_is_the_expected_call_alone(got: Mapping[str, str], right: Mapping[str, str]) -> None:
    """A refusal names every wrong field of a call, so the mended call is the expected one, and nothing else is."""
    lines = compare(got, right)
    faults = named_faults("\n".join(lines), "order", got)
    answer = RecordedAnswer(kind=TaskKind.CALL, tool="order", arguments=dict(got), faults=faults)
    assert _value(answer, "order", right) == 1.0
    assert _value(answer, "order", got) == (0.0 if lines else 1.0)
    assert _value(answer, "order", {**right, "colour": "red"}) == 0.0
    assert _value(answer, "quote", right) == 0.0


def _trace(tool: str | None, arguments: Mapping[str, Any], reply: str = "", times: int = 1) -> Trace:
    call = ModelCall(model="m", prompt="", reply=reply, id="call")
    asked = ToolCall(tool=tool or "", arguments=json.dumps(arguments), result="", parent="call")
    steps = (call, *([asked] * times if tool else ()))
    return Trace(id="t", task_id="t", candidate_id="base", started_at=datetime(2026, 1, 1, tzinfo=UTC), steps=steps)


def _task(answer: RecordedAnswer) -> Task:
    return Task(id="t", question="q", answer=answer.dumps())


def _value(answer: RecordedAnswer, tool: str | None, arguments: Mapping[str, Any], **more: Any) -> float | None:
    return asyncio.run(RecordedVerifier().verify(_task(answer), _trace(tool, arguments, **more))).value


CALL = RecordedAnswer(
    kind=TaskKind.CALL,
    tool="order",
    arguments={"date": "5", "city": "Oslo", "items": [{"sku": "a", "n": 1}]},
    faults=(
        NamedFault(argument="date", problem=FaultKind.VALUE, expected_value="05.09.2026"),
        NamedFault(argument="city", problem=FaultKind.RENAMED, expected_name="place"),
    ),
)
RIGHT = {"date": "05.09.2026", "place": "Oslo", "items": [{"sku": "a", "n": 1}]}


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (RIGHT, 1.0),
        (CALL.arguments, 0.0),
        ({**RIGHT, "date": "5 Sep"}, 0.0),
        ({**RIGHT, "place": "oslo"}, 0.0),
        ({**RIGHT, "city": "Oslo"}, 0.0),
        ({**RIGHT, "items": [{"sku": "a/b", "n": 1}]}, 0.0),
        ({**RIGHT, "rush": "yes"}, 0.0),
        ({"date": "05.09.2026", "place": "Oslo"}, 0.0),
    ],
)
def test_what_an_error_names_is_mended_and_what_it_does_not_name_is_as_it_was(arguments: Any, value: float) -> None:
    assert _value(CALL, "order", arguments) == value
    assert not_rejected(_task(CALL), _trace("order", arguments)) is (arguments != CALL.arguments)


def test_a_call_that_was_accepted_must_still_be_made() -> None:
    accepted = RecordedAnswer(kind=TaskKind.ACCEPTED, tool="order", arguments=RIGHT)
    assert _value(accepted, "order", RIGHT) == 1.0
    assert _value(accepted, "order", {**RIGHT, "date": "6"}) == 0.0
    assert _value(accepted, None, {}, reply="I am sorry.") == 0.0
    assert not_rejected(_task(accepted), _trace("order", RIGHT)) is True


def test_a_dozen_calls_are_no_way_to_be_right_with_one_of_them() -> None:
    accepted = RecordedAnswer(kind=TaskKind.ACCEPTED, tool="order", arguments=RIGHT)
    assert _value(accepted, "order", RIGHT, times=2) == 0.0


def test_of_an_api_that_tells_of_one_fault_at_a_time_what_was_accepted_in_the_end_is_right() -> None:
    fault = NamedFault(argument="date", problem=FaultKind.VALUE, expected_value="05.09.2026")
    first = RecordedAnswer(kind=TaskKind.CALL, tool="order", arguments={"date": "5", "sku": "a b"}, faults=(fault,))
    mended = {"date": "05.09.2026", "sku": "a-b"}
    assert _value(first, "order", mended) == 0.0
    known = RecordedAnswer(
        **{**{name: getattr(first, name) for name in ("kind", "tool", "arguments", "faults")}, "repaired": mended}
    )
    assert _value(known, "order", mended) == 1.0
    assert _value(known, "order", {"date": "05.09.2026", "sku": "a/b"}) == 0.0


def test_a_failed_verdict_says_what_differs() -> None:
    found = asyncio.run(RecordedVerifier().verify(_task(CALL), _trace("order", {**RIGHT, "date": "6"})))
    assert found.evidence == 'date: expected "05.09.2026", got "6"'


def test_nobody_can_tell_of_an_unverifiable_request() -> None:
    assert _value(RecordedAnswer(kind=TaskKind.UNVERIFIABLE), "order", RIGHT) is None


def test_an_answer_that_is_no_call_is_compared_as_answers_are() -> None:
    answered = RecordedAnswer(kind=TaskKind.ANSWERED, text="42")
    assert _value(answered, None, {}, reply="It is **42**.") == 1.0
    assert _value(answered, None, {}, reply="It is 43.") == 0.0


SCHEMA = {
    "type": "object",
    "properties": {"date": {"type": "string"}, "n": {"type": "integer"}, "size": {"enum": ["s", "m"]}},
    "required": ["date"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "faults"),
    [
        ({"date": "5", "n": 2, "size": "s"}, 0),
        ({"n": 2}, 1),
        ({"date": 5}, 1),
        ({"date": "5", "n": True}, 1),
        ({"date": "5", "size": "xl"}, 1),
        ({"date": "5", "colour": "red"}, 1),
        (None, 1),
    ],
)
def test_arguments_are_compared_with_what_the_request_declares(arguments: Any, faults: int) -> None:
    assert len(schema_faults(arguments, SCHEMA)) == faults
    if arguments is not None:
        answer = RecordedAnswer(kind=TaskKind.FORM, tool="order", schema=SCHEMA)
        assert _value(answer, "order", arguments) == (0.0 if faults else 1.0)
        assert is_well_formed(_task(answer), _trace("order", arguments)) is not bool(faults)


def test_an_answer_is_read_back_as_it_was_written() -> None:
    assert RecordedAnswer.loads(CALL.dumps()) == CALL
    assert RecordedAnswer.loads(CALL.dumps()).arguments == CALL.arguments
    with pytest.raises(TaskError, match="draw the tasks from traces again"):
        RecordedAnswer.loads("42")


def test_a_field_that_a_tool_asks_for_is_not_worse_in_form_though_its_request_does_not_declare_it() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    for closed in (False, True):
        told = {**schema, "additionalProperties": False} if closed else schema
        answer = RecordedAnswer(kind=TaskKind.CALL, tool="order", arguments={"city": "Oslo"}, schema=told)
        assert is_well_formed(_task(answer), _trace("order", {"place": "OSLO"})) is not closed


# What another answer changes.

RENAMED = 'city: unknown field, expected "place"\nplace: expected "OSLO", got "Oslo"\ndate: expected "05.09.2026", got "5"'


@pytest.mark.parametrize(
    ("change", "mended", "spoiled"),
    [
        ({}, 0, 0),
        ({"date": "05.09.2026"}, 1, 0),
        ({"date": "5-sep"}, 0, 1),
        ({"sku": "b"}, 0, 1),
        ({"date": "05.09.2026", "sku": "b"}, 1, 1),
        ({"city": "OSLO"}, 1, 0),
        ({"city": None, "place": "Oslo"}, 1, 0),
        ({"city": None, "place": "OSLO"}, 2, 0),
        ({"city": None, "dest": "Oslo"}, 0, 3),
        ({"rush": "yes"}, 0, 1),
    ],
)
def test_what_an_answer_changes_is_told_field_by_field(change: Mapping[str, Any], mended: int, spoiled: int) -> None:
    answer = RecordedAnswer(
        kind=TaskKind.CALL, tool="order", arguments=ARGUMENTS, faults=named_faults(RENAMED, "order", ARGUMENTS)
    )
    then = AskedCall(tool="order", arguments=ARGUMENTS)
    now = AskedCall(tool="order", arguments={k: v for k, v in {**ARGUMENTS, **change}.items() if v is not None})
    found = effect(answer, [then], [now])
    assert (found.mended, found.spoiled) == (mended, spoiled)
    assert effect(answer, [now], [now]).sign == 0
    # No call at all does nothing of what was asked, and another tool's does something else.
    assert effect(answer, [then], []).spoiled >= 1
    assert effect(answer, [then], [AskedCall(tool="quote", arguments=ARGUMENTS)]).spoiled == 1
