"""What a training run will cost, before it starts: an estimate from the real tasks and list prices."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from journeyman.agents import answer
from journeyman.core.task import Split, Task
from journeyman.core.trace import total
from journeyman.experiments import wiring
from journeyman.optimizers.playbook.reflector import INSTRUCTIONS

REPLY, REFLECTION = 400, 200
"""Tokens that models write on such tasks; reasoning models write several times as much."""
BULLETS = 0.5
"""Of the token budget: a playbook begins empty and fills up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleEstimate:
    """The calls of one role."""

    role: str
    model: str
    calls: int | None
    """`None` where it is not known how often it is asked; so are the tokens then."""
    input_tokens: int | None
    output_tokens: int | None
    base_url: str = ""
    """Another server than the model's own, where its name says none."""

    @property
    def cost(self) -> float | None:
        """US dollars; `None` when the model has no known price, or what it is asked is not known."""
        price = wiring.price(self.model, base_url=self.base_url)
        if price is None or self.input_tokens is None or self.output_tokens is None:
            return None
        return price.of(self.input_tokens, self.output_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingWork:
    """What a training run asks of models: its tasks and how often each is attempted."""

    generator: str
    reflector: str
    tasks: Sequence[Task]
    epochs: int
    attempts: int
    trials: int
    """Attempts at each held-out task, for candidate and baseline each; 0 without an evaluation."""
    token_budget: int
    base_url: str = ""
    """Another server for models that are named without one."""
    calls: int = 1
    """Calls of one attempt, at most; each sees the replies before it."""
    reply: int = REPLY
    """Tokens of one reply."""
    optimizer: str = "playbook"
    """Who learns. What another than ours asks of models is not known before it does."""


def parts(work: TrainingWork) -> list[RoleEstimate]:
    """Training, reflection and evaluation; every attempt is counted as reflected on, so this is rather too much."""
    train = [task for task in work.tasks if task.split is Split.TRAIN]
    held_out = [task for task in work.tasks if task.split is Split.HELD_OUT]
    bullets = int(work.token_budget * BULLETS)
    tries = work.epochs * work.attempts * work.calls
    prompt = sum(_prompt(task) for task in train)
    looks = 2 * work.trials * work.calls
    seen = work.reply * (work.calls - 1) // 2
    estimates = [
        RoleEstimate(
            role="generator",
            model=work.generator,
            calls=len(train) * tries,
            input_tokens=(prompt + (bullets + seen) * len(train)) * tries,
            output_tokens=work.reply * len(train) * tries,
            base_url=work.base_url,
        ),
        RoleEstimate(
            role="reflector",
            model=work.reflector,
            calls=len(train) * work.epochs,
            input_tokens=(
                prompt + (bullets + len(INSTRUCTIONS) // answer.CHARACTERS_PER_TOKEN + work.reply * work.attempts) * len(train)
            )
            * work.epochs,
            output_tokens=REFLECTION * len(train) * work.epochs,
            base_url=work.base_url,
        ),
        RoleEstimate(
            role="evaluation",
            model=work.generator,
            calls=len(held_out) * looks,
            input_tokens=(sum(_prompt(task) for task in held_out) + (bullets // 2 + seen) * len(held_out)) * looks,
            output_tokens=work.reply * len(held_out) * looks,
            base_url=work.base_url,
        ),
    ]
    if work.optimizer == "playbook":
        return estimates
    *learning, evaluation = estimates
    return [*(replace(each, calls=None, input_tokens=None, output_tokens=None) for each in learning), evaluation]


def report(work: TrainingWork) -> dict[str, Any]:
    """The estimate as JSON: `parts`, and `cost`, which is null when that of a part is not known."""
    found = parts(work)
    return {
        "parts": [
            {
                "role": part.role,
                "model": part.model,
                "calls": part.calls,
                "input_tokens": part.input_tokens,
                "output_tokens": part.output_tokens,
                "cost": part.cost,
            }
            for part in found
        ],
        "cost": total(part.cost for part in found),
    }


def _prompt(task: Task) -> int:
    """Tokens of a task's prompt without bullets."""
    return sum(len(message.content) for message in answer.answer(task, (), "full")) // answer.CHARACTERS_PER_TOKEN
