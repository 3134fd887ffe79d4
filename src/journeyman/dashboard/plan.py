"""The plan of a trace as a graph: levels from left to right, drawn here as SVG.

The layout is Sugiyama's, in its simplest form: long edges get a place on each level they cross, and what stands on a level is
ordered by the middle of its neighbours, back and forth.
"""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from journeyman import plan_json
from journeyman.dashboard.words import money, one_line, seconds
from journeyman.errors import PlanError
from journeyman.plan import Plan, Subtask
from journeyman.plan_result import State
from journeyman.plan_view import MARKS
from journeyman.trace import AgentCall, ModelCall, Step, Trace

MOST = 150
"""Subtasks of a plan that is drawn; a larger one would be no picture."""
WIDTH, HEIGHT = 188, 66
"""Of a box."""
_GAP_X, _GAP_Y, _EDGE = 44, 14, 12
"""Between levels, between rows, and the height of an edge that passes by."""
_LETTERS = 23
"""Of a line in a box."""
_SWEEPS = 4
_MOST_SPOTS = 3000
"""Of all edges together: whoever wrote the trace decides how many there are."""

_Spot = str | tuple[str, str, int]
"""A subtask by its id, or a place that the edge between two of them has on a level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A subtask in the graph."""

    x: float
    y: float
    lines: tuple[str, ...]
    """What is to be done, in one line or two."""
    below: str
    """Who does it, and what it took."""
    state: str
    """A `State`, or "planned" where nobody knows what became of it."""
    mark: str
    says: str
    """All of it, for whoever points at it or has it read out."""
    step: int | None
    """The number of the step that tells of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    width: float
    height: float
    boxes: tuple[Box, ...]
    edges: tuple[tuple[str, bool], ...]
    """Paths, and whether an output went along."""
    says: str
    box: tuple[int, int] = (WIDTH, HEIGHT)


def graph(trace: Trace) -> Graph | None:
    """The graph; `None` where the trace tells of no plan, or of one that is too large to be drawn."""
    found = _plan(trace)
    if found is None or not found.subtasks or len(found.subtasks) > MOST:
        return None
    ways = _ways(found)
    if sum(map(len, ways.values())) > _MOST_SPOTS:
        return None
    told: dict[str, tuple[int, Step]] = {}
    for number, step in enumerate(trace.steps, start=1):
        told.setdefault(_id(step), (number, step))
    levels = _ordered(found, ways)
    spots = _places(levels)
    states = {subtask.id: _state(told.get(subtask.id)) for subtask in found.subtasks}
    boxes = tuple(_box(subtask, spots[subtask.id], states[subtask.id], told.get(subtask.id)) for subtask in found.subtasks)
    edges = tuple(
        (_path(way, spots), states[before] == State.DONE and states[after] != State.SKIPPED)
        for (before, after), way in ways.items()
    )
    counted = [f"{list(states.values()).count(state)} {state}" for state in dict.fromkeys(states.values())]
    return Graph(
        width=len(levels) * (WIDTH + _GAP_X) - _GAP_X + 2,
        height=max(y for _, y in spots.values()) + HEIGHT / 2 + 1,
        boxes=boxes,
        edges=edges,
        says=f"{_several(len(boxes), 'subtask')} on {_several(len(levels), 'level')}: {', '.join(counted)}",
    )


def _id(step: Step) -> str:
    id = step.raw.get("subtask")
    return id if isinstance(id, str) else ""


def _plan(trace: Trace) -> Plan | None:
    """As the trace holds it, or as its steps tell what they followed."""
    given = trace.raw.get("plan")
    try:
        if isinstance(given, Mapping):
            rows = given.get("subtasks")
            return plan_json.read(given) if isinstance(rows, Sequence) and len(rows) <= MOST else None
        steps = [step for step in trace.steps if isinstance(step, AgentCall) and _id(step)][: MOST + 1]
        return Plan.of(trace.query, [_subtask(step) for step in steps])
    except PlanError:
        return None


def _subtask(step: AgentCall) -> Subtask:
    after = step.raw.get("after")
    return Subtask(
        id=_id(step),
        text=step.input,
        type=str(step.raw.get("type", "general")),
        worker=step.agent,
        after=tuple(map(str, after)) if isinstance(after, list | tuple) else (),
    )


def _ways(plan: Plan) -> Mapping[tuple[str, str], list[_Spot]]:
    """The spots that each edge passes, from its first subtask to its last."""
    depth = {id: at for at, ids in enumerate(plan.levels) for id in ids}
    return {
        (before, after): [before, *((before, after, at) for at in range(depth[before] + 1, depth[after])), after]
        for before, after in plan.edges
    }


def _ordered(plan: Plan, ways: Mapping[tuple[str, str], Sequence[_Spot]]) -> list[list[_Spot]]:
    """Who stands on which level, in an order in which few edges cross."""
    levels: list[list[_Spot]] = [list(ids) for ids in plan.levels]
    links: dict[_Spot, list[_Spot]] = {}
    for way in ways.values():
        for spot in way:
            if isinstance(spot, tuple):
                levels[spot[2]].append(spot)
        for one, other in pairwise(way):
            links.setdefault(one, []).append(other)
            links.setdefault(other, []).append(one)
    for sweep in range(_SWEEPS):
        rows = range(1, len(levels)) if sweep % 2 == 0 else range(len(levels) - 2, -1, -1)
        for row in rows:
            beside = levels[row - 1 if sweep % 2 == 0 else row + 1]
            places = {spot: at / max(1, len(beside) - 1) for at, spot in enumerate(beside)}
            levels[row] = _by_middle(levels[row], places, links)
    return levels


def _by_middle(level: Sequence[_Spot], places: Mapping[_Spot, float], links: Mapping[_Spot, Sequence[_Spot]]) -> list[_Spot]:
    def middle(at: int, spot: _Spot) -> float:
        near = [places[each] for each in links.get(spot, ()) if each in places]
        # Who has no neighbour there stays about where it is.
        return sum(near) / len(near) if near else at / max(1, len(level) - 1)

    keys = {spot: middle(at, spot) for at, spot in enumerate(level)}
    return sorted(level, key=keys.__getitem__)


def _places(levels: Sequence[Sequence[_Spot]]) -> Mapping[_Spot, tuple[float, float]]:
    """The left end and the middle of each spot's height; every level is centred."""
    sizes = [[HEIGHT if isinstance(spot, str) else _EDGE for spot in level] for level in levels]
    heights = [sum(size) + _GAP_Y * (len(size) - 1) for size in sizes]
    spots: dict[_Spot, tuple[float, float]] = {}
    for column, (level, size, height) in enumerate(zip(levels, sizes, heights, strict=True)):
        top = 1 + (max(heights) - height) / 2
        for spot, tall in zip(level, size, strict=True):
            spots[spot] = (1 + column * (WIDTH + _GAP_X), top + tall / 2)
            top += tall + _GAP_Y
    return spots


def _path(way: Sequence[_Spot], spots: Mapping[_Spot, tuple[float, float]]) -> str:
    """From the right end of one box to the left end of another, past those between."""
    x, y = spots[way[0]]
    x += WIDTH
    parts = [f"M{x:g} {y:g}"]
    for spot in way[1:]:
        to_x, to_y = spots[spot]
        parts.append(f"C{x + _GAP_X / 2:g} {y:g} {to_x - _GAP_X / 2:g} {to_y:g} {to_x:g} {to_y:g}")
        x, y = to_x, to_y
        if isinstance(spot, tuple):
            x += WIDTH
            parts.append(f"H{x:g}")
    return "".join(parts)


def _state(told: tuple[int, Step] | None) -> str:
    """As its step says; where that says nothing, by whether there is an error or an output."""
    step = told[1] if told else None
    if not isinstance(step, AgentCall | ModelCall):
        return "planned"
    if (state := step.raw.get("state")) in list(State):
        return str(state)
    if step.error is not None:
        return str(State.FAILED)
    brought = step.output if isinstance(step, AgentCall) else step.reply
    return str(State.DONE) if brought else "planned"


def _box(subtask: Subtask, spot: tuple[float, float], state: str, told: tuple[int, Step] | None) -> Box:
    number, step = told if told else (None, None)
    cost = getattr(step, "cost", None) if isinstance(step, ModelCall) else step.raw.get("cost") if step else None
    cost = cost if isinstance(cost, int | float) and not isinstance(cost, bool) else None
    took = step.seconds if step else None
    ran = step is not None and state not in (State.SKIPPED, "planned")
    who = _who(subtask, step)
    error = getattr(step, "error", None)
    facts = [
        f"took {seconds(took)}" if took is not None else "time unknown",
        f"cost {money(cost)}" if cost is not None else "cost unknown",
    ]
    return Box(
        x=spot[0],
        y=round(spot[1] - HEIGHT / 2, 2),
        lines=_lines(subtask.text or subtask.id),
        below=" · ".join([who, *([seconds(took), money(cost)] if ran else [])]),
        state=state,
        mark=next((mark for each, mark in MARKS.items() if each == state), ""),
        says=_sentence(
            [f"{subtask.id}: {one_line(subtask.text, 200)}", state, f"by {who}", subtask.type, *(facts if ran else []), error]
        ),
        step=number,
    )


def _lines(text: str) -> tuple[str, ...]:
    return tuple(textwrap.wrap(one_line(text, 200), _LETTERS, max_lines=2, placeholder="…"))


def _who(subtask: Subtask, step: Step | None) -> str:
    did = step.agent if isinstance(step, AgentCall) else step.model if isinstance(step, ModelCall) else ""
    return one_line(did or subtask.worker or subtask.tool or "nobody yet", 40)


def _several(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def _sentence(parts: Iterable[str | None]) -> str:
    return "; ".join(one_line(part, 200) for part in parts if part)
