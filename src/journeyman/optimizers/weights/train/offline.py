"""GRPO on completions that were made and scored earlier, by whatever policy.

For a token t of a completion with advantage A (its score, normalised within the completions of its prompt), with the policy in
training π and the policy μ that wrote it:

    w = 1 where A > 0, else stop_gradient(min(1, Π_t π(t) / μ(t)))        loss = - Σ w A log π(t) / number of tokens

which is TOPR (Le Roux et al. 2025, arXiv 2503.14286, "Tapered Off-Policy REINFORCE") with the advantages of Shao et al. 2024
(arXiv 2402.03300, "GRPO", equation 3). What is good counts however unlikely it was, so that it is learned also where μ is not
known; what is bad counts less, as a whole, the less likely it has become.

To treat old completions as fresh, as though w were always 1, drives the policy away from all that was bad without end. A ratio
for each token (CISPO, arXiv 2506.13585) does not stop that: the tokens that good and bad completions share stay likely, and are
unlearned with the bad ones until the policy writes noise. PPO's clip is no alternative either: it stops a token for good once
its ratio has left 1 ± ε, and μ never follows. LOG.md has what each came to.
"""

import logging
import math
import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch
from datasets import Dataset
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Sampler
from trl import GRPOConfig, GRPOTrainer

from journeyman.core.errors import InputError
from journeyman.models.local import peft_as_it_is
from journeyman.optimizers.weights.rows import CompletionGroup, Row, normalised
from journeyman.optimizers.weights.train import TrainingSetup, distributed, drop_zero_advantages, grpo_arguments
from journeyman.optimizers.weights.train.masks import RowEncoder, Tokens

log = logging.getLogger(__name__)

LOW_ESS = 0.15
"""Effective sample size, as a share of the tokens of an update, under which a warning is due. A run that learned nearly all
there was to learn went down to 0.24."""
WINDOW = 8
"""Batches whose median it must be: one token that is off tells little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCompletion:
    """One completion, ready to be learned from."""

    tokens: Tokens
    advantage: float
    logprobs: tuple[float, ...] | None
    """Under the policy that wrote it, a number for each token of the completion; 0 for those that are not the agent's."""
    start: tuple[float, ...] | None = None
    """The same under the policy that training starts from, where it is asked for."""


def grpo_offline(work: TrainingSetup) -> "OfflineGRPOTrainer":
    """A trainer on the groups among `work.rows`.

    Where log-probabilities were not recorded, those of the model that training starts from are taken for them, once, and a
    warning says so: the ratios are then right only if that model, or one like it, wrote the completions. Recorded ones must
    be of the temperature of the config. The logs hold `ess`, the effective sample size of the ratios. `clip` is not asked.

    Raises:
        InputError: There is no group whose completions differ in what they were worth.
    """
    encoder = RowEncoder(work.tokenizer, work.config.max_prompt_tokens, work.config.max_completion_tokens)
    encoded = (list(_recorded(encoder, row)) for row in work.rows if isinstance(row, CompletionGroup))
    groups = [group for group in encoded if group]
    if not groups:
        raise InputError(_nothing(work.rows))
    _warn_of_long_completions(work.rows, groups)
    config = work.config
    each, passes = config.per_device_batch_size or 2, config.gradient_accumulation_steps or 1
    if each * passes < 2:
        raise InputError("an update of one completion compares nothing: raise per_device_batch_size to at least 2")
    batch = each * passes * distributed.world_size()
    steps = config.max_steps or max(1, math.ceil(config.num_epochs * sum(map(len, groups)) / batch))
    settings = {
        **grpo_arguments(work, steps),
        "num_generations": each * passes,
        "beta": 0.0,
        "loss_type": "cispo",
        # TRL's own weight is 1 then, and 1 is the most that it lets a token weigh.
        "epsilon_high": 1.0,
    }
    trainer = OfflineGRPOTrainer(
        groups=groups,
        importance=config.importance,
        model=work.model,
        processing_class=work.tokenizer,
        reward_funcs=_unasked,
        args=GRPOConfig(**settings),
        train_dataset=Dataset.from_dict({"row": list(range(sum(map(len, groups))))}),
        callbacks=list(work.callbacks),
    )
    trainer.recall(beta=config.beta or 0.0)
    return trainer


def ess(log_weights: torch.Tensor, mask: torch.Tensor) -> float:
    """Effective sample size of importance weights, as a share of their number: (Σ w)² / (n Σ w²), from 1/n to 1.

    Kish 1965, "Survey Sampling".

    Args:
        log_weights: Natural logarithms.
        mask: 1 where there is a weight, of the same shape.
    """
    known = log_weights[mask.bool()].double()
    if not len(known):
        return 1.0
    # The largest weight is made 1, which the share does not depend on, and nothing overflows.
    weights = (known - known.max()).exp()
    return float(weights.sum() ** 2 / (len(weights) * (weights**2).sum()))


class OfflineGRPOTrainer(GRPOTrainer):  # type: ignore[misc]  # TRL is untyped here
    """TRL's trainer, with what was recorded in the place of what it would generate and score."""

    def __init__(self, *, groups: Sequence[Sequence[RecordedCompletion]], importance: bool, **settings: Any) -> None:
        self._rows = [row for group in groups for row in group]
        self._sizes = [len(group) for group in groups]
        self._importance = importance
        self._inputs: dict[str, Any] = {}
        """The batch whose loss is being computed; empty where none is."""
        self._logps: torch.Tensor | None = None
        """Of the last batch."""
        self._shares: deque[float] = deque(maxlen=WINDOW)
        self._warned = False
        with peft_as_it_is():
            super().__init__(**settings)

    def recall(self, *, beta: float) -> None:
        """Ask the model, before it learns, what was not recorded."""
        missing = [index for index, row in enumerate(self._rows) if row.logprobs is None]
        if missing:
            log.warning(
                "%d of %d completions have no recorded log-probabilities: those of the starting model are taken for them",
                len(missing),
                len(self._rows),
            )
        self.beta = self.args.beta = beta
        size = self.args.per_device_train_batch_size
        rows = list(range(len(self._rows))) if beta else missing
        for start in range(0, len(rows), size):
            batch = rows[start : start + size]
            for index, logprobs in zip(batch, self._starting_logprobs([self._rows[index] for index in batch]), strict=True):
                row = self._rows[index]
                self._rows[index] = replace(row, start=logprobs, logprobs=logprobs if row.logprobs is None else row.logprobs)

    def _starting_logprobs(self, rows: Sequence[RecordedCompletion]) -> list[tuple[float, ...]]:
        batch = self._batch(rows)
        ids, mask = (torch.cat([batch[f"prompt_{name}"], batch[f"completion_{name}"]], dim=1) for name in ("ids", "mask"))
        self.model.eval()
        with torch.no_grad():
            logps, _, _ = self._get_per_token_logps_and_entropies(self.model, ids, mask, batch["completion_ids"].size(1))
        self.model.train()
        return [
            tuple(value if own else 0.0 for value, own in zip(values, row.tokens.own, strict=False))
            for values, row in zip(logps.tolist(), rows, strict=True)
        ]

    def _batch(self, rows: Sequence[RecordedCompletion]) -> dict[str, torch.Tensor]:
        pad, device = self.processing_class.pad_token_id, self.accelerator.device
        prompts = [torch.tensor(row.tokens.prompt) for row in rows]
        completions = [torch.tensor(row.tokens.completion) for row in rows]
        tensors = {
            "prompt_ids": pad_sequence(prompts, batch_first=True, padding_value=pad, padding_side="left"),
            "prompt_mask": _padded([[1] * len(each) for each in prompts], side="left"),
            "completion_ids": pad_sequence(completions, batch_first=True, padding_value=pad),
            "completion_mask": _padded([[1] * len(each) for each in completions]),
            "tool_mask": _padded([[int(own) for own in row.tokens.own] for row in rows]),
        }
        return {name: value.to(device) for name, value in tensors.items()}

    def _get_train_sampler(self, dataset: Any = None) -> Sampler[int]:
        return _InGroups(self._sizes, int(self.args.generation_batch_size), self.args)

    def _generate_and_score_completions(self, inputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        rows = [self._rows[each["row"]] for each in inputs]
        batch = self._batch(rows)
        device = self.accelerator.device
        batch["advantages"] = torch.tensor([row.advantage for row in rows], device=device)
        batch["recorded_logps"] = _padded([row.logprobs for row in rows]).to(device)
        if self.beta:
            batch["ref_per_token_logps"] = _padded([row.start for row in rows]).to(device)
        own = batch["tool_mask"].sum()
        batch["num_items_in_batch"] = self.accelerator.gather(own).sum()
        self.state.num_input_tokens_seen += int(self.accelerator.gather(batch["prompt_mask"].sum() + own).sum())
        self._metrics["train"]["num_tokens"] = [self.state.num_input_tokens_seen]
        return batch

    def _compute_loss(self, model: Any, inputs: Mapping[str, Any]) -> Any:
        inputs = self._inputs = drop_zero_advantages(inputs, alone=self.accelerator.num_processes == 1)
        recorded = inputs["recorded_logps"]
        loss = super()._compute_loss(model, inputs)
        self._inputs = {}
        if self._logps is not None:
            self._log_sample_size(self._logps - recorded, inputs["completion_mask"] * inputs["tool_mask"])
        return loss

    def _get_per_token_logps_and_entropies(self, *positional: Any, **named: Any) -> Any:
        computed = super()._get_per_token_logps_and_entropies(*positional, **named)
        self._logps = computed[0].detach()
        if self._importance and self._inputs:
            self._weigh(self._inputs, self._logps)
        return computed

    def _weigh(self, inputs: dict[str, Any], logps: torch.Tensor) -> None:
        """Let bad completions count by how likely they are now, as a whole, against how likely they were."""
        own = inputs["completion_mask"] * inputs["tool_mask"]
        still = ((logps - inputs["recorded_logps"]) * own).sum(dim=1).clamp(max=0.0).exp()
        advantages = inputs["advantages"]
        inputs["advantages"] = torch.where(advantages > 0, advantages, still * advantages)

    def _log_sample_size(self, log_ratios: torch.Tensor, mask: torch.Tensor) -> None:
        share = ess(log_ratios, mask)
        self._metrics["train"]["ess"].append(share)
        self._metrics["train"]["ess/completions"].append(ess((log_ratios * mask).sum(dim=1), mask.any(dim=1)))
        self._shares.append(share)
        usual = median(self._shares)
        if len(self._shares) == WINDOW and usual < LOW_ESS and not self._warned:
            self._warned = True
            log.warning(
                "the effective sample size fell to %.0f %% of the tokens at update %d: what was recorded no longer speaks for "
                "the policy in training; train for less long, or record anew",
                100 * usual,
                self.state.global_step + 1,
            )


class _InGroups(Sampler[int]):  # type: ignore[misc]  # torch is untyped here
    """Rows in the order of training, those of a prompt together: a permutation of the prompts for each round through all.

    As TRL expects, each batch comes as often as it is cut into parts. All of the training is one epoch, so that where a batch
    stands in it says which it is.
    """

    def __init__(self, sizes: Sequence[int], batch: int, args: Any) -> None:
        self._sizes = sizes
        self._batch = batch
        self._passes = int(args.steps_per_generation)
        self._batches = math.ceil(args.max_steps * args.gradient_accumulation_steps / self._passes)
        self._seed = args.seed

    def __len__(self) -> int:
        return int(self._batches * self._batch * self._passes)

    def __iter__(self) -> Iterator[int]:
        rows = self._rows()
        for _ in range(self._batches):
            batch = [next(rows) for _ in range(self._batch)]
            for _ in range(self._passes):
                yield from batch

    def _rows(self) -> Iterator[int]:
        starts = [sum(self._sizes[:group]) for group in range(len(self._sizes))]
        chance = random.Random(self._seed)
        while True:
            for group in chance.sample(range(len(starts)), len(starts)):
                yield from range(starts[group], starts[group] + self._sizes[group])


def _recorded(encoder: RowEncoder, group: CompletionGroup) -> Iterator[RecordedCompletion]:
    """The completions of a group that teach something and fit."""
    logprobs = group.logprobs or (None,) * len(group.completions)
    for completion, advantage, recorded in zip(group.completions, _advantages(group), logprobs, strict=True):
        tokens = encoder.encode(group.prompt, completion, group.tools) if advantage else None
        if tokens is not None:
            yield _aligned(tokens, advantage, recorded)


def _advantages(group: CompletionGroup) -> tuple[float, ...]:
    # Beside scores stand rewards that are normalised, maybe among more attempts at the task than had this prompt.
    return group.rewards if group.scores else normalised(group.rewards)


def _warn_of_long_completions(rows: Sequence[Row], groups: Sequence[Sequence[RecordedCompletion]]) -> None:
    telling = sum(advantage != 0 for row in rows if isinstance(row, CompletionGroup) for advantage in _advantages(row))
    if left_out := telling - sum(map(len, groups)):
        log.warning("%d of %d completions are longer than the settings allow, and are left out", left_out, telling)


def _aligned(tokens: Tokens, advantage: float, logprobs: Sequence[float] | None) -> RecordedCompletion:
    """Recorded numbers beside the tokens that they belong to, or none where they are not as many as the agent's tokens.

    When only the last one is missing, its token was never written (the limit came first) or not told, and is not learned.
    """
    own = sum(tokens.own)
    if logprobs is not None and len(logprobs) == own - 1 and own > 1:
        last = len(tokens.own) - 1 - tokens.own[::-1].index(True)
        tokens = replace(tokens, own=(*tokens.own[:last], False, *tokens.own[last + 1 :]))
    if logprobs is None or len(logprobs) != sum(tokens.own):
        return RecordedCompletion(tokens=tokens, advantage=advantage, logprobs=None)
    remaining = iter(logprobs)
    return RecordedCompletion(
        tokens=tokens, advantage=advantage, logprobs=tuple(next(remaining) if own else 0.0 for own in tokens.own)
    )


def _padded(rows: Sequence[Any], side: str = "right") -> torch.Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_side=side)


def _unasked(completions: Sequence[Any], **_: Any) -> list[float]:
    raise AssertionError("recorded completions are not scored again")


def _nothing(rows: Sequence[Row]) -> str:
    if not any(isinstance(row, CompletionGroup) for row in rows):
        return "offline GRPO learns from groups of completions with rewards, and there are none: build a data set of them first"
    return "the completions of each prompt were all worth the same, or are too long: there is nothing to compare"
