"""Runs of tau-bench (Yao et al., arXiv 2406.12045), as its own program writes them, and of those who write like it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from journeyman.core.errors import TraceError
from journeyman.core.messages import ToolUse, Turn
from journeyman.core.reward import Reward
from journeyman.core.trace import Step, ToolCall
from journeyman.tracing import builder, conversation, fields
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.fields import as_json
from journeyman.tracing.importers import chat
from journeyman.tracing.importers.source import Format

CHANGES = frozenset(
    {
        "book_reservation", "cancel_reservation", "send_certificate", "update_reservation_baggages",
        "update_reservation_flights", "update_reservation_passengers", "cancel_pending_order", "exchange_delivered_order_items",
        "modify_pending_order_address", "modify_pending_order_items", "modify_pending_order_payment", "modify_user_address",
        "return_delivered_order_items",
    }
)  # fmt: skip
"""The tools of the airline and of the shop that change the database. A run is right when they leave it as it should be."""
_STOP, _TRANSFER = "###STOP###", "transfer_to_human_agents"


class _Action(BaseModel):
    name: str
    kwargs: dict[str, Any]


class _Task(BaseModel):
    user_id: str
    actions: list[_Action] = Field(default_factory=list)
    instruction: str | None = None


class _Verdict(BaseModel):
    model_config = ConfigDict(extra="allow")

    info: dict[str, Any] | None = None
    components: dict[str, Any] | None = None


class _Info(BaseModel):
    task: _Task
    source: str | None = None
    user_cost: float | None = None
    reward_info: _Verdict | None = None


class TauBenchRow(BaseModel):
    """One row."""

    task_id: int | str
    trial: int = 0
    reward: float
    """0 also where a run hit its limit of steps and "reward_info" is null: not missing."""
    traj: list[chat.ChatMessage]
    info: _Info | None = None

    def recorded(self) -> RecordedTrace:
        """The run as a trace, with the actions that change the database for its goal.

        A conversation that neither the user nor a hand-over to a person has ended was cut off by the limit of steps.
        """
        last = self.traj[-1] if self.traj else None
        ended = last is not None and (_STOP in last.text if last.role == "user" else last.name == _TRANSFER)
        actions = self.info.task.actions if self.info else []
        found = builder.recorded(
            f"{self.task_id}/{self.trial}",
            task_id=str(self.task_id),
            steps=builder.steps(turn for message in self.traj for turn in message.turns),
            error=None if ended else f"StepLimit: the conversation was cut off after {len(self.traj)} messages",
            rewards=(self._reward(),),
            raw=self._raw(),
            reward=self.reward,
        )
        return replace(found, goal=tuple((action.name, action.kwargs) for action in actions if action.name in CHANGES))

    def _reward(self) -> Reward:
        verdict = self.info.reward_info if self.info else None
        found = verdict.components or verdict.info if verdict else None
        evidence = as_json(found) if found else "not verified: the run was cut off, which counts as 0" if self.info else ""
        # A fork's reward also counts what a run took, and goes below 0 and above 1; whether it was right stands beside it.
        solved = fields.number(found.get("base_success")) if found else None
        worth = self.reward if solved is None else solved
        value = min(max(worth, 0.0), 1.0) if worth == worth else None
        if value != self.reward:
            evidence = f"recorded as {self.reward:g}; {evidence}"
        return Reward(name="tau_bench", value=value, evidence=evidence)

    def _raw(self) -> dict[str, Any]:
        if self.info is None:
            return {"trial": self.trial}
        told = {"instruction": self.info.task.instruction, "user": self.info.source, "user_cost": self.info.user_cost}
        return {"trial": self.trial, **{name: value for name, value in told.items() if value is not None}}


class Unscored(BaseModel):
    """A row of somebody who writes like tau-bench and has no verdict: no reward is not a reward of 0."""

    task_id: int | str
    trial: int | None = None
    traj: list[chat.ChatMessage]

    def recorded(self) -> RecordedTrace:
        id = str(self.task_id) if self.trial is None else f"{self.task_id}/{self.trial}"
        steps = builder.steps(turn for message in self.traj for turn in message.turns)
        return builder.recorded(id, task_id=str(self.task_id), steps=steps)


_SPEAKER = re.compile(r"^(user|assistant|tool|system): ", re.MULTILINE)
_UNTOLD = "None"
"""Stands for a message that only called a tool. Which one, and how, was not written down."""


class FewShot(BaseModel):
    """An example run as tau-bench puts it into a prompt: text, with the speakers' names before the lines."""

    messages_display: str

    def recorded(self) -> RecordedTrace:
        return builder.recorded("", task_id="few-shot", steps=builder.steps(self._turns()))

    def _turns(self) -> Iterator[Turn]:
        marks = list(_SPEAKER.finditer(self.messages_display))
        ends = [mark.start() for mark in marks[1:]] + [len(self.messages_display)]
        roles = [mark[1] for mark in marks] + [""]
        for mark, end, following in zip(marks, ends, roles[1:], strict=True):
            text = self.messages_display[mark.end() : end].strip()
            called = mark[1] == "assistant" and following == "tool"
            asks = (ToolUse("unknown", ""),) if called else ()
            yield Turn(mark[1], "" if called and text == _UNTOLD else text, calls=asks)


def _read(record: Mapping[str, Any]) -> Iterator[RecordedTrace]:
    if "messages_display" in record and "traj" not in record:
        yield fields.validated(FewShot, record).recorded()
        return
    # Whoever has no verdict says nothing of one. tau-bench itself always has a reward.
    model: type[Unscored] | type[TauBenchRow] = (
        Unscored if not {"reward", "info"} & set(record) and record["traj"] else TauBenchRow
    )
    yield fields.validated(model, record).recorded()


TAU_BENCH = Format(name="tau-bench", recognises=lambda record: "traj" in record or "messages_display" in record, read=_read)


# Simulations of tau2-bench, which calls itself tau3-bench where it speaks (Barres et al., arXiv 2506.07982).
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
    return builder.recorded(
        str(record.get("id") or f"{task}/{record.get('trial', 0)}"),
        task_id=task,
        started_at=started,
        ended_at=fields.time(record.get("end_time")),
        reward=fields.number(verdict.get("reward")),
        steps=_steps(record, run),
        error=None if ended in _ENDED else f"Terminated: {ended}",
        domain=run.domain,
        agent=run.agent,
        rewards=(fields.reward("tau2_bench", verdict["reward"], _evidence(verdict)),) if "reward" in verdict else (),
        raw=fields.without_empty(
            termination_reason=ended,
            trial=record.get("trial"),
            seed=record.get("seed"),
            agent_cost=record.get("agent_cost"),
            user_cost=record.get("user_cost"),
            reward_info={name: value for name, value in verdict.items() if value is not None},
            user_scenario=fields.mapping(run.tasks.get(task)).get("user_scenario"),
        ),
    )


def _evidence(verdict: Mapping[str, Any]) -> str:
    """What of the task's checks held, and what not."""
    parts = fields.mapping(verdict.get("reward_breakdown"))
    parts_said = [f"{name}: {value}" for name, value in parts.items()]
    missed = [
        f"{_checked(check)}: not met"
        for name in ("action_checks", "nl_assertions", "communicate_checks")
        for check in fields.objects(verdict.get(name))
        if check.get("met") is False or check.get("action_match") is False
    ]
    return "; ".join(parts_said + missed)


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
        conversation.tool_use(call)._replace(raw=fields.without_empty(requestor=call.get("requestor")))
        for call in fields.objects(message.get("tool_calls"))
    )
    yield Turn(
        role,
        conversation.content_text(message.get("content")),
        calls=tuple(calls),
        answers=str(message["id"]) if role == "tool" and message.get("id") else None,
        failed=fields.flag(message.get("error")),
        model=str(data.get("model") or ""),
        finish=next((each.get("finish_reason") for each in fields.objects(data.get("choices"))), None),
        usage=conversation.usage_of(message.get("usage"))._replace(cached=conversation.usage_of(data.get("usage")).cached),
        cost=_cost(message),
        started_at=fields.time(message.get("timestamp")),
        seconds=fields.number(message.get("generation_time_seconds")),
        response_id=data.get("id") if isinstance(data.get("id"), str) else None,
        raw=fields.without_empty(requestor=message.get("requestor") if role == "tool" else None),
    )


def _cost(message: Mapping[str, Any]) -> float | None:
    """0 with tokens is what is written where no price is known."""
    found = fields.number(message.get("cost"))
    return None if found == 0 and message.get("usage") else found


TAU2_BENCH = Format(name="tau2-bench", recognises=recognised, read=read)
