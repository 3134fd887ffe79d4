"""The options of `journeyman train router`."""

from pathlib import Path
from typing import Any

import click

from journeyman.cli._shared import emit, json_option

_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
OUTPUT = Path("routers/trained")
"""Where a router is written and looked for, unless it is said."""


@click.command("router")
@click.option("--outcomes", type=_FILE, multiple=True, metavar="FILE", help="What became of requests; see docs/routing.md.")
@click.option(
    "--store",
    is_flag=False,
    flag_value="",
    metavar="[URL]",
    help="Learn from what the store has recorded and somebody judged.",
)
@click.option("--objective", default="quality", show_default=True, metavar="WORDS", help='Such as "quality - 20*cost".')
@click.option("--max-cost", type=float, metavar="USD", help="A request may cost so much on average.")
@click.option("--min-quality", type=float, metavar="P", help="The cheapest that is right with this probability.")
@click.option("--deadline", type=float, metavar="SECONDS", help="95 of 100 answers must come within it.")
@click.option("--allow", multiple=True, metavar="MODEL", help="Choose among these only.")
@click.option("--deny", multiple=True, metavar="MODEL", help="Never choose this one.")
@click.option("--safe", metavar="MODEL", help="Who answers requests of an unknown kind.  [default: the best single one]")
@click.option("--unpriced", is_flag=True, help="Also choose models without a known price, as if they were the dearest.")
@click.option("--embedder", metavar="NAME", help="hashing, or sentence (an extra).  [default: the project's]")
@click.option("--prices", type=_FILE, metavar="FILE", help="US dollars for a million tokens, by model.  [default: list prices]")
@click.option(
    "--assume-output-tokens",
    type=click.IntRange(1),
    metavar="N",
    help="How long answers are whose length was not recorded.",
)
@click.option(
    "--newcomer", multiple=True, metavar="MODEL", help="Was asked a few only: place it by how hard they are. See route anchors."
)
@click.option("--skip-unusable", is_flag=True, help="Leave lines out that cannot be used.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=OUTPUT,
    show_default=True,
    metavar="DIR",
    help="Where the router is written.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the training. The split hangs on the requests alone.")
@click.option("--held-out-share", type=click.FloatRange(0, 0.9), default=0.2, show_default=True, help="To prove it on.")
@click.option(
    "--min-gain", "least_gain", type=float, help="Successes a request that the interval's low end must exceed.  [default: 0]"
)
@click.option(
    "--target-stage", type=click.Choice(["shadow", "production"]), default="shadow", help="Where it goes if it passes."
)
@click.option("--force", is_flag=True, help="Go there even if it does not pass; this is recorded.")
@click.option("--no-evaluate", "evaluate", is_flag=True, flag_value=False, default=True, help="Do not prove it at the end.")
@click.option("--dry-run", is_flag=True, help="Read, price and split; train nothing.")
@json_option
def router(as_json: bool, dry_run: bool, **given: Any) -> int:
    """Learn which model answers which request, from what became of earlier ones.

    Success, cost and time of each model are predicted for a request, and the objective chooses. On held-out requests the
    router must bring more than the best single model; one that does not stays in shadow, and whoever serves it asks that
    model. Exit code 1: it did not pass.

    \b
    Examples:
      journeyman train router --outcomes outcomes.jsonl --objective "quality - 20*cost"
      journeyman train router --outcomes outcomes.jsonl --objective "quality where cost <= 0.002" --embedder sentence
      journeyman train router --store --objective "-cost where quality >= 0.9" --target-stage production
      journeyman train router --outcomes outcomes.jsonl --prices prices.json --assume-output-tokens 250 --dry-run
    """
    from journeyman.cli import _routing

    result = _routing.train(given, dry_run=dry_run, quiet=as_json)
    emit(result, as_json=as_json)
    examined = given["evaluate"] and not dry_run
    return 1 if examined and not (result["passed"] or result["forced"]) else 0
