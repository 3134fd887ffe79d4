"""Runs of tau-bench (Yao et al., arXiv 2406.12045), as its own program writes them."""

from typing import Any

from pydantic import BaseModel, Field

from journeyman.capture import chat
from journeyman.capture.base import NO_TIME, Recorded
from journeyman.trace import Trace

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


class _Info(BaseModel):
    task: _Task


class Run(BaseModel):
    """One row."""

    task_id: int | str
    trial: int = 0
    reward: float
    """0 also where a run hit its limit of steps and "reward_info" is null: not missing."""
    traj: list[chat.Message]
    info: _Info | None = None

    def recorded(self) -> Recorded:
        """The run as a trace, with the actions that change the database for its goal.

        A conversation that neither the user nor a hand-over to a person has ended was cut off by the limit of steps.
        """
        found = tuple(chat.steps(self.traj))
        last = self.traj[-1] if self.traj else None
        ended = last is not None and (_STOP in last.text if last.role == "user" else last.name == _TRANSFER)
        actions = self.info.task.actions if self.info else []
        return Recorded(
            trace=Trace(
                id=f"{self.task_id}/{self.trial}",
                task_id=str(self.task_id),
                candidate_id="base",
                started_at=NO_TIME,
                steps=found,
                error=None if ended else f"StepLimit: the conversation was cut off after {len(self.traj)} messages",
            ),
            reward=self.reward,
            goal=tuple((action.name, action.kwargs) for action in actions if action.name in CHANGES),
        )
