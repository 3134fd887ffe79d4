"""The models that GGUF files can be written for here, and what of their weights llama.cpp wants otherwise.

Names of keys and tensors come from the tables of the `gguf` package. What is changed on the way follows llama.cpp's own
converter: rotated pairs lie side by side in its Llama, and its Gemma does not add the 1 to a norm's weight.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from gguf import MODEL_ARCH, GGUFWriter, RopeScalingType

from journeyman.errors import InputError
from journeyman.learn.weights.gguf.settings import CausalLMConfig

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
