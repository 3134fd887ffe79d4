"""GRPO on fresh completions: the model in training writes, a judge tells what that was worth, and the better half is likelier.

Shao et al. 2024 (arXiv 2402.03300, "DeepSeekMath"), with the loss of Yu et al. 2025 (arXiv 2503.14476, "DAPO"): every token
counts alike, whatever the length of its completion. The machinery is TRL's. What is ours: who judges, which tasks are drawn,
and that nothing is computed which teaches nothing.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from statistics import fmean
from typing import Any

from accelerate.utils import gather_object
from datasets import Dataset
from trl import GRPOTrainer

from journeyman.errors import InputError
from journeyman.learn.weights.rows import TextOrMessages
from journeyman.learn.weights.train import arguments, worlds
from journeyman.learn.weights.train.base import CompletionJudge, TrainingSetup
from journeyman.learn.weights.train.batches import drop_zero_advantages
from journeyman.learn.weights.train.curriculum import Curriculum
from journeyman.learn.weights.train.merged import merged
from journeyman.learn.weights.train.sampling import attempt
from journeyman.models.local import peft_as_it_is
from journeyman.task import Task

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
    settings = arguments.online(work, len(rows))
    beta = settings.beta
    if not work.config.start_adapter:
        # TRL would keep a second adapter as the reference. That of a fresh one is the model without any.
        settings.beta = 0.0
    trainer = OnlineGRPOTrainer(
        judge=_RowJudge({task.id: task for task in work.tasks}, work.judge, work.config.base_model),
        drawn=Curriculum([row["task"] for row in rows], seed=work.config.seed) if work.config.curriculum else None,
        model=work.model,
        processing_class=worlds.tool_tokenizer(work),
        reward_funcs=judge,
        args=settings,
        train_dataset=Dataset.from_list(rows * arguments.repeats(settings, len(rows))),
        environment_factory=worlds.environment_factory(work),
        callbacks=list(work.callbacks),
    )
    trainer.beta = trainer.args.beta = beta
    return trainer


def judge(completions: Sequence[Any], reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """What TRL asks for the rewards: they are known since the completions were written."""
    return list(reward)


def _rows(work: TrainingSetup) -> list[dict[str, Any]]:
    encode = arguments.encoder(work)
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

    def rewards(self, rows: Sequence[Mapping[str, Any]], completions: Sequence[TextOrMessages]) -> list[float | None]:
        """What each is worth, from 0 to 1; `None` where that cannot be told."""
        attempts = [
            (task, attempt(task, row["prompt"], completion, id=f"training/{task.id}/{next(self.numbers)}", model=self.model))
            for task, row, completion in zip((self.tasks[row["task"]] for row in rows), rows, completions, strict=True)
        ]
        return [score.total for score in self.who.judge(attempts)]


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
        rewards = self._judge.rewards(rows, generated[_COMPLETIONS])
        known = [reward for reward in rewards if reward is not None]
        self._note_metric("solved", fmean(reward >= 1.0 for reward in known) if known else None)
        self._note_metric("unknown", 1 - len(known) / len(rewards))
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
