"""An agent is recorded as it worked, and never notices."""

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest

from journeyman.core.trace import Message, ToolCall, Trace
from journeyman.serving.ingest.hooks import traced_by
from journeyman.tracing.collector import Collector, carried
from tests.tracing.trees import drawn, only


class Shelf:
    def __init__(self) -> None:
        self.kept: dict[str, Trace] = {}
        self.labels: list[tuple[str, bool | None, str]] = []

    def add(self, traces: Iterable[Trace]) -> None:
        self.kept.update((trace.id, trace) for trace in traces)

    def label(self, trace_id: str, good: bool | None, *, who: str, at: datetime) -> None:
        self.labels.append((trace_id, good, who))


class Gone:
    def add(self, traces: Iterable[Trace]) -> None:
        raise OSError("the disk is full")

    def label(self, trace_id: str, good: bool | None, *, who: str, at: datetime) -> None:
        raise OSError("the disk is full")


@pytest.fixture
def collector() -> Collector:
    return Collector()


def test_explicit_steps_make_the_tree_that_the_code_shows(collector: Collector) -> None:
    with collector.trace("Where is 7?", agent="desk", task_id="t1", session="s") as trace:
        trace.reasoning("It asks for an order.")
        trace.model_call(model="small", prompt="Where is 7?", reply="I look.", input_tokens=4, output_tokens=2)
        with trace.tool("find", {"order": 7}) as call:
            trace.model_call(model="ranker", reply="1")
            call.result = {"city": "Oslo"}
        with trace.agent("writer", "say it") as writer:
            writer.model_call(model="small", messages=[{"role": "user", "content": "say it"}], reply="It is in Oslo.")
            trace.tool_call("spell", {"text": "Oslo"}, "ok", seconds=0.1)
            writer.output = "It is in Oslo."
        trace.output = "It is in Oslo."
    found = only(collector)
    assert drawn(found) == ["It asks for an order.", "small", "find", "  ranker", "writer", "  small", "  spell"]
    assert (found.input, found.output, found.agent, found.task_id, found.session) == (
        "Where is 7?",
        "It is in Oslo.",
        "desk",
        "t1",
        "s",
    )
    assert (found.source, found.error) == ("hook", None)
    tool, spelled = found.tool_calls
    assert (tool.arguments, tool.result, tool.ok) == ('{"order": 7}', '{"city": "Oslo"}', True)
    assert (tool.seconds or 0) > 0
    assert spelled.seconds == 0.1
    assert found.calls[0].input_tokens == 4
    assert found.calls[2].messages == (Message(role="user", text="say it"),)
    assert found.seconds is not None


def test_threads_find_their_place_when_the_function_is_carried(collector: Collector) -> None:
    def work(name: str, steps: int) -> None:
        with collector.trace(name) as trace:
            for number in range(steps):
                trace.tool_call("look", {"n": number}, name)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: work(f"thread {number}", 50), range(16)))
    assert len(collector.traces) == 16
    assert all({call.result for call in trace.tool_calls} == {trace.input} for trace in collector.traces)
    with collector.trace("outer") as outer, outer.agent("below") as below:
        thread = threading.Thread(target=carried(below.tool_call), args=("look",))
        other = threading.Thread(target=carried(work), args=("inner", 1))
        for each in (thread, other):
            each.start()
            each.join(10)
    assert drawn(collector.traces[-1]) == ["below", "  look", "  agent", "    look"]


class Hostile:
    """Does what it can to break who looks at it."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no")


def test_nothing_that_is_recorded_can_break_the_agent() -> None:
    collector = Collector(Gone())
    ring: list[Any] = []
    ring.append(ring)

    @traced_by(collector=collector)
    def odd(*values: Any) -> Any:
        return values[0]

    for value in (Hostile(), ring, {1: {2}}, b"\xff", float("nan"), "\ud800"):
        assert odd(value, value) is value
    assert collector.get_statistics()["total"] == 6
    assert collector.get_statistics()["lost"] == 6
    assert collector.flush()


def test_a_text_without_end_is_cut(collector: Collector) -> None:
    with collector.trace("x" * 300_000):
        pass
    assert (only(collector).input or "").endswith("… [100000 characters more]")


def test_what_comes_after_the_answer_belongs_to_the_trace() -> None:
    shelf = Shelf()
    collector = Collector(shelf)
    with collector.trace("hi") as trace:
        late = trace.tool("slow")
    late.result = "done"
    late.end()
    trace.tool_call("later")
    found = shelf.kept[trace.id]
    assert [(call.tool, call.result) for call in found.tool_calls] == [("slow", "done"), ("later", "")]
    assert collector.traces == (found,)


def test_traces_are_labelled_and_counted() -> None:
    shelf = Shelf()
    collector = Collector(shelf, agent="desk")
    for number in range(4):
        with collector.trace(str(number)) as trace:
            trace.model_call(model="m", reply="r")
            if number == 3:
                trace.tool_call("look", ok=False)
    *rest, second, first = collector.get_unlabeled_traces()
    assert [trace.input for trace in collector.get_unlabeled_traces(2)] == ["3", "2"]
    collector.label_trace(first.id, True)
    collector.label_trace(second.id, False, who="ada")
    assert collector.get_unlabeled_traces() == rest
    assert shelf.labels == [(first.id, True, "user"), (second.id, False, "ada")]
    assert collector.get_statistics() == {
        "total": 4,
        "labeled": 2,
        "unlabeled": 2,
        "good": 1,
        "bad": 1,
        "failed": 0,
        "model_calls": 4,
        "tool_calls": 1,
        "lost": 0,
    }
    with pytest.raises(KeyError, match="nope"):
        Collector().label_trace("nope", True)


def test_memory_holds_only_the_latest() -> None:
    collector = Collector(kept=3)
    for number in range(5):
        with collector.trace(str(number)):
            pass
    assert [trace.input for trace in collector.traces] == ["2", "3", "4"]


def test_a_tool_call_knows_when_it_was_not_answered(collector: Collector) -> None:
    with collector.trace() as trace, trace.tool("look") as call:
        assert call.result is None
    (step,) = only(collector).steps
    assert isinstance(step, ToolCall)
    assert step.result == ""


def test_what_a_trace_cannot_be_told_is_refused_when_it_begins(collector: Collector) -> None:
    with pytest.raises(TypeError, match="no 'colour'; it can be told candidate_id, "):
        collector.trace("hi", colour="red")
