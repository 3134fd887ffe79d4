"""One conversion, step by step: merge, write in the model's own precision, compare the tokens, quantise, measure."""

import math
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gguf import (
    GGML_QUANT_VERSION,
    MODEL_ARCH,
    MODEL_ARCH_NAMES,
    GGMLQuantizationType,
    GGUFReader,
    GGUFWriter,
    LlamaFileType,
    RopeScalingType,
    TensorNameMap,
    get_tensor_name_map,
    quants,
)
from gguf.utility import LocalTensor, SafetensorsLocal

from journeyman.core.errors import InputError
from journeyman.optimizers.weights.gguf.contents import WRITTEN, Contents, Export, ExportedFile, Replaced, Text
from journeyman.optimizers.weights.gguf.tokenizer import Vocabulary, open_tokenizer, read_vocabulary
from journeyman.optimizers.weights.model_shape import CausalLMConfig, architecture, context_length, read_settings, weight_files

if TYPE_CHECKING:
    from journeyman.optimizers.weights.llamacpp import TextSample
    from journeyman.optimizers.weights.merge import Merged

# A model's folder of Hugging Face's form, as GGUF needs it: its configuration as keys, its weights one at a time.
#
# Names of keys and tensors come from the tables of the `gguf` package. What is changed on the way follows llama.cpp's own
# converter: rotated pairs lie side by side in its Llama, and its Gemma does not add the 1 to a norm's weight.

Change = Callable[[str, np.ndarray, CausalLMConfig], np.ndarray]
_SILU = frozenset({"silu", "swish"})
_GELU = frozenset({"gelu_pytorch_tanh", "gelu_new", "gelu"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFArchitecture:
    """How one family is written."""

    kind: MODEL_ARCH
    activations: frozenset[str] = _SILU
    change: Change | None = None
    """Of a tensor by its name in safetensors."""
    windows: bool = False
    """llama.cpp keeps to this family's windows; elsewhere each layer sees the whole text."""


def _interleave_rotary_halves(name: str, tensor: np.ndarray, settings: CausalLMConfig) -> np.ndarray:
    """llama.cpp's Llama rotates neighbours, transformers' the two halves of a head: rows of Q and K change places."""
    for part, heads in (("q_proj", settings.heads), ("k_proj", settings.kv_heads)):
        if name.endswith((f"{part}.weight", f"{part}.bias")):
            halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
            return halves.swapaxes(1, 2).reshape(tensor.shape)
    return tensor


def _add_one_to_norms(name: str, tensor: np.ndarray, settings: CausalLMConfig) -> np.ndarray:
    """Gemma's norm multiplies by 1 + weight, llama.cpp's by the weight."""
    return tensor + np.float32(1) if name.endswith("norm.weight") else tensor


_LLAMA = GGUFArchitecture(kind=MODEL_ARCH.LLAMA, change=_interleave_rotary_halves)
ARCHITECTURES: Mapping[str, GGUFArchitecture] = {
    "LlamaForCausalLM": _LLAMA,
    "MistralForCausalLM": _LLAMA,
    "Qwen2ForCausalLM": GGUFArchitecture(kind=MODEL_ARCH.QWEN2),
    "Qwen3ForCausalLM": GGUFArchitecture(kind=MODEL_ARCH.QWEN3),
    "GemmaForCausalLM": GGUFArchitecture(kind=MODEL_ARCH.GEMMA, activations=_GELU, change=_add_one_to_norms),
    "Gemma2ForCausalLM": GGUFArchitecture(kind=MODEL_ARCH.GEMMA2, activations=_GELU, change=_add_one_to_norms, windows=True),
    "Gemma3ForCausalLM": GGUFArchitecture(kind=MODEL_ARCH.GEMMA3, activations=_GELU, change=_add_one_to_norms, windows=True),
    "Phi3ForCausalLM": GGUFArchitecture(kind=MODEL_ARCH.PHI3),
}
"""By the class of transformers."""


def check_supported(settings: CausalLMConfig) -> list[str]:
    """What whoever uses the file should know, a sentence each.

    Raises:
        InputError: llama.cpp would compute something else than the model does.
    """
    family = ARCHITECTURES[settings.architecture]
    named = settings.architecture
    if settings.activation not in family.activations:
        raise InputError(f"llama.cpp has no {named} with the activation {settings.activation!r}")
    if settings.rope.kind not in ("default", "linear", "yarn", "llama3", "longrope", "su"):
        raise InputError(f"llama.cpp has no rotary positions of the type {settings.rope.kind!r}")
    if settings.rope.kind in ("longrope", "su") and family.kind is not MODEL_ARCH.PHI3:
        raise InputError(f"llama.cpp has no {named} with rotary positions of the type {settings.rope.kind!r}")
    if settings.rope.kind == "llama3" and family.kind is not MODEL_ARCH.LLAMA:
        raise InputError(f"llama.cpp has no {named} with Llama 3's rotary positions")
    if settings.rope.share != 1 and family.kind is not MODEL_ARCH.PHI3:
        raise InputError(f"llama.cpp has no {named} that rotates only {settings.rope.share:g} of a head")
    if family.kind in (MODEL_ARCH.GEMMA2, MODEL_ARCH.GEMMA3):
        _check_gemma(settings)
    return [*_notes(settings, family)]


def _notes(settings: CausalLMConfig, family: GGUFArchitecture) -> Iterator[str]:
    if settings.window and settings.windowed != (False,) * settings.layers and not family.windows:
        yield f"the model looks back {settings.window} tokens, in llama.cpp at all of the text: the same up to that length"
    if settings.rope.kind in ("longrope", "su"):
        yield (
            f"llama.cpp stretches the positions as soon as its context is over {_original(settings)} tokens, and not only for "
            "texts that are: serve short texts with a context of that length"
        )


def _check_gemma(settings: CausalLMConfig) -> None:
    # llama.cpp knows Gemma's 27B by its number of layers, and divides by another root there.
    large = {"Gemma2ForCausalLM": 46, "Gemma3ForCausalLM": 62}[settings.architecture]
    divisor = settings.hidden / settings.heads if settings.layers == large else settings.head
    if settings.scale is not None and settings.scale != divisor:
        raise InputError(f"llama.cpp divides this model's scores by the root of {divisor:g}, and it has {settings.scale:g}")
    if settings.attention_cap is not None and settings.architecture == "Gemma3ForCausalLM":
        raise InputError("llama.cpp has no Gemma 3 with capped attention scores")


def add_settings(writer: GGUFWriter, settings: CausalLMConfig) -> None:
    """The keys of the architecture."""
    writer.add_context_length(settings.context)
    writer.add_embedding_length(settings.hidden)
    writer.add_block_count(settings.layers)
    writer.add_feed_forward_length(settings.feed_forward)
    writer.add_head_count(settings.heads)
    writer.add_head_count_kv(settings.kv_heads)
    writer.add_key_length(settings.head)
    writer.add_value_length(settings.head)
    writer.add_layer_norm_rms_eps(settings.epsilon)
    writer.add_vocab_size(settings.vocabulary)
    _add_rope(writer, settings)
    if ARCHITECTURES[settings.architecture].windows:
        _add_windows(writer, settings)
    elif settings.architecture == "Phi3ForCausalLM":
        # By a window of 0 llama.cpp tells Phi-4 from Phi-3.
        writer.add_sliding_window(settings.window or 0)
    if settings.attention_cap is not None:
        writer.add_attn_logit_softcapping(settings.attention_cap)
    if settings.final_cap is not None:
        writer.add_final_logit_softcapping(settings.final_cap)


def _add_windows(writer: GGUFWriter, settings: CausalLMConfig) -> None:
    if settings.window and settings.windowed is not None:
        writer.add_sliding_window(settings.window)
        writer.add_sliding_window_pattern(settings.windowed)
    elif settings.window:
        writer.add_sliding_window(settings.window)
    if settings.rope.local_theta is not None:
        writer.add_rope_freq_base_swa(settings.rope.local_theta)


def _add_rope(writer: GGUFWriter, settings: CausalLMConfig) -> None:
    rope, parameters = settings.rope, settings.rope.parameters
    writer.add_rope_freq_base(rope.theta)
    writer.add_rope_dimension_count(_rotated(settings))
    if original := parameters.get("original_max_position_embeddings"):
        writer.add_rope_scaling_orig_ctx_len(int(original))
    if rope.kind == "linear":
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(float(parameters["factor"]))
    elif rope.kind == "yarn":
        _add_yarn(writer, parameters)
    elif rope.kind in ("longrope", "su"):
        writer.add_rope_scaling_type(RopeScalingType.LONGROPE)
        writer.add_rope_scaling_attn_factors(_attention_factor(settings))


def _add_yarn(writer: GGUFWriter, parameters: Mapping[str, float]) -> None:
    """Peng et al. 2023; transformers and llama.cpp have the same defaults for what is not given."""
    writer.add_rope_scaling_type(RopeScalingType.YARN)
    writer.add_rope_scaling_factor(float(parameters["factor"]))
    for name, add in (
        ("attention_factor", writer.add_rope_scaling_yarn_attn_factor),
        ("beta_fast", writer.add_rope_scaling_yarn_beta_fast),
        ("beta_slow", writer.add_rope_scaling_yarn_beta_slow),
    ):
        if parameters.get(name) is not None:
            add(float(parameters[name]))


def _rotated(settings: CausalLMConfig) -> int:
    return int(settings.head * settings.rope.share)


def _original(settings: CausalLMConfig) -> int:
    return int(settings.rope.parameters.get("original_max_position_embeddings") or settings.context)


def _attention_factor(settings: CausalLMConfig) -> float:
    """LongRoPE's (Ding et al. 2024): the root of 1 + ln(stretch) / ln(original)."""
    if (given := settings.rope.parameters.get("attention_factor")) is not None:
        return float(given)
    original = _original(settings)
    stretch = settings.context / original
    return math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1.0


def extra_tensors(settings: CausalLMConfig) -> Iterator[tuple[str, np.ndarray]]:
    """What transformers computes from the configuration, and llama.cpp reads from the file: factors of the rotary positions."""
    if settings.rope.kind == "llama3":
        yield "rope_freqs.weight", _llama3_factors(settings)
    elif settings.rope.kind in ("longrope", "su"):
        for name in ("long", "short"):
            factors = np.asarray(settings.rope.parameters[f"{name}_factor"], dtype=np.float32)
            if factors.shape != (_rotated(settings) // 2,):
                raise InputError(
                    f"config.json has {factors.size} {name} rotary factors, and {_rotated(settings) // 2} are needed"
                )
            yield f"rope_factors_{name}.weight", factors


def _llama3_factors(settings: CausalLMConfig) -> np.ndarray:
    """By what each frequency is divided: slow ones by the factor, quick ones not at all, those between in between."""
    parameters, half = settings.rope.parameters, settings.head // 2
    factor, low, high = (float(parameters[name]) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    lengths = 2 * math.pi * settings.rope.theta ** (np.arange(half) / half)
    smooth = (_original(settings) / lengths - low) / (high - low)
    factors: np.ndarray = (1 / ((1 - smooth.clip(0, 1)) / factor + smooth.clip(0, 1))).astype(np.float32)
    return factors


# The weights in a model's folder, read one at a time: there is never a second copy of the model in memory.

_TYPES = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}


@dataclass(frozen=True, slots=True)
class Tensors:
    """The tensors of a folder by name, in the order of their names. Nothing is read before it is asked for."""

    by_name: dict[str, LocalTensor]

    @property
    def kind(self) -> str:
        """The type of most of the weights: F32, F16 or BF16."""
        sizes = dict.fromkeys(_TYPES, 0)
        for tensor in self.by_name.values():
            sizes[tensor.dtype] += tensor.data_range.size
        return max(sizes, key=lambda name: sizes[name])

    @property
    def parameters(self) -> int:
        return sum(int(np.prod(tensor.shape)) for tensor in self.by_name.values())

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(tensor.data_range.size for tensor in self.by_name.values())

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.by_name[name].shape)

    def load(self, name: str) -> np.ndarray:
        """A tensor as float32, of its shape."""
        tensor = self.by_name[name]
        try:
            raw: np.ndarray = tensor.mmap_bytes().view(_TYPES[tensor.dtype]).reshape(tensor.shape)
            if raw.shape != tuple(tensor.shape):
                raise ValueError(f"its shape is {tensor.shape}")
        except (OSError, ValueError, TypeError, OverflowError) as error:
            raise InputError(f"{tensor.data_range.filename} is broken at {name}: {error}") from None
        if tensor.dtype == "BF16":
            # bfloat16 is the upper half of a float32.
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        exact: np.ndarray = raw.astype(np.float32)
        return exact


def open_tensors(folder: Path) -> Tensors:
    """The weights of the model in a folder.

    Raises:
        InputError: There are none as safetensors, or they are of a type that no model is trained in.
    """
    tensors: dict[str, LocalTensor] = {}
    for path in weight_files(folder):
        try:
            tensors.update(SafetensorsLocal(path).tensors)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"{path} is no file of safetensors: {error}") from None
    for name, tensor in tensors.items():
        if tensor.dtype not in tuple(_TYPES):  # A header may say anything, also what no dict is asked for.
            raise InputError(f"{folder}: {name} is of type {tensor.dtype}; only {', '.join(_TYPES)} can be converted")
    return Tensors(dict(sorted(tensors.items())))


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
        from journeyman.optimizers.weights.llamacpp import vocabulary_tokenizer

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
            from journeyman.optimizers.weights.llamacpp import quantise

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
        from journeyman.optimizers.weights.llamacpp import CONTEXT, Yardstick

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
    from journeyman.optimizers.weights.llamacpp import TextSample

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
