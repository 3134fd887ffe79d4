"""The cascade at work: models asked one after the other until a verifier is content. It is a model itself.

Every call is handed to the log, those that failed too. A provider that fails is no verdict on the answer: the next is asked.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from journeyman.errors import InputError, ModelError
from journeyman.learn.router.agreement import AnswerAgreement
from journeyman.models.base import Dialect, Model, Reply, Request
from journeyman.policy import Ending, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeCall:
    """One call of a cascade."""

    task_id: str
    """Of the request."""
    step: int
    """From 0."""
    worker: str
    outcome: Outcome
    """UNJUDGED where there is an answer, ERROR where there is none: a verifier's score is not what an evaluator says."""
    score: float | None = None
    """The verifier's, of what would be given now; `None` where the call failed."""
    accepted: bool = False
    """Whether it ended the cascade."""
    error: str = ""


N = TypeVar("N", int, float)


class AnswerVerifier(Protocol):
    """Looks at the answers so far. `None` stands for a worker that gave none."""

    async def verify(self, request: Request, replies: Sequence[Reply | None]) -> tuple[int, float]:
        """Which one to give, and how sure it is of that one, 0 to 1. One at least is an answer."""


class CheckVerifier:
    """Any check of one answer: a test that runs it, a schema, a judge. The one that it likes best is given."""

    def __init__(self, check: Callable[[Request, Reply], float | Awaitable[float]]) -> None:
        """`check` returns 0 to 1, or will."""
        self._check = check

    async def verify(self, request: Request, replies: Sequence[Reply | None]) -> tuple[int, float]:
        # An answer is checked again at every step; a check that is dear keeps its results.
        scores = [-1.0 if reply is None else await self._score(request, reply) for reply in replies]
        best = scores.index(max(scores))
        return best, scores[best]

    async def _score(self, request: Request, reply: Reply) -> float:
        found = self._check(request, reply)
        return await found if inspect.isawaitable(found) else found


class AgreementVerifier:
    """Agreement of the answers, without a key."""

    def __init__(self, agreement: AnswerAgreement, read: Callable[[str], str | None]) -> None:
        """`read` finds the answer in a reply, in one form for equals, or none; skills are in the order of the cascade."""
        self._agreement = agreement
        self._read = read

    async def verify(self, request: Request, replies: Sequence[Reply | None]) -> tuple[int, float]:
        found = ["" if reply is None else self._read(reply.text) or "" for reply in replies]
        leader, score = self._agreement.judge(found)
        if replies[leader] is None:
            leader = max(at for at, reply in enumerate(replies) if reply is not None)
        return leader, score


class Cascade:
    """A model that asks others, the cheapest first.

    Its reply is the one that was given, with the cost, tokens and seconds of all calls that were answered; unknown as soon as
    those of one are. `raw` tells who was asked.
    """

    def __init__(
        self,
        steps: Mapping[str, Model],
        thresholds: Sequence[float],
        verifier: AnswerVerifier,
        log: Callable[[CascadeCall], None] = lambda _: None,
    ) -> None:
        """
        Args:
            steps: Models by the name that the log gives them, in the order in which they are asked.
            thresholds: The score that ends the cascade, after each but the last.
        """
        if len(thresholds) != len(steps) - 1:
            raise InputError(f"a cascade of {len(steps)} models has {len(steps) - 1} thresholds, not {len(thresholds)}")
        self._steps = dict(steps)
        self._thresholds = (*thresholds, 0.0)
        self._verifier = verifier
        self._log = log

    @property
    def name(self) -> str:
        return "cascade:" + ",".join(self._steps)

    @property
    def dialect(self) -> Dialect:
        return "terse" if all(model.dialect == "terse" for model in self._steps.values()) else "full"

    @property
    def deterministic(self) -> bool:
        return all(model.deterministic for model in self._steps.values())

    async def complete(self, request: Request) -> Reply:
        """The answer of the first step whose score reaches its threshold, or the best there is.

        Raises:
            ModelError: All failed; it is the last one's.
        """
        replies: list[Reply | None] = []
        given, failure = -1, ModelError(f"{self.name} has nobody to ask")
        for step, (worker, model) in enumerate(self._steps.items()):
            try:
                reply = await model.complete(request)
            except ModelError as error:
                replies.append(None)
                failure = error
                said = f"{type(error).__name__}: {error}"
                failed = Outcome(ending=Ending.ERROR)
                self._log(CascadeCall(task_id=request.task_id, step=step, worker=worker, outcome=failed, error=said))
                continue
            replies.append(reply)
            given, score = await self._verifier.verify(request, replies)
            accepted = score >= self._thresholds[step]
            outcome = _measured(reply)
            self._log(
                CascadeCall(task_id=request.task_id, step=step, worker=worker, outcome=outcome, score=score, accepted=accepted)
            )
            if accepted:
                break
        chosen = replies[given] if given >= 0 else None
        if chosen is None:
            raise failure
        return self._given(chosen, given, replies)

    async def close(self) -> None:
        """Give back the connections of all models."""
        for model in self._steps.values():
            await model.close()

    def _given(self, chosen: Reply, place: int, replies: Sequence[Reply | None]) -> Reply:
        workers = list(self._steps)
        answered = [reply for reply in replies if reply is not None]
        return Reply(
            text=chosen.text,
            model=chosen.model,
            input_tokens=_sum([reply.input_tokens for reply in answered]),
            output_tokens=_sum([reply.output_tokens for reply in answered]),
            cached_tokens=_sum([reply.cached_tokens for reply in answered]),
            cost=_sum([reply.cost for reply in answered]),
            seconds=_sum([reply.seconds for reply in answered]),
            finish=chosen.finish,
            raw={"cascade": workers[: len(replies)], "given": workers[place], "reply": chosen.raw},
        )


def _sum(parts: Sequence[N | None]) -> N | None:
    """Unknown as soon as one part is."""
    known = [part for part in parts if part is not None]
    return sum(known[1:], known[0]) if known and len(known) == len(parts) else None


def _measured(reply: Reply) -> Outcome:
    return Outcome(cost=reply.cost, seconds=reply.seconds, input_tokens=reply.input_tokens, output_tokens=reply.output_tokens)
