"""Something learned, not yet proven."""

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Where it was learned: in the context, in the plan, or in the weights."""

    PLAYBOOK = "playbook"
    POLICY = "policy"
    ADAPTER = "adapter"


BASE = "base"
"""The candidate id of an agent that has learned nothing yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    kind: Kind
    body: str
    """The text itself, or the digest of a file in the artifact store."""
    parents: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Made of the content alone: learning the same thing twice gives one candidate."""
        content = json.dumps([self.kind, self.body], ensure_ascii=False)
        return hashlib.sha256(content.encode()).hexdigest()[:16]
