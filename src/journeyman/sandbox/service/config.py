"""What an operator decides about the code service."""

import os
from dataclasses import dataclass, field

from journeyman.sandbox.base import KIB, MIB, Limits

MOST = Limits(
    cpu_seconds=300.0,
    wall_seconds=600.0,
    memory=2048 * MIB,
    processes=256,
    file_size=256 * MIB,
    disk=1024 * MIB,
    inodes=65536,
    open_files=1024,
    output=1024 * KIB,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """How much of the machine the service may give away, and to whom. Sizes in bytes, times in seconds."""

    concurrency: int = max(2, os.cpu_count() or 2)
    """Executions at once; more wait."""
    queue: int = 256
    """Requests that may wait. One more is refused with 503."""
    queue_seconds: float = 60.0
    """The longest wait for a turn, then 503."""
    per_client: int = 64
    """Requests of one client at once, those that wait included; and its sessions. One more is refused with 429."""
    tokens: tuple[str, ...] = field(default=(), repr=False)
    """Each belongs to one client. None: whoever can connect may use the service, and an address is a client."""
    max_request: int = 16 * MIB
    """Of one body. More is refused with 413 as soon as it has been read."""
    held: int = 256 * MIB
    """All bodies in memory together. A request that does not fit is refused with 503."""
    max_response: int = 64 * MIB
    """The collected files of one run."""
    request_seconds: float = 30.0
    """In which a body must have arrived, else 408."""
    tool_seconds: float = 60.0
    """In which the caller must have answered a tool call; after it the code sees a `ToolError`."""
    callback_hosts: frozenset[str] = frozenset()
    """`host:port` of the only places that tool calls may be sent to. None: callbacks are refused."""
    most: Limits = MOST
    """What a caller may ask for at most, limit by limit."""
    sessions: int = 64
    """At once; one more is refused with 503."""
    idle_seconds: float = 600.0
    """After which an unused session is ended; a caller may ask for less."""
