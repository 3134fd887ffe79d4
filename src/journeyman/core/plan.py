"""Which steps, in which order: a directed acyclic graph of subtasks.

A subtask names those whose output it needs, and they stand before it. So a plan with a cycle cannot be written down, and the
order of the subtasks is one in which they can be done.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any

from journeyman.core.errors import PlanError
from journeyman.core.format import money, seconds
from journeyman.core.policy import Choice, Ending, Outcome
from journeyman.core.trace import Trace, total


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtask:
    """One step of a plan."""

    id: str
    text: str
    """What is to be done, as its worker is told."""
    type: str = "general"
    """What kind of work it is. Predictions of success are made by type."""
    tool: str = ""
    """The tool that does it; empty where a model answers."""
    worker: str = ""
    """Who does it; empty leaves that to the policy."""
    after: tuple[str, ...] = ()
    """Ids of the subtasks whose output it needs."""
    takes: tuple[str, ...] = ()
    """Types of what it must be handed, such as "image". What no earlier subtask gives must come with the instruction."""
    gives: tuple[str, ...] = ()
    """Types of what it hands on."""
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What a tool is called with."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be done for one instruction.

    Raises:
        PlanError: Two subtasks have one id, or one follows a subtask that does not stand before it.
    """

    instruction: str
    subtasks: tuple[Subtask, ...]

    def __post_init__(self) -> None:
        _check_ids(self.subtasks)
        seen: set[str] = set()
        for subtask in self.subtasks:
            if missing := [id for id in subtask.after if id not in seen]:
                raise PlanError(f"subtask {subtask.id!r} follows {missing[0]!r}, which does not stand before it")
            seen.add(subtask.id)

    @classmethod
    def of(cls, instruction: str, subtasks: Iterable[Subtask]) -> "Plan":
        """A plan of subtasks that come in any order; where it does not matter, theirs is kept.

        Raises:
            PlanError: They follow each other in a circle, or one follows a subtask that is not there.
        """
        found = list(subtasks)
        _check_ids(found)
        known = {subtask.id for subtask in found}
        for subtask in found:
            if missing := sorted(set(subtask.after) - known):
                raise PlanError(f"subtask {subtask.id!r} follows {missing[0]!r}, which is not in the plan")
        return cls(instruction=instruction, subtasks=tuple(_in_order(found)))

    @cached_property
    def by_id(self) -> Mapping[str, Subtask]:
        return {subtask.id: subtask for subtask in self.subtasks}

    @cached_property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """From each subtask to those that need its output."""
        return tuple((before, subtask.id) for subtask in self.subtasks for before in subtask.after)

    @property
    def adjacency(self) -> tuple[tuple[int, ...], ...]:
        """Row i, column j is 1 where subtask j needs the output of subtask i. Strictly upper triangular."""
        edges = set(self.edges)
        ids = [subtask.id for subtask in self.subtasks]
        return tuple(tuple(int((before, after) in edges) for after in ids) for before in ids)

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(subtask.type for subtask in self.subtasks)

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple(subtask.worker for subtask in self.subtasks)

    @property
    def is_chain(self) -> bool:
        """Whether each subtask but the first follows just the one before it."""
        return all(subtask.after == ((self.subtasks[at - 1].id,) if at else ()) for at, subtask in enumerate(self.subtasks))

    @property
    def ends(self) -> tuple[str, ...]:
        """Those whose output nobody in the plan needs: they are the answer."""
        needed = {before for before, _ in self.edges}
        return tuple(subtask.id for subtask in self.subtasks if subtask.id not in needed)

    @cached_property
    def levels(self) -> tuple[tuple[str, ...], ...]:
        """What can be done at the same time: each level needs only those before it."""
        depth: dict[str, int] = {}
        for subtask in self.subtasks:
            depth[subtask.id] = 1 + max((depth[id] for id in subtask.after), default=-1)
        rows = range(1 + max(depth.values(), default=-1))
        return tuple(tuple(id for id, at in depth.items() if at == row) for row in rows)

    def critical_path(self, weight: Callable[[Subtask], float] = lambda _: 1.0) -> float:
        """The largest sum of weights along a path: with seconds, how long the plan takes where nobody waits for a worker."""
        reached: dict[str, float] = {}
        for subtask in self.subtasks:
            reached[subtask.id] = weight(subtask) + max((reached[id] for id in subtask.after), default=0.0)
        return max(reached.values(), default=0.0)

    def below(self, id: str) -> frozenset[str]:
        """All that cannot be done without a subtask's output, directly or not."""
        found: set[str] = set()
        for subtask in self.subtasks:
            if subtask.id != id and not found.union((id,)).isdisjoint(subtask.after):
                found.add(subtask.id)
        return frozenset(found)

    def with_workers(self, workers: Sequence[str]) -> "Plan":
        """The same plan, done by others; one name for each subtask."""
        pairs = zip(self.subtasks, workers, strict=True)
        return replace(self, subtasks=tuple(replace(subtask, worker=worker) for subtask, worker in pairs))

    def with_texts(self, texts: Sequence[str]) -> "Plan":
        """The same plan, its steps told something else; one text for each subtask."""
        pairs = zip(self.subtasks, texts, strict=True)
        return replace(self, subtasks=tuple(replace(subtask, text=text) for subtask, text in pairs))


def _check_ids(subtasks: Sequence[Subtask]) -> None:
    seen: set[str] = set()
    for number, subtask in enumerate(subtasks, 1):
        if not subtask.id:
            raise PlanError(f"subtask {number} has an empty id; each needs one of its own")
        if subtask.id in seen:
            raise PlanError(f"two subtasks are called {subtask.id!r}; each needs an id of its own")
        seen.add(subtask.id)


def _in_order(subtasks: Sequence[Subtask]) -> list[Subtask]:
    places = {subtask.id: at for at, subtask in enumerate(subtasks)}
    sorter = TopologicalSorter({subtask.id: subtask.after for subtask in subtasks})
    try:
        sorter.prepare()
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        raise PlanError(f"the subtasks follow each other in a circle: {circle}") from error
    ordered: list[Subtask] = []
    ready = set(sorter.get_ready())
    while ready:
        # The first of those that can be next, so that an order which is possible already stays as it is.
        first = min(ready, key=lambda id: places[id])
        ready.remove(first)
        ordered.append(subtasks[places[first]])
        sorter.done(first)
        ready.update(sorter.get_ready())
    return ordered


# Plans as JSON: in files, in logs, on traces.
#
#     {"instruction": "…",
#      "subtasks": [{"id": "read", "text": "…"}, {"id": "sum", "text": "…", "after": ["read"], "worker": "…"}]}
#
# What is as it is by default is left out.

_TEXTS = ("id", "text", "type", "tool", "worker")
_LISTS = ("after", "takes", "gives")


def written(plan: Plan) -> dict[str, Any]:
    """The plan as a JSON object."""
    return {"instruction": plan.instruction, "subtasks": [_row(subtask) for subtask in plan.subtasks]}


def read(value: Any) -> Plan:
    """The plan that a JSON object tells of; its subtasks may come in any order.

    Raises:
        PlanError: It is none; the message names the subtask and field.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("instruction"), str):
        raise PlanError('a plan is an object with "instruction", a text, and "subtasks", a list')
    rows = value.get("subtasks")
    if not isinstance(rows, list | tuple):
        raise PlanError('subtasks: a plan has a list of objects with at least "id" and "text"')
    return Plan.of(value["instruction"], [_subtask(row, at) for at, row in enumerate(rows, start=1)])


def _row(subtask: Subtask) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for each in fields(Subtask):
        value = getattr(subtask, each.name)
        default = {} if each.default is MISSING else each.default
        if value != default:
            row[each.name] = dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
    return row


def _subtask(row: Any, number: int) -> Subtask:
    if not isinstance(row, Mapping):
        raise PlanError(f"subtask {number} is no object")
    where = f"subtask {row.get('id', number)!r}"
    if strange := set(row) - {field.name for field in fields(Subtask)}:
        raise PlanError(f"{where} has a field {min(map(str, strange))!r}, which no subtask has")
    for name in _TEXTS:
        if not isinstance(row.get(name, None if name in ("id", "text") else ""), str):
            raise PlanError(f"{where}: {name} is missing, or no text")
    for name in _LISTS:
        value = row.get(name, ())
        if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
            raise PlanError(f"{where}: {name} is no list of texts")
    if not isinstance(row.get("arguments", {}), Mapping):
        raise PlanError(f"{where}: arguments is no object")
    lists = {name: tuple(row[name]) for name in _LISTS if name in row}
    return Subtask(**{**row, **lists})


# What became of a plan: of each subtask, and of the whole.


class SubtaskState(StrEnum):
    """Where a subtask ended."""

    DONE = "done"
    """There is an output, and no check found it wrong."""
    FAILED = "failed"
    """It was tried, and nobody brought an output that could be used."""
    SKIPPED = "skipped"
    """It was never begun: what it needs is missing, nobody needs it any more, or the budget does not allow it."""
    CANCELLED = "cancelled"
    """It was under way when its output became useless, or when the time was up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One worker's go at a subtask."""

    worker: str
    outcome: Outcome
    """Cost and seconds are this try's alone."""
    choice: Choice
    """Why it was this worker, and with what probability."""
    started_at: datetime
    error: str | None = None
    """Why there is no output, or why it was not taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskResult:
    """What became of one subtask."""

    id: str
    state: SubtaskState
    output: Any = None
    """A text or any other JSON value; `None` where it was not done."""
    tries: tuple[Try, ...] = ()
    """Oldest first; none where it was skipped."""
    why: str | None = None
    """Why it was not done."""

    @property
    def worker(self) -> str:
        """Who did it, or tried last; empty where nobody did."""
        return self.tries[-1].worker if self.tries else ""

    @property
    def choice(self) -> Choice | None:
        """The decision that led to the last try."""
        return self.tries[-1].choice if self.tries else None

    @property
    def outcome(self) -> Outcome:
        """The last try's, with the cost, seconds and tokens of all of them. A subtask that was skipped cost nothing."""
        if not self.tries:
            return Outcome(ending=Ending.UNJUDGED, cost=0.0, seconds=0.0)
        parts = [each.outcome for each in self.tries]
        return Outcome(
            ending=parts[-1].ending,
            success=parts[-1].success,
            cost=total(part.cost for part in parts),
            seconds=total(part.seconds for part in parts),
            input_tokens=total(part.input_tokens for part in parts),
            output_tokens=total(part.output_tokens for part in parts),
        )

    def judged(self, right: bool | None) -> "SubtaskResult":
        """With a verdict on the last try; as it is where there is none, or nobody tried."""
        if right is None or not self.tries:
            return self
        *before, last = self.tries
        ending = Ending.RIGHT if right else Ending.WRONG
        last = replace(last, outcome=replace(last.outcome, success=float(right), ending=ending))
        return replace(self, tries=(*before, last))


@dataclass(frozen=True, kw_only=True)
class ExecutionResult:
    """What became of a plan."""

    plan: Plan
    """As it was in the end: another than the one that was begun where it was made anew on the way."""
    results: Mapping[str, SubtaskResult]
    """By the id of the subtask; also of those that a new plan no longer holds."""
    trace: Trace
    """One attempt: a step for each subtask, and below it the calls that were made for it."""
    success: bool | None
    """What the verifier said of the whole; `None` where nobody judged, and `False` where a part of the answer is missing."""
    total_latency_ms: float
    """Wall time from beginning to end."""
    error: str | None = None
    """Why a part of the answer is missing."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outputs(self) -> Mapping[str, Any]:
        """What each subtask that was done gave, by its id."""
        return {id: result.output for id, result in self.results.items() if result.state is SubtaskState.DONE}

    @property
    def answer(self) -> Any:
        """The output of the plan's one end, or of its several by their ids; `None` where one is missing."""
        outputs, ends = self.outputs, self.plan.ends
        if not ends or any(id not in outputs for id in ends):
            return None
        return outputs[ends[0]] if len(ends) == 1 else {id: outputs[id] for id in ends}

    @property
    def outcomes(self) -> Mapping[str, Outcome]:
        """What each subtask brought and cost, by its id."""
        return {id: result.outcome for id, result in self.results.items()}

    @property
    def total_cost(self) -> float | None:
        """US dollars of all tries; `None` as soon as one of them is not known."""
        return total(outcome.cost for outcome in self.outcomes.values())

    @property
    def critical_path_seconds(self) -> float | None:
        """How long it would have taken had nobody waited for a worker; `None` where a part of it was not measured."""
        outcomes = self.outcomes
        spent = {subtask.id: outcomes[subtask.id].seconds if subtask.id in outcomes else 0.0 for subtask in self.plan.subtasks}
        if any(seconds is None for seconds in spent.values()):
            return None
        return self.plan.critical_path(lambda subtask: spent[subtask.id] or 0.0)


# A plan as a text tree: which level a subtask is on, what it waits for, who does it, and what became of it.
#
# 1 ├─ read: Read the two reports  [reading] small            ✓ done     1.2 s  $0.0004
# 2 │  ├─ sum: Summarise each  [writing] large                ✓ done     4.1 s  $0.003
# 3 │  │  └─ mail: Send both  [sending] mailer  (after draw)  ✗ failed   80 ms  ?
# 2 │  └─ draw: Draw the trend  [code] sandbox                ✓ done     2.0 s  $0

MARKS: Mapping[SubtaskState, str] = {
    SubtaskState.DONE: "✓",
    SubtaskState.FAILED: "✗",
    SubtaskState.SKIPPED: "–",
    SubtaskState.CANCELLED: "◌",
}
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
