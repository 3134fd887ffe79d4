"""One recorded step asked again, with another playbook or another model, and what differs.

What is asked here is kept as an attempt of Journeyman's own at a held-out task: nobody learns from it.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Self

from journeyman.agents.attempt import attempt
from journeyman.agents.replay import (
    CallBudget,
    NamedModel,
    NotAskable,
    RecordedRequest,
    RecordedServer,
    Replayer,
    request_of,
)
from journeyman.core.candidate import BASE
from journeyman.core.errors import InputError
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.reward import Reward
from journeyman.core.task import Split, Task
from journeyman.core.trace import OWN_AGENT, ModelCall, ToolCall, Trace
from journeyman.experiments.playbook.bullet_examination import shown
from journeyman.experiments.playbook.examination import key_of
from journeyman.experiments.playbook.recorded_tasks import task_of
from journeyman.experiments.settings import Settings, UpstreamSettings
from journeyman.io.retry import RetryPolicy
from journeyman.tasks.recorded import RecordedVerifier
from journeyman.tracing.redaction import Redactor
from journeyman.tracing.wire.dialects import Dialect

TASK = "playground"
"""The task that traces of what was asked here name, so that they are found together."""
_SECONDS = 120.0
"""For an answer: somebody waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAnswer:
    """What a model answered in one step, as it is compared."""

    model: str
    text: str
    """Its words, then the tools that it asks for, a line each."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    """US dollars; `None` where no price is known."""
    seconds: float | None = None
    error: str | None = None
    verdict: Reward | None = None
    """By what verifies answers to this request; `None` where nobody can say which would be right."""

    @property
    def value(self) -> float | None:
        """How right it is, from 0 to 1; `None` where nobody can say, or nothing was answered."""
        return None if self.error is not None or self.verdict is None else self.verdict.value

    @property
    def judged(self) -> str:
        """How right it is, in words, or why there is no answer."""
        if self.error is not None:
            return self.error
        word = {None: "nobody can say", 1.0: "✓ right", 0.0: "✗ wrong"}.get(self.value, f"{self.value or 0:.2f}")
        why = self.verdict.evidence if self.verdict is not None and self.value != 1 else ""
        return f"{word}: {why}" if why else word


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedStep:
    """A recorded step that may be asked again."""

    trace: Trace
    number: int
    """Of the step, from 1."""
    call: ModelCall
    request: RecordedRequest
    check: Task | None
    """What verifies answers, where it is known which would be right."""
    candidate: str = BASE
    """The playbook that is shown."""
    bullets: tuple[Bullet, ...] = field(default=(), hash=False)
    """Of it, those that a live request of this domain is given."""

    @classmethod
    def of(cls, trace: Trace, number: int | None = None) -> Self:
        """A step of a trace by its number, or else the last that a model answered, with nothing learned in it.

        Raises:
            InputError: There is no such step, no model answered it, or it cannot be asked again.
        """
        numbers = [at for at, step in enumerate(trace.steps, start=1) if isinstance(step, ModelCall)]
        number = number if number is not None else max(numbers, default=0)
        call = trace.steps[number - 1] if 0 < number <= len(trace.steps) else None
        if not isinstance(call, ModelCall):
            there = f"those are {', '.join(map(str, numbers[:20]))}" if numbers else "there is none in this trace"
            raise InputError(f"step {number}: only what a model answered is asked again; {there}")
        try:
            request = request_of(trace, call)
        except NotAskable as error:
            raise InputError(f"step {number}: {error} cannot be asked again") from None
        return cls(trace=trace, number=number, call=call, request=request, check=task_of(trace, request))

    def showing(self, playbook: Playbook, candidate: str) -> Self:
        """The same with a playbook in it.

        Raises:
            InputError: It has no bullet for this request.
        """
        bullets = tuple(shown(playbook, self._task))
        if not bullets:
            raise InputError(f"the playbook has no bullet of the domain {self.trace.domain}, so it would change nothing")
        return replace(self, bullets=bullets, candidate=candidate)

    async def send(self, ask: RecordedServer | NamedModel, *, id: str, by: str, clock: Callable[[], datetime]) -> Trace:
        """Ask once, for no more than `most` says. What comes, be it an error, is a trace, verified where that can be.

        Args:
            ask: Is closed after it.
            by: Who wanted it.
        """
        ask.budget = CallBudget(max_cost=self.most(ask))
        task = self._task
        agent = Replayer(ask=ask, requests={task.id: self.request}, choose=lambda _: self.bullets, candidate_id=self.candidate)
        try:
            found = await attempt(agent, task, id=id, clock=clock)
        finally:
            await ask.close()
        can = self.check if found.error is None else None
        rewards = () if can is None else (await RecordedVerifier().verify(can, found),)
        return replace(
            found,
            ended_at=clock(),
            input=self.request.question,
            agent=OWN_AGENT,
            source="run",
            rewards=rewards,
            raw={TASK: {"trace": self.trace.id, "step": self.number, "by": by}, "split": Split.HELD_OUT.value},
        )

    def most(self, ask: RecordedServer | NamedModel) -> float | None:
        """US dollars that it may cost; `None` where no price is known."""
        return ask.most(self.request, self.bullets)

    def then(self) -> StepAnswer:
        """What was answered when it was recorded. Not within an event loop that runs."""
        used = tuple(step for step in self.trace.tool_calls if step.parent == self.call.id)
        then = replace(self.trace, steps=(self.call, *used), output=None)
        verdict = None if self.check is None else asyncio.run(RecordedVerifier().verify(self.check, then))
        return _answer(then, self.call.error, verdict)

    @property
    def _task(self) -> Task:
        return Task(id=TASK, question=self.request.question, answer="", domain=self.trace.domain, split=Split.HELD_OUT)


def sent(trace: Trace) -> StepAnswer:
    """What was answered when a step was asked again."""
    return _answer(trace, trace.error, next(iter(trace.rewards), None))


def asked_of(trace: Trace) -> tuple[str, int] | None:
    """The trace and the step that one asked again; `None` of any other."""
    told = trace.raw.get(TASK)
    if not isinstance(told, Mapping):
        return None
    # A trace that came from elsewhere may say anything there.
    step = told.get("step")
    return str(told.get("trace")), step if isinstance(step, int) else 0


def _answer(trace: Trace, error: str | None, verdict: Reward | None) -> StepAnswer:
    call = trace.calls[0] if trace.calls else None
    words = [call.reply] if call and call.reply else []
    return StepAnswer(
        model=call.model if call else "",
        text="\n".join([*words, *map(_said, trace.tool_calls)]),
        input_tokens=call.input_tokens if call else None,
        output_tokens=call.output_tokens if call else None,
        cost=call.cost if call else None,
        seconds=call.seconds if call else None,
        error=error,
        verdict=verdict,
    )


def _said(call: ToolCall) -> str:
    return f"{call.tool}({call.arguments})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayServers:
    """Who may be asked from a page: the gateway's own servers, whatever a trace says of where it came from."""

    settings: Settings
    servers: Mapping[str, UpstreamSettings] = field(hash=False)
    """By name; each says which APIs it speaks."""

    def speaking(self, request: RecordedRequest) -> Sequence[str]:
        """The names of those that can be asked this: the one that answered first, then others."""
        known = [name for name, each in self.servers.items() if "openai" in each.apis or _api(request.dialect) in each.apis]
        return sorted(known, key=lambda name: not self._answered(name, request))

    def asker(self, request: RecordedRequest, server: str, model: str = "") -> RecordedServer:
        """Asks one of them, once. It is sent the key that the settings say for it, as the gateway sends it.

        Args:
            model: Its name there; that of then where it is empty.

        Raises:
            InputError: There is no such server, or it does not speak so.
        """
        if server not in self.speaking(request):
            raise InputError(
                f"server: {server!r} is none of {', '.join(self.speaking(request)) or 'those behind this gateway'}"
            )
        there, wanted = self.servers[server], model or request.model

        def aim(asked: RecordedRequest) -> RecordedRequest:
            own = _api(asked.dialect) in there.apis
            as_chat = asked if own else asked.of_model(wanted, there.base_url)
            return replace(as_chat, model=wanted, base_url=there.base_url, upstream=server)

        return RecordedServer(
            key=lambda asked: key_of(asked, self.settings.upstreams, os.environ),
            aim=aim,
            name=server,
            place=self.settings.context.place,
            timeout=_SECONDS,
            patience=RetryPolicy(retries=0),
        )

    def cleaned(self, trace: Trace) -> Trace:
        """What is kept of it: without what is not recorded either."""
        return Redactor(self.settings.record.redact).trace(trace)

    def _answered(self, name: str, request: RecordedRequest) -> bool:
        return self.servers[name].base_url.rstrip("/") == request.base_url.rstrip("/")


def _api(dialect: Dialect) -> str:
    return "anthropic" if dialect is Dialect.MESSAGES else "openai"
