"""Chat messages as OpenAI's and Anthropic's APIs write them, and as others do who say the same. What cannot be one is named."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from journeyman.core.messages import ToolUse, Turn, arguments_text
from journeyman.core.trace import Trace
from journeyman.tracing import builder, conversation, fields
from journeyman.tracing.base import NO_TIME, RecordedTrace
from journeyman.tracing.importers.source import Format


class Function(BaseModel):
    name: str
    arguments: str | dict[str, Any] | None = ""


class ChatCall(BaseModel):
    id: str | None = None
    function: Function


class ChatMessage(BaseModel):
    """One message. What is not known is left alone."""

    model_config = ConfigDict(populate_by_name=True)

    role: str
    content: str | list[dict[str, Any] | str] | None = None
    content_ref: str | int | None = None
    """The content stands elsewhere."""
    reasoning_content: str | None = None
    tool_calls: list[ChatCall] | None = None
    function_call: Function | None = None
    tool_call_id: str | None = None
    name: str | None = None
    is_error: bool | None = None
    finish_reason: str | None = None
    model: str | None = None
    usage: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The content as text; what is no text is named in brackets."""
        if self.content is None and self.content_ref is not None:
            return f"[content {self.content_ref}]"
        return conversation.content_text(self.content)

    @property
    def turns(self) -> Iterator[Turn]:
        """The message, behind the answers of tools that it holds."""
        answers = list(conversation.part_answers(self.content))
        yield from answers
        if answers and not self.text:
            return
        named = [(call.function, call.id or "") for call in self.tool_calls or ()]
        calls = [ToolUse(each.name, arguments_text(each.arguments), id) for each, id in named]
        calls += conversation.part_calls(self.content)
        if self.function_call and not calls:
            calls = [ToolUse(self.function_call.name, arguments_text(self.function_call.arguments))]
        yield Turn(
            "tool" if self.role == "function" else self.role,
            self.text,
            calls=tuple(calls),
            thought=self.reasoning_content or "\n".join(conversation.part_thoughts(self.content)),
            answers=self.tool_call_id,
            tool=self.name,
            failed=self.is_error,
            model=self.model or "",
            finish=self.finish_reason,
            usage=conversation.usage_of(self.usage),
        )


class _Transcript(BaseModel):
    """Chat messages with what may stand beside them. What else does is kept."""

    model_config = ConfigDict(coerce_numbers_to_str=True, extra="allow")

    messages: list[ChatMessage]
    id: str | None = None
    task_id: str | None = None
    model: str = ""
    domain: str = "general"
    candidate_id: str = "base"
    session: str | None = None
    agent: str | None = None
    started_at: datetime | None = Field(default=None)
    finish_reason: str | None = None
    error: str | None = None

    def recorded(self) -> RecordedTrace:
        turns = (turn for message in self.messages for turn in message.turns)
        began = self.started_at or NO_TIME
        return RecordedTrace(
            trace=Trace(
                id=self.id or "",
                task_id=self.task_id or self.id or "",
                candidate_id=self.candidate_id,
                started_at=began if began.tzinfo else began.replace(tzinfo=UTC),
                steps=builder.steps(turns, model=self.model, finish=self.finish_reason),
                error=self.error,
                domain=self.domain,
                session=self.session,
                agent=self.agent,
                raw=dict(self.model_extra or {}),
            )
        )


def _read(record: Mapping[str, Any]) -> Iterator[RecordedTrace]:
    yield fields.validated(_Transcript, record).recorded()


CHAT = Format(name="chat", recognises=lambda record: "messages" in record, read=_read)
