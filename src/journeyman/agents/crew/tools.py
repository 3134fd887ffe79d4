"""Tools as workers: functions, code in a sandbox, HTTP APIs."""

import asyncio
import inspect
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import quote, urlencode, urlsplit

from journeyman.agents.crew.base import Job, Note, Unreadable, WorkerFailed
from journeyman.errors import InputError
from journeyman.io.http_client import Answer, Broken, Connections, TooLong, Unreachable
from journeyman.io.retry import retry_after
from journeyman.policy import Card
from journeyman.sandbox.base import Limits, Program, Sandbox
from journeyman.trace import ToolCall

_BESIDE = ("inputs", "text", "instruction")
"""What a function is told beside its arguments, where it has a parameter of that name."""
_LONGEST = 400
"""Characters of what went wrong."""


class _Noted:
    """Notes one call of a tool, however it ends."""

    def __init__(self, card: Card, arguments: Any, note: Note) -> None:
        self._card, self._arguments, self._note = card, arguments, note
        self._begun, self._at = datetime.now(UTC), time.perf_counter()

    def right(self, output: Any) -> Any:
        """The output, which JSON must have a word for."""
        try:
            text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise self.wrong(Unreadable(f"{self._card.name} gave what is no JSON: {error}")) from None
        self._call(text, None, self._card.call_price)
        return output

    def wrong(self, error: Exception, result: str = "") -> Exception:
        refused = isinstance(error, WorkerFailed) and error.refused
        self._call(result, str(error), 0.0 if refused else self._card.call_price)
        return error

    def _call(self, result: str, error: str | None, cost: float | None) -> None:
        self._note(
            ToolCall(
                tool=self._card.name,
                arguments=json.dumps(self._arguments, ensure_ascii=False, default=str),
                result=result,
                ok=error is None,
                error=error,
                cost=cost,
                started_at=self._begun,
                seconds=time.perf_counter() - self._at,
            )
        )


@dataclass(frozen=True, kw_only=True)
class ByFunction:
    """Calls a Python function, async or not, with the subtask's arguments by name. Implements `crew.base.Worker`.

    Where it has a parameter `inputs`, `text` or `instruction`, it is also told the outputs that the subtask follows (by id),
    the subtask's text, or the whole instruction. One that is not async runs in a thread, which nobody can stop: a time-out
    leaves it to end by itself.
    """

    call: Callable[..., Any]
    card: Card

    def estimate(self, job: Job) -> float | None:
        return self.card.call_price

    async def do(self, job: Job, note: Note) -> Any:
        beside = {"inputs": dict(job.inputs), "text": job.subtask.text, "instruction": job.instruction}
        wanted = {name for name in _parameters(self.call) if name in _BESIDE}
        arguments = {**{name: beside[name] for name in wanted}, **job.arguments}
        noted = _Noted(self.card, arguments, note)
        try:
            given = self.call(**arguments) if _is_async(self.call) else await asyncio.to_thread(self.call, **arguments)
            output = await given if inspect.isawaitable(given) else given
        except Exception as error:
            again = isinstance(error, ConnectionError | TimeoutError)
            raise noted.wrong(WorkerFailed(f"{self.card.name}: {type(error).__name__}: {error}", again=again)) from error
        return noted.right(output)


def _parameters(call: Callable[..., Any]) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(call).parameters)
    except (TypeError, ValueError):
        # Some built-in functions do not tell.
        return ()


def _is_async(call: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004


@dataclass(frozen=True, kw_only=True)
class ByCode:
    """Runs a program in the sandbox. Implements `crew.base.Worker`.

    On its standard input it finds a JSON object with "instruction", "text", "arguments" and "inputs" (outputs by id); what it
    prints is the output, as JSON where it is that.
    """

    sandbox: Sandbox
    card: Card
    code: str | Callable[[Job], str]
    """The program, or what takes it out of the job, such as out of the output of the model that wrote it."""
    language: str = "python"
    limits: Limits = field(default_factory=Limits)

    def estimate(self, job: Job) -> float | None:
        return self.card.call_price

    async def do(self, job: Job, note: Note) -> Any:
        given = {
            "instruction": job.instruction,
            "text": job.subtask.text,
            "arguments": job.arguments,
            "inputs": dict(job.inputs),
        }
        noted = _Noted(self.card, given, note)
        code = self.code if isinstance(self.code, str) else self.code(job)
        stdin = json.dumps(given, ensure_ascii=True, default=str).encode()
        outcome = await self.sandbox.run(Program(code=code, language=self.language, stdin=stdin, limits=self.limits))
        if not outcome.ok:
            ended = (
                f"hit its limit of {outcome.limit}" if outcome.limit else f"ended with {outcome.signal or outcome.exit_code}"
            )
            said = outcome.stderr.strip()[-_LONGEST:]
            raise noted.wrong(WorkerFailed(f"{self.card.name} {ended}: {said}"), outcome.stdout)
        return noted.right(_value(outcome.stdout))


def _value(text: str) -> Any:
    """What a text of JSON holds, else the text."""
    try:
        return json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        return text.strip()


def _refused(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
_AGAIN = (429, 503)
_AGAIN_UNLESS_POST = (500, 502, 504)
"""What was sent may have been done: it is sent again only where doing it twice is doing it once (RFC 9110, 9.2.2)."""
_TWICE_IS_ONCE = ("GET", "PUT", "DELETE")
LONGEST_ANSWER = 4 * 2**20
"""Bytes of an API's answer."""


class ByHttp:
    """Calls an HTTP API with the subtask's arguments. Implements `crew.base.Worker`.

    `{name}` in the URL takes that argument; the others go into the query for GET and DELETE, else into a JSON body. A subtask
    without arguments sends its "text" and "inputs". The answer is the output, as JSON where the API says so. Connections are
    kept; `close` gives them back. No redirects are followed: whoever writes the URL says where requests go.
    """

    def __init__(self, url: str, *, card: Card, method: Method = "POST", headers: Mapping[str, str] | None = None) -> None:
        """
        Args:
            headers: Such as the API's key; they stand on no trace.

        Raises:
            InputError: The URL is none.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "{" in parts.netloc:
            raise InputError(
                f"{card.name}: {parts.scheme}://{parts.hostname} is no address of an API; it begins with https://…"
            )
        self.card = card
        self._method = method
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._connections = Connections(
            f"{parts.scheme}://{parts.netloc}", {"accept": "application/json, */*", **(headers or {})}
        )

    def estimate(self, job: Job) -> float | None:
        return self.card.call_price

    async def do(self, job: Job, note: Note) -> Any:
        arguments = dict(job.arguments) or {"text": job.subtask.text, "inputs": dict(job.inputs)}
        noted = _Noted(self.card, arguments, note)
        try:
            path, body = self._request(arguments)
            async with self._connections.asked(self._method, path, body) as answer:
                data = await answer.read(LONGEST_ANSWER)
            output = self._output(answer, data)
        except Unreachable as error:
            failed = WorkerFailed(f"{self.card.name} could not be reached: {error}", again=True, refused=True)
            raise noted.wrong(failed) from error
        except TooLong:
            raise noted.wrong(Unreadable(f"the answer is longer than {LONGEST_ANSWER >> 20} MB")) from None
        except Broken as error:
            again = self._method in _TWICE_IS_ONCE
            raise noted.wrong(WorkerFailed(f"{self.card.name} broke off: {error}", again=again)) from error
        except (WorkerFailed, Unreadable) as error:
            raise noted.wrong(error) from None
        return noted.right(output)

    async def close(self) -> None:
        """Give back connections."""
        await self._connections.close()

    def _request(self, arguments: dict[str, Any]) -> tuple[str, bytes | None]:
        path, rest = self._path, dict(arguments)
        for name in arguments:
            if f"{{{name}}}" in path:
                value = _plain(rest.pop(name))
                if value in (".", ".."):
                    # Servers and proxies take these, even when quoted, as a way to another address than was written.
                    raise WorkerFailed(f"{self.card.name}: {name} is {value!r}, which leads elsewhere in a path", refused=True)
                path = path.replace(f"{{{name}}}", quote(value, safe=""))
        if self._method in ("GET", "DELETE"):
            query = urlencode({name: _plain(value) for name, value in rest.items()})
            return path + (("&" if "?" in path else "?") + query if query else ""), None
        return path, json.dumps(rest, default=str).encode()

    def _output(self, answer: Answer, data: bytes) -> Any:
        text = data.decode(errors="replace")
        if not 200 <= answer.status < 300:
            again = answer.status in _AGAIN or (answer.status in _AGAIN_UNLESS_POST and self._method in _TWICE_IS_ONCE)
            said = " ".join(text.split())[:_LONGEST]
            raise WorkerFailed(
                f"{self.card.name} answered {answer.status}: {said}",
                again=again,
                retry_after=retry_after(answer.headers),
                refused=answer.status in _AGAIN,
            )
        if "json" not in answer.headers.get("content-type", ""):
            return text
        try:
            return json.loads(text, parse_constant=_refused)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"{self.card.name} says it answers JSON, and does not: {error}") from None


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
