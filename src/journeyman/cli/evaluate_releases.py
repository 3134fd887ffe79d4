"""`journeyman evaluate releases`: what was ever served in a slot, on public benchmarks, in one table."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import Screen, named_columns, say, table
from journeyman.cli.options import options, provided
from journeyman.cli.shared import emit, json_option, options_named, settled
from journeyman.core.errors import InputError
from journeyman.core.format import counted
from journeyman.core.rollout import Slot
from journeyman.experiments.agents_config import AgentsConfig
from journeyman.stores import open_store

if TYPE_CHECKING:
    from journeyman.experiments.benchmarks import ReleaseResult, ReleaseTable


@click.command("releases")
@click.argument("slot", metavar="SLOT")
@click.option(
    "--tasks",
    required=True,
    multiple=True,
    metavar="FILE|NAME",
    help="humaneval, mbpp, bfcl, or a file of these; several may be named.",
)
@options(
    AgentsConfig,
    only=("attempts_per_task", "most", "generator_model", "base_url", "max_cost", "sandbox", "embedder"),
    helps={
        "attempts_per_task": "Attempts at each task.",
        "generator_model": "The model that the slot's playbooks are put in front of; of weights, what they replaced.",
        "base_url": "Where models answer.",
        "embedder": "What chooses among a playbook's bullets: hashing, or sentence (an extra).",
    },
)
@click.option("--again", is_flag=True, help="Measure anew what was measured before.")
@click.option("--dry-run", is_flag=True, help="Say how many attempts would be made, and make none.")
@json_option
def command(slot: str, tasks: tuple[str, ...], as_json: bool, again: bool, dry_run: bool, **given: Any) -> int:
    """Measure all that was ever served in a slot on benchmarks, in one table.

    A row for each release and benchmark: success with its 95 % interval, the gain over the request as it came (base) with its
    own, and the cost. What was measured before, under the same settings, is not measured again; what was broken off goes on.
    Nothing is decided, and no release moves. Exit code 0: the table is whole, 1: the money was spent before.

    \b
    Examples:
      journeyman evaluate releases context:desk/oslo --tasks humaneval --tasks bfcl --model openai:gpt-5-mini --max-cost 5
      journeyman evaluate releases context:desk/oslo --tasks humaneval --model openai:gpt-5-mini --dry-run
      journeyman evaluate releases weights --tasks BFCL_v4_parallel.json --model openai:qwen3@http://127.0.0.1:8000/v1
    """
    with options_named():
        found = evaluate(slot, tasks, provided(given), again=again, dry_run=dry_run, quiet=as_json)
    emit(found, as_json=as_json)
    return 0 if found["finished"] else 1


def evaluate(
    slot: str, tasks: Sequence[str], given: dict[str, Any], *, again: bool = False, dry_run: bool = False, quiet: bool = False
) -> dict[str, Any]:
    """Measure, or tell what would be; the object that `--json` prints. The table goes to stdout, words to stderr."""
    from journeyman.agents.replay import CallBudget
    from journeyman.experiments.benchmarks import ReleaseTable, is_benchmark, located, served_in
    from journeyman.stores.rollouts import open_rollouts

    wanted, config = Slot.parse(slot), settled(AgentsConfig, given)
    if not config.generator_model:
        raise InputError("--model says who answers, with what was released in the slot: name a model")
    benchmarks = {name: located(name) for name in tasks}
    if strange := next((name for name, path in benchmarks.items() if not is_benchmark(path)), None):
        raise InputError(f"{strange} holds no benchmark; --tasks takes humaneval, mbpp or bfcl, or a file of these")
    with open_rollouts(config.store, make=False) as kept:
        releases = served_in(kept, wanted)
    with open_store(config.store) as store, Screen("attempts", quiet=quiet) as screen:
        measured = ReleaseTable(
            config=config,
            store=store,
            releases=releases,
            benchmarks=benchmarks,
            again=again,
            budget=CallBudget(max_cost=config.max_cost),
            said=screen.say,
            done=lambda done, of: screen.evaluated(done, of, "attempts"),
        )
        if dry_run:
            return _planned(measured, str(wanted))
        rows, stopped = _measured(measured)
    if not quiet:
        _show(rows)
    if stopped:
        say(f"stopped: {stopped}; the same command with a larger --max-cost goes on")
    return {"slot": str(wanted), "finished": not stopped, "rows": [row.json() for row in rows]}


def _measured(measured: "ReleaseTable") -> tuple[list["ReleaseResult"], str]:
    """What there is, and why there is no more."""
    from journeyman.experiments.agent_evaluation import EvaluationStopped

    rows = list["ReleaseResult"]()
    try:
        for row in measured.results():
            rows.append(row)
    except EvaluationStopped as stopped:
        return rows, str(stopped)
    return rows, ""


def _planned(measured: "ReleaseTable", slot: str) -> dict[str, Any]:
    planned = list(measured.planned())
    together = sum(attempts for _, _, attempts in planned)
    rows = [{"release": each.id, "benchmark": name, "attempts": attempts} for each, name, attempts in planned]
    say(*(f"{each.id} on {name}: {counted(attempts, 'attempt')}" for each, name, attempts in planned))
    say(f"would make {counted(together, 'attempt')}; nothing was done")
    return {"slot": slot, "finished": True, "dry_run": True, "attempts": together, "rows": rows}


def _show(rows: Iterable["ReleaseResult"]) -> None:
    names = (
        "release",
        "since",
        "benchmark",
        "tasks",
        "success",
        "95 % interval",
        "gain",
        "95 % interval of it",
        "unknown",
        "cost",
    )
    table(named_columns(*names), [_row(each.json()) for each in rows])


def _row(told: dict[str, Any]) -> tuple[str, ...]:
    def number(name: str, form: str) -> str:
        return "-" if told[name] is None else format(told[name], form)

    return (
        f"{told['release']}{' (now)' if told['serving'] else ''}",
        (told["since"] or "-")[:10],
        # Of a file its name: where it lies stands in the command.
        Path(told["benchmark"]).name,
        str(told["tasks"]),
        number("success", ".3f"),
        f"{number('low', '.3f')} to {number('high', '.3f')}",
        number("gain", "+.3f"),
        "-" if told["gain"] is None else f"{number('gain_low', '+.3f')} to {number('gain_high', '+.3f')}",
        str(told["unknown"]),
        "unknown" if told["cost"] is None else f"${told['cost']:.4f}",
    )
