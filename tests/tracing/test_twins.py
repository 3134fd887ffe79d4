"""Who is at the same request, and who is learned from when the others are examined: nothing of one is on both sides."""

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import bench_twins
from journeyman.core.task import Split
from journeyman.core.trace import Message, ModelCall, ToolCall, Trace
from journeyman.tasks.desk import load
from journeyman.tasks.desk.world import SHOPS
from journeyman.tracing import twins
from journeyman.tracing.base import NO_TIME
from journeyman.tracing.evidence import AttemptEvidence, evidence_of
from journeyman.tracing.twins import TwinSplit, request_of, split_by_time, twin_groups
from tests.support.examples import examples

DATA = Path(os.environ.get("JOURNEYMAN_DATA", "nowhere"))
needs_data = pytest.mark.skipif(not DATA.exists(), reason="set JOURNEYMAN_DATA to the folder of the data sets")
AT = datetime(2026, 1, 2, tzinfo=UTC)
Store = Sequence[AttemptEvidence]


def attempt(
    *said: str,
    id: str = "t",
    at: int | None = 0,
    session: str | None = None,
    customer: str | None = None,
    calls: Sequence[str] = (),
) -> AttemptEvidence:
    """One in which the customer said these, one after the other, and the agent then called `order` with these arguments."""
    turns = [ModelCall(model="m", prompt="", reply="", messages=(Message(role="user", text=text),)) for text in said]
    called = [ToolCall(tool="order", arguments=arguments, result="") for arguments in calls]
    trace = Trace(
        id=id,
        task_id=id,
        candidate_id="base",
        started_at=NO_TIME if at is None else AT + timedelta(minutes=at),
        session=session,
        steps=(*turns, *called),
        raw={"principal": customer} if customer else {},
    )
    return evidence_of(trace)


WORDS = [
    "blue", "red", "green", "mug", "lamp", "chair", "table", "carpet", "candle", "mirror", "shelf", "basket", "ship",
    "send", "cancel", "return", "change", "book", "pack", "wrap", "gift", "early", "late", "oslo", "lima", "cairo", "rome",
    "quito", "delhi", "card", "cash", "invoice", "size", "small", "large", "broken", "missing", "wrong", "colour", "price",
    "urgent", "please", "today",
]  # fmt: skip


def requests(chance: random.Random, count: int) -> list[str]:
    return [" ".join([f"I want {number}", *chance.sample(WORDS, 7)]) for number in range(count)]


def variant(text: str, chance: random.Random) -> str:
    """The same but for case, spaces and numbers."""
    cases: list[Callable[[str], str]] = [str.upper, str.lower, str.title, str.strip]
    word = chance.choice(cases)
    spaces = chance.choice([" ", "  ", "\n", "\t "])
    return spaces.join(str(chance.randrange(10**6)) if part.isdigit() else word(part) for part in text.split())


def store(seed: int) -> tuple[Store, Sequence[int]]:
    """Up to 100 attempts of a few customers at a few requests, and which request each is at."""
    chance = random.Random(seed)
    asked = requests(chance, chance.choice([3, 20, 100]))
    people, sessions = chance.choice([3, 25, 200]), chance.choice([5, 300])
    which = [chance.randrange(len(asked)) for _ in range(chance.randint(2, 100))]
    found = [
        attempt(
            variant(asked[request], chance),
            id=f"t{number}",
            at=None if chance.random() < 0.1 else chance.randrange(300),
            session=f"s{chance.randrange(sessions)}" if chance.random() < 0.5 else None,
            customer=f"c{chance.randrange(people)}" if chance.random() < 0.5 else None,
            calls=[json.dumps({"sku": chance.choice(WORDS), "amount": chance.randrange(99)})] * chance.randrange(3),
        )
        for number, request in enumerate(which)
    ]
    return found, which


def tags(attempts: Store, groups: Sequence[int], at: int) -> Iterator[tuple[str, object]]:
    """What may not be on both sides."""
    yield "group", groups[at]
    if attempts[at].trace.session:
        yield "session", attempts[at].trace.session
    if attempts[at].principal_known:
        yield "customer", attempts[at].principal


def assert_apart(attempts: Store, split: TwinSplit) -> None:
    learned, examined = (
        {tag for at in side for tag in tags(attempts, split.groups, at)} for side in (split.learn, split.examine)
    )
    assert not learned & examined
    assert not set(split.learn) & set(split.examine)
    assert split.dropped == len(attempts) - len(split.learn) - len(split.examine)
    # Those without a time come first, in the order in which they are given.
    when = [(attempt.trace.started_at, at if attempt.trace.started_at == NO_TIME else 0) for at, attempt in enumerate(attempts)]
    assert not split.examine or max(when[at] for at in split.learn) < min(when[at] for at in split.examine)


def assert_named_alike(attempts: Store, split: TwinSplit) -> None:
    """Examined attempts that hang together have one name in the interval."""
    named: dict[tuple[str, object], set[str]] = {}
    for at, name in zip(split.examine, split.clusters, strict=True):
        for tag in tags(attempts, split.groups, at):
            named.setdefault(tag, set()).add(name)
    assert all(len(names) == 1 for names in named.values())


def partition(groups: Sequence[int]) -> set[frozenset[int]]:
    return {frozenset(at for at, group in enumerate(groups) if group == each) for each in groups}


@examples(2)
@given(st.integers(0, 10**9))
def test_no_twin_session_or_customer_is_on_both_sides_and_the_examined_come_later(seed: int) -> None:
    attempts, which = store(seed)
    split = split_by_time(attempts)
    assert_apart(attempts, split)
    assert not {which[at] for at in split.learn} & {which[at] for at in split.examine}
    assert len(split.clusters) == len(split.nearest) == len(split.far) == len(split.examine)
    assert max(split.nearest, default=0) < 0.4
    if not split.crossed:
        assert_named_alike(attempts, split)
    assert bool(split.reason) == (not split.examine)


@examples(0.5)
@given(st.integers(0, 10**9))
def test_requests_that_differ_in_case_spaces_and_numbers_are_one_group(seed: int) -> None:
    attempts, which = store(seed)
    groups = twin_groups(attempts)
    assert len(set(zip(which, groups, strict=True))) == len(set(which))


@examples(0.5)
@given(st.integers(0, 10**9))
def test_the_order_of_attempts_changes_neither_groups_nor_split(seed: int) -> None:
    found, _ = store(seed)
    attempts = [each for each in found if each.trace.started_at != NO_TIME]
    order = random.Random(seed).sample(range(len(attempts)), len(attempts))
    shuffled = [attempts[at] for at in order]
    groups = partition(twin_groups(attempts))
    assert {frozenset(order[at] for at in each) for each in partition(twin_groups(shuffled))} == groups
    one, other = split_by_time(attempts), split_by_time(shuffled)
    assert {order[at] for at in other.learn} == set(one.learn)
    examined = {order[at]: told for at, *told in zip(other.examine, other.clusters, other.nearest, other.far, strict=True)}
    assert examined == {at: told for at, *told in zip(one.examine, one.clusters, one.nearest, one.far, strict=True)}


@examples(0.5)
@given(st.lists(st.lists(st.text(max_size=40), max_size=3), max_size=5))
def test_whatever_customers_said_each_attempt_has_a_group_and_equal_ones_the_same(said: list[list[str]]) -> None:
    attempts = [attempt(*texts, id=f"t{at}", at=at, calls=texts) for at, texts in enumerate(said)]
    groups = twin_groups([*attempts, *attempts])
    assert groups[: len(said)] == groups[len(said) :]
    assert_apart(attempts, split_by_time(attempts))


def test_scripts_and_dialects_of_numbers_do_not_part_twins() -> None:
    said = ["Please order 1,200.50 of the blue mugs", "please  ORDER 35 of the blue mugs.", "Please order ٣ of the blue mugs"]
    assert len(set(twin_groups([attempt(text) for text in said]))) == 1
    assert len(set(twin_groups([attempt("请给我订购蓝色的杯子 3 个"), attempt("请给我订购蓝色的杯子12个")]))) == 1


def test_examples_that_stand_before_every_request_do_not_make_twins_of_all() -> None:
    def told(last: str) -> AttemptEvidence:
        messages = [Message(role="user", text="Example: two green chairs to Rome, please"), Message(role="user", text=last)]
        asked = attempt("x").trace
        return evidence_of(replace(asked, steps=(ModelCall(model="m", prompt="", reply="", messages=tuple(messages)),)))

    one, other = told("Where is my order of last week"), told("I would like to return a broken lamp")
    assert twin_groups([one, other]) == [0, 1]


def test_a_greeting_is_no_request_and_what_is_said_next_belongs_to_it() -> None:
    one, other = attempt("Hi!", "where is my parcel"), attempt("Hi!", "cancel the blue chair")
    assert twin_groups([one, other, attempt("hi", "Where is my parcel?")]) == [0, 1, 0]


def test_attempts_of_which_no_words_were_kept_are_told_apart_by_their_calls() -> None:
    one, other = attempt(calls=['{"sku": "mug"}']), attempt(calls=['{"sku": "chair"}'])
    assert request_of(one) != request_of(other)
    assert twin_groups([one, other, one]) == [0, 1, 0]


def orders(shop: str, customers: int | None, *, count: int = 300) -> list[AttemptEvidence]:
    """So many orders of a shop, a minute apart, its customers by turns."""
    tasks = load(shop, sizes={Split.TRAIN: count}).split(Split.TRAIN)
    return [
        attempt(
            task.question,
            id=f"t{number}",
            at=number,
            session=f"s{number}",
            customer=f"c{number % customers}" if customers else None,
            calls=[json.dumps(json.loads(task.answer)["arguments"])],
        )
        for number, task in enumerate(tasks)
    ]


@pytest.mark.parametrize("shop", sorted(SHOPS))
def test_of_customers_who_all_recur_enough_is_left_to_learn_from_and_to_examine(shop: str) -> None:
    attempts = orders(shop, 25)
    split = split_by_time(attempts)
    assert_apart(attempts, split)
    assert split.crossed
    assert split.examined_groups >= 30
    assert len(split.learn) >= 60
    learned = {attempts[at].principal for at in split.learn}
    assert len(learned) >= 12


def test_where_every_customer_comes_once_the_latest_are_examined() -> None:
    chance = random.Random(1)
    asked = [" ".join(chance.choice(WORDS) + chance.choice(WORDS) for _ in range(8)) for _ in range(300)]
    attempts = [attempt(text, id=text, at=at, session=text, customer=text) for at, text in enumerate(asked)]
    split = split_by_time(attempts)
    assert_apart(attempts, split)
    assert_named_alike(attempts, split)
    assert (split.held_out, split.crossed) == (0.3, False)
    assert split.examined_groups >= 30
    assert max(split.nearest) < 0.4
    assert 0.4 <= sum(split.far) / len(split.far) <= 0.6


def test_attempts_without_a_time_count_in_the_order_in_which_they_came() -> None:
    timed = orders("oslo", None)
    untimed = [evidence_of(replace(each.trace, started_at=NO_TIME)) for each in timed]
    assert split_by_time(untimed) == split_by_time(timed)


@pytest.mark.parametrize(
    ("attempts", "said"),
    [
        (orders("oslo", 1, count=40), "40 of 40 attempts hang together by session or customer"),
        (
            [attempt(f"Order {at} of the blue mugs", id=str(at), at=at) for at in range(40)],
            "40 of 40 attempts ask for the same",
        ),
        (
            # Each session is of two customers, and each customer in two sessions: none of either is in all.
            [
                attempt(text, id=text, at=at, session=f"s{at // 2}", customer=f"u{(at + 1) // 2}")
                for at, text in enumerate(requests(random.Random(1), 20))
            ],
            "20 of 20 attempts hang together by session or customer",
        ),
        ([], "there is no second one"),
        ([attempt("Order 3 of the blue mugs")], "there is no second one"),
        ([attempt(text, id=text) for text in requests(random.Random(1), 9)], "no attempt is later than another one"),
    ],
)
def test_where_one_holds_nearly_all_nothing_is_examined_and_a_sentence_says_why(attempts: Store, said: str) -> None:
    split = split_by_time(attempts)
    assert said in split.reason
    assert split.leak == f"nothing is examined: {split.reason}"
    assert split.learn == tuple(range(len(attempts)))
    assert not split.examine


def test_nobody_knows_a_customer_who_is_not_named_so_only_the_session_connects() -> None:
    attempts = [evidence_of(replace(each.trace, session=None)) for each in orders("oslo", None)]
    assert not any(each.principal_known for each in attempts)
    assert len(set(split_by_time(attempts).clusters)) > 30


def test_what_remains_is_said_and_never_that_nothing_does() -> None:
    split = split_by_time(orders("oslo", None))
    assert "no exact or near twin stands on both sides" in split.leak
    assert "may remain" in split.leak
    assert "no leak" not in split.leak


def test_many_requests_are_grouped_along_shared_terms_as_if_all_pairs_were_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = orders("lima", None)
    whole = twin_groups(attempts)
    monkeypatch.setattr(twins, "_WHOLE", 0)
    groups = twin_groups(attempts)
    assert agreement(whole, groups) >= 0.95
    assert partition(twin_groups(attempts[::-1])[::-1]) == partition(groups)


def agreement(one: Sequence[int], other: Sequence[int]) -> float:
    """Of the pairs that one of two groupings has, the share that both have."""
    both, first, second = (bench_twins.pairs(Counter(labels)) for labels in (zip(one, other, strict=True), one, other))
    return both / (first + second - both)


@needs_data
def test_paraphrased_twins_of_tau_benchs_airline_are_found_and_what_leaks_is_bounded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = bench_twins.of_recorded("tau-bench airline", bench_twins.tau_airline(DATA))
    with capsys.disabled():
        print(f"\n{row}")
    assert row["pair_recall"] >= 0.80
    assert row["pair_precision"] >= 0.65
    assert row["largest"] <= 10
    assert row["random_leak"] <= 0.25
    assert row["leak"] <= 0.25


@pytest.mark.slow
@needs_data
def test_the_other_airlines_figures_are_those_of_comparing_every_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = bench_twins.tau2_airline(DATA)
    whole = twin_groups(attempts)
    found = bench_twins.grouped(whole, [attempt.trace.task_id for attempt in attempts])
    assert found["pair_recall"] >= 0.63
    assert found["pair_precision"] >= 0.50
    monkeypatch.setattr(twins, "_WHOLE", 0)
    assert agreement(whole, twin_groups(attempts)) >= 0.95
