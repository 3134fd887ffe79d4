"""What all commands speak alike: data for programs on stdout, words for people on stderr."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from journeyman.core.errors import InputError, SettingError

if TYPE_CHECKING:
    from rich.console import Console

_Made = TypeVar("_Made", bound=Callable[..., Any])


class CommandGroup(click.Group):
    """Takes arguments of its own, unless the first word is a sub-command."""

    allow_interspersed_args = True
    """As any command does: options may come after the arguments."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and args[0] in self.commands:
            above = click.Context(self, info_name=info_name, parent=parent)
            return self.commands[args[0]].make_context(args[0], args[1:], parent=above, **extra)
        return super().make_context(info_name, args, parent, **extra)


class Own(click.Argument):
    """Is told by the group itself, so that its sub-commands do not seem to take it too."""

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        return []


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


# Where the tokens of our servers come from.


def tokens_in(variable: str) -> tuple[str, ...]:
    """The tokens in an environment variable. They are in nothing that is said."""
    tokens = tuple(os.environ.get(variable, "").split())
    if not tokens:
        raise InputError(f"the environment variable {variable} of --token-env is empty: put the token there")
    if not all(token.isascii() and len(token) >= 16 for token in tokens):
        raise InputError(f"a token in {variable} is too short: use 16 ASCII characters or more, as of `openssl rand -hex 16`")
    return tokens


# Where things are kept.

store_option = click.option("--store", metavar="URL", help="Another store than the project's: a file, or postgresql://…")


def store_url(store: str | None) -> str:
    """The URL of the store that `--store` names, else of the project's."""
    from journeyman.experiments import settings
    from journeyman.stores.urls import as_url

    return as_url(store) if store else settings.load().store_url
