"""`journeyman route`, `train router` and `evaluate router`: which model should answer?"""

from pathlib import Path
from typing import Any

import click

from journeyman.cli.options import options, together
from journeyman.cli.shared import CommandGroup, Own, emit, json_option, options_named
from journeyman.experiments.router.config import RouterConfig
from journeyman.experiments.settings import GateSettings

OUTPUT = Path("routers/trained")
"""Where a router is written and looked for, unless it is said."""
_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


_BOUNDS = (
    click.option("--max-cost", type=float, metavar="USD", help="A request may cost so much on average."),
    click.option("--min-quality", type=float, metavar="P", help="The cheapest that is right with this probability."),
    click.option("--deadline", type=float, metavar="SECONDS", help="95 of 100 answers must come within it."),
    click.option("--allow", multiple=True, metavar="MODEL", help="Choose among these only."),
    click.option("--deny", multiple=True, metavar="MODEL", help="Never choose this one."),
)
"""What must hold of a choice."""
_READING = (
    click.option(
        "--prices", type=_FILE, metavar="FILE", help="US dollars for a million tokens, by model.  [default: list prices]"
    ),
    click.option(
        "--assume-output-tokens",
        type=click.IntRange(1),
        metavar="N",
        help="How long answers are whose length was not recorded.",
    ),
    click.option("--skip-unusable", is_flag=True, help="Leave lines out that cannot be used."),
)
"""How outcomes are read."""


@click.group(cls=CommandGroup, invoke_without_command=True, subcommand_metavar="[REQUEST]... | anchors [OPTIONS]")
@click.argument("requests", cls=Own, nargs=-1)
@click.option("--policy", default=str(OUTPUT), show_default=True, metavar="DIR|ID", help="The router: its folder, or its id.")
@click.option(
    "--input", "source", metavar="FILE", help="Requests, one a line, or JSON lines with request and type; - for stdin."
)
@click.option("--type", "kind", default="general", help="What kind of request it is, where the router has learned kinds.")
@click.option("--objective", metavar="WORDS", help='What is wanted now, such as "quality - 20*cost".  [default: as trained]')
@together(*_BOUNDS)
@click.option("--explain", is_flag=True, help="Show what each model is expected to bring, and why one was chosen.")
@click.option("--unproven", is_flag=True, help="Let a router choose that no gate has let pass.")
@click.option("--explore", type=click.FloatRange(0, 1), default=0.0, help="Share drawn at random, to learn from.")
@click.option("--online", is_flag=True, help="Choose as outcomes have told a program so far (Thompson sampling); needs --log.")
@click.option("--log", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Add the decisions to this file.")
@click.option("--no-text", is_flag=True, help="Keep digests of requests in the log, and no texts.")
@click.option("--seed", type=int, default=0, help="Of what is drawn.")
@json_option
def command(as_json: bool, requests: tuple[str, ...], **given: Any) -> None:
    """Say which model should answer a request, and why.

    The name of the model goes to stdout, a line for each request; the reason to stderr. Nothing is asked of any model.

    \b
    Examples:
      journeyman route "Prove that there are infinitely many primes." --explain
      journeyman route "What is the capital of Norway?" --objective "quality - 50*cost" --json
      journeyman route --input requests.txt --log decisions.jsonl --explore 0.1
    """
    from journeyman.cli.actions import routing

    result = routing.run(requests, given, quiet=as_json)
    emit(result, as_json=as_json)


@command.command()
@click.option(
    "--outcomes", type=click.Path(path_type=Path, dir_okay=False, exists=True), multiple=True, required=True, metavar="FILE",
    help="What became of requests with the models that are known.",
)  # fmt: skip
@click.option("--count", type=click.IntRange(5), default=30, show_default=True, help="How many; 20 to 50 place a model well.")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write them here, not to stdout."
)
@click.option("--seed", type=int, default=0, show_default=True, help="No split hangs on it any more.")
@click.option("--held-out-share", type=click.FloatRange(0, 0.9), default=0.2, show_default=True, help="As for the training.")
@json_option
def anchors(as_json: bool, **given: Any) -> None:
    """Say what to ask a new model: the few requests that tell the most of it.

    How hard each request is, the known models have shown. Ask these of the new one, judge its answers, add model and success to
    each line, and train with --newcomer: it is then placed on all the others. No request is held out.

    \b
    Examples:
      journeyman route anchors --outcomes outcomes.jsonl --count 30 --output anchors.jsonl
      journeyman train router --outcomes outcomes.jsonl --outcomes answers.jsonl --newcomer openai:gpt-5-nano
    """
    from journeyman.cli.actions import routing

    emit(routing.run_anchors(given, quiet=as_json), as_json=as_json)


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
@together(*_BOUNDS)
@click.option("--safe", metavar="MODEL", help="Who answers requests of an unknown kind.  [default: the best single one]")
@click.option("--unpriced", is_flag=True, help="Also choose models without a known price, as if they were the dearest.")
@click.option("--embedder", metavar="NAME", help="hashing, or sentence (an extra).  [default: the project's]")
@together(*_READING)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=OUTPUT,
    show_default=True,
    metavar="DIR",
    help="Where the router is written.",
)
@options(
    RouterConfig,
    helps={
        "seed": "Of the training. The split hangs on the requests alone.",
        "min_gain": "Successes a request that the interval's low end must exceed.",
    },
)
@click.option("--dry-run", is_flag=True, help="Read, price and split; train nothing.")
@json_option
def train(as_json: bool, dry_run: bool, **given: Any) -> int:
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
    from journeyman.cli.actions import routing

    with options_named():
        result = routing.train(given, dry_run=dry_run, quiet=as_json)
    emit(result, as_json=as_json)
    examined = given["evaluate"] is not False and not dry_run
    return 1 if examined and not (result["passed"] or result["forced"]) else 0


@click.command("router")
@click.option("--policy", default=str(OUTPUT), show_default=True, metavar="DIR|ID", help="The router: its folder, or its id.")
@click.option("--outcomes", type=_FILE, multiple=True, required=True, metavar="FILE", help="What became of requests.")
@click.option("--all", "everything", is_flag=True, help="Use all of the file: nothing in it was learned from.")
@together(*_READING)
@options(GateSettings, helps={"min_gain": "Successes a request that the interval's low end must exceed."})
@json_option
def evaluate(as_json: bool, **given: Any) -> int:
    """Measure a router on requests that it has not learned from.

    Accuracy, cost and utility beside every single model, chance and an oracle, with 95 % intervals; how true its
    probabilities are; and whether it is better than the best single model. Without --all only the held-out part of the file is
    used, found by the split of the training. Exit code 0: it is better, 1: it is not. Every look is counted.

    \b
    Examples:
      journeyman evaluate router --outcomes outcomes.jsonl
      journeyman evaluate router --policy routers/trained --outcomes next_month.jsonl --all --json
    """
    from journeyman.cli.actions import routing

    result = routing.evaluate(given, quiet=as_json)
    emit(result, as_json=as_json)
    return 0 if result["passed"] else 1
