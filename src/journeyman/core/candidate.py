"""Something learned, not yet proven."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any


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

    @property
    def digest(self) -> str:
        """SHA-256 of the body, whole: what a rollout was begun with is what is served."""
        return hashlib.sha256(self.body.encode(errors="surrogatepass")).hexdigest()


# Learned weights: a LoRA adapter, and what it was made of.


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A low-rank change of a model's weights (Hu et al. 2021, "LoRA"), known by its content."""

    digest: str
    """SHA-256 over the names and contents of its files: the body of its `Candidate`."""
    base_model: str
    """The model that it changes, as a user would type it after `--base-model`."""
    method: str
    """How it was learned: grpo, grpo-offline, kto, dpo or rft."""
    rank: int
    alpha: int
    target_modules: tuple[str, ...]
    """The layers that it changes, by the last part of their names."""
    parent: str | None = None
    """The digest of the adapter that its training started from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """Where learned weights answer."""

    candidate_id: str
    url: str
    """The base URL of a server that speaks OpenAI's API, without credentials, or the name of an upstream of the gateway."""
    model: str
    """What it is asked for there."""
    digest: str = ""
    """SHA-256 of the GGUF file that is served; empty where it is not known."""
    file: str = ""
    """Where that file lies, on the machine that served it."""
    replaces: tuple[str, ...] = ("*",)
    """Patterns of the names of models that it answers instead of."""
    at: datetime
    """Since when."""

    def as_json(self) -> dict[str, Any]:
        """What `from_json` takes."""
        return asdict(self) | {"replaces": list(self.replaces), "at": self.at.isoformat()}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "ServedModel":
        """One that was written by Journeyman itself."""
        return cls(**{**told, "replaces": tuple(told["replaces"]), "at": datetime.fromisoformat(told["at"])})

    def answers_for(self, model: str) -> bool:
        """Whether a request for a model is one of its."""
        return any(fnmatchcase(model, pattern) for pattern in self.replaces)
