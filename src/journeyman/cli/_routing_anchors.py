"""The work behind `journeyman route anchors`, apart from its options."""

import json
from collections.abc import Mapping
from typing import Any

import click

from journeyman.cli._shared import console
from journeyman.learn.playbook.files import write_text
from journeyman.learn.router import outcomes
from journeyman.optimizers.splits import parts
from journeyman.routing import newcomers, reading
from journeyman.routing.training import RouterConfig


def run(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Requests go to the file or to stdout, words to stderr."""
    table = outcomes.table(reading.rows_of_files(given["outcomes"]))
    split = parts(
        table,
        held_out=given["held_out_share"],
        validation=RouterConfig().validation,
        least=RouterConfig().least_tasks,
    )
    rows = newcomers.questions(table, split.train, given["count"])
    lines = [{"request": table.requests[row], "type": table.types[row]} for row in rows]
    text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    if given["output"]:
        write_text(given["output"], text)
    elif not quiet:
        click.echo(text, nl=False)
    if not quiet:
        said = f"{len(lines)} of {len(split.train)} requests to ask a new model; add model and success to each line"
        console().print(said, markup=False, soft_wrap=True)
    return {"anchors": lines, "output": str(given["output"]) if given["output"] else None}
