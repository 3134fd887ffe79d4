"""What `journeyman sandbox serve` does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from journeyman.cli._sandboxing import limits_of, opened
from journeyman.cli._shared import emit
from journeyman.cli._tokens import tokens_in
from journeyman.errors import InputError, MissingExtra
from journeyman.io.http_server import is_loopback, listen, url_of
from journeyman.sandbox.base import Level
from journeyman.sandbox.service.config import MOST, ServiceConfig

try:
    from journeyman.sandbox.service.serve import serve as serve_until_told
except ModuleNotFoundError as error:
    raise MissingExtra(f"the code service needs {error.name}: pip install 'journeyman[service]'") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The options as they were typed; `None` is the service's own default."""

    port: int
    host: str
    concurrency: int | None
    queue: int | None
    per_client: int | None
    sessions: int | None
    idle_seconds: float | None
    tool_seconds: float | None
    max_request: int | None
    max_limits: Sequence[str]
    callback_hosts: Sequence[str]
    token_env: str | None
    allow_anyone: bool
    name: str

    def config(self) -> ServiceConfig:
        """Raises `InputError` for what cannot be meant, or is not safe."""
        asked: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("concurrency", "queue", "per_client", "sessions", "idle_seconds", "tool_seconds", "max_request")
            if getattr(self, name) is not None
        }
        tokens = tokens_in(self.token_env) if self.token_env else ()
        if not tokens and not self.allow_anyone and not is_loopback(self.host):
            raise InputError(
                f"{self.host} can be reached by others, who could run code here: name a token with --token-env, or say "
                "--allow-anyone"
            )
        return ServiceConfig(
            **asked,
            tokens=tokens,
            most=limits_of(self.max_limits, MOST, option="--max-limit"),
            callback_hosts=frozenset(map(place, self.callback_hosts)),
        )


def serve(wish: Wish, *, as_json: bool) -> None:
    """Serve until told to stop."""
    config = wish.config()
    bound = listen(wish.host, wish.port)
    url = url_of(bound)

    def ready(level: Level) -> None:
        click.echo(f"journeyman: code runs at {url} (walls: {level})", err=True)
        emit({"url": url, "level": {"name": level.name, "holds": level.holds, "lacks": level.lacks}}, as_json=as_json)

    serve_until_told(lambda: opened(wish.name), config, bound, ready)


def place(text: str) -> str:
    """`host:port`, as callbacks are compared."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise InputError(f"--callback-host {text}: should be host:port, such as tools.example.org:443")
    return f"{host.lower()}:{int(port)}"
