"""`journeyman pipeline`: from what was recorded to a model that is served."""

from typing import Any

import click

from journeyman.cli.options import options, provided
from journeyman.cli.shared import emit, json_option, options_named
from journeyman.experiments.weights.config import PipelineConfig, RunSettings
from journeyman.optimizers.weights.config import WeightsTrainingConfig
from journeyman.optimizers.weights.data.config import DatasetConfig


@click.group()
def command() -> None:
    """Do all steps from what was recorded to a served model.

    \b
    Example:
      journeyman pipeline weights --tasks desk --domain oslo --deploy-llamacpp
    """


@command.command("weights")
@options(PipelineConfig, leave_out=("dataset",))
@options(DatasetConfig, only=("context",), helps={"context": "What becomes of a playbook's bullets in recorded prompts."})
@options(
    WeightsTrainingConfig,
    leave_out=("context",),
    helps={
        "dataset_name": (
            "Tasks to be examined on, and to learn from where there is nothing else: desk, gsm8k, custom, humaneval, mbpp."
        ),
        "data": "Or from rows that are there.",
    },
)
@options(RunSettings, helps={"force": "Export and deploy even what does not pass; this is recorded."})
@click.option("--quick", is_flag=True, default=None, help="A short training, to see that everything works.")
@click.option(
    "--resume", is_flag=False, flag_value="", metavar="[RUN]", help="Go on with a pipeline: the newest unfinished, or RUN."
)
@json_option
def weights(as_json: bool, **given: Any) -> int:
    """Learn in the weights, prove it, and serve it.

    Rows are made of an agent's traces (or tasks are attempted), an adapter is trained and examined on held-out tasks, and what
    passes the gate becomes a GGUF file and a served model. With --agent, --tasks are what it is proven by; without any, nothing
    is deployed but with --force. Exit code 1 when not all of it could be done.

    \b
    Examples:
      journeyman pipeline weights --tasks desk --domain oslo --deploy-llamacpp
      journeyman pipeline weights --agent my_agent --method kto --base-model Qwen/Qwen2.5-1.5B-Instruct --deploy-ollama
      journeyman pipeline weights --resume
    """
    from journeyman.cli.actions import train_weights

    with options_named():
        result = train_weights.run_pipeline(provided(given), quiet=as_json)
    emit(result.json(), as_json=as_json)
    return 0 if result.done else 1
