"""Simulations of tau2-bench, which calls itself tau3-bench where it speaks (Barres et al., arXiv 2506.07982)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from journeyman.core.errors import TraceError
from journeyman.core.messages import Turn
from journeyman.core.trace import Step, ToolCall, Trace
from journeyman.tracing import builder, content, fields
from journeyman.tracing.base import NO_TIME, RecordedTrace
from journeyman.tracing.importers import chat
from journeyman.tracing.importers.base import Format

_ENDED = frozenset({"user_stop", "agent_stop", "", "None"})
"""How a conversation ends that was not broken off."""

_GREETING = "Hi! How can I help you today?"
"""What the assistant begins with, always: no model was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What a file says of all its simulations."""

    domain: str = "general"
    agent: str | None = None
    model: str = ""
    tasks: Mapping[str, Any]


def recognised(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("simulations"), list) or _is_simulation(record)


def read(record: Mapping[str, Any]) -> Iterator[RecordedTrace | TraceError]:
    """The simulations of a file, or the one that a line is."""
    if _is_simulation(record):
        yield _simulation(record, _Run(tasks={}))
        return
    run = _run(record)
    for number, each in enumerate(record["simulations"], start=1):
        if isinstance(each, dict) and "task_id" in each:
            yield _simulation(each, run)
        else:
            yield TraceError(f"simulations.{number}: is no simulation: it has no task_id")


def _is_simulation(record: Mapping[str, Any]) -> bool:
    return "task_id" in record and ("termination_reason" in record or "reward_info" in record) and "traj" not in record


def _run(record: Mapping[str, Any]) -> _Run:
    info = fields.mapping(record.get("info"))
    agent = fields.mapping(info.get("agent_info"))
    domain = fields.mapping(info.get("environment_info")).get("domain_name") or record.get("domain")
    return _Run(
        domain=str(domain or "general"),
        agent=agent.get("implementation") or (record.get("agent") if isinstance(record.get("agent"), str) else None),
        model=str(agent.get("llm") or record.get("model") or ""),
        tasks={str(task.get("id")): task for task in fields.objects(record.get("tasks"))},
    )


def _simulation(record: Mapping[str, Any], run: _Run) -> RecordedTrace:
    started = fields.time(record.get("start_time")) or fields.time(record.get("timestamp"))
    verdict = fields.mapping(record.get("reward_info"))
    ended = str(record.get("termination_reason") or "")
    task = str(record["task_id"])
    trace = Trace(
        id=str(record.get("id") or f"{task}/{record.get('trial', 0)}"),
        task_id=task,
        candidate_id="base",
        started_at=started or NO_TIME,
        ended_at=fields.time(record.get("end_time")) if started else None,
        steps=_steps(record, run),
        error=None if ended in _ENDED else f"Terminated: {ended}",
        domain=run.domain,
        agent=run.agent,
        rewards=(fields.reward("tau2_bench", verdict["reward"], _evidence(verdict)),) if "reward" in verdict else (),
        raw=fields.known(
            termination_reason=ended,
            trial=record.get("trial"),
            seed=record.get("seed"),
            agent_cost=record.get("agent_cost"),
            user_cost=record.get("user_cost"),
            reward_info={name: value for name, value in verdict.items() if value is not None},
            user_scenario=fields.mapping(run.tasks.get(task)).get("user_scenario"),
        ),
    )
    value = verdict.get("reward")
    return RecordedTrace(trace=trace, reward=fields.number(value))


def _evidence(verdict: Mapping[str, Any]) -> str:
    """What of the task's checks held, and what not."""
    parts = fields.mapping(verdict.get("reward_breakdown"))
    told = [f"{name}: {value}" for name, value in parts.items()]
    missed = [
        f"{_checked(check)}: not met"
        for name in ("action_checks", "nl_assertions", "communicate_checks")
        for check in fields.objects(verdict.get(name))
        if check.get("met") is False or check.get("action_match") is False
    ]
    return "; ".join(told + missed)


def _checked(check: Mapping[str, Any]) -> str:
    return fields.text(check.get("nl_assertion") or check.get("info") or fields.mapping(check.get("action")).get("name"))


def _steps(record: Mapping[str, Any], run: _Run) -> tuple[Step, ...]:
    turns = [turn for message in fields.objects(record.get("messages")) for turn in _turns(message)]
    if turns and turns[0].text == _GREETING and turns[0].usage.input is None:
        turns[0] = turns[0]._replace(canned=True)
    found = builder.steps(turns, model=run.model)
    # Whoever plays the user may use tools too, on a telephone of their own: no step of the agent caused that.
    return tuple(replace(step, parent=None) if isinstance(step, ToolCall) and _by_user(step) else step for step in found)


def _by_user(step: ToolCall) -> bool:
    return step.raw.get("requestor") == "user"


def _turns(message: Mapping[str, Any]) -> Iterator[Turn]:
    """A message. One may hold the answers of several tools."""
    inner = fields.objects(message.get("tool_messages"))
    if inner:
        for each in inner:
            yield from _turns(each)
        return
    role = str(message.get("role", "user"))
    data = fields.mapping(message.get("raw_data"))
    calls = (
        content.call_of(call)._replace(raw=fields.known(requestor=call.get("requestor")))
        for call in fields.objects(message.get("tool_calls"))
    )
    yield Turn(
        role,
        content.text(message.get("content")),
        calls=tuple(calls),
        answers=str(message["id"]) if role == "tool" and message.get("id") else None,
        failed=message.get("error") is True,
        model=str(data.get("model") or ""),
        finish=next((each.get("finish_reason") for each in fields.objects(data.get("choices"))), None),
        usage=chat.usage(message.get("usage"))._replace(cached=chat.usage(data.get("usage")).cached),
        cost=_cost(message),
        started_at=fields.time(message.get("timestamp")),
        seconds=fields.number(message.get("generation_time_seconds")),
        response_id=data.get("id") if isinstance(data.get("id"), str) else None,
        raw=fields.known(requestor=message.get("requestor") if role == "tool" else None),
    )


def _cost(message: Mapping[str, Any]) -> float | None:
    """0 with tokens is what is written where no price is known."""
    found = fields.number(message.get("cost"))
    return None if found == 0 and message.get("usage") else found


FORMAT = Format(name="tau2-bench", recognises=recognised, read=read)
