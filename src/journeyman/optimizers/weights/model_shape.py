"""The shape of a model, from its config.json and the headers of its weights: nothing is loaded, and torch is not needed."""

import json
import math
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError
from journeyman.io.files import read_object
from journeyman.models import WEIGHTS, embedded_sizes

_HEADER_MOST = 100_000_000
"""Bytes of a header, as the safetensors format itself has it."""
_PLAIN_MLP = frozenset(
    {"bloom", "codegen", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "mpt", "opt", "phi", "starcoder2"}
)
"""Architectures whose feed-forward part has two matrices; all others have a gate as a third (Shazeer 2020, "GLU Variants")."""
_BIASED = frozenset({"qwen2", "qwen2_moe"})
"""Architectures that add a bias to queries, keys and values although their configuration does not say so."""
_NORMED = frozenset({"qwen3", "qwen3_moe", "gemma3_text"})
"""Architectures that normalise queries and keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A decoder of text, as far as memory and time depend on it."""

    name: str
    """As a user typed it."""
    parameters: int
    """Counted in the files where they are here, else from the numbers below."""
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    """Width of the feed-forward part; of all experts that a token goes through."""
    vocabulary: int
    context: int | None
    """Tokens that it was made for."""
    file_bytes: int | None = None
    """Of its weights as they lie on the disk."""

    @property
    def attention(self) -> int:
        """Width of queries, and of what attention gives."""
        return self.heads * self.head_size

    @property
    def kv(self) -> int:
        """Width of keys, and of values."""
        return self.kv_heads * self.head_size

    @property
    def tiny(self) -> bool:
        """Below 20 million parameters: it learns with other settings than those that people use for real models."""
        return self.parameters < 20_000_000

    def adapter(self, rank: int) -> int:
        """Parameters of a LoRA on all linear layers but the last: rank × (in + out) for each (Hu et al. 2021)."""
        widths = 2 * (self.hidden + self.attention) + 2 * (self.hidden + self.kv) + 3 * (self.hidden + self.intermediate)
        return self.layers * rank * widths


def find(named: str, environment: Mapping[str, str] = os.environ) -> tuple[Shape | None, str]:
    """The shape of a model by the name that a user gives it, or `None` and one sentence why it is not known.

    `named` is a folder, `embedded:SIZE`, or a Hugging Face id: that of one that is on this machine, or one of `LADDER`.
    """
    folder = folder_of(named, environment)
    if folder is not None:
        return _read(named, folder)
    typical = next((shape for shape in LADDER.values() if shape.name == named), None)
    if typical is not None:
        return typical, ""
    if named.startswith("embedded"):
        return None, f"there is no model {named!r}; there are {', '.join(f'embedded:{size}' for size in embedded_sizes())}"
    return (
        None,
        f"the shape of {named!r} is not known before it is on this machine; `hf download {named} config.json` is enough",
    )


def folder_of(named: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Where that model lies on this machine; `None` when it does not."""
    kind, _, size = named.partition(":")
    if kind == "embedded":
        return WEIGHTS / (size or "base") if (size or "base") in embedded_sizes() else None
    if kind == "local":
        named = size
    if (Path(named) / "config.json").is_file():
        return Path(named)
    return _cached(named, environment)


def _cached(named: str, environment: Mapping[str, str]) -> Path | None:
    """The folder of the newest known revision in the cache of `huggingface_hub`, found as that finds it."""
    home = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME") or "~").expanduser() / ".cache")
    hub = environment.get("HF_HUB_CACHE") or str(Path(environment.get("HF_HOME") or f"{home}/huggingface") / "hub")
    model = Path(hub).expanduser() / f"models--{named.replace('/', '--')}"
    try:
        revision = (model / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None
    folder = model / "snapshots" / revision
    return folder if (folder / "config.json").is_file() else None


def _read(named: str, folder: Path) -> tuple[Shape | None, str]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        shape = parse(named, config)
    except (OSError, ValueError, TypeError, KeyError, ZeroDivisionError, RecursionError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else f"could not be read: {error}"
        return None, f"the shape of {named!r} is not known: {path} {what}"
    try:
        counted = [_count(file) for file in weight_files(folder)]
    except (OSError, InputError):
        return shape, ""
    if None in counted:
        return shape, ""
    tensors = sum(count[0] for count in counted if count)
    return replace(shape, parameters=tensors, file_bytes=sum(count[1] for count in counted if count)), ""


INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


def weight_files(folder: Path) -> list[Path]:
    """All files of the weights in a model's folder, as the index names them where there are several.

    Raises:
        InputError: There are none as safetensors, or one that the index names is not there.
    """
    if not (folder / INDEX).is_file():
        if not (folder / SINGLE).is_file():
            raise InputError(
                f"{folder} has no {SINGLE}: weights in another form are not read; load and save the model with transformers"
            )
        return [folder / SINGLE]
    weights = read_object(folder / INDEX).get("weight_map")
    if not isinstance(weights, dict):
        raise InputError(f"{folder / INDEX} has no weight_map")
    names = sorted({str(name) for name in weights.values()})
    # A file of this folder, and of no other.
    if strange := next((name for name in names if Path(name).name != name or not (folder / name).is_file()), None):
        raise InputError(f"{folder / INDEX} names {strange!r}, and there is no such file beside it")
    return [folder / name for name in names]


def parse(named: str, config: Mapping[str, Any]) -> Shape:
    """From what a config.json holds.

    Raises:
        KeyError: A number is missing, which it names.
        ValueError, TypeError: One is no number above 0.
    """
    if not isinstance(config, Mapping):
        raise TypeError("it is no object")
    text = config.get("text_config") or config
    number = _Numbers(text)
    hidden, layers, heads = (
        number("hidden_size", "n_embd"),
        number("num_hidden_layers", "n_layer"),
        number("num_attention_heads", "n_head"),
    )
    # A null is how some configurations say that a number is as usual.
    kv_heads = number("num_key_value_heads", usual=heads)
    head_size = number("head_dim", usual=hidden // heads)
    experts = number("num_experts_per_tok", usual=1)
    dense = number("intermediate_size", "n_inner", usual=4 * hidden)
    intermediate = experts * number("moe_intermediate_size", usual=dense) if experts > 1 else dense
    shape = Shape(
        name=named,
        parameters=0,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        intermediate=intermediate,
        vocabulary=number("vocab_size"),
        context=number("max_position_embeddings", "n_positions", usual=0) or None,
    )
    return replace(shape, parameters=_parameters(shape, text, number))


def _parameters(shape: Shape, text: Mapping[str, Any], number: "_Numbers") -> int:
    """Matrices, norms and biases as transformers makes them; exact for Llama, Mistral, Qwen 2 and 3, close for others."""
    kind = str(text.get("model_type", ""))
    h, width = shape.hidden, shape.attention + 2 * shape.kv
    biases = width if kind in _BIASED or text.get("attention_bias") else 0
    if text.get("attention_bias"):
        biases += h
    attention = h * width + shape.attention * h + biases + (2 * shape.head_size if kind in _NORMED else 0)
    matrices = 2 if kind in _PLAIN_MLP else 3
    experts, used = (
        number("num_experts", "num_local_experts", "n_routed_experts", usual=1),
        number("num_experts_per_tok", usual=1),
    )
    feed_forward = matrices * h * shape.intermediate // used * experts + (h * experts if experts > 1 else 0)
    tied = text.get("tie_word_embeddings", True)
    return shape.vocabulary * h * (1 if tied else 2) + shape.layers * (attention + feed_forward + 2 * h) + h


class _Numbers:
    """Reads whole numbers above 0 by whichever of their names is there."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    def __call__(self, *names: str, usual: int | None = None) -> int:
        value = next((self._config[name] for name in names if self._config.get(name) is not None), usual)
        if value is None:
            raise KeyError(names[0])
        if isinstance(value, bool) or not isinstance(value, int) or (value < 1 and value != usual):
            raise ValueError(f"{names[0]} is {value!r}")
        return value


def _count(file: Path) -> tuple[int, int] | None:
    """Parameters and bytes of a safetensors file, from its header: 8 bytes of length, then JSON; `None` when it is none."""
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > _HEADER_MOST:
                return None
            header = json.loads(stream.read(length))
        return sum(_sizes(header)), file.stat().st_size
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, struct.error):
        return None


def _sizes(header: Mapping[str, Any]) -> Iterator[int]:
    return (math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def _rung(name: str, widths: tuple[int, int, int, int, int], vocabulary: int, **more: object) -> Shape:
    """A shape by hidden size, layers, heads, heads of keys and values, and width of the feed-forward part."""
    keys = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size")
    config = {"model_type": "qwen2", "max_position_embeddings": 32_768, **more, "vocab_size": vocabulary}
    return parse(name, {**config, **dict(zip(keys, widths, strict=True))})


LADDER: dict[str, Shape] = {
    "135M": _rung(
        "HuggingFaceTB/SmolLM2-135M-Instruct", (576, 30, 9, 3, 1536), 49_152, model_type="llama", max_position_embeddings=8192
    ),
    "360M": _rung(
        "HuggingFaceTB/SmolLM2-360M-Instruct", (960, 32, 15, 5, 2560), 49_152, model_type="llama", max_position_embeddings=8192
    ),
    "0.5B": _rung("Qwen/Qwen2.5-0.5B-Instruct", (896, 24, 14, 2, 4864), 151_936),
    "1.5B": _rung("Qwen/Qwen2.5-1.5B-Instruct", (1536, 28, 12, 2, 8960), 151_936),
    "3B": _rung("Qwen/Qwen2.5-3B-Instruct", (2048, 36, 16, 2, 11_008), 151_936),
    "7B": _rung("Qwen/Qwen2.5-7B-Instruct", (3584, 28, 28, 4, 18_944), 152_064, tie_word_embeddings=False),
    "14B": _rung("Qwen/Qwen2.5-14B-Instruct", (5120, 48, 40, 8, 13_824), 152_064, tie_word_embeddings=False),
    "32B": _rung("Qwen/Qwen2.5-32B-Instruct", (5120, 64, 40, 8, 27_648), 152_064, tie_word_embeddings=False),
    "72B": _rung("Qwen/Qwen2.5-72B-Instruct", (8192, 80, 64, 8, 29_568), 152_064, tie_word_embeddings=False),
}
"""Models that anybody may have, a size each, by which a size is recommended; their published configurations."""


# The same file as GGUF's keys need it: sizes, rotary positions (RoPE), sliding windows, soft caps.


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
    except (AttributeError, TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
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
