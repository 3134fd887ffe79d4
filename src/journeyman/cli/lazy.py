"""Groups of commands whose files are loaded when one of them is called, so that help costs next to nothing."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

_RENAMED = {
    "pay": "success-value",
    "crew": "workers-from",
    "trials": "attempts-per-task",
    "least-gain": "min-gain",
    "least-tasks": "min-tasks",
}
"""Options as they were spelled before. They still work, and no help shows them."""


def spelled(option: str) -> str:
    """As the help shows it."""
    named = option.replace("_", "-")
    return _RENAMED.get(named, named)


class LazyGroup(click.Group):
    """Knows commands by name and line, and loads one when it is called. Others may be added to it as to any group."""

    def __init__(
        self,
        name: str | None = None,
        *,
        lines: Mapping[str, str] | None = None,
        homes: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        """
        Args:
            lines: The short help of each command that is loaded late.
            homes: The file below this package that a command stands in, and after a colon its name there; without one, the
                file of the command's name and `command`.
        """
        self.lines, self.homes = dict(lines or {}), dict(homes or {})
        known = {name: click.Command(name, short_help=line) for name, line in self.lines.items()}
        super().__init__(name, {**known, **(more.pop("commands", None) or {})}, **more)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lines:
            return super().get_command(ctx, cmd_name)
        module, _, name = self.homes.get(cmd_name, cmd_name).partition(":")
        command: click.Command = getattr(import_module(f"{__package__}.{module}"), name or "command")
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """As click does, without loading a command for its help."""
        named = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        helps = {name: self.commands[name].get_short_help_str(200) for name in named}
        found = [CompletionItem(name, help=line) for name, line in helps.items()]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not self.lines:
            super().format_commands(ctx, formatter)
            return
        commands = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(200)) for name, command in commands])


class CommandGroup(LazyGroup):
    """Takes arguments of its own, unless the first word is a sub-command."""

    allow_interspersed_args = True
    """As any command does: options may come after the arguments."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        above = click.Context(self, info_name=info_name, parent=parent)
        if args and (command := self.get_command(above, args[0])):
            return command.make_context(args[0], args[1:], parent=above, **extra)
        return super().make_context(info_name, args, parent, **extra)


class Own(click.Argument):
    """Is told by the group itself, so that its sub-commands do not seem to take it too."""

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        return []
