"""What every server of ours does alike: it binds, knows whether others can reach it, and compares tokens."""

import hmac
import ipaddress
import socket
from collections.abc import Sequence
from functools import lru_cache
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
        return name in ("localhost", "")
    return True


def is_of(origin: str, host: str) -> bool:
    """Whether the page that an `Origin` header names is one of the server that a `Host` header names."""
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


def bearer_token(authorization: bytes, tokens: Sequence[str]) -> str | None:
    """The token in an `Authorization: Bearer …`, if it is one of ours."""
    kind, _, given = authorization.partition(b" ")
    return known_token(given.strip(), tokens) if kind.lower() == b"bearer" else None


def known_token(given: bytes, tokens: Sequence[str]) -> str | None:
    """The token that was given, if it is one of ours. Takes equally long whichever it is."""
    matching = [token for token in tokens if hmac.compare_digest(token.encode(), given)]
    return matching[0] if matching else None
