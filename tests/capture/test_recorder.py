"""An agent is recorded as it worked, and never notices."""

import asyncio
import threading
import traceback
from collections.abc import AsyncIterator, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest

from journeyman.capture.collector import Collector
from journeyman.capture.hook import hook_into_agent, traced
from journeyman.capture.recorder import carried
from journeyman.errors import InputError
from journeyman.trace import AgentCall, Message, ToolCall, Trace, walk


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


def drawn(trace: Trace) -> list[str]:
    """The tree, a step a line."""
    names = {"ModelCall": "model", "ToolCall": "tool", "Reasoning": "model", "AgentCall": "agent"}
    return [
        "  " * depth + str(getattr(step, names[type(step).__name__], getattr(step, "text", "")))
        for depth, step in walk(trace.steps)
    ]


def only(collector: Collector) -> Trace:
    (trace,) = collector.traces
    return trace


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


def test_an_exception_is_recorded_and_goes_on_unchanged(collector: Collector) -> None:
    error = ValueError("no such order")

    class Agent:
        def run(self, question: str) -> str:
            raise error

    agent = Agent()
    hook_into_agent(agent, collector)
    with pytest.raises(ValueError, match="no such order") as caught:
        agent.run("7")
    assert caught.value is error
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "run"
    assert error.__context__ is None
    assert only(collector).error == "ValueError: no such order"
    with pytest.raises(ValueError, match="other") as caught, collector.trace() as trace, trace.tool("find"):
        raise ValueError("other")
    assert (collector.traces[1].error, collector.traces[1].tool_calls[0].error) == ("ValueError: other", "ValueError: other")
    assert not collector.traces[1].tool_calls[0].ok


class Every:
    """Runs in every way there is."""

    def run(self, question: str) -> str:
        return question.upper()

    async def arun(self, question: str) -> str:
        await asyncio.sleep(0)
        return question.upper()

    def stream(self, question: str) -> Iterator[str]:
        yield from question.upper()

    async def astream(self, question: str) -> AsyncIterator[str]:
        for letter in question.upper():
            await asyncio.sleep(0)
            yield letter

    def invoke(self, question: str) -> Any:
        return self.arun(question)


async def test_every_kind_of_method_is_recorded_and_stays_what_it_is(collector: Collector) -> None:
    agent = Every()
    unhook = hook_into_agent(agent, collector)
    assert asyncio.iscoroutinefunction(agent.arun)
    assert agent.run("hi") == "HI"
    assert await agent.arun("hi") == "HI"
    assert "".join(agent.stream("hi")) == "HI"
    assert "".join([letter async for letter in agent.astream("hi")]) == "HI"
    assert await agent.invoke("hi") == "HI"
    assert [(trace.agent, trace.input, trace.output, trace.error) for trace in collector.traces] == [
        ("Every", "hi", "HI", None)
    ] * 5
    assert all(not trace.steps for trace in collector.traces)
    unhook()
    agent.run("again")
    unhook()
    assert len(collector.traces) == 5
    assert "run" not in vars(agent)


def test_an_agent_that_is_called_or_runs_under_a_name_of_its_own_can_be_hooked(collector: Collector) -> None:
    class Slotted:
        __slots__ = ("name",)

        def __init__(self) -> None:
            self.name = "slot"

        def __call__(self, question: str) -> str:
            return question * 2

        def work(self, question: str) -> str:
            return question * 3

    agent = Slotted()
    unhook = hook_into_agent(agent, collector)
    assert agent("a") == "aa"
    unhook()
    assert type(agent) is Slotted
    hook_into_agent(agent, collector, method="work", name="worker")
    assert (agent("a"), agent.work("a")) == ("aa", "aaa")
    assert [(trace.agent, trace.output) for trace in collector.traces] == [("Slotted", "aa"), ("worker", "aaa")]


def test_what_cannot_be_hooked_says_what_can(collector: Collector) -> None:
    with pytest.raises(InputError, match=r"no method 'go'.*method='go'"):
        hook_into_agent(Every(), collector, method="go")
    with pytest.raises(InputError, match="none of the methods run"):
        hook_into_agent(object(), collector)
    with pytest.raises(InputError, match="decorate a function"):
        hook_into_agent(lambda: None, collector)


def test_an_agent_inside_another_is_its_step(collector: Collector) -> None:
    class Inner:
        def run(self, question: str) -> str:
            return f"{question}!"

    class Outer:
        def __init__(self, inner: Inner) -> None:
            self.inner = inner

        async def run(self, question: str) -> str:
            return await asyncio.to_thread(self.inner.run, question)

    inner = Inner()
    outer = Outer(inner)
    hook_into_agent(inner, collector)
    hook_into_agent(outer, collector)
    assert asyncio.run(outer.run("hi")) == "hi!"
    (step,) = only(collector).steps
    assert isinstance(step, AgentCall)
    assert (step.agent, step.input, step.output) == ("Inner", "hi", "hi!")


async def test_tasks_at_the_same_time_each_have_their_place(collector: Collector) -> None:
    @traced(kind="tool")
    async def look(what: str) -> str:
        await asyncio.sleep(0.001)
        return what

    async def one(name: str) -> None:
        async with collector.trace(name) as trace, trace.agent(f"below {name}"):
            await asyncio.gather(*(look(f"{name}{number}") for number in range(3)))

    await asyncio.gather(*(one(name) for name in "abcdefgh"))
    assert len(collector.traces) == 8
    for trace in collector.traces:
        assert [call.result for call in trace.tool_calls] == [f"{trace.input}{number}" for number in range(3)]
        assert {call.parent for call in trace.tool_calls} == {trace.steps[0].id}


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


def test_what_a_generators_reader_does_is_not_the_generators_work(collector: Collector) -> None:
    @traced
    def pieces() -> Iterator[int]:
        for number in range(2):
            tool("inside")
            yield number

    @traced(kind="tool")
    def tool(where: str) -> str:
        return where

    with collector.trace():
        for _ in pieces():
            tool("outside")
    assert drawn(only(collector)) == ["pieces", "  tool", "  tool", "tool", "tool"]
    places = {call.result: call.parent is None for call in only(collector).tool_calls}
    assert places == {"inside": False, "outside": True}


def test_a_generator_can_be_sent_to_thrown_at_and_left(collector: Collector) -> None:
    @traced(collector=collector)
    def echo() -> Generator[Any, Any, str]:
        got: Any = None
        while got != "stop":
            try:
                got = yield got
            except KeyError as error:
                got = f"caught {error}"
        return "end"

    talk: Any = echo()
    assert next(talk) is None
    assert talk.send("a") == "a"
    assert talk.throw(KeyError("x")) == "caught 'x'"
    with pytest.raises(StopIteration, match="end"):
        talk.send("stop")
    left: Any = echo()
    next(left)
    left.close()
    assert [trace.error for trace in collector.traces] == [None, None]


async def test_an_asynchronous_generator_can_be_sent_to_thrown_at_and_left(collector: Collector) -> None:
    closed = []

    @traced(collector=collector)
    async def echo() -> AsyncIterator[Any]:
        got: Any = None
        try:
            while True:
                try:
                    got = yield got
                except KeyError as error:
                    got = f"caught {error}"
        finally:
            closed.append(True)

    talk: Any = echo()
    assert await talk.asend(None) is None
    assert await talk.asend("a") == "a"
    assert await talk.athrow(KeyError("x")) == "caught 'x'"
    with pytest.raises(ValueError, match="thrown"):
        await talk.athrow(ValueError("thrown"))
    left: Any = echo()
    await left.asend(None)
    await left.aclose()
    assert closed == [True, True]
    assert [trace.error for trace in collector.traces] == ["ValueError: thrown", None]


async def test_a_task_that_is_cancelled_stays_cancelled(collector: Collector) -> None:
    @traced(collector=collector)
    async def wait() -> None:
        await asyncio.sleep(60)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (only(collector).error or "").startswith("CancelledError")


def test_methods_static_ones_and_functions_are_traced_with_their_arguments(collector: Collector) -> None:
    class Desk:
        @traced(collector=collector, name="desk")
        def find(self, order: int, *, city: str = "Oslo") -> dict[str, Any]:
            return {"order": order, "city": city}

        @traced(collector=collector)
        @staticmethod
        def say(text: str) -> str:
            return text

    assert Desk().find(7, city="Bergen") == {"order": 7, "city": "Bergen"}
    assert Desk.say("hi") == "hi"
    first, second = collector.traces
    assert (first.agent, first.input, first.output) == (
        "desk",
        '{"order": 7, "city": "Bergen"}',
        '{"order": 7, "city": "Bergen"}',
    )
    assert (second.agent, second.input) == ("Desk.say", "hi")


def test_a_traced_function_without_a_collector_is_just_run() -> None:
    @traced
    def double(number: int) -> int:
        return 2 * number

    assert double(2) == 4
    assert double.__name__ == "double"


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

    @traced(collector=collector)
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
    first, second, *rest = collector.get_unlabeled_traces()
    assert [trace.input for trace in collector.get_unlabeled_traces(2)] == ["0", "1"]
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
