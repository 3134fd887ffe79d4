"""Methods that learn from completions that are there already: KTO from labels, DPO from pairs, RFT from what is right.

The machinery is TRL's. What is ours: rows are made into tokens in `columns`, so that of a conversation only the agent's own
words are learned from; and what the reference model says of them is computed once, before the first update, by the model
itself, which is the reference until then. TRL would keep a second adapter for that, and ask it again in every epoch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer
from trl.trainer.dpo_trainer import DataCollatorForPreference
from trl.trainer.kto_trainer import DataCollatorForUnpairedPreference

from journeyman.errors import InputError, SettingError
from journeyman.learn.weights import balance
from journeyman.learn.weights.rows import CompletionGroup, LabelledCompletion, Row
from journeyman.learn.weights.train import arguments, pairs
from journeyman.learn.weights.train.base import TrainingSetup
from journeyman.learn.weights.train.columns import (
    Columns,
    columns,
    dpo_columns,
    kto_columns,
    own_mask,
    sft_columns,
    with_kl_completions,
)
from journeyman.learn.weights.train.sampling import labelled
from journeyman.models.local import peft_as_it_is

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
    desirable, undesirable = balance.weights(
        good, len(rows) - good, desirable=config.desirable_weight, undesirable=config.undesirable_weight
    )
    settings = KTOConfig(
        **_common(work), beta=config.beta, desirable_weight=desirable, undesirable_weight=undesirable, max_length=None
    )
    return _Kto(**_parts(work, settings, rows), data_collator=_Labels(pad_token_id=work.tokenizer.pad_token_id))


def dpo(work: TrainingSetup) -> DPOTrainer:
    """Rafailov et al. 2023 (arXiv 2305.18290): the better of two completions becomes likelier than the worse.

    Pairs are made of groups and labels by `pairs.pairs`. The logs hold what those of `kto` do, without `kl`.

    Raises:
        InputError: There are no two completions of a prompt of which one is better, or none that fit.
    """
    preferred = pairs.pairs(work.rows)
    if not preferred:
        raise InputError("no prompt has two completions of which one is better: DPO has nothing to learn from")
    settings = DPOConfig(**_common(work), beta=work.config.beta, max_length=None)
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
        **arguments.every(config, work.job),
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


class _Kto(KTOTrainer):  # type: ignore[misc]  # TRL is untyped here
    def __init__(self, **settings: Any) -> None:
        with peft_as_it_is():
            super().__init__(**settings)
            _refer(self, ("ref_logps", "ref_KL_logps"))

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        return dataset


class _Dpo(DPOTrainer):  # type: ignore[misc]  # TRL is untyped here
    def __init__(self, **settings: Any) -> None:
        with peft_as_it_is():
            super().__init__(**settings)
            _refer(self, ("ref_chosen_logps", "ref_rejected_logps"))

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        return dataset


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
