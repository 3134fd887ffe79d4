"""Methods that learn from completions that are there already: KTO from labels, DPO from pairs, RFT from what is right.

The machinery is TRL's. What is ours: rows are made into tokens in `columns`, so that of a conversation only the agent's own
words are learned from; and what the reference model says of them is computed once, before the first update, by the model
itself, which is the reference until then. TRL would keep a second adapter for that, and ask it again in every epoch.
"""

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer
from trl.trainer.dpo_trainer import DataCollatorForPreference
from trl.trainer.kto_trainer import DataCollatorForUnpairedPreference

from journeyman.core.errors import InputError, SettingError
from journeyman.models.local import peft_as_it_is
from journeyman.optimizers.weights.rows import CompletionGroup, LabelledCompletion, Row, TextOrMessages, kto_weights
from journeyman.optimizers.weights.train import TrainingSetup, trainer_arguments
from journeyman.optimizers.weights.train.distributed import world_size
from journeyman.optimizers.weights.train.masks import RowEncoder, Tokens
from journeyman.optimizers.weights.train.sampling import labelled

# What DPO learns from rows: which completion is preferred to which.

MARGIN = 0.1
"""How much more a completion must be worth to be preferred, in scores from 0 to 1."""
A_GROUP = 1
"""Pairs that one group gives at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferencePair:
    """Two completions of one prompt, of which one is better."""

    prompt: TextOrMessages
    chosen: TextOrMessages
    rejected: TextOrMessages
    tools: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)


def pairs(rows: Iterable[Row], *, margin: float = MARGIN, a_group: int = A_GROUP) -> list[PreferencePair]:
    """Pairs for DPO, in the order of the rows.

    Of a group the best completion is preferred to the worst, then the second best to the second worst and so on, up to
    `a_group` pairs, as long as they differ by `margin`; where a file tells only rewards that are normalised within the group,
    any difference will do. Which of two equals comes first does not matter to what is learned: the one that stands first.
    Of labelled rows, the good and the bad completions of one prompt are paired in their order.
    """
    grouped, labelled = _split(rows)
    preferred = [pair for group in grouped for pair in _of_group(group, margin, a_group)]
    return [*preferred, *_of_labels(labelled)]


def _split(rows: Iterable[Row]) -> tuple[list[CompletionGroup], list[LabelledCompletion]]:
    grouped: list[CompletionGroup] = []
    labelled: list[LabelledCompletion] = []
    for row in rows:
        if isinstance(row, CompletionGroup):
            grouped.append(row)
        else:
            labelled.append(row)
    return grouped, labelled


def _of_group(group: CompletionGroup, margin: float, most: int) -> Iterator[PreferencePair]:
    worth = group.scores or group.rewards
    least = margin if group.scores else 1e-6
    # The best first; `sorted` keeps the order of equals.
    order = sorted(range(len(worth)), key=lambda n: -worth[n])
    for best, worst in list(zip(order, reversed(order), strict=True))[: min(most, len(order) // 2)]:
        if worth[best] - worth[worst] < least:
            return
        chosen, rejected = group.completions[best], group.completions[worst]
        yield PreferencePair(prompt=group.prompt, chosen=chosen, rejected=rejected, tools=group.tools)


def _of_labels(rows: Sequence[LabelledCompletion]) -> Iterator[PreferencePair]:
    prompts: dict[str, tuple[list[LabelledCompletion], list[LabelledCompletion]]] = {}
    for row in rows:
        good, bad = prompts.setdefault(repr((row.prompt, row.tools)), ([], []))
        (good if row.label else bad).append(row)
    for good, bad in prompts.values():
        for chosen, rejected in zip(good, bad, strict=False):
            yield PreferencePair(
                prompt=chosen.prompt, chosen=chosen.completion, rejected=rejected.completion, tools=chosen.tools
            )


# Rows as the columns that TRL's trainers read, made into tokens here: only the agent's own words are to be learned from.

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


WARM_UP = 0.1
"""Share of the updates in which the learning rate rises; after that it falls to nothing."""


def kto(work: TrainingSetup) -> KTOTrainer:
    """Ethayarajh et al. 2024 (arXiv 2402.01306): what is good becomes likelier than it was, what is bad less likely.

    The logs hold `logps/chosen` and `logps/rejected` (mean log-probability of a good and of a bad completion), `kl`, `entropy`
    and `rewards/margins`. Good completions that become less likely while the loss falls are how KTO collapses.

    Raises:
        InputError: No rows fit, none are good or none are bad, or there is nothing to compare within a batch.
    """
    config = work.config
    size = config.per_device_batch_size or 2
    if size < 2:
        raise SettingError("per_device_batch_size", "{} is 1, and KTO compares within a batch: it must be at least 2")
    rows = with_kl_completions(columns(work, _labels(work.rows), kto_columns), size)
    good = sum(row["label"] for row in rows)
    desirable, undesirable = kto_weights(
        good, len(rows) - good, desirable=config.desirable_weight, undesirable=config.undesirable_weight
    )
    settings = KTOConfig(
        **_common(work), beta=config.beta, desirable_weight=desirable, undesirable_weight=undesirable, max_length=None
    )
    return _Kto(**_parts(work, settings, rows), data_collator=_Labels(pad_token_id=work.tokenizer.pad_token_id))


def dpo(work: TrainingSetup) -> DPOTrainer:
    """Rafailov et al. 2023 (arXiv 2305.18290): the better of two completions becomes likelier than the worse.

    Pairs are made of groups and labels by `pairs`. Where the two share most of their tokens, the comparison alone can be won by
    making both less likely; `imitation` adds the mean negative log-likelihood of the better one's tokens (Pang et al. 2024,
    arXiv 2404.19733, equation 1, α). The logs hold what those of `kto` do, without `kl`.

    Raises:
        InputError: There are no two completions of a prompt of which one is better, or none that fit.
    """
    preferred = pairs(work.rows)
    if not preferred:
        raise InputError("no prompt has two completions of which one is better: DPO has nothing to learn from")
    losses = {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, work.config.imitation]} if work.config.imitation else {}
    settings = DPOConfig(**_common(work), **losses, beta=work.config.beta, max_length=None)
    collator = _Pairs(pad_token_id=work.tokenizer.pad_token_id)
    return _Dpo(**_parts(work, settings, columns(work, preferred, dpo_columns)), data_collator=collator)


def rft(work: TrainingSetup) -> SFTTrainer:
    """Rejection-sampling fine-tuning (Yuan et al. 2023, arXiv 2308.01825): supervised, on each different right completion.

    Raises:
        InputError: None is right, or none fits.
    """
    right = {repr((row.prompt, row.completion, row.tools)): row for row in _labels(work.rows) if row.label}
    if not right:
        raise InputError(f"none of {len(work.rows)} rows is right: there is nothing to imitate")
    settings = SFTConfig(**_common(work), max_length=None, packing=False)
    return SFTTrainer(**_parts(work, settings, columns(work, list(right.values()), sft_columns)))


def _labels(rows: Sequence[Row]) -> list[LabelledCompletion]:
    groups = [row for row in rows if isinstance(row, CompletionGroup)]
    return [*(row for row in rows if isinstance(row, LabelledCompletion)), *labelled(groups)]


def _common(work: TrainingSetup) -> dict[str, Any]:
    """What the three trainers are told alike."""
    config = work.config
    return {
        **trainer_arguments(work),
        "per_device_train_batch_size": config.per_device_batch_size,
        "gradient_accumulation_steps": config.gradient_accumulation_steps,
        "warmup_steps": WARM_UP,
        "num_train_epochs": config.num_epochs,
        "max_steps": config.max_steps or -1,
        "remove_unused_columns": False,
    }


def _parts(work: TrainingSetup, settings: Any, rows: Sequence[Columns]) -> dict[str, Any]:
    return {
        "model": work.model,
        "processing_class": work.tokenizer,
        "args": settings,
        "train_dataset": Dataset.from_list(list(rows)),
        "callbacks": list(work.callbacks),
    }


@dataclass
class _Labels(DataCollatorForUnpairedPreference):  # type: ignore[misc]  # TRL is untyped here
    """Batches of KTO in which what tools and people said is read and not learned."""

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = super().torch_call(examples)
        batch["completion_mask"] = own_mask(batch["input_ids"], examples, "completion")
        batch["KL_completion_mask"] = own_mask(batch["KL_input_ids"], examples, "KL_completion")
        return batch


@dataclass
class _Pairs(DataCollatorForPreference):  # type: ignore[misc]  # TRL is untyped here
    """The same for DPO, whose batches hold the better completions and then the worse."""

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = super().torch_call(examples)
        better, worse = batch["input_ids"].chunk(2)
        masks = own_mask(better, examples, "chosen"), own_mask(worse, examples, "rejected")
        batch["completion_mask"] = torch.cat(masks)
        return batch


class _Prepared:
    """Rows are tokens already, and what the reference says of them is asked once, before the first update."""

    reference: tuple[str, str]
    """The columns of that."""

    def __init__(self, **settings: Any) -> None:
        with peft_as_it_is():
            super().__init__(**settings)
            _refer(self, self.reference)

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        return dataset


class _Kto(_Prepared, KTOTrainer):  # type: ignore[misc]  # TRL is untyped here
    reference = ("ref_logps", "ref_KL_logps")


class _Dpo(_Prepared, DPOTrainer):  # type: ignore[misc]  # TRL is untyped here
    reference = ("ref_chosen_logps", "ref_rejected_logps")


def _refer(trainer: Any, names: tuple[str, str]) -> None:
    """Add what the reference says of each row as columns of these names, and let go of TRL's copy of the adapter."""
    loader = trainer.accelerator.prepare(
        DataLoader(
            trainer.train_dataset,
            batch_size=trainer.args.per_device_train_batch_size,
            collate_fn=trainer.data_collator,
            shuffle=False,
        )
    )
    columns_found: tuple[list[float], list[float]] = ([], [])
    for batch in loader:
        logprobs = trainer.accelerator.gather_for_metrics(trainer.compute_ref_log_probs(trainer.model, batch))
        for column, values in zip(columns_found, logprobs, strict=True):
            column.extend(values.tolist())
    for name, column in zip(names, columns_found, strict=True):
        trainer.train_dataset = trainer.train_dataset.add_column(name, column)
    trainer.precompute_ref_logps = True
    trainer.model.delete_adapter("ref")
