"""`journeyman train weights`: learn in the weights."""

from typing import Any

import click

from journeyman.cli.options import options, provided
from journeyman.cli.shared import emit, json_option, options_named
from journeyman.experiments.weights.config import RunSettings
from journeyman.optimizers.weights.config import WeightsTrainingConfig


@click.command("weights")
@options(WeightsTrainingConfig)
@options(RunSettings)
@click.option("--profile", help="Hardware to plan for: auto_detect, cpu_only, gpu_enabled, ryzen_optimized.")
@click.option("--quick", is_flag=True, default=None, help="A short run, to see that everything works.")
@click.option(
    "--resume", is_flag=False, flag_value="", metavar="[RUN]", help="Go on with a run: the newest unfinished, or RUN."
)
@click.option("--dry-run", is_flag=True, default=None, help="Estimate memory, time and cost; train nothing.")
@json_option
def command(as_json: bool, **given: Any) -> None:
    """Learn in the weights: train a LoRA adapter, and prove it on held-out tasks.

    From tasks, completions are sampled from the model in training and judged; from --data, recorded ones are learned from. The
    training is a process of its own; a run that was killed goes on with --resume. An adapter that does not pass the gate stays
    in shadow.

    \b
    Examples:
      journeyman train weights --method grpo --tasks desk --domain oslo
      journeyman train weights --method kto --data kto.jsonl --base-model Qwen/Qwen2.5-1.5B-Instruct --dry-run
      journeyman train weights --method rft --tasks gsm8k --input train.jsonl --base-model models/mine
      journeyman train weights --resume
    """
    from journeyman.cli.actions import train_weights

    with options_named():
        result = train_weights.run(provided(given), quiet=as_json)
    emit(result, as_json=as_json)
