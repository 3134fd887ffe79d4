"""What a reward is: a small class that looks at what an agent did and gives a verdict that can be checked."""

import hashlib
import inspect
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Protocol

from journeyman.core.score import Reward
from journeyman.core.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardResult:
    """One verdict on one trace."""

    score: float | None
    """0 to 1, or `None` when it could not tell: unknown is not zero."""
    is_binary: bool = False
    """Whether only 0 and 1 (and unknown) can come out."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What was found, JSON; under "evidence" one sentence, as an API's error would say it."""

    def named(self, name: str, weight: float) -> Reward:
        """The verdict as it stands in a score."""
        return Reward(name=name, value=self.score, evidence=str(self.details.get("evidence", "")), weight=weight)


class RewardFunction(Protocol):
    """One kind of verdict. Looks at what the agent did, not at what it says of itself."""

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> float: ...

    @property
    def version(self) -> str:
        """Changes whenever the same trace may be scored otherwise, so that kept scores are not mistaken for new ones."""

    def compute(self, trace: Trace) -> RewardResult: ...


class BaseReward(ABC):
    """What a reward of one's own may begin with: it needs a `name` and `compute`, and has its version by itself."""

    name: str
    weight: float = 1.0

    @property
    def version(self) -> str:
        """Made of the class's source and its settings. Say a version yourself where `compute` calls what may change elsewhere.

        A class that was typed into a prompt has no source that could be compared: then no kept verdict is its own.
        """
        try:
            source = inspect.getsource(type(self))
        except (OSError, TypeError):
            source = secrets.token_hex(8)
        return hashlib.blake2b(f"{source}{sorted(vars(self).items())}".encode(), digest_size=6).hexdigest()

    @abstractmethod
    def compute(self, trace: Trace) -> RewardResult:
        """The verdict on one attempt."""


# The three ways to say a verdict, and how a reward's version is made.

UNREACHABLE = "unreachable"
"""True in the details of a verdict that a failure of ours has prevented, so that it is not kept as the last word."""


def binary(passed: bool, evidence: str, **details: Any) -> RewardResult:
    """A verdict that is yes or no."""
    return RewardResult(score=float(passed), is_binary=True, details={"evidence": evidence, **details})


def soft(score: float, evidence: str, **details: Any) -> RewardResult:
    """A verdict of degree, 0 to 1."""
    return RewardResult(score=score, details={"evidence": evidence, **details})


def unknown(why: str, *, is_binary: bool = True, **details: Any) -> RewardResult:
    """No verdict: there was nothing to look at, or it could not be looked at."""
    return RewardResult(score=None, is_binary=is_binary, details={"evidence": why, **details})


def version(number: int, *settings: object) -> str:
    """A reward's version: the number goes up with its code, and the rest is made of the settings that change a verdict.

    The same in every process, unlike the `repr` of a set of texts.
    """
    if not settings:
        return str(number)
    return f"{number}-{hashlib.blake2b(repr(_ordered(settings)).encode(), digest_size=6).hexdigest()}"


def _ordered(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__, [(field.name, _ordered(getattr(value, field.name))) for field in fields(value)]
    if isinstance(value, Mapping):
        return sorted((repr(key), _ordered(part)) for key, part in value.items())
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, list | tuple):
        return [_ordered(part) for part in value]
    return value


def short(text: str, most: int = 80) -> str:
    """The beginning of a text on one line, for evidence."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
