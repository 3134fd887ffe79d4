"""GRPO on fresh completions: the model in training writes, a judge tells what that was worth, and the better half is likelier.

Shao et al. 2024 (arXiv 2402.03300, "DeepSeekMath"), with the loss of Yu et al. 2025 (arXiv 2503.14476, "DAPO"): every token
counts alike, whatever the length of its completion. The machinery is TRL's. What is ours: who judges, which tasks are drawn,
and that nothing is computed which teaches nothing.
"""

import logging
import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from statistics import fmean
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import add_response_schema, supports_tool_calling

from journeyman.core.errors import InputError, MissingExtra
from journeyman.core.score import Score
from journeyman.core.task import Task
from journeyman.models.local import peft_as_it_is
from journeyman.optimizers.weights import metrics
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.rows import TextOrMessages
from journeyman.optimizers.weights.train import (
    CompletionJudge,
    TrainingSetup,
    distributed,
    drop_zero_advantages,
    generations_of,
    grpo_arguments,
)
from journeyman.optimizers.weights.train.masks import RowEncoder
from journeyman.optimizers.weights.train.sampling import attempt, merged


def _online_config(work: TrainingSetup, tasks: int) -> GRPOConfig:
    """Settings of GRPO on fresh completions of so many tasks."""
    config, generations = work.config, generations_of(work.config)
    accumulation = config.gradient_accumulation_steps or 1
    batch = (config.per_device_batch_size or generations) * accumulation
    # Updates made on completions that were written together: as few as hold whole groups.
    passes = generations // math.gcd(batch, generations)
    prompts = batch * passes * distributed.world_size() // generations
    steps = config.max_steps or max(1, math.ceil(config.num_epochs * tasks / prompts)) * passes
    return GRPOConfig(**grpo_arguments(work, steps), steps_per_generation=passes * accumulation, **_generation(config))


def _generation(config: TrainingConfig) -> dict[str, Any]:
    """Who writes: vLLM beside the training on a GPU, or transformers.

    Raises:
        InputError: vLLM is asked for where there is no GPU.
        MissingExtra: It is not installed.
    """
    gpu, installed = torch.cuda.is_available(), find_spec("vllm") is not None
    if config.generation == "vllm" and not gpu:
        raise InputError("vLLM writes completions on a GPU, and there is none here: leave generation at auto")
    if config.generation == "vllm" and not installed:
        raise MissingExtra("vllm is missing: pip install vllm, or leave generation at auto")
    if config.generation == "transformers" or not (gpu and installed):
        return {}
    room = (config.max_prompt_tokens or 0) + (config.max_completion_tokens or 0)
    return {"use_vllm": True, "vllm_mode": "colocate", "vllm_max_model_length": room if config.max_prompt_tokens else None}


# Which tasks to draw next: those whose completions are likely to differ in reward, since only those teach GRPO anything.

PRIOR = 0.5
"""So many completions that got everything, and as many that got nothing, is each task thought to have had (Jeffreys' prior)."""


class Curriculum:
    """Draws tasks by the variance of their rewards, measured while training; for rewards of 0 and 1 that is p (1 - p).

    A task that is never solved, or always, has no variance, and a group of its completions no gradient. What is known of a
    task fades with every draw, since the policy that it was measured under has moved on: the hard ones come back when others
    have been learned, and the learned ones to see whether they were forgotten.

    Draws follow from the seed and from what was seen, whenever the process was started.
    """

    def __init__(self, tasks: Sequence[str], *, seed: int, half_life: float = 16.0) -> None:
        """
        Args:
            tasks: Their ids.
            half_life: Draws after which a measured reward counts half.
        """
        self._tasks = tuple(dict.fromkeys(tasks))
        self._seed = seed
        self._half_life = half_life
        self._draws = 0
        self._seen: dict[str, list[float]] = {}
        """Of a task: the draw after which it was last measured, and then count, sum and sum of squares of its rewards."""

    def draw(self, count: int, without: Collection[str] = ()) -> list[str]:
        """Tasks, different ones as far as there are enough.

        A sample without replacement by weight: the smallest of exponential variables with the weights as rates (Efraimidis
        and Spirakis 2006, "Weighted random sampling with a reservoir").

        Args:
            without: Tasks to take only when there are no others.
        """
        self._draws += 1
        chance = random.Random(f"{self._seed} {self._draws}")
        keys = {task: (task in without, chance.expovariate(self.weight(task))) for task in self._tasks}
        order = sorted(self._tasks, key=keys.__getitem__)
        return (order * math.ceil(count / len(order)))[:count]

    def saw(self, task: str, rewards: Sequence[float | None]) -> None:
        """What completions of a task were worth, each from 0 to 1; unknown ones teach nothing."""
        known = [reward for reward in rewards if reward is not None]
        if not known:
            return
        _, *sums = self._faded(task)
        new = (len(known), math.fsum(known), math.fsum(reward * reward for reward in known))
        self._seen[task] = [self._draws, *(old + more for old, more in zip(sums, new, strict=True))]

    def weight(self, task: str) -> float:
        """Expected variance of its rewards, above 0."""
        _, count, total, squares = self._faded(task)
        mean, of_squares = (total + PRIOR) / (count + 2 * PRIOR), (squares + PRIOR) / (count + 2 * PRIOR)
        return of_squares - mean * mean

    @property
    def pass_rate(self) -> float | None:
        """Mean measured reward over the tasks that were seen; `None` before any was."""
        rates = [total / count for _, count, total, _ in self._seen.values()]
        return math.fsum(rates) / len(rates) if rates else None

    def _faded(self, task: str) -> list[float]:
        drawn, *sums = self._seen.get(task, (self._draws, 0.0, 0.0, 0.0))
        left = 0.5 ** ((self._draws - drawn) / self._half_life)
        return [drawn, *(left * each for each in sums)]

    def state_dict(self) -> dict[str, Any]:
        return {"draws": self._draws, "seen": {task: list(sums) for task, sums in self._seen.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._draws = int(state["draws"])
        self._seen = {task: [float(each) for each in sums] for task, sums in state["seen"].items() if task in self._tasks}


# Tool environments for TRL's GRPO: the model calls a tool, reads what it answers, and goes on, all within one completion.


def environment_factory(work: TrainingSetup) -> Callable[[], Any] | None:
    """Makes worlds as TRL wants them, which hands `reset` the columns of a row instead of a task."""
    if work.environment is None:
        return None
    make, tasks = work.environment, {task.id: task for task in work.tasks}

    def made() -> Any:
        world = make()
        kind = type(world)

        def reset(self: Any, **row: Any) -> str | None:
            observation: str | None = kind.reset(self, tasks[row["task"]])
            return observation

        # TRL finds the tools among the methods of the class: a wrapper would hide them.
        world.__class__ = type(kind.__name__, (kind,), {"reset": reset})
        return world

    return made


def tool_tokenizer(work: TrainingSetup) -> Any:
    """The tokenizer; where there is a world, one that can tell tool calls in what the model writes.

    Raises:
        InputError: The model's chat template has no tools, or is none whose tool calls are known.
    """
    if work.environment is None:
        return work.tokenizer
    if not supports_tool_calling(work.tokenizer):
        raise InputError(
            f"the chat template of {work.config.base_model} has no tools: a world with tools needs a model that has"
        )
    if getattr(work.tokenizer, "response_template", None) or getattr(work.tokenizer, "response_schema", None):
        return work.tokenizer
    try:
        return add_response_schema(work.tokenizer)
    except ValueError as error:
        raise InputError(
            f"how {work.config.base_model} writes tool calls is not known: set `response_template` in its tokenizer's "
            "settings, or name a model with the template of Qwen 2.5 or 3, Llama 3, GLM or gpt-oss"
        ) from error


log = logging.getLogger(__name__)

SPREAD = 1e-6
"""Rewards nearer to each other than that are alike."""
_COMPLETIONS, _EXTRA = 3, 5
"""Where they stand in what TRL's `_generate` returns: a tuple of a list for each kind, an entry for each completion."""


def grpo(work: TrainingSetup) -> "OnlineGRPOTrainer":
    """A trainer on `work.tasks`.

    With the curriculum, tasks are drawn by `Curriculum`, and a prompt whose completions all score alike is replaced, once, by
    another. Without it, they come in TRL's own order, each once in an epoch.

    Raises:
        InputError: There is nothing to train on, nobody to judge, or the model cannot do what is asked.
    """
    if work.judge is None:
        raise InputError("GRPO needs a judge of fresh completions: name a data set, or take recorded ones with grpo-offline")
    rows = _rows(work)
    settings = _online_config(work, len(rows))
    beta = settings.beta
    if not work.config.start_adapter:
        # TRL would keep a second adapter as the reference. That of a fresh one is the model without any.
        settings.beta = 0.0
    # So often must the tasks stand in the data set for at least one batch.
    repeats = math.ceil(int(settings.generation_batch_size) / int(settings.num_generations) / len(rows))
    trainer = OnlineGRPOTrainer(
        judge=_RowJudge({task.id: task for task in work.tasks}, work.judge, work.config.base_model),
        drawn=Curriculum([row["task"] for row in rows], seed=work.config.seed) if work.config.curriculum else None,
        model=work.model,
        processing_class=tool_tokenizer(work),
        reward_funcs=judge,
        args=settings,
        train_dataset=Dataset.from_list(rows * repeats),
        environment_factory=environment_factory(work),
        callbacks=list(work.callbacks),
    )
    trainer.beta = trainer.args.beta = beta
    return trainer


def judge(completions: Sequence[Any], reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """What TRL asks for the rewards: they are known since the completions were written."""
    return list(reward)


def _rows(work: TrainingSetup) -> list[dict[str, Any]]:
    encode = RowEncoder(work.tokenizer).prompt
    rows = [{"prompt": _listed(work.put(task)), "task": task.id} for task in work.tasks]
    limit = work.config.max_prompt_tokens
    fitting = [row for row in rows if limit is None or len(encode(row["prompt"])) <= limit]
    if not rows:
        raise InputError("there are no tasks to train on")
    if not fitting:
        raise InputError(f"no task has a prompt of at most {limit} tokens: raise max_prompt_tokens")
    if len(fitting) < len(rows):
        log.warning(
            "%d of %d tasks are left out: their prompts have more than %d tokens", len(rows) - len(fitting), len(rows), limit
        )
    return fitting


def _listed(prompt: TextOrMessages) -> Any:
    return prompt if isinstance(prompt, str) else [dict(message) for message in prompt]


@dataclass(frozen=True, slots=True, eq=False)
class _RowJudge:
    """The judge, as TRL's trainer can ask it: about completions of rows of its data set."""

    tasks: Mapping[str, Task]
    who: CompletionJudge
    model: str
    numbers: Iterator[int] = field(default_factory=count)

    def scores(self, rows: Sequence[Mapping[str, Any]], completions: Sequence[TextOrMessages]) -> list[Score]:
        """What each is worth, in their order."""
        attempts = [
            (task, attempt(task, row["prompt"], completion, id=f"training/{task.id}/{next(self.numbers)}", model=self.model))
            for task, row, completion in zip((self.tasks[row["task"]] for row in rows), rows, completions, strict=True)
        ]
        return list(self.who.judge(attempts))


class OnlineGRPOTrainer(GRPOTrainer):  # type: ignore[misc]  # TRL is untyped here
    """TRL's trainer, with a judge, a curriculum, and less to compute."""

    def __init__(self, *, judge: _RowJudge, drawn: Curriculum | None, **settings: Any) -> None:
        with peft_as_it_is():
            super().__init__(**settings)
        self.curriculum = drawn
        """Kept with each checkpoint."""
        self._judge = judge
        self._prompts = {row["task"]: row["prompt"] for row in self.train_dataset} if drawn else {}
        self._rows: list[dict[str, Any]] = []
        """Those of the completions that are being written."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self._rows = self._next_rows(inputs)
        with peft_as_it_is():
            return super()._generate_and_score_completions(self._rows)

    def _next_rows(self, inputs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The rows to write completions for: those of the data loader, or what the curriculum draws in their place."""
        if self.curriculum is None or not self.model.training:
            return [dict(row) for row in inputs]
        # All processes draw the same, and each takes its part.
        drawn = self._rows_of(self.curriculum.draw(len(inputs) * self.accelerator.num_processes // self.num_generations))
        start = self.accelerator.process_index * len(inputs)
        return drawn[start : start + len(inputs)]

    def _rows_of(self, tasks: Sequence[str]) -> list[dict[str, Any]]:
        return [{"prompt": self._prompts[task], "task": task} for task in tasks for _ in range(self.num_generations)]

    def _generate(self, prompts: Any) -> Any:
        generated = super()._generate(prompts)
        rewards = self._row_rewards(self._rows, generated)
        if self.curriculum is not None and self.model.training:
            self._update_curriculum(self.curriculum, self._rows, rewards)
            self._resample_dull_prompts(self.curriculum, generated, rewards)
            self._note_metric("curriculum/pass_rate", self.curriculum.pass_rate)
        generated[_EXTRA]["reward"] = rewards
        return generated

    def _row_rewards(self, rows: Sequence[Mapping[str, Any]], generated: Any) -> list[float | None]:
        scores = self._judge.scores(rows, generated[_COMPLETIONS])
        rewards = [score.total for score in scores]
        known = [reward for reward in rewards if reward is not None]
        self._note_metric("solved", fmean(reward >= 1.0 for reward in known) if known else None)
        self._note_metric("unknown", 1 - len(known) / len(rewards))
        self._note_metric(metrics.GUESSES_AGREE, metrics.agreement_of_guesses(scores))
        return rewards

    def _update_curriculum(self, drawn: Curriculum, rows: Sequence[Mapping[str, Any]], rewards: Sequence[float | None]) -> None:
        seen = list(zip((row["task"] for row in rows), rewards, strict=True))
        if self.accelerator.num_processes > 1:
            seen = gather_object(seen)
        by_task: dict[str, list[float | None]] = {}
        for task, reward in seen:
            by_task.setdefault(task, []).append(reward)
        for task, worth in by_task.items():
            drawn.saw(task, worth)

    def _resample_dull_prompts(self, drawn: Curriculum, generated: Any, rewards: list[float | None]) -> None:
        """Put other prompts in the place of those whose completions are all alike.

        As "dynamic sampling" of DAPO, with one more try. Where several processes train, groups may be spread over them, and
        a world begins anew with each batch: there the prompts are only drawn less often.
        """
        size = self.num_generations
        dull = [at for at in range(0, len(rewards), size) if not differs(rewards[at : at + size])]
        self._note_metric("curriculum/dull", len(dull) * size / len(rewards))
        if not dull or self.accelerator.num_processes > 1 or self.environment_factories is not None:
            return
        rows = self._rows_of(drawn.draw(len(dull), without={row["task"] for row in self._rows}))
        regenerated = super()._generate([row["prompt"] for row in rows])
        new_rewards = self._row_rewards(rows, regenerated)
        self._update_curriculum(drawn, rows, new_rewards)
        for number, at in enumerate(dull):
            new, old = slice(number * size, (number + 1) * size), slice(at, at + size)
            if not differs(new_rewards[new]):
                continue
            self._rows[old], rewards[old] = rows[new], new_rewards[new]
            for column, others in zip(generated, regenerated, strict=True):
                if isinstance(column, list) and column:
                    column[old] = others[new]

    def _generate_single_turn(self, *positional: Any, **named: Any) -> Any:
        with self._merged():
            return super()._generate_single_turn(*positional, **named)

    @contextmanager
    def _merged(self) -> Iterator[None]:
        if self.use_vllm or self.is_fsdp_enabled or self.is_deepspeed_enabled:
            yield
        else:
            with merged(self.accelerator.unwrap_model(self.model_wrapped)):
                yield

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        if self.beta == 0.0 and self.model.training:
            inputs = drop_zero_advantages(inputs, alone=self.accelerator.num_processes == 1)
        return super()._compute_loss(model, inputs)

    def _note_metric(self, name: str, value: float | None) -> None:
        if value is not None:
            self._metrics["train" if self.model.training else "eval"][name].append(value)


def differs(rewards: Sequence[float | None]) -> bool:
    """Whether the known ones are not all alike."""
    known = [reward for reward in rewards if reward is not None]
    return bool(known) and max(known) - min(known) > SPREAD
