"""The work behind `journeyman plan`, apart from its options."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from journeyman import config, plan_json, plan_view
from journeyman.agents.orchestrator import Budget, Limits
from journeyman.capture.execution_log import ExecutionLogger
from journeyman.cli._executions import names
from journeyman.cli._shared import console
from journeyman.cli._table import console as data
from journeyman.errors import InputError, PlanError
from journeyman.learn.playbook.files import read_text, write_text
from journeyman.plan import Plan
from journeyman.plan_result import ExecutionResult
from journeyman.planning import crews, policies
from journeyman.planning.policies import SavedPlanner
from journeyman.planning.system import OrchestrationSystem
from journeyman.quantities import money, seconds
from journeyman.stores import open_store
from journeyman.stores.policies import in_production

LOGS = "execution_logs"


def run(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Plan, and carry out where that was asked for."""
    kept = _planner(given["planner"])
    models, own = names(given["models"]), given["crew"] or ""
    named = bool(models or own)
    # A planner needs nobody to show what it would do: not a key for the models that it knows.
    crew = {} if kept and not named and not given["carry_out"] else crews.crew_of(models, own, kept=kept)
    logger = ExecutionLogger(given["logs"] or LOGS) if given["carry_out"] else None
    system = OrchestrationSystem(
        crews.planner_for(crew, kept, dealt=named),
        crew,
        limits=Limits(together=given["concurrency"]),
        budget=Budget(money=given["max_cost"], seconds=given["deadline"]),
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
        return policies.find(named)
    with open_store(config.load().store_url, make=False) as store:
        id = in_production(store, policies.FORMAT)
    return policies.find(id) if id else None


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
