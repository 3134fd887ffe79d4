"""What all commands speak alike: data for programs on stdout, words for people on stderr."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from journeyman.errors import InputError, SettingError

if TYPE_CHECKING:
    from rich.console import Console

_Made = TypeVar("_Made", bound=Callable[..., Any])


def json_option(made: _Made) -> _Made:
    """Gives a command `--json`, as the argument `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line of stdout.")(made)


@contextmanager
def options_named() -> Iterator[None]:
    """What is wrong with a setting names the option of this command that it was given with."""
    try:
        yield
    except SettingError as error:
        found = (each.opts[0] for each in click.get_current_context().command.params if each.name == error.setting)
        raise InputError(error.said.replace("{}", next(found, error.setting), 1)) from error


def emit(result: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the result as one line of JSON, if that was asked for. Its fields are a promise."""
    if as_json:
        click.echo(json.dumps(result, default=str))


def console() -> "Console":
    """For people, on stderr: colour on a terminal, plain text elsewhere."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)
