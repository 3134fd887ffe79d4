"""How large things may grow, and what must be said about each."""

import ast
import importlib.util
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from journeyman.cli import COMMANDS, root

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "journeyman"
FILES = sorted(SOURCE.rglob("*.py"))
FOLDERS = (SOURCE, ROOT / "tests", ROOT / "benchmarks")
FILE_P95 = 600
FUNCTION_P95 = 40


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_files_are_short(folder: Path) -> None:
    lengths = sorted((len(path.read_text().splitlines()), str(path.relative_to(ROOT))) for path in folder.rglob("*.py"))
    long = [f"{path}: {lines} lines" for lines, path in lengths if lines > FILE_P95]
    assert lengths[int(len(lengths) * 0.95)][0] <= FILE_P95, "\n".join(long)


def functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All within a statement, in a fifth of the time of `ast.walk`: none is in an expression."""
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        for below in getattr(node, field, ()):
            if isinstance(below, ast.FunctionDef | ast.AsyncFunctionDef):
                yield below
            yield from functions(below)


@pytest.mark.slow
def test_functions_are_short_and_every_module_says_what_it_is_for() -> None:
    """One test, as it is the parsing of all modules that takes time."""
    lengths, silent = [], []
    for path in FILES:
        text = path.read_text()
        module = ast.parse(text)
        if text.strip() and not ast.get_docstring(module):
            silent.append(str(path.relative_to(SOURCE)))
        lengths += [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions(module)]
    assert sorted(lengths)[int(len(lengths) * 0.95)] <= FUNCTION_P95
    assert silent == []


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


def test_every_command_and_option_has_help_and_every_command_an_example_of_itself() -> None:
    wrong = []
    for name, command in every_command():
        told = command.help or ""
        if not command.get_short_help_str() or "Example" not in told or f"  {name}" not in told:
            wrong.append(f"{name}: its help lacks a short line, or an example of itself")
        options = (option for option in command.params if isinstance(option, click.Option))
        wrong += [f"{name} {option.opts[0]}: no help" for option in options if not option.help]
    assert wrong == []


def test_every_example_can_be_parsed() -> None:
    for name, command in every_command():
        for line in (command.help or "").splitlines():
            words = _words(line.split("  #")[0])
            if words[:1] == ["journeyman"] and "…" not in line:
                assert parsed(words[1:]), f"{name}: {line.strip()}"


def _words(line: str) -> list[str]:
    """As a shell reads them; of a line whose quotes end in the next one, as they stand."""
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


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
