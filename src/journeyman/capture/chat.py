"""Transcripts of chat messages, as OpenAI's API and most frameworks write them, become steps."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from journeyman.trace import ModelCall, Step, ToolCall


class Function(BaseModel):
    name: str
    arguments: str | dict[str, Any] | None = ""

    @property
    def text(self) -> str:
        """The arguments as JSON; some write them as an object."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments or {}, ensure_ascii=False)


class Call(BaseModel):
    id: str | None = None
    function: Function


class Message(BaseModel):
    """One message. What is not known is left alone."""

    model_config = ConfigDict(populate_by_name=True)

    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[Call] | None = None
    function_call: Function | None = None
    tool_call_id: str | None = None
    name: str | None = None
    is_error: bool | None = None
    finish_reason: str | None = None
    model: str | None = None
    usage: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The content as text; of a list of parts those that are text."""
        if isinstance(self.content, list):
            return "\n".join(text for part in self.content if isinstance(text := part.get("text"), str))
        return self.content or ""

    @property
    def calls(self) -> Sequence[Call]:
        return self.tool_calls or ([Call(function=self.function_call)] if self.function_call else [])


def steps(messages: Sequence[Message], *, model: str = "", finish: str | None = None) -> Iterator[Step]:
    """The steps that the messages tell of, in order.

    A call's prompt holds what was new to the model: what was said since its last reply, by role. A tool call that was never
    answered did not go well.

    Args:
        model: For messages that do not say which model wrote them.
        finish: Why the last reply ended.
    """
    answers = _answers(messages)
    said: list[str] = []
    last = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=-1)
    for at, message in enumerate(messages):
        if message.role != "assistant":
            said.append(f"{message.role}: {message.text}")
            continue
        yield ModelCall(
            model=message.model or model,
            prompt="\n\n".join(said),
            reply=message.text,
            input_tokens=_count(message.usage, "prompt_tokens", "input_tokens"),
            output_tokens=_count(message.usage, "completion_tokens", "output_tokens"),
            finish=message.finish_reason or (finish if at == last else None),
        )
        said = []
        for number, call in enumerate(message.calls):
            answer = answers.get((at, number))
            yield ToolCall(
                tool=call.function.name,
                arguments=call.function.text,
                result=answer.text if answer else "",
                ok=answer is not None and not answer.is_error,
                id=call.id or "",
            )


def _answers(messages: Sequence[Message]) -> Mapping[tuple[int, int], Message]:
    """Which message answers which call of which message: by its id, else by its place behind the calls."""
    found: dict[tuple[int, int], Message] = {}
    waiting: list[tuple[tuple[int, int], Call]] = []
    for at, message in enumerate(messages):
        if message.role == "assistant":
            waiting += [((at, number), call) for number, call in enumerate(message.calls)]
        elif message.role in ("tool", "function") and waiting:
            named = [entry for entry in waiting if message.tool_call_id and entry[1].id == message.tool_call_id]
            # Ids are written anew by some servers, and some transcripts have none.
            entry = (named or waiting)[0]
            found[entry[0]] = message
            waiting.remove(entry)
    return found


def _count(usage: Mapping[str, Any] | None, *names: str) -> int | None:
    """The first of these that is a count; what is none, such as -1, is not known."""
    found = ((usage or {}).get(name) for name in names)
    return next((count for count in found if type(count) is int and count >= 0), None)
