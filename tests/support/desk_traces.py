"""Orders of the desk, recorded as a gateway would: what the clerk was told, his call, and what the shop's API said of it.

`KnownClerk` is asked at once and for certain, where the embedded model is not the point: as the clerk he follows the rules that
he is told, and as the reflector he writes the rule behind an error message.
"""

import asyncio
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache

from journeyman.agents.answer import strategies, terse_rules
from journeyman.core.playbook import Playbook
from journeyman.core.task import Split
from journeyman.core.trace import Message, ModelCall, ToolCall, Trace
from journeyman.models.base import ModelRequest, PromptMessage, Reply
from journeyman.tasks.desk.customers import FIELDS, NAMES
from journeyman.tasks.desk.world import (
    ADDRESS,
    ADDRESS_FIELDS,
    CONVENTIONS,
    SHOPS,
    TOWNS,
    House,
    Utterance,
    call,
    faults,
    say,
)
from tests.support.clerk import KnownOrders

CLERK = "tests.support.desk_traces:KnownClerk"
"""As after `--model`."""
_FAULT = re.compile(r'(\w+): (?:unknown field, )?(?:missing, )?expected "([^"]*)"')
_SHAPES: Mapping[str, Sequence[str]] = {
    "skus": (),
    "amounts": (r"\d+", r"\d{3}", r"\d+ pcs", r"x\d+"),
    "cities": (r"[A-Z][a-z]+", r"[a-z]+", r"[A-Z]{4,}", r"[A-Z]{3}"),
    "dates": (r"\d{4}-\d\d-\d\d", r"\d\d\.\d\d\.\d{4}", r"\d\d/\d\d/\d{4}", r"\d+-[a-z]{3}"),
    "prices": (r"\d+\.\d\d", r"\d+", r"\d+,\d\d", r"\d+\.\d\d EUR"),
    "rush": ("yes|no", "true|false", "high|low", "1|0"),
}
"""How a value of each convention looks."""
_COLORS = "blue|red|green|white|black|yellow|grey|brown|pink|orange"
_SKUS = (rf"[a-z]+-({_COLORS})", rf"({_COLORS})-[a-z]+", r"[a-z]+/[a-z]+", r"[a-z]+\.[a-z]+")


class KnownClerk(KnownOrders):
    """Knows what each customer wants, and what each error message means. Implements `Model`."""

    name = "known-clerk"

    def __init__(self) -> None:
        super().__init__(each=600)

    async def complete(self, request: ModelRequest) -> Reply:
        if request.messages[0].content != "reflect":
            return await super().complete(request)
        lines = request.messages[1].content.splitlines()[1:]
        rules = dict.fromkeys(rule for line in lines if (rule := rule_behind(line)))
        return Reply(text="\n".join(f"- {rule}" for rule in rules) or "- none", model=self.name)


class ClauseClerk(KnownClerk):
    """Obeys each clause of a rule by itself. Implements `Model`."""

    name = "clause-clerk"

    async def complete(self, request: ModelRequest) -> Reply:
        told, *rest = request.messages
        clauses = replace(told, content=told.content.replace("; ", "\n- "))
        return await super().complete(replace(request, messages=(clauses, *rest)))


def rule_behind(fault: str) -> str:
    """The rule that a line of the API's answer follows from; empty where there is none."""
    found = _FAULT.match(fault)
    if found is None:
        return ""
    field, value = found.groups()
    if "unknown field" in fault:
        return next(each.rules[0] for each in ADDRESS.values if each.write(None) == value)  # type: ignore[arg-type]
    convention = TOWNS if field in ADDRESS_FIELDS else next((c for c in CONVENTIONS if c.field == field), None)
    if convention is None:
        return ""
    shapes = _SKUS if convention.about == "skus" else _SHAPES[convention.about]
    # Three digits are a plain number, too: the narrowest shape that fits is meant.
    places = [at for at, shape in enumerate(shapes) if re.fullmatch(shape, value)]
    return convention.values[places[-1]].rules[0] if places else ""


@cache
def orders(shop: str, count: int = 600) -> tuple[Utterance, ...]:
    """What customers say, as `KnownOrders` knows it."""
    chance = random.Random(f"0 {shop} {Split.TRAIN}")
    return tuple(say(chance, Split.TRAIN) for _ in range(count))


def recorded(
    shop: str,
    first: int,
    count: int,
    *,
    playbook: Playbook | None = None,
    house: House | None = None,
    customers: int = 25,
    start: datetime | None = None,
) -> list[Trace]:
    """Traces of some orders, a minute apart.

    Args:
        first: The place of the first order.
        playbook: What the clerk is told; its bullets of the shop stand in his prompt.
        house: The shop's conventions, where they are no longer those of before.
    """
    start = start or datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)
    return asyncio.run(_recorded(shop, range(first, first + count), playbook or Playbook(), house, customers, start))


async def _recorded(
    shop: str, places: range, playbook: Playbook, house: House | None, customers: int, start: datetime
) -> list[Trace]:
    clerk, told = KnownClerk(), playbook.of(shop)
    rules = [bullet.content for bullet in told]
    system = "You are the clerk." + (f"\n\n{strategies(told)}" if told else "")
    schema = {"type": "object", "properties": {field: {"type": "string"} for field in FIELDS}}
    tools = [{"type": "function", "function": {"name": name, "parameters": schema}} for name in NAMES]
    found = []
    for place in places:
        said = orders(shop)[place]
        prompt = (PromptMessage("system", terse_rules(rules)), PromptMessage("user", said.sentence))
        reply = json.loads((await clerk.complete(ModelRequest(messages=prompt))).text)
        wrong = faults(json.dumps(reply), call(said.order, house or SHOPS[shop]))
        asked = ModelCall(
            id=f"call-{place}",
            model=CLERK,
            prompt="",
            reply="",
            messages=(Message(role="system", text=system), Message(role="user", text=said.sentence)),
            shown=tuple(bullet.id for bullet in told),
            raw={
                "dialect": "openai.chat",
                "request": {"user": f"customer-{place % customers}", "tools": len(tools)},
                "tools": tools,
            },
        )
        used = ToolCall(
            id=f"tool-{place}",
            parent=asked.id,
            tool=reply["name"],
            arguments=json.dumps(reply["arguments"]),
            result="Error: " + "\n".join(wrong) if wrong else "OK",
            ok=not wrong,
        )
        found.append(
            Trace(
                id=f"{shop}-{place:04d}",
                task_id=f"order-{place}",
                candidate_id="base",
                started_at=start + timedelta(minutes=place),
                steps=(asked, used),
                agent="desk",
                domain=shop,
                session=f"{shop}-session-{place}",
                source="gateway",
            )
        )
    return found


def went_well(traces: Sequence[Trace]) -> float:
    """The share of orders that the shop took."""
    return sum(all(step.ok for step in trace.tool_calls) for trace in traces) / len(traces)
