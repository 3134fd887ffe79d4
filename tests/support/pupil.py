"""A model that can be taught: it fails until the right strategy stands in its prompt, and reflects as a real one would."""

import asyncio
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from journeyman.core.task import Split, Task
from journeyman.models.base import Dialect, ModelRequest, Reply
from tests.support.llm_server import Answer, completion

RULE = "Add the counts of both kinds before you reply."
RULES = (
    "Write the total alone, without words.",
    "Never guess where a figure is given.",
    "Name the unit behind the result.",
    "Colours do not matter for a sum.",
)
"""What it also writes now and then: some of it good for nothing."""
REFLECTOR = "You review attempts"
Line = str | BaseException


def answer(prompt: str) -> str:
    """What the pupil says to a prompt, as generator or as reflector."""
    if REFLECTOR in prompt:
        return reflection(prompt)
    counts = [int(found) for found in re.findall(r"holds (\d+) plums and (\d+) pears", prompt)[-1]]
    return f"I count.\nUsed: none\nAnswer: {sum(counts) if RULE in prompt else -1}"


def reflection(prompt: str) -> str:
    digits = int("".join(re.findall(r"holds (\d+) plums", prompt)[-1:]) or 0)
    other = {"verdict": "neutral", "content": RULES[digits % len(RULES)], "about": ""}
    found = [{"verdict": "helpful", "content": RULE, "about": ""}] if "(wrong)" in prompt else []
    return json.dumps({"insights": [*found, other], "shown": []})


class Pupil:
    """The pupil as a model client. `line` may say something else for a request, or raise; `latency` is in seconds."""

    deterministic = True
    dialect: Dialect = "full"

    def __init__(
        self,
        line: Callable[[ModelRequest], Line | None] = lambda _: None,
        *,
        latency: Callable[[], float] = lambda: 0.0,
        cost: float | None = 0.001,
        name: str = "pupil",
    ) -> None:
        self.name = name
        self.line = line
        self.latency = latency
        self.cost = cost
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest) -> Reply:
        self.requests.append(request)
        await asyncio.sleep(self.latency())
        said = self.line(request)
        if isinstance(said, BaseException):
            raise said
        text = said if said is not None else answer(request.text)
        return Reply(text=text, model=self.name, input_tokens=50, output_tokens=10, cost=self.cost, finish="stop")

    async def close(self) -> None:
        """There is nothing to give back."""

    @property
    def attempted(self) -> list[str]:
        """The tasks that it was asked to do, in order."""
        return [request.task_id for request in self.requests if not reflecting(request)]


def reflecting(request: ModelRequest) -> bool:
    return request.schema is not None


def restless(seed: int) -> Callable[[], float]:
    """Latencies in no order."""
    chance = random.Random(seed)
    return lambda: chance.random() / 200


def question(number: int) -> str:
    return f"A crate holds {number} plums and {number % 13} pears. How many pieces of fruit are in it?"


def sums(count: int, *, start: int = 0, split: Split = Split.TRAIN) -> list[Task]:
    """Tasks that the pupil fails at until it was told the rule."""
    return [
        Task(id=f"{split.value}-{n:03d}", question=question(n), answer=str(n + n % 13), domain="fruit", split=split)
        for n in range(start, start + count)
    ]


def write_sums(path: Path, train: int = 20, held_out: int = 40) -> str:
    """The same as a file of a custom data set."""
    numbers = [(n, "train") for n in range(train)] + [(n, "test") for n in range(1000, 1000 + held_out)]
    rows = [
        {"id": f"{split}-{n}", "question": question(n), "answer": str(n + n % 13), "domain": "fruit", "split": split}
        for n, split in numbers
    ]
    path.write_text(json.dumps(rows), encoding="utf-8")
    return str(path)


def over_http(body: dict[str, Any]) -> Answer:
    """The pupil behind a server."""
    return completion(answer("\n\n".join(message["content"] for message in body["messages"])))
