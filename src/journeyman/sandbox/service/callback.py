"""Tool calls by callback: sent to a URL of the caller's choice, but only to places that the operator named."""

import json
import string
from urllib.parse import quote, urlsplit

from pydantic import ValidationError

from journeyman.io.http_client import Broken, Connections, TooLong, Unreachable
from journeyman.sandbox.service.config import ServiceConfig
from journeyman.sandbox.service.queue import Refused
from journeyman.sandbox.service.relay import Call
from journeyman.sandbox.service.schema import Faults, ToolResult

_PORTS = {"http": 80, "https": 443}


def place(url: str) -> str:
    """`host:port` of an http URL; what a host is allowed by.

    Raises:
        Faults: It is none, or has a user name.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        port = None
    if port is None or not parts.hostname or parts.username is not None or parts.password is not None:
        raise Faults("callback_url should be http://host:port/… or https://…, without a user name")
    host = parts.hostname.lower()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check(url: str, config: ServiceConfig) -> None:
    """Raises `Refused` (403) unless the operator named the place: a service that goes wherever it is told is a door into the
    operator's network."""
    if place(url) not in config.callback_hosts:
        allowed = ", ".join(sorted(config.callback_hosts)) or "nothing (--callback-host)"
        raise Refused(403, f"callback_url goes to {place(url)}; this service may call {allowed}", "callback")


class Callback:
    """Posts tool calls, over connections that are kept for each place. Redirects are not followed, and no proxy is used."""

    def __init__(self, config: ServiceConfig) -> None:
        self._longest = config.max_request
        self._connections: dict[str, Connections] = {}

    async def ask(self, url: str, call: Call) -> ToolResult:
        """Post a tool call. Whatever goes wrong is an answer too, but for time: that is the relay's to watch."""
        parts = urlsplit(url)
        at = f"{parts.scheme}://{place(url)}"
        connections = self._connections.setdefault(at, Connections(at, {"accept-encoding": "identity"}))
        path = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=string.punctuation)
        try:
            async with connections.asked("POST", path, json.dumps({"tool_call": call}).encode()) as answer:
                body = await answer.read(self._longest)
        except TooLong:
            return ToolResult(error="the callback answered with too much")
        # More would tell the code about the operator's network.
        except Unreachable:
            return ToolResult(error="the callback failed: ConnectError")
        except Broken:
            return ToolResult(error="the callback failed: ReadError")
        if answer.status != 200:
            return ToolResult(error=f"the callback answered {answer.status}")
        try:
            return ToolResult.model_validate_json(body)
        except ValidationError:
            return ToolResult(error='the callback should answer {"value": …} or {"error": "…"}')

    async def close(self) -> None:
        for each in self._connections.values():
            await each.close()
