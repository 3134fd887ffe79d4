"""Plain ASGI: bodies within bounds, answers in one piece, and errors in the words of the API that was spoken."""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from math import ceil
from typing import Any

from journeyman.experiments.settings import Api
from journeyman.serving.gateway.request import Header, HTTPRejection

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
BODY_SECONDS = 120.0
"""In which a body must have come."""


class ClientDisconnected(Exception):
    """The client hung up."""


async def body_of(receive: Receive, limit: int) -> bytes:
    """The whole body.

    Raises:
        Refused: (413) It is larger than `limit` bytes; (408) it does not come.
        Gone: The client hung up.
    """
    message = await receive() if limit else {}
    if message.get("type") == "http.request" and not message.get("more_body") and len(message.get("body", b"")) <= limit:
        return bytes(message.get("body", b""))
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _parts(message, receive, limit)
    except TimeoutError:
        raise HTTPRejection(408, f"the body did not come within {BODY_SECONDS:g} s", "slow") from None


async def _parts(message: Message, receive: Receive, limit: int) -> bytes:
    body = bytearray()
    while True:
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        body += message.get("body", b"")
        if len(body) > limit:
            raise HTTPRejection(413, f"the body is larger than {limit >> 20} MB (serve.max_request_mb)", "too_large")
        if not message.get("more_body"):
            return bytes(body)
        message = await receive()


async def answer(send: Send, status: int, body: bytes, headers: Sequence[Header]) -> None:
    """An answer in one piece."""
    said = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": said})
    await send({"type": "http.response.body", "body": body})


async def answer_json(send: Send, data: Any, status: int = 200, headers: Sequence[Header] = ()) -> None:
    await answer(send, status, json.dumps(data).encode(), [(b"content-type", b"application/json"), *headers])


async def answer_refusal(send: Send, refused: HTTPRejection, headers: Sequence[Header] = ()) -> None:
    """In the form in which the client's SDK looks for an error."""
    more = [*headers]
    if refused.retry_after is not None:
        more.append((b"retry-after", str(ceil(refused.retry_after)).encode()))
    if refused.status in (408, 413):
        # What is left of the body would be read as the next request.
        more.append((b"connection", b"close"))
    await answer_json(send, problem(refused.api, refused.status, str(refused), refused.code), refused.status, more)


def problem(api: Api, status: int, said: str, code: str) -> dict[str, Any]:
    said = f"journeyman: {said}"
    if api == "anthropic":
        kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large"}
        kind = kinds.get(status, "invalid_request_error" if status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": said}}
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": said, "type": kind, "param": None, "code": code}}
