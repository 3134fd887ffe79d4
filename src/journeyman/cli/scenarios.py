"""`journeyman scenarios`: files of things to build, to train on."""

from pathlib import Path

import click

from journeyman.cli.shared import emit, json_option


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
    from journeyman.cli.actions import scenarios

    if output is not None and output.exists() and not force:
        raise click.UsageError(f"{output} is there already; name another file, or write over it with --force")
    text = scenarios.template(kind, output)
    if output is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"written to {output}; look it over with: journeyman scenarios validate {output}", err=True)


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
    from journeyman.cli.actions import scenarios

    found, words = scenarios.validated(file)
    if not as_json:
        for line in words:
            click.echo(line)
    emit(found, as_json=as_json)
    return 0 if found["valid"] else 1


@command.command("examples")
@json_option
def examples(as_json: bool) -> None:
    """List the scenarios that ship with Journeyman.

    \b
    Example:
      journeyman scenarios examples
    """
    from journeyman.cli.actions import scenarios

    found = scenarios.examples()
    if not as_json:
        for scenario in found:
            click.echo(f"{scenario['name']} ({scenario['category']}; checks: {', '.join(scenario['checks'])})")
            click.echo(f"    {scenario['goal']}")
    emit({"scenarios": found}, as_json=as_json)
