"""The pages, as an application beside the gateway."""

from collections.abc import Sequence
from typing import cast

from starlette.applications import Starlette
from starlette.routing import BaseRoute

from journeyman.gateway.app import App


def application(routes: Sequence[BaseRoute]) -> App:
    """What answers every address that is none of the gateway's."""
    return cast("App", Starlette(routes=list(routes)))
