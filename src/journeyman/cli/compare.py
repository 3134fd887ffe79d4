"""`journeyman compare`: two files of results, one verdict."""

from pathlib import Path

import click

from journeyman.cli.shared import emit, json_option

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("baseline", type=_FILE)
@click.argument("candidate", type=_FILE)
@click.option(
    "--looks", type=click.IntRange(min=0), default=0, help="How often these tasks were looked at before.  [default: 0]"
)
@click.option("--any-time", is_flag=True, help="You look after every batch and stop when it passes.")
@click.option("--min-gain", "least_gain", type=click.FloatRange(-1, 1), default=0.0, help="A gain worth having.  [default: 0]")
@click.option(
    "--min-tasks", "least_tasks", type=click.IntRange(min=1), default=30, help="Compared tasks that are needed.  [default: 30]"
)
@click.option(
    "--most-unknown", type=click.FloatRange(0, 1), default=0.05, help="Share of tasks without a verdict.  [default: 0.05]"
)
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    baseline: Path,
    candidate: Path,
    looks: int,
    any_time: bool,
    as_json: bool,
    **bounds: float,
) -> None:
    """Say whether B is really better than A, from anybody's results.

    Both files hold one JSON object a line, {"task_id": …, "score": 0 to 1 or null}, with "trial" where a task was attempted
    several times. Tasks are paired; the attempts at one task count as one. Where the project here has a store, the look at
    these tasks is counted in it. Exit code 0: passed, 1: not passed, 2: the files cannot be used.

    \b
    Example:
      journeyman compare baseline.jsonl candidate.jsonl
    """
    from journeyman.cli.actions import compare, evaluate

    report = compare.run(baseline, candidate, looks=looks, any_time=any_time, bounds=bounds)
    if not as_json:
        click.echo("\n".join(evaluate.lines(report)))
    emit(report.json(), as_json=as_json)
    context.exit(evaluate.PASSED if report.passed else evaluate.NOT_PASSED)
