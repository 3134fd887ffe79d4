"""Which steps, in which order: a directed acyclic graph of subtasks.

A subtask names those whose output it needs, and they stand before it. So a plan with a cycle cannot be written down, and the
order of the subtasks is one in which they can be done.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any

from journeyman.errors import PlanError


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


def _check_ids(subtasks: Sequence[Subtask]) -> None:
    seen: set[str] = set()
    for subtask in subtasks:
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
