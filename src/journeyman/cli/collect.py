"""`journeyman collect`: bring in what others recorded."""

from pathlib import Path
from typing import Any

import click

from journeyman.cli._shared import emit, json_option


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--format", "format_name", metavar="NAME", help="What the files are.  [default: recognised by what they hold]")
@click.option("--store", metavar="URL", help="Another store than the project's: a file, or postgresql://…")
@click.option("--dry-run", is_flag=True, help="Read and count, and store nothing.")
@click.option("--agent", metavar="NAME", help="Who made the attempts, instead of what the files say.")
@click.option("--domain", metavar="NAME", help="Which domain they belong to, instead of what the files say.")
@click.option("--session", metavar="ID", help="Which session they belong to, instead of what the files say.")
@click.option("--no-content", is_flag=True, help="Keep only shapes and numbers: no prompt, reply, argument or result.")
@json_option
def command(as_json: bool, **given: Any) -> int:
    """Bring in what others recorded, from files and folders of them.

    Formats: journeyman, chat, tau-bench, tau2-bench, swe-agent, mini-swe-agent, langfuse, langsmith, inspect, execution-log,
    openclaw, sharegpt, checkpoint (pickles too: they are read, and never loaded), otlp; gzipped or not. A format can also stand
    before the files. Keys and tokens are taken out. The same file twice is the same traces. What is broken in a file is named,
    and what is whole comes in: then the exit code is 1, and 2 when there was nothing to bring in.

    \b
    Examples:
      journeyman collect results.json logs/
      journeyman collect otlp spans.jsonl --session 2026-11-05
      journeyman collect export.json --dry-run --json
    """
    from journeyman.cli import _collecting

    result, code = _collecting.run(given, quiet=as_json)
    emit(result, as_json=as_json)
    return code
