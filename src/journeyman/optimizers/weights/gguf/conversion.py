"""One conversion, step by step: merge, write in the model's own precision, compare the tokens, quantise, measure."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gguf import (
    GGML_QUANT_VERSION,
    MODEL_ARCH_NAMES,
    GGMLQuantizationType,
    GGUFReader,
    GGUFWriter,
    LlamaFileType,
    TensorNameMap,
    get_tensor_name_map,
    quants,
)

from journeyman.core.errors import InputError
from journeyman.optimizers.weights.gguf.contents import WRITTEN, Contents, Export, ExportedFile, Replaced, Text
from journeyman.optimizers.weights.gguf.source import (
    ARCHITECTURES,
    CausalLMConfig,
    Tensors,
    Vocabulary,
    add_settings,
    architecture,
    check_supported,
    context_length,
    extra_tensors,
    open_tensors,
    open_tokenizer,
    read_settings,
    read_vocabulary,
)

if TYPE_CHECKING:
    from journeyman.optimizers.weights.gguf.engine import TextSample
    from journeyman.optimizers.weights.merge import Merged

# llama.cpp's own converter, for architectures that are not known here.
#
# It is looked for as `convert_hf_to_gguf.py` on PATH, and in the folder that the environment variable LLAMA_CPP names.

SCRIPT = "convert_hf_to_gguf.py"
VARIABLE = "LLAMA_CPP"
_LONGEST = 4 * 3600
"""Seconds."""


def converter() -> Path | None:
    """Where it is; `None` when it is not installed."""
    folder = os.environ.get(VARIABLE)
    if folder and (Path(folder) / SCRIPT).is_file():
        return Path(folder) / SCRIPT
    script = shutil.which(SCRIPT)
    return Path(script) if script else None


def convert(folder: Path, target: Path, architecture: str, kind: str) -> None:
    """Write the model in `folder` as a file of the type `kind`, F32, F16 or BF16.

    Raises:
        InputError: The converter is not installed, or does not know the architecture either.
    """
    script = converter()
    if script is None:
        raise InputError(
            f"{architecture} is none of the architectures that are converted here: install llama.cpp, set {VARIABLE} to its "
            f"folder, and its own {SCRIPT} is used"
        )
    command = [sys.executable, str(script), str(folder), "--outfile", str(target), "--outtype", kind.lower()]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{script} did not come to an end: {error}") from None
    if run.returncode or not target.is_file():
        errors = [line for line in run.stderr.splitlines() if line.strip()] or ["it said nothing"]
        raise InputError(f"{script} could not convert {folder}, a {architecture}: {errors[-1].strip()}")


# What llama.cpp really did, read back from the file that it wrote.

BLOCK = 256
"""The weights that a K-type packs together: a row must be a multiple of that."""


def contents(path: Path, kind: str) -> Contents:
    """What is in a file that was written as `kind`."""
    matrices = [
        (tensor.tensor_type.name, int(tensor.shape[0]))
        for tensor in GGUFReader(path).tensors
        if len(tensor.shape) > 1 and not tensor.name.endswith("_norm.weight")
    ]
    # The K-types mix among themselves by design: Q4_K_M has some matrices of Q6_K, and so has Q4_0.
    replaced = Counter(
        (width, name) for name, width in matrices if kind not in WRITTEN and width % BLOCK and name != kind and "_K" not in name
    )
    return Contents(
        size=path.stat().st_size,
        types=dict(sorted(Counter(name for name, _ in matrices).items())),
        replaced=tuple(Replaced(tensors=count, width=width, became=name) for (width, name), count in sorted(replaced.items())),
    )


# Texts to try a tokenizer and a model on when nobody gives better ones: of several kinds, so that no kind goes unseen.

TEXTS = (
    "The order of three blue mugs and one green plate leaves the warehouse on 5 March and arrives in Oslo two days later.",
    "If the customer's address can't be found, don't guess: ask them, and keep what they say. IT'S BETTER THAN A WRONG ONE.",
    "def total(prices, rate=0.25):\n    net = sum(p for p in prices if p is not None)\n    return round(net * (1 + rate), 2)\n",
    '{"tool": "create_order", "arguments": {"sku": "MUG-BLUE-01", "quantity": 3, "price_cents": 1299, "city": "Oslo"}}',
    "SELECT city, COUNT(*) AS n FROM orders WHERE day >= '2026-01-05' GROUP BY city ORDER BY n DESC LIMIT 10;",
    "Question: a train leaves at 14:35 and needs 2 h 50 min. When does it arrive?\nAnswer: 14:35 + 2:50 = 17:25.",
    "Ein größeres Übel: die Straße nach Łódź ist gesperrt; l'été dernier, où étiez-vous? ¿Mañana por la mañana?",
    "Москва далеко. 東京は大きい。 서울은 멀다. القاهرة مدينة كبيرة. वह कहाँ है?",
    "😀 1234567890 3.14159 -42 $9.99 100% #tag @name a_b-c/d\\e f(x)=x^2 <b>bold</b> & ~!?",
    "  two spaces,\tone tab,\n\n\na few lines,   three spaces, and an end  \n",
)

# A model's folder into one GGUF file of its own precision: everything else is made from that.

WRITTEN_FILE_TYPES = {"F32": LlamaFileType.ALL_F32, "F16": LlamaFileType.MOSTLY_F16, "BF16": LlamaFileType.MOSTLY_BF16}
"""What is written here. The other types are llama.cpp's."""
EMBEDDINGS = "model.embed_tokens.weight"
_COMPUTED = "rotary_emb.inv_freq"


def write(path: Path, tensors: Tensors, settings: CausalLMConfig, vocabulary: Vocabulary, *, kind: str, name: str) -> None:
    """Write the file, one tensor after the other.

    Args:
        kind: The type of the matrices, of `FILE_TYPES`. Vectors and norms are F32 in every file.
        name: What the model is called in it.

    Raises:
        InputError: A tensor is missing, or one is there that the architecture does not have.
    """
    family = ARCHITECTURES[settings.architecture]
    mapped = _mapped(tensors, settings, get_tensor_name_map(family.kind, settings.layers))
    extra = dict(extra_tensors(settings))
    writer = GGUFWriter(path, arch=MODEL_ARCH_NAMES[family.kind])
    try:
        _keys(writer, settings, vocabulary, WRITTEN_FILE_TYPES[kind], name)
        for gguf_name, tensor in extra.items():
            writer.add_tensor_info(gguf_name, tensor.shape, tensor.dtype, tensor.nbytes)
        kinds = {gguf_name: _kind(gguf_name, len(tensors.shape(hf_name)), kind) for hf_name, gguf_name in mapped.items()}
        for hf_name, gguf_name in mapped.items():
            shape = tensors.shape(hf_name)
            size = int(np.prod(shape)) * (4 if kinds[gguf_name] == "F32" else 2)
            writer.add_tensor_info(
                gguf_name, shape, np.dtype(np.uint16), size, raw_dtype=GGMLQuantizationType[kinds[gguf_name]]
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in extra.values():
            writer.write_tensor_data(tensor)
        for hf_name, gguf_name in mapped.items():
            tensor = tensors.load(hf_name)
            changed = family.change(hf_name, tensor, settings) if family.change else tensor
            writer.write_tensor_data(quants.quantize(np.ascontiguousarray(changed), GGMLQuantizationType[kinds[gguf_name]]))
    finally:
        writer.close()


def _keys(writer: GGUFWriter, settings: CausalLMConfig, vocabulary: Vocabulary, file_type: LlamaFileType, name: str) -> None:
    writer.add_type("model")
    writer.add_name(name)
    writer.add_file_type(file_type)
    writer.add_quantization_version(GGML_QUANT_VERSION)
    if settings.dialect:
        writer.add_string("journeyman.dialect", settings.dialect)
    add_settings(writer, settings)
    vocabulary.add_to(writer)


def _mapped(tensors: Tensors, settings: CausalLMConfig, names: TensorNameMap) -> dict[str, str]:
    """From the name in safetensors to the name in GGUF, of every tensor that is written."""
    if EMBEDDINGS not in tensors.by_name:
        raise InputError(f"the model has no {EMBEDDINGS}, which a {settings.architecture} has")
    mapped = {}
    for hf_name in tensors.by_name:
        if hf_name.endswith(_COMPUTED) or (hf_name == "lm_head.weight" and settings.tied):
            continue
        gguf_name = names.get_name(hf_name, try_suffixes=(".weight", ".bias"))
        if gguf_name is None:
            raise InputError(f"the model has a tensor {hf_name}, which a {settings.architecture} in GGUF has no place for")
        mapped[hf_name] = gguf_name
    _check_complete(mapped, tensors, settings)
    return mapped


def _check_complete(mapped: dict[str, str], tensors: Tensors, settings: CausalLMConfig) -> None:
    blocks = {gguf_name.split(".")[1] for gguf_name in mapped.values() if gguf_name.startswith("blk.")}
    if len(blocks) != settings.layers:
        raise InputError(f"config.json says {settings.layers} layers, and there are weights of {len(blocks)}")
    if "output.weight" not in mapped.values() and not settings.tied:
        raise InputError("the model has no lm_head.weight, and its config.json does not say that the embeddings are its head")
    rows, width = tensors.shape(EMBEDDINGS)
    if (rows, width) != (settings.vocabulary, settings.hidden):
        raise InputError(f"the embeddings are {rows} x {width}, and config.json says {settings.vocabulary} x {settings.hidden}")


def _kind(gguf_name: str, dimensions: int, kind: str) -> str:
    return "F32" if dimensions < 2 or gguf_name.endswith("_norm.weight") else kind


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
        from journeyman.optimizers.weights.merge import merge

        folder = self.room / "merged"
        return folder, merge(self.model, folder, base=self.base_model)

    def _agreement(self, original: Path, folder: Path, types: Sequence[str]) -> tuple[int, int, list[str]]:
        """Probe texts with the same tokens, how many there are, and what is to be said of the others."""
        if find_spec("llama_cpp") is None and set(types) <= set(WRITTEN):
            return 0, 0, ["llama.cpp is not here, so that neither tokens nor predictions were compared"]
        from journeyman.optimizers.weights.gguf.engine import vocabulary_tokenizer

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
            from journeyman.optimizers.weights.gguf.engine import quantise

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
        from journeyman.optimizers.weights.gguf.engine import CONTEXT, Yardstick

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
            convert(self.folder, path, self.architecture, kind)
            return [f"converted by {converter()}"]
        settings = read_settings(self.folder)
        notes = check_supported(settings)
        vocabulary = read_vocabulary(self.folder, open_tokenizer(self.folder), settings.vocabulary, pre=self.pre)
        write(path, self.tensors, settings, vocabulary, kind=kind, name=self.name)
        return notes


def _samples(texts: Sequence[Text], folder: Path) -> "list[TextSample]":
    """Conversations as the model's chat template writes them."""
    from journeyman.optimizers.weights.gguf.engine import TextSample

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
