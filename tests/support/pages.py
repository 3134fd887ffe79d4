"""The pages over a store, as a test visits them."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from starlette.applications import Starlette
from starlette.testclient import TestClient

from journeyman.experiments.playground import ReplayServers
from journeyman.io.http_server import listen, url_of
from journeyman.serving.dashboard import routes
from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.serving.dashboard.layout import Guard
from journeyman.serving.dashboard.trace_page import LabelRules
from journeyman.stores.traces.base import TraceStore

WHO = "ana"
Serve = Callable[..., str]
"""Takes a store, the tokens of its pages, and a project where there is one; gives the address."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """A browser without a face."""

    client: TestClient

    def read(self, path: str, status: int = 200) -> str:
        """The page, as a browser asks for it."""
        answer = self.client.get(path, headers={"accept": "text/html"})
        assert answer.status_code == status, answer.text
        return answer.text

    def send(
        self, path: str, *, fragment: bool = False, headers: dict[str, str] | None = None, **fields: str
    ) -> tuple[int, str]:
        """Send a form with the token that stands in every page; the status and what came."""
        asked = {"accept": "text/html", "sec-fetch-site": "same-origin", **({"hx-request": "true"} if fragment else {})}
        answer = self.client.post(path, data=fields, headers=asked | (headers or {}), follow_redirects=False)
        return answer.status_code, answer.text


def visitor(
    store: TraceStore,
    guard: Guard | None = None,
    *,
    base: str = "http://localhost:8000",
    project: ProjectStores | None = None,
    labels: LabelRules | None = None,
    servers: ReplayServers | None = None,
) -> Visitor:
    app = Starlette(routes=routes(store, who=WHO, guard=guard, project=project, labels=labels, servers=servers))
    return Visitor(TestClient(app, base_url=base, follow_redirects=False))


@contextmanager
def servers() -> Iterator[Serve]:
    """What serves the pages on a port of loopback, and gives the address."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(
        store: TraceStore,
        tokens: Sequence[str] = (),
        project: ProjectStores | None = None,
        labels: LabelRules | None = None,
    ) -> str:
        bound = listen("127.0.0.1", 0)
        app = Starlette(routes=routes(store, who=WHO, guard=Guard(tokens), project=project, labels=labels))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        running.append((server, thread))
        until = time.monotonic() + 20
        while not server.started and time.monotonic() < until:
            time.sleep(0.01)
        assert server.started
        return url_of(bound)

    try:
        yield start
    finally:
        for server, thread in running:
            server.should_exit = True
            thread.join(timeout=10)
