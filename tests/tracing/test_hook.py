"""Whatever kind of method runs an agent, it is recorded and stays what it is."""

import asyncio
import traceback
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import pytest

from journeyman.core.errors import InputError
from journeyman.core.trace import AgentCall
from journeyman.serving.ingest.hooks import hook_into_agent, traced_by
from journeyman.tracing.collector import Collector
from tests.tracing.trees import drawn, only


@pytest.fixture
def collector() -> Collector:
    return Collector()


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


def test_an_agent_that_is_hooked_twice_is_recorded_once(collector: Collector) -> None:
    agent, other = Every(), Collector()
    hook_into_agent(agent, collector)
    hook_into_agent(agent, collector)
    hook_into_agent(agent, other)
    agent.run("hi")
    assert [len(each.traces) for each in (collector, other)] == [1, 1]
    assert not only(collector).steps


def test_a_method_that_an_agent_makes_up_can_be_named(collector: Collector) -> None:
    class Proxy:
        def __getattr__(self, name: str) -> Any:
            return (lambda question: f"{name} {question}") if name == "go" else super().__getattribute__(name)

    agent: Any = Proxy()
    unhook = hook_into_agent(agent, collector, method="go")
    assert agent.go("hi") == "go hi"
    unhook()
    assert agent.go("hi") == "go hi"
    assert only(collector).output == "go hi"


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
    @traced_by(kind="tool")
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


def test_what_a_generators_reader_does_is_not_the_generators_work(collector: Collector) -> None:
    @traced_by
    def pieces() -> Iterator[int]:
        for number in range(2):
            tool("inside")
            yield number

    @traced_by(kind="tool")
    def tool(where: str) -> str:
        return where

    with collector.trace():
        for _ in pieces():
            tool("outside")
    assert drawn(only(collector)) == ["pieces", "  tool", "  tool", "tool", "tool"]
    places = {call.result: call.parent is None for call in only(collector).tool_calls}
    assert places == {"inside": False, "outside": True}


def test_a_generator_can_be_sent_to_thrown_at_and_left(collector: Collector) -> None:
    @traced_by(collector=collector)
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

    @traced_by(collector=collector)
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
    @traced_by(collector=collector)
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
        @traced_by(collector=collector, name="desk")
        def find(self, order: int, *, city: str = "Oslo") -> dict[str, Any]:
            return {"order": order, "city": city}

        @traced_by(collector=collector)
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
    @traced_by
    def double(number: int) -> int:
        return 2 * number

    assert double(2) == 4
    assert double.__name__ == "double"
