"""`journeyman curve`: did the tasks of a run get better and cheaper?"""

from pathlib import Path

import click

from journeyman.cli.shared import emit, json_option


@click.command()
@click.argument("source", required=False, metavar="[RUN|RESULTS.json|ROWS.jsonl]")
@click.option("--png", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw it in a picture, too.")
@click.option("--window", type=click.IntRange(min=1), help="Tasks in the rolling mean.  [default: a fifth, 2 to 10]")
@click.option(
    "--part",
    type=click.FloatRange(0, 0.5, min_open=True),
    default=1 / 3,
    help="The share that is the first part, and the last.  [default: a third]",
)
@click.option("--alike", is_flag=True, help="All tasks are of one kind, whatever their category or domain.")
@json_option
def command(source: str | None, png: Path | None, window: int | None, part: float, alike: bool, as_json: bool) -> None:
    """Show how success, score, tokens and cost went from task to task.

    The first part of the run is compared with the last, each category with itself, with a 95 % interval. SOURCE is a run of
    this project (the newest when none is named), a file training_results_*.json, or one JSON object a line: {"task_id": …,
    "score": 0 to 1 or null, "tokens": …, "cost": …, "category": …}.

    \b
    Example:
      journeyman curve results/training_results_20260101_120000.json --png curve.png
    """
    from journeyman.cli.actions import curve

    found = curve.run(source, png=png, window=window, part=part, alike=alike, quiet=as_json)
    emit(found, as_json=as_json)
