"""One conversion, step by step: merge, write in the model's own precision, compare the tokens, quantise, measure."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from journeyman.errors import InputError
from journeyman.learn.weights.gguf import upstream, writer
from journeyman.learn.weights.gguf.architectures import ARCHITECTURES, check_supported
from journeyman.learn.weights.gguf.probe import TEXTS
from journeyman.learn.weights.gguf.readback import contents
from journeyman.learn.weights.gguf.report import WRITTEN, Export, ExportedFile, Text
from journeyman.learn.weights.gguf.settings import architecture, context_length, read_settings
from journeyman.learn.weights.gguf.tensors import Tensors, open_tensors
from journeyman.learn.weights.gguf.vocabulary import open_tokenizer, read_vocabulary

if TYPE_CHECKING:
    from journeyman.learn.weights.gguf.measure import TextSample
    from journeyman.learn.weights.merge import Merged

LARGE = 1_000_000_000
"""Parameters up to which the original is written as float32: of bfloat16, llama.cpp rounds what flows between, too."""
LEAST_AGREEING = 0.8
"""Of the probe texts must give the same tokens. The others may be in scripts that llama.cpp cuts otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Conversion:
    """What is to be converted, and the folder to do it in."""

    model: Path
    name: str
    base_model: str
    pre: str
    threads: int | None
    room: Path

    def export(self, types: Sequence[str], texts: Sequence[Text] | None) -> Export:
        """The files, in the room, and what they cost on the texts: on those of `probe` for `None`, unknown for none."""
        folder, merged = self._merged()
        source = SourceModel(folder=folder, name=self.name, tensors=open_tensors(folder), pre=self.pre)
        kind = source.kind if source.tensors.parameters > LARGE else "F32"
        original = self.room / "original.gguf"
        notes = source.write(original, kind)
        agreeing, probed, mismatches = self._agreement(original, folder, types)
        paths = {each: original if each == kind else self._write_type(each, original, source) for each in types}
        samples = _samples(TEXTS if texts is None else texts, folder) if probed else []
        return Export(
            model=str(self.model),
            architecture=source.architecture,
            parameters=source.tensors.parameters,
            original=source.kind,
            size=source.tensors.size,
            merged=merged,
            agreeing=agreeing,
            probed=probed,
            notes=(*notes, *mismatches),
            files=tuple(self._measured(paths, original, samples, context_length(folder))),
        )

    def _merged(self) -> "tuple[Path, Merged | None]":
        if not (self.model / "adapter_config.json").is_file():
            return self.model, None
        from journeyman.learn.weights.merge import merge

        folder = self.room / "merged"
        return folder, merge(self.model, folder, base=self.base_model)

    def _agreement(self, original: Path, folder: Path, types: Sequence[str]) -> tuple[int, int, list[str]]:
        """Probe texts with the same tokens, how many there are, and what is to be said of the others."""
        if find_spec("llama_cpp") is None and set(types) <= set(WRITTEN):
            return 0, 0, ["llama.cpp is not here, so that neither tokens nor predictions were compared"]
        from journeyman.learn.weights.gguf.engine import vocabulary_tokenizer

        tokenizer = open_tokenizer(folder)
        texts = [*TEXTS, *_conversation(tokenizer)]
        with vocabulary_tokenizer(original) as tokens:
            others = [text for text in texts if tokens(text) != list(tokenizer(text)["input_ids"])]
        if len(others) > (1 - LEAST_AGREEING) * len(texts):
            raise InputError(
                f"llama.cpp makes other tokens than the model's tokenizer of {len(others)} in {len(texts)} texts, the "
                f"first of them {others[0][:40]!r}: the model would read nonsense; another name with "
                "--pre-tokenizer may be the right one"
            )
        note = (
            f"of {len(others)} in {len(texts)} probe texts llama.cpp makes other tokens, as of {others[0][:40]!r}"
            if others
            else ""
        )
        return len(texts) - len(others), len(texts), [note] if others else []

    def _write_type(self, kind: str, original: Path, source: "SourceModel") -> Path:
        path = self.room / f"{kind}.gguf"
        if kind in WRITTEN:
            source.write(path, kind)
        else:
            from journeyman.learn.weights.gguf.quantise import quantise

            quantise(original, path, kind, threads=self.threads)
        return path

    def _measured(
        self, paths: Mapping[str, Path], original: Path, samples: "Sequence[TextSample]", context: int | None
    ) -> Iterator[ExportedFile]:
        with self._yardstick(original, samples, context) as yardstick:
            for kind, path in paths.items():
                cost = yardstick.cost(path) if yardstick else None
                yield ExportedFile(path=path, type=kind, contents=contents(path, kind), cost=cost)

    def _yardstick(self, original: Path, samples: "Sequence[TextSample]", context: int | None) -> Any:
        if not samples:
            return nullcontext()
        from journeyman.learn.weights.gguf.engine import CONTEXT
        from journeyman.learn.weights.gguf.measure import Yardstick

        return Yardstick(original, samples, threads=self.threads, context=context or CONTEXT)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SourceModel:
    """A model of Hugging Face's form."""

    folder: Path
    name: str
    tensors: Tensors
    pre: str

    @property
    def kind(self) -> str:
        return self.tensors.kind

    @property
    def architecture(self) -> str:
        return architecture(self.folder)

    def write(self, path: Path, kind: str) -> list[str]:
        """Write it as F32, F16 or BF16; what whoever uses the file should know."""
        if self.architecture not in ARCHITECTURES:
            upstream.convert(self.folder, path, self.architecture, kind)
            return [f"converted by {upstream.converter()}"]
        settings = read_settings(self.folder)
        notes = check_supported(settings)
        vocabulary = read_vocabulary(self.folder, open_tokenizer(self.folder), settings.vocabulary, pre=self.pre)
        writer.write(path, self.tensors, settings, vocabulary, kind=kind, name=self.name)
        return notes


def _samples(texts: Sequence[Text], folder: Path) -> "list[TextSample]":
    """Conversations as the model's chat template writes them."""
    from journeyman.learn.weights.gguf.measure import TextSample

    tokenizer = open_tokenizer(folder)
    samples = []
    for text in texts:
        if isinstance(text, str):
            samples.append(TextSample(text=text))
        elif tokenizer.chat_template:
            is_open = bool(text) and text[-1].get("role") != "assistant"
            samples.append(TextSample(text=_rendered(tokenizer, text, is_open), open=is_open))
    return samples


def _conversation(tokenizer: Any) -> list[str]:
    """A conversation as the model sees it, for the tokens that stand around messages."""
    if not tokenizer.chat_template:
        return []
    messages = [{"role": "user", "content": TEXTS[0]}, {"role": "assistant", "content": TEXTS[3]}]
    return [_rendered(tokenizer, messages, False)]


def _rendered(tokenizer: Any, messages: Sequence[Mapping[str, Any]], is_open: bool) -> str:
    text: str = tokenizer.apply_chat_template([*map(dict, messages)], tokenize=False, add_generation_prompt=is_open)
    # What llama.cpp puts before a text by itself would stand there twice.
    return text.removeprefix(tokenizer.bos_token or "")
