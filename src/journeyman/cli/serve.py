"""`journeyman serve`: record agents by their base URL, take their telemetry, and show what they did."""

import click

from journeyman.cli.shared import json_option


@click.command()
@click.option("--host", metavar="ADDRESS", help="The address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="Where to listen; 0 is any free one.  [default: 4000]")
@click.option("--store", metavar="URL", help="Another store than the project's: a file, or postgresql://…")
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    metavar="[NAME=]URL",
    help="A model server to pass calls on to; the next is asked when one fails. May be given again.",
)
@click.option(
    "--token-env",
    metavar="VAR",
    help="The environment variable that holds the token of those who may come; several with blanks between.",
)
@click.option("--no-content", is_flag=True, help="Keep only shapes and numbers, not what was said.")
@click.option("--no-record", is_flag=True, help="Keep nothing: only pass on.")
@click.option("--no-pages", is_flag=True, help="Without the pages.")
@click.option("--who", metavar="NAME", help="Whose word a label given on a page is.  [default: you, by your login]")
@json_option
def command(as_json: bool, **options: object) -> None:
    """Pass model calls on and record them, take OpenTelemetry, and show pages, until told to stop.

    Point an agent here by its base URL alone; it keeps its own key, which is passed on and never kept. Without a file or
    --upstream, calls go to OpenAI and Anthropic. With --json, one line when it is ready.

    \b
    Examples:
      journeyman serve
      journeyman serve --upstream http://127.0.0.1:11434/v1
      journeyman serve --host 0.0.0.0 --token-env GATEWAY_TOKEN
    """
    from journeyman.cli.actions import serve

    serve.serve(serve.GatewayOptions(**options), as_json=as_json)  # type: ignore[arg-type]
