"""Who may come in. What is asked of a page is asked of the pages' own guard."""

from collections.abc import Sequence

from journeyman.io.http_server import addressed_directly, bearer_token, is_of, known_token
from journeyman.serving.gateway.request import Header, HTTPRejection

TOKEN = b"x-journeyman-token"


class Door:
    """With tokens, a request needs one: as `X-Journeyman-Token`, or in place of the API key, for clients that can send nothing
    else. Without, it must name us by an address or as localhost. A page of another site is never served: no client of a model
    is one, and it could spend somebody's key."""

    def __init__(self, tokens: Sequence[str] = ()) -> None:
        self._tokens = tuple(tokens)

    @property
    def demands(self) -> bool:
        return bool(self._tokens)

    def enter(self, headers: Sequence[Header]) -> Sequence[Header]:
        """The headers without our token.

        Raises:
            Refused: (401) There is no token that is ours; (421) we are asked by a strange name; (403) by another site's page.
        """
        host, origin, site = b"", b"", b""
        for name, value in headers:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
        if (origin and not is_of(origin.decode("latin-1"), host.decode("latin-1"))) or site in (b"cross-site", b"same-site"):
            raise HTTPRejection(403, "pages of other sites are not served", "cross_site")
        if self._tokens:
            return self._without_token(headers)
        if not addressed_directly(host.decode("latin-1")):
            said = "without tokens this server answers to its address and to localhost only"
            raise HTTPRejection(421, said, "misdirected")
        return headers

    def admits(self, headers: Sequence[Header]) -> bool:
        try:
            self.enter(headers)
        except HTTPRejection:
            return False
        return True

    def _without_token(self, headers: Sequence[Header]) -> Sequence[Header]:
        kept = [pair for pair in headers if not self._is_ours(*pair)]
        if len(kept) == len(headers):
            said = "this server needs a token that it knows: as X-Journeyman-Token, or in place of the API key"
            raise HTTPRejection(401, said, "unauthorised")
        return kept

    def _is_ours(self, name: bytes, value: bytes) -> bool:
        if name == b"authorization":
            return bearer_token(value, self._tokens) is not None
        return name in (TOKEN, b"x-api-key", b"api-key") and known_token(value, self._tokens) is not None
