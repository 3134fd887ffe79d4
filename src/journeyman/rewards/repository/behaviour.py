"""Does a function still do what it did? It is called with what the tests call it with and with changes of that, old and new
each in a run of its own, and what came out is held side by side here."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from journeyman.rewards.repository.suite import reported
from journeyman.rewards.unit_tests import ended_by
from journeyman.sandbox.base import Sandbox
from journeyman.tasks.repository.tree import Tree

WANTED = 300
"""Inputs that are tried, where there are so many."""
FEWEST = 200
"""Inputs that must be comparable."""
_SECONDS = 90.0
_TOO_LONG = "too long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What a function did, input by input."""

    results: tuple[tuple[str, str, str], ...] = ()
    """The input, what came of it, and what the arguments were afterwards."""
    recorded: int = 0
    """How often the tests called it."""
    calls: tuple[Any, ...] = ()
    """Those of its calls that can be made again elsewhere, as `inside.workload` takes them."""
    broken: str = ""
    """Why there is nothing to tell; empty where there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A function, and how it is called."""

    path: str
    function: str
    """`name` or `Class.name`."""
    tests: tuple[str, ...]
    """Those that call it."""
    seed: int = 0
    """Decides what is changed of the arguments."""
    wanted: int = WANTED

    @classmethod
    def of(cls, measure: Mapping[str, Any], tests: Sequence[str]) -> "Target":
        return cls(path=measure["path"], function=measure["function"], tests=tuple(tests), seed=int(measure.get("seed", 0)))


async def behaviour(box: Sandbox, tree: Tree, target: Target, plugins: Sequence[str] = ()) -> Behaviour:
    """
    Raises:
        SandboxError: The sandbox itself failed.
    """
    asked = f"{list(target.tests)!r}, plugins={list(plugins)!r}, place={(target.path, target.function)!r}, "
    asked += f"seed={target.seed}, wanted={target.wanted}"
    outcome, told = await reported(box, tree, "recorded", asked, seconds=_SECONDS)
    if not outcome.ok or len(told) != 1:
        return Behaviour(broken=f"trying it came to no end: {ended_by(outcome)}\n{outcome.stderr[-500:]}".strip())
    try:
        found = json.loads(told[0])
        results = tuple((str(given), str(gave), str(after)) for given, gave, after in found["results"])
        return Behaviour(results=results, recorded=int(found["recorded"]), calls=tuple(found["calls"]))
    except (ValueError, TypeError, KeyError):
        return Behaviour(broken="what was tried was not told")


def comparable(old: Behaviour) -> int:
    """How many inputs came to an end."""
    return sum(gave != _TOO_LONG for _, gave, _ in old.results)


def differing(old: Behaviour, new: Behaviour) -> str:
    """Where the two are not the same; empty where they are."""
    if new.broken:
        return new.broken
    if [given for given, _, _ in old.results] != [given for given, _, _ in new.results]:
        return "the tests do not call it as they did"
    late = 0
    for (given, was, before), (_, became, after) in zip(old.results, new.results, strict=True):
        if _TOO_LONG in (was, became):
            late += was != became
        elif was != became:
            return f"with {given} it was {was[:200]}, and is {became[:200]}"
        elif before != after:
            return f"with {given} what it leaves behind was {before[:200]}, and is {after[:200]}"
    return f"{late} inputs take longer or shorter than they did" if late > len(old.results) // 20 else ""
