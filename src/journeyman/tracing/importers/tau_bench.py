"""Runs of tau-bench (Yao et al., arXiv 2406.12045), as its own program writes them, and of those who write like it."""

import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from journeyman.core.messages import ToolUse, Turn
from journeyman.core.reward import Reward
from journeyman.core.trace import Trace
from journeyman.tracing import builder
from journeyman.tracing.base import NO_TIME, RecordedTrace
from journeyman.tracing.fields import as_json
from journeyman.tracing.importers import chat

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
        return RecordedTrace(
            trace=Trace(
                id=f"{self.task_id}/{self.trial}",
                task_id=str(self.task_id),
                candidate_id="base",
                started_at=NO_TIME,
                steps=builder.steps(turn for message in self.traj for turn in message.turns),
                error=None if ended else f"StepLimit: the conversation was cut off after {len(self.traj)} messages",
                rewards=(self._reward(),),
                raw=self._raw(),
            ),
            reward=self.reward,
            goal=tuple((action.name, action.kwargs) for action in actions if action.name in CHANGES),
        )

    def _reward(self) -> Reward:
        verdict = self.info.reward_info if self.info else None
        found = verdict.components or verdict.info if verdict else None
        evidence = as_json(found) if found else "not verified: the run was cut off, which counts as 0" if self.info else ""
        # The fork's composite reward goes below 0 and above 1; a reward of ours does not.
        value = min(max(self.reward, 0.0), 1.0) if self.reward == self.reward else None
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
        return RecordedTrace(
            trace=Trace(
                id=str(self.task_id) if self.trial is None else f"{self.task_id}/{self.trial}",
                task_id=str(self.task_id),
                candidate_id="base",
                started_at=NO_TIME,
                steps=builder.steps(turn for message in self.traj for turn in message.turns),
            )
        )


_SPEAKER = re.compile(r"^(user|assistant|tool|system): ", re.MULTILINE)
_UNTOLD = "None"
"""Stands for a message that only called a tool. Which one, and how, was not written down."""


class FewShot(BaseModel):
    """An example run as tau-bench puts it into a prompt: text, with the speakers' names before the lines."""

    messages_display: str

    def recorded(self, name: str) -> RecordedTrace:
        return RecordedTrace(
            trace=Trace(
                id=name,
                task_id="few-shot",
                candidate_id="base",
                started_at=NO_TIME,
                steps=builder.steps(self._turns()),
            )
        )

    def _turns(self) -> Iterator[Turn]:
        marks = list(_SPEAKER.finditer(self.messages_display))
        ends = [mark.start() for mark in marks[1:]] + [len(self.messages_display)]
        roles = [mark[1] for mark in marks] + [""]
        for mark, end, following in zip(marks, ends, roles[1:], strict=True):
            text = self.messages_display[mark.end() : end].strip()
            called = mark[1] == "assistant" and following == "tool"
            asks = (ToolUse("unknown", ""),) if called else ()
            yield Turn(mark[1], "" if called and text == _UNTOLD else text, calls=asks)
