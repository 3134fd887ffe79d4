"""A trace without what was said: its shape and its numbers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from journeyman.core.reward import Reward
from journeyman.core.trace import AgentCall, Message, ModelCall, Reasoning, Step, ToolCall, Trace

LONGEST = 100
"""Characters of a name. What is longer is taken for somebody's words."""
_NAMES = frozenset(
    {
        "model",
        "system",
        "provider",
        "operation",
        "role",
        "type",
        "kind",
        "status",
        "finish",
        "finish_reason",
        "finish_reasons",
        "stop_reason",
        "response_model",
        "service_tier",
        "dialect",
        "upstream",
        "format",
        "object",
        "name",
        "tool",
        "tool_choice",
        "reasoning_effort",
        "version",
        "encoding_format",
        "run_id",
        "split",
    }
)
"""What stays of the texts in `raw`: those under such a name, where they are short and in one piece."""


def shapes_only(trace: Trace) -> Trace:
    """What `--no-content` keeps.

    What stays: ids, the names of task, domain, candidate, session, agent, models and tools; roles; the order and tree of steps;
    times, tokens, costs; why the model stopped; whether a tool failed; labels; the names, values and weights of rewards. Of an
    error its kind stays. In place of a text stands its length, as in `[120 characters]`; an empty one stays empty. Of `raw`
    stay numbers, truth values, and short texts under names that say "model", "type" and the like.

    What goes: every prompt, message, reply, argument, result, thought, evidence and error message.
    """
    return replace(
        trace,
        steps=tuple(map(_step, trace.steps)),
        error=_error(trace.error),
        input=_length(trace.input),
        output=_length(trace.output),
        tasks_created=tuple(map(_text, trace.tasks_created)),
        tasks_completed=tuple(map(_text, trace.tasks_completed)),
        tasks_failed=tuple(map(_text, trace.tasks_failed)),
        rewards=tuple(_reward(reward) for reward in trace.rewards),
        raw=_mapping(trace.raw),
    )


def _step(step: Step) -> Step:
    match step:
        case ModelCall():
            return replace(
                step,
                prompt=_text(step.prompt),
                reply=_text(step.reply),
                messages=tuple(map(_message, step.messages)),
                error=_error(step.error),
                raw=_mapping(step.raw),
            )
        case ToolCall():
            arguments, result = _text(step.arguments), _text(step.result)
            return replace(step, arguments=arguments, result=result, error=_error(step.error), raw=_mapping(step.raw))
        case Reasoning():
            return replace(step, text=_text(step.text), raw=_mapping(step.raw))
        case AgentCall():
            said, answered = _text(step.input), _text(step.output)
            return replace(step, input=said, output=answered, error=_error(step.error), raw=_mapping(step.raw))


def _message(message: Message) -> Message:
    return replace(message, text=_text(message.text))


def _reward(reward: Reward) -> Reward:
    return replace(reward, evidence=_text(reward.evidence))


def _text(text: str) -> str:
    # Doing it twice is doing it once: a length stays the length of what was said.
    if not text or (text.startswith("[") and text.endswith(" characters]") and text[1:-12].isdigit()):
        return text
    return f"[{len(text)} characters]"


def _length(text: str | None) -> str | None:
    return None if text is None else _text(text)


def _error(error: str | None) -> str | None:
    """The kind of an error: what stands before the first colon, where that is one word; else a word for it."""
    if not error:
        return error
    kind = error.partition(":")[0].strip()
    return kind if kind.isidentifier() and len(kind) <= LONGEST else "Error"


def _mapping(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    # A name with blanks in it is somebody's words as well.
    kept = ((name, _value(name, value)) for name, value in raw.items() if len(name) <= LONGEST and " " not in name)
    return {name: value for name, value in kept if value is not None}


def _value(name: str, value: Any) -> Any:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        last = name.rpartition(".")[2].lower()
        return value if last in _NAMES and len(value) <= LONGEST and " " not in value else None
    if isinstance(value, Mapping):
        return _mapping(value) or None
    return None
