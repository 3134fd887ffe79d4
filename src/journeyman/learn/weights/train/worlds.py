"""Tool environments for TRL's GRPO: the model calls a tool, reads what it answers, and goes on, all within one completion."""

from collections.abc import Callable
from typing import Any

from trl.chat_template_utils import add_response_schema, supports_tool_calling

from journeyman.errors import InputError
from journeyman.learn.weights.train.base import TrainingSetup


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
