"""Notes of several steps: their plans are right, their splits are apart, and written calls can be read back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import PlanError, TaskError
from journeyman.core.task import Split
from journeyman.tasks import desk as papers
from journeyman.tasks.desk import TOOLS, carry_out, decompose, notes
from journeyman.tasks.desk.world import CITIES, COLORS, ITEMS, SHOPS, Order, call

ORDERS = st.builds(
    Order,
    tool=st.sampled_from(["order", "quote"]),
    item=st.sampled_from(list(ITEMS)),
    color=st.sampled_from(COLORS),
    amount=st.integers(1, 99),
    city=st.none() | st.sampled_from(list(CITIES)),
    date=st.none() | st.tuples(st.integers(1, 12), st.integers(1, 28)),
    price=st.none() | st.integers(1, 9999),
    rush=st.none() | st.booleans(),
)


@pytest.mark.parametrize("split", Split)
def test_the_rules_find_the_plan_that_each_note_was_made_by(split: Split) -> None:
    for note in notes(split, 150):
        assert decompose(note.text) == note.plan


def test_no_note_skeleton_or_customers_sentence_stands_in_two_splits() -> None:
    seen: dict[str, Split] = {}
    for split in Split:
        for note in notes(split, 200):
            sentences = [step.text for step in note.plan.subtasks if not step.tool and not step.after]
            for text in (note.text, f"skeleton {note.skeleton}", *sentences):
                assert seen.setdefault(text, split) is split


def test_the_same_seed_gives_the_same_notes_and_a_larger_number_begins_with_them() -> None:
    assert notes(Split.TRAIN, 30)[:10] == notes(Split.TRAIN, 10)
    assert notes(Split.TRAIN, 10, seed=1) != notes(Split.TRAIN, 10)


def test_notes_differ_in_shape_and_most_are_no_chains() -> None:
    plans = [note.plan for note in notes(Split.TRAIN, 200)]
    assert len({plan.adjacency for plan in plans}) > 40
    assert sum(plan.is_chain for plan in plans) < 40
    assert {step.tool for plan in plans for step in plan.subtasks} == {"", *TOOLS}
    assert {step.type for plan in plans for step in plan.subtasks} == {*SHOPS, *TOOLS}


def test_every_step_of_a_note_has_something_that_is_right() -> None:
    for note in notes(Split.VALIDATION, 100):
        assert set(note.expected) == set(note.plan.by_id)
        for step in note.plan.subtasks:
            if step.tool:
                given = [(note.plan.by_id[id].gives[0], note.expected[id]) for id in step.after]
                assert carry_out(step.tool, given) == note.expected[step.id]


def test_a_note_that_somebody_types_is_understood_in_small_letters_and_with_semicolons() -> None:
    plan = decompose("for oslo: we need 4 green bowls to lima; for rome: please quote 9 red trays; then fill in the sheet")
    assert [step.text for step in plan.subtasks[:2]] == ["We need 4 green bowls to Lima.", "Please quote 9 red trays."]
    assert plan.types == ("oslo", "rome", "sheet")
    assert plan.by_id["sheet1"].after == ("call1", "call2")


def test_what_is_passed_on_needs_the_call_before_it() -> None:
    plan = decompose("For Oslo: Send two red mugs. Pass it on to Rome. Write a receipt for everything.")
    assert plan.types == ("oslo", "read", "rome", "sheet", "total", "receipt")
    assert plan.by_id["call2"].after == ("read1",)
    assert plan.by_id["receipt1"].after == ("sheet1", "total1")


def test_a_receipt_does_nothing_twice() -> None:
    plan = decompose("Oslo: Send two red mugs. What is the total? And a receipt.")
    assert sorted(plan.types) == ["oslo", "receipt", "sheet", "total"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Summarise these reports.", "no shop is named"),
        ("Oslo: Send two red mugs. Draw the trend.", "does not know what to do with 'Draw the trend.'"),
        ("Write a receipt for everything.", "needs calls"),
        ("Pass it on to Rome.", "nothing was written yet"),
        ("Oslo: Send two red mugs. A sheet for Rome, please.", "by rome"),
    ],
)
def test_what_the_desk_cannot_do_is_said_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        decompose(text)


@given(order=ORDERS, shop=st.sampled_from(list(SHOPS)))
def test_a_call_is_read_back_whichever_house_wrote_it(order: Order, shop: str) -> None:
    written = papers.parse(json.dumps(call(order, SHOPS[shop])), shop)
    assert papers.read(written) == order


@given(order=ORDERS, other=ORDERS, shop=st.sampled_from(list(SHOPS)))
def test_a_sentence_bears_out_its_own_call_and_no_other_item_amount_or_date(order: Order, other: Order, shop: str) -> None:
    sentence = papers.plain(order)
    assert papers.unsaid(sentence, {"shop": shop, **call(order, SHOPS[shop])}) == ()
    strange = papers.unsaid(sentence, {"shop": shop, **call(other, SHOPS[shop])})
    assert ("sku" in strange) == ((order.item, order.color) != (other.item, other.color))
    assert ("name" in strange) == (order.tool != other.tool)
    if order.date is None and other.date is not None:
        assert "date" in strange


@pytest.mark.parametrize("reply", ["", "three mugs", "[]", '{"name": "order"}', '{"name": 1, "arguments": {}}'])
def test_what_is_no_call_is_told_apart_from_a_wrong_one(reply: str) -> None:
    with pytest.raises(TaskError, match="oslo wrote no"):
        papers.parse(reply, "oslo")


def test_a_field_that_no_house_writes_cannot_be_read() -> None:
    with pytest.raises(TaskError, match="cannot be read"):
        papers.read({"shop": "oslo", "name": "order", "arguments": {"sku": "mug-blue", "amount": "2", "date": "tomorrow"}})


def test_what_is_due_is_the_earliest_and_what_has_no_date_is_never_due() -> None:
    def written(date: tuple[int, int] | None) -> papers.Call:
        order = Order(tool="order", item="mug", color="blue", amount=2, date=date, price=150)
        return {"shop": "cairo", **call(order, SHOPS["cairo"])}

    calls = [written((5, 3)), written(None), written((2, 28))]
    assert papers.due(calls) == "cairo on 2026-02-28"
    assert papers.due([written(None)]) == "none"
    assert papers.total(calls) == "9.00 EUR"
