"""The addresses of the pages, and how each is answered."""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from journeyman.dashboard.frame import Frame, Refused, static
from journeyman.dashboard.guard import COOKIE, HEADERS, Guard
from journeyman.dashboard.lists import Lists
from journeyman.dashboard.names import decoded, local
from journeyman.dashboard.one import One
from journeyman.errors import InputError, JourneymanError
from journeyman.stores.traces.base import TraceStore

log = logging.getLogger(__name__)
LARGEST_FORM = 100_000
"""Bytes."""
FORM_SECONDS = 30.0
"""In which it must have come."""
MONTH = 30 * 24 * 3600

Handler = Callable[[Request, dict[str, str]], Response]
"""Gets the request, and the fields of its form, or of its address when it has no form. Runs in a thread of its own."""


def routes(store: TraceStore, *, who: str, guard: Guard | None = None) -> list[BaseRoute]:
    """The pages over a store, for a server to mount at its root: `/`, `/traces`, `/sessions`, `/statistics`, `/login` and what
    lies below, none of them under `/v1`.

    The routes keep their own door: with a guard that has tokens, who is not admitted is led to `/login`, so a server must let
    these addresses pass. Nothing that blocks runs on the event loop.

    Args:
        who: Whose word a label given on a page is.
        guard: Share it with what else asks for a token; without one, loopback names and addresses are served, to anyone.
    """
    door = guard or Guard()
    frame = Frame(door, who)
    lists, one = Lists(store, frame), One(store, frame, who)

    def page(path: str, handler: Handler, method: str = "GET", *, closed: bool = True) -> Route:
        return Route(path, _endpoint(handler, frame, closed=closed), methods=[method])

    return [
        page("/", lists.traces),
        page("/traces", lists.traces),
        page("/traces.jsonl", lists.export),
        page("/traces/{name:path}", one.trace),
        page("/labels", one.label, "POST"),
        page("/sessions", lists.sessions),
        page("/sessions/{name:path}", lists.session),
        page("/statistics", lists.statistics),
        page("/login", lambda request, fields: _login_page(frame, fields), closed=False),
        page("/login", lambda request, fields: _login(frame, request, fields), "POST", closed=False),
        page("/logout", lambda request, fields: _logout(), "POST"),
        Route("/static/{name}", static),
    ]


def _endpoint(handler: Handler, frame: Frame, *, closed: bool) -> Callable[..., object]:
    async def answer(request: Request) -> Response:
        try:
            fields = decoded(request.scope["query_string"])
            _enter(request, frame.guard, closed=closed)
            if request.method == "POST":
                fields = decoded(await _form(request))
                if wrong := frame.guard.wrong_form(request.headers, fields.get("token", "")):
                    raise Refused(HTTPStatus.FORBIDDEN, wrong)
            response = await run_in_threadpool(handler, request, fields)
        except Refused as refused:
            response = frame.refused(request, refused.status, str(refused))
        except InputError as error:
            response = frame.refused(request, HTTPStatus.BAD_REQUEST, str(error))
        except JourneymanError as error:
            log.warning("%s: %s", request.url.path, error)
            response = frame.refused(request, HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        response.headers.update(HEADERS)
        return response

    return answer


def _enter(request: Request, guard: Guard, *, closed: bool) -> None:
    if not guard.knows(request.headers.get("host", "")):
        raise Refused(
            HTTPStatus.MISDIRECTED_REQUEST, "Without a token this server is asked for as localhost, or by its address."
        )
    if not closed or not guard.demands:
        return
    if not guard.admits(authorization=request.headers.get("authorization", ""), cookie=request.cookies.get(COOKIE, "")):
        raise Refused(HTTPStatus.UNAUTHORIZED, "This page needs the server's token.")


async def _form(request: Request) -> bytes:
    body = b""
    try:
        async with asyncio.timeout(FORM_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > LARGEST_FORM:
                    raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "No form of ours is that long.")
    except TimeoutError:
        raise Refused(HTTPStatus.REQUEST_TIMEOUT, "The form did not come.") from None
    return body


def _login_page(frame: Frame, fields: dict[str, str], *, wrong: bool = False) -> Response:
    status = HTTPStatus.UNAUTHORIZED if wrong else HTTPStatus.OK
    return frame.page("login.html", status, title="Sign in", to=local(fields.get("to", "/")), wrong=wrong)


def _login(frame: Frame, request: Request, fields: dict[str, str]) -> Response:
    cookie = frame.guard.cookie(fields.get("key", "").strip())
    if cookie is None:
        return _login_page(frame, fields, wrong=True)
    response = RedirectResponse(local(fields.get("to", "/")), status_code=HTTPStatus.SEE_OTHER)
    response.set_cookie(
        COOKIE, cookie, max_age=MONTH, httponly=True, samesite="strict", secure=request.url.scheme == "https", path="/"
    )
    return response


def _logout() -> Response:
    response = RedirectResponse("/login", status_code=HTTPStatus.SEE_OTHER)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response
