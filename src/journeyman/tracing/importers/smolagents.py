"""What smolagents keeps of its runs: the steps of an agent's memory, as a list or in lines, and the result of a whole run.

`agent.memory.get_full_steps()`, `get_succinct_steps()`, and `agent.run(…, return_full_result=True).dict()`, written as JSON. A
memory that was gone on with has several tasks, and each is a trace.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from journeyman.core.messages import ToolUse, Turn, Usage, arguments_text
from journeyman.tracing import builder, conversation, fields
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.source import Format, Row, SeveralRecords

NAME = "smolagents"
_STEPS = "steps of a memory"
_ACTION = frozenset({"step_number", "timing", "tool_calls", "observations", "model_output"})
_PLAN = frozenset({"plan", "timing", "model_output_message"})


def _is_task(step: Any) -> bool:
    return isinstance(step, Mapping) and isinstance(step.get("task"), str) and "task_images" in step


def _is_step(step: Any) -> bool:
    return _is_task(step) or (isinstance(step, Mapping) and (set(step) >= _ACTION or set(step) >= _PLAN))


def recognised(record: Row) -> bool:
    """Whether a record is a step, or the result of a run."""
    held = record.get("steps")
    is_result = isinstance(held, list) and bool(held) and {"output", "state", "timing"} <= set(record) and _is_step(held[0])
    return is_result or _is_step(record)


def read(record: Row) -> Iterator[RecordedTrace]:
    """A trace for each task."""
    steps = fields.objects(record.get(_STEPS)) or fields.objects(record.get("steps")) or [dict(record)]
    runs: list[list[Row]] = []
    for step in steps:
        if _is_task(step) or not runs:
            runs.append([])
        runs[-1].append(step)
    for run in runs:
        yield _trace(run, record if "state" in record and len(runs) == 1 else {})


def _trace(steps: Sequence[Row], result: Row) -> RecordedTrace:
    actions = [step for step in steps if not _is_task(step)]
    times = [fields.mapping(step.get("timing")) for step in actions]
    last: Row = actions[-1] if actions else {}
    final = last.get("is_final_answer") is True
    said = result.get("output", last.get("action_output") if final or last.get("error") else None)
    turns = [Turn("system", text) for text in _system(actions)]
    for number, step in enumerate(steps, start=1):
        turns += [Turn("user", step["task"])] if _is_task(step) else _turns(step, number)
    return builder.recorded(
        "",
        started_at=fields.time(fields.first(times[0], "start_time")) if times else None,
        ended_at=fields.time(fields.first(times[-1], "end_time")) if times else None,
        steps=builder.steps(turns),
        agent=NAME,
        input=next((step["task"] for step in steps if _is_task(step)), None),
        error=None if final or not last.get("error") else _fault(last),
        raw=fields.without_empty(output=said, state=result.get("state")),
    )


def _system(actions: Sequence[Row]) -> Iterator[str]:
    """What stood before everything, where the steps are whole."""
    for message in fields.objects(actions[0].get("model_input_messages") if actions else None)[:1]:
        if message.get("role") == "system":
            yield conversation.content_text(message.get("content"))


def _fault(step: Row) -> str:
    error = fields.mapping(step.get("error"))
    return f"{fields.string(error.get('type')) or 'Error'}: {fields.text(error.get('message'))}"


def _turns(step: Row, number: int) -> Iterator[Turn]:
    """What the model said in a step, and what came of the tools that it asked for."""
    message = fields.mapping(step.get("model_output_message"))
    # What a tool refused is not among the step's calls, but in what the model wrote.
    asked = [_call(each) for each in fields.objects(step.get("tool_calls")) or fields.objects(message.get("tool_calls"))]
    usage = fields.mapping(step.get("token_usage"))
    error = _fault(step) if step.get("error") else None
    held = fields.first(step, "model_output", "plan") or message.get("content")
    if held is None and not message and not asked:
        # At the end of its steps it asks the model for an answer, and keeps nothing of that but the answer and its tokens.
        held = step.get("action_output") if usage else None
    if held is not None or asked or usage:
        yield Turn(
            "assistant",
            conversation.content_text(held) if isinstance(held, list) else fields.text(held),
            calls=tuple(asked),
            id=f"step {number}",
            model=fields.string(fields.mapping(message.get("raw")).get("model")),
            usage=Usage(fields.count(usage.get("input_tokens")), fields.count(usage.get("output_tokens"))),
            started_at=fields.time(fields.mapping(step.get("timing")).get("start_time")),
        )
    seen = fields.string(step.get("observations"))
    for each in asked:
        # Of several calls there is one text with what all of them gave.
        yield Turn("tool", seen or error or "", answers=each.id, tool=each.tool, failed=error is not None, error=error)
    if not asked and (seen or error) and step.get("is_final_answer") is not True:
        yield Turn("user", seen or error or "")


def _call(call: Row) -> ToolUse:
    function = fields.mapping(call.get("function"))
    given = function.get("arguments")
    arguments = given if isinstance(given, str) else arguments_text(given)
    return ToolUse(fields.string(function.get("name")), arguments, fields.string(call.get("id")))


FORMAT = Format(
    name=NAME,
    recognises=recognised,
    read=read,
    several=SeveralRecords(
        starts=lambda first: _is_step(first.value),
        begins=_is_task,
        belongs=_is_step,
        otherwise="is no step of a memory of smolagents",
        joined=lambda rows: {_STEPS: rows},
    ),
)
