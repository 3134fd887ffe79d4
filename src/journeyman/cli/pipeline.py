"""`journeyman pipeline`: from what was recorded to a model that is served."""

from typing import Any

import click

from journeyman.cli.shared import emit, json_option, options_named


@click.group()
def command() -> None:
    """Do all steps from what was recorded to a served model.

    \b
    Example:
      journeyman pipeline weights --tasks desk --domain oslo --deploy-llamacpp
    """


@command.command("weights")
@click.option("--agent", "agent_name", metavar="NAME", help="Learn from this agent's traces in the store.")
@click.option(
    "--tasks",
    "dataset_name",
    help="Tasks to be examined on, and to learn from where there is nothing else: desk, gsm8k, custom, humaneval, mbpp.",
)
@click.option("--data", metavar="FILE", help="Or from rows that are there.")
@click.option("--input", "input_path", metavar="FILE", help="The file of the tasks.")
@click.option("--domain", help="Only tasks of this domain; for the desk, the shop.")
@click.option("--method", type=click.Choice(["grpo", "grpo-offline", "kto", "dpo", "rft"]), help="[default: grpo]")
@click.option("--base-model", metavar="MODEL", help="A Hugging Face id, a folder, or embedded:SIZE.")
@click.option(
    "--context", type=click.Choice(["keep", "drop"]), help="What becomes of a playbook's bullets in recorded prompts."
)
@click.option("--start-adapter", metavar="RUN", help="Go on from this adapter: a run, or a folder.")
@click.option("--num-examples", type=int, help="Training tasks.  [default: 400]")
@click.option("--validation", type=int, help="Tasks to choose the best checkpoint by.  [default: 64]")
@click.option("--num-epochs", "--epochs", type=float, help="Times through the data.  [default: 3]")
@click.option("--batch-size", "per_device_batch_size", type=int, help="Completions in one pass.  [default: what fits]")
@click.option("--max-steps", type=int, help="Updates.  [default: by epochs]")
@click.option("--learning-rate", type=float, help="[default: by method and size]")
@click.option("--seed", type=int, help="[default: 0]")
@click.option("--held-out", type=int, help="Held-out tasks to examine on, at most.  [default: 200]")
@click.option("--quick", is_flag=True, default=None, help="A short training, to see that everything works.")
@click.option("--force", is_flag=True, default=None, help="Export and deploy even what does not pass; this is recorded.")
@click.option("--quantization", help="Of the GGUF file.  [default: Q4_K_M]")
@click.option("--name", help="Of the model that is made.  [default: the agent, or the run]")
@click.option("--deploy-ollama", is_flag=True, default=None, help="Make it a model of Ollama.")
@click.option("--deploy-llamacpp", is_flag=True, default=None, help="Serve it with llama.cpp, and see it answer.")
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

    options = {name: value for name, value in given.items() if value is not None}
    with options_named():
        result = train_weights.run_pipeline(options, quiet=as_json)
    emit(result.json(), as_json=as_json)
    return 0 if result.done else 1
