"""`journeyman demo`: the whole loop on the embedded model."""

from typing import Any

import click

from journeyman.cli.shared import emit, json_option, options_named


@click.command()
@click.option("--domain", default="oslo", show_default=True, help="Which shop of the order desk.")
@click.option("--model", default="embedded", show_default=True, help="embedded, embedded:small, or any other model.")
@click.option("--num-examples", default=100, show_default=True, help="Training tasks.")
@click.option("--held-out", default=200, show_default=True, help="Held-out tasks.")
@click.option("--weights", is_flag=True, help="Learn in the weights: train, prove, export, serve, and compare the methods.")
@click.option(
    "--compare/--no-compare", default=True, show_default=True, help="With --weights: all methods, and forced collapses."
)
@json_option
def command(weights: bool, compare: bool, as_json: bool, **given: Any) -> int:
    """See a small real model fail at a job, learn from its failures, and pass.

    The model ships with the package and needs no key, no GPU and no network. It works at an order desk whose house conventions
    nobody has told it. Everything is written into .journeyman/demo. Exit code 0 when the learned playbook passes the gate.

    \b
    Examples:
      journeyman demo
      journeyman demo --domain cairo --json
      journeyman demo --weights --no-compare
    """
    if weights:
        from journeyman.cli.actions import demo

        found = demo.run_weights(given["domain"], given["model"], given["held_out"], compare=compare, quiet=as_json)
        emit(found, as_json=as_json)
        return 0 if found["passed"] else 1
    from journeyman.cli.actions import demo

    with options_named():
        result = demo.run(**given, quiet=as_json)
    emit(result, as_json=as_json)
    return 0 if result["passed"] else 1
