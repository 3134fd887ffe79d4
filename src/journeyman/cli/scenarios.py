"""`journeyman scenarios`: files of things to build, to train on."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from journeyman.cli.console import say, write
from journeyman.cli.shared import emit, json_option
from journeyman.core.format import counted
from journeyman.io.atomic import write_text
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
@click.option("--format", "kind", type=click.Choice(["yaml", "json"]), help="Of the file.  [default: as FILE ends, else yaml]")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write it there instead of to stdout.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def template(kind: str | None, output: Path | None, force: bool) -> None:
    """Write a file to begin your own scenarios with.

    \b
    Examples:
      journeyman scenarios template -o my_scenarios.yaml
      journeyman scenarios template --format json
    """
    from journeyman.tasks.scenarios import builtin

    # Files are read by how they end.
    ends_in_json = output is not None and output.suffix == ".json"
    if output is not None and kind is not None and (kind == "json") != ends_in_json:
        raise click.UsageError(f"{output} would be read as {'JSON' if ends_in_json else 'YAML'}; leave out --format {kind}")
    text = builtin.template("json" if kind == "json" or ends_in_json else "yaml")
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
