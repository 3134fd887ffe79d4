"""Recorded traces full of personal data, and a reflector that repeats all of it."""

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from journeyman.core.trace import Message, ModelCall, ToolCall, Trace
from journeyman.models.base import Dialect, ModelRequest, Reply
from tests.optimizers.playbook.test_safeguards import planted
from tests.support.poison import START

ENUMS: Mapping[str, Sequence[str]] = {
    "cabin": ("basic economy", "economy", "premium economy", "business", "First Class"),
    "carrier": ("Royal Post", "Blue Dart", "DHL", "fedex_2day", "rail"),
    "speed": ("standard", "express", "same day", "overnight", "Next Morning"),
    "payment": ("Gift Card", "credit card", "PayPal", "invoice 30", "cash"),
}
"""What the tool declares: nobody's, however it is written."""
FREE = ("passenger", "mail", "phone", "card", "iban", "ssn", "street", "order_id", "user_id", "birth_date", "token", "callback")
TOOL = "book"
PARAMETERS = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in FREE}
    | {name: {"type": "string", "enum": list(values)} for name, values in ENUMS.items()},
}
_SYLLABLES = ("bdfgkl", "aeiou", "mnprst", "aeiou", "vzlrs", "aeiou")
TRACES, VALUES, CUSTOMERS = 200, 500, 100


def personal_traces(seed: int = 7, last: int = TRACES) -> tuple[list[Trace], list[str]]:
    """Traces of a booking desk, and the values that are planted in requests, arguments and answers."""
    values = [value for _, value in planted(seed, VALUES)]
    return [_trace(number, values) for number in range(last)], values


def _trace(number: int, values: Sequence[str]) -> Trace:
    # Two or three each, and no two traces share one.
    mine = values[number * 5 // 2 : (number + 1) * 5 // 2]
    name = list(ENUMS)[number % len(ENUMS)]
    first = values.index(mine[0]) % len(FREE)
    listed = ", ".join(f'"{value}"' for value in ENUMS[name])
    answers = (
        f'Error: {name}: expected one of {listed}, got "{mine[-1]}"',
        f"Error: no booking for {mine[-1]}, {name} is to be one of {listed}",
        f"Error: {re.sub(r'[^a-z_0-9]', '_', mine[-1].lower())}: unknown\n{name}: expected one of {listed}",
        f"Error: {mine[-1]} has no {name}",
    )
    chance = random.Random(number)
    # In words of his own, so that nobody's request is another's.
    story = " ".join("".join(chance.choice(pair) for pair in _SYLLABLES) for _ in range(14))
    asked = ModelCall(
        id=f"call-{number}",
        model="clerk",
        prompt="",
        reply="",
        messages=(Message(role="user", text=f"{story}, for {mine[0]}"),),
        raw={
            "dialect": "openai.chat",
            "request": {"user": f"customer-{number * CUSTOMERS // TRACES}"},
            "tools": [{"type": "function", "function": {"name": TOOL, "parameters": PARAMETERS}}],
            "base_url": "http://localhost/v1",
        },
    )
    used = ToolCall(
        id=f"tool-{number}",
        tool=TOOL,
        arguments=json.dumps({FREE[first]: mine[1], name: "other"}),
        result=answers[number // len(ENUMS) % len(answers)],
        ok=False,
        parent=asked.id,
    )
    return Trace(
        id=f"personal-{number}",
        task_id=f"booking-{number}",
        candidate_id="base",
        started_at=START + timedelta(minutes=number),
        steps=(asked, used),
        agent="desk",
        domain="travel",
        session=f"session-{number}",
        source="gateway",
    )


class Gossip:
    """Repeats every line of what it reads, every quotation in it, and what the tool declares. Implements `Model`."""

    name, deterministic = "gossip", True
    dialect: Dialect = "full"

    async def complete(self, request: ModelRequest) -> Reply:
        case = request.messages[1].content
        tool = next(iter(re.findall(r"^TOOL\n(\w+)", case, re.MULTILINE)), "")
        found = [
            f"{tool}: {line}"[:900] for line in case.splitlines() if line.startswith(("refused", "the tool", "the customer"))
        ]
        quoted = re.findall(r'"([^"\n]{3,80})"', case.replace('\\"', '"'))
        found += [f"{tool}: write {text} as the {FREE[at % len(FREE)]}." for at, text in enumerate(dict.fromkeys(quoted))]
        found += [f"{tool}: {name} is one of {', '.join(values)}." for name, values in ENUMS.items() if f"{name} " in case]
        insights = [{"verdict": "helpful", "content": text, "about": ""} for text in found if len(text) > 5]
        return Reply(text=json.dumps({"insights": insights, "shown": []}), model=self.name)

    async def close(self) -> None:
        """There is nothing to give back."""


class Silent:
    """Makes no call. Implements `Model`."""

    name, deterministic = "silent", True
    dialect: Dialect = "full"

    async def complete(self, request: ModelRequest) -> Reply:
        return Reply(text="I am sorry.", model=self.name)

    async def close(self) -> None:
        """There is nothing to give back."""


def leaked(values: Sequence[str], text: str) -> Iterator[str]:
    """The values that stand in a text, as they are or as JSON or a name of a field writes them."""
    folded = text.casefold()
    for value in values:
        ways = (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
        field = re.sub(r"[^a-z_0-9]", "_", value.lower())
        if any(way.casefold() in folded for way in ways) or (len(field) > 6 and field in folded):
            yield value


def kept_enums(text: str) -> float:
    """The share of what the tool declares that stands in a text."""
    all_values = [value for values in ENUMS.values() for value in values]
    return sum(value in text for value in all_values) / len(all_values)


def files_below(folder: Path) -> dict[str, str]:
    """What stands in the files of a folder, but for those of the store."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and ".db" not in path.name:
            found[str(path.relative_to(folder))] = path.read_text(encoding="utf-8", errors="replace")
    return found
