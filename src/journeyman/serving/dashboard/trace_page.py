"""The page of one trace, and what a person says of it."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from itertools import pairwise

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from journeyman.core import plan as plan_json
from journeyman.core.errors import InputError, PlanError, StoreError
from journeyman.core.plan import MARKS, Plan, Subtask, SubtaskState
from journeyman.core.reward import Reward
from journeyman.core.trace import AgentCall, Message, ModelCall, Reasoning, Step, ToolCall, Trace, walk
from journeyman.serving.dashboard.layout import (
    PageRefused,
    PageRenderer,
    filters_of,
    id_of,
    local,
    money,
    name,
    one_line,
    query_of,
    seconds,
)
from journeyman.stores.traces.base import Given, Query, TraceStore
from journeyman.stores.traces.labels import said as words_of
from journeyman.tracing.base import NO_TIME

# A trace as it is read: what was said and done in its order, and when.

SHALLOW = 8
"""Levels of the tree that are set in; deeper ones stand below each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """When a step ran, in per cent of the trace's time."""

    left: float
    width: float
    known: bool
    """Whether it is known how long it took; else the bar is a mark where it began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """A step as the page shows it."""

    number: int
    """Its place in `Trace.steps`, from 1."""
    depth: int
    kind: str
    """"model", "tool", "reasoning" or "agent"."""
    name: str
    step: Step
    said: tuple[Message, ...]
    """Of a model call, what was new to the model and is not shown elsewhere on the page."""
    failed: bool
    gist: str
    """TracePage line for where the step is folded."""
    bar: Bar | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """A reward, and who gave it."""

    reward: Reward
    by: str | None
    """`None` is the recorder."""
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceView:
    """A trace, laid out."""

    trace: Trace
    blocks: tuple[StepView, ...]
    left_out: int
    """Steps past those that were asked for."""
    asked: str | None
    """What was asked, where no message says it."""
    answered: str | None
    """What was answered, where no reply says it."""
    seconds: float | None
    tool_failures: int


def read(trace: Trace, *, most: int) -> TraceView:
    """Lay out a trace, of its steps the first `most`."""
    order = list(walk(trace.steps))
    places = {id(step): place for place, step in enumerate(trace.steps, start=1)}
    axis = _axis(trace)
    answers = frozenset(step.id for step in trace.tool_calls if step.id)
    blocks = [_block(step, depth, places[id(step)], answers, axis) for depth, step in order[:most]]
    said = {message.text.strip() for call in trace.calls for message in call.messages}
    prompts = {call.prompt.strip() for call in trace.calls if not call.messages}
    replies = {call.reply.strip() for call in trace.calls}
    asked, answered = (trace.input or "").strip(), (trace.output or "").strip()
    return TraceView(
        trace=trace,
        blocks=tuple(blocks),
        left_out=max(0, len(order) - most),
        asked=trace.input if asked and asked not in said | prompts else None,
        answered=trace.output if answered and answered not in replies else None,
        seconds=trace.seconds if trace.seconds is not None else axis[1] if axis else None,
        tool_failures=sum(not call.ok for call in trace.tool_calls),
    )


def worth(trace: Trace, given: Sequence[Given]) -> list[Worth]:
    """The trace's rewards, each with who gave it last."""
    by_name: Mapping[str, Given] = {each.reward.name: each for each in given}
    return [
        Worth(reward=reward, by=found.by, at=found.at)
        if (found := by_name.get(reward.name)) and found.reward == reward
        else Worth(reward=reward, by=None, at=None)
        for reward in trace.rewards
    ]


Axis = tuple[datetime, float]
"""When it began, and how many seconds it took."""


def _axis(trace: Trace) -> Axis | None:
    """The time that the bars are drawn in; `None` where no step has a time."""
    begun = [(step.started_at, step.seconds or 0.0) for step in trace.steps if step.started_at not in (None, NO_TIME)]
    known = [(at, seconds) for at, seconds in begun if at is not None]
    if not known:
        return None
    first = min(at for at, _ in known)
    last = max(at + timedelta(seconds=min(max(seconds, 0.0), 1e9)) for at, seconds in known)
    return first, (last - first).total_seconds()


def _bar(step: Step, axis: Axis | None) -> Bar | None:
    if axis is None or step.started_at is None:
        return None
    begun, whole = axis
    if whole <= 0:
        return Bar(left=0, width=100, known=step.seconds is not None)
    left = min(100.0, max(0.0, 100 * (step.started_at - begun).total_seconds() / whole))
    width = min(100 - left, 100 * (step.seconds or 0.0) / whole)
    # A step of a blink is still to be seen, and clicked.
    width = max(width, 0.8)
    return Bar(left=round(min(left, 100 - width), 2), width=round(width, 2), known=step.seconds is not None)


def _block(step: Step, depth: int, number: int, answers: frozenset[str], axis: Axis | None) -> StepView:
    kind, name, gist, failed = _summary(step)
    said: tuple[Message, ...] = ()
    if isinstance(step, ModelCall):
        # A tool's answer stands with the tool's call.
        said = tuple(message for message in step.messages if message.answers is None or message.answers not in answers)
    return StepView(
        number=number,
        depth=min(depth, SHALLOW),
        kind=kind,
        name=name,
        step=step,
        said=said,
        failed=failed,
        gist=gist,
        bar=_bar(step, axis),
    )


def _summary(step: Step) -> tuple[str, str, str, bool]:
    match step:
        case ModelCall():
            return "model", step.model or "a model", one_line(step.reply), step.error is not None
        case ToolCall():
            return "tool", step.tool or "a tool", one_line(step.arguments, 90), not step.ok or step.error is not None
        case Reasoning():
            return "reasoning", "reasoning", one_line(step.text), False
        case AgentCall():
            return "agent", step.agent or "an agent", one_line(step.input), step.error is not None


# The plan of a trace as a graph: levels from left to right, drawn here as SVG.
#
# The layout is Sugiyama's, in its simplest form: long edges get a place on each level they cross, and what stands on a level is
# ordered by the middle of its neighbours, back and forth.

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
        (_path(way, spots), states[before] == SubtaskState.DONE and states[after] != SubtaskState.SKIPPED)
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
    if (state := step.raw.get("state")) in list(SubtaskState):
        return str(state)
    if step.error is not None:
        return str(SubtaskState.FAILED)
    brought = step.output if isinstance(step, AgentCall) else step.reply
    return str(SubtaskState.DONE) if brought else "planned"


def _box(subtask: Subtask, spot: tuple[float, float], state: str, told: tuple[int, Step] | None) -> Box:
    number, step = told if told else (None, None)
    cost = getattr(step, "cost", None) if isinstance(step, ModelCall) else step.raw.get("cost") if step else None
    cost = cost if isinstance(cost, int | float) and not isinstance(cost, bool) else None
    took = step.seconds if step else None
    ran = step is not None and state not in (SubtaskState.SKIPPED, "planned")
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


STEPS = 200
"""Shown at first."""
CHARACTERS = 6_000
"""Of one text, shown at first."""
GONE = "There is no such trace, or it was pruned."
_WORDS = {"yes": True, "no": False, "clear": None}


class TracePage:
    """The handlers of these addresses."""

    def __init__(self, store: TraceStore, frame: PageRenderer, who: str) -> None:
        self._store = store
        self._frame = frame
        self._who = who

    def trace(self, request: Request, fields: Mapping[str, str]) -> Response:
        """One trace. `show` names a text that is wanted whole, `steps=all` wants every step, and the filters say in which list
        the next and the previous one are looked up."""
        id = id_of(request.path_params["name"])
        trace, line = self._store.get(id), self._store.line(id)
        if trace is None or line is None:
            raise PageRefused(HTTPStatus.NOT_FOUND, GONE)
        typed = filters_of(fields)
        newer, older = self._neighbours(id, typed)
        every = fields.get("steps") == "all"
        return self._frame.page(
            "trace.html",
            title=trace.query[:80] or "Trace",
            trace=trace,
            reading=read(trace, most=len(trace.steps) if every else STEPS),
            worth=worth(trace, self._store.rewards(id)),
            plan=graph(trace),
            labels=self._store.labels(id),
            good=line.label,
            by=line.labelled_by,
            newer=newer,
            older=older,
            typed=typed,
            every=every,
            show=fields.get("show", ""),
            most=CHARACTERS,
        )

    def _neighbours(self, id: str, typed: Mapping[str, str]) -> tuple[str | None, str | None]:
        try:
            return self._store.neighbours(id, query_of(typed, datetime.now(UTC)))
        except InputError:
            return self._store.neighbours(id, Query())

    def label(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Add this person's word, or with `undo` the one from before. A script gets the new buttons and a note with a way back;
        without one, the browser goes back to where the form was."""
        id = id_of(fields.get("trace", ""))
        said = fields.get("good", fields.get("undo", ""))
        if said not in _WORDS:
            raise InputError("good: a label is yes, no or clear")
        before = words_of(self._store.labels(id)).get(self._who, {}).get(id)
        try:
            self._store.label(id, _WORDS[said], who=self._who, at=datetime.now(UTC))
        except StoreError:
            if self._store.get(id) is None:
                raise PageRefused(HTTPStatus.NOT_FOUND, GONE) from None
            raise
        if "hx-request" not in request.headers:
            return RedirectResponse(local(fields.get("back", "/traces/" + name(id))), status_code=HTTPStatus.SEE_OTHER)
        line = self._store.line(id)
        good, by = (line.label, line.labelled_by) if line is not None else (None, None)
        undo = None if "undo" in fields else {True: "yes", False: "no", None: "clear"}[before]
        return self._frame.page("labelled.html", id=id, good=good, by=by, said=_WORDS[said], undo=undo, typed={})
