"""Tool calls by callback: sent to a URL of the caller's choice, but only to places that the operator named."""

from urllib.parse import urlsplit

import httpx2
from pydantic import ValidationError

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
    """Posts tool calls. Redirects are not followed, and no proxy of the environment is used."""

    def __init__(self, config: ServiceConfig) -> None:
        self._config = config
        self._client: httpx2.AsyncClient | None = None

    async def ask(self, url: str, call: Call) -> ToolResult:
        """Post a tool call. Whatever goes wrong is an answer too, but for time: that is the relay's to watch."""
        if self._client is None:
            self._client = httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=self._config.tool_seconds)
        try:
            async with self._client.stream(
                "POST", url, json={"tool_call": call}, headers={"accept-encoding": "identity"}
            ) as response:
                body = bytearray()
                async for part in response.aiter_raw():
                    body += part
                    if len(body) > self._config.max_request:
                        return ToolResult(error="the callback answered with too much")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return ToolResult(error=f"the callback failed: {type(error).__name__}")
        if response.status_code != 200:
            return ToolResult(error=f"the callback answered {response.status_code}")
        try:
            return ToolResult.model_validate_json(bytes(body))
        except ValidationError:
            return ToolResult(error='the callback should answer {"value": …} or {"error": "…"}')

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
