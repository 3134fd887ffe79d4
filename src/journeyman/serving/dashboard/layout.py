"""What all pages share: the templates, the way a refusal looks, and the files that a browser loads."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from journeyman.serving.dashboard import format as words
from journeyman.serving.dashboard.addresses import encoded, name
from journeyman.serving.dashboard.auth import Guard

_HERE = Path(__file__).parent
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}


class PageRefused(Exception):
    """The page is not given, and the sentence says why."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Frame:
    """Fills templates. Every value is escaped, and what would hide in a text is made visible."""

    def __init__(self, guard: Guard, who: str) -> None:
        self.guard = guard
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            finalize=words.visible,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update({each.__name__: each for each in _FILTERS}, as_json=words.raw)
        self._templates.globals.update(encoded=encoded, asset=asset, token=guard.form_token, demands=guard.demands, who=who)

    def page(self, template: str, status: int = HTTPStatus.OK, /, **values: Any) -> Response:
        """A filled template as an answer."""
        return HTMLResponse(self.text(template, **values), status_code=int(status))

    def text(self, template: str, /, **values: Any) -> bytes:
        """A filled template. What has no place in UTF-8 is `?`."""
        return self._templates.get_template(template).render(now=datetime.now(UTC), **values).encode(errors="replace")

    def refused(self, request: Request, status: HTTPStatus, sentence: str) -> Response:
        """The answer to what cannot be had: for a script one sentence, for a person a page, or the one to sign in at."""
        wants_page = "text/html" in request.headers.get("accept", "") and "hx-request" not in request.headers
        if not wants_page:
            return Response(
                words.visible(sentence).encode(errors="replace"), int(status), media_type="text/plain; charset=utf-8"
            )
        if status == HTTPStatus.UNAUTHORIZED:
            to = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
            return RedirectResponse("/login" + encoded({"to": to}), status_code=HTTPStatus.SEE_OTHER)
        return self.page("refused.html", status, title=status.phrase, sentence=sentence)


def without(fields: Mapping[str, str], key: str) -> dict[str, str]:
    """The fields but one."""
    return {each: value for each, value in fields.items() if each != key}


def plus(fields: Mapping[str, str], **more: str) -> dict[str, str]:
    """The fields, and others that are not empty."""
    return {**fields, **{key: value for key, value in more.items() if value}}


def mark(id: str) -> str:
    """An id as one that HTML and CSS take without quoting."""
    return "t" + hashlib.blake2b(id.encode(errors="surrogatepass"), digest_size=6).hexdigest()


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """The shipped files with their types, read once."""
    found = {path.name: path for path in (_HERE / "static").iterdir() if path.suffix[1:] in _TYPES}
    return {name: (path.read_bytes(), _TYPES[path.suffix[1:]]) for name, path in found.items()}


@cache
def asset(name: str) -> str:
    """The address of a shipped file. It changes with the content, so a browser may keep it for good."""
    return f"/static/{name}?v={hashlib.blake2b(_files()[name][0], digest_size=6).hexdigest()}"


async def static(request: Request) -> Response:
    """A shipped file."""
    body, kind = _files().get(request.path_params["name"], (None, "text/plain"))
    if body is None:
        return Response("no such file", HTTPStatus.NOT_FOUND, media_type="text/plain")
    return Response(body, headers=_FOREVER, media_type=kind)


_FILTERS = (
    words.count, words.short, words.money, words.seconds, words.share, words.reward, words.when, words.pretty, words.one_line,
    name, mark, without, plus,
)  # fmt: skip
"""What a template can say behind `|`."""
