"""Every command, its help and its options, as a user finds them."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from journeyman.cli import root

WIDTH = 80
OPTION = re.compile(r"(?:(?<= )|(?<=/))--?[a-z][\w-]*")


def commands(
    command: click.Command, parent: click.Context | None, name: str
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """A command and all below it, by what is typed."""
    # With the settings that `main` gives it: which options ask for help hangs on them.
    # A command remembers the option that asks for help as it was first needed, which may have been without a parent.
    command._help_option = None
    context = click.Context(
        command, parent=parent, info_name=name, max_content_width=WIDTH, terminal_width=WIDTH, **command.context_settings
    )
    yield context.command_path, command, context
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from commands(found, context, below)


def taken(kind: click.ParamType[Any]) -> str:
    if isinstance(kind, click.Choice):
        return "|".join(map(str, kind.choices))
    if isinstance(kind, click.IntRange | click.FloatRange):
        low, high = ("<" if open else "<=" for open in (kind.min_open, kind.max_open))
        return f"{kind.min}{low}{type(kind).__name__}{high}{kind.max}"
    return kind.name


def described(option: click.Parameter) -> str:
    """What the help does not tell: each spelling, what is taken, and how it is when it is not given."""
    given = option.default() if callable(option.default) else option.default
    default = "" if "UNSET" in repr(given).upper() else repr(given)
    words = [
        "/".join([*option.opts, *option.secondary_opts]),
        taken(option.type),
        f"={default}" if default else "",
        "required" if option.required else "",
        "several" if option.multiple or option.nargs == -1 else "",
        "flag" if getattr(option, "is_flag", False) else "",
        "hidden" if getattr(option, "hidden", False) else "",
        f"${option.envvar}" if option.envvar else "",
    ]
    return " ".join(word for word in words if word)


def test_the_help_of_every_command_is_what_it_was(golden: Callable[[str, str], None]) -> None:
    pages = [f"$ {path} --help\n{command.get_help(context)}\n" for path, command, context in commands(root, None, "journeyman")]
    golden("help.txt", "\n".join(pages))


def test_the_options_of_every_command_are_what_they_were(golden: Callable[[str, str], None]) -> None:
    found = [
        f"{path} {described(option)}" for path, command, _ in commands(root, None, "journeyman") for option in command.params
    ]
    golden("options.txt", "\n".join(found) + "\n")


def test_every_option_of_before_is_still_taken() -> None:
    before = (Path(__file__).parent / "options-before.txt").read_text(encoding="utf-8").splitlines()
    here = {
        (path, spelling)
        for path, command, _ in commands(root, None, "journeyman")
        for option in command.params
        for spelling in (*option.opts, *option.secondary_opts)
    }
    typed = [(line.partition(" -")[0], spelling) for line in before for spelling in OPTION.findall(line.split(" =")[0])]
    assert len(typed) > 400
    assert [each for each in typed if each not in here] == []
