"""Execution logs become training data: what was planned, and what it brought."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from journeyman.capture.execution_log import read_executions
from journeyman.capture.executions import LoggedExecution
from journeyman.capture.files.source import Problem
from journeyman.errors import InputError
from journeyman.learn.planner.base import Example
from journeyman.learn.planner.cards import type_card
from journeyman.learn.planner.data import TrainingData
from journeyman.plan import Plan
from journeyman.policy import Card


@dataclass(kw_only=True)
class PreparedExamples:
    """What the logs gave, and what they did not."""

    data: TrainingData = field(default_factory=lambda: TrainingData(examples=()))
    lines: int = 0
    succeeded: int = 0
    failed: int = 0
    unjudged: int = 0
    held_out: int = 0
    """Left out: nobody may learn from them."""
    without_plan: int = 0
    """Left out: the line does not hold one, or one that nobody could carry out."""
    left_out: int = 0
    """Failures, where only successes were asked for."""
    problems: tuple[Problem, ...] = ()
    """Places that could not be read."""

    def json(self) -> dict[str, Any]:
        known = ("lines", "succeeded", "failed", "unjudged", "held_out", "without_plan", "left_out")
        return {
            "examples": len(self.data.examples),
            **{name: getattr(self, name) for name in known},
            "task_types": [card.name for card in self.data.task_types],
            "models": [card.name for card in self.data.models],
            "tools": [card.name for card in self.data.tools],
            "problems": [str(problem) for problem in self.problems],
        }


def prepare(paths: Sequence[Path], *, cards: Iterable[Card] = (), only_success: bool = False) -> PreparedExamples:
    """Training data from the logs in files and folders, in the order in which they stand there.

    Args:
        cards: What is known of tools, kinds of work and models; a log holds their names alone.
        only_success: Leave failures out. Otherwise they are kept with what they brought, and training gives them no weight.

    Raises:
        InputError: There are no logs, or nothing in them that can be learned from.
    """
    made = PreparedExamples()
    problems: list[Problem] = []
    examples: list[Example] = []
    for path in paths:
        for found in read_executions(path):
            if isinstance(found, Problem):
                problems.append(found)
                continue
            made.lines += 1
            example = _example(found, made)
            if only_success and example is not None and example.success == 0:
                made.left_out += 1
            elif example is not None:
                examples.append(example)
    made.problems = tuple(problems)
    if not examples:
        raise InputError(f"{', '.join(map(str, paths))}: no execution there can be learned from ({_why(made)})")
    made.data = TrainingData.of(examples, **_known(examples, cards))
    return made


def _example(found: LoggedExecution, made: PreparedExamples) -> Example | None:
    if found.held_out:
        made.held_out += 1
        return None
    if found.plan is None or not found.plan.subtasks:
        made.without_plan += 1
        return None
    if found.success is None:
        made.unjudged += 1
    else:
        made.succeeded += found.success
        made.failed += not found.success
    seconds = found.critical_path_seconds
    if seconds is None and found.latency_ms is not None:
        seconds = found.latency_ms / 1000
    return Example(
        plan=_done(found),
        success=None if found.success is None else float(found.success),
        cost=found.cost,
        seconds=seconds,
        group=found.task_id,
    )


def _done(found: LoggedExecution) -> Plan:
    """The plan with the models in it that did the work; a tool is no choice of a worker."""
    assert found.plan is not None
    workers = [
        "" if subtask.tool else found.results[subtask.id].worker if subtask.id in found.results else subtask.worker
        for subtask in found.plan.subtasks
    ]
    return found.plan.with_workers(workers)


def _known(examples: Sequence[Example], cards: Iterable[Card]) -> Mapping[str, tuple[Card, ...]]:
    """Those cards that the plans use."""
    subtasks = [subtask for example in examples for subtask in example.plan.subtasks]
    used = {
        "tools": {subtask.tool for subtask in subtasks},
        "task_types": {subtask.type for subtask in subtasks},
        "models": {subtask.worker for subtask in subtasks if not subtask.tool},
    }
    kinds = {"tool": "tools", "type": "task_types", "model": "models"}
    kept: dict[str, list[Card]] = {name: [] for name in used}
    for card in cards:
        name = kinds[card.kind]
        if card.name in used[name]:
            kept[name].append(type_card(card.name, card.description) if name == "task_types" else card)
    return {name: tuple(found) for name, found in kept.items()}


def _why(made: PreparedExamples) -> str:
    parts = [
        f"{count} {what}"
        for count, what in (
            (made.held_out, "of held-out instructions"),
            (made.without_plan, "without a plan"),
            (made.left_out, "failed"),
            (len(made.problems), "could not be read"),
        )
        if count
    ]
    return ", ".join(parts) or "the logs are empty"
