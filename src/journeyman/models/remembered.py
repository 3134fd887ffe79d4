"""A model whose replies are kept in a file: the same question to the same deterministic model is not decoded again."""

import asyncio
import hashlib
import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

from journeyman.io.jsonl import iter_jsonl
from journeyman.models.around import Around
from journeyman.models.base import Model, Reply, Request

log = logging.getLogger(__name__)

_KEPT = ("text", "model", "input_tokens", "output_tokens", "cached_tokens", "cost", "seconds", "finish")


class Remembered(Around):
    """A model and what it once replied, with the tokens and seconds that it really took.

    Replies of a model that is not deterministic, and sampled ones without a seed, are not kept. The file is added to line by
    line; a line that cannot be read is as good as none, as a cache may always be lost.
    """

    def __init__(self, model: Model, path: Path) -> None:
        super().__init__(model)
        self.asked = 0
        """Requests that the model itself answered."""
        self._path = path
        self._known: dict[str, Reply] = {}
        self._waiting: dict[str, asyncio.Task[Reply]] = {}
        if path.exists():
            self._load()

    async def complete(self, request: Request) -> Reply:
        if not self.model.deterministic or (request.temperature and request.seed is None):
            self.asked += 1
            return await self.model.complete(request)
        key = self._key(request)
        if key in self._known:
            return self._known[key]
        if key not in self._waiting:
            self._waiting[key] = asyncio.create_task(self._ask(key, request))
        # Another who asks the same meanwhile waits for the same reply; one who gives up does not take it from the others.
        return await asyncio.shield(self._waiting[key])

    async def _ask(self, key: str, request: Request) -> Reply:
        try:
            self.asked += 1
            reply = await self.model.complete(request)
            self._known[key] = reply
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                told = {name: value for name, value in asdict(reply).items() if name in _KEPT}
                file.write(json.dumps({"key": key, **told}) + "\n")
            return reply
        finally:
            del self._waiting[key]

    def _key(self, request: Request) -> str:
        asked: list[Any] = [self.name, [[message.role, message.content] for message in request.messages]]
        asked += [request.temperature, request.max_tokens, request.seed, request.schema]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]

    def _load(self) -> None:
        bad = list[str]()
        lines = [line.value for line in iter_jsonl(self._path, _entry, bad=lambda where, _: bad.append(where))]
        self._known = dict(lines)
        if worse := len(bad) + len(lines) - len(self._known):
            log.warning("%s: %d of %d kept replies cannot be read or came twice", self._path, worse, len(bad) + len(lines))


def _entry(line: str) -> tuple[str, Reply]:
    told = json.loads(line)
    return told["key"], Reply(**{name: told[name] for name in _KEPT})
