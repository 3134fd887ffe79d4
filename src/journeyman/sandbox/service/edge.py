"""Where HTTP ends: bodies are read within bounds, callers are told apart, and what is refused becomes an answer."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from journeyman.errors import InputError, SandboxError
from journeyman.io.http_server import addressed_directly, bearer_token
from journeyman.sandbox.service.config import ServiceConfig
from journeyman.sandbox.service.queue import STOPPING, Refused
from journeyman.sandbox.service.schema import Faults

JSON = "application/json"
Handler = Callable[[Request, Send], Awaitable[Response | None]]
"""Gives the answer, or `None` when it sent one itself."""

_Result = TypeVar("_Result")


class Abandoned(Exception):
    """The caller is gone: there is nobody left to answer."""


def answer(data: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(data), status, headers, JSON)


class Endpoint:
    """A handler as ASGI, without layers: what it raises is answered here."""

    def __init__(self, handler: Handler, refused: Callable[[str], None]) -> None:
        self._handler = handler
        self._refused = refused
        """Told the reason, in one word."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def sent(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            response = await self._handler(Request(scope, receive), sent)
        except asyncio.CancelledError:
            # Only a stop that cannot wait any longer ends requests. A stream is cut off, and its reader sees that.
            response = None if started else refusal_response(STOPPING)
        except (Abandoned, ClientDisconnect):
            return
        except (Refused, Faults, InputError, SandboxError) as error:
            refusal = as_refusal(error)
            self._refused(refusal.reason)
            response = refusal_response(refusal)
        if response is not None:
            await response(scope, receive, send)


async def misaddressed(request: Request, error: Exception) -> Response:
    """What is asked of no address there is, or by no method that it has."""
    assert isinstance(error, HTTPException)
    path, allowed = request.url.path, error.headers
    sentence = (
        f"there is no {path} here; code is run by POST /execute"
        if error.status_code == 404
        else f"{path} cannot be asked by {request.method}"
    )
    return answer({"error": sentence}, error.status_code, allowed)


def as_refusal(error: Exception) -> Refused:
    match error:
        case Refused():
            return error
        case Faults():
            return Refused(422, str(error), "invalid", faults=error.faults)
        case InputError():
            return Refused(422, str(error), "invalid", faults=(str(error),))
    return Refused(500, str(error), "sandbox_error")


def refusal_response(refusal: Refused) -> Response:
    """One sentence under `error`; where a request had faults, each under `faults`."""
    headers = {} if refusal.retry_after is None else {"Retry-After": str(refusal.retry_after)}
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if refusal.status in (408, 413):
        # What is left of the body would be read as the next request.
        headers["Connection"] = "close"
    faults = {"faults": list(refusal.faults)} if refusal.faults else {}
    return answer({"error": str(refusal), **faults}, refusal.status, headers)


def client_of(request: Request, config: ServiceConfig) -> str:
    """A name for whoever asks: made of the token where there are tokens, else of the address.

    Raises:
        Refused: (401) Without a token that is known; (421) by a name that is not ours, as a web page might.
    """
    if config.tokens:
        known = bearer_token(request.headers.get("authorization", "").encode(), config.tokens)
        if known is None:
            raise Refused(401, "this service needs a bearer token that it knows: Authorization: Bearer …", "unauthorised")
        return hashlib.sha256(known.encode()).hexdigest()[:16]
    if not addressed_directly(request.headers.get("host", "")):
        raise Refused(421, "without tokens this service answers to its address and to localhost only", "misdirected")
    return request.client.host if request.client else "local"


async def body_of(request: Request, config: ServiceConfig, hold: Callable[[int], None]) -> bytes:
    """The whole body, measured while it is read.

    Raises:
        Refused: (415) It is not JSON by its own word, which a web page cannot say unasked; (413) it is too large; (408) it
            does not arrive; (503) with the other bodies in memory it is too much.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise Refused(415, f"the body should be JSON: Content-Type: {JSON}", "invalid")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(config.request_seconds):
            async for part in request.stream():
                size += len(part)
                if size <= config.max_request:
                    hold(len(part))
                    parts.append(part)
                elif size > 2 * config.max_request:
                    break
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {config.request_seconds:g} s", "slow") from None
    # Somewhat more than is allowed was read and dropped: a caller that still sends would not see the answer.
    if size > config.max_request:
        raise Refused(413, f"the body is larger than {config.max_request} bytes", "too_large")
    return b"".join(parts)


async def while_connected(request: Request, work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of the work, which is cancelled when the caller hangs up. The body must have been read.

    Raises:
        Abandoned: The caller hung up.
    """
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request.receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Abandoned
        return working.result()
    finally:
        working.cancel()
        gone.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Lines:
    """A streamed answer: one JSON object a line."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def start(self) -> None:
        headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def say(self, event: Mapping[str, Any]) -> None:
        line = json.dumps(event).encode() + b"\n"
        await self._send({"type": "http.response.body", "body": line, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
