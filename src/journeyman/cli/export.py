"""`journeyman export`: what was learned in the weights, as files that others can serve."""

from pathlib import Path

import click

from journeyman.cli.shared import emit, json_option


@click.group()
def command() -> None:
    """Write what was learned in the weights as files that others serve.

    \b
    Example:
      journeyman export gguf RUN --quantization Q4_K_M
    """


@command.command()
@click.argument("run", metavar="RUN")
@click.option(
    "--quantization",
    "types",
    multiple=True,
    default=("Q4_K_M",),
    show_default=True,
    metavar="TYPE",
    help="F32, F16, BF16, Q8_0, Q6_K, Q5_K_M, Q4_K_M, Q4_0, Q3_K_M, Q2_K or all; may be given several times.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE|FOLDER",
    help="Where to.  [default: the run's, or the model's folder]",
)
@click.option(
    "--merged", type=click.Path(path_type=Path), metavar="FOLDER", help="Keep the merged model here, for transformers."
)
@click.option("--base-model", default="", metavar="MODEL", help="Where an adapter's base lies, if elsewhere than it says.")
@click.option(
    "--texts",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="What to measure on: rows (.jsonl, .parquet), or a text a line.  [default: the run's own rows or validation tasks]",
)
@click.option("--no-measure", is_flag=True, help="Do not find out what each type costs.")
@click.option(
    "--pre-tokenizer",
    default="",
    metavar="NAME",
    help="llama.cpp's name for how the tokenizer cuts texts.  [default: found out]",
)
@click.option("--threads", type=click.IntRange(1), metavar="N", help="For llama.cpp.  [default: by cores]")
@json_option
def gguf(run: str, types: tuple[str, ...], no_measure: bool, as_json: bool, **options: str | Path | int | None) -> None:
    """Write GGUF files, for llama.cpp and Ollama, and say what each type costs.

    RUN is the id or folder of a training, or the folder of an adapter or of a model. An adapter is merged into its base first.
    Each file is loaded in llama.cpp and held against the original: KL is how far its predictions are from the original's on
    average (0 is the same), "same" how often both think the same token the likeliest. Types whose rows a model is too narrow
    for are replaced by llama.cpp; that is shown.

    \b
    Examples:
      journeyman export gguf weights-grpo-oslo-1a2b3c4d
      journeyman export gguf RUN --quantization Q4_K_M --quantization Q8_0 --out served/
      journeyman export gguf models/mine --quantization all --texts prompts.txt
    """
    from journeyman.cli.actions import deploy

    emit(deploy.run(run, types, measure=not no_measure, quiet=as_json, **options), as_json=as_json)
