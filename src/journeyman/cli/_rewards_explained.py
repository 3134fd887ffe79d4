"""What a reward makes of one's own executions: `journeyman train planner --explain-reward`."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from journeyman.capture.execution_log import read_executions
from journeyman.capture.executions import LoggedExecution
from journeyman.cli import _planner_settings as settings
from journeyman.cli._shared import console
from journeyman.cli._table import console as data
from journeyman.errors import InputError
from journeyman.rewards.diagnostics import RewardReport, lint
from journeyman.rewards.utility import RunReward, Runs, Utility, WeightedSumReward


def run(told: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Show each term's share, by the reward that was asked for and by the other."""
    if not told.get("logs"):
        raise InputError("--explain-reward looks at your own logs: name them with --logs PATH")
    runs = _runs(told["logs"])
    dollars, seconds = settings.pay(told.get("pay", ""))
    rewards: dict[str, RunReward] = {
        "utility": Utility.of(runs, dollars_per_success=dollars, seconds_per_success=seconds),
        "documented": WeightedSumReward(**told.get("weights", {})),
    }
    first = told.get("reward", "utility")
    order = [first, *(name for name in rewards if name != first)]
    reports = {name: lint(rewards[name], runs) for name in order}
    if not quiet:
        for name, report in reports.items():
            _show(name, report)
    return {"executions": len(runs), "rewards": {name: asdict(report) for name, report in reports.items()}}


def _runs(path: Path) -> Runs:
    """Each step that a model did; where a log holds no steps, each execution, by who worked on it."""
    found = [each for each in read_executions(path) if isinstance(each, LoggedExecution) and not each.held_out]
    rows = [row for each in found for row in _rows(each)]
    if not rows:
        raise InputError(f"{path}: no execution there tells whether it was right, what it cost or how long it took")
    numbers = np.asarray([[np.nan if value is None else value for value in row[1:]] for row in rows], np.float64)
    return Runs(
        workers=tuple(row[0] for row in rows),
        success=numbers[:, 0],
        cost=numbers[:, 1],
        seconds=numbers[:, 2],
        subtasks=numbers[:, 3],
    )


def _rows(found: LoggedExecution) -> Iterator[tuple[str, float | None, float | None, float | None, float]]:
    tools = {step.id for step in found.plan.subtasks if step.tool} if found.plan else set()
    steps = [each for each in found.results.values() if each.tries and each.id not in tools]
    for each in steps:
        outcome = each.outcome
        yield each.worker, outcome.success, outcome.cost, outcome.seconds, 1.0
    if not steps and found.success is not None:
        seconds = None if found.latency_ms is None else found.latency_ms / 1000
        workers = found.plan.workers if found.plan else ()
        yield "+".join(sorted(set(workers))) or "unknown", float(found.success), found.cost, seconds, float(len(workers))


def _show(name: str, report: RewardReport) -> None:
    table = Table(title=f"{name}: {report.runs} calls", title_justify="left")
    for column in ("term", "mean", "mean size", "share", "r² with the reward"):
        table.add_column(column, justify="left" if column == "term" else "right")
    for share in report.shares:
        r2 = "?" if share.r2 is None else f"{share.r2:.3f}"
        table.add_row(share.term, f"{share.mean:+.4f}", f"{share.size:.4f}", f"{share.share:.1%}", r2)
    data().print(table)
    out = console()
    for worker in report.reward:
        out.print(Text(f"{worker}: right {report.accuracy[worker]:.1%}, reward {report.reward[worker]:+.3f}"), soft_wrap=True)
    for warning in report.warnings:
        out.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)
    out.print("")
