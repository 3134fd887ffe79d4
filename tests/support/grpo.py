"""Work for trainers of GRPO on the smallest embedded model, with few and short completions."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from journeyman.core.score import Reward, Score
from journeyman.core.task import Split, Task
from journeyman.core.trace import Trace
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.job import TrainingJob as Job
from journeyman.optimizers.weights.rows import TextOrMessages as Said
from journeyman.optimizers.weights.train import TrainingSetup as Work
from journeyman.optimizers.weights.train import run
from journeyman.tasks import desk

TASKS = desk.load("oslo", sizes={Split.TRAIN: 8}).tasks
CONFIG = TrainingConfig(
    base_model="embedded:small",
    per_device_batch_size=4,
    gradient_accumulation_steps=2,
    num_generations=4,
    learning_rate=3e-3,
    beta=0.0,
    max_steps=2,
    max_prompt_tokens=256,
    max_completion_tokens=6,
    use_bf16=False,
    gradient_checkpointing=False,
    threads=1,
)


class Judge:
    """Says what a function says, and remembers what it was asked."""

    def __init__(self, worth: Callable[[Trace], float | None]) -> None:
        self.worth = worth
        self.asked: list[list[Trace]] = []

    def judge(self, attempts: Sequence[tuple[Task, Trace]]) -> list[Score]:
        self.asked.append([trace for _, trace in attempts])
        rewards = [Reward(name="worth", value=self.worth(trace)) for _, trace in attempts]
        return [Score(trace_id=trace.id, rewards=(reward,)) for (_, trace), reward in zip(attempts, rewards, strict=True)]


def put(task: Task) -> Said:
    return {"role": "system", "content": "reply"}, {"role": "user", "content": task.question}


def by_length(trace: Trace) -> float | None:
    """Something that differs between completions and is the same for the same one."""
    return (len(trace.reply) % 7) / 6


def work(folder: Path, judge: Judge | None = None, **settings: Any) -> Work:
    parts = {name: settings.pop(name) for name in ("rows", "tasks", "environment", "callbacks") if name in settings}
    config = replace(CONFIG, **settings)
    loaded = run.load(config)
    made = Work(
        config=config,
        job=Job(folder),
        model=loaded.model,
        tokenizer=loaded.tokenizer,
        tasks=TASKS,
        rows=(),
        put=put,
        judge=judge,
        callbacks=(),
    )
    return replace(made, **parts)
