"""The options of `journeyman evaluate planner`."""

from pathlib import Path
from typing import Any

import click

from journeyman.cli._shared import emit, json_option


@click.command("planner")
@click.option("--planner", default="checkpoints", show_default=True, metavar="POLICY", help="A file, a folder, or an id.")
@click.option("--against", metavar="POLICY", help="Another planner.  [default: the nearest past plan, or the desk's expert]")
@click.option(
    "--data",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Compare with the plans of this file, as `journeyman dataset planner` writes them; carry out none.",
)
@click.option("--held-out", type=click.IntRange(1), default=100, show_default=True, help="Instructions to carry out.")
@click.option(
    "--success-value", "pay", metavar="USD,SECONDS", help="What one more success is worth to you, in money and in time."
)
@click.option(
    "--min-gain", "least_gain", type=float, default=0.0, show_default=True, help="What the interval's low end must exceed."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the instructions.")
@json_option
def planner(as_json: bool, **given: Any) -> int:
    """Measure a planner: by plans that are known to be right, or by what its own plans bring.

    With --data node-F1, edge-F1 and exact matches, against a copy of the nearest plan that it learned from. Without, held-out
    notes of the embedded desk are planned by both, carried out for real and judged; success, cost and time are one utility.
    Exit code 0: it is better, 1: it is not. Every look is counted.

    \b
    Examples:
      journeyman evaluate planner --planner checkpoints/phase2_best
      journeyman evaluate planner --planner checkpoints/phase2_best --against checkpoints/phase1_best --held-out 200
      journeyman evaluate planner --planner checkpoints/phase1_best --data other_plans.json
    """
    from journeyman.cli import _evaluating_planner

    result = _evaluating_planner.run(given, quiet=as_json)
    emit(result, as_json=as_json)
    return 0 if result["passed"] else 1
