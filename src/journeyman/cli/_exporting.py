"""The work behind `journeyman export gguf`, apart from its options."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text as Cell

from journeyman import config
from journeyman.cli._shared import console
from journeyman.cli._table import Column, fitted
from journeyman.cli._table import console as table_console
from journeyman.errors import InputError
from journeyman.learn.weights.artifacts import Artifact, Form, find
from journeyman.learn.weights.data import read
from journeyman.learn.weights.gguf import TYPES, Export, GGUFExporter
from journeyman.learn.weights.gguf import ExportedFile as Exported
from journeyman.learn.weights.gguf.report import Text
from journeyman.learn.weights.job import TrainingJob as Job
from journeyman.weights import texts

if TYPE_CHECKING:
    from journeyman.learn.weights.merge import Merged

_MB = 1e6


def run(named: str, types: Sequence[str], *, measure: bool, quiet: bool, **options: Any) -> dict[str, Any]:
    """Export, and show what came of it; what was made, for programs.

    Raises:
        InputError: There is nothing of that name, or it cannot be converted.
    """
    artifact = find(named, Path(config.load().folder) / "runs")
    if artifact.form is Form.GGUF:
        raise InputError(f"{artifact.path} is a GGUF file already: name the run, adapter or model that it was made from")
    measured_on = [*_texts(artifact, options["texts"])][: texts.MOST] if measure else []
    kept = _kept(artifact, options["merged"], options["base_model"])
    exporter = GGUFExporter(
        kept.folder if kept else artifact.path,
        name=artifact.name,
        base_model=options["base_model"],
        texts=measured_on,
        pre_tokenizer=options["pre_tokenizer"],
        threads=options["threads"],
    )
    wanted = list(TYPES) if "all" in types else list(dict.fromkeys(types))
    export = exporter.export(wanted, out=options["out"] or artifact.gguf(wanted[0]).parent, measure=measure)
    export = replace(export, merged=export.merged or kept)
    if not quiet:
        show(export)
    return export.json()


def _kept(artifact: Artifact, merged: Path | None, base_model: str) -> "Merged | None":
    """The merged model, where it is to be kept."""
    if merged is None:
        return None
    if artifact.form is not Form.ADAPTER:
        raise InputError(f"{artifact.path} is a whole model: there is nothing to merge")
    from journeyman.learn.weights.merge import merge

    return merge(artifact.path, merged, base=base_model)


def _texts(artifact: Artifact, given: Path | None) -> Iterator[Text]:
    """What the model is for: texts that are given, its run's rows, or else its run's validation tasks."""
    if given is not None and given.suffix in (".jsonl", ".parquet"):
        yield from map(texts.said, read(given))
    elif given is not None:
        yield from (line for line in given.read_text(encoding="utf-8").splitlines() if line.strip())
    elif artifact.run is not None and (artifact.run / "config.json").is_file():
        yield from texts.of_run(Job(artifact.run))


def show(export: Export) -> None:
    """The table on stdout, and in words on stderr what a table does not tell."""
    screen = console()
    if export.merged is not None:
        screen.print(
            f"merged {export.merged.base_model} with the adapter {export.merged.adapter[:12]}: logits agree to "
            f"{export.merged.difference:.1e}, over {export.merged.compared} of them"
        )
    screen.print(
        f"{export.architecture} of {export.parameters / 1e6:.1f} M parameters, {export.original}, {_size(export.size)}"
    )
    if export.probed:
        screen.print(f"llama.cpp makes the same tokens of {export.agreeing} in {export.probed} probe texts")
    for note in export.notes:
        screen.print(note)
    columns = [
        Column(name="type", words=True),
        Column(name="size"),
        Column(name="KL"),
        Column(name="KL 99 %", spare=3),
        Column(name="perplexity", spare=2),
        Column(name="same", spare=1),
        Column(name="file", words=True, least=30),
    ]
    for file in export.files:
        for column, cell in zip(columns, _cells(file), strict=True):
            column.cells.append(Cell(cell))
    table = table_console()
    table.print(fitted(columns, table.width))
    for file in export.files:
        if file.contents.replaced:
            screen.print(replaced(file))


def _cells(file: Exported) -> tuple[str, ...]:
    cost = file.cost
    measured = (
        (f"{cost.divergence:.2g}", f"{cost.worst:.2g}", f"{cost.perplexity:.4g}", f"{cost.agreement:.1%}")
        if cost
        else ("", "", "", "")
    )
    return (file.type, _size(file.contents.size), *measured, str(file.path))


def replaced(file: Exported) -> str:
    """One sentence on matrices that did not become what was asked for."""
    total = sum(file.contents.types.values())
    parts = ", ".join(f"{each.tensors} with rows of {each.width} became {each.became}" for each in file.contents.replaced)
    return (
        f"{file.type}: its blocks are of 256 weights, and of {total} matrices {parts}: this model is too narrow for all of "
        f"{file.type}"
    )


def _size(count: int) -> str:
    return f"{count / _MB:.2f} MB" if count < 100 * _MB else f"{count / 1e9:.2f} GB"
