"""Traces made by hand, for tests."""

from journeyman.core.trace import ModelCall, Step, ToolCall, Trace
from journeyman.tracing.base import NO_TIME


def said(*replies: str, tokens: int | None = None) -> Trace:
    """An attempt in which the model gave these replies, each of so many tokens."""
    return done(
        *(ModelCall(model="m", prompt="p", reply=reply, input_tokens=tokens, output_tokens=tokens and 0) for reply in replies)
    )


def done(*steps: Step, error: str | None = None, task: str = "task", id: str = "t") -> Trace:
    return Trace(id=id, task_id=task, candidate_id="base", started_at=NO_TIME, steps=steps, error=error)


def used(tool: str, result: str = "fine", *, ok: bool = True, arguments: str = "{}") -> ToolCall:
    return ToolCall(tool=tool, arguments=arguments, result=result, ok=ok)


def reply(text: str, finish: str | None = None) -> ModelCall:
    return ModelCall(model="m", prompt="p", reply=text, finish=finish)
