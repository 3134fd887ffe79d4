"""The folder in which agents save their checkpoints."""

import json
import os
from pathlib import Path
from typing import Any

from journeyman.capture.checkpoints import pickles, turns
from journeyman.errors import InputError
from journeyman.trace import Trace, total

FOLDER = Path("Agents", "checkpoint")
VARIABLE = "JOURNEYMAN_CHECKPOINTS"
"""The environment's word on where checkpoints lie."""
_KINDS = (".pkl", ".pickle", ".json")


def read(path: Path, *, agent: str | None = None) -> turns.Found:
    """The traces of one checkpoint, pickled or JSON. A pickle is read as data: nothing in it is imported or called.

    Args:
        agent: Whose it is; by default the folder's name says so.

    Raises:
        InputError: It cannot be read, or is no checkpoint of an agent.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    return parse(content, name=str(path), agent=agent or path.parent.name or "agent")


def parse(content: bytes, *, name: str, agent: str) -> turns.Found:
    """The traces of a checkpoint's bytes.

    Raises:
        InputError: They are no checkpoint of an agent.
    """
    data = _json(content, name) if content.lstrip()[:1] == b"{" else pickles.read(content, name)
    inner = data.get("checkpoint") if isinstance(data, dict) and isinstance(data.get("checkpoint"), dict) else data
    if not isinstance(inner, dict) or not any(isinstance(inner.get(part), dict) for part in turns.PARTS):
        raise InputError(f"{name} is no checkpoint of an agent: it has none of {', '.join(turns.PARTS)}")
    return turns.traces(inner, agent=agent)


def _json(content: bytes, name: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON: {error}") from None


class CheckpointLoader:
    """Reads what agents saved: `FOLDER/AGENT/*.pkl` (or `.json`), oldest first.

    Later checkpoints tell again what earlier ones told: each turn of a conversation is one trace, however often it was saved.
    """

    def __init__(self, agent_name: str | None = None, *, folder: Path | None = None) -> None:
        """
        Args:
            agent_name: The one agent to read; all there are when not given.
            folder: Where the agents' folders lie; $JOURNEYMAN_CHECKPOINTS, else `Agents/checkpoint`, when not given.
        """
        self.agent_name = agent_name
        self.folder = folder or Path(os.environ.get(VARIABLE) or FOLDER)
        self.problems: list[str] = []
        """A sentence for each file or place that could not be read, of the last loading."""

    def discover_all_agents(self) -> list[str]:
        """The names of the agents that have checkpoints."""
        if not self.folder.is_dir():
            return []
        return sorted(path.name for path in self.folder.iterdir() if path.is_dir() and any(_files(path)))

    def load_all_traces(self) -> list[Trace]:
        """The traces of the agent, or of all agents when none was named.

        Raises:
            InputError: The named agent has no checkpoints.
        """
        return [trace for traces in self.load_all_agents_traces().values() for trace in traces]

    def load_all_agents_traces(self) -> dict[str, list[Trace]]:
        """The traces by agent. A file that cannot be read is in `problems`, and the others come nevertheless."""
        known = self.discover_all_agents()
        if self.agent_name is not None and self.agent_name not in known:
            there = f"there are: {', '.join(known)}" if known else "there are none"
            raise InputError(f"no checkpoints of the agent {self.agent_name!r} in {self.folder}; {there}")
        self.problems = []
        return {agent: self._of(agent) for agent in known if self.agent_name in (None, agent)}

    def get_training_statistics(self) -> dict[str, Any]:
        """What there is to learn from: counts of traces, sessions, tools and tasks; sums are `None` where a part is unknown."""
        by_agent = self.load_all_agents_traces()
        traces = [trace for found in by_agent.values() for trace in found]
        used = [call for trace in traces for call in trace.tool_calls]
        tools = {name for trace in traces for name in trace.raw.get("tools", ())} | {call.tool for call in used}
        return {
            "total_traces": len(traces),
            "traces_by_agent": {agent: len(found) for agent, found in by_agent.items()},
            "unique_sessions": len({(trace.agent, trace.session) for trace in traces}),
            "tools_list": sorted(tools),
            "tool_calls": len(used),
            "failed_tool_calls": sum(not call.ok for call in used),
            "reasoning_steps": sum(len(trace.steps) - len(trace.calls) - len(trace.tool_calls) for trace in traces),
            "tasks_completed": sum(len(trace.tasks_completed) for trace in traces),
            "tasks_failed": sum(len(trace.tasks_failed) for trace in traces),
            "total_tokens_in": total(trace.input_tokens for trace in traces),
            "total_tokens_out": total(trace.output_tokens for trace in traces),
            "unreadable": list(self.problems),
        }

    def _of(self, agent: str) -> list[Trace]:
        found: dict[str, Trace] = {}
        for path in _files(self.folder / agent):
            try:
                read_here = read(path, agent=agent)
            except InputError as error:
                self.problems.append(str(error))
                continue
            self.problems += [f"{path}: {problem}" for problem in read_here.problems]
            # The latest word on a turn holds: by then its tasks may have been done.
            found |= {trace.id: trace for trace in read_here.traces}
        return list(found.values())


def _files(folder: Path) -> list[Path]:
    """The checkpoints of an agent, oldest first."""
    files = [path for path in folder.iterdir() if path.suffix in _KINDS and path.is_file()]
    return sorted(files, key=lambda path: (path.stat().st_mtime, path.name))
