"""`journeyman scenarios`: files of things to build, to train on."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import say, write
from journeyman.cli.shared import emit, json_option
from journeyman.core.errors import InputError
from journeyman.core.format import counted
from journeyman.io.atomic import write_json, write_text
from journeyman.io.files import check_writable

if TYPE_CHECKING:
    from journeyman.tasks.scenarios import Notice


@click.group()
def command() -> None:
    """Write, check and look at scenarios to train on.

    \b
    Example:
      journeyman scenarios template -o my_scenarios.yaml
    """


@command.command("template")
@click.option("--format", "kind", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="Of the file.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write it there instead of to stdout.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def template(kind: str, output: Path | None, force: bool) -> None:
    """Write a file to begin your own scenarios with.

    \b
    Examples:
      journeyman scenarios template -o my_scenarios.yaml
      journeyman scenarios template --format json
    """
    from journeyman.tasks.scenarios import builtin

    text = builtin.template("json" if kind == "json" else "yaml")
    if output is None:
        click.echo(text, nl=False)
        return
    if output.exists() and not force:
        raise click.UsageError(f"{output} is there already; name another file, or write over it with --force")
    check_writable(output)
    write_text(output, text)
    say(f"written to {output}; look it over with: journeyman scenarios validate {output}")


@command.command("validate")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def validate(file: Path, as_json: bool) -> int:
    """Name every fault of a file, and what in it is too vague.

    Ends with 1 when the file has faults; warnings alone are none.

    \b
    Example:
      journeyman scenarios validate my_scenarios.yaml
    """
    from journeyman.tasks.scenarios import read

    checked = read(file)
    faults, warnings = _by_line(checked.faults), _by_line(checked.warnings)
    usable, verified = len(checked.scenarios), sum(bool(scenario.checks) for scenario in checked.scenarios)
    if not as_json:
        write(*map(str, faults), *(f"{notice} (warning)" for notice in warnings))
        counts = f"{counted(len(faults), 'fault')}, {counted(len(warnings), 'warning')}"
        write(f"{file}: {counted(usable, 'scenario')} can be used, {verified} with checks; {counts}")
    notices = {"faults": list(map(asdict, faults)), "warnings": list(map(asdict, warnings))}
    emit({"valid": not faults, "scenarios": usable, "with_checks": verified, **notices}, as_json=as_json)
    return 1 if faults else 0


@command.command("examples")
@json_option
def examples(as_json: bool) -> None:
    """List the scenarios that ship with Journeyman.

    \b
    Example:
      journeyman scenarios examples
    """
    from journeyman.tasks.scenarios import builtin

    # As they stand in a file, without their checks.
    scenarios = [
        {
            "name": scenario.name,
            "goal": scenario.goal,
            "requirements": list(scenario.requirements),
            "task_type": str(scenario.task_type),
            "category": scenario.category,
            "checks": [check.name for check in scenario.checks],
        }
        for scenario in builtin.examples()
    ]
    if not as_json:
        for each in scenarios:
            write(f"{each['name']} ({each['category']}; checks: {', '.join(each['checks'])})", f"    {each['goal']}")
    emit({"scenarios": scenarios}, as_json=as_json)


def _by_line(notices: "Iterable[Notice]") -> "list[Notice]":
    return sorted(notices, key=lambda notice: notice.line)


# Scenarios typed in. Every answer is on the disk before the next question, so that an interruption loses none.

DONE = "done"
_DRAFT = "interactive.json"
_CATEGORIES = "micro_saas, automation, ai_agent, custom"


def enter(project: Path) -> Path:
    """Ask for scenarios until "done"; the file that they are in.

    Raises:
        InputError: None was typed in, or there is no place to keep it; that is said before anything is asked.
    """
    from journeyman.experiments import wiring
    from journeyman.tasks.scenarios import load

    draft, path = project / _DRAFT, Path("scenarios") / f"interactive_{wiring.now():%Y%m%d_%H%M%S}.json"
    for file in (draft, path):
        check_writable(file)
    scenarios, begun = _entered_before(draft)

    def keep() -> None:
        write_json(draft, {"scenarios": scenarios, "begun": begun})

    say(f"Type {DONE} as a name when all scenarios are entered. Every answer is kept in {draft} at once.")
    while _entered(scenarios, begun, keep):
        scenarios.append(dict(begun))
        begun.clear()
        keep()
    if not scenarios:
        draft.unlink(missing_ok=True)
        raise InputError("no scenario was entered; there is nothing to train on")
    write_json(path, {"scenarios": scenarios})
    load(path)
    draft.unlink(missing_ok=True)
    say(f"{len(scenarios)} in {path}. There you can give them checks, and train on them again with --scenarios.")
    return path


def _entered_before(draft: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What an interrupted session had entered, if it is wanted: whole scenarios, and the answers to one that was begun."""
    try:
        answers = json.loads(draft.read_text(encoding="utf-8"))
        scenarios, begun = list(answers["scenarios"]), dict(answers["begun"])
    except FileNotFoundError:
        return [], {}
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{draft} is not what was written; mend it, or delete it to begin anew") from None
    names = ", ".join(entry["name"] for entry in [*scenarios, begun] if "name" in entry)
    wanted = names and click.confirm(f"Entered before: {names}. Go on with that?", default=True, err=True)
    return (scenarios, begun) if wanted else ([], {})


def _entered(scenarios: list[dict[str, Any]], begun: dict[str, Any], keep: Callable[[], None]) -> bool:
    """Ask for what is missing of one scenario; whether there was one."""
    if "name" not in begun:
        taken = {entry["name"].casefold() for entry in scenarios}
        name = _ask("Scenario name", lambda text: text and text.casefold() not in taken, "give it a name that none has yet")
        if name.casefold() == DONE:
            return False
        begun["name"] = name
        keep()
    if "goal" not in begun:
        begun["goal"] = _ask("Goal", bool, "say what is to be built")
        keep()
    wanted = begun.setdefault("requirements", [])
    while "category" not in begun:
        text = _ask(f"Requirement {len(wanted) + 1} (empty: no more)", lambda _: True, "")
        if not text:
            begun["category"] = ""
        else:
            wanted.append(text)
        keep()
    begun["category"] = begun["category"] or _ask(f"Category ({_CATEGORIES})", lambda _: True, "") or "custom"
    begun["task_type"] = "CODE_INTERPRET"
    return True


def _ask(question: str, fine: Callable[[str], Any], otherwise: str) -> str:
    while True:
        answer: str = click.prompt(question, default="", show_default=False, err=True).strip()
        if fine(answer):
            return answer
        say(otherwise)
