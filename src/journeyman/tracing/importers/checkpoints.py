"""What agents saved of themselves, as traces. Pickles are read without unpickling."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from journeyman.core.errors import InputError
from journeyman.core.trace import ModelCall, Reasoning, Trace, total
from journeyman.tracing import builder, fields
from journeyman.tracing.base import NO_TIME, RecordedTrace
from journeyman.tracing.importers import chat
from journeyman.tracing.importers.source import FileHead, Format, JsonSource, Problem, WholeFile
from journeyman.tracing.pickles import read_pickle

# What a checkpoint says, as one trace for each time that the user asked.

PARTS = ("session_data", "variable_scopes", "task_state", "agent_state", "tool_capabilities")
_DONE = frozenset({"completed", "complete", "done", "finished", "success", "succeeded"})
_FAILED = frozenset({"failed", "failure", "error", "cancelled", "canceled", "timeout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTraces:
    """What came out of a checkpoint."""

    traces: tuple[Trace, ...]
    problems: tuple[str, ...] = ()
    """A sentence for each place that could not be read."""


def recognised(record: Any) -> bool:
    """Whether a JSON object is a checkpoint: it has the conversations, or two of the other parts."""
    parts = [part for part in PARTS if isinstance(record.get(part), dict)]
    return "session_data" in parts or len(parts) > 1


def traces(checkpoint: Mapping[str, Any], *, agent: str) -> CheckpointTraces:
    """One trace for each time that the user asked, with what the agent did until it was asked again.

    The variables, tasks and counts of a checkpoint are those of the moment when it was saved, so they stand on the last trace
    alone; token counts and cost, which are of the agent's whole life, stand on a call only where there was but one.
    """
    problems: list[str] = []
    made_traces: list[Trace] = []
    tools = sorted(fields.mapping(checkpoint.get("tool_capabilities")))
    for session, data in fields.mapping(checkpoint.get("session_data")).items():
        messages = _messages(session, data, problems)
        raw = {"tools": tools} if tools else {}
        made_traces += [replace(trace, raw=raw) for trace in _turns(agent, session, messages)]
    if made_traces:
        made_traces[-1] = _with_state(made_traces[-1], checkpoint, alone=len(made_traces) == 1)
    return CheckpointTraces(traces=tuple(made_traces), problems=tuple(problems))


def _messages(session: str, data: Any, problems: list[str]) -> list[tuple[chat.ChatMessage, datetime | None]]:
    history = data if isinstance(data, list) else fields.mapping(data).get("history", fields.mapping(data).get("messages"))
    if not isinstance(history, list):
        problems.append(f"session_data.{session} has no history")
        return []
    messages = []
    for number, entry in enumerate(history):
        try:
            messages.append((chat.ChatMessage.model_validate(entry), fields.time(fields.mapping(entry).get("timestamp"))))
        except ValidationError as error:
            problems.append(fields.fault(error, "session_data", session, "history", number))
    return messages


def _turns(agent: str, session: str, messages: Sequence[tuple[chat.ChatMessage, datetime | None]]) -> Iterator[Trace]:
    """Split where the user speaks behind an answer. What nobody answered is no attempt."""
    begins = [
        at
        for at, (message, _) in enumerate(messages)
        if message.role == "user" and (at == 0 or messages[at - 1][0].role != "user")
    ]
    digest = hashlib.sha256(json.dumps([agent, session]).encode())
    for begin, end in pairwise([*begins, len(messages)]):
        turn = messages[begin:end]
        asked = next((at for at, (message, _) in enumerate(turn) if message.role != "user"), len(turn))
        _hash(digest, turn[:asked])
        # The id is made of the conversation up to the question: a later checkpoint tells of the same turn again, perhaps with
        # more of the answer, and means the same one.
        id = f"checkpoint-{digest.hexdigest()[:24]}"
        _hash(digest, turn[asked:])
        steps = builder.steps(each for message, _ in turn for each in message.turns)
        if not any(isinstance(step, ModelCall) for step in steps):
            continue
        times = [at for _, at in turn if at is not None]
        yield Trace(
            id=id,
            task_id=id,
            candidate_id="base",
            started_at=times[0] if times else NO_TIME,
            ended_at=times[-1] if len(times) > 1 else None,
            steps=steps,
            session=session,
            agent=agent,
            source="checkpoint",
        )


def _hash(digest: "hashlib._Hash", messages: Sequence[tuple[chat.ChatMessage, datetime | None]]) -> None:
    for message, _ in messages:
        # Pydantic writes no text with half a surrogate pair, which a file may hold.
        text = json.dumps(message.model_dump(), ensure_ascii=False, separators=(",", ":"))
        digest.update(text.encode(errors="surrogatepass"))


def _with_state(trace: Trace, checkpoint: Mapping[str, Any], *, alone: bool) -> Trace:
    tasks = {name: _status(task) for name, task in fields.mapping(checkpoint.get("task_state")).items()}
    state = fields.mapping(checkpoint.get("agent_state"))
    steps = (*trace.steps, *_thoughts(fields.mapping(checkpoint.get("variable_scopes"))))
    if alone and len(trace.calls) == 1:
        steps = tuple(_counted(step, state) if isinstance(step, ModelCall) else step for step in steps)
    return replace(
        trace,
        steps=steps,
        tasks_created=tuple(tasks),
        tasks_completed=tuple(name for name, status in tasks.items() if status in _DONE),
        tasks_failed=tuple(name for name, status in tasks.items() if status in _FAILED),
        raw={**trace.raw, **({"agent_state": dict(state)} if state else {})},
    )


def _thoughts(scopes: Mapping[str, Any]) -> Iterator[Reasoning]:
    """The variables in which an agent keeps what it reasoned, and what it handed to others."""
    for scope, variables in scopes.items():
        for name, value in fields.mapping(variables).items():
            marked = f"{scope} {name}".lower()
            if value not in (None, "", [], {}) and any(word in marked for word in ("reason", "result", "delegat", "plan")):
                yield Reasoning(text=fields.text(value), raw={"scope": scope, "variable": name})


def _counted(call: ModelCall, state: Mapping[str, Any]) -> ModelCall:
    return replace(
        call,
        input_tokens=fields.first_count(state, *_TOKENS_IN),
        output_tokens=fields.first_count(state, *_TOKENS_OUT),
        cost=_first_number(state, _COST),
    )


_TOKENS_IN = ("tokens_in", "total_tokens_in")
_TOKENS_OUT = ("tokens_out", "total_tokens_out")
_COST = ("cost", "total_cost")
"""An agent's totals, as its state calls them."""


def _first_number(state: Mapping[str, Any], names: Iterable[str]) -> float | None:
    return next((value for name in names if (value := fields.number(state.get(name))) is not None), None)


def _spent(traces: Sequence[Trace], what: str, names: Iterable[str]) -> float | None:
    """What one agent's traces took: the sum, else its own word in its latest state."""
    known = total(getattr(trace, what) for trace in traces)
    states = [fields.mapping(trace.raw.get("agent_state")) for trace in traces if trace.raw.get("agent_state")]
    return known if known is not None or not states else _first_number(states[-1], names)


def _status(task: Any) -> str:
    told = fields.mapping(task)
    status = str(told.get("status", task if isinstance(task, str) else "")).lower().rpartition(".")[2]
    return "failed" if not status and told.get("error") else status


# The folder in which agents save their checkpoints.

FOLDER = Path("Agents", "checkpoint")
VARIABLE = "JOURNEYMAN_CHECKPOINTS"
"""The environment's word on where checkpoints lie."""
_KINDS = (".pkl", ".pickle", ".json")


def read(path: Path | str, *, agent: str | None = None) -> CheckpointTraces:
    """The traces of one checkpoint, pickled or JSON, also gzipped. A pickle is data: nothing in it is imported or called.

    Args:
        agent: Whose it is; by default the folder's name says so.

    Raises:
        InputError: It cannot be read, or is no checkpoint of an agent.
    """
    path = Path(path)
    with JsonSource(path) as source:
        return parse(source.whole(), name=str(path), agent=agent or path.parent.name or "agent")


def parse(content: bytes, *, name: str, agent: str) -> CheckpointTraces:
    """The traces of a checkpoint's bytes.

    Raises:
        InputError: They are no checkpoint of an agent.
    """
    data = _json(content, name) if content.lstrip()[:1] == b"{" else read_pickle(content, name)
    inner = data.get("checkpoint") if isinstance(data, dict) and isinstance(data.get("checkpoint"), dict) else data
    if not isinstance(inner, dict) or not any(isinstance(inner.get(part), dict) for part in PARTS):
        raise InputError(f"{name} is no checkpoint of an agent: it has none of {', '.join(PARTS)}")
    return traces(inner, agent=agent)


def _json(content: bytes, name: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON: {error}") from None


class CheckpointLoader:
    """Reads what agents saved: `FOLDER/AGENT/*.pkl` (or `.json`), oldest first.

    Later checkpoints tell again what earlier ones told: each turn of a conversation is one trace, however often it was saved.
    """

    def __init__(self, agent_name: str | None = None, *, folder: Path | str | None = None) -> None:
        """
        Args:
            agent_name: The one agent to read; all there are when not given.
            folder: Where the agents' folders lie; $JOURNEYMAN_CHECKPOINTS, else `Agents/checkpoint`, when not given.
        """
        self.agent_name = agent_name
        self.folder = Path(folder or os.environ.get(VARIABLE) or FOLDER)
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
        """What there is to learn from: counts of traces, sessions, tools and tasks; sums are `None` where a part is unknown.

        Where it is not known what each trace took, an agent's own totals are taken: those of its latest checkpoint.
        """
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
            "total_tokens_in": total(_spent(found, "input_tokens", _TOKENS_IN) for found in by_agent.values()),
            "total_tokens_out": total(_spent(found, "output_tokens", _TOKENS_OUT) for found in by_agent.values()),
            "total_cost": total(_spent(found, "cost", _COST) for found in by_agent.values()),
            "unreadable": list(self.problems),
        }

    def _of(self, agent: str) -> list[Trace]:
        by_id: dict[str, Trace] = {}
        for path in _files(self.folder / agent):
            try:
                read_here = read(path, agent=agent)
            except InputError as error:
                self.problems.append(str(error))
                continue
            self.problems += [f"{path}: {problem}" for problem in read_here.problems]
            # The latest word on a turn holds: by then its tasks may have been done.
            by_id |= {trace.id: trace for trace in read_here.traces}
        return list(by_id.values())


def _files(folder: Path) -> list[Path]:
    """The checkpoints of an agent, oldest first."""
    files = [path for path in folder.iterdir() if path.suffix in _KINDS and path.is_file()]
    return sorted(files, key=lambda path: (path.stat().st_mtime, path.name))


def _read(paths: Sequence[Path]) -> Iterator[RecordedTrace | Problem]:
    for path in paths:
        found = read(path)
        yield from (RecordedTrace(trace=trace) for trace in found.traces)
        yield from (Problem(str(path), why) for why in found.problems)


def _knows(head: FileHead) -> bool:
    """A pickle by its first opcode; the older protocols have none for it, and only the file's name tells."""
    if head.start[:1] == b"\x80" or (head.path.suffix in (".pkl", ".pickle") and not head.like_json):
        return True
    return head.first is not None and isinstance(head.first.value, dict) and recognised(head.first.value)


FORMAT = Format(name="checkpoint", recognises=recognised, whole=WholeFile(knows=_knows, read=_read))
