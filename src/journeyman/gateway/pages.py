"""The pages, as an application beside the gateway."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from journeyman.errors import JourneymanError
from journeyman.gateway.app import App
from journeyman.gateway.call import Refused
from journeyman.gateway.edge import Receive, Scope, Send, answer_refusal

if TYPE_CHECKING:
    from starlette.routing import BaseRoute


def application(routes: "Sequence[BaseRoute]") -> App:
    """What answers every address that is none of the gateway's."""
    from starlette.applications import Starlette

    return cast("App", Starlette(routes=list(routes)))


def when_asked(make: Callable[[], App]) -> App:
    """An application that is made, in a thread, when it is first asked for something: what nobody looks at takes no memory."""
    made: asyncio.Task[App] | None = None

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal made
        if made is None:
            made = asyncio.create_task(asyncio.to_thread(make))
        try:
            # One who goes away must not keep the others from it.
            app = await asyncio.shield(made)
        except JourneymanError as error:
            made = None
            await answer_refusal(send, Refused(503, str(error), "no_pages"))
            return
        await app(scope, receive, send)

    return answer
