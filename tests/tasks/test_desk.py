"""The order desk: its tasks are fair, its splits are apart, and its API says what is wrong."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.core.task import Split, Task
from journeyman.core.trace import ModelCall, Trace
from journeyman.tasks.desk import load
from journeyman.tasks.desk.world import CONVENTIONS, SHOPS, Desk, Order, call, faults, rules


def trace(reply: str) -> Trace:
    step = ModelCall(model="m", prompt="p", reply=reply)
    return Trace(id="t", task_id="x", candidate_id="base", started_at=datetime(2026, 1, 1, tzinfo=UTC), steps=(step,))


def test_there_are_six_shops_and_six_conventions_with_several_values() -> None:
    assert len(SHOPS) >= 6
    assert len(CONVENTIONS) >= 6
    assert all(len(convention.values) >= 3 for convention in CONVENTIONS)


def test_no_two_shops_have_the_same_conventions_and_none_has_only_the_usual_ones() -> None:
    houses = [tuple(sorted(house.items())) for house in SHOPS.values()]
    assert len(set(houses)) == len(houses)
    assert all(sum(value > 0 for value in house.values()) >= 4 for house in SHOPS.values())


def test_every_value_of_a_convention_writes_something_else() -> None:
    order = Order(tool="order", item="mug", color="blue", amount=3, city="Oslo", date=(3, 5), price=1250, rush=True)
    for convention in CONVENTIONS:
        assert len({value.write(order) for value in convention.values}) == len(convention.values)


def test_the_same_seed_gives_the_same_tasks_and_a_larger_size_begins_with_them() -> None:
    small = load("oslo", sizes={Split.TRAIN: 20})
    large = load("oslo", sizes={Split.TRAIN: 50})
    assert large.tasks[:20] == small.tasks
    assert load("oslo", sizes={Split.TRAIN: 20}, seed=1).tasks != small.tasks


@pytest.mark.parametrize("shop", SHOPS)
def test_no_sentence_stands_in_two_splits(shop: str) -> None:
    seen: dict[str, Split] = {}
    for task in load(shop).tasks:
        assert seen.setdefault(task.question, task.split) is task.split


def test_held_out_tasks_have_combinations_that_training_has_not_seen() -> None:
    def combination(task: Task) -> tuple[str, ...]:
        arguments = json.loads(task.answer)["arguments"]
        place = next((str(arguments[name]) for name in ("city", "town", "place", "dest") if name in arguments), "")
        return (arguments["sku"], place)

    dataset = load("oslo")
    trained = {combination(task) for task in dataset.split(Split.TRAIN)}
    assert not trained & {combination(task) for task in dataset.split(Split.HELD_OUT)}


def test_an_unknown_shop_is_refused_with_the_names_of_the_shops() -> None:
    with pytest.raises(InputError, match=r"no shop 'atlantis'.*oslo"):
        load("atlantis")


async def test_the_right_call_passes_however_its_json_is_written() -> None:
    task = load("lima").tasks[0]
    reply = json.dumps(json.loads(task.answer), indent=4, sort_keys=True)
    assert (await Desk().verify(task, trace(reply))).value == 1.0


def test_every_wrong_field_is_named() -> None:
    order = Order(tool="order", item="mug", color="blue", amount=3, city="Oslo", date=(3, 5), price=1250, rush=True)
    house = dict.fromkeys((c.about for c in CONVENTIONS), 1)
    found = faults(json.dumps(call(order, {})), call(order, house))
    assert found == [
        'sku: expected "blue-mug", got "mug-blue"',
        'amount: expected "003", got "3"',
        'city: unknown field, expected "town"',
        'town: expected "oslo", got "Oslo"',
        'date: expected "05.03.2026", got "2026-03-05"',
        'price: expected "1250", got "12.50"',
        'rush: expected "true", got "yes"',
    ]


def test_missing_and_surplus_fields_are_named() -> None:
    expected = {"name": "order", "arguments": {"sku": "mug-blue", "amount": "3"}}
    assert faults('{"name":"quote","arguments":{"sku":"mug-blue","size":"l"}}', expected) == [
        'name: expected "order", got "quote"',
        'amount: missing, expected "3"',
        "size: unknown field",
    ]


@given(st.text())
def test_whatever_is_no_call_gets_a_verdict_and_not_an_exception(reply: str) -> None:
    expected = {"name": "order", "arguments": {"sku": "mug-blue", "amount": "3"}}
    assert faults(reply, expected)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_any_json_gets_a_verdict(value: object) -> None:
    assert faults(json.dumps(value), {"name": "order", "arguments": {"sku": "mug-blue", "amount": "3"}})


def test_the_rules_of_a_house_name_every_convention_once() -> None:
    assert [rule.partition(":")[0] for rule in rules(SHOPS["oslo"])] == [c.about for c in CONVENTIONS]
