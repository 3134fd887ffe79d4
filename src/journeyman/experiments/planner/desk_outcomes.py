"""What each size of the embedded model makes of customers' sentences: a line for each, as `train router` reads them."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from journeyman.agents.answer import Answer
from journeyman.agents.attempt import Attempt, attempt_all
from journeyman.core.policy import Card, Ending, Outcome
from journeyman.core.task import Split, Task
from journeyman.experiments.planner.desk import MODELS, Clerk, told, workers
from journeyman.experiments.wiring import now
from journeyman.io.atomic import atomic_write
from journeyman.io.jsonl import iter_jsonl
from journeyman.models.base import Model
from journeyman.tasks import desk
from journeyman.tasks.desk.world import SHOPS, Desk

SIZES: Mapping[Split, int] = {Split.TRAIN: 100, Split.VALIDATION: 25, Split.HELD_OUT: 100}
"""Sentences of each shop."""


def measure(
    models: Sequence[str] = MODELS,
    *,
    sizes: Mapping[Split, int] = SIZES,
    shops: Sequence[str] = tuple(SHOPS),
    seed: int = 0,
    replies: Path | None = None,
) -> tuple[Mapping[str, Any], ...]:
    """Let each model do each sentence, with the shop's conventions told; the desk says what is right.

    Args:
        replies: A folder for what deterministic models replied, so that nothing is decoded twice.

    Returns:
        Objects with "id", "request", "type" (the shop), "split", and "outcomes" by model.
    """
    tasks = [task for shop in shops for task in desk.load(shop, sizes=sizes, seed=seed).tasks]
    crew = workers(models, replies=replies)

    async def ask() -> dict[str, list[Attempt]]:
        found = {}
        for name in models:
            worker = crew[name]
            assert isinstance(worker, Clerk)
            found[name] = await _attempts(worker.model, tasks, name)
            await worker.model.close()
        return found

    attempts = asyncio.run(ask())
    return tuple(
        {
            "id": f"{seed}-{task.id}",
            "request": task.question,
            "type": task.domain,
            "split": task.split.value,
            "outcomes": {name: _plain(outcome(attempts[name][at], crew[name].card)) for name in models},
        }
        for at, task in enumerate(tasks)
    )


def write(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """One object a line, whole or not at all.

    Raises:
        InputError: It cannot be written.
    """
    with atomic_write(path) as part:
        part.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def outcome(attempt: Attempt, card: Card) -> Outcome:
    """What became of one sentence, at the card's price."""
    trace = attempt.trace
    known = trace.input_tokens is not None and trace.output_tokens is not None
    success = attempt.score.total
    ending = Ending.RIGHT if success == 1 else Ending.WRONG
    if trace.error is not None or success is None:
        ending, success = Ending.ERROR, None
    elif not _readable(trace.reply):
        ending = Ending.FORMAT
    return Outcome(
        ending=ending,
        success=success,
        cost=card.price(trace.input_tokens or 0, trace.output_tokens or 0) if known else trace.cost,
        seconds=trace.calls[0].seconds if trace.calls else None,
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
    )


async def _attempts(model: Model, tasks: Sequence[Task], name: str) -> list[Attempt]:
    agent = Answer(model=model, choose=lambda task: told(task.domain))
    return await attempt_all(agent, tasks, Desk(), prefix=f"outcomes/{name}", clock=now)


def _plain(outcome: Outcome) -> Mapping[str, Any]:
    told = {
        "ending": outcome.ending.value,
        "success": outcome.success,
        "cost": None if outcome.cost is None else round(outcome.cost, 9),
        "seconds": None if outcome.seconds is None else round(outcome.seconds, 4),
        "input_tokens": outcome.input_tokens,
        "output_tokens": outcome.output_tokens,
    }
    return {name: value for name, value in told.items() if value is not None}


def _readable(reply: str) -> bool:
    with suppress(ValueError):
        return isinstance(json.loads(reply), dict)
    return False


def rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """What `write` wrote."""
    return (line.value for line in iter_jsonl(path, json.loads))
