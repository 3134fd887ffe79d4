"""A model's folder of Hugging Face's form, as GGUF needs it: its configuration, its weights one at a time, its tokenizer.

Names of keys and tensors come from the tables of the `gguf` package. What is changed on the way follows llama.cpp's own
converter: rotated pairs lie side by side in its Llama, and its Gemma does not add the 1 to a norm's weight.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf import MODEL_ARCH, GGUFWriter, RopeScalingType, TokenType
from gguf.utility import LocalTensor, SafetensorsLocal
from transformers import AutoTokenizer

from journeyman.core.errors import InputError
from journeyman.io.files import read_object
from journeyman.optimizers.weights.model_shape import weight_files

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
    for path in weight_files(folder):
        try:
            tensors.update(SafetensorsLocal(path).tensors)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is no file of safetensors: {error}") from None
    for name, tensor in tensors.items():
        if tensor.dtype not in _TYPES:
            raise InputError(f"{folder}: {name} is of type {tensor.dtype}; only {', '.join(_TYPES)} can be converted")
    return Tensors(dict(sorted(tensors.items())))


# A tokenizer as GGUF has it: tokens, their types, merges or scores, and what is put before and after a text.

# How a byte-level tokenizer cuts a text before it merges, and by which name llama.cpp knows that.
#
# llama.cpp's own converter looks the name up by a hash over the ids of a long text, which no other vocabulary can have. Here it
# is looked up by what tokenizer.json says: the same expressions are the same cuts, whatever the vocabulary.

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_START = r"[^\r\n\p{L}\p{N}]?"
_SLASHED = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_SHORT}|{_START}\p{{L}}+|\p{{N}}{{1,3}}|{_REST}"
_TEKKEN = rf"{_START}{_UPPER}*{_LOWER}+|{_START}{_UPPER}+{_LOWER}*|\p{{N}}|{_SLASHED}"
_GPT4O = rf"{_START}{_UPPER}*{_LOWER}+{_SHORT}?|{_START}{_UPPER}+{_LOWER}*{_SHORT}?|\p{{N}}{{1,3}}|{_SLASHED}"
_DEEPSEEK = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
    r"\s*[\r\n]+|\s+(?!\S)|\s+",
)
_KNOWN: Mapping[tuple[tuple[str, ...], bool], str] = {
    ((_GPT2,), False): "gpt-2",
    ((rf"{_SHORT}|{_START}\p{{L}}+|\p{{N}}|{_REST}",), False): "qwen2",
    (
        (rf"{_SHORT}|{_START}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",),
        False,
    ): "qwen35",
    ((_LLAMA3,), True): "llama-bpe",
    ((_LLAMA3,), False): "smaug-bpe",
    ((r"\p{N}", _GPT2), False): "smollm",
    ((_TEKKEN,), True): "tekken",
    ((_GPT4O,), False): "gpt-4o",
    (_DEEPSEEK, False): "deepseek-v3",
}
"""By the expressions, and whether a piece that is a token as it stands is taken without merging."""


def pre_tokenizer(tokenizer: Mapping[str, Any]) -> str:
    """llama.cpp's name for the way in which this tokenizer.json cuts.

    Raises:
        InputError: It is none of those known here.
    """
    cuts = tuple(_cuts(tokenizer.get("pre_tokenizer") or {}))
    name = _KNOWN.get((cuts, bool(tokenizer["model"].get("ignore_merges"))))
    if name is None:
        expressions = " then ".join(repr(cut) for cut in cuts) or "not at all"
        raise InputError(
            f"the tokenizer cuts texts in a way that has no known name in llama.cpp: {expressions[:300]}; if you know the "
            "name, give it with --pre-tokenizer, and its tokens are compared with the model's own"
        )
    return name


def _cuts(step: Mapping[str, Any]) -> list[str]:
    kind = step.get("type")
    if kind == "Sequence":
        return [cut for each in step.get("pretokenizers", []) for cut in _cuts(each)]
    if kind == "Split":
        return [_spelled(step.get("pattern", {}).get("Regex") or re.escape(step.get("pattern", {}).get("String", "")))]
    if kind == "Digits":
        return [r"\p{N}" if step.get("individual_digits") else r"\p{N}+"]
    if kind == "ByteLevel":
        return ([" first"] if step.get("add_prefix_space") else []) + ([_GPT2] if step.get("use_regex", True) else [])
    return [f"{kind}"] if kind else []


def _spelled(expression: str) -> str:
    """One spelling for those that mean the same."""
    spelled = expression.replace("(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])", _SHORT)
    return spelled.replace("\r", r"\r").replace("\n", r"\n")


_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_SPACE = "▁"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """What llama.cpp needs to make the same tokens."""

    kind: str
    """`gpt2`, bytes merged by rank, or `llama`, pieces merged by score."""
    pre: str
    """How a text is cut before merging, by llama.cpp's name."""
    tokens: Sequence[str]
    types: Sequence[TokenType]
    merges: Sequence[str] = ()
    scores: Sequence[float] = ()
    special: Mapping[str, int]
    """Ids of bos, eos, eot, unk and pad, as far as there are such."""
    starts: bool
    """A text starts with bos."""
    ends: bool
    """And ends with eos."""
    space_first: bool
    """A text starts with a space that is not there."""
    chat_template: str | Sequence[Mapping[str, str]] | None

    def add_to(self, writer: GGUFWriter) -> None:
        writer.add_tokenizer_model(self.kind)
        writer.add_tokenizer_pre(self.pre)
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.types)
        if self.scores:
            writer.add_token_scores(self.scores)
        if self.merges:
            writer.add_token_merges(self.merges)
        for name, token in self.special.items():
            getattr(writer, f"add_{name}_token_id")(token)
        writer.add_add_bos_token(self.starts)
        writer.add_add_eos_token(self.ends)
        writer.add_add_space_prefix(self.space_first)
        if self.chat_template is not None:
            writer.add_chat_template(self.chat_template)


def open_tokenizer(folder: Path) -> Any:
    """The tokenizer of the model in a folder; code that comes with it is not run.

    Raises:
        InputError: There is none, or none that the `tokenizers` library knows.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # noqa: BLE001 - the boundary to transformers, which raises what its validators raise
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(f"{folder} has no tokenizer that could be loaded: {lines[0]}") from None
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(f"{folder} has a tokenizer without a tokenizer.json: save it with transformers as a fast one")
    return tokenizer


def read_vocabulary(folder: Path, tokenizer: Any, rows: int, *, pre: str = "") -> Vocabulary:
    """The vocabulary of the model in a folder, filled up to as many tokens as its embeddings have rows.

    Args:
        pre: llama.cpp's name for the way texts are cut, where it is known better than by tokenizer.json.

    Raises:
        InputError: llama.cpp has no such tokenizer.
    """
    definition = json.loads(tokenizer.backend_tokenizer.to_str())
    model = definition["model"]
    if model.get("type") != "BPE":
        raise InputError(f"{folder} has a tokenizer of the kind {model.get('type')}, and only BPE can be written")
    pieces = _is_sentencepiece(definition)
    tokens, types = _tokens(definition, rows)
    first, last = _bos_and_eos(tokenizer)
    return Vocabulary(
        kind="llama" if pieces else "gpt2",
        pre=pre or ("default" if pieces else pre_tokenizer(definition)),
        tokens=tokens,
        types=types,
        merges=() if pieces else [_merge(pair) for pair in model["merges"]],
        scores=_scores(model, tokens) if pieces else (),
        special=_special(folder, tokenizer),
        starts=first,
        ends=last,
        space_first=pieces and _space_first(definition),
        chat_template=_template(tokenizer),
    )


def _is_sentencepiece(definition: Mapping[str, Any]) -> bool:
    """SentencePiece's way: a space is a character of its own, and there are tokens for single bytes."""
    return any(
        step.get("type") != "ByteLevel" and _SPACE in json.dumps(step, ensure_ascii=False) for step in _steps(definition)
    )


def _steps(definition: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Normalizers and pre-tokenizers, one after the other."""
    steps: list[Mapping[str, Any]] = []
    for name, inner in (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers")):
        step = definition.get(name) or {}
        steps += step.get(inner, []) if step.get("type") == "Sequence" else [step]
    return steps


def _space_first(definition: Mapping[str, Any]) -> bool:
    return any(
        step.get("type") == "Prepend" or (step.get("type") == "Metaspace" and step.get("prepend_scheme", "always") != "never")
        for step in _steps(definition)
    )


def _tokens(definition: Mapping[str, Any], rows: int) -> tuple[list[str], list[TokenType]]:
    names: dict[int, str] = {number: token for token, number in definition["model"]["vocab"].items()}
    added = {int(each["id"]): each for each in definition.get("added_tokens", [])}
    names.update({number: each["content"] for number, each in added.items()})
    if names and max(names) >= rows:
        raise InputError(f"the tokenizer has a token {max(names)}, and the model's embeddings have {rows} rows")
    kinds = {number: TokenType.CONTROL if each.get("special") else TokenType.USER_DEFINED for number, each in added.items()}
    unknown = definition["model"].get("unk_token")
    tokens, types = [], []
    for number in range(rows):
        token = names.get(number)
        if token is None:
            tokens.append(f"[PAD{number}]")
            types.append(TokenType.UNUSED)
            continue
        kind = kinds.get(number, TokenType.BYTE if _BYTE.fullmatch(token) else TokenType.NORMAL)
        # llama.cpp looks for these in the text as it was typed.
        tokens.append(token.replace(_SPACE, " ") if kind is TokenType.USER_DEFINED else token)
        types.append(TokenType.UNKNOWN if token == unknown else kind)
    return tokens, types


def _merge(pair: str | Sequence[str]) -> str:
    return pair if isinstance(pair, str) else " ".join(pair)


def _scores(model: Mapping[str, Any], tokens: Sequence[str]) -> list[float]:
    """llama.cpp merges what gives the highest score first: minus the rank of the merge that makes a token."""
    ranks: dict[str, int] = {}
    for rank, pair in enumerate(model["merges"]):
        ranks.setdefault("".join(pair.split(" ") if isinstance(pair, str) else pair), rank)
    return [float(-ranks.get(token, len(ranks))) for token in tokens]


def _bos_and_eos(tokenizer: Any) -> tuple[bool, bool]:
    """Whether it puts bos before a text, and eos behind it: seen from what it does, as it is written in several places."""
    ids = tokenizer("a")["input_ids"]
    return (
        bool(ids) and tokenizer.bos_token_id is not None and ids[0] == tokenizer.bos_token_id,
        bool(ids) and tokenizer.eos_token_id is not None and ids[-1] == tokenizer.eos_token_id,
    )


def _special(folder: Path, tokenizer: Any) -> dict[str, int]:
    ids = {name: getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "unk", "pad")}
    generation = read_json(folder / "generation_config.json") if (folder / "generation_config.json").is_file() else {}
    ends = generation.get("eos_token_id")
    ends = [ends] if isinstance(ends, int) else list(ends or [])
    if ids["eos"] is None and ends:
        ids["eos"] = ends[0]
    # A model that talks may end its turn with another token than a text.
    ids["eot"] = next((end for end in ends if end != ids["eos"]), None)
    return {name: int(number) for name, number in ids.items() if number is not None}


def _template(tokenizer: Any) -> str | list[dict[str, str]] | None:
    template = tokenizer.chat_template
    if isinstance(template, dict):
        return [{"name": name, "template": each} for name, each in template.items()]
    return template or None
