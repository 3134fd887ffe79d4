"""What `journeyman.toml` says of the gateway: where it listens, and which servers stand behind it."""

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field

from journeyman.io.http_server import is_loopback

Api = Literal["openai", "anthropic"]
OFFICIAL: dict[Api, str] = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
"""The servers that are meant when none is named."""
_OWNERS = {"OPENAI_API_KEY": "api.openai.com", "ANTHROPIC_API_KEY": "api.anthropic.com"}
"""Variables that hold a key for one server, whatever else the file says."""

_STRICT = ConfigDict(extra="forbid", strict=True)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Variable = Annotated[str, Field(pattern=r"^([A-Za-z_]\w*)?$")]


def _address(url: str) -> str:
    """An address without credentials: they would stand in a file, and in what is shown."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port)
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or not url.isascii() or re.search(r"\s", url):
        raise ValueError("should be an address such as https://llm.example.org/v1")
    if parts.username is not None or parts.password is not None:
        raise ValueError("an address holds no credentials: put the key into a variable, and its name into key_env")
    return url.rstrip("/")


Address = Annotated[str, AfterValidator(_address)]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings:
    """A model server behind the gateway, `[upstreams.NAME]`."""

    base_url: Address
    """As a client of it would be given: with `/v1` for OpenAI's API."""
    apis: tuple[Api, ...] = ()
    """What it speaks: `openai`, `anthropic` or both. Empty for what its address says, else both."""
    models: tuple[str, ...] = ()
    """Which models it serves, as `gpt-*`. Empty for any."""
    key_env: Variable = ""
    """The variable whose value is its key, sent where the client sends none. Empty for none."""
    client_key: bool | None = None
    """Whether it is sent the client's own key. Unless this is said, only the API's own maker is, when it is asked first."""
    connect_seconds: Seconds = 10.0
    first_byte_seconds: Seconds = 600.0
    """Until an answer begins."""
    idle_seconds: Seconds = 300.0
    """Between two pieces of an answer."""
    total_seconds: Seconds = 3600.0
    retries: Annotated[int, Field(ge=0, le=10)] = 1
    """Asked again so often when it cannot be reached, is busy (429) or fails (5xx), as long as nothing of an answer was passed
    on."""
    breaker_failures: Annotated[int, Field(ge=0)] = 5
    """After so many failures in a row it is left alone; 0 for never."""
    breaker_seconds: Seconds = 15.0
    """For so long; then one request tries."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


def _keeps_keys_home(upstream: UpstreamSettings) -> UpstreamSettings:
    host = urlsplit(upstream.base_url).hostname or ""
    owner = _OWNERS.get(upstream.key_env)
    if owner and host != owner and not is_loopback(host):
        # The file may have come with somebody's data.
        raise ValueError(
            f"sends {upstream.key_env}, the key of {owner}, to {host}: put that server's key into a variable of its own"
        )
    return upstream


def _named(upstreams: dict[str, UpstreamSettings]) -> dict[str, UpstreamSettings]:
    for name in upstreams:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name for an upstream: use letters, digits, - _ and .")
    return upstreams


Upstreams = Annotated[dict[str, Annotated[UpstreamSettings, AfterValidator(_keeps_keys_home)]], AfterValidator(_named)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """How `journeyman serve` serves."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 4000
    token_env: Variable = ""
    """The variable that holds the tokens of those who may come; needed for a host that others can reach."""
    order: tuple[str, ...] = ()
    """Upstreams in the order in which they are asked; those not named come after. Empty for the order of the file."""
    max_request_mb: Annotated[int, Field(ge=1, le=4096)] = 64
    """The largest body that is taken."""
    max_record_mb: Annotated[int, Field(ge=1, le=1024)] = 32
    """How much of one answer is kept. More flows, and the record says that it is cut."""
    drain_seconds: Seconds = 30.0
    """How long running answers may take to end when the server is told to stop."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSettings:
    """What is kept of what is watched."""

    content: bool = True
    """Whether what was said is kept; else only shapes and numbers."""
    redact: tuple[str, ...] = ()
    """Regular expressions of what must not be kept, beside keys and tokens, which never are."""
    buffer_mb: Annotated[int, Field(ge=1, le=4096)] = 64
    """Memory for what waits while the store is slow."""
    spill_mb: Annotated[int, Field(ge=0, le=1_000_000)] = 512
    """Disk for what waits longer, in the project's folder. What finds no room there either is dropped, and counted."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
