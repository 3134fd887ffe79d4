"""The options of `journeyman evaluate router`."""

from pathlib import Path
from typing import Any

import click

from journeyman.cli._shared import emit, json_option
from journeyman.cli._train_router import OUTPUT

_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command("router")
@click.option("--policy", default=str(OUTPUT), show_default=True, metavar="DIR|ID", help="The router: its folder, or its id.")
@click.option("--outcomes", type=_FILE, multiple=True, required=True, metavar="FILE", help="What became of requests.")
@click.option("--all", "everything", is_flag=True, help="Use all of the file: nothing in it was learned from.")
@click.option("--prices", type=_FILE, metavar="FILE", help="US dollars for a million tokens, by model.  [default: list prices]")
@click.option(
    "--assume-output-tokens",
    type=click.IntRange(1),
    metavar="N",
    help="How long answers are whose length was not recorded.",
)
@click.option("--skip-unusable", is_flag=True, help="Leave lines out that cannot be used.")
@click.option(
    "--min-gain", "least_gain", type=float, help="Successes a request that the interval's low end must exceed.  [default: 0]"
)
@json_option
def router(as_json: bool, **given: Any) -> int:
    """Measure a router on requests that it has not learned from.

    Accuracy, cost and utility beside every single model, chance and an oracle, with 95 % intervals; how true its
    probabilities are; and whether it is better than the best single model. Without --all only the held-out part of the file is
    used, found by the split of the training. Exit code 0: it is better, 1: it is not. Every look is counted.

    \b
    Examples:
      journeyman evaluate router --outcomes outcomes.jsonl
      journeyman evaluate router --policy routers/trained --outcomes next_month.jsonl --all --json
    """
    from journeyman.cli import _routing

    result = _routing.evaluate(given, quiet=as_json)
    emit(result, as_json=as_json)
    return 0 if result["passed"] else 1
