"""`journeyman plan`: which steps, in which order, by whom."""

from pathlib import Path
from typing import Any

import click

from journeyman.cli.shared import emit, json_option, options_named


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
@click.option("--max-cost", type=float, metavar="USD", help="Start nothing that could cost more than this in all.")
@click.option("--deadline", type=float, metavar="SECONDS", help="Stop what is not done by then.")
@click.option("--concurrency", type=click.IntRange(1), default=4, show_default=True, help="Subtasks at once.")
@click.option(
    "--logs",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Log the execution here.  [default: execution_logs]",
)
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
    from journeyman.cli.actions import planning

    with options_named():
        result = planning.run(given, quiet=as_json)
    emit(result, as_json=as_json)
    return 1 if result.get("success") is False else 0
