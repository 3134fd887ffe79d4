"""GGUF: the one file that llama.cpp and Ollama serve a model from.

The exporter stands here, and loads the rest when it is needed.

contents    what a file says of itself, and what an export tells of files; needs no library
conversion  a model's folder, or an adapter's, to files of the types asked for: merged, written, compared, quantised; which
            architectures are known, and what of their weights llama.cpp wants otherwise
tokenizer   the vocabulary, whose pretokenizers are known by their expressions, and the chat template
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from journeyman.core.errors import InputError, MissingExtra
from journeyman.optimizers.weights.gguf.contents import TYPES, Contents, Cost, Export, ExportedFile, Replaced, Text

__all__ = ["TYPES", "Contents", "Cost", "Export", "ExportedFile", "GGUFExporter", "Replaced"]


class GGUFExporter:
    """Converts a model, or an adapter with its base, to GGUF files.

    exporter = GGUFExporter("./merged-model")
    path = exporter.convert("Q4_K_M")
    """

    def __init__(
        self,
        model: str | Path,
        *,
        name: str = "",
        base_model: str = "",
        texts: Sequence[Text] = (),
        pre_tokenizer: str = "",
        threads: int | None = None,
    ) -> None:
        """Nothing is read yet but that the folder is there.

        Args:
            model: The folder of a model of Hugging Face's form, or of an adapter, which is merged first.
            name: What the model is called in the files and by them; as the folder where it is not said.
            base_model: Where an adapter's base lies, if elsewhere than it says.
            texts: What the files are held against the original on, conversations best; texts of several kinds for none.
            pre_tokenizer: llama.cpp's name for the way the tokenizer cuts texts, where it cannot be found out.
            threads: For llama.cpp; where it is not said, all cores to quantise with, and half of them to measure with.
        """
        self._model = Path(model)
        self._name = name or self._model.resolve().name
        self._base_model = base_model
        self._texts = tuple(texts)
        self._pre = pre_tokenizer
        self._threads = threads
        if not self._model.is_dir():
            raise InputError(f"{self._model} is not a folder: name a model's or an adapter's")

    def convert(self, quantization: str = "Q4_K_M", out: str | Path | None = None) -> Path:
        """Write one file without measuring what it costs; its path.

        It is called `NAME-TYPE.gguf` and lies in the folder, where `out` says nothing else.
        """
        return self.export([quantization], out=out, measure=False).files[0].path

    def export(self, types: Sequence[str], *, out: str | Path | None = None, measure: bool = True) -> Export:
        """Write a file of each type: all of them, or none.

        Args:
            types: Of `TYPES`.
            out: The file, where there is one type; otherwise the folder. A file that is there is replaced.
            measure: Also find out how each predicts beside the original, on some thousand tokens.

        Raises:
            InputError: A type is unknown, or the model cannot be converted.
            ModelRefused: An adapter's base cannot be had, or does not fit it.
            MissingExtra: A library is missing.
        """
        paths = self._paths(types, out)
        with _temporary_folder(next(iter(paths.values())).parent) as room, _missing_extra_named():
            from journeyman.optimizers.weights.gguf.conversion import Conversion

            conversion = Conversion(
                model=self._model,
                name=self._name,
                base_model=self._base_model,
                pre=self._pre,
                threads=self._threads,
                room=room,
            )
            exported = conversion.export(list(paths), (self._texts or None) if measure else ())
            for file in exported.files:
                file.path.replace(paths[file.type])
        return replace(exported, files=tuple(replace(file, path=paths[file.type]) for file in exported.files))

    def _paths(self, types: Sequence[str], out: str | Path | None) -> dict[str, Path]:
        if not types:
            raise InputError(f"name a type to export as: {', '.join(TYPES)}")
        for each in types:
            if each not in TYPES:
                raise InputError(f"{each!r} is no type that can be exported as; there are {', '.join(TYPES)}")
        if out is not None and str(out).endswith(".gguf"):
            if len(set(types)) > 1:
                raise InputError(f"{out} is one file, and {len(set(types))} types were asked for: name a folder")
            return {types[0]: Path(out)}
        folder = self._model if out is None else Path(out)
        return {each: folder / f"{self._name}-{each}.gguf" for each in types}


@contextmanager
def _temporary_folder(beside: Path) -> Iterator[Path]:
    """A folder on the disk where the files will lie, so that a file that is ready only changes its name."""
    beside.mkdir(parents=True, exist_ok=True)
    room = Path(tempfile.mkdtemp(prefix=".gguf-", dir=beside))
    try:
        yield room
    finally:
        shutil.rmtree(room, ignore_errors=True)


@contextmanager
def _missing_extra_named() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        extra = "gguf" if error.name in ("gguf", "llama_cpp") else "weights"
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[{extra}]'") from error
