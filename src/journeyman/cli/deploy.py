"""`journeyman deploy`: serve what was learned in the weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from journeyman.cli.shared import json_option, options_named

_QUANTIZATION = click.option(
    "--quantization",
    default="Q4_K_M",
    show_default=True,
    metavar="TYPE",
    help="What it is exported as, where it is no GGUF file yet; an export that is there is taken.",
)
_BASE = click.option(
    "--base-model", default="", metavar="MODEL", help="Where an adapter's base lies, if elsewhere than it says."
)
_CONTEXT = click.option("--num-ctx", type=click.IntRange(1), metavar="N", help="Tokens of one request.  [default: by memory]")
_PARALLEL = click.option("--num-parallel", type=click.IntRange(1), metavar="N", help="Requests at once.  [default: by memory]")
_PROFILE = click.option(
    "--profile",
    type=click.Choice(("auto", "ryzen")),
    default="auto",
    show_default=True,
    help="Settings that follow from this machine, or those of a Ryzen 9 5950X.",
)
_NAME = click.option("--name", default="", metavar="NAME", help="What the model is called.  [default: as the run]")
_FORCE = click.option("--force", is_flag=True, help="Also when its gate did not pass. That is written down in the run.")


def _common(made: Callable[..., Any]) -> Callable[..., Any]:
    for option in (json_option, _FORCE, _PROFILE, _PARALLEL, _CONTEXT, _BASE, _QUANTIZATION, _NAME):
        made = option(made)
    return made


@click.group()
def command() -> None:
    """Serve what was learned in the weights, by Ollama or llama.cpp.

    What is deployed passed its gate; anything else needs --force.

    \b
    Examples:
      journeyman deploy ollama RUN --name toolbox-agent
      journeyman deploy llamacpp RUN
    """


@command.command()
@click.pass_context
@click.argument("run", metavar="RUN")
@click.option("--host", metavar="HOST", help="Where Ollama is, as OLLAMA_HOST has it.  [default: OLLAMA_HOST, or this machine]")
@click.option("--system", default="", metavar="TEXT", help="A system message for every conversation.")
@click.option(
    "--license",
    "licence",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A file with the licence of the weights.  [default: as the model says]",
)
@click.option("--dry-run", is_flag=True, help="Print the Modelfile, and say what would be sent, and send nothing.")
@_common
def ollama(ctx: click.Context, run: str, as_json: bool, **options: Any) -> None:
    """Make a model of Ollama, and ask it something.

    RUN is the id or folder of a training, the folder of an adapter or a merged model, or a GGUF file. The chat template is
    carried over from the model's own; weights that Ollama has are not sent again. Exit code 1 when the gate did not pass, or
    the model says nothing.

    \b
    Examples:
      journeyman deploy ollama weights-grpo-oslo-1a2b3c4d --name toolbox-agent
      journeyman deploy ollama model-Q4_K_M.gguf --name toolbox-agent --dry-run
      journeyman deploy ollama RUN --name me/agent:v2 --host gpu-box:11434
    """
    from journeyman.cli.actions import deploy

    with options_named():
        wish = deploy.DeployOptions(run=run, as_json=as_json, **{name: options.pop(name) for name in deploy.COMMON})
        ctx.exit(0 if deploy.to_ollama(wish, **options) else 1)


@command.command()
@click.pass_context
@click.argument("run", metavar="RUN")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    metavar="N",
    help="On loopback; 0 is any free one.",
)
@click.option(
    "--log", type=click.Path(path_type=Path, dir_okay=False), help="Where the server writes.  [default: beside the model]"
)
@click.option("--detach", is_flag=True, help="Leave it running when this command ends.")
@click.option("--stop", is_flag=True, help="End the one that was left running.")
@_common
def llamacpp(ctx: click.Context, run: str, as_json: bool, **options: Any) -> None:
    """Serve by llama.cpp, for whoever speaks OpenAI's protocol, until Ctrl-C.

    RUN is the id or folder of a training, the folder of an adapter or a merged model, or a GGUF file. With --json, one line
    when it answers. Exit code 1 when the gate did not pass, or the server ends by itself.

    \b
    Examples:
      journeyman deploy llamacpp weights-grpo-oslo-1a2b3c4d
      journeyman deploy llamacpp model-Q4_K_M.gguf --port 0 --detach --json
      journeyman deploy llamacpp model-Q4_K_M.gguf --stop
    """
    from journeyman.cli.actions import deploy

    with options_named():
        wish = deploy.DeployOptions(run=run, as_json=as_json, **{name: options.pop(name) for name in deploy.COMMON})
        ctx.exit(0 if (deploy.stop(wish) if options.pop("stop") else deploy.to_llamacpp(wish, **options)) else 1)
