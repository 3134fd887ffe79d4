"""`journeyman demo`: the whole loop on the embedded model."""

import click

from journeyman.cli._shared import emit, json_option, options_named


@click.command()
@click.option("--domain", default="oslo", show_default=True, help="Which shop of the order desk.")
@click.option("--model", default="embedded", show_default=True, help="embedded, embedded:small, or any other model.")
@click.option("--num-examples", default=100, show_default=True, help="Training tasks.")
@click.option("--held-out", default=200, show_default=True, help="Held-out tasks.")
@json_option
def command(domain: str, model: str, num_examples: int, held_out: int, as_json: bool) -> int:
    """See a small real model fail at a job, learn from its failures, and pass.

    The model ships with the package and needs no key, no GPU and no network. It works at an order desk whose house conventions
    nobody has told it. Everything is written into .journeyman/demo. Exit code 0 when the learned playbook passes the gate.

    \b
    Examples:
      journeyman demo
      journeyman demo --domain cairo --json
    """
    from journeyman.cli import _demonstrating

    with options_named():
        result = _demonstrating.run(domain, model, num_examples, held_out, quiet=as_json)
    emit(result, as_json=as_json)
    return 0 if result["passed"] else 1
