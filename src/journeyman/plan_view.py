"""A plan as a text tree: which level a subtask is on, what it waits for, who does it, and what became of it.

1 ├─ read: Read the two reports  [reading] small            ✓ done     1.2 s  $0.0004
2 │  ├─ sum: Summarise each  [writing] large                ✓ done     4.1 s  $0.003
3 │  │  └─ mail: Send both  [sending] mailer  (after draw)  ✗ failed   80 ms  ?
2 │  └─ draw: Draw the trend  [code] sandbox                ✓ done     2.0 s  $0
"""

from collections.abc import Iterator, Mapping

from journeyman.plan import Plan, Subtask
from journeyman.plan_result import State, SubtaskResult
from journeyman.quantities import money, seconds

MARKS: Mapping[State, str] = {State.DONE: "✓", State.FAILED: "✗", State.SKIPPED: "–", State.CANCELLED: "◌"}
_LEAST = 24
"""Characters that a subtask's text has at least, however deep it stands."""


def tree(plan: Plan, results: Mapping[str, SubtaskResult] | None = None, *, width: int = 110) -> str:
    """One line for each subtask, below the deepest of those that it waits for; the others are named behind it.

    Args:
        results: What became of them, as `ExecutionResult.results`; without, the plan alone is shown.
        width: Characters of a line at most; texts are shortened to it.
    """
    levels = {id: str(number) for number, ids in enumerate(plan.levels, start=1) for id in ids}
    room = max((len(number) for number in levels.values()), default=1)
    found = results or {}
    ends = {subtask.id: _ended(subtask, found.get(subtask.id)) for subtask in plan.subtasks} if results is not None else {}
    tail = max(map(len, ends.values()), default=-2) + 2
    left = [
        (subtask, f"{levels[subtask.id]:>{room}} {branch}", _behind(subtask, above)) for branch, subtask, above in _walk(plan)
    ]
    lines = []
    for subtask, before, behind in left:
        most = max(_LEAST, width - len(before) - len(behind) - tail)
        lines.append((before + _short(f"{subtask.id}: {subtask.text}", most) + behind, ends.get(subtask.id, "")))
    column = max((len(line) for line, _ in lines), default=0) + 2
    why = {subtask.id: found[subtask.id].why for subtask in plan.subtasks if subtask.id in found}
    shown = [f"{line:<{column}}{end}".rstrip() for line, end in lines]
    told = [f"{id}: {reason}" for id, reason in why.items() if reason]
    return "\n".join([_short(plan.instruction, width), *shown, *told])


def _walk(plan: Plan) -> Iterator[tuple[str, Subtask, str]]:
    """The branch that leads to each subtask, the subtask, and the id of the one above it."""
    order = {id: at for at, id in enumerate(id for level in plan.levels for id in level)}
    below: dict[str, list[Subtask]] = {}
    for subtask in plan.subtasks:
        below.setdefault(max(subtask.after, key=order.__getitem__, default=""), []).append(subtask)
    stack = [(each, "", each is below[""][-1], "") for each in reversed(below.get("", []))]
    while stack:
        subtask, lead, last, above = stack.pop()
        yield lead + ("└─ " if last else "├─ "), subtask, above
        children = below.get(subtask.id, [])
        inner = lead + ("   " if last else "│  ")
        stack += [(child, inner, child is children[-1], subtask.id) for child in reversed(children)]


def _behind(subtask: Subtask, above: str) -> str:
    others = [id for id in subtask.after if id != above]
    who = subtask.worker or subtask.tool
    parts = [f"  [{subtask.type}]", f" {who}" if who else "", f"  (after {', '.join(others)})" if others else ""]
    return "".join(parts)


def _ended(subtask: Subtask, result: SubtaskResult | None) -> str:
    if result is None:
        return ""
    outcome = result.outcome
    tries = f"  {len(result.tries)} tries" if len(result.tries) > 1 else ""
    by = f"  by {result.worker}" if result.worker != (subtask.worker or subtask.tool) else ""
    said = f"{MARKS[result.state]} {result.state:<9} {seconds(outcome.seconds):>8}  {money(outcome.cost)}{by}{tries}"
    return said if result.tries else f"{MARKS[result.state]} {result.state}"


def _short(text: str, most: int) -> str:
    # What a terminal would obey, such as an escape sequence, is shown as a mark.
    folded = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in " ".join(text.split()))
    return folded if len(folded) <= most else folded[: most - 1].rstrip() + "…"
