"""From the bytes of an exchange to what they say."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from journeyman.capture.exchanges import chat, embeddings, messages, responses, sse
from journeyman.capture.exchanges.base import Dialect, Exchange
from journeyman.capture.exchanges.reading import Reading
from journeyman.capture.fields import mapping, objects, parsed, word
from journeyman.core.messages import arguments_text

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
_SHORT = 500
"""Characters of a message that is no JSON."""
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
    wrong = _complaint(said, body, exchange.status)
    if wrong is None and exchange.error is not None:
        wrong = exchange.error
    if wrong is None and not ended:
        wrong = CUT
    if wrong is None and not answer:
        wrong = "unreadable: the answer is no JSON object" if body else "empty: there was no answer"
    return answer, wrong


def _complaint(body: Any, raw: bytes, status: int | None) -> str | None:
    """What an answer says went wrong, as `name: message`; `None` for one that does not complain."""
    said = mapping(body)
    told = said.get("error") or said.get("errors")
    bad = status is not None and status >= 400
    if not told and not bad:
        return None
    about = mapping(next(iter(objects(told)), None) if isinstance(told, list) else told)
    name = word(about.get("type")) or word(about.get("code")) or word(about.get("status")) or "error"
    message = word(about.get("message")) or word(told) or word(said.get("message")) or _detail(said)
    if message is None:
        message = arguments_text(told) if told else raw[:_SHORT].decode(errors="replace").strip() or "no reason was given"
    return f"{name}: {message}" + (f" (HTTP {status})" if bad else "")


def _detail(said: Mapping[str, Any]) -> str | None:
    detail = said.get("detail")
    return None if detail is None else arguments_text(detail)
