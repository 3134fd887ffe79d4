"""Who may see a page, who may send a form, and what a browser is told not to do with either."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence

from journeyman.io.http_server import addressed_directly, bearer_token, is_of, known_token

COOKIE = "journeyman"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""On every answer. What stands in a trace was written by strangers: the browser runs and loads nothing that we did not ship."""


class Guard:
    """The door of one server.

    With tokens, a request needs one of them: as `Authorization: Bearer …`, or as the cookie that the login page gives.
    Without, the server must be asked for by a loopback name or by an address. A name that somebody else controls could be made
    to point here (DNS rebinding), and would make their page and ours one origin.
    """

    def __init__(self, tokens: Sequence[str] = ()) -> None:
        self._tokens = tuple(tokens)
        self._secret = secrets.token_bytes(32)

    @property
    def demands(self) -> bool:
        """Whether a token is needed at all."""
        return bool(self._tokens)

    @property
    def form_token(self) -> str:
        """What every form carries. Other origins cannot read it; it changes when the server starts anew."""
        return hmac.new(self._secret, b"form", hashlib.sha256).hexdigest()

    def cookie(self, token: str) -> str | None:
        """The value of the cookie that stands for a token, or `None` where the token is not one of ours."""
        known = known_token(token.encode(errors="replace"), self._tokens)
        return None if known is None else _derived(known)

    def admits(self, *, authorization: str, cookie: str) -> bool:
        """Whether a request with this `Authorization` header and this value of the cookie carries a token."""
        if bearer_token(authorization.encode(errors="replace"), self._tokens) is not None:
            return True
        return known_token(cookie.encode(errors="replace"), [_derived(known) for known in self._tokens]) is not None

    def knows(self, host: str) -> bool:
        """Whether a `Host` header may name this server."""
        return self.demands or (host != "" and addressed_directly(host))

    def wrong_form(self, headers: Mapping[str, str], token: str) -> str | None:
        """Why a form is not accepted; `None` when it is one of our pages that sent it."""
        site = headers.get("sec-fetch-site")
        origin = headers.get("origin", "null")
        # A page that sends no referrer sends the origin "null"; where the browser says more, it is `Sec-Fetch-Site`.
        foreign = site not in (None, "same-origin") or (origin != "null" and not is_of(origin, headers.get("host", "")))
        if foreign:
            return "This form was sent by another site, so nothing was done."
        if not hmac.compare_digest(token.encode(errors="replace"), self.form_token.encode()):
            return "This page is from before the server last started, so nothing was done: load it again."
        return None


def _derived(token: str) -> str:
    """What the cookie holds: whoever reads it has no token."""
    return hmac.new(token.encode(), b"journeyman pages", hashlib.sha256).hexdigest()
