"""From the bytes of an exchange to what they say."""

from collections.abc import Callable, Iterable
from typing import Any

from journeyman.capture.exchanges import chat, embeddings, messages, responses, sse
from journeyman.capture.exchanges.base import Dialect, Exchange
from journeyman.capture.exchanges.loose import complaint, parsed
from journeyman.capture.exchanges.reading import Reading
from journeyman.capture.fields import mapping

_READ: dict[Dialect, Callable[[dict[str, Any], dict[str, Any], str | None], Reading]] = {
    Dialect.CHAT: chat.read,
    Dialect.RESPONSES: responses.read,
    Dialect.EMBEDDINGS: embeddings.read,
    Dialect.MESSAGES: messages.read,
}
_ASSEMBLED: dict[Dialect, Callable[[Iterable[sse.Event]], tuple[dict[str, Any], bool]]] = {
    Dialect.CHAT: chat.assembled,
    Dialect.RESPONSES: responses.assembled,
    Dialect.MESSAGES: messages.assembled,
}
CUT = "cut: the stream ended before the answer did"


def read(exchange: Exchange) -> Reading:
    """What an exchange says. Never raises: of what cannot be read there is an `error`, and all that could be read."""
    asked = parsed(exchange.request)
    answer, wrong = _answer(exchange)
    if wrong is None and not isinstance(asked, dict):
        wrong = "unreadable: the request is no JSON object"
    return _READ[exchange.dialect](mapping(asked), answer, wrong)


def _answer(exchange: Exchange) -> tuple[dict[str, Any], str | None]:
    """The answer as if it had come whole, and what is wrong with it."""
    body = exchange.response
    ended = True
    if exchange.dialect in _ASSEMBLED and sse.looks_like(body):
        answer, ended = _ASSEMBLED[exchange.dialect](sse.events(body))
        said: Any = answer
    else:
        said = parsed(body) if body else None
        answer = mapping(said)
    wrong = complaint(said, body, exchange.status)
    if wrong is None and exchange.error is not None:
        wrong = exchange.error
    if wrong is None and not ended:
        wrong = CUT
    if wrong is None and not answer:
        wrong = "unreadable: the answer is no JSON object" if body else "empty: there was no answer"
    return answer, wrong
