"""Solves the URL shortener."""

import json
import re
import secrets
import string
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_LETTERS = string.ascii_letters + string.digits


class Shortener:
    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._links: dict[str, dict[str, Any]] = {}
        self._codes: dict[str, str] = {}

    def shorten(self, url: str, alias: str | None = None, ttl: float | None = None) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no web address")
        if ttl is not None and ttl <= 0:
            raise ValueError("ttl must be above 0")
        if alias is not None:
            if not re.fullmatch(r"[A-Za-z0-9_-]{3,30}", alias) or self._live(alias):
                raise ValueError(f"{alias!r} cannot be had")
            code = alias
        elif ttl is None and url in self._codes:
            return self._codes[url]
        else:
            code = self._fresh()
        if alias is None and ttl is None:
            self._codes[url] = code
        self._links[code] = {"url": url, "visits": 0, "ends": None if ttl is None else self._clock() + ttl}
        return code

    def resolve(self, code: str) -> str:
        link = self._found(code)
        link["visits"] += 1
        return str(link["url"])

    def stats(self, code: str) -> dict[str, Any]:
        link = self._found(code)
        return {"url": link["url"], "visits": link["visits"]}

    def save(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps({"links": self._links, "codes": self._codes}), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path, clock: Callable[[], float] = time.time) -> "Shortener":
        made = cls(clock)
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        made._links, made._codes = data["links"], data["codes"]
        return made

    def _live(self, code: str) -> bool:
        link = self._links.get(code)
        return link is not None and (link["ends"] is None or self._clock() < link["ends"])

    def _found(self, code: str) -> dict[str, Any]:
        if not self._live(code):
            raise KeyError(code)
        return self._links[code]

    def _fresh(self) -> str:
        while (code := "".join(secrets.choice(_LETTERS) for _ in range(7))) in self._links:
            pass
        return code
