"""The options of `journeyman evaluate decisions`."""

from pathlib import Path
from typing import Any

import click

from journeyman.cli._shared import emit, json_option


@click.command("decisions")
@click.option(
    "--log", type=click.Path(path_type=Path, dir_okay=False, exists=True), required=True, help="The log of decisions."
)
@click.option("--policy", metavar="DIR|ID", help="The router that would have chosen: its folder, or its id.")
@click.option("--always", metavar="WORKER", help="Or one worker that would always have been chosen.")
@click.option("--objective", metavar="WORDS", help='With --always: what is wanted.  [default: "quality"]')
@click.option("--explain-reward", is_flag=True, help="Also show what cost, latency and success each weigh on this log.")
@json_option
def decisions(as_json: bool, **given: Any) -> int:
    """Ask a log of decisions what another policy would have brought.

    Inverse propensity scores, the same self-normalised, a model of outcomes, and both together (doubly robust), each with its
    95 % interval, beside what was really brought. Refused where the log cannot tell: decisions must have been explored. Exit
    code 0: better, even at the low end of the interval; 1: not, or refused.

    \b
    Examples:
      journeyman evaluate decisions --log decisions.jsonl --policy routers/new
      journeyman evaluate decisions --log decisions.jsonl --always openai:gpt-5-mini --explain-reward
    """
    from journeyman.cli import _hindsight

    result = _hindsight.run(given, quiet=as_json)
    emit(result, as_json=as_json)
    return 0 if result["better"] else 1
