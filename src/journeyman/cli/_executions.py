"""The work behind `journeyman collect executions`, apart from its options."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from journeyman import config, plan_view
from journeyman.cli._bar import bar
from journeyman.cli._shared import console
from journeyman.errors import InputError, PlanError
from journeyman.plan_result import ExecutionResult
from journeyman.planning import collecting, crews, policies
from journeyman.planning.collecting import CollectConfig, CollectionSummary, Instruction
from journeyman.planning.crews import Make

_SHOWN = 3
"""Plans that a dry run shows."""
_TOLD = 10


def run(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Carry instructions out and log them, or show what would be carried out."""
    kept = policies.find(given["planner"]) if given["planner"] else None
    folder: Path = given["output_dir"]
    models, own = names(given["models"]), given["crew"] or ""
    crew = crews.crew_of(models, own, kept=kept, replies=config.load().folder / "replies")
    make = crews.planner_for(crew, kept, dealt=bool(models or own)).make
    asked = _asked(given, [name for name, worker in crew.items() if worker.card.kind == "model"])
    settings = CollectConfig(
        executions=given["num_executions"],
        explore=given["explore"],
        concurrency=given["concurrency"],
        max_cost=given["max_cost"],
        policy=kept.id if kept else "expert",
        seed=given["seed"],
    )
    if given["dry_run"]:
        return _shown(asked[: settings.executions], make, folder, quiet=quiet)
    before = len(collecting.logged(folder) & {each.id for each in asked[: settings.executions]})
    with bar("executions", max(1, min(len(asked), settings.executions) - before), quiet=quiet, pause=2) as done:

        def heard(_: CollectionSummary, __: ExecutionResult) -> None:
            done(1)

        collected = asyncio.run(collecting.collect(asked, make, crew, folder, settings, heard))
    if not quiet:
        _tell(collected)
    return collected.json()


def names(listed: str | None) -> list[str]:
    """What stands between commas."""
    return [name.strip() for name in (listed or "").split(",") if name.strip()]


def _asked(given: Mapping[str, Any], models: Sequence[str]) -> Sequence[Instruction]:
    if given["instructions"]:
        return collecting.of_file(given["instructions"])
    if not models or not crews.at_the_desk(models):
        raise InputError("the notes that are made up here are for the embedded desk; give your own with --instructions FILE")
    return collecting.at_the_desk(given["num_executions"], given["seed"])


def _shown(asked: Sequence[Instruction], make: Make, folder: Path, *, quiet: bool) -> dict[str, Any]:
    out, plans = console(), []
    for each in asked[:_SHOWN]:
        try:
            plans.append(plan_view.tree(make(each.text)))
        except PlanError as error:
            plans.append(f"{each.text}\nno plan: {error}")
    if not quiet:
        for plan in plans:
            out.print(plan + "\n", markup=False, soft_wrap=True)
        out.print(f"{len(asked)} instructions; with --dry-run none was carried out")
    return {"asked": len(asked), "before": len(collecting.logged(folder)), "plans": plans, "dry_run": True}


def _tell(collected: CollectionSummary) -> None:
    out = console()
    said = f"{collected.ran} executions: {collected.succeeded} succeeded, {collected.failed} failed"
    if collected.unjudged:
        said += f", {collected.unjudged} that nobody judged"
    if collected.before:
        said += f"; {collected.before} were logged before"
    out.print(said)
    for line in collected.unplanned[:_TOLD]:
        out.print(f"no plan: {line}", style="yellow", markup=False, soft_wrap=True)
    if len(collected.unplanned) > _TOLD:
        out.print(f"and {len(collected.unplanned) - _TOLD} more without a plan", style="yellow")
    least = "at least " if collected.unpriced else ""
    out.print(f"cost: {least}${collected.cost:.4f}")
    if collected.stopped:
        out.print(f"stopped: {collected.stopped}; the same command goes on from here", style="yellow", soft_wrap=True)
    out.print(f"logged in {collected.path}; next: journeyman dataset planner --logs {collected.path.parent}")
