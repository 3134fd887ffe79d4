"""A base model and the adapter on it become one model: a folder that everybody can read who reads Hugging Face models."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer
from transformers.utils import logging

from journeyman.core.errors import InputError, ModelRefused
from journeyman.models.local import location, peft_as_it_is, pretrained, with_adapter
from journeyman.optimizers.weights.adapters import read_adapter, whole_folder

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TOLERANCE = 1e-4
"""How far two logits in float32 may lie apart, as a share of the largest where that is over 1."""
PROMPTS = (
    "What is 17 + 25?",
    "Three blue mugs to Oslo by 5 March, please.",
    "The capital of France is",
    '{"tool": "search", "arguments": {"query": "',
    "def add(a, b):\n    return",
)
"""What base with adapter and merged model are both asked. Any text does: their logits must agree everywhere."""
NOTE = "merge.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A merged model, and how well it agrees with what it was made of."""

    folder: Path
    base_model: str
    """The folder or Hugging Face id of the base."""
    adapter: str
    """The adapter's digest."""
    dtype: str
    """Of the weights as saved. They were merged, and compared, in float32."""
    parameters: int
    difference: float
    """The largest absolute difference between two logits, in float32, before the weights were rounded to `dtype`."""
    largest: float
    """The largest absolute logit: what `difference` is to be held against."""
    compared: int
    """Logits."""


def merge(adapter: Path, folder: Path, *, base: str = "", dtype: str = "float32", prompts: Sequence[str] = ()) -> Merged:
    """Write base and adapter as one model to `folder`, which must not be there yet: whole, or not at all.

    The weights are merged in float32 (W + alpha/r · BA, Hu et al. 2021) and only then rounded. Memory: 4 bytes a parameter.

    Args:
        base: Where the base model lies, if elsewhere than the adapter says.
        dtype: One of `DTYPES`. Rounded to bfloat16, a small step of training may vanish.
        prompts: What both are asked besides `PROMPTS`.

    Raises:
        InputError: There is no adapter, or `folder` is taken.
        ModelRefused: The base cannot be had, the adapter does not fit it, or the merged model answers otherwise.
    """
    if dtype not in DTYPES:
        raise InputError(f"dtype is {dtype!r}, and must be one of {', '.join(DTYPES)}")
    if folder.exists():
        raise InputError(f"{folder} is there already: name another folder for the merged model, or remove it")
    read = read_adapter(adapter)
    if not (base := base or read.base_model):
        raise InputError(f"{adapter / 'adapter_config.json'} names no base model: name it with --base-model")
    where = location(base)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    tokenizer, model = pretrained(where, torch.float32)
    adapted = with_adapter(model, where, str(adapter)).eval()
    merged, difference, largest, compared = _merged(adapted, tokenizer, [*PROMPTS, *prompts])
    result = Merged(
        folder=folder,
        base_model=base,
        adapter=read.digest,
        dtype=dtype,
        parameters=sum(weight.numel() for weight in merged.parameters()),
        difference=difference,
        largest=largest,
        compared=compared,
    )
    _write(merged.to(DTYPES[dtype]), where, result)
    return result


def _merged(adapted: Any, tokenizer: Any, prompts: Sequence[str]) -> tuple[Any, float, float, int]:
    """The model merged in place, as two in float32 may be more than there is memory for; then how well the logits agree."""
    before = [_logits(adapted, tokenizer, prompt) for prompt in prompts]
    with peft_as_it_is():
        merged = adapted.merge_and_unload(safe_merge=True)
    after = [_logits(merged, tokenizer, prompt) for prompt in prompts]
    difference = max(float((a - b).abs().max()) for a, b in zip(before, after, strict=True))
    largest = max(float(logits.abs().max()) for logits in before)
    # Not `>`: a NaN must not pass.
    if not difference <= TOLERANCE * max(1.0, largest):
        raise ModelRefused(
            f"the merged model is not base and adapter: their logits differ by {difference:.2g} and may by {TOLERANCE:g}; "
            "an adapter on embeddings that input and output share cannot be merged"
        )
    return merged, difference, largest, sum(logits.numel() for logits in before)


def _logits(model: Any, tokenizer: Any, prompt: str) -> torch.Tensor:
    encoded = tokenizer(prompt, return_tensors="pt")
    with torch.inference_mode():
        logits: torch.Tensor = model(**{name: encoded[name] for name in ("input_ids", "attention_mask")}).logits
    return logits


def _write(model: Any, where: str, result: Merged) -> None:
    with whole_folder(result.folder) as part:
        model.save_pretrained(part)
        # Read anew: the one at hand was set up to pad on the left, which the base's own is not.
        AutoTokenizer.from_pretrained(where, trust_remote_code=False).save_pretrained(part)
        note = {name: value for name, value in asdict(result).items() if name != "folder"}
        (part / NOTE).write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
