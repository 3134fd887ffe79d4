"""`journeyman route`: which model should answer?"""

from pathlib import Path
from typing import Any

import click

from journeyman.cli.shared import CommandGroup, Own, emit, json_option
from journeyman.cli.train import OUTPUT


@click.group(cls=CommandGroup, invoke_without_command=True, subcommand_metavar="[REQUEST]... | anchors [OPTIONS]")
@click.argument("requests", cls=Own, nargs=-1)
@click.option("--policy", default=str(OUTPUT), show_default=True, metavar="DIR|ID", help="The router: its folder, or its id.")
@click.option(
    "--input", "source", metavar="FILE", help="Requests, one a line, or JSON lines with request and type; - for stdin."
)
@click.option("--type", "kind", default="general", help="What kind of request it is, where the router has learned kinds.")
@click.option("--objective", metavar="WORDS", help='What is wanted now, such as "quality - 20*cost".  [default: as trained]')
@click.option("--max-cost", type=float, metavar="USD", help="A request may cost so much on average.")
@click.option("--min-quality", type=float, metavar="P", help="The cheapest that is right with this probability.")
@click.option("--deadline", type=float, metavar="SECONDS", help="95 of 100 answers must come within it.")
@click.option("--allow", multiple=True, metavar="MODEL", help="Choose among these only.")
@click.option("--deny", multiple=True, metavar="MODEL", help="Never choose this one.")
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
