"""What a team wrote beside what its agents did: a commit, a message, a log of the day, a file of an agent's workspace."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One text, and where it came from."""

    source: str
    """Where it was collected: `git`, `slack`, `devlogs`, …"""
    key: str
    """What it is there, for good: a commit's hash, a message's id, a file's path. A later text under one key is a revision."""
    kind: str
    """What it is: `commit`, `message`, `mail`, `devlog`, `status`, `inbox`, `text`."""
    text: str
    title: str = ""
    author: str | None = None
    at: datetime | None = None
    """When it was written; `None` where nobody says."""
    where: str = ""
    """The file, repository, channel or collection that it stands in."""
    raw: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What else the source says of it."""

    @property
    def id(self) -> str:
        """Made of where it is and what it says: collecting it twice is one document."""
        content = json.dumps([self.source, self.where, self.key, self.title, self.text])
        return hashlib.sha256(content.encode()).hexdigest()[:24]

    @property
    def quality(self) -> float:
        """From 0 to 1: the share of characters that can be read, times the share of lines that are not said twice; 0 for what
        has no three words."""
        words = self.text.split(maxsplit=3)
        lines = [line for line in self.text.splitlines() if line.strip()]
        if len(words) < 3 or not lines:
            return 0.0
        readable = sum(char.isprintable() or char in "\n\t\r" for char in self.text) / len(self.text)
        return readable * len(set(lines)) / len(lines)
