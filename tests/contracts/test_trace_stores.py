"""What every trace store promises of what it is given, whatever it keeps things in."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import StoreError
from journeyman.core.reward import Reward
from journeyman.core.trace import AgentCall, Message, ModelCall, Reasoning, Step, ToolCall, Trace, spoken
from journeyman.stores.traces.base import AUTO, RECORDER, Query, TraceStore
from tests.support.examples import examples
from tests.support.trace_stores import KINDS, opened

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TraceStore]:
    with opened(request.param, tmp_path) as store:
        yield store


def call(reply: str = "yes", **more: Any) -> ModelCall:
    messages = (Message(role="system", text="be brief"), Message(role="user", text="is it so?"))
    return ModelCall(model="m", prompt=spoken(messages), reply=reply, messages=messages, started_at=NOON, **more)


def make(id: str = "t", *steps: Step, **more: Any) -> Trace:
    return Trace(id=id, task_id="q", candidate_id="base", started_at=NOON, steps=steps or (call(),), **more)


def listed(store: TraceStore, query: Query = Query()) -> list[str]:  # noqa: B008 - frozen
    return sorted(line.id for line in store.page(query).lines)


def test_a_trace_comes_back_as_it_was(store: TraceStore) -> None:
    steps = (
        call(id="c1", input_tokens=3, cost=0.5, shown=("b1",), cited=("b1",), raw={"deep": [{"n": None, "f": 1.5}]}),
        call(id="c2", continues="c1", error="ModelBusy: later", response_id="r"),
        ToolCall(tool="search", arguments="{}", result="x" * 5000, ok=False, error="none", parent="c1", seconds=0.25),
        Reasoning(text="let me think"),
        AgentCall(agent="helper", input="go", output="gone", id="a"),
    )
    trace = make(
        "t",
        *steps,
        error="TimeoutError: 30 s",
        other_candidates=("p", "a"),
        session="s",
        agent="bot",
        ended_at=NOON + HOUR,
        input="in",
        output="out" * 1000,
        tasks_created=("x",),
        tasks_failed=("x",),
        label=False,
        rewards=(Reward(name="exact", value=None, evidence="who knows", weight=2.0),),
        source="test",
        raw={"k": "v" * 3000},
    )
    assert store.add([trace]) == 1
    assert store.get("t") == trace
    assert store.get("other") is None


TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=20),
    st.sampled_from(["", "\x00", "\ud800", "\udfff\ud800", "\x1a", "\x1a\x1ax", "\u2028", "long " * 205, "\x1a" + "y" * 1023]),
)
NUMBERS = st.one_of(st.none(), st.integers(0, 2**40))
FLOATS = st.one_of(st.none(), st.floats(allow_nan=False))
TIMES = st.datetimes(
    min_value=datetime(1990, 1, 1), max_value=datetime(2100, 1, 1), timezones=st.sampled_from([UTC, timezone(HOUR * 5.5)])
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=2)),
    max_leaves=4,
)
RAW = st.dictionaries(TEXTS, JSON, max_size=2)
MAYBE = st.one_of(st.none(), TEXTS)
MESSAGES = st.lists(st.builds(Message, role=TEXTS, text=TEXTS, answers=MAYBE), max_size=3).map(tuple)
COMMON = {"started_at": st.one_of(st.none(), TIMES), "seconds": FLOATS, "id": TEXTS, "parent": MAYBE, "raw": RAW}
CALLS = st.builds(
    ModelCall,
    model=TEXTS,
    prompt=TEXTS,
    reply=TEXTS,
    messages=MESSAGES,
    input_tokens=NUMBERS,
    output_tokens=NUMBERS,
    cost=FLOATS,
    response_id=MAYBE,
    error=MAYBE,
    shown=st.lists(TEXTS, max_size=2).map(tuple),
    **COMMON,
)
TOLD = CALLS.map(lambda call: replace(call, prompt=spoken(call.messages)))
TOOLS = st.builds(ToolCall, tool=TEXTS, arguments=TEXTS, result=TEXTS, ok=st.booleans(), error=MAYBE, cost=FLOATS, **COMMON)
STEPS: st.SearchStrategy[Step] = st.one_of(
    CALLS,
    TOLD,
    TOOLS,
    st.builds(Reasoning, text=TEXTS, **COMMON),
    st.builds(AgentCall, agent=TEXTS, input=TEXTS, output=TEXTS, error=MAYBE, **COMMON),
)
REWARDS = st.builds(Reward, name=TEXTS, value=st.one_of(st.none(), st.floats(0, 1)), evidence=TEXTS, weight=st.floats(0.1, 9))
TRACES = st.builds(
    Trace,
    id=TEXTS,
    task_id=TEXTS,
    candidate_id=TEXTS,
    started_at=TIMES,
    steps=st.lists(STEPS, max_size=3).map(tuple),
    error=MAYBE,
    domain=TEXTS,
    other_candidates=st.lists(TEXTS, max_size=2).map(tuple),
    session=MAYBE,
    agent=MAYBE,
    ended_at=st.one_of(st.none(), TIMES),
    input=MAYBE,
    output=MAYBE,
    tasks_created=st.lists(TEXTS, max_size=2).map(tuple),
    label=st.one_of(st.none(), st.booleans()),
    rewards=st.lists(REWARDS, max_size=2).map(tuple),
    source=TEXTS,
    raw=RAW,
)


@examples(0.4, one_fixture=True)
@given(st.lists(TRACES, max_size=3, unique_by=lambda trace: trace.id))
def test_any_trace_comes_back_as_it_was_however_often_it_was_added_or_replaced(store: TraceStore, traces: list[Trace]) -> None:
    store.add(traces)
    assert store.add(traces) == 0
    for trace in traces:
        assert store.get(trace.id) == trace
    grown = [replace(trace, steps=(*trace.steps, Reasoning(text="more"))) for trace in traces]
    assert store.add(grown) == len(grown)
    assert [store.get(trace.id) for trace in grown] == grown
    shrunk = [replace(trace, steps=trace.steps[1:], error="cut") for trace in traces]
    store.add(shrunk)
    assert [store.get(trace.id) for trace in shrunk] == shrunk


def test_adding_twice_is_adding_once_and_tells_what_was_new(store: TraceStore) -> None:
    assert store.add([make("a"), make("b")]) == 2
    assert store.add([make("a"), make("b"), make("c")]) == 1
    assert store.add([make("c", call("no"))]) == 1
    assert store.add([]) == 0
    assert listed(store) == ["a", "b", "c"]


def test_of_one_id_in_a_batch_the_last_holds(store: TraceStore) -> None:
    assert store.add([make("a", call("first")), make("a", call("last"))]) == 1
    kept = store.get("a")
    assert kept is not None
    assert kept.reply == "last"


def test_a_batch_with_a_trace_that_cannot_be_kept_leaves_nothing(store: TraceStore) -> None:
    naive = replace(make("b"), started_at=datetime(2026, 3, 5))
    with pytest.raises(StoreError, match=r"the trace 'b' cannot be kept: the time .* has no zone"):
        store.add([make("a"), naive])
    with pytest.raises(StoreError, match="has no zone"):
        store.add([make("a"), make("b", replace(call(), started_at=datetime(2026, 3, 5)))])
    assert listed(store) == []


@pytest.mark.parametrize("more", [{"input_tokens": 2**70}, {"model": 7}, {"response_id": 7}])
def test_a_value_that_no_column_takes_is_told_and_leaves_nothing(store: TraceStore, more: dict[str, Any]) -> None:
    with pytest.raises(StoreError):
        store.add([make("a"), make("b", replace(call(), **more))])
    assert store.get("a") is None
    store.add([make("b")])
    with pytest.raises(StoreError):
        store.add([make("a"), make("b", replace(call(), **more))])
    assert (store.get("a"), store.get("b")) == (None, make("b"))


def test_what_a_recorder_left_in_raw_is_kept_as_json_would_have_it(store: TraceStore) -> None:
    odd: dict[Any, Any] = {"at": NOON, "path": Path("x"), 1: (1, 2), "set": {"b", "a"}, "half": {"\ud800": {2: "x"}}}
    store.add([make("a", call(raw=odd))])
    kept = store.get("a")
    assert kept is not None
    raw = kept.steps[0].raw
    assert (raw["path"], raw["1"], raw["set"], raw["half"]) == ("x", [1, 2], ["a", "b"], {"\ud800": {"2": "x"}})
    assert store.add([make("a", call(raw=odd))]) == 0


def test_a_long_text_is_found_again_in_every_trace_that_says_it(store: TraceStore) -> None:
    long = "the zebra " + "and so on " * 500
    store.add([make("a", call(long)), make("b", ToolCall(tool="t", arguments="", result=long))])
    store.add([make("c", call("nothing of it"))])
    assert listed(store, Query(text="zebra")) == ["a", "b"]
    store.add([make("a", call("short now"))])
    assert listed(store, Query(text="zebra")) == ["b"]
    assert listed(store, Query(text="short")) == ["a"]


def test_what_was_replaced_is_not_found_any_more(store: TraceStore) -> None:
    store.add([make("a", call("giraffe"), call("okapi"))])
    store.add([make("a", call("giraffe"), call("tapir"))])
    found = {word: listed(store, Query(text=word)) for word in ("giraffe", "okapi", "tapir")}
    assert found == {"giraffe": ["a"], "okapi": [], "tapir": ["a"]}


def test_labels_and_rewards_that_were_given_here_outlive_a_replacement(store: TraceStore) -> None:
    store.add([make("a", rewards=(Reward(name="own", value=0.0), Reward(name="both", value=0.0)))])
    store.label("a", True, who="ann", at=NOON)
    store.reward("a", [Reward(name="both", value=1.0), Reward(name="given", value=1.0)], by="test 1", at=NOON)
    store.add([make("a", call("again"), rewards=(Reward(name="own", value=1.0), Reward(name="both", value=0.5)))])
    kept = store.get("a")
    assert kept is not None
    assert kept.label is True
    assert {reward.name: reward.value for reward in kept.rewards} == {"own": 1.0, "both": 1.0, "given": 1.0}
    line = store.page(Query()).lines[0]
    assert (line.label, line.labelled_by, line.reward) == (True, "ann", 1.0)


def test_a_persons_word_goes_before_the_recorders_and_that_before_the_auto_labelers(store: TraceStore) -> None:
    def now() -> tuple[bool | None, str | None]:
        line = store.page(Query()).lines[0]
        assert store.line(line.id) == line
        return line.label, line.labelled_by

    store.add([make("a")])
    said = [now()]
    store.label("a", False, who=AUTO, at=NOON + 9 * HOUR, probability=0.9)
    said.append(now())
    store.add([make("a", label=True)])
    said.append(now())
    store.label("a", False, who="ann", at=NOON + 2 * HOUR)
    store.label("a", True, who="bob", at=NOON + HOUR)
    said.append(now())
    store.label("a", None, who="ann", at=NOON + 3 * HOUR)
    said.append(now())
    store.label("a", None, who="bob", at=NOON + 3 * HOUR)
    said.append(now())
    assert said == [(None, None), (False, AUTO), (True, RECORDER), (False, "ann"), (True, "bob"), (True, RECORDER)]


def test_the_same_word_said_again_is_one_word(store: TraceStore) -> None:
    store.add([make("a")])
    for good in (True, True, None, None):
        store.label("a", good, who="ann", at=NOON)
    for _ in range(2):
        store.reward("a", [Reward(name="r", value=None)], by="test 1", at=NOON)
    assert [label.good for label in store.labels("a")] == [True, None]
    assert len(store.rewards("a")) == 1


def test_nobody_can_speak_of_a_trace_that_is_not_there(store: TraceStore) -> None:
    with pytest.raises(StoreError, match="no trace 'ghost' is in the store"):
        store.label("ghost", True, who="ann", at=NOON)
    with pytest.raises(StoreError, match="no trace 'ghost'"):
        store.reward("ghost", [Reward(name="r", value=1.0)], by="test", at=NOON)
    store.add([make("a")])
    with pytest.raises(StoreError, match="has no zone"):
        store.label("a", True, who="ann", at=datetime(2026, 3, 5))


TWO = (call(response_id="r1"), call(response_id="r2"))


def test_of_two_reports_of_the_same_calls_the_one_with_fewer_steps_is_kept_but_not_listed(store: TraceStore) -> None:
    store.add([make("gateway", *TWO)])
    store.add([make("otlp", *TWO, ToolCall(tool="t", arguments="", result=""))])
    assert listed(store) == ["otlp"]
    assert store.count(Query()) == 1
    assert store.get("gateway") is not None


def test_a_part_of_a_conversation_is_not_listed_beside_the_whole_whichever_came_first(store: TraceStore) -> None:
    store.add([make("part", TWO[0])])
    store.add([make("whole", *TWO)])
    store.add([make("other part", TWO[1])])
    assert listed(store) == ["whole"]


def test_a_duplicate_that_grows_past_the_other_is_the_one_that_is_listed(store: TraceStore) -> None:
    store.add([make("a", *TWO), make("b", *TWO)])
    assert listed(store) == ["a"]
    store.add([make("b", *TWO, Reasoning(text="more"))])
    assert listed(store) == ["b"]
    store.add([make("b", call(response_id="r3"))])
    assert listed(store) == ["a", "b"]


def test_a_trace_with_steps_of_its_own_is_not_hidden_by_a_longer_conversation(store: TraceStore) -> None:
    tools = tuple(ToolCall(tool="t", arguments="", result="", id=str(n)) for n in range(3))
    store.add([make("whole", *TWO), make("part", TWO[0], *tools)])
    assert listed(store) == ["part", "whole"]


def test_two_chats_that_a_gateway_saw_at_the_same_time_are_two_though_their_server_gave_both_the_same_id(
    store: TraceStore,
) -> None:
    seen = [make(id, call(id, response_id="chatcmpl-7"), source="gateway") for id in ("a", "b")]
    store.add(seen[:1])
    store.add(seen[1:])
    assert listed(store) == ["a", "b"]
    store.add([make("otlp", call("a", response_id="chatcmpl-7"), Reasoning(text="more"), source="otlp")])
    assert listed(store) == ["a", "b", "otlp"]


def test_an_answer_that_is_played_back_at_another_time_is_another_trace(store: TraceStore) -> None:
    def during(id: str, begins: int, seconds: float | None) -> Trace:
        began = NOON + timedelta(seconds=begins)
        ended = None if seconds is None else began + timedelta(seconds=seconds)
        return replace(make(id, *TWO), started_at=began, ended_at=ended)

    store.add([during("first", 0, 2.0), during("by the gateway", 1, 1.5), during("again", 10, 2.0)])
    assert listed(store) == ["again", "first"]
    store.add([during("no end", 5, None)])
    assert listed(store) == ["again", "first"], "what may still go on may be the same"
    store.add([during("no end", 5, 1.0)])
    assert listed(store) == ["again", "first", "no end"]


def test_a_call_without_an_id_may_be_any_call(store: TraceStore) -> None:
    store.add([make("a", TWO[0], call()), make("b", *TWO), make("c"), make("d")])
    assert listed(store) == ["a", "b", "c", "d"]


def test_a_server_that_gives_every_answer_the_same_id_hides_no_traces(store: TraceStore) -> None:
    traces = [make(str(number), call(response_id="chatcmpl-0")) for number in range(12)]
    for trace in traces:
        store.add([trace])
    assert len(listed(store)) == 12
    store.add([replace(trace, error="seen again") for trace in traces])
    assert len(listed(store)) == 12


def test_labels_of_traces_that_several_judged_are_found_apart(store: TraceStore) -> None:
    store.add([make(f"t{n}") for n in range(3)])
    for minute, (id, who) in enumerate((("t0", "ana"), ("t0", "ben"), ("t1", "ana"), ("t1", "ana"), ("t2", "ben"))):
        store.label(id, True, who=who, at=NOON + timedelta(minutes=minute))
    assert [(each.trace_id, each.who) for each in store.labels(by_several=True)] == [("t0", "ana"), ("t0", "ben")]
    assert len(store.labels()) == 5
