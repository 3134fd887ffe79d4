"""`journeyman plan`: which steps, in which order, by whom. And `collect executions`: what many plans brought."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import bar, say, say_some, write
from journeyman.cli.options import options, provided
from journeyman.cli.shared import emit, json_option, listed, options_named
from journeyman.core import plan as plans
from journeyman.core.errors import InputError, PlanError
from journeyman.core.format import counted, money, seconds
from journeyman.core.plan import ExecutionResult, Plan
from journeyman.experiments import settings
from journeyman.experiments.planner.config import CollectConfig
from journeyman.experiments.settings import PlanSettings
from journeyman.io.atomic import write_text
from journeyman.io.config import BudgetSettings
from journeyman.io.files import read_text
from journeyman.stores import open_store
from journeyman.stores.registry import in_production

if TYPE_CHECKING:
    from journeyman.experiments.planner.collect import CollectionSummary, Instruction
    from journeyman.experiments.planner.workers import Make, SavedPlanner

_SHOWN = 3
"""Plans that a dry run shows."""
_NAMED = 10
"""Instructions without a plan that are named on the screen; `--json` has all."""


@click.command()
@click.argument("instruction")
@click.option(
    "--planner", metavar="POLICY", help="A folder, or the id of a released one.  [default: that in production, else the desk's]"
)
@click.option("--run", "carry_out", is_flag=True, help="Carry the plan out.")
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Take this plan, as --output wrote it.",
)
@click.option("--models", metavar="A,B", help="Who can do subtasks.  [default: those that the planner knows]")
@click.option(
    "--workers-from", "crew", metavar="MODULE:NAME", help="Your own tools and agents: a mapping from names to workers."
)
@options(BudgetSettings, helps={"max_cost": "Start nothing that could cost more than this in all."})
@options(PlanSettings, only=("deadline", "concurrency", "logs"))
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the plan as JSON.")
@json_option
def command(as_json: bool, **given: Any) -> int:
    """Make a plan for an instruction, and carry it out.

    Shows the subtasks as a tree with who would do each, and with --run what became of each. The exit code is 1 when it was
    carried out and failed.

    \b
    Examples:
      journeyman plan "for oslo: we need 4 green bowls to lima; for rome: please quote 9 red caps; then fill in the sheet"
      journeyman plan "summarise these reports and draw the trend" --planner checkpoints/phase1_best --run
    """
    with options_named():
        result = _plan(given, quiet=as_json)
    emit(result, as_json=as_json)
    return 1 if result.get("success") is False else 0


def _plan(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Plan, and carry out where that was asked for."""
    from journeyman.agents.subtask import PlanBudget, PlanLimits
    from journeyman.experiments.planner import workers
    from journeyman.experiments.planner.collect import OrchestrationSystem
    from journeyman.tracing.importers.execution_log import ExecutionLogger

    config = settings.configured(PlanSettings, PlanSettings.known(provided(given)))
    budget = settings.configured(BudgetSettings, BudgetSettings.known(provided(given)))
    saved = _planner(given["planner"])
    models, own = listed(given["models"]), given["crew"] or ""
    named = bool(models or own)
    # A planner needs nobody to show what it would do: not a key for the models that it knows.
    crew = {} if saved and not named and not given["carry_out"] else workers.crew_of(models, own, kept=saved)
    system = OrchestrationSystem(
        workers.planner_for(crew, saved, dealt=named),
        crew,
        limits=PlanLimits(together=config.concurrency),
        budget=PlanBudget(money=budget.max_cost, seconds=config.deadline),
        logger=ExecutionLogger(config.logs) if given["carry_out"] else None,
        policy=saved.id if saved else "base",
    )
    plan = _read(given["plan_file"]) if given["plan_file"] else system.plan(given["instruction"])
    if given["output"]:
        write_text(given["output"], json.dumps(plans.written(plan), indent=1, ensure_ascii=False) + "\n")
    planned = {
        "planner": saved.id if saved else None,
        "plan": plans.written(plan),
        "levels": [list(each) for each in plan.levels],
    }
    if not given["carry_out"]:
        if not quiet:
            write(plans.tree(plan))
            say(f"planned by {saved.where if saved else 'no learned planner'}; --run carries it out")
        return planned
    result = system.run(plan)
    if not quiet:
        _show(result, config.logs)
    return {**planned, **_result_json(result)}


def _planner(named: str | None) -> "SavedPlanner | None":
    """Who is named, else whoever is in production."""
    from journeyman.experiments.planner import workers

    if named:
        return workers.find_planner(named)
    with open_store(settings.load().store_url, make=False) as store:
        id = in_production(store, workers.FORMAT)
    return workers.find_planner(id) if id else None


def _read(path: Path) -> Plan:
    try:
        return plans.read(json.loads(read_text(path)))
    except (ValueError, RecursionError, PlanError) as error:
        raise InputError(f"{path} is no plan ({error}); `journeyman plan --output` writes one") from None


def _show(result: ExecutionResult, logs: str) -> None:
    write(plans.tree(result.plan, result.results))
    for id in result.plan.ends:
        if id in result.outputs:
            output = result.outputs[id]
            write(f"\n{id}: {output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)}")
    verdict = {True: "it was right", False: "it failed", None: "nobody judged whether it was right"}[result.success]
    say(f"\n{verdict}; {seconds(result.total_latency_ms / 1000)}, {money(result.total_cost)}; logged in {logs}")


def _result_json(result: ExecutionResult) -> dict[str, Any]:
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


# Many instructions are carried out, and logged.


@click.command()
@options(CollectConfig, only=("executions",))
@click.option(
    "--output-dir", type=click.Path(path_type=Path, file_okay=False), default="execution_logs", show_default=True,
    metavar="DIR", help="The folder of the logs. What is in it already is not carried out again.",
)  # fmt: skip
@click.option(
    "--instructions", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Your own: a line each, or JSON lines with instruction.  [default: notes for the embedded desk]",
)  # fmt: skip
@click.option("--models", metavar="A,B", help="Who does the subtasks.  [default: the sizes of the embedded model]")
@click.option(
    "--workers-from", "crew", metavar="MODULE:NAME", help="Your own tools and agents: a mapping from names to workers."
)
@click.option("--planner", metavar="POLICY", help="A learned planner.  [default: the desk's own expert, or one step a line]")
@options(
    CollectConfig,
    only=("explore", "concurrency", "max_cost", "seed"),
    helps={"max_cost": "Stop cleanly before more than this is spent.", "seed": "Of instructions and of what is drawn."},
)
@click.option("--dry-run", is_flag=True, help="Show the first instructions and their plans; carry out none.")
@json_option
def executions(as_json: bool, **given: Any) -> None:
    """Carry out instructions of many kinds, and log what became of each step.

    Each line of the log holds the plan, who did which subtask and how likely that was, what it cost and took, and whether it
    was right. `journeyman dataset planner` makes training data of it. Stopped, the same command goes on where it was.

    \b
    Examples:
      journeyman collect executions --num-executions 200 --output-dir execution_logs/
      journeyman collect executions --instructions asked.txt --models openai:gpt-5-nano,openai:gpt-5-mini --max-cost 2
      journeyman collect executions --dry-run
    """
    with options_named():
        emit(_collect(given, quiet=as_json), as_json=as_json)


def _collect(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Carry instructions out and log them, or show what would be carried out."""
    from journeyman.experiments.planner import collect, workers

    saved = workers.find_planner(given["planner"]) if given["planner"] else None
    folder: Path = given["output_dir"]
    models, own = listed(given["models"]), given["crew"] or ""
    crew = workers.crew_of(models, own, kept=saved, replies=settings.load().folder / "replies")
    make = workers.planner_for(crew, saved, dealt=bool(models or own)).make
    typed = CollectConfig.known(provided(given))
    config = settings.configured(CollectConfig, {**typed, "policy": saved.id if saved else "expert"})
    named = [name for name, worker in crew.items() if worker.card.kind == "model"]
    instructions = _instructions(given["instructions"], config, named)
    if given["dry_run"]:
        return _dry_run(instructions[: config.executions], make, folder, quiet=quiet)
    before = len(collect.logged(folder) & {each.id for each in instructions[: config.executions]})
    with bar("executions", max(1, min(len(instructions), config.executions) - before), quiet=quiet, pause=2) as done:
        collected = asyncio.run(collect.collect(instructions, make, crew, folder, config, lambda *_: done(1)))
    if not quiet:
        _show_collected(collected)
    return collected.json()


def _instructions(file: Path | None, config: CollectConfig, models: Sequence[str]) -> "Sequence[Instruction]":
    from journeyman.experiments.planner import collect, workers

    if file is not None:
        return collect.of_file(file)
    if not models or not workers.at_the_desk(models):
        raise InputError("the notes that are made up here are for the embedded desk; give your own with --instructions FILE")
    return collect.at_the_desk(config.executions, config.seed)


def _dry_run(instructions: "Sequence[Instruction]", make: "Make", folder: Path, *, quiet: bool) -> dict[str, Any]:
    from journeyman.experiments.planner import collect

    trees = []
    for each in instructions[:_SHOWN]:
        try:
            trees.append(plans.tree(make(each.text)))
        except PlanError as error:
            trees.append(f"{each.text}\nno plan: {error}")
    if not quiet:
        say(*(f"{tree}\n" for tree in trees))
        say(f"{counted(len(instructions), 'instruction')}; with --dry-run none was carried out")
    return {"asked": len(instructions), "before": len(collect.logged(folder)), "plans": trees, "dry_run": True}


def _show_collected(collected: "CollectionSummary") -> None:
    unjudged = f", {collected.unjudged} that nobody judged" if collected.unjudged else ""
    before = f"; {collected.before} were logged before" if collected.before else ""
    say(f"{collected.ran} executions: {collected.succeeded} succeeded, {collected.failed} failed{unjudged}{before}")
    say_some([f"no plan: {line}" for line in collected.unplanned], _NAMED, "without a plan", colour="yellow")
    say(f"cost: {'at least ' if collected.unpriced else ''}${collected.cost:.4f}")
    if collected.stopped:
        say(f"stopped: {collected.stopped}; the same command goes on from here", colour="yellow")
    say(f"logged in {collected.path}; next: journeyman dataset planner --logs {collected.path.parent}")
