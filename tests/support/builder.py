"""A model that can be taught to build: it makes a mistake until it is told of it, and reflects as a real one would."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from journeyman.io.markdown import fenced
from journeyman.models.base import Dialect, ModelRequest, Reply
from tests.support.llm_server import Answer, completion
from tests.support.pupil import REFLECTOR

SOLUTIONS = Path(__file__).parent / "solutions"
MODULES = {
    "emails.py": "Email validator",
    "shortener.py": "URL shortener",
    "webhooks.py": "Webhook delivery",
    "limiter.py": "Rate limiter",
    "billing.py": "Subscription invoice",
}
"""The file that each built-in scenario asks for."""
LESSON = "Check the first and the last value that a rule allows before you reply."


@dataclass(frozen=True, slots=True)
class Slip:
    """A solution with one mistake in it."""

    file: str
    what: str
    right: str
    wrong: str

    @property
    def code(self) -> str:
        code = solution(self.file)
        assert code.count(self.right) == 1, f"{self.right!r} stands {code.count(self.right)} times in {self.file}"
        return code.replace(self.right, self.wrong)


SEEN = (
    Slip("emails.py", "takes two dots in a row", r"~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*", r"~.-]+"),
    Slip("shortener.py", "makes a new code each time", "ttl is None and url in self._codes", "False"),
    Slip("webhooks.py", "tries again after a client error", "status not in (408, 429)", "status < 400"),
    Slip("limiter.py", "lets one more pass", "tokens >= cost", "tokens > -cost"),
    Slip("billing.py", "cuts instead of rounding", "int(abs(value) + Fraction(1, 2))", "int(abs(value))"),
)
"""Mistakes that the open checks find."""
UNSEEN = (
    Slip("emails.py", "measures the address last", 'if len(address) > 254:\n        return "length"\n    if', "if"),
    Slip(
        "emails.py",
        "takes the domain's letters from the alphabet at large",
        "fullmatch(domain)",
        'fullmatch(domain.replace("ä", "a"))',
    ),
    Slip("emails.py", "counts from nought", "len(local) > 64", "len(local) > 65"),
    Slip("shortener.py", "expires a moment late", 'self._clock() < link["ends"]', 'self._clock() <= link["ends"]'),
    Slip("shortener.py", "shares the code of a link that ends", "elif ttl is None and url", "elif url"),
    Slip("shortener.py", "forgets the codes of URLs on the disk", 'data["links"], data["codes"]', 'data["links"], {}'),
    Slip("webhooks.py", "measures time in one direction", "abs(now - timestamp)", "now - timestamp"),
    Slip("webhooks.py", "sleeps after the last attempt", "if number < attempts:", "if True:"),
    Slip("webhooks.py", "takes the word of the receiver without end", "min(_MOST, int(value))", "int(value)"),
    Slip("webhooks.py", "compares in a hurry", "hmac.compare_digest(right, value)", "right == value"),
    Slip(
        "limiter.py",
        "saves up for ever",
        "min(self._burst, tokens + max(0.0, now - at) * self._rate)",
        "tokens + max(0.0, now - at) * self._rate",
    ),
    Slip("limiter.py", "turns the clock back", "max(now, at)", "now"),
    Slip("limiter.py", "keeps full buckets", ">= self._burst]", "> self._burst]"),
    Slip(
        "billing.py",
        "rounds halves up, also below zero",
        "-size if value < 0 else size",
        "size if value > 0 else -int(abs(value) + Fraction(49, 100))",
    ),
    Slip("billing.py", "names the row instead of the line", "rows.line_num", "len(plans) + 2"),
    Slip("billing.py", "pays tax back", " if subtotal > 0 else 0", ""),
)
"""Mistakes that only the hidden checks find."""


def solution(file: str) -> str:
    return (SOLUTIONS / file).read_text(encoding="utf-8")


def block(file: str, code: str) -> str:
    """The reply that writes one file."""
    return f"Here it is.\n\n{fenced(code, f'python file={file}')}\n"


def answer(prompt: str) -> str:
    """What the builder says to a prompt, as generator or as reflector."""
    if REFLECTOR in prompt:
        failed = "(wrong)" in prompt or "had failed" in prompt
        found = [{"verdict": "helpful", "content": LESSON, "about": ""}] if failed else []
        return json.dumps({"insights": found, "shown": []})
    slip = next(slip for slip in SEEN if slip.file in prompt)
    told = LESSON in prompt or "That did not do yet" in prompt
    return block(slip.file, solution(slip.file) if told else slip.code)


class Builder:
    """The builder as a model client."""

    deterministic = True
    dialect: Dialect = "full"

    def __init__(self, cost: float | None = 0.001) -> None:
        self.name = "builder"
        self.cost = cost
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest) -> Reply:
        self.requests.append(request)
        return Reply(
            text=answer(request.text), model=self.name, input_tokens=50, output_tokens=10, cost=self.cost, finish="stop"
        )

    async def close(self) -> None:
        """There is nothing to give back."""


def over_http(body: dict[str, Any]) -> Answer:
    """The builder behind a server."""
    return completion(answer("\n\n".join(message["content"] for message in body["messages"])))
