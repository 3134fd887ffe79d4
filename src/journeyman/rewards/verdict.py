"""The three ways to say a verdict, and how a reward's version is made."""

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from journeyman.rewards.base import RewardResult

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
