"""Where Ollama is, by what a user or OLLAMA_HOST says, understood as Ollama's own client does."""

import base64
import ipaddress
import os
from collections.abc import Mapping
from urllib.parse import unquote

from journeyman.errors import InputError
from journeyman.learn.weights.wire import Wire

PORT = 11434
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what a server listens on; whoever asks goes to loopback


def wire_of(host: str | None = None, environment: Mapping[str, str] = os.environ) -> Wire:
    """The server that `host` means, else OLLAMA_HOST, else the one on this machine.

    `host`, `host:port`, `:port`, `[::1]`, `http://…`, `https://…/path`. The port is 11434, behind http:// 80 and behind https://
    443. A name and password in it, and OLLAMA_API_KEY, are sent along and never shown.

    Raises:
        InputError: It cannot be meant.
    """
    text = (host if host is not None else environment.get("OLLAMA_HOST", "")).strip().strip("\"'").strip()
    scheme, found, rest = text.partition("://")
    if not found:
        scheme, rest = "http", text
    if scheme not in ("http", "https"):
        raise InputError(f"Ollama's host begins with {scheme}://, and must with http:// or https://")
    usual = PORT if not found else 443 if scheme == "https" else 80
    authority, _, path = rest.partition("/")
    login, at, place = authority.rpartition("@")
    name, port = _split(place if at else authority, usual)
    return Wire(
        host=_ANYWHERE.get(name, name),
        port=port,
        path="/" + path.strip("/") if path.strip("/") else "",
        tls=scheme == "https",
        headers=_secrets(login, environment.get("OLLAMA_API_KEY", "")),
    )


def _split(place: str, usual: int) -> tuple[str, int]:
    """A host and its port; `usual` where there is none."""
    try:
        # An IPv6 address without brackets has colons, and no port.
        return str(ipaddress.ip_address(place.strip("[]"))), usual
    except ValueError:
        pass
    name, colon, port = place.rpartition(":")
    if not colon:
        return place or "127.0.0.1", usual
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InputError(f"Ollama's host {place} has the port {port!r}, and must have one from 0 to 65535")
    return name.strip("[]") or "127.0.0.1", int(port)


def _secrets(login: str, key: str) -> dict[str, str]:
    if login:
        return {"Authorization": "Basic " + base64.b64encode(unquote(login).encode()).decode()}
    return {"Authorization": f"Bearer {key.strip()}"} if key.strip() else {}
