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
from journeyman.learn.weights.train.together import processes

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
    update = (config.per_device_batch_size or 1) * (config.gradient_accumulation_steps or 1) * processes()
    most = config.max_steps * update if config.max_steps else len(order)
    encoder = RowEncoder(work.tokenizer, config.max_prompt_tokens, config.max_completion_tokens)
    kept: list[Columns] = []
    left_out = 0
    for row in order:
        if len(kept) == most:
            break
        found = make(encoder, row)
        if found is None:
            left_out += 1
        else:
            kept.append(found)
    limit = f"{config.max_completion_tokens} tokens of completion"
    if not kept:
        why = f"none of {len(order)} rows fits into {limit}: raise max_completion_tokens" if order else "there are no rows"
        raise InputError(why)
    if left_out:
        log.warning("%d of %d rows are left out: they do not fit into %s", left_out, left_out + len(kept), limit)
    return kept


def of_label(encoder: RowEncoder, row: LabelledCompletion) -> Columns | None:
    """For KTO."""
    found = encoder.encode(row.prompt, row.completion, row.tools)
    return None if found is None else {**_prompt(found), **_answer("completion", found), "label": row.label}


def of_pair(encoder: RowEncoder, pair: PreferencePair) -> Columns | None:
    """For DPO."""
    chosen = encoder.encode(pair.prompt, pair.chosen, pair.tools)
    rejected = encoder.encode(pair.prompt, pair.rejected, pair.tools)
    if chosen is None or rejected is None:
        return None
    return {**_prompt(chosen), **_answer("chosen", chosen), **_answer("rejected", rejected)}


def of_right(encoder: RowEncoder, row: LabelledCompletion) -> Columns | None:
    """For fine-tuning on what is right."""
    found = encoder.encode(row.prompt, row.completion, row.tools)
    if found is None:
        return None
    learned = [token if own else IGNORED for token, own in zip(found.completion, found.own, strict=True)]
    return {"input_ids": [*found.prompt, *found.completion], "labels": [IGNORED] * len(found.prompt) + learned}


def mismatched(rows: Sequence[Columns], batch: int) -> list[Columns]:
    """With each row the completion of another: KTO's estimate of how far the policy has moved (its equation 6).

    It is that of the row before it in its batch, and the last one's for the first, so that the same completions are read with
    and without their prompts. A batch of one row takes that of the batch before it.
    """
    made: list[Columns] = []
    for n, row in enumerate(rows):
        other = n - 1 if n % batch or n == len(rows) - 1 else min(n + batch, len(rows)) - 1
        found = rows[other]
        made.append({**row, "KL_completion_ids": found["completion_ids"], "KL_completion_own": found["completion_own"]})
    return made


def own_mask(ids: Any, examples: Sequence[Mapping[str, Any]], name: str) -> Any:
    """A mask in the shape of the padded `ids`, 1 where the agent's own token of the completion `name` stands."""
    mask = ids.new_zeros(ids.shape)
    for row, example in enumerate(examples):
        start, own = len(example["prompt_ids"]), example[f"{name}_own"]
        mask[row, start : start + len(own)] = mask.new_tensor(own)
    return mask


def _prompt(found: Tokens) -> Columns:
    return {"prompt_ids": list(found.prompt)}


def _answer(name: str, found: Tokens) -> Columns:
    return {f"{name}_ids": list(found.completion), f"{name}_own": [int(own) for own in found.own]}
