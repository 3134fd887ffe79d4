"""The simplest agent: one call, with the bullets that help."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from journeyman.agents import prompts
from journeyman.candidate import BASE
from journeyman.models.base import Model, Reply, Request
from journeyman.playbook import Bullet
from journeyman.rollout import Agent
from journeyman.task import Task
from journeyman.trace import ModelCall, Step

Choose = Callable[[Task], Sequence[Bullet]]


class MakeAgent(Protocol):
    """How a learner or an examination comes by an agent: `Answer` itself is one, and so is `partial(Coder, workshop=…)`."""

    def __call__(
        self,
        *,
        model: Model,
        choose: Choose = ...,
        candidate_id: str = ...,
        temperature: float | None = ...,
        seed: int | None = ...,
    ) -> Agent: ...


def nothing(_: Task) -> Sequence[Bullet]:
    """The choice of an agent without a playbook."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Asks the model once. Implements `rollout.Agent`."""

    deterministic: ClassVar[bool] = True
    """It adds nothing of chance to what its model says."""

    model: Model
    choose: Choose = nothing
    """Which bullets stand in the prompt of a task."""
    candidate_id: str = BASE
    temperature: float | None = None
    seed: int | None = None

    async def run(self, task: Task) -> AsyncIterator[Step]:
        bullets = tuple(self.choose(task))
        request = Request(
            messages=prompts.answer(task, bullets, self.model.dialect),
            temperature=self.temperature,
            seed=self.seed,
            task_id=task.id,
        )
        reply = await self.model.complete(request)
        yield call_of(request, reply, shown=bullets)


def call_of(request: Request, reply: Reply, *, shown: Sequence[Bullet] = ()) -> ModelCall:
    """An exchange with a model as a step of a trace, with the bullets that stood in the prompt and those that were cited."""
    return ModelCall(
        model=reply.model,
        prompt=request.text,
        reply=reply.text,
        input_tokens=reply.input_tokens,
        output_tokens=reply.output_tokens,
        cost=reply.cost,
        seconds=reply.seconds,
        finish=reply.finish,
        shown=tuple(bullet.id for bullet in shown),
        cited=prompts.cited(reply.text, shown),
    )
