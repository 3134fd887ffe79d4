"""Traces as a watched agent leaves them: with messages, times, tools, sub-agents, rewards."""

from datetime import UTC, datetime, timedelta

from journeyman.core.reward import Reward
from journeyman.core.trace import AgentCall, Message, ModelCall, Reasoning, ToolCall, Trace

NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


def booking(
    id: str = "t1",
    *,
    asked: str = "A table for two in Oslo, please",
    agent: str | None = "desk",
    model: str = "gpt-5-mini",
    tool: str = "find_tables",
    session: str | None = None,
    at: datetime = NOON,
    reward: float | None = 1.0,
    fails: bool = False,
    cost: float | None = 0.0123,
) -> Trace:
    """A conversation of two calls with a tool between them."""
    first = ModelCall(
        id="c1",
        model=model,
        prompt=f"system: You book tables.\n\nuser: {asked}",
        messages=(Message(role="system", text="You book tables."), Message(role="user", text=asked)),
        reply="",
        input_tokens=1200,
        output_tokens=0,
        cost=cost,
        started_at=at,
        seconds=1.5,
        finish="tool_calls",
        shown=("b-date",),
        cited=("b-date",),
    )
    used = ToolCall(
        id="k1",
        parent="c1",
        tool=tool,
        arguments='{"city": "Oslo", "seats": 2}',
        result='{"error": "no tables"}' if fails else '{"free": ["18:00"]}',
        ok=not fails,
        started_at=at + timedelta(seconds=1.5),
        seconds=0.25,
    )
    last = ModelCall(
        id="c2",
        continues="c1",
        model=model,
        prompt="tool: …",
        messages=(Message(role="tool", text=used.result, answers="k1"),),
        reply="There is one at six.",
        input_tokens=1300,
        output_tokens=12,
        cost=cost,
        started_at=at + timedelta(seconds=1.75),
        seconds=1.0,
        finish="stop",
        raw={"temperature": 0.2},
    )
    thought = Reasoning(id="r1", parent="c2", text="Six is early, but free.")
    return Trace(
        id=id,
        task_id="book-1",
        candidate_id="base",
        started_at=at,
        ended_at=at + timedelta(seconds=2.75),
        steps=(first, used, thought, last),
        agent=agent,
        session=session,
        rewards=() if reward is None else (Reward(name="booked", value=reward, evidence="The table is in the book."),),
        source="gateway",
    )


def delegated(id: str = "deep") -> Trace:
    """An agent that hands work to another, which hands on."""
    return Trace(
        id=id,
        task_id="plan-1",
        candidate_id="base",
        started_at=NOON,
        agent="planner",
        input="Plan a week in Oslo",
        output="Done: seven days.",
        steps=(
            AgentCall(id="a1", agent="hotels", input="find one", output="found", started_at=NOON, seconds=4),
            AgentCall(id="a2", parent="a1", agent="prices", error="TimeoutError: no answer", started_at=NOON, seconds=3),
            ToolCall(id="k", parent="a2", tool="ask_price", arguments="{}", result="", ok=False, error="timed out"),
            ModelCall(id="m", model="claude", prompt="sum up", reply="ok"),
        ),
    )
