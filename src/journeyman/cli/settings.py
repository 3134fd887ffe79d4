"""`journeyman settings`: what holds in this project, and who said so."""

from pathlib import Path
from typing import Any

import click

from journeyman.cli.console import Column, plain, say, table
from journeyman.cli.lazy import CommandGroup, Own
from journeyman.cli.shared import emit, json_option
from journeyman.core.errors import InputError


@click.group(cls=CommandGroup, invoke_without_command=True, subcommand_metavar="[SECTION] | init [OPTIONS]")
@click.argument("section", required=False, cls=Own)
@json_option
@click.pass_context
def command(context: click.Context, /, section: str | None, as_json: bool) -> None:
    """Show every setting of the project, its value, and where it was said.

    The sources, later ones win: the defaults, journeyman.toml in this folder or above it, variables JOURNEYMAN_SECTION__NAME of
    the environment, options of a command. SECTION shows one part alone.

    \b
    Examples:
      journeyman settings
      journeyman settings gate --json
      JOURNEYMAN_GATE__MIN_GAIN=0.02 journeyman settings gate
      journeyman settings init
    """
    if context.invoked_subcommand is not None:
        return
    from journeyman.experiments import settings

    project = settings.load()
    listed = [each for each in settings.listed(project) if section in (None, each.name.partition(".")[0])]
    if section is not None and section not in settings.SECTIONS:
        raise InputError(settings.no_section(section))
    if not as_json:
        where = str(project.file) if project.file else f"none; write one: journeyman settings init ({project.root})"
        say(f"file: {where}")
        # A name is searched for, and stays whole.
        columns = [Column(name=name, words=True, wraps=True, least=least) for name, least in
                   (("setting", 40), ("value", 20), ("said by", 20))]  # fmt: skip
        table(columns, [(each.name, plain(_text(each.value)), plain(each.origin)) for each in listed])
    shown = {each.name: {"value": each.value, "origin": each.origin, "help": each.help} for each in listed}
    emit({"file": str(project.file) if project.file else None, "settings": shown}, as_json=as_json)


@command.command()
@json_option
def init(as_json: bool) -> None:
    """Write a journeyman.toml here in which every setting stands in a comment.

    With each its default, and what it means. A file that is there is left as it is.

    \b
    Examples:
      journeyman init
      journeyman settings init
    """
    from journeyman.experiments import settings
    from journeyman.experiments.place import FILE
    from journeyman.io.atomic import write_text

    path = Path(FILE)
    if path.exists():
        raise InputError(f"{path} is there already, and is left as it is; see what holds: journeyman settings")
    write_text(path, settings.template())
    say(f"{path} is written; take the # from what you want to change")
    emit({"file": str(path.resolve())}, as_json=as_json)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what lets a shell complete commands and options.

    \b
    Examples:
      journeyman completion bash >> ~/.bashrc
      journeyman completion zsh >> ~/.zshrc
      journeyman completion fish > ~/.config/fish/completions/journeyman.fish
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(click.get_current_context().find_root().command, {}, "journeyman", "_JOURNEYMAN_COMPLETE").source())


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(" ".join(map(str, each)) if isinstance(each, tuple) else str(each) for each in value)
    return "" if value is None else str(value)
