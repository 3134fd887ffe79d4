"""`journeyman hardware`: what a training would find here."""

import click

from journeyman.cli.shared import emit, json_option

PROFILES = ("AUTO_DETECT", "RYZEN_OPTIMIZED", "GPU_ENABLED", "CPU_ONLY")
METHODS = ("grpo", "grpo-offline", "kto", "dpo", "rft")
"""As in `journeyman.optimizers.weights`, which loads too much for a help text; a test compares them."""


@click.command()
@json_option
@click.option(
    "--model", default="", metavar="MODEL", help="Estimate a training of it: a Hugging Face id, a folder, or embedded:SIZE."
)
@click.option("--method", type=click.Choice(METHODS), default="grpo", show_default=True, help="Of that training.")
@click.option(
    "--profile",
    type=click.Choice(PROFILES, case_sensitive=False),
    default="AUTO_DETECT",
    show_default=True,
    help="What the settings are based on.",
)
@click.pass_context
def command(ctx: click.Context, as_json: bool, model: str, method: str, profile: str) -> None:
    """Say what this machine can train, and which settings follow from it.

    Cores, memory and GPUs as this process may really use them: affinity and the limits of a container count. With --model also
    the settings of its training and an estimate of what it takes. Exit code 1 when that will not fit.

    \b
    Examples:
      journeyman hardware
      journeyman hardware --model Qwen/Qwen2.5-1.5B-Instruct
      journeyman hardware --profile RYZEN_OPTIMIZED --json
    """
    from journeyman.cli.actions import doctor

    found = doctor.look(profile, model, method)
    if not as_json:
        doctor.show(found)
    emit(doctor.told(found), as_json=as_json)
    ctx.exit(1 if found.refusal else 0)
