"""`journeyman route`: which model should answer?"""

from pathlib import Path
from typing import Any

import click

from journeyman.cli._shared import emit, json_option
from journeyman.cli._train_router import OUTPUT


@click.command()
@click.argument("requests", nargs=-1, metavar="[REQUEST]...")
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
    from journeyman.cli import _routing_requests

    result = _routing_requests.run(requests, given, quiet=as_json)
    emit(result, as_json=as_json)
