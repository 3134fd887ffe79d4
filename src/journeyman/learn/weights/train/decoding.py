"""Batched decoding: many prompts at once, and the completion of each."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList


def generate(
    model: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], limit: int, drawn: LogitsProcessor | None = None
) -> list[list[int]]:
    """Completions of prompts that are decoded in one batch, greedily.

    Args:
        prompts: Token ids of each; they are padded on the left here.
        limit: New tokens of each, at most.
        drawn: A logits processor; one that adds noise makes sampling of greedy decoding.

    Returns:
        For each prompt its new token ids, all lists as long as the longest, filled with the padding token behind their end.
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
        eos_token_id=sorted(end_tokens(model, tokenizer)),
        pad_token_id=pad,
        use_cache=True,
    )
    output = model.generate(
        input_ids=ids,
        attention_mask=mask,
        generation_config=settings,
        logits_processor=LogitsProcessorList([] if drawn is None else [drawn]),
    )
    rows: list[list[int]] = output[:, width:].tolist()
    return rows


def end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Ids of the tokens that end a completion: the tokenizer's, and those of the model's generation settings."""
    eos = model.generation_config.eos_token_id
    return frozenset([tokenizer.eos_token_id, *([eos] if isinstance(eos, int) else eos or ())])
