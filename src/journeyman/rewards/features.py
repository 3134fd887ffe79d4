"""What an attempt looks like in numbers: what a learned reward sees.

Counts and shares of what was recorded, and nothing about which task it was: a reward that knows the task learns its difficulty.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from journeyman.embed.base import Embedder
from journeyman.trace import ModelCall, Reasoning, ToolCall, Trace

NAMES = (
    "model_calls",
    "tool_calls",
    "tools",
    "tool_errors",
    "tool_error_share",
    "late_tool_errors",
    "retries",
    "reasoning",
    "input_tokens",
    "output_tokens",
    "reply_characters",
    "mean_reply_characters",
    "argument_characters",
    "result_characters",
    "questions",
    "stopped_early",
    "ends_with_a_tool",
    "seconds",
)
"""In the order of the columns. Counts, lengths and times are log(1 + x); the unknown is NaN."""

_COUNTS = frozenset(NAMES) - {"tool_error_share", "stopped_early", "ends_with_a_tool"}


def numbers(traces: Sequence[Trace]) -> NDArray[np.float64]:
    """Shape (traces, len(NAMES)); NaN where a trace does not tell."""
    table = np.array([_row(trace) for trace in traces], np.float64).reshape(len(traces), len(NAMES))
    logarithmic = [name in _COUNTS for name in NAMES]
    table[:, logarithmic] = np.log1p(table[:, logarithmic])
    return table


def columns(traces: Sequence[Trace], embedder: Embedder | None) -> NDArray[np.float64]:
    """The numbers, and beside them the vector of what was done and last said, when there is an embedder."""
    table = numbers(traces)
    if embedder is None:
        return table
    return np.hstack([table, embedder.embed([told(trace) for trace in traces]).astype(np.float64)])


def told(trace: Trace) -> str:
    """The tools in the order of their use, failures marked, and the last reply."""
    used = " ".join(step.tool if step.ok else f"{step.tool} failed" for step in trace.steps if isinstance(step, ToolCall))
    return f"{used}\n{trace.reply}"


def _row(trace: Trace) -> list[float]:
    tools = [step for step in trace.steps if isinstance(step, ToolCall)]
    replies = [call.reply for call in trace.calls]
    failed = [not call.ok for call in tools]
    asked = {(call.tool, call.arguments) for call in tools}
    seconds = [step.seconds for step in trace.steps if isinstance(step, ModelCall | ToolCall)]
    known = [each for each in seconds if each is not None]
    found: dict[str, float] = {
        "model_calls": len(replies),
        "tool_calls": len(tools),
        "tools": len({call.tool for call in tools}),
        "tool_errors": sum(failed),
        "tool_error_share": sum(failed) / len(failed) if failed else 0.0,
        "late_tool_errors": sum(failed[-3:]),
        "retries": len(tools) - len(asked),
        "reasoning": sum(isinstance(step, Reasoning) for step in trace.steps),
        "input_tokens": _or_nan(trace.input_tokens, replies),
        "output_tokens": _or_nan(trace.output_tokens, replies),
        "reply_characters": sum(map(len, replies)),
        "mean_reply_characters": sum(map(len, replies)) / len(replies) if replies else 0.0,
        "argument_characters": sum(len(call.arguments) for call in tools),
        "result_characters": sum(len(call.result) for call in tools),
        "questions": sum(reply.rstrip().endswith("?") for reply in replies),
        "stopped_early": float(trace.error is not None),
        "ends_with_a_tool": float(bool(trace.steps) and isinstance(trace.steps[-1], ToolCall)),
        "seconds": sum(known) if known and len(known) == len(seconds) else float("nan"),
    }
    return [found[name] for name in NAMES]


def _or_nan(count: int | None, replies: Sequence[str]) -> float:
    return float("nan") if count is None or not replies else float(count)
