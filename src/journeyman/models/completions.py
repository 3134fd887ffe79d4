"""What a chat-completions server answers, read into values. Servers differ in what they leave out, so little is required."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from journeyman.errors import ModelBusy, ModelError, ModelRefused
from journeyman.models.base import Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    type: str = ""
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    content: str | list[_Part] | None = None
    refusal: str | None = None
    tool_calls: list[Any] | None = None
    function_call: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """What is meant for the reader: reasoning parts are left out, and a refusal is an answer too."""
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content if part.type == "text")
        return self.content or self.refusal or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    message: _Message = field(default_factory=_Message)
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Details:
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Usage:
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Completion:
    choices: list[_Choice] | None = None
    model: str | None = None
    usage: _Usage | None = None
    error: Any = None


_BODY = TypeAdapter(dict[str, Any])
_COMPLETION = TypeAdapter(_Completion)


def read(body: str, *, asked: str, seconds: float) -> Reply:
    """The reply in a server's answer of status 200. `asked` names the model for messages, and for a server that does not.

    Raises `ModelError` for text that is no completion, or one with nothing in it. The cost is left to the caller.
    """
    try:
        raw = _BODY.validate_json(body)
        completion = _COMPLETION.validate_python(raw)
    except ValidationError as error:
        what = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in what["loc"])
        problem = f"{where}: {what['msg']}" if where else what["msg"]
        raise ModelError(
            f"{asked} answered with something that is no chat completion ({problem}): {body[:80]!r}; "
            "check that the base URL is that of a chat-completions server"
        ) from None
    if completion.error:
        raise failure(completion.error, asked)
    choice = _first(completion, asked)
    usage = completion.usage or _Usage()
    return Reply(
        text=choice.message.text,
        model=completion.model or asked,
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cached_tokens=usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None,
        seconds=seconds,
        finish=choice.finish_reason,
        raw=raw,
    )


def failure(error: object, asked: str) -> ModelError:
    """The error that a gateway puts into an answer of status 200."""
    found = error if isinstance(error, Mapping) else {"message": error}
    message = f"{asked} answered with an error: {str(found.get('message'))[:300]}"
    code = str(found.get("code") or found.get("status") or "")
    if code.isdigit():
        return named(int(code), message)
    return ModelError(message)


def named(status: int, message: str, retry_after: float | None = None) -> ModelError:
    """The error of an HTTP status: may the same call succeed later, or not?"""
    if status in {408, 409, 425, 429} or status >= 500:
        return ModelBusy(message, retry_after=retry_after)
    return ModelRefused(message)


def _first(completion: _Completion, asked: str) -> _Choice:
    choice = next(iter(completion.choices or []), None)
    if choice is None:
        raise ModelError(f"{asked} answered without any choice in it")
    message = choice.message
    if message.text or message.tool_calls or message.function_call:
        return choice
    if choice.finish_reason == "length":
        raise ModelError(f"{asked} used up its tokens before it said anything: raise max_tokens, or leave it out")
    raise ModelError(f"{asked} gave an empty answer (finish reason {choice.finish_reason!r})")
