"""An ASGI application as a process that ends well when it is told to stop."""

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import uvicorn

if TYPE_CHECKING:
    from uvicorn._types import ASGIApplication

KEEP_ALIVE_SECONDS = 75
"""Longer than clients keep an idle connection, so that none writes into one that is being closed."""


class Server(uvicorn.Server):
    """Says when clients can come, and cancels at the end what is still under way, so that it can record that or tidy up.

    It logs nothing itself, and takes no address out of a header: what a client writes there is no address.
    """

    def __init__(self, app: Any, ready: Callable[[], None], *, cut_seconds: float, **options: Any) -> None:
        """
        Args:
            ready: Called once clients can come.
            cut_seconds: What is under way when the server has stopped is given to end, once it was cancelled.
            options: More of uvicorn's.
        """
        super().__init__(
            uvicorn.Config(
                cast("ASGIApplication", app),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                **options,
            )
        )
        self._ready = ready
        self._cut_seconds = cut_seconds

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        left = list(self.server_state.tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=self._cut_seconds)
