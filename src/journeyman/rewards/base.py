"""What a reward is: a small class that looks at what an agent did and gives a verdict that can be checked."""

import hashlib
import inspect
import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, Protocol

from journeyman.core import extension
from journeyman.core.errors import JourneymanError
from journeyman.core.reward import Source
from journeyman.core.score import Reward
from journeyman.core.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardResult:
    """One verdict on one trace.

    Raises:
        ValueError: The score is no number from 0 to 1.
    """

    score: float | None
    """0 to 1, or `None` when it could not tell: unknown is not zero."""
    is_binary: bool = False
    """Whether only 0 and 1 (and unknown) can come out."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What was found, JSON; under "evidence" one sentence, as an API's error would say it, and under "source" whose word it is
    (`core.reward.Source`) where that is not a check's for yes or no, and a heuristic's for a degree."""

    def __post_init__(self) -> None:
        if self.score is None:
            return
        if not isinstance(self.score, Real) or not 0 <= self.score <= 1:
            raise ValueError(
                f"a score is a number from 0 to 1, or None where it cannot be told, and this one is {self.score!r:.40}"
            )
        # A number of numpy's is no JSON.
        object.__setattr__(self, "score", float(self.score))

    def named(self, name: str, weight: float) -> Reward:
        """The verdict as it stands in a score."""
        found = Reward(name=name, value=self.score, evidence=str(self.details.get("evidence", "")), weight=weight)
        if said := self.details.get("source"):
            return replace(found, source=Source(said))
        return found if found.is_told else replace(found, source=Source.CHECK if self.is_binary else Source.HEURISTIC)


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
        """Made of the files that its class and those above it stand in, with all that is beside them there, and its settings.
        Say a version yourself where `compute` calls what may change in other files.

        A class that was typed into a prompt has no file that could be compared: then no kept verdict is its own.
        """
        written = hashlib.blake2b(f"{type(self).__qualname__}{sorted(vars(self).items())}".encode(), digest_size=6)
        for each in type(self).__mro__:
            if each not in BaseReward.__mro__:
                written.update(_written(each))
        return written.hexdigest()

    @abstractmethod
    def compute(self, trace: Trace) -> RewardResult:
        """The verdict on one attempt."""


def _written(cls: type) -> bytes:
    """The file that a class stands in: a constant or function beside it may change a verdict as well as the class."""
    try:
        return Path(inspect.getfile(cls)).read_bytes()
    except (OSError, TypeError):
        return secrets.token_bytes(8)


def judged(reward: RewardFunction, trace: Trace) -> RewardResult:
    """The verdict of a reward on a trace. Where its code fails, that is an unknown verdict whose evidence names the error: one
    attempt that it cannot deal with costs no other attempt its score."""
    try:
        found = reward.compute(trace)
        if not isinstance(found, RewardResult):
            gave = f"compute gave a {type(found).__name__}, and no RewardResult: use binary, soft or unknown"
            return _failed(reward, trace, gave)
        # Verdicts are kept and written as JSON.
        json.dumps(dict(found.details))
        return found
    except JourneymanError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a reward of somebody else raises is its failure
        return _failed(reward, trace, f"ended in {extension.ended(error)}")


def _failed(reward: RewardFunction, trace: Trace, how: str) -> RewardResult:
    why = f"the reward {reward.name!r} failed on trace {trace.id!r}: {how}"
    return unknown(why, **{UNREACHABLE: True, BROKEN: True})


# The three ways to say a verdict, and how a reward's version is made.

UNREACHABLE = "unreachable"
"""True in the details of a verdict that a failure of ours has prevented, so that it is not kept as the last word."""

BROKEN = "broken"
"""True beside it where it was the reward's own code that failed."""


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
