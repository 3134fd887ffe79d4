"""Many prompts at once, and what the model writes after each."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList


def written(
    model: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], limit: int, drawn: LogitsProcessor | None = None
) -> list[list[int]]:
    """Tokens after each prompt, at most `limit`, padded behind their end; the likeliest ones.

    Args:
        drawn: Changes how likely each is, and so may make a sample of it.
    """
    width = max(map(len, prompts))
    pad = tokenizer.pad_token_id
    ids = torch.tensor([[pad] * (width - len(each)) + list(each) for each in prompts], device=model.device)
    mask = torch.tensor([[0] * (width - len(each)) + [1] * len(each) for each in prompts], device=model.device)
    # What is not named here is taken from the model's own settings, of which several publish a temperature.
    settings = GenerationConfig(
        do_sample=False,
        temperature=1.0,
        top_p=1.0,
        top_k=50,
        repetition_penalty=1.0,
        max_new_tokens=limit,
        eos_token_id=sorted(ends(model, tokenizer)),
        pad_token_id=pad,
        use_cache=True,
    )
    found = model.generate(
        input_ids=ids,
        attention_mask=mask,
        generation_config=settings,
        logits_processor=LogitsProcessorList([] if drawn is None else [drawn]),
    )
    rows: list[list[int]] = found[:, width:].tolist()
    return rows


def ends(model: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end what the model writes."""
    told = model.generation_config.eos_token_id
    return frozenset([tokenizer.eos_token_id, *([told] if isinstance(told, int) else told or ())])
