"""A request as it came in, taken apart: what is passed on, what is ours, and what is secret."""

import json
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from math import ceil
from time import perf_counter
from typing import Any

from journeyman.core.rollout import PRODUCTION
from journeyman.experiments.settings import Api
from journeyman.io.http_server import STALLED_SECONDS, BodyRejected, read_body
from journeyman.serving.releases.context import Injected, MirrorTarget, ServedRelease, SessionArm
from journeyman.tracing.wire.dialects import Dialect, Exchange

Header = tuple[bytes, bytes]

DIALECTS: dict[str, tuple[Api, Dialect]] = {
    f"/v1{dialect.path}": ("anthropic" if dialect is Dialect.MESSAGES else "openai", dialect) for dialect in Dialect
}
"""What is recorded. Everything else below /v1 is passed on only."""

_PREFIX = b"x-journeyman-"
LABELS = frozenset({"task", "session", "agent", "domain", "parent", "candidate", "trace", "principal"})
_LONGEST_LABEL = 512
_RELEASES = _PREFIX + b"releases"
"""Says "off" where a client wants its request to pass as it is."""
KEYS = frozenset({b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key"})
KEY_PARAMETERS = re.compile(
    r"(?:^|&)(?:(?:(?:x[-_])?(?:api|access|auth|subscription)[-_]?)?key|(?:(?:api|access|auth)[-_]?)?token)=[^&]*",
    re.IGNORECASE,
)
_SECRET_HEADER = re.compile(
    r"(?:^|[-_])(?:auth|authorization|\w*token|\w*key|\w*secret|password|credentials?|jwt|signature)$", re.IGNORECASE
)
_SECRET_VALUE = re.compile(r"(?:bearer|basic|digest|token) ", re.IGNORECASE)
_NO_SECRETS = frozenset({"idempotency-key"})
HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
        b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
_OURS = HOP_BY_HOP | {b"host", b"content-length", b"accept-encoding", b"expect", b"cookie"}
"""Said anew for each connection; and cookies, which belong to our pages."""


_PLACES = 8
"""Where the model's own name is looked for; past them a body is written anew, for each look reads all of it."""


_NOTHING = ServedRelease()


class HTTPRejection(Exception):
    """A request that goes no further."""

    def __init__(self, status: int, said: str, code: str, *, api: Api = "openai", retry_after: float | None = None) -> None:
        super().__init__(said)
        self.status = status
        self.code = code
        self.api = api
        self.retry_after = retry_after


@dataclass(slots=True, kw_only=True)
class ProxyRequest:
    """What a client asks."""

    id: str
    method: str
    path: str
    """As it stood on the wire."""
    query: str
    api: Api
    dialect: Dialect | None
    """`None` for what is passed on unrecorded."""
    headers: list[tuple[str, str]]
    """Those that are passed on as they are."""
    keys: list[tuple[str, str]]
    """Headers that hold the client's key."""
    labels: dict[str, str]
    body: bytes = b""
    encoding: str = ""
    """Of the body."""
    releases: bool = True
    """Whether anything may be put into it."""
    served: ServedRelease = _NOTHING
    """What was, and on which arms its session is."""
    escalated: str = ""
    """The worker that answers it instead of the one that was chosen, whose answer was no good."""
    mirrors: Mapping[str, str] = field(default_factory=dict)
    """Of a second request, which nobody is given the answer of: what its record says of the first."""
    fell_back: bool = False
    """Whether it gets what is in production, as the arm that its session is on did not answer."""

    def mirrored(self, mirror: MirrorTarget, id: str, injected: Injected) -> "ProxyRequest":
        """The same asked a second time: in no session, of no task, and in a trace of its own."""
        labels = {name: self.labels[name] for name in ("agent", "domain", "principal") if name in self.labels}
        again = replace(self, id=id, labels=labels | {"trace": id}, mirrors=mirror.told(mirror.arm, self.id))
        return again.with_served(injected)

    def asking(self, body: bytes) -> "ProxyRequest":
        """The same call with another body."""
        return replace(self, body=body)

    def with_served(self, injected: Injected) -> "ProxyRequest":
        """The same call with what is served for it; its candidates are in force beside those that the client names."""
        served = injected.served
        labels = dict(self.labels)
        if served.context is not None:
            labels = {"domain": served.context.domain, **labels}
        if served.candidates:
            said = labels.get("candidate", "").split(",")
            candidates = dict.fromkeys([*served.candidates, *(each.strip() for each in said if each.strip())])
            labels["candidate"] = ",".join(candidates)
        return replace(self, body=injected.body, served=served, labels=labels)

    @property
    def is_on_trial(self) -> bool:
        """Whether its session is on the arm of a candidate."""
        return any(arm.arm != PRODUCTION for arm in self.served.arms)

    def fails(self, arm: SessionArm) -> bool:
        """Whether an arm did not answer it, and production did."""
        return self.fell_back and arm.arm != PRODUCTION

    def told(self) -> dict[str, Any]:
        """What its record says of what was served for it."""
        arms, target = self.served.arms, self.served.target
        told: dict[str, Any] = {}
        if arms:
            told["release"] = [{**arm.labels, "fell_back": self.fails(arm)} for arm in arms]
        if self.mirrors:
            told["mirror"] = dict(self.mirrors)
        elif (mirror := self.served.mirror) is not None:
            told["mirror"] = mirror.told(PRODUCTION, self.id)
        if target is not None and target.choice is not None:
            told["route"] = asdict(target.choice) | ({"escalated": self.escalated} if self.escalated else {})
        return told


def parse_request(id: str, method: str, path: str, query: str, headers: Sequence[Header]) -> ProxyRequest:
    """The request without its body."""
    passed: list[tuple[str, str]] = []
    keys: list[tuple[str, str]] = []
    labels: dict[str, str] = {}
    encoding, named, releases = "", b"", True
    for name, value in headers:
        if name in _OURS:
            named = value if name == b"connection" else named
        elif name in KEYS:
            keys.append((name.decode(), text(value)))
        elif name == _RELEASES:
            releases = value.strip().lower() != b"off"
        elif name.startswith(_PREFIX):
            _label(labels, name, value)
        else:
            passed.append((name.decode("latin-1"), text(value)))
            if name == b"content-encoding":
                encoding = text(value).lower()
    if named and named.lower() not in (b"keep-alive", b"close"):
        hop = {each.strip().lower() for each in text(named).split(",")}
        passed = [pair for pair in passed if pair[0] not in hop]
    api, dialect = DIALECTS.get(path, (None, None)) if method == "POST" else (None, None)
    if api is None:
        api = api_of(path, headers)
    return ProxyRequest(
        id=id, method=method, path=path, query=query, api=api, dialect=dialect, headers=passed, keys=keys, labels=labels,
        encoding=encoding, releases=releases,
    )  # fmt: skip


def is_secret(name: str, value: str) -> bool:
    """Whether a header that is passed on as it is was meant for nobody but the server that the client had in mind."""
    return (_names_secret(name) or _SECRET_VALUE.match(value) is not None) and name not in _NO_SECRETS


@lru_cache(maxsize=1024)
def _names_secret(name: str) -> bool:
    return _SECRET_HEADER.search(name) is not None


def api_of(path: str, headers: Sequence[Header]) -> Api:
    """Whose API is meant."""
    if path.startswith(("/v1/messages", "/v1/complete")) or any(name == b"anthropic-version" for name, _ in headers):
        return "anthropic"
    return "openai"


def _label(labels: dict[str, str], name: bytes, value: bytes) -> None:
    word = name[len(_PREFIX) :].decode("latin-1")
    if word in LABELS and value:
        labels[word] = text(value)[:_LONGEST_LABEL]


def text(value: bytes) -> str:
    """A header's value. UTF-8 where it is, so that it goes on as the same bytes."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def model_of(body: bytes) -> str | None:
    """The model that a body asks for."""
    found = _object(body)
    model = found.get("model") if found is not None else None
    return model if isinstance(model, str) else None


def with_model(body: bytes, model: str, short: str) -> bytes:
    """The body with another model's name, every other byte as it was."""
    before = _object(body)
    wanted = {**(before or {}), "model": short}
    written = "|".join(re.escape(json.dumps(model, ensure_ascii=ascii_only)) for ascii_only in (True, False))
    pattern = re.compile(rf'("model"\s*:\s*)({written})'.replace("/", r"\\?/").encode())
    for found in islice(pattern.finditer(body), _PLACES):
        changed = body[: found.start(2)] + json.dumps(short).encode() + body[found.end(2) :]
        # The same words may stand deeper inside: in a tool's parameters, or in a metadata object.
        if _object(changed) == wanted:
            return changed
    return json.dumps(wanted, ensure_ascii=False).encode()


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


# What passed is gathered on its way, within bounds, and handed over as an exchange.


class ExchangeRecording:
    """One exchange while it happens."""

    __slots__ = ("_began", "_first", "_limit", "_parts", "_size", "_started_at", "base_url", "call", "encoding", "error",
                 "status", "streamed", "upstream")  # fmt: skip

    def __init__(self, call: ProxyRequest, limit: int) -> None:
        """`limit` is how many bytes of the answer are kept."""
        self.call = call
        self._limit = limit
        self._began = perf_counter()
        self._started_at = datetime.now(UTC)
        self._parts: list[bytes] = []
        self._size = 0
        self._first: float | None = None
        self.upstream, self.base_url = "", ""
        """The name and the address of who answered."""
        self.status: int | None = None
        self.streamed = False
        self.encoding = ""
        self.error: str | None = None

    def add(self, data: bytes) -> None:
        if self._first is None:
            self._first = perf_counter()
        room = self._limit - self._size
        self._size += len(data)
        if room > 0:
            self._parts.append(data if len(data) <= room else data[:room])

    def beside(self, id: str, upstream: str, base_url: str, answer: Any, body: bytes) -> "ExchangeRecording":
        """Of an answer that is not given, as it came, or may not be."""
        other = ExchangeRecording(replace(self.call, id=id), self._limit)
        other._began, other._started_at = self._began, self._started_at
        other.upstream, other.base_url, other.status = upstream, base_url, answer.status
        other.streamed = answer.content_type == "text/event-stream"
        other.encoding = answer.headers.get("content-encoding", "").lower()
        other.add(body)
        return other

    def exchange(self, dialect: Dialect) -> Exchange:
        """What happened up to now."""
        call = self.call
        request, request_wrong = decoded(call.body, call.encoding, self._limit)
        response, response_wrong = decoded(b"".join(self._parts), self.encoding, self._limit)
        cut = f"the record is cut after {self._limit} of {self._size} bytes" if self._size > self._limit else None
        return Exchange(
            id=call.id,
            dialect=dialect,
            request=request,
            response=response,
            status=self.status,
            streamed=self.streamed,
            started_at=self._started_at,
            first_byte_seconds=None if self._first is None else self._first - self._began,
            seconds=perf_counter() - self._began,
            upstream=self.upstream,
            base_url=self.base_url,
            error=self.error or cut or request_wrong or response_wrong,
            labels=call.labels,
            served=call.told(),
            shown=call.served.context.shown if call.served.context is not None else (),
        )


_WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


def decoded(body: bytes, encoding: str, limit: int) -> tuple[bytes, str | None]:
    """A body without its content-encoding, at most `limit` bytes of it, and what could not be undone."""
    if not encoding or encoding == "identity" or not body:
        return body, None
    window = _WINDOWS.get(encoding)
    if window is None:
        return b"", f"the record lacks a body, which came as {encoding}"
    reader = zlib.decompressobj(window)
    try:
        return reader.decompress(body, limit), None
    except zlib.error:
        return b"", f"the record lacks a body, which was no {encoding}"


# Plain ASGI: bodies within bounds, answers in one piece, and errors in the words of the API that was spoken.
Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
BODY_SECONDS = 120.0
"""In which a body must have come."""


async def body_of(receive: Receive, limit: int, advice: str = "serve.max_request_mb") -> bytes:
    """The whole body.

    Raises:
        HTTPRejection: (413) It is larger than `limit` bytes; (408) it does not come.
        ClientDisconnected: The client hung up.
    """
    try:
        return await read_body(receive, limit, BODY_SECONDS)
    except BodyRejected as rejected:
        if rejected.status == 413:
            sentence, code = f"the body is larger than {limit >> 20} MB ({advice})", "too_large"
        else:
            late = f"the body did not come within {BODY_SECONDS:g} s, or nothing of it for {STALLED_SECONDS:g} s"
            sentence, code = late, "slow"
        raise HTTPRejection(rejected.status, sentence, code) from None


async def answer(send: Send, status: int, body: bytes, headers: Sequence[Header]) -> None:
    """An answer in one piece."""
    said = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": said})
    await send({"type": "http.response.body", "body": body})


async def answer_json(send: Send, data: Any, status: int = 200, headers: Sequence[Header] = ()) -> None:
    await answer(send, status, json.dumps(data).encode(), [(b"content-type", b"application/json"), *headers])


async def answer_refusal(send: Send, refused: HTTPRejection, headers: Sequence[Header] = ()) -> None:
    """In the form in which the client's SDK looks for an error."""
    more = [*headers]
    if refused.retry_after is not None:
        more.append((b"retry-after", str(ceil(refused.retry_after)).encode()))
    if refused.status in (408, 413):
        # What is left of the body would be read as the next request.
        more.append((b"connection", b"close"))
    await answer_json(send, problem(refused.api, refused.status, str(refused), refused.code), refused.status, more)


def problem(api: Api, status: int, said: str, code: str) -> dict[str, Any]:
    said = f"journeyman: {said}"
    if api == "anthropic":
        kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large"}
        kind = kinds.get(status, "invalid_request_error" if status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": said}}
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": said, "type": kind, "param": None, "code": code}}
