"""Solves the webhook delivery."""

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from typing import Any

_MOST = 60


def sign(secret: str, timestamp: int, body: bytes) -> str:
    return f"t={timestamp},v1={_digest(secret, timestamp, body)}"


def _digest(secret: str, timestamp: int, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()


def verify(secret: str, header: str, body: bytes, now: float, tolerance: float = 300) -> bool:
    timestamp, given = None, []
    for part in header.split(","):
        name, _, value = part.strip().partition("=")
        if name == "t":
            if not (value.isascii() and value.isdigit()):
                return False
            timestamp = int(value)
        elif name == "v1":
            given.append(value.encode())
    if timestamp is None or abs(now - timestamp) > tolerance:
        return False
    right = _digest(secret, timestamp, body).encode()
    return any([hmac.compare_digest(right, value) for value in given])


def delays(attempts: int, base: float = 1.0, factor: float = 2.0, cap: float = 60.0) -> list[float]:
    return [min(cap, base * factor**number) for number in range(attempts - 1)]


def deliver(
    send: Callable[[bytes], tuple[int, Mapping[str, str]]],
    body: bytes,
    attempts: int = 5,
    sleep: Callable[[float], Any] = time.sleep,
) -> dict[str, Any]:
    waits = delays(attempts)
    status: int | None = None
    for number in range(1, attempts + 1):
        headers: Mapping[str, str] = {}
        try:
            status, headers = send(body)
        except OSError:
            status = None
        if status is not None and 200 <= status <= 299:
            return {"delivered": True, "attempts": number, "status": status}
        if status is not None and status not in (408, 429) and not 500 <= status <= 599:
            return {"delivered": False, "attempts": number, "status": status}
        if number < attempts:
            sleep(_asked(headers, waits[number - 1]))
    return {"delivered": False, "attempts": attempts, "status": status}


def _asked(headers: Mapping[str, str], wait: float) -> float:
    for name, value in headers.items():
        if name.lower() == "retry-after" and value.isascii() and value.isdigit():
            return min(_MOST, int(value))
    return wait
