"""What `journeyman serve` does."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec

import click

from journeyman.cli.shared import emit, tokens_in
from journeyman.core.errors import InputError, MissingExtra
from journeyman.experiments import settings as config
from journeyman.experiments.settings import Project
from journeyman.io.http_server import is_loopback, listen, url_of
from journeyman.stores.urls import as_url, redacted

try:
    from journeyman.serving.gateway.app import App, GatewayConfig, application, when_asked
    from journeyman.serving.gateway.app import serve as serve_until_told
    from journeyman.serving.gateway.upstreams import Upstream, resolve
    from journeyman.serving.ingest.base import Health, Intake
    from journeyman.serving.ingest.factory import open_apart
    from journeyman.stores import make_ready
    from journeyman.stores.traces import open_traces
except ModuleNotFoundError as error:
    raise MissingExtra(f"the gateway needs {error.name}: pip install 'journeyman[serve]'") from error

_OF_PAGES = ("jinja2", "starlette")
"""Loaded when somebody looks."""

_CLOSING = 15.0
"""Seconds for what is still to be stored, when the server stops; the rest is spilled, and stored at the next start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """The options as they were typed; `None` is what the settings say."""

    host: str | None
    port: int | None
    store: str | None
    upstreams: Sequence[str]
    token_env: str | None
    no_content: bool
    no_record: bool
    no_pages: bool
    who: str | None

    def store_url(self, project: Project) -> str:
        return project.store_url if self.store is None else as_url(self.store)


def serve(wish: GatewayOptions, *, as_json: bool) -> None:
    """Serve until told to stop.

    Raises:
        InputError: The settings cannot be meant, the port is taken, or others could come without a token.
    """
    project = config.load()
    settings = project.settings.serve
    host = wish.host or settings.host
    variable = wish.token_env or settings.token_env
    tokens = tokens_in(variable) if variable else ()
    if not tokens and not is_loopback(host):
        raise InputError(f"{host} can be reached by others, who could use your keys and read your traces: name --token-env")
    upstreams = resolve(project.settings.upstreams, wish.upstreams, settings.order)
    gateway = GatewayConfig(
        upstreams=upstreams,
        tokens=tokens,
        request_limit=settings.max_request_mb << 20,
        record_limit=settings.max_record_mb << 20,
    )
    store_url = wish.store_url(project)
    with (
        listen(host, settings.port if wish.port is None else wish.port) as bound,
        _pages(wish, store_url, tokens) as pages,
        _intake(wish, project, store_url) as intake,
    ):
        serve_until_told(
            gateway,
            bound,
            intake=intake,
            pages=pages,
            ready=lambda: _tell(wish, bound, upstreams, store_url, as_json=as_json),
            drain_seconds=settings.drain_seconds,
        )
    click.echo("journeyman: stopped", err=True)


@contextmanager
def _pages(wish: GatewayOptions, store_url: str, tokens: tuple[str, ...]) -> Iterator[App | None]:
    if wish.no_pages:
        yield None
        return
    if missing := [name for name in _OF_PAGES if find_spec(name) is None]:
        raise MissingExtra(f"the pages need {missing[0]}: pip install 'journeyman[serve]', or serve with --no-pages")
    make_ready(store_url)
    with ExitStack() as opened:

        def pages() -> App:
            from journeyman.serving.dashboard import Guard, routes

            store = opened.enter_context(open_traces(store_url))
            return application(routes(store, who=wish.who or config.person() or "me", guard=Guard(tokens)))

        yield when_asked(pages)


@contextmanager
def _intake(wish: GatewayOptions, project: Project, store_url: str) -> Iterator[Intake | None]:
    if wish.no_record:
        yield None
        return
    kept = project.settings.record
    intake = open_apart(store_url, project.folder / "spill", replace(kept, content=kept.content and not wish.no_content))
    try:
        yield intake
    finally:
        intake.close(_CLOSING)
        _tell_rest(intake.health())


def _tell_rest(health: Health) -> None:
    """What did not go into the store until the end."""
    if health.spilled:
        click.echo(f"journeyman: {health.spilled} records wait in the spill file, and are stored at the next start", err=True)
    if health.dropped:
        click.echo(f"journeyman: {health.dropped} records were lost: memory and the spill file were full", err=True)


def _tell(wish: GatewayOptions, bound: socket.socket, upstreams: Sequence[Upstream], store_url: str, *, as_json: bool) -> None:
    url = url_of(bound)
    said = [f"journeyman: serving at {url}", ""]
    said += [f"  {each.name}: {each.base_url} ({', '.join(sorted(each.apis))}; is sent {each.keys()})" for each in upstreams]
    said += ["", f"  OPENAI_BASE_URL={url}/v1", f"  ANTHROPIC_BASE_URL={url}"]
    if not wish.no_record:
        said += [f"  OTEL_EXPORTER_OTLP_ENDPOINT={url}", f"  recorded in {redacted(store_url)}"]
    if not wish.no_pages:
        said.append(f"  look at it: {url}/")
    click.echo("\n".join(said), err=True)
    listed = [{"name": each.name, "base_url": each.base_url, "apis": sorted(each.apis)} for each in upstreams]
    emit(
        {
            "url": url,
            "openai_base_url": f"{url}/v1",
            "anthropic_base_url": url,
            "upstreams": listed,
            "store": redacted(store_url),
        },
        as_json=as_json,
    )
