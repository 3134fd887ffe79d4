"""`journeyman serve`: record agents by their base URL, take their telemetry, and show what they did."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import say
from journeyman.cli.options import options, provided
from journeyman.cli.shared import cleaner, emit, json_option, options_named, store_option, store_url, tokens_in
from journeyman.core.errors import InputError, MissingExtra, PlaybookError, StoreUnreachable
from journeyman.core.format import counted
from journeyman.core.playbook import Playbook
from journeyman.experiments import settings
from journeyman.experiments.settings import Project, RecordSettings, ServeSettings, Settings
from journeyman.stores.urls import MEMORY, redacted

if TYPE_CHECKING:
    from journeyman.serving.gateway.app import App
    from journeyman.serving.gateway.feedback import FeedbackConfig
    from journeyman.serving.gateway.forwarding import GatewayConfig
    from journeyman.serving.gateway.releases import ReleaseConfig
    from journeyman.serving.ingest.base import Health, Intake
    from journeyman.serving.releases.context import FixedPlaybook, Releases
    from journeyman.serving.watching import MonitorConfig

_OF_PAGES = ("jinja2", "starlette")
"""Loaded when somebody looks."""
NONE = "none"
"""No playbook, whatever the file says."""
_LEARNS = 5.0
"""Seconds between two looks at whether a turn of learning is due."""
_CLOSING = 15.0
"""Seconds for what is still to be stored, when the server stops; the rest is spilled, and stored at the next start."""


_upstream_option = click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    metavar="[NAME=]URL",
    help="A model server to pass calls on to; the next is asked when one fails. May be given again.",
)


@click.command()
@options(ServeSettings, only=("host", "port"))
@store_option
@_upstream_option
@options(ServeSettings, only=("token_env", "playbook"))
@options(
    RecordSettings,
    only=("content", "durable"),
    helps={
        "content": "Keep only shapes and numbers, not what was said.",
        "durable": "Pass an answer's end on only when its record is on disk.",
    },
)
@options(
    ServeSettings,
    only=("record", "pages", "who"),
    helps={"record": "Keep nothing: only pass on.", "pages": "Without the pages."},
)
@json_option
def command(as_json: bool, store: str | None, upstreams: tuple[str, ...], **given: Any) -> None:
    """Pass model calls on and record them, take OpenTelemetry, and show pages, until told to stop.

    Point an agent here by its base URL alone; it keeps its own key, which is passed on and never kept. Without a file or
    --upstream, calls go to OpenAI and Anthropic. With --json, one line when it is ready.

    \b
    Examples:
      journeyman serve
      journeyman serve --upstream http://127.0.0.1:11434/v1
      journeyman serve --playbook playbooks/oslo.json
      journeyman serve --host 0.0.0.0 --token-env GATEWAY_TOKEN
    """
    typed, project = provided(given), settings.load()
    with options_named():
        serving = settings.configured(ServeSettings, ServeSettings.known(typed), project)
        record = settings.configured(RecordSettings, RecordSettings.known(typed), project)
    if serving.playbook not in ("", NONE) and "playbook" not in typed:
        # As other paths in it, it starts at the folder of the file.
        serving = replace(serving, playbook=str(project.root / serving.playbook))
    _serve(project, serving, record, store_url(store), upstreams, as_json=as_json)
    say("journeyman: stopped")


@click.command("up")
@options(ServeSettings, only=("host", "port", "token_env"))
@store_option
@_upstream_option
@json_option
def up(as_json: bool, store: str | None, upstreams: tuple[str, ...], **given: Any) -> None:
    """Serve, watch, learn and release, until told to stop: all that journeyman.toml says, in one command.

    It is the gateway with its pages (`journeyman serve`), the monitor that decides what becomes of rollouts and tells of what
    goes wrong, and the learner (`journeyman learn`). `journeyman init` writes the file with every setting in it. Nothing of
    what is learned is served unless [learn] says release = "canary".

    \b
    Examples:
      journeyman up
      journeyman up --upstream http://127.0.0.1:11434/v1
      journeyman up --host 0.0.0.0 --token-env GATEWAY_TOKEN
    """
    typed, project, url = provided(given), settings.load(), store_url(store)
    if url == MEMORY:
        raise InputError("what is learned is kept in a store: name one with --store that lasts longer than this process")
    with options_named():
        serving = settings.configured(ServeSettings, {**ServeSettings.known(typed), "learn": True, "monitor": True}, project)
    learning = project.settings.learn
    fate = (
        "brings what passes to live traffic" if learning.release == "canary" else "keeps what passes, and serves it to nobody"
    )
    say(
        f"journeyman: {project.file or 'no journeyman.toml here, so every setting has its default'}",
        f"  learns {', '.join(learning.kinds)} every {learning.every} from {counted(learning.min_new, 'new trace')} on; {fate}",
    )
    _serve(project, serving, project.settings.record, url, upstreams, as_json=as_json)
    say("journeyman: stopped")


def _serve(
    project: Project,
    serving: ServeSettings,
    record: RecordSettings,
    store: str,
    upstreams: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Serve until told to stop.

    Raises:
        InputError: The settings cannot be meant, the port is taken, or others could come without a token.
    """
    from journeyman.io.http_server import is_loopback, listen, url_of

    try:
        from journeyman.serving.gateway.app import serve
        from journeyman.serving.gateway.cascade import AnswerCheck
        from journeyman.serving.gateway.forwarding import GatewayConfig
        from journeyman.serving.gateway.upstreams import resolve
    except ModuleNotFoundError as error:
        raise MissingExtra(f"the gateway needs {error.name}: pip install 'journeyman[serve]'") from error

    tokens = tokens_in(serving.token_env) if serving.token_env else ()
    if not tokens and not is_loopback(serving.host):
        raise InputError(
            f"{serving.host} can be reached by others, who could use your keys and read your traces: name --token-env"
        )
    gateway = GatewayConfig(
        upstreams=resolve(project.settings.upstreams, upstreams, serving.order),
        tokens=tokens,
        request_limit=serving.max_request_mb << 20,
        record_limit=serving.max_record_mb << 20,
        durable=record.durable,
        check=AnswerCheck(serving.escalate) if serving.escalate else None,
        feedback=_feedback(project, serving, record, store) if serving.record else None,
    )
    told = replace(project.settings, serve=serving, record=record)
    watched = _watched(project, serving, store) if serving.monitor and store != MEMORY else None
    with (
        listen(serving.host, serving.port) as bound,
        _releases(project, serving, store) as releases,
        _beside("monitor", store, serving.monitor_seconds) if watched is not None and not serving.record else nullcontext(),
        _beside("learn", store, _LEARNS) if serving.learn and store != MEMORY else nullcontext(),
        _intake(store, project.folder / "spill", record, watched) if serving.record else nullcontext() as intake,
        _pages(project, told, store, gateway, intake, releases) if serving.pages else nullcontext() as pages,
    ):
        gateway = replace(gateway, releases=releases, control=_control(serving, store, releases))
        serve(
            gateway,
            bound,
            intake=intake,
            pages=pages,
            ready=lambda: _show(serving, url_of(bound), gateway, redacted(store), as_json=as_json),
            drain_seconds=serving.drain_seconds,
        )


def _feedback(project: Project, serving: ServeSettings, record: RecordSettings, store: str) -> "FeedbackConfig":
    """
    Raises:
        InputError: The variable of its tokens is not set.
    """
    from journeyman.serving.gateway.feedback import FeedbackConfig

    return FeedbackConfig(
        store_url=store,
        spill=project.folder / "spill" / "feedback",
        tokens=tokens_in(serving.feedback_token_env, "serve.feedback_token_env") if serving.feedback_token_env else (),
        per_minute=serving.feedback_per_minute,
        clean=cleaner(record),
        scheme=project.settings.labels.scheme,
    )


def _control(serving: ServeSettings, store: str, releases: "Releases | None") -> "ReleaseConfig | None":
    """Where what is served is what is released.

    Raises:
        InputError: The variable of its tokens is not set.
    """
    from journeyman.serving.gateway.releases import ReleaseConfig
    from journeyman.serving.releases.live import LiveContext

    tokens = _release_tokens(serving)
    if not isinstance(releases, LiveContext):
        return None
    return ReleaseConfig(store_url=store, tokens=tokens, refresh=releases.refresh)


def _release_tokens(serving: ServeSettings) -> tuple[str, ...]:
    """Of those who may change what is released, over HTTP and on a page."""
    name = serving.release_token_env
    return tokens_in(name, "serve.release_token_env") if name else ()


@contextmanager
def _releases(project: Project, serving: ServeSettings, store: str) -> "Iterator[Releases | None]":
    """What says what is put into requests: a playbook that was named, else what is released in the store."""
    if serving.playbook not in ("", NONE):
        yield _fixed(serving.playbook, project.settings)
    elif not serving.releases or store == MEMORY:
        yield None
    else:
        from journeyman.serving.releases.artifacts import CandidateLoader
        from journeyman.serving.releases.live import LiveContext

        loader = CandidateLoader(project, serving.explore)
        live = LiveContext(store, project.folder / "releases", loader.load, auto=serving.auto_model)
        try:
            yield live
        finally:
            live.close()


def _watched(project: Project, serving: ServeSettings, store: str) -> "MonitorConfig":
    from journeyman.serving.watching import MonitorConfig

    return MonitorConfig(
        url=store,
        folder=project.folder,
        alerts=project.settings.alerts,
        upstreams=project.settings.upstreams,
        every=serving.monitor_seconds,
    )


@contextmanager
def _beside(what: str, store: str, every: float) -> Iterator[None]:
    """A process of its own that decides what becomes of rollouts where nothing is recorded, or that learns; it ends with this
    one, however that ends."""
    over = threading.Event()
    # Not on the command line, which everybody can read: the URL may hold a password.
    environment = {**os.environ, "JOURNEYMAN_STORE": store}
    words = {"learn": ("learn", "start"), "monitor": ("monitor",)}[what]

    def watch() -> None:
        process: subprocess.Popen[bytes] | None = None
        while not over.wait(1.0):
            if process is None or process.poll() is not None:
                command = [sys.executable, "-m", "journeyman", *words, "--with-parent", "--every", f"{every:g}"]
                process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, process_group=0)
        if process is not None and process.stdin is not None:
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_CLOSING)
            if process.poll() is None:
                process.kill()
                process.wait()

    thread = threading.Thread(target=watch, name=what)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _fixed(name: str, project: Settings) -> "FixedPlaybook":
    """The playbook that is put into chats, read once.

    Raises:
        InputError: It is not there, no playbook, or empty.
    """
    from journeyman.serving.releases.context import FixedPlaybook

    try:
        playbook = Playbook.load(name)
    except PlaybookError as error:
        raise InputError(f"--playbook: {error}") from error
    served = FixedPlaybook.configured(playbook, project, name)
    say(*(f"journeyman: {each}" for each in served.too_long()))
    return served


@contextmanager
def _pages(
    project: Project,
    told: Settings,
    store_url: str,
    gateway: "GatewayConfig",
    intake: "Intake | None",
    releases: "Releases | None",
) -> "Iterator[App]":
    from journeyman.serving.gateway.app import application, when_asked
    from journeyman.stores import make_ready
    from journeyman.stores.traces import open_traces

    if missing := [name for name in _OF_PAGES if find_spec(name) is None]:
        raise MissingExtra(f"the pages need {missing[0]}: pip install 'journeyman[serve]', or serve with --no-pages")
    try:
        make_ready(store_url)
    except StoreUnreachable as error:
        say(f"journeyman: {error}", "journeyman: what is recorded waits until it answers, and what was released last is served")
    asked = {each.name: replace(each.settings, apis=tuple(sorted(each.apis))) for each in gateway.upstreams}
    fixed = releases.state() if releases is not None and told.serve.playbook not in ("", NONE) else None
    with ExitStack() as opened:

        def pages() -> "App":
            from journeyman.experiments.playground import ReplayServers
            from journeyman.serving.dashboard import routes
            from journeyman.serving.dashboard.experiments import ProjectStores
            from journeyman.serving.dashboard.layout import Guard
            from journeyman.serving.dashboard.trace_page import LabelRules

            store = opened.enter_context(open_traces(store_url))
            stores = ProjectStores(
                store_url,
                release_tokens=_release_tokens(told.serve),
                folder=project.root,
                alerts=told.alerts,
                health=intake.health if intake is not None else None,
                fixed=fixed,
            )
            who = told.serve.who or settings.person() or "me"
            servers = ReplayServers(settings=told, servers=asked)
            labels = LabelRules(scheme=told.labels.scheme, clean=cleaner(told.record))
            return application(
                routes(store, who=who, guard=Guard(gateway.tokens), project=stores, labels=labels, servers=servers)
            )

        yield when_asked(pages)


@contextmanager
def _intake(store_url: str, spill: Path, record: RecordSettings, watched: "MonitorConfig | None") -> "Iterator[Intake]":
    """In a process of its own, with the monitor in it."""
    from journeyman.serving.ingest.factory import open_apart

    intake = open_apart(store_url, spill, record, watched)
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


def _show(serving: ServeSettings, url: str, gateway: "GatewayConfig", store: str, *, as_json: bool) -> None:
    upstreams = gateway.upstreams
    say(f"journeyman: serving at {url}", "")
    say(*(f"  {each.name}: {each.base_url} ({', '.join(sorted(each.apis))}; is sent {each.keys()})" for each in upstreams))
    served = gateway.releases.state() if gateway.releases is not None else None
    if served is not None and "playbook" in served:
        bullets = ", ".join(f"{counted(count, 'bullet')} of {domain}" for domain, count in served["bullets"].items())
        say(f"  puts in {served['playbook']}: {bullets} (candidate {served['candidate']})")
        if served["usual_domain"] not in served["bullets"]:
            say("  chats must name their domain for it: X-Journeyman-Domain")
    say("", f"  OPENAI_BASE_URL={url}/v1", f"  ANTHROPIC_BASE_URL={url}")
    if serving.record:
        say(f"  OTEL_EXPORTER_OTLP_ENDPOINT={url}", f"  recorded in {store}")
    if serving.pages:
        say(f"  look at it: {url}/")
    servers = [{"name": each.name, "base_url": each.base_url, "apis": sorted(each.apis)} for each in upstreams]
    addresses = {"url": url, "openai_base_url": f"{url}/v1", "anthropic_base_url": url}
    more = {} if served is None else {"releases": served}
    emit({**addresses, "upstreams": servers, "store": store, **more}, as_json=as_json)
