"""The models that GGUF files can be written for here, and what of their weights llama.cpp wants otherwise.

Names of keys and tensors come from the tables of the `gguf` package. What is changed on the way follows llama.cpp's own
converter: rotated pairs lie side by side in its Llama, and its Gemma does not add the 1 to a norm's weight.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf import MODEL_ARCH, GGUFWriter, RopeScalingType
from gguf.utility import LocalTensor, SafetensorsLocal

from journeyman.core.errors import InputError
from journeyman.optimizers.weights.adapters import read_object

# A model's config.json as GGUF's keys need it: sizes, rotary positions (RoPE), sliding windows, soft caps.


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Rotary positions (Su et al. 2021), and how they were stretched for longer texts."""

    theta: float
    kind: str = "default"
    """`default`, `linear`, `yarn`, `llama3`, `longrope`, … as transformers names it."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """What belongs to the kind: factor, original context and so on."""
    share: float = 1.0
    """Of a head's dimensions that are rotated."""
    local_theta: float | None = None
    """In the layers with a window, where it is another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalLMConfig:
    """A causal language model's configuration. Lengths in tokens; `None` is: there is none."""

    architecture: str
    """The class of transformers: `LlamaForCausalLM`."""
    context: int
    hidden: int
    layers: int
    feed_forward: int
    heads: int
    kv_heads: int
    head: int
    """Dimensions of one head."""
    epsilon: float
    vocabulary: int
    tied: bool
    """The head is the embeddings transposed."""
    activation: str
    rope: Rope
    window: int | None
    """How far a layer with a window looks back."""
    windowed: tuple[bool, ...] | None
    """Which layers have a window."""
    attention_cap: float | None
    final_cap: float | None
    scale: float | None
    """The scalar of `query_pre_attn_scalar`: scores are divided by its root."""
    dialect: str
    """`terse` for a model that was made from the embedded one."""
    raw: Mapping[str, Any]


def read_settings(folder: Path) -> CausalLMConfig:
    """The settings of the model in a folder.

    Raises:
        InputError: It holds no model, or its config.json lacks what every such model has.
    """
    config = read_json(folder / "config.json")
    if config.get("quantization_config"):
        raise InputError(f"{folder} holds weights that are quantised already: convert the model that they were made from")
    name = architecture(folder)
    try:
        return _settings(name, config)
    except KeyError as error:
        raise InputError(f"{folder / 'config.json'} has no {error.args[0]!r}, which a {name} needs") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"{folder / 'config.json'} is not the configuration of a {name}: {error}") from None


def architecture(folder: Path) -> str:
    """The class of transformers that the model in a folder is.

    Raises:
        InputError: It holds no model, or does not say.
    """
    names = read_json(folder / "config.json").get("architectures")
    if not isinstance(names, list) or not names:
        raise InputError(f"{folder / 'config.json'} names no architecture")
    return str(names[0])


def context_length(folder: Path) -> int | None:
    """Tokens that the model in a folder takes; `None` where it does not say."""
    length = read_json(folder / "config.json").get("max_position_embeddings")
    return length if isinstance(length, int) else None


def read_json(path: Path) -> Mapping[str, Any]:
    """The object in a file of JSON.

    Raises:
        InputError: There is no such file, or something else in it.
    """
    if not path.is_file():
        raise InputError(f"{path} is missing: {path.parent} is not the folder of a model")
    return read_object(path)


def _settings(architecture: str, config: Mapping[str, Any]) -> CausalLMConfig:
    heads, hidden, layers = (int(config[name]) for name in ("num_attention_heads", "hidden_size", "num_hidden_layers"))
    return CausalLMConfig(
        architecture=architecture,
        context=int(config["max_position_embeddings"]),
        hidden=hidden,
        layers=layers,
        feed_forward=int(config["intermediate_size"]),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head=int(config.get("head_dim") or hidden // heads),
        epsilon=float(config["rms_norm_eps"]),
        vocabulary=int(config["vocab_size"]),
        # What transformers leaves out is its default, and that is tied for Gemma alone.
        tied=bool(config.get("tie_word_embeddings", architecture.startswith("Gemma"))),
        activation=str(config.get("hidden_activation") or config.get("hidden_act") or config.get("activation") or "silu"),
        rope=_rope(config),
        window=int(config["sliding_window"]) if config.get("sliding_window") else None,
        windowed=_windowed(config),
        attention_cap=_number(config.get("attn_logit_softcapping")),
        final_cap=_number(config.get("final_logit_softcapping")),
        scale=_number(config.get("query_pre_attn_scalar")),
        dialect=str(config.get("dialect") or ""),
        raw=config,
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _windowed(config: Mapping[str, Any]) -> tuple[bool, ...] | None:
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and kinds:
        return tuple(kind == "sliding_attention" for kind in kinds)
    return None


def _rope(config: Mapping[str, Any]) -> Rope:
    """transformers 5 keeps all of it in `rope_parameters`, for each kind of layer where they differ; 4 in several keys."""
    parameters = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    local = parameters.get("sliding_attention")
    whole = {**parameters, **parameters["full_attention"]} if isinstance(parameters.get("full_attention"), dict) else parameters
    if "original_max_position_embeddings" not in whole and config.get("original_max_position_embeddings"):
        whole["original_max_position_embeddings"] = config["original_max_position_embeddings"]
    share = whole.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    return Rope(
        theta=float(whole.get("rope_theta") or config.get("rope_theta") or 10_000.0),
        kind=str(whole.get("rope_type") or whole.get("type") or "default"),
        parameters=whole,
        share=float(share),
        local_theta=_number(local.get("rope_theta") if isinstance(local, dict) else config.get("rope_local_base_freq")),
    )


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

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
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
        except (OSError, ValueError) as error:
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
    for path in _files(folder):
        try:
            tensors.update(SafetensorsLocal(path).tensors)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is no file of safetensors: {error}") from None
    for name, tensor in tensors.items():
        if tensor.dtype not in _TYPES:
            raise InputError(f"{folder}: {name} is of type {tensor.dtype}; only {', '.join(_TYPES)} can be converted")
    return Tensors(dict(sorted(tensors.items())))


def _files(folder: Path) -> Iterator[Path]:
    if (folder / INDEX).is_file():
        weights = read_json(folder / INDEX).get("weight_map")
        if not isinstance(weights, dict):
            raise InputError(f"{folder / INDEX} has no weight_map")
        for name in sorted({str(name) for name in weights.values()}):
            # A file of this folder, and of no other.
            if Path(name).name != name or not (folder / name).is_file():
                raise InputError(f"{folder / INDEX} names {name!r}, and there is no such file beside it")
            yield folder / name
        return
    if not (folder / SINGLE).is_file():
        raise InputError(
            f"{folder} has no {SINGLE}: weights in another form are not read; load and save the model with transformers"
        )
    yield folder / SINGLE
