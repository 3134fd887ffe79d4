"""The plan of a trace as a graph: nothing overlaps, edges go to the right, and no trace can break the page."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core import plan as plan_json
from journeyman.core.plan import Plan, Subtask
from journeyman.core.trace import AgentCall, ModelCall, Step, Trace
from journeyman.serving.dashboard.layout import HEIGHT, MOST, WIDTH, graph
from journeyman.stores.traces.base import TraceStore
from tests.support.pages import Visitor

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def trace(steps: Sequence[Step] = (), **raw: Any) -> Trace:
    return Trace(id="t", task_id="t", candidate_id="base", started_at=AT, steps=tuple(steps), input="do it all", raw=raw)


def plan(*after: set[int]) -> Plan:
    subtasks = [
        Subtask(id=f"s{at}", text=f"do {at}", worker="w", after=tuple(f"s{n}" for n in sorted(each) if n < at))
        for at, each in enumerate(after)
    ]
    return Plan(instruction="do it all", subtasks=tuple(subtasks))


def done(id: str, state: str = "done", **more: Any) -> AgentCall:
    return AgentCall(agent="m", id=id, seconds=1.5, raw={"subtask": id, "state": state, "after": [], "cost": 0.25}, **more)


@given(after=st.lists(st.sets(st.integers(0, 14), max_size=4), min_size=1, max_size=15))
def test_boxes_do_not_overlap_and_edges_go_to_the_right(after: list[set[int]]) -> None:
    made = plan(*after)
    found = graph(trace(plan=plan_json.written(made)))
    assert found is not None
    spots = [(box.x, box.y) for box in found.boxes]
    for at, (x, y) in enumerate(spots):
        assert 0 <= x <= found.width - WIDTH
        assert 0 <= y <= found.height - HEIGHT
        assert all(abs(x - x2) >= WIDTH or abs(y - y2) >= HEIGHT for x2, y2 in spots[at + 1 :])
    assert len(found.edges) == len(made.edges)
    for path, _ in found.edges:
        rights = [float(x) for x in re.findall(r"[MH](\S+?)(?: |$|C)", path)]
        assert rights == sorted(rights)


def test_a_box_says_who_did_it_for_how_much_and_leads_to_its_step() -> None:
    steps = [done("s0"), done("s1", "failed", error="no luck"), done("s2", "skipped")]
    found = graph(trace(steps, plan=plan_json.written(plan(set(), {0}, {1}))))
    assert found is not None
    first, second, third = found.boxes
    assert (first.below, first.state, first.mark, first.step) == ("m · 1.5 s · $0.25", "done", "✓", 1)
    assert (second.state, second.mark, "no luck" in second.says) == ("failed", "✗", True)
    assert (third.state, third.below) == ("skipped", "m")
    assert [used for _, used in found.edges] == [True, False]
    assert found.says == "3 subtasks on 3 levels: 1 done, 1 failed, 1 skipped"


def test_edges_are_taken_from_the_steps_where_the_trace_holds_no_plan() -> None:
    steps = [done("a"), AgentCall(agent="m", id="b", raw={"subtask": "b", "state": "done", "after": ["a"]})]
    found = graph(trace(steps))
    assert found is not None
    assert (len(found.boxes), len(found.edges)) == (2, 1)


def test_where_no_state_is_told_an_error_or_an_output_tells_it() -> None:
    calls = [
        ModelCall(model="m", prompt="", reply=reply, error=error, raw={"subtask": f"s{at}"})
        for at, (reply, error) in enumerate([("yes", None), ("", "no luck"), ("", None)])
    ]
    found = graph(trace(calls, plan=plan_json.written(plan(set(), set(), set()))))
    assert found is not None
    assert [box.state for box in found.boxes] == ["done", "failed", "planned"]
    assert found.says == "3 subtasks on 1 level: 1 done, 1 failed, 1 planned"


def test_what_was_not_carried_out_yet_is_only_planned() -> None:
    found = graph(trace(plan=plan_json.written(plan(set()))))
    assert found is not None
    assert (found.boxes[0].state, found.boxes[0].below) == ("planned", "w")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"instruction": "x", "subtasks": []},
        {"instruction": "x", "subtasks": "abc"},
        {"instruction": "x", "subtasks": [{"id": "a", "text": "", "after": ["a"]}]},
        plan_json.written(plan(*[set()] * (MOST + 1))),
        # So many long edges that their picture would be larger than any page.
        plan_json.written(plan(*[set(range(at)) for at in range(60)])),
        [],
        None,
    ],
    ids=["empty", "no subtasks", "no list", "circle", "too many", "too many edges", "list", "none"],
)
def test_what_is_no_plan_or_too_large_is_not_drawn(given: Any) -> None:
    assert graph(trace([ModelCall(model="m", prompt="", reply="", raw={"subtask": 3})], plan=given)) is None


def test_the_page_of_a_trace_shows_its_plan_and_escapes_it(pages: Visitor, store: TraceStore) -> None:
    evil = Plan(instruction="do it all", subtasks=(Subtask(id='"><script>', text="<b>bold</b> & more", worker="<i>"),))
    store.add([trace([done('"><script>')], plan=plan_json.written(evil))])
    text = pages.read("/traces/t")
    section = text[text.index('<section class="plan"') : text.index('<div class="reader">')]
    assert "<b>" not in section
    assert "<script>" not in section
    assert "&lt;b&gt;bold&lt;/b&gt; &amp; more" in section
    assert section.count('href="#s1"') == 1
    assert 'id="s1"' in text


def test_a_trace_without_a_plan_shows_none(pages: Visitor, store: TraceStore) -> None:
    store.add([trace([ModelCall(model="m", prompt="p", reply="r")], other=json.dumps({}))])
    assert '<section class="plan"' not in pages.read("/traces/t")
