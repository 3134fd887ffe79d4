"""`journeyman orchestrate`: a pipeline, under the names of an earlier system."""

from pathlib import Path

import click

from journeyman.cli import pipeline
from journeyman.cli.console import say
from journeyman.cli.shared import json_option
from journeyman.core.errors import InputError


@click.command("orchestrate")
@click.option("--full-pipeline", is_flag=True, help="Carry out all stages of --config.")
@click.option("--quick-train", is_flag=True, help="A short run of each of them, for --epochs.")
@click.option("--resume", is_flag=True, help="Go on with what was broken off.")
@click.option(
    "--config",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A pipeline, or YAML of sections model, training, data_collection and reward_system.  [default: pipeline.toml]",
)
@click.option("--epochs", type=click.IntRange(1), metavar="N", help="Times through the data.")
@click.option("--checkpoint", metavar="FILE", help="Taken for --resume's sake: the newest checkpoint is found by itself.")
@click.option("--profile", is_flag=True, help="Draw where each stage spends its time, as flame graphs (extra profile).")
@click.option("--debug", is_flag=True, envvar="DEBUG", help="Show what each stage is told, and what it says; so does DEBUG=1.")
@json_option
@click.pass_context
def command(  # noqa: PLR0913  # the options of one command
    context: click.Context,
    *,
    full_pipeline: bool,
    quick_train: bool,
    resume: bool,
    file: Path | None,
    epochs: int | None,
    checkpoint: str | None,
    profile: bool,
    debug: bool,
    as_json: bool,
) -> int:
    """Carry out a whole pipeline from one configuration.

    `journeyman pipeline` says more of its stages.

    \b
    Examples:
      journeyman orchestrate --full-pipeline --config configs/my_config.yaml
      journeyman orchestrate --quick-train --epochs 50
      journeyman orchestrate --resume --checkpoint checkpoints/latest.pth
    """
    if not (full_pipeline or quick_train or resume or profile):
        raise InputError("one of --full-pipeline, --quick-train and --resume says what is to be done")
    if checkpoint:
        say(f"{checkpoint} is not read: the stage that was broken off has a checkpoint of its own, and goes on from that")
    given = file or Path(pipeline.FILE)
    if file is None and not given.exists():
        given.write_text(pipeline.preset("desk"), encoding="utf-8")
        say(f"{given} was written: a small model that comes along learns a job; put your own stages there")
    sets = (f"train.num_epochs={epochs}",) if epochs else ()
    code: int = context.invoke(
        pipeline.run, file=given, as_json=as_json, debug=debug, profile=profile, begin="", only="", resume=True, trust=False,
        sets=sets, quick=quick_train,
    )  # fmt: skip
    return code
