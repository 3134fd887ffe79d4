"""Which server is asked, in which order, and whose key it is sent."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from journeyman.core.errors import InputError
from journeyman.experiments.settings import OFFICIAL, Address, Api, UpstreamSettings

# Leaves a server alone that keeps failing.


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"
    """Time to try: one request may."""


class Breaker:
    """Opens after failures in a row; after a while one request tries, and what comes of it decides."""

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float]) -> None:
        """`failures` 0 never opens it."""
        self._most = failures
        self._seconds = seconds
        self._clock = clock
        self._failures = 0
        self._opened_at: float | None = None
        self._probing = False

    @property
    def state(self) -> BreakerState:
        if self._opened_at is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self.wait > 0 else BreakerState.HALF_OPEN

    @property
    def wait(self) -> float:
        """Seconds until somebody may try; 0 when it is time, or there is nothing to wait for."""
        return 0.0 if self._opened_at is None else max(0.0, self._opened_at + self._seconds - self._clock())

    def enter(self) -> bool:
        """Whether a request may go. Each that goes ends in `succeeded`, `failed` or `left`."""
        if self._opened_at is None:
            return True
        if self.wait > 0 or self._probing:
            return False
        self._probing = True
        return True

    def succeeded(self) -> None:
        self._failures, self._opened_at, self._probing = 0, None, False

    def failed(self) -> None:
        self._failures += 1
        self._probing = False
        if self._most and self._failures >= self._most:
            self._opened_at = self._clock()

    def left(self) -> None:
        """The request ended without a word on the server: the client hung up."""
        self._probing = False


APIS: tuple[Api, ...] = ("openai", "anthropic")
_HOMES = {urlsplit(url).hostname: api for api, url in OFFICIAL.items()}
_ADDRESS: TypeAdapter[str] = TypeAdapter(Address)


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """A server behind the gateway."""

    name: str
    settings: UpstreamSettings
    apis: frozenset[Api]
    key: str | None = field(default=None, repr=False)
    """Ours for it, sent where the client sends none."""
    takes_client_key: bool
    """Whether the client's own key is sent to it when it is the first that a request is meant for."""
    breaker: Breaker = field(compare=False)

    @property
    def base_url(self) -> str:
        return self.settings.base_url

    @property
    def origin(self) -> str:
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc}".lower()

    def gets_client_key(self, first: "Upstream") -> bool:
        """A key was given for the first upstream of a route. One that is asked instead gets it where it is the same server, or
        where the settings say so."""
        if self is first:
            return self.takes_client_key
        return self.settings.client_key is True or (self.settings.client_key is None and self._stands_in(first))

    def _stands_in(self, first: "Upstream") -> bool:
        return self.origin == first.origin and first.takes_client_key

    def keys(self) -> str:
        """Whose key it is sent, in words for the operator."""
        ours = f"the key in {self.settings.key_env}" if self.key else ""
        if self.takes_client_key:
            return f"the client's key, else {ours}" if ours else "the client's key"
        return ours or "no key"

    def target(self, api: Api, path: str, query: str) -> str:
        """The address of `/v1/…` there.

        A client of OpenAI's API is given an address with `/v1`, one of Anthropic's an address without. Either is understood.
        """
        base = self.base_url
        if api == "anthropic":
            base = base.removesuffix("/v1") + "/v1"
        elif not urlsplit(base).path:
            base += "/v1"
        return f"{base}{path.removeprefix('/v1')}{'?' if query else ''}{query}"


def resolve(
    settings: Mapping[str, UpstreamSettings],
    given: Sequence[str] = (),
    order: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> tuple[Upstream, ...]:
    """The upstreams in the order in which they are asked.

    Args:
        settings: As the file has them.
        given: `NAME=URL` or `URL`, as typed. They come first; one that the file knows too keeps its other settings. Who types
            an address means it, so it is sent the client's key.
        order: Names. Those not in it come after.

    Raises:
        InputError: A name is not known, an address is none, or a variable that should hold a key is empty.
    """
    env = os.environ if environment is None else environment
    typed = dict(_typed(text) for text in given)
    known = {name: _with_address(settings.get(name), url) for name, url in typed.items()}
    known |= {name: each for name, each in settings.items() if name not in known}
    if unknown := [name for name in order if name not in known]:
        raise InputError(f"serve.order names {unknown[0]}, and there is no [upstreams.{unknown[0]}]")
    if not known:
        known = {api: UpstreamSettings(base_url=url) for api, url in OFFICIAL.items()}
    names = [*typed, *order, *known]
    return tuple(_made(name, known[name], env, typed=name in typed) for name in dict.fromkeys(names))


def _typed(text: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    if equals and "/" not in name and ":" not in name:
        return name, url
    return "upstream", text


def _with_address(settings: UpstreamSettings | None, url: str) -> UpstreamSettings:
    try:
        checked = _ADDRESS.validate_python(url)
    except ValidationError as error:
        said = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InputError(f"--upstream {url.rpartition('@')[2]}: {said}") from None
    return UpstreamSettings(base_url=checked) if settings is None else replace(settings, base_url=checked)


def _made(name: str, settings: UpstreamSettings, env: Mapping[str, str], *, typed: bool) -> Upstream:
    host = urlsplit(settings.base_url).hostname
    home = _HOMES.get(host)
    key = env.get(settings.key_env, "").strip() if settings.key_env else ""
    if settings.key_env and not key:
        raise InputError(f"the variable {settings.key_env} is empty: put the key of upstream {name} there")
    apis = frozenset(settings.apis or ((home,) if home else APIS))
    takes = settings.client_key if settings.client_key is not None else typed or home is not None
    return Upstream(
        name=name,
        settings=settings,
        apis=apis,
        key=key or None,
        takes_client_key=takes,
        breaker=Breaker(settings.breaker_failures, settings.breaker_seconds, time.monotonic),
    )


class Routes:
    """All upstreams, and which of them serve a request."""

    def __init__(self, upstreams: Iterable[Upstream]) -> None:
        self.all = tuple(upstreams)
        self._by_name = {each.name: each for each in self.all}
        self._speaking = {api: tuple(each for each in self.all if api in each.apis) for api in APIS}
        self._by_model = {api: any(each.settings.models for each in speaking) for api, speaking in self._speaking.items()}
        self._prefixes = [each.name.encode() + slash for each in self.all for slash in (b"/", b"\\/")]

    def speaking(self, api: Api) -> tuple[Upstream, ...]:
        return self._speaking[api]

    def needs_model(self, api: Api, body: bytes) -> bool:
        """Whether it depends on the model who is asked. If not, nobody has to read the body."""
        return self._by_model[api] or any(b'"' + prefix in body for prefix in self._prefixes)

    def named(self, api: Api, model: str) -> Upstream | None:
        """The upstream that a model's name begins with, as in `NAME/MODEL`."""
        found = self._by_name.get(model.partition("/")[0]) if "/" in model else None
        return found if found is not None and api in found.apis else None

    def serving(self, api: Api, model: str | None) -> tuple[Upstream, ...]:
        """Who may be asked for a model, best first: those that name it before those that serve any."""
        speaking = self._speaking[api]
        if model is None or not self._by_model[api]:
            return speaking
        naming = tuple(each for each in speaking if any(fnmatchcase(model, pattern) for pattern in each.settings.models))
        return naming + tuple(each for each in speaking if not each.settings.models)
