"""Who puts the evidence in traces and documents into words."""

import asyncio
import os
from collections.abc import Callable

from journeyman import models
from journeyman.agents.replay import CallBudget, WithinBudget
from journeyman.experiments import wiring
from journeyman.experiments.settings import ModelSettings
from journeyman.models import KEY
from journeyman.models.base import Around, Dialect, Limited, Model, ModelRequest, Reply

DEFAULT_REFLECTOR = "openai:gpt-5-nano"


def reflector_name(config: ModelSettings) -> str:
    """Who puts evidence into words: whom the settings name, else a small model where there is a key for it. Empty for nobody:
    then templates do."""
    named = config.reflector_model or config.generator_model
    return named or (DEFAULT_REFLECTOR if os.environ.get(KEY) else "")


class _Late:
    """The embedded model, loaded when it is first asked: that takes seconds, and most runs have no news. Implements `Model`."""

    dialect: Dialect = "terse"
    deterministic = True

    def __init__(self, name: str) -> None:
        parsed = models.parse(name)
        self.name = f"{parsed.kind}:{parsed.rest or 'base'}"
        self._model: Model | None = None

    async def complete(self, request: ModelRequest) -> Reply:
        self._model = self._model or wiring.connect(self.name)
        return await self._model.complete(request)

    async def close(self) -> None:
        if self._model is not None:
            await self._model.close()


class _Reachable(Around):
    """Looks once whether anybody listens, before the first call: one that is not there would be asked again and again, group
    by group, for minutes."""

    def __init__(self, model: Model, check: Callable[[], None]) -> None:
        super().__init__(model)
        self._check = check
        self._looked: asyncio.Task[None] | None = None

    async def complete(self, request: ModelRequest) -> Reply:
        self._looked = self._looked or asyncio.create_task(asyncio.to_thread(self._check))
        await self._looked
        return await self.model.complete(request)


def connect_reflector(config: ModelSettings, budget: CallBudget) -> Model | None:
    """The reflector that the settings name, within a budget; `None` where templates put evidence into words."""
    name = reflector_name(config)
    if not name:
        return None
    if models.parse(name).kind == "embedded":
        return WithinBudget(_Late(name), budget)
    client = wiring.connect(name, base_url=config.base_url, key_env=config.key_env)

    def check() -> None:
        wiring.check(name, base_url=config.base_url, key_env=config.key_env)

    if isinstance(client, Limited):
        # What a busy server is asked again is another call.
        client.model = WithinBudget(client.model, budget)
        return _Reachable(client, check)
    return _Reachable(WithinBudget(client, budget), check)
