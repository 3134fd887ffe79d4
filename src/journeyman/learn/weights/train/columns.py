"""Rows as the columns that TRL's trainers read, made into tokens here: only the agent's own words are to be learned from."""

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from journeyman.errors import InputError
from journeyman.learn.weights.rows import LabelledCompletion
from journeyman.learn.weights.train.base import TrainingSetup
from journeyman.learn.weights.train.masks import RowEncoder, Tokens
from journeyman.learn.weights.train.pairs import PreferencePair
from journeyman.learn.weights.train.together import world_size

IGNORED = -100
"""The label of a token that is not learned from, for TRL and transformers."""

log = logging.getLogger(__name__)
Columns = dict[str, Any]
_Row = TypeVar("_Row")


def columns(work: TrainingSetup, rows: Sequence[_Row], make: Callable[[RowEncoder, _Row], Columns | None]) -> list[Columns]:
    """The rows in an order drawn by the seed, without those that do not fit, and no more than the updates will see.

    Raises:
        InputError: None fits, or one cannot be said by the chat template.
    """
    config = work.config
    order = list(rows)
    random.Random(config.seed).shuffle(order)
    update = (config.per_device_batch_size or 1) * (config.gradient_accumulation_steps or 1) * world_size()
    most = config.max_steps * update if config.max_steps else len(order)
    encoder = RowEncoder(work.tokenizer, config.max_prompt_tokens, config.max_completion_tokens)
    fitting: list[Columns] = []
    left_out = 0
    for row in order:
        if len(fitting) == most:
            break
        encoded = make(encoder, row)
        if encoded is None:
            left_out += 1
        else:
            fitting.append(encoded)
    limit = f"{config.max_completion_tokens} tokens of completion"
    if not fitting:
        why = f"none of {len(order)} rows fits into {limit}: raise max_completion_tokens" if order else "there are no rows"
        raise InputError(why)
    if left_out:
        log.warning("%d of %d rows are left out: they do not fit into %s", left_out, left_out + len(fitting), limit)
    return fitting


def kto_columns(encoder: RowEncoder, row: LabelledCompletion) -> Columns | None:
    """For KTO: `prompt_ids`, `completion_ids`, `completion_own` (1 for the agent's tokens) and `label`; `None` if too long."""
    tokens = encoder.encode(row.prompt, row.completion, row.tools)
    return None if tokens is None else {**_prompt(tokens), **_answer("completion", tokens), "label": row.label}


def dpo_columns(encoder: RowEncoder, pair: PreferencePair) -> Columns | None:
    """For DPO: `prompt_ids`, and `…_ids` and `…_own` of `chosen` and `rejected`; `None` when one is too long."""
    chosen = encoder.encode(pair.prompt, pair.chosen, pair.tools)
    rejected = encoder.encode(pair.prompt, pair.rejected, pair.tools)
    if chosen is None or rejected is None:
        return None
    return {**_prompt(chosen), **_answer("chosen", chosen), **_answer("rejected", rejected)}


def sft_columns(encoder: RowEncoder, row: LabelledCompletion) -> Columns | None:
    """For supervised fine-tuning: `input_ids`, and `labels` of the same length with `IGNORED` where nothing is learned."""
    tokens = encoder.encode(row.prompt, row.completion, row.tools)
    if tokens is None:
        return None
    learned = [token if own else IGNORED for token, own in zip(tokens.completion, tokens.own, strict=True)]
    return {"input_ids": [*tokens.prompt, *tokens.completion], "labels": [IGNORED] * len(tokens.prompt) + learned}


def with_kl_completions(rows: Sequence[Columns], batch: int) -> list[Columns]:
    """With each row the completion of another: KTO's estimate of how far the policy has moved (its equation 6).

    It is that of the row before it in its batch, and the last one's for the first, so that the same completions are read with
    and without their prompts. A batch of one row takes that of the batch before it.
    """
    with_kl: list[Columns] = []
    for n, row in enumerate(rows):
        other = n - 1 if n % batch or n == len(rows) - 1 else min(n + batch, len(rows)) - 1
        source = rows[other]
        with_kl.append({**row, "KL_completion_ids": source["completion_ids"], "KL_completion_own": source["completion_own"]})
    return with_kl


def own_mask(ids: Any, examples: Sequence[Mapping[str, Any]], name: str) -> Any:
    """A mask in the shape of the padded `ids`, 1 where the agent's own token of the completion `name` stands."""
    mask = ids.new_zeros(ids.shape)
    for row, example in enumerate(examples):
        start, own = len(example["prompt_ids"]), example[f"{name}_own"]
        mask[row, start : start + len(own)] = mask.new_tensor(own)
    return mask


def _prompt(tokens: Tokens) -> Columns:
    return {"prompt_ids": list(tokens.prompt)}


def _answer(name: str, tokens: Tokens) -> Columns:
    return {f"{name}_ids": list(tokens.completion), f"{name}_own": [int(own) for own in tokens.own]}
