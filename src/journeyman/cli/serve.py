"""`journeyman serve`: record agents by their base URL, take their telemetry, and show what they did."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import say
from journeyman.cli.shared import emit, json_option, store_option, tokens_in
from journeyman.core.errors import InputError, MissingExtra
from journeyman.stores.urls import as_url, redacted

if TYPE_CHECKING:
    from journeyman.experiments.settings import Project
    from journeyman.serving.gateway.app import App
    from journeyman.serving.gateway.upstreams import Upstream
    from journeyman.serving.ingest.base import Health, Intake

_OF_PAGES = ("jinja2", "starlette")
"""Loaded when somebody looks."""
_CLOSING = 15.0
"""Seconds for what is still to be stored, when the server stops; the rest is spilled, and stored at the next start."""


@click.command()
@click.option("--host", metavar="ADDRESS", help="The address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="Where to listen; 0 is any free one.  [default: 4000]")
@store_option
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    metavar="[NAME=]URL",
    help="A model server to pass calls on to; the next is asked when one fails. May be given again.",
)
@click.option(
    "--token-env",
    metavar="VAR",
    help="The environment variable that holds the token of those who may come; several with blanks between.",
)
@click.option("--no-content", is_flag=True, help="Keep only shapes and numbers, not what was said.")
@click.option("--no-record", is_flag=True, help="Keep nothing: only pass on.")
@click.option("--no-pages", is_flag=True, help="Without the pages.")
@click.option("--who", metavar="NAME", help="Whose word a label given on a page is.  [default: you, by your login]")
@json_option
def command(as_json: bool, **given: Any) -> None:
    """Pass model calls on and record them, take OpenTelemetry, and show pages, until told to stop.

    Point an agent here by its base URL alone; it keeps its own key, which is passed on and never kept. Without a file or
    --upstream, calls go to OpenAI and Anthropic. With --json, one line when it is ready.

    \b
    Examples:
      journeyman serve
      journeyman serve --upstream http://127.0.0.1:11434/v1
      journeyman serve --host 0.0.0.0 --token-env GATEWAY_TOKEN
    """
    _serve(given, as_json=as_json)
    say("journeyman: stopped")


def _serve(given: Mapping[str, Any], *, as_json: bool) -> None:
    """Serve until told to stop.

    Raises:
        InputError: The settings cannot be meant, the port is taken, or others could come without a token.
    """
    from journeyman.experiments import settings
    from journeyman.io.http_server import is_loopback, listen, url_of

    try:
        from journeyman.serving.gateway.app import GatewayConfig, serve
        from journeyman.serving.gateway.upstreams import resolve
    except ModuleNotFoundError as error:
        raise MissingExtra(f"the gateway needs {error.name}: pip install 'journeyman[serve]'") from error

    project = settings.load()
    serving = project.settings.serve
    host, port = given["host"] or serving.host, serving.port if given["port"] is None else given["port"]
    variable = given["token_env"] or serving.token_env
    tokens = tokens_in(variable) if variable else ()
    if not tokens and not is_loopback(host):
        raise InputError(f"{host} can be reached by others, who could use your keys and read your traces: name --token-env")
    upstreams = resolve(project.settings.upstreams, given["upstreams"], serving.order)
    gateway = GatewayConfig(
        upstreams=upstreams,
        tokens=tokens,
        request_limit=serving.max_request_mb << 20,
        record_limit=serving.max_record_mb << 20,
    )
    store_url = project.store_url if given["store"] is None else as_url(given["store"])
    with (
        listen(host, port) as bound,
        _pages(given, store_url, tokens) as pages,
        _intake(given, project, store_url) as intake,
    ):
        serve(
            gateway,
            bound,
            intake=intake,
            pages=pages,
            ready=lambda: _show(given, url_of(bound), upstreams, redacted(store_url), as_json=as_json),
            drain_seconds=serving.drain_seconds,
        )


@contextmanager
def _pages(given: Mapping[str, Any], store_url: str, tokens: tuple[str, ...]) -> "Iterator[App | None]":
    from journeyman.experiments import settings
    from journeyman.serving.gateway.app import application, when_asked
    from journeyman.stores import make_ready
    from journeyman.stores.traces import open_traces

    if given["no_pages"]:
        yield None
        return
    if missing := [name for name in _OF_PAGES if find_spec(name) is None]:
        raise MissingExtra(f"the pages need {missing[0]}: pip install 'journeyman[serve]', or serve with --no-pages")
    make_ready(store_url)
    with ExitStack() as opened:

        def pages() -> "App":
            from journeyman.serving.dashboard import routes
            from journeyman.serving.dashboard.layout import Guard

            store = opened.enter_context(open_traces(store_url))
            return application(routes(store, who=given["who"] or settings.person() or "me", guard=Guard(tokens)))

        yield when_asked(pages)


@contextmanager
def _intake(given: Mapping[str, Any], project: "Project", store_url: str) -> "Iterator[Intake | None]":
    from journeyman.serving.ingest.factory import open_apart

    if given["no_record"]:
        yield None
        return
    record = project.settings.record
    record = replace(record, content=record.content and not given["no_content"])
    intake = open_apart(store_url, project.folder / "spill", record)
    try:
        yield intake
    finally:
        intake.close(_CLOSING)
        _show_rest(intake.health())


def _show_rest(health: "Health") -> None:
    """What did not go into the store until the end."""
    if health.spilled:
        say(f"journeyman: {health.spilled} records wait in the spill file, and are stored at the next start")
    if health.dropped:
        say(f"journeyman: {health.dropped} records were lost: memory and the spill file were full")


def _show(given: Mapping[str, Any], url: str, upstreams: "Sequence[Upstream]", store: str, *, as_json: bool) -> None:
    say(f"journeyman: serving at {url}", "")
    say(*(f"  {each.name}: {each.base_url} ({', '.join(sorted(each.apis))}; is sent {each.keys()})" for each in upstreams))
    say("", f"  OPENAI_BASE_URL={url}/v1", f"  ANTHROPIC_BASE_URL={url}")
    if not given["no_record"]:
        say(f"  OTEL_EXPORTER_OTLP_ENDPOINT={url}", f"  recorded in {store}")
    if not given["no_pages"]:
        say(f"  look at it: {url}/")
    servers = [{"name": each.name, "base_url": each.base_url, "apis": sorted(each.apis)} for each in upstreams]
    addresses = {"url": url, "openai_base_url": f"{url}/v1", "anthropic_base_url": url}
    emit({**addresses, "upstreams": servers, "store": store}, as_json=as_json)
