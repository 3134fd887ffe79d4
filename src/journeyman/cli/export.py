"""`journeyman export`: what was learned in the weights, as files that others can serve."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from journeyman.cli import console
from journeyman.cli.console import Column, say
from journeyman.cli.shared import emit, json_option, project_folder
from journeyman.core.errors import InputError

if TYPE_CHECKING:
    from journeyman.optimizers.weights.adapters import Artifact
    from journeyman.optimizers.weights.gguf import Export, ExportedFile
    from journeyman.optimizers.weights.gguf.contents import Text
    from journeyman.optimizers.weights.merge import Merged

_COLUMNS = (
    Column(name="type", words=True),
    Column(name="size"),
    Column(name="KL"),
    Column(name="KL 99 %", spare=3),
    Column(name="perplexity", spare=2),
    Column(name="same", spare=1),
    Column(name="file", words=True, least=30),
)


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
def gguf(  # noqa: PLR0913 - a parameter an option
    *,
    run: str,
    types: tuple[str, ...],
    out: Path | None,
    merged: Path | None,
    base_model: str,
    texts: Path | None,
    no_measure: bool,
    pre_tokenizer: str,
    threads: int | None,
    as_json: bool,
) -> None:
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
    from journeyman.optimizers.weights.adapters import Form, find
    from journeyman.optimizers.weights.gguf import TYPES, GGUFExporter

    artifact = find(run, project_folder() / "runs")
    if artifact.form is Form.GGUF:
        raise InputError(f"{artifact.path} is a GGUF file already: name the run, adapter or model that it was made from")
    exported = _merged(artifact, merged, base_model)
    exporter = GGUFExporter(
        exported.folder if exported else artifact.path,
        name=artifact.name,
        base_model=base_model,
        texts=[] if no_measure else list(_texts(artifact, texts)),
        pre_tokenizer=pre_tokenizer,
        threads=threads,
    )
    wanted = list(TYPES) if "all" in types else list(dict.fromkeys(types))
    export = exporter.export(wanted, out=out or artifact.gguf(wanted[0]).parent, measure=not no_measure)
    export = replace(export, merged=export.merged or exported)
    if not as_json:
        show(export)
    emit(export.json(), as_json=as_json)


def _merged(artifact: "Artifact", merged: Path | None, base_model: str) -> "Merged | None":
    """The merged model, where it is to be kept."""
    from journeyman.optimizers.weights.adapters import Form

    if merged is None:
        return None
    if artifact.form is not Form.ADAPTER:
        raise InputError(f"{artifact.path} is a whole model: there is nothing to merge")
    from journeyman.optimizers.weights.merge import merge

    return merge(artifact.path, merged, base=base_model)


def _texts(artifact: "Artifact", given: Path | None) -> "Iterator[Text]":
    """What the model is for: texts that are given, its run's rows, or else its run's validation tasks."""
    from journeyman.experiments.weights import settings
    from journeyman.optimizers.weights.data import read
    from journeyman.optimizers.weights.job import TrainingJob

    texts: Iterator[Text] = iter(())
    if given is not None and given.suffix in (".jsonl", ".parquet"):
        texts = map(settings.said, read(given))
    elif given is not None:
        texts = (line for line in given.read_text(encoding="utf-8").splitlines() if line.strip())
    elif artifact.run is not None and (artifact.run / "config.json").is_file():
        texts = iter(settings.of_run(TrainingJob(artifact.run)))
    return islice(texts, settings.MOST)


def show(export: "Export") -> None:
    """The table on stdout, and in words on stderr what a table does not tell."""
    if export.merged is not None:
        say(
            f"merged {export.merged.base_model} with the adapter {export.merged.adapter[:12]}: logits agree to "
            f"{export.merged.difference:.1e}, over {export.merged.compared} of them"
        )
    say(f"{export.architecture} of {export.parameters / 1e6:.1f} M parameters, {export.original}, {_size(export.size)}")
    if export.probed:
        say(f"llama.cpp makes the same tokens of {export.agreeing} in {export.probed} probe texts")
    for note in export.notes:
        say(note)
    console.table(_COLUMNS, map(_cells, export.files))
    for file in export.files:
        if file.contents.replaced:
            say(replaced(file))


def _cells(file: "ExportedFile") -> tuple[str, ...]:
    cost = file.cost
    measured = (
        (f"{cost.divergence:.2g}", f"{cost.worst:.2g}", f"{cost.perplexity:.4g}", f"{cost.agreement:.1%}")
        if cost
        else ("", "", "", "")
    )
    return (file.type, _size(file.contents.size), *measured, str(file.path))


def replaced(file: "ExportedFile") -> str:
    """One sentence on matrices that did not become what was asked for."""
    total = sum(file.contents.types.values())
    parts = ", ".join(f"{each.tensors} with rows of {each.width} became {each.became}" for each in file.contents.replaced)
    return (
        f"{file.type}: its blocks are of 256 weights, and of {total} matrices {parts}: this model is too narrow for all of "
        f"{file.type}"
    )


def _size(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count < 100 * 1e6 else f"{count / 1e9:.2f} GB"
