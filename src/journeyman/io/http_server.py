"""What every server of ours does alike: it binds, knows whether others can reach it, and compares tokens."""

import hmac
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from journeyman.core.errors import InputError


def listen(host: str, port: int) -> socket.socket:
    """A bound socket. Port 0 is any that is free.

    Raises:
        InputError: The port is taken, or the address is none of this machine's.
    """
    bound = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        # With the protocol named asyncio turns off Nagle's algorithm, which would add 40 ms to every answer.
        bound = socket.socket(family, kind, protocol or socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        if bound is not None:
            bound.close()
        raise InputError(
            f"cannot listen on {host}:{port} ({error.strerror or error}): choose another --port or --host"
        ) from error
    return bound


def url_of(bound: socket.socket) -> str:
    """The address of a bound socket, as it is typed."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@lru_cache(maxsize=64)
def addressed_directly(host: str) -> bool:
    """Whether a `Host` header names us by an address or as localhost.

    A page in somebody's browser can make a name of its own point here; it cannot make the browser send another name.
    """
    before, _, port = host.rpartition(":")
    name = before if port.isdigit() else host
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return name == "localhost"
    return True


def named_host(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The host that a request names; nothing where it names none, or more than one (RFC 9112, section 3.2)."""
    named = [value for name, value in headers if name == b"host"]
    return named[0].decode("latin-1") if len(named) == 1 else ""


def is_of(origin: str, host: str) -> bool:
    """Whether the page that an `Origin` header names is one of the server that a `Host` header names."""
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


class TokenGuard:
    """Who may come in: with tokens, who has one of them; without, who asks for the server by an address or as localhost."""

    def __init__(self, tokens: Sequence[str] = ()) -> None:
        self._tokens = tuple(tokens)

    @property
    def demands(self) -> bool:
        """Whether a token is needed at all."""
        return bool(self._tokens)

    def bearer(self, authorization: bytes) -> str | None:
        """The token in an `Authorization: Bearer …`, if it is one of ours."""
        return bearer_token(authorization, self._tokens)

    def token(self, given: bytes) -> str | None:
        """What was given, if it is a token of ours."""
        return known_token(given, self._tokens)

    def knows(self, host: str) -> bool:
        """Whether this server may be asked by this name, as `named_host` gives it. A name that somebody else controls could be
        made to point here (DNS rebinding), and would make their page and ours one origin."""
        return host != "" and (self.demands or addressed_directly(host))


class BodyRejected(Exception):
    """A body that is not taken: too large (413), or too slow (408)."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP status {status}")
        self.status = status


class ClientDisconnected(Exception):
    """The client hung up."""


STALLED_SECONDS = 10.0
"""After which a body of which nothing more comes is given up."""


async def read_body(receive: Callable[[], Awaitable[MutableMapping[str, Any]]], limit: int, seconds: float) -> bytes:
    """The whole body of an ASGI request.

    Raises:
        BodyRejected: It is larger than `limit` bytes, does not come within `seconds`, or stalls.
        ClientDisconnected: The client hung up.
    """
    # Settings ask this file whether an address is this machine's, and their help is quick without it.
    import asyncio

    body = bytearray()
    until = asyncio.get_running_loop().time() + seconds
    try:
        async with asyncio.timeout(None) as patience:
            while True:
                patience.reschedule(min(until, asyncio.get_running_loop().time() + STALLED_SECONDS))
                if (message := await receive())["type"] == "http.disconnect":
                    break
                body += message.get("body", b"")
                if len(body) > limit:
                    raise BodyRejected(413)
                if not message.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        raise BodyRejected(408) from None
    raise ClientDisconnected


def bearer_token(authorization: bytes, tokens: Sequence[str]) -> str | None:
    """The token in an `Authorization: Bearer …`, if it is one of ours."""
    kind, _, given = authorization.partition(b" ")
    return known_token(given.strip(), tokens) if kind.lower() == b"bearer" else None


def known_token(given: bytes, tokens: Sequence[str]) -> str | None:
    """The token that was given, if it is one of ours. Takes equally long whichever it is."""
    matching = [token for token in tokens if hmac.compare_digest(token.encode(), given)]
    return matching[0] if matching else None
