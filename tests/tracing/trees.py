"""What the tests of the recorder look at."""

from journeyman.core.trace import Trace, walk
from journeyman.tracing.collector import Collector


def drawn(trace: Trace) -> list[str]:
    """The tree, a step a line."""
    names = {"ModelCall": "model", "ToolCall": "tool", "Reasoning": "model", "AgentCall": "agent"}
    return [
        "  " * depth + str(getattr(step, names[type(step).__name__], getattr(step, "text", "")))
        for depth, step in walk(trace.steps)
    ]


def only(collector: Collector) -> Trace:
    (trace,) = collector.traces
    return trace
