"""`journeyman doctor`: what is here, what is not, and what to type."""

from typing import TYPE_CHECKING

import click

from journeyman.cli.shared import emit, json_option

if TYPE_CHECKING:
    from journeyman.cli.actions.doctor import HealthCheck

_COLOURS = {"ok": "green", "missing": "yellow", "broken": "red", "no": None}


@click.command()
@click.pass_context
@json_option
def command(ctx: click.Context, as_json: bool) -> None:
    """Say what is installed, what is missing, and how to mend it.

    Exit code 0 when everything needed works, 1 when something needed is broken. Of keys it only says whether they are set.

    \b
    Examples:
      journeyman doctor
      journeyman doctor --json
    """
    from dataclasses import asdict

    from journeyman.cli.actions import doctor

    checks = [*doctor.examine(), *doctor.examine_sandboxes()]
    works = all(check.works for check in checks)
    if not as_json:
        _show(checks)
        click.echo("\nEverything needed works." if works else "\nSomething needed is broken: see the lines in red.")
    emit({"ok": works, "checks": [asdict(check) for check in checks]}, as_json=as_json)
    ctx.exit(0 if works else 1)


def _show(checks: "list[HealthCheck]") -> None:
    group = ""
    for check in checks:
        if check.group != group:
            group = check.group
            click.secho(group, bold=True)
        state = click.style(f"{check.state:8}", fg=_COLOURS[check.state])
        click.echo(f"  {state} {check.name:22} {check.detail}".rstrip())
        if check.mend:
            click.echo(f"  {'':8} {'':22} → {check.mend}")
