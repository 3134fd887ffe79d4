"""How large things may grow, and what must be said about each."""

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import journeyman
from journeyman.cli import COMMANDS, root

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "journeyman"
FILES = sorted(SOURCE.rglob("*.py"))
ALL_FILES = [*FILES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "benchmarks").rglob("*.py"))]

LONG: dict[str, str] = {}
"""Files of more than 400 lines, each with a sentence why."""
FUNCTION_P95 = 40


@pytest.mark.parametrize("path", ALL_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_has_at_most_400_lines(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= 400 or str(path.relative_to(ROOT)) in LONG, f"{lines} lines: split it, or say why not in LONG"


def test_functions_are_short() -> None:
    lengths = sorted(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    assert lengths[int(len(lengths) * 0.95)] <= FUNCTION_P95


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_says_what_it_is_for(path: Path) -> None:
    text = path.read_text()
    assert not text.strip() or ast.get_docstring(ast.parse(text))


def test_every_public_name_has_a_docstring() -> None:
    names = list(getattr(journeyman, "__all__", ()))
    bare = [name for name in names if name != "__version__" and not getattr(journeyman, name).__doc__]
    assert bare == []


def commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(path), command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            below = command.get_command(click.Context(command), name)
            assert below is not None
            yield from commands(below, (*path, name))


def every_command() -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []
    for name in COMMANDS:
        if importlib.util.find_spec(f"journeyman.cli.{name}"):
            command = root.get_command(click.Context(root), name)
            assert command is not None
            found += commands(command, ("journeyman", name))
    return found


@pytest.mark.parametrize(("name", "command"), every_command(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_command_has_help_and_an_example_of_itself(name: str, command: click.Command) -> None:
    told = command.help or ""
    assert command.get_short_help_str()
    assert "Example" in told
    assert f"  {name}" in told
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.name} has no help"


def test_every_example_can_be_parsed() -> None:
    for name, command in every_command():
        for line in (command.help or "").splitlines():
            words = line.split("  #")[0].split()
            if words[:1] == ["journeyman"] and "…" not in line:
                assert parsed(words[1:]), f"{name}: {line.strip()}"


def parsed(words: list[str]) -> bool:
    """Whether the options exist; whether the files do is another matter."""
    context = click.Context(root, info_name="journeyman", token_normalize_func=root.context_settings["token_normalize_func"])
    command: click.Command = root
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        below = command.get_command(context, words[0])
        if below is None:
            if any(isinstance(each, click.Argument) for each in command.params):
                break
            return False
        words.pop(0)
        context = click.Context(below, parent=context, info_name=below.name)
        command = below
    try:
        command.make_parser(context).parse_args(words)
    except click.UsageError:
        return False
    return True
