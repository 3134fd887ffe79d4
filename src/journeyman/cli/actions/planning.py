"""The work behind `journeyman plan`, apart from its options."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from journeyman.agents.subtask import PlanBudget, PlanLimits
from journeyman.cli.console import bar
from journeyman.cli.console import console as data
from journeyman.cli.shared import console
from journeyman.core import plan as plan_json
from journeyman.core import plan as plan_view
from journeyman.core.errors import InputError, PlanError
from journeyman.core.format import money, seconds
from journeyman.core.plan import ExecutionResult, Plan
from journeyman.experiments import settings
from journeyman.experiments import settings as config
from journeyman.experiments.planner import collect, workers
from journeyman.experiments.planner.collect import CollectionSummary, Instruction, OrchestrationSystem
from journeyman.experiments.planner.config import CollectConfig
from journeyman.experiments.planner.workers import Make, SavedPlanner
from journeyman.io.atomic import write_text
from journeyman.io.files import read_text
from journeyman.stores import open_store
from journeyman.stores.registry import in_production
from journeyman.tracing.importers.execution_log import ExecutionLogger

# The work behind `journeyman collect executions`, apart from its options.

_SHOWN = 3
"""Plans that a dry run shows."""
_TOLD = 10


def collect_executions(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Carry instructions out and log them, or show what would be carried out."""
    kept = workers.find_planner(given["planner"]) if given["planner"] else None
    folder: Path = given["output_dir"]
    models, own = names(given["models"]), given["crew"] or ""
    crew = workers.crew_of(models, own, kept=kept, replies=config.load().folder / "replies")
    make = workers.planner_for(crew, kept, dealt=bool(models or own)).make
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
    before = len(collect.logged(folder) & {each.id for each in asked[: settings.executions]})
    with bar("executions", max(1, min(len(asked), settings.executions) - before), quiet=quiet, pause=2) as done:

        def heard(_: CollectionSummary, __: ExecutionResult) -> None:
            done(1)

        collected = asyncio.run(collect.collect(asked, make, crew, folder, settings, heard))
    if not quiet:
        _tell(collected)
    return collected.json()


def names(listed: str | None) -> list[str]:
    """What stands between commas."""
    return [name.strip() for name in (listed or "").split(",") if name.strip()]


def _asked(given: Mapping[str, Any], models: Sequence[str]) -> Sequence[Instruction]:
    if given["instructions"]:
        return collect.of_file(given["instructions"])
    if not models or not workers.at_the_desk(models):
        raise InputError("the notes that are made up here are for the embedded desk; give your own with --instructions FILE")
    return collect.at_the_desk(given["num_executions"], given["seed"])


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
    return {"asked": len(asked), "before": len(collect.logged(folder)), "plans": plans, "dry_run": True}


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


LOGS = "execution_logs"


def run(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Plan, and carry out where that was asked for."""
    kept = _planner(given["planner"])
    models, own = names(given["models"]), given["crew"] or ""
    named = bool(models or own)
    # A planner needs nobody to show what it would do: not a key for the models that it knows.
    crew = {} if kept and not named and not given["carry_out"] else workers.crew_of(models, own, kept=kept)
    logger = ExecutionLogger(given["logs"] or LOGS) if given["carry_out"] else None
    system = OrchestrationSystem(
        workers.planner_for(crew, kept, dealt=named),
        crew,
        limits=PlanLimits(together=given["concurrency"]),
        budget=PlanBudget(money=given["max_cost"], seconds=given["deadline"]),
        logger=logger,
        policy=kept.id if kept else "base",
    )
    plan = _read(given["plan_file"]) if given["plan_file"] else system.plan(given["instruction"])
    if given["output"]:
        write_text(given["output"], json.dumps(plan_json.written(plan), indent=1, ensure_ascii=False) + "\n")
    by = kept.where if kept else "no learned planner"
    told = {
        "planner": kept.id if kept else None,
        "plan": plan_json.written(plan),
        "levels": [list(each) for each in plan.levels],
    }
    if not given["carry_out"]:
        if not quiet:
            data().print(plan_view.tree(plan), markup=False, soft_wrap=True)
            console().print(f"planned by {by}; --run carries it out")
        return told
    result = system.run(plan)
    if not quiet:
        _show(result, given["logs"] or LOGS)
    return {**told, **_told(result)}


def _planner(named: str | None) -> SavedPlanner | None:
    """Who is named, else whoever is in production."""
    if named:
        return workers.find_planner(named)
    with open_store(settings.load().store_url, make=False) as store:
        id = in_production(store, workers.FORMAT)
    return workers.find_planner(id) if id else None


def _read(path: Path) -> Plan:
    try:
        return plan_json.read(json.loads(read_text(path)))
    except (ValueError, RecursionError, PlanError) as error:
        raise InputError(f"{path} is no plan ({error}); `journeyman plan --output` writes one") from None


def _show(result: ExecutionResult, logs: Path | str) -> None:
    data().print(plan_view.tree(result.plan, result.results), markup=False, soft_wrap=True)
    for id in result.plan.ends:
        if id in result.outputs:
            output = result.outputs[id]
            text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
            data().print(f"\n{id}: {text}", markup=False, soft_wrap=True)
    verdict = {True: "it was right", False: "it failed", None: "nobody judged whether it was right"}[result.success]
    console().print(f"\n{verdict}; {seconds(result.total_latency_ms / 1000)}, {money(result.total_cost)}; logged in {logs}")


def _told(result: ExecutionResult) -> dict[str, Any]:
    return {
        "success": result.success,
        "error": result.error,
        "outputs": dict(result.outputs),
        "total_cost": result.total_cost,
        "total_latency_ms": result.total_latency_ms,
        "critical_path_seconds": result.critical_path_seconds,
        "states": {id: each.state.value for id, each in result.results.items()},
        "trace": result.trace.id,
    }
