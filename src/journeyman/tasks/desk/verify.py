"""The desk's API: it takes a tool call or says what is wrong with it, every wrong field of it."""

import json
from collections.abc import Mapping, Sequence

from journeyman.score import Reward
from journeyman.task import Task
from journeyman.tasks.desk.world import ADDRESS
from journeyman.trace import Trace

ADDRESS_FIELDS = frozenset(value.write(None) for value in ADDRESS.values)  # type: ignore[arg-type]


class Desk:
    """Verifies a tool call field by field."""

    deterministic = True

    async def verify(self, task: Task, trace: Trace) -> Reward:
        wrong = faults(trace.reply, json.loads(task.answer))
        return Reward(name="desk", value=0.0 if wrong else 1.0, evidence="\n".join(wrong))

    async def grade(self, task: Task, trace: Trace) -> Reward:
        """The share of what had to be right that is: the call's name and each argument, its name and its value."""
        expected = json.loads(task.answer)
        wrong = faults(trace.reply, expected)
        return Reward(name="desk fields", value=_share(wrong, 1 + len(expected["arguments"])), evidence="\n".join(wrong))


def _share(wrong: Sequence[str], parts: int) -> float:
    if any(line.startswith("call:") for line in wrong):
        return 0.0
    # An argument under a wrong name and with a wrong value has two lines.
    return max(0.0, 1 - len(wrong) / (parts + 1))


def faults(reply: str, expected: Mapping[str, object]) -> list[str]:
    """What the API would answer, a line for each wrong field; nothing when the call is right."""
    try:
        call = json.loads(reply)
    except ValueError:
        return ["call: not a JSON object"]
    if not isinstance(call, dict) or not isinstance(call.get("arguments"), dict):
        return ["call: not a JSON object"]
    lines = []
    if call.get("name") != expected["name"]:
        lines.append(_differs("name", expected["name"], call.get("name")))
    return lines + compare(call["arguments"], expected["arguments"])  # type: ignore[arg-type]


def compare(got: Mapping[str, object], expected: Mapping[str, object]) -> list[str]:
    """The wrong fields of a call's arguments, in the order of the expected ones."""
    lines = []
    for field, value in expected.items():
        if field in got:
            if got[field] != value:
                lines.append(_differs(field, value, got[field]))
            continue
        if field in ADDRESS_FIELDS and (strange := [name for name in got if name in ADDRESS_FIELDS]):
            lines.append(f'{strange[0]}: unknown field, expected "{field}"')
            if got[strange[0]] != value:
                lines.append(_differs(field, value, got[strange[0]]))
            continue
        lines.append(f'{field}: missing, expected "{value}"')
    known = set(expected) | (ADDRESS_FIELDS if ADDRESS_FIELDS & set(expected) else frozenset())
    return lines + [f"{field}: unknown field" for field in got if field not in known]


def _differs(field: str, expected: object, got: object) -> str:
    return f'{field}: expected "{expected}", got "{got}"'
