"""What all commands speak alike: data for programs on stdout, words for people on stderr."""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

_Made = TypeVar("_Made", bound=Callable[..., Any])


def json_option(made: _Made) -> _Made:
    """Gives a command `--json`, as the argument `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line of stdout.")(made)


def emit(result: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the result as one line of JSON, if that was asked for. Its fields are a promise."""
    if as_json:
        click.echo(json.dumps(result, default=str))


def console() -> "Console":
    """For people, on stderr: colour on a terminal, plain text elsewhere."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)
