"""Writes docs/commands.md, the reference of all commands, from their own help: `make docs`."""

import sys
from collections.abc import Iterator

import click

from journeyman.cli import root

HEAD = """# Commands

Written by `make docs` from the commands' own help. Options may be spelled with `-` or `_`.

Exit codes: 0 it went well, 1 the answer is no (not passed, something is broken), 2 the input cannot be used, 130 interrupted.
`train playbook` and `train weights` answer 0 when they have trained, whatever their gate said: `passed` in their JSON tells.
With `--json` the last line of stdout is one JSON object; words for people go to stderr.
"""


def pages(command: click.Command, parent: click.Context | None, name: str) -> Iterator[str]:
    """One section for a command, and one for each below it."""
    context = click.Context(command, parent=parent, info_name=name, max_content_width=100, terminal_width=100)
    yield f"## {context.command_path}\n\n```\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            if found is not None:
                yield from pages(found, context, below)


def reference() -> str:
    return "\n".join([HEAD, *pages(root, None, "journeyman")])


if __name__ == "__main__":
    sys.stdout.write(reference())
