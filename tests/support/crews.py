"""Small plans and small crews, for tests of what carries plans out."""

from collections.abc import Callable, Mapping
from typing import Any

from journeyman.agents.workers import ByFunction, ByModel
from journeyman.core.plan import Plan, Subtask
from journeyman.core.policy import Card
from journeyman.core.trace import AgentCall, Trace
from journeyman.models.scripted import Scripted


def plan(**after: str) -> Plan:
    """`plan(a="", b="a", c="a b")`: each with the ids that it follows; the worker has the name of the subtask."""
    subtasks = [Subtask(id=id, text=f"do {id}", worker=id, after=tuple(said.split())) for id, said in after.items()]
    return Plan(instruction="do it all", subtasks=tuple(subtasks))


def tool(call: Callable[..., Any], name: str = "tool", price: float | None = 0.0, seconds: float | None = None) -> ByFunction:
    return ByFunction(call=call, card=Card(name=name, kind="tool", call_price=price, seconds=seconds))


def says(text: str) -> ByFunction:
    return tool(lambda: text)


def model(*script: Any, price: float | None = 1.0) -> ByModel:
    return ByModel(model=Scripted(*script), card=Card(name="m", input_price=price, output_price=price), max_tokens=100)


async def nap(_: float) -> None:
    """No wait between tries."""


def by_subtask(trace: Trace) -> Mapping[str, AgentCall]:
    """The step of each subtask, by its id."""
    return {step.id: step for step in trace.steps if isinstance(step, AgentCall)}
