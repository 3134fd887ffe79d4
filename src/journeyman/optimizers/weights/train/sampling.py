"""Completions that the model writes itself, with how likely it thought each token, and with what a judge thinks of them."""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from peft.tuners.lora import LoraLayer
from torch.distributed.fsdp import FullyShardedDataParallel
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList
from trl.models.utils import unwrap_model_for_generation

from journeyman.core.errors import InputError
from journeyman.core.messages import ToolUse, Turn, arguments_text
from journeyman.core.score import Score
from journeyman.core.task import Task
from journeyman.core.trace import Trace
from journeyman.optimizers.weights.rows import CompletionGroup, LabelledCompletion, TextOrMessages, normalised
from journeyman.optimizers.weights.train import TrainingSetup
from journeyman.optimizers.weights.train.masks import RowEncoder
from journeyman.tracing import builder

# Batched decoding: many prompts at once, and the completion of each.


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


# Writing with the adapter merged into the weights, which is quicker: one product for each layer instead of three.

SMALL = 256 * 2**20
"""Bytes of adapted weights that are copied for it without a second thought. On a GPU it may be a tenth of what is free."""


@contextmanager
def merged(model: Any) -> Iterator[None]:
    """Within it a `PeftModel` computes with merged weights, where a copy of them is cheap.

    Afterwards the base weights are the very same as before, to the last bit: they are put back, and not computed back.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, LoraLayer) and not layer.merged]
    if not _cheap(layers):
        yield
        return
    weights = [layer.get_base_layer().weight.data for layer in layers]
    try:
        with torch.no_grad():
            for layer, weight in zip(layers, weights, strict=True):
                layer.get_base_layer().weight.data = weight.clone()
                layer.merge()
        yield
    finally:
        for layer, weight in zip(layers, weights, strict=True):
            layer.merged_adapters.clear()
            layer.get_base_layer().weight.data = weight


def _cheap(layers: list[Any]) -> bool:
    if not layers or not all(_plain(layer) for layer in layers):
        return False
    weights = [layer.get_base_layer().weight for layer in layers]
    size = sum(weight.numel() * weight.element_size() for weight in weights)
    if weights[0].is_cuda:
        return bool(size <= 0.1 * torch.cuda.mem_get_info(weights[0].device)[0])
    return bool(size <= SMALL)


def _plain(layer: Any) -> bool:
    """Not quantised, without a bias of its own to merge, and so exact that merging does not change what is written."""
    base = layer.get_base_layer()
    return type(base) is torch.nn.Linear and base.weight.dtype == torch.float32 and not any(layer.lora_bias.values())


BATCH = 64
"""Completions written together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a model wrote after a prompt."""

    text: str
    ids: tuple[int, ...]
    """Its tokens, the one that ends it among them."""
    logprobs: tuple[float, ...]
    """The log-probability of each under the policy that drew it: softmax(logits / temperature), natural logarithm."""
    finished: bool
    """Whether the model ended it, and not the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How completions are drawn."""

    generations: int
    """Of each prompt."""
    temperature: float
    max_tokens: int
    """Of a completion, with the one that ends it."""
    max_prompt: int | None = None
    """Of a longer prompt so many tokens are read, its end: what is trained on."""
    seed: int


def sample(model: Any, tokenizer: Any, prompts: Sequence[TextOrMessages], how: Sampling) -> list[tuple[Completion, ...]]:
    """Completions of each prompt, in the order of the prompts.

    The same arguments give the same completions; whatever else draws random numbers is left as it was.
    """
    encode = RowEncoder(tokenizer, how.max_prompt).prompt
    encoded = [encode(prompt) for prompt in prompts]
    # By length, for little padding; those of one prompt stand together.
    order = sorted(range(len(encoded)), key=lambda each: len(encoded[each]))
    rows = [each for each in order for _ in range(how.generations)]
    chance = torch.Generator(model.device).manual_seed(how.seed)
    completions: list[list[Completion]] = [[] for _ in prompts]
    ends = end_tokens(model, tokenizer)
    with _inference(model):
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            drawn = _GumbelSampler(how.temperature, chance)
            written = generate(model, tokenizer, [encoded[each] for each in batch], how.max_tokens, drawn)
            for row, each in enumerate(batch):
                completions[each].append(_completion(tokenizer, ends, written[row], drawn.logprobs(row)))
    return [tuple(each) for each in completions]


def groups(work: TrainingSetup, tasks: Sequence[Task]) -> list[CompletionGroup]:
    """Let the model in training attempt each task several times, and have the attempts judged.

    What cannot be judged is left out, and so is a task of whose attempts none could be; `source` names the task.

    Raises:
        InputError: There is nobody to judge.
    """
    if work.judge is None:
        raise InputError("completions that the model writes must be judged: name the data set whose verifier can do that")
    config = work.config
    prompts = [work.put(task) for task in tasks]
    how = Sampling(
        generations=config.num_generations or 8,
        temperature=config.temperature,
        max_tokens=config.max_completion_tokens or 512,
        max_prompt=config.max_prompt_tokens,
        seed=config.seed,
    )
    sampled = sample(work.model, work.tokenizer, prompts, how)
    attempts = [
        (task, attempt(task, prompt, completion.text, id=f"sampled/{config.seed}/{task.id}/{number}", model=config.base_model))
        for task, prompt, completions in zip(tasks, prompts, sampled, strict=True)
        for number, completion in enumerate(completions)
    ]
    totals = iter([score.total for score in work.judge.judge(attempts)])
    encoder = RowEncoder(work.tokenizer)
    judged = [
        _group(task, prompt, [(completion, next(totals)) for completion in completions], encoder)
        for task, prompt, completions in zip(tasks, prompts, sampled, strict=True)
    ]
    return [group for group in judged if group.completions]


def labelled(groups: Sequence[CompletionGroup]) -> list[LabelledCompletion]:
    """Each completion for itself: good when it got everything right, bad otherwise.

    Where a group does not tell its scores, the good ones are those above its mean, and one in which all are alike says nothing.
    """
    return [
        LabelledCompletion(prompt=group.prompt, completion=completion, label=label, tools=group.tools, source=group.source)
        for group in groups
        for completion, label in zip(group.completions, _labels(group), strict=True)
        if label is not None
    ]


def attempt(task: Task, prompt: TextOrMessages, completion: TextOrMessages, *, id: str, model: str) -> Trace:
    """What a model in training did, as a judge reads it: a call of the model for each turn, and a call of each tool."""
    turns = [*_turns(prompt, "user", sent=True), *_turns(completion, "assistant")]
    return Trace(
        id=id,
        task_id=task.id,
        candidate_id="training",
        started_at=datetime.now(UTC),
        steps=builder.steps(turns, model=model),
        domain=task.domain,
        source="run",
    )


def _turns(value: TextOrMessages, role: str, *, sent: bool = False) -> Iterator[Turn]:
    """Text or messages in the form of chat completions; `sent` are those that the model did not write."""
    messages: Sequence[Mapping[str, Any]] = [{"role": role, "content": value}] if isinstance(value, str) else value
    for each in messages:
        calls = [(call["function"], str(call.get("id") or "")) for call in each.get("tool_calls") or ()]
        text = str(each.get("content") or "")
        yield Turn(
            str(each["role"]),
            text,
            calls=tuple(ToolUse(str(made["name"]), arguments_text(made.get("arguments")), id) for made, id in calls),
            # As TRL writes what a tool raised.
            failed=each["role"] == "tool" and text.startswith("{'error'"),
            canned=sent,
        )


def _labels(group: CompletionGroup) -> list[bool | None]:
    if group.scores:
        return [score >= 1.0 for score in group.scores]
    return [None if not any(group.rewards) else reward > 0 for reward in group.rewards]


def _group(
    task: Task, prompt: TextOrMessages, judged: Sequence[tuple[Completion, float | None]], encoder: RowEncoder
) -> CompletionGroup:
    known = [(completion, total) for completion, total in judged if total is not None]
    scores = tuple(total for _, total in known)
    plain = isinstance(prompt, str)
    completions = tuple(each.text if plain else ({"role": "assistant", "content": each.text},) for each, _ in known)
    return CompletionGroup(
        prompt=prompt,
        completions=completions,
        rewards=normalised(scores) if scores else (),
        scores=scores,
        logprobs=tuple(
            each.logprobs if _has_same_tokens(each, encoder, prompt, text) else None
            for (each, _), text in zip(known, completions, strict=True)
        ),
        source={"task": task.id, "domain": task.domain},
    )


def _has_same_tokens(completion: Completion, encoder: RowEncoder, prompt: TextOrMessages, text: TextOrMessages) -> bool:
    """Whether its text is made into the very tokens that were drawn, to which their log-probabilities belong.

    Of one that the limit cut, the token that would end it is missing.
    """
    tokens = encoder.encode(prompt, text)
    return tokens is not None and tokens.completion[: len(completion.ids)] == completion.ids


@contextmanager
def _inference(model: Any) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), merged(model):
            yield
    finally:
        model.train(training)


def _completion(tokenizer: Any, ends: Collection[int], written: Sequence[int], logprobs: Sequence[float]) -> Completion:
    end = next((index for index, id in enumerate(written) if id in ends), None)
    finished = end is not None
    ids = tuple(written if end is None else written[: end + 1])
    return Completion(
        text=tokenizer.decode(ids, skip_special_tokens=True),
        ids=ids,
        logprobs=tuple(logprobs[: len(ids)]),
        finished=finished,
    )


class _GumbelSampler(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Turns greedy decoding into sampling, and remembers how likely each drawn token was.

    The argmax of log-probabilities plus Gumbel noise is a sample of them (Maddison et al. 2014, "A* Sampling"); minus the
    logarithm of an exponential variable is such noise.
    """

    def __init__(self, temperature: float, chance: torch.Generator) -> None:
        self._temperature = temperature
        self._chance = chance
        self._kept: list[torch.Tensor] = []
        self._rows: list[list[float]] | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        likely = torch.log_softmax(scores.float() / self._temperature, dim=-1)
        noisy = likely - torch.empty_like(likely).exponential_(generator=self._chance).log()
        self._kept.append(likely.gather(1, noisy.argmax(dim=-1, keepdim=True)))
        return noisy

    def logprobs(self, row: int) -> list[float]:
        if self._rows is None:
            self._rows = torch.cat(self._kept, dim=1).tolist()
        return self._rows[row]


# Validation: the model in training answers them greedily, and its answers are judged.

VALIDATION_BATCH = 32
"""Prompts decoded together, at most."""


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """What the model in training is worth on the validation tasks."""

    reward: float | None
    """Mean of the known scores; `None` when none could be told."""
    solved: float | None
    """Share of those tasks whose score is 1."""


def validate(trainer: Any, work: TrainingSetup, tasks: Sequence[Task]) -> ValidationResult:
    """Answer the tasks and judge the answers. Training goes on afterwards as though there had been no look.

    With several processes each of them answers, since a sharded model answers only with all its parts; the first one judges,
    and the others are told.
    """
    with _same_chance():
        answers = _answer(trainer, work, tasks)
        results: list[Any] = [None]
        if trainer.is_world_process_zero() and work.judge is not None:
            attempts = [
                (task, attempt(task, work.put(task), answer, id=f"validation/{task.id}", model=work.config.base_model))
                for task, answer in zip(tasks, answers, strict=True)
            ]
            results = [_mean_reward(work.judge.judge(attempts))]
    if trainer.args.world_size > 1:
        torch.distributed.broadcast_object_list(results, src=0)
    return results[0] or ValidationResult(None, None)


def _mean_reward(scores: Sequence[Score]) -> ValidationResult:
    known = [total for total in (score.total for score in scores) if total is not None]
    if not known:
        return ValidationResult(None, None)
    return ValidationResult(sum(known) / len(known), sum(total >= 1.0 for total in known) / len(known))


def _answer(trainer: Any, work: TrainingSetup, tasks: Sequence[Task]) -> list[str]:
    encode = RowEncoder(work.tokenizer).prompt
    prompts = [encode(work.put(task)) for task in tasks]
    # By length, for little padding.
    order = sorted(range(len(prompts)), key=lambda each: len(prompts[each]))
    answers = [""] * len(prompts)
    limit = work.config.max_completion_tokens or 512
    with _decoding(trainer) as model:
        for start in range(0, len(order), VALIDATION_BATCH):
            batch = order[start : start + VALIDATION_BATCH]
            output = generate(model, work.tokenizer, [prompts[n] for n in batch], limit)
            for each, answer in zip(batch, work.tokenizer.batch_decode(output, skip_special_tokens=True), strict=True):
                answers[each] = answer
    return answers


@contextmanager
def _decoding(trainer: Any) -> Iterator[Any]:
    """The model as it answers: whole, without dropout, without gradients."""
    wrapped = trainer.model_wrapped
    training = wrapped.training
    with torch.no_grad(), _whole(trainer) as model:
        model.eval()
        try:
            yield model
        finally:
            wrapped.train(training)


@contextmanager
def _whole(trainer: Any) -> Iterator[Any]:
    """The model without what spreads it over several processes."""
    wrapped, accelerator = trainer.model_wrapped, trainer.accelerator
    if trainer.is_deepspeed_enabled:
        with unwrap_model_for_generation(wrapped, accelerator) as model:
            yield model
    elif trainer.is_fsdp_enabled:
        with FullyShardedDataParallel.summon_full_params(wrapped, recurse=False):
            yield accelerator.unwrap_model(wrapped)
    else:
        model = accelerator.unwrap_model(wrapped)
        with merged(model):
            yield model


@contextmanager
def _same_chance() -> Iterator[None]:
    """Random states are afterwards what they were."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
