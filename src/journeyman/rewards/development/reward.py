"""The development components as a reward on a trace."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field

from journeyman.rewards.base import RewardResult
from journeyman.rewards.development.combine import VERSION, Development
from journeyman.rewards.development.work import Work
from journeyman.trace import ToolCall, Trace

_WRITING = frozenset({"write_file", "create_file", "save_file", "edit_file", "write", "create"})
_PATH = ("path", "file_path", "filename", "file")
_TEXT = ("content", "contents", "file_text", "text", "code")


def work_of(trace: Trace) -> Work:
    """What the trace alone shows: the files that its tools wrote whole. Not the checks, the runs and the files before."""
    after = {}
    for step in trace.steps:
        if isinstance(step, ToolCall) and step.ok and step.tool.lower() in _WRITING and (written := _written(step.arguments)):
            after[written[0]] = written[1]
    return Work(trace=trace, after=after)


def _written(arguments: str) -> tuple[str, str] | None:
    try:
        found = json.loads(arguments)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    path = next((found[name] for name in _PATH if isinstance(found.get(name), str)), None)
    text = next((found[name] for name in _TEXT if isinstance(found.get(name), str)), None)
    return None if path is None or text is None else (path, text)


@dataclass(frozen=True, slots=True)
class DevelopmentReward:
    """All components of one trace as one reward.

    `find` gives the work that a trace is the record of, with its checks and runs. The default knows the trace alone, so there
    functionality cannot be told, and neither can the whole.
    """

    development: Development = field(default_factory=Development)
    find: Callable[[Trace], Work] = work_of
    weight: float = 1.0
    name: str = "development"

    @property
    def version(self) -> str:
        return f"{VERSION}-{hashlib.sha256(repr(self.development).encode()).hexdigest()[:12]}"

    def compute(self, trace: Trace) -> RewardResult:
        return self.development.compute(self.find(trace))
