"""`journeyman score`: what were these attempts worth?"""

from pathlib import Path
from typing import Any

import click

from journeyman.cli.shared import emit, json_option

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("traces", nargs=-1, type=_FILE)
@click.option(
    "--store",
    metavar="URL",
    is_flag=False,
    flag_value="",
    help="Score what is in a store, recorded and attempted; in the project's own, without a URL.",
)
@click.option("--task", "task_path", type=_FILE, help="Score one answer: the task, a JSON file.")
@click.option("--output", "output_path", type=_FILE, help="Score one answer: what the agent gave, text or JSON.")
@click.option("--rewards", metavar="A,B", help="Which rewards.  [default: the six that need no model]")
@click.option("--weights", type=_FILE, help="Weights that `journeyman rewards fit` has written.  [default: each reward's own]")
@click.option("--sandbox", metavar="NAME", help="Where code runs.  [default: the strongest there is]")
@click.option("--unsafe-local", is_flag=True, help="Run code without walls: only for code of your own.")
@click.option(
    "--tokens", type=click.FloatRange(min=1), help="Budget of tokens for efficiency.  [default: the median of a task]"
)
@click.option("--calls", type=click.FloatRange(min=1), help="Budget of calls for efficiency.  [default: the median of a task]")
@click.option("--workers", default="here", show_default=True, help="Who computes: here, local, local:4, ray or ray:ADDRESS.")
@click.option("--no-cache", is_flag=True, help="Score anew what was scored before.")
@click.option("--out", type=_FILE, metavar="FILE", help="Write a JSON object for each trace, as `journeyman compare` reads it.")
@click.option("--keep", is_flag=True, help="Keep the rewards with the traces of the store, where the pages show them.")
@json_option
def command(as_json: bool, **given: Any) -> int:
    """Score what agents did, from files of traces, a store, or one answer.

    Files are of any format that `journeyman collect` takes: traces of Journeyman, {"messages": [...]} as chat APIs write them,
    results of tau-bench, logs of Inspect, exports of Langfuse and more, recognised by what they hold.
    A reward that cannot tell says so, and is left out of the mean. What was scored before is not scored again. With --task the
    exit code is 1 when the answer is not a good one.

    \b
    Examples:
      journeyman score traces.jsonl --rewards tool_success,task_completion
      journeyman score --store --out scores.jsonl
      journeyman score --store --keep
      journeyman score --task task.json --output output.json --json
    """
    from journeyman.cli.actions import score

    result, code = score.run(given, quiet=as_json)
    emit(result, as_json=as_json)
    return code
