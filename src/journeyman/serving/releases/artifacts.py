"""What a candidate becomes where it is served: a text for requests, who chooses their model, or a model that answers them."""

import asyncio
import logging
import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from journeyman.agents.splice import RequestBody
from journeyman.core.candidate import Candidate, Kind, ServedModel
from journeyman.core.errors import InputError, ModelError, ModelRefused, ReleaseError
from journeyman.core.policy import Choice
from journeyman.experiments.settings import Project, UpstreamSettings
from journeyman.io.files import sha256
from journeyman.serving.releases.context import UNITS, FixedPlaybook

if TYPE_CHECKING:
    from journeyman.optimizers.weights.ollama import OllamaDeployer
    from journeyman.serving.router import Router

_log = logging.getLogger(__name__)


class ModelRoute:
    """Chooses who answers a request, by a policy. What a session was answered by before counts: another model would have to
    read all of it again."""

    def __init__(self, candidate_id: str, router: "Router") -> None:
        self.candidate_id = candidate_id
        self._router = router
        self._last: OrderedDict[str, tuple[str, float]] = OrderedDict()

    async def choose(self, session: str, domain: str | None, body: RequestBody) -> Choice:
        """
        Raises:
            InputError: Nobody may be asked.
        """
        from journeyman.serving.router import RoutingSession

        last = self._last.get(session)
        stands = None
        if last is not None:
            stands = RoutingSession(tokens=body.tokens, worker=last[0], idle=time.monotonic() - last[1])
        choice = await asyncio.to_thread(self._router.route, body.question, type=domain or "general", session=stands)
        self._last[session] = choice.worker, time.monotonic()
        self._last.move_to_end(session)
        if len(self._last) > UNITS:
            self._last.popitem(last=False)
        # A session has one policy, and the candidate is known by its own id.
        return replace(choice, policy=self.candidate_id)


def address_of(worker: str) -> tuple[str, str]:
    """Of a model's name as it is typed after `--model`, what a server is asked for, and the server's address where the name has
    it."""
    from journeyman.models import OVER_HTTP, parse

    named = parse(worker)
    return (named.rest, named.base_url or "") if named.kind in OVER_HTTP else (worker, "")


Servable = FixedPlaybook | ModelRoute | ServedModel


class CandidateLoader:
    """Makes of candidates what serves them."""

    def __init__(self, project: Project, explore: float = 0.0) -> None:
        """
        Args:
            explore: As `Router` takes it.
        """
        self._project = project
        self._explore = explore

    def load(self, candidate: Candidate, models: Mapping[str, ServedModel]) -> Servable:
        """
        Args:
            models: Where learned weights answer, by candidate.

        Raises:
            InputError: It cannot be served.
            ReleaseError: What would be served is not what was kept.
        """
        if candidate.kind is Kind.PLAYBOOK:
            from journeyman.optimizers.playbook import files

            return FixedPlaybook.configured(files.loads(candidate.body, candidate.id), self._project.settings, candidate.id)
        if candidate.kind is Kind.POLICY:
            return self._route(candidate)
        return _served(candidate, models)

    def _route(self, candidate: Candidate) -> ModelRoute:
        from journeyman.optimizers.router import artifact
        from journeyman.serving.router import Router
        from journeyman.stores.artifacts import Artifacts

        policy = artifact.of_candidate(candidate, Artifacts(self._project.artifacts))
        return ModelRoute(candidate.id, Router(policy, explore=self._explore))


def _served(candidate: Candidate, models: Mapping[str, ServedModel]) -> ServedModel:
    found = models.get(candidate.id)
    if found is None:
        raise InputError(
            f"no server answers with the weights {candidate.id}; begin with journeyman deploy llamacpp or ollama, and --release"
        )
    file = Path(found.file)
    try:
        changed = found.digest and found.file and file.is_file() and sha256(file) != found.digest
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror}), so it is not known what {found.model} is") from None
    if changed:
        raise ReleaseError(f"{found.file} is not what was deployed as {found.model}: its SHA-256 differs; deploy it anew")
    return found


_PATIENCE = 60.0
"""Seconds that weights may take to say something: they may have to be loaded first."""


def _reached(url: str, upstreams: Mapping[str, UpstreamSettings]) -> tuple[str, str]:
    """The address and the key of a server: an upstream of that name, or an address, which is sent no key of the user's own."""
    if (named := upstreams.get(url)) is None:
        return url, ""
    return named.base_url, os.environ.get(named.key_env, "") if named.key_env else ""


def check_answers(served: ServedModel, upstreams: Mapping[str, UpstreamSettings]) -> None:
    """Nothing, where learned weights answer.

    Args:
        upstreams: Those of the gateway, by name.

    Raises:
        ModelError: They do not.
    """
    from journeyman import models
    from journeyman.models.base import ModelRequest, PromptMessage

    address, key = _reached(served.url, upstreams)
    asked = ModelRequest(messages=(PromptMessage("user", "Hello"),), max_tokens=1)

    async def ask() -> None:
        model = models.load(f"openai:{served.model}@{address}", api_key=key, max_retries=0, timeout=_PATIENCE)
        try:
            await model.complete(asked)
        finally:
            await model.close()

    asyncio.run(ask())


class KeepLoaded:
    """Has Ollama keep models in memory that may be needed at once: it drops what nobody has asked for five minutes. Servers of
    other kinds keep what they serve."""

    EVERY_SECONDS = 240.0
    FOR_SECONDS = 600.0

    def __init__(self, upstreams: Mapping[str, UpstreamSettings], *, clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            upstreams: Those of the gateway, by name.
        """
        self._upstreams = upstreams
        self._clock = clock
        self._said: dict[tuple[str, str], float] = {}
        self._servers: dict[str, OllamaDeployer | None] = {}
        self._thread: threading.Thread | None = None

    def __call__(self, models: Iterable[ServedModel]) -> None:
        """These are needed. Nobody waits for their server."""
        now, wanted = self._clock(), {(each.url, each.model) for each in models}
        due = sorted(each for each in wanted if now - self._said.get(each, -math.inf) >= self.EVERY_SECONDS)
        if due and (self._thread is None or not self._thread.is_alive()):
            self._said |= dict.fromkeys(due, now)
            self._thread = threading.Thread(target=self._keep, args=(due,), name="keep-loaded", daemon=True)
            self._thread.start()

    def wait(self, seconds: float) -> None:
        """Until their servers have answered, or so long."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _keep(self, due: Iterable[tuple[str, str]]) -> None:
        for url, model in due:
            try:
                if (server := self._server(url)) is not None:
                    server.keep_loaded(model, self.FOR_SECONDS)
            except ModelError as error:
                # It is asked again in a while; who needs it meanwhile waits until it is loaded.
                _log.info("%s is not kept loaded: %s", model, error)

    def _server(self, url: str) -> "OllamaDeployer | None":
        from journeyman.optimizers.weights.ollama import OllamaDeployer

        if url not in self._servers:
            address, key = _reached(url, self._upstreams)
            server = OllamaDeployer(address.rstrip("/").removesuffix("/v1"), environment={"OLLAMA_API_KEY": key})
            try:
                server.version()
            except ModelRefused:
                self._servers[url] = None
            else:
                self._servers[url] = server
        return self._servers[url]
