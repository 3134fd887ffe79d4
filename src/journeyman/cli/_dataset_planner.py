"""The work behind `journeyman dataset planner`, apart from its options."""

from collections.abc import Mapping
from typing import Any

from journeyman.cli._shared import console
from journeyman.learn.planner import data
from journeyman.planning import desk
from journeyman.planning.preparing import PreparedExamples, prepare

_TOLD = 20
"""Broken places that are named on the screen; `--json` names all."""


def run(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Read the logs, and write the set unless that was not wanted."""
    output = given["output"]
    prepared = prepare(given["logs"], cards=desk.cards(), only_success=given["only_success"])
    if not given["dry_run"]:
        data.write(prepared.data, output)
    if not quiet:
        _tell(prepared)
        console().print("nothing was written" if given["dry_run"] else f"wrote {output}")
    return {**prepared.json(), "output": None if given["dry_run"] else str(output)}


def _tell(prepared: PreparedExamples) -> None:
    out, made = console(), prepared.data
    for problem in prepared.problems[:_TOLD]:
        out.print(str(problem), style="yellow", markup=False, soft_wrap=True)
    if len(prepared.problems) > _TOLD:
        out.print(f"and {len(prepared.problems) - _TOLD} more places that could not be read", style="yellow")
    out.print(
        f"{prepared.lines} executions: {prepared.succeeded} succeeded, {prepared.failed} failed, "
        f"{prepared.unjudged} that nobody judged"
    )
    skipped = ((prepared.held_out, "held out"), (prepared.without_plan, "without a plan"), (prepared.left_out, "failed"))
    if left := ", ".join(f"{count} {why}" for count, why in skipped if count):
        out.print(f"left out: {left}")
    steps = [len(example.plan.subtasks) for example in made.examples]
    out.print(
        f"{len(made.examples)} examples of {min(steps)} to {max(steps)} subtasks; {len(made.task_types)} kinds of work, "
        f"{len(made.tools)} tools, {len(made.models)} models"
    )
    if made.models and not prepared.succeeded:
        out.print("no execution succeeded, so there is no plan to follow: phase 1 has nothing to learn from", style="yellow")
