"""A model's config.json as GGUF's keys need it: sizes, rotary positions (RoPE), sliding windows, soft caps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from journeyman.errors import InputError
from journeyman.learn.weights.adapters import read_object


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
