"""What a checkpoint says, as one trace for each time that the user asked."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any

from pydantic import ValidationError

from journeyman.capture import builder, chat, fields
from journeyman.capture.base import NO_TIME
from journeyman.trace import ModelCall, Reasoning, Trace

PARTS = ("session_data", "variable_scopes", "task_state", "agent_state", "tool_capabilities")
_DONE = frozenset({"completed", "complete", "done", "finished", "success", "succeeded"})
_FAILED = frozenset({"failed", "failure", "error", "cancelled", "canceled", "timeout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came out of a checkpoint."""

    traces: tuple[Trace, ...]
    problems: tuple[str, ...] = ()
    """A sentence for each place that could not be read."""


def recognised(record: Any) -> bool:
    """Whether a JSON object is a checkpoint: it has the conversations, or two of the other parts."""
    parts = [part for part in PARTS if isinstance(record.get(part), dict)]
    return "session_data" in parts or len(parts) > 1


def traces(checkpoint: Mapping[str, Any], *, agent: str) -> Found:
    """One trace for each time that the user asked, with what the agent did until it was asked again.

    The variables, tasks and counts of a checkpoint are those of the moment when it was saved, so they stand on the last trace
    alone; token counts and cost, which are of the agent's whole life, stand on a call only where there was but one.
    """
    problems: list[str] = []
    made: list[Trace] = []
    tools = sorted(fields.mapping(checkpoint.get("tool_capabilities")))
    for session, data in fields.mapping(checkpoint.get("session_data")).items():
        messages = _messages(session, data, problems)
        raw = {"tools": tools} if tools else {}
        made += [replace(trace, raw=raw) for trace in _turns(agent, session, messages)]
    if made:
        made[-1] = _with_state(made[-1], checkpoint, alone=len(made) == 1)
    return Found(traces=tuple(made), problems=tuple(problems))


def _messages(session: str, data: Any, problems: list[str]) -> list[tuple[chat.Message, datetime | None]]:
    history = data if isinstance(data, list) else fields.mapping(data).get("history", fields.mapping(data).get("messages"))
    if not isinstance(history, list):
        problems.append(f"session_data.{session} has no history")
        return []
    found = []
    for number, entry in enumerate(history):
        try:
            found.append((chat.Message.model_validate(entry), fields.time(fields.mapping(entry).get("timestamp"))))
        except ValidationError as error:
            problems.append(fields.fault(error, "session_data", session, "history", number))
    return found


def _turns(agent: str, session: str, messages: Sequence[tuple[chat.Message, datetime | None]]) -> Iterator[Trace]:
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


def _hash(digest: "hashlib._Hash", messages: Sequence[tuple[chat.Message, datetime | None]]) -> None:
    for message, _ in messages:
        digest.update(message.model_dump_json().encode(errors="surrogatepass"))


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
        input_tokens=fields.first_count(state, "tokens_in", "total_tokens_in"),
        output_tokens=fields.first_count(state, "tokens_out", "total_tokens_out"),
        cost=next((cost for name in ("cost", "total_cost") if (cost := fields.number(state.get(name))) is not None), None),
    )


def _status(task: Any) -> str:
    told = fields.mapping(task)
    status = str(told.get("status", task if isinstance(task, str) else "")).lower().rpartition(".")[2]
    return "failed" if not status and told.get("error") else status
