"""The simplest agent: one call, with the bullets that help."""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from journeyman.agents.attempt import Agent
from journeyman.core.candidate import BASE
from journeyman.core.playbook import Bullet
from journeyman.core.task import Task
from journeyman.core.trace import ModelCall, Step, ToolCall
from journeyman.models.base import (
    Dialect,
    Model,
    ModelRequest,
    PromptMessage,
    Reply,
    ToolOffer,
    ToolsRefused,
    takes_tools,
)
from journeyman.tasks.function_calls import BY_CALLS, functions

# How a task and the chosen bullets are put to a model.

STEPS = "Think step by step."
CITE = "Then name the strategies that you used, on a line of their own: Used: <their ids, or none>"
CLOSE = "End with a line of its own: Answer: <the final answer alone>"
"""Last, so that the number that a check finds last is the answer and not part of an id."""

_PLAYBOOK = """\
Strategies that were learned from earlier attempts at such tasks. Follow those that apply; a strategy marked "avoid" says what \
went wrong before.
{bullets}"""

BETWEEN = "\n\n"
"""Between that and the rest of a message."""
CHARACTERS_PER_TOKEN = 4
"""A rule of thumb for English under BPE tokenizers; a budget needs no more."""
_HEADER = _PLAYBOOK.partition("{")[0].rstrip("\n")
_BULLET = re.compile(r"\[[^\]\n]+\] ")


def answer(task: Task, bullets: Sequence[Bullet], dialect: Dialect) -> tuple[PromptMessage, ...]:
    """The prompt of one attempt."""
    if dialect == "terse":
        return (
            PromptMessage("system", terse_rules([bullet.content for bullet in bullets])),
            PromptMessage("user", task.question),
        )
    system = task.instructions or "\n".join([STEPS, *([CITE] if bullets else []), CLOSE])
    if bullets:
        system += f"{BETWEEN}{strategies(bullets)}"
    return (PromptMessage("system", system), PromptMessage("user", task.question))


def strategies(bullets: Sequence[Bullet]) -> str:
    """What a prompt says of what was learned: the one text that a playbook gives, wherever it is put in. Empty where there are
    no bullets."""
    return _PLAYBOOK.format(bullets="\n".join(map(line, bullets))) if bullets else ""


def cited(reply: str, shown: Sequence[Bullet]) -> tuple[str, ...]:
    """The ids of shown bullets that the reply says it used; an id that was not shown is an invention and left out."""
    named = " ".join(said for said in reply.splitlines() if _is_citation(said))
    return tuple(bullet.id for bullet in shown if re.search(rf"(?<![\w-]){re.escape(bullet.id)}(?![\w-])", named))


def without_bullets(text: str, *, terse: bool = False) -> str:
    """A message as it would be with no bullet in it, wherever they stand; `terse` where it is of the embedded model's kind."""
    if terse:
        return terse_rules(())
    before, found, after = text.partition(_HEADER)
    if not found:
        return text
    rest = after.lstrip("\n").split("\n")
    behind = next((at for at, said in enumerate(rest) if not _BULLET.match(said)), len(rest))
    left = [before.removesuffix(BETWEEN)] if before else []
    # At the beginning of a message, the blank line behind the last bullet was put in with it.
    more = rest[behind:] if before else rest[behind + 1 :]
    return "\n".join([*left, *more]).removesuffix(f"\n\n{CITE}").replace(f"{CITE}\n", "", 1)


def without_citation(reply: str) -> str:
    """A reply without the line in which it names the strategies that it used."""
    lines = reply.split("\n")
    return "\n".join(said for said in lines if not _is_citation(said)) if any(map(_is_citation, lines)) else reply


def terse_rules(rules: Sequence[str]) -> str:
    """The system message that the embedded model was trained on."""
    return "\n".join(["reply", *(f"- {rule}" for rule in rules)])


def line(bullet: Bullet) -> str:
    """A bullet as it stands in a prompt: one line, whatever it holds."""
    mark = "avoid: " if bullet.section == "harmful" else ""
    return f"[{bullet.id}] {mark}{' '.join(bullet.content.split())}"


def _is_citation(said: str) -> bool:
    return said.strip(" *#-").casefold().startswith("used:")


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
    """Asks the model once. Implements `attempt.Agent`."""

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
        request = self._request(task, bullets)
        reply = await self.model.complete(request)
        yield call_of(request, reply, shown=bullets)

    def _request(self, task: Task, bullets: Sequence[Bullet], offers: tuple[ToolOffer, ...] = ()) -> ModelRequest:
        return ModelRequest(
            messages=answer(task, bullets, self.model.dialect),
            temperature=self.temperature,
            seed=self.seed,
            tools=offers,
            task_id=task.id,
        )


def call_of(request: ModelRequest, reply: Reply, *, shown: Sequence[Bullet] = ()) -> ModelCall:
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
        cited=cited(reply.text, shown),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCaller(Answer):
    """Asks the model once which functions of the task it would call, and calls none: the calls alone are judged.

    They are offered as functions to a model that takes them, else told as text; the reply then holds the calls.
    """

    async def run(self, task: Task) -> AsyncIterator[Step]:
        bullets = tuple(self.choose(task))
        offers = tuple(ToolOffer(**each) for each in functions(task)) if takes_tools(self.model) else ()
        asked = self._request(replace(task, instructions=BY_CALLS) if offers else task, bullets, offers)
        try:
            reply = await self.model.complete(asked)
        except ToolsRefused:
            asked = self._request(task, bullets)
            reply = await self.model.complete(asked)
        yield call_of(asked, reply, shown=bullets)
        for use in reply.calls:
            yield ToolCall(tool=use.tool, arguments=use.arguments, result="")
