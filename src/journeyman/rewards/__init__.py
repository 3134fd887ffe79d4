"""Rewards by name. Each is loaded when its name is said.

code_execution       the code blocks run, in a sandbox (binary, 2.0)
syntax_validation    the code blocks can be parsed (binary, 1.0)
tool_success         no tool call stays failed (binary, 2.0)
task_completion      the attempt came to its end, and did what was asked for where that is known (binary, 1.5)
efficiency           tokens and calls against a budget or the group's median (soft, 0.5)
format_compliance    no XML, plain text, or JSON (binary, 1.0)
learned:FILE         learned from labels (soft, 1.0)
development          the components for agents that develop software, together (soft, 1.0)
module:Class         a class of your own, in a file beside you: see docs/extend-reward.md
"""

from typing import Any

from journeyman.core import extension, registry
from journeyman.rewards.base import RewardFunction, RewardResult

__all__ = ["DEFAULTS", "RewardFunction", "RewardResult", "defaults", "load"]

_NAMED = frozenset({"learned"})
"""What is made of the text behind a colon instead of options."""

DEFAULTS = ("code_execution", "syntax_validation", "tool_success", "task_completion", "efficiency", "format_compliance")
"""What an engine takes where nothing is said. The learned one needs a model that was trained, so it is handed in."""
STATIC = tuple(name for name in DEFAULTS if name != "code_execution")
"""Those that run nothing."""


def load(name: str, **options: Any) -> RewardFunction:
    """The reward called `name`, with the options of its class; `learned:FILE` for the one in a file.

    A class of one's own, `module:Class`, is made of the options alone.

    Raises:
        InputError: There is no such reward, or it has no such option.
        MissingExtra: What it needs is not installed.
    """
    known, rest = registry.taken_apart("rewards", _own(name.strip()))
    if known in _NAMED:
        try:
            reward: RewardFunction = registry.load("rewards", known).named(rest)
        except ModuleNotFoundError as error:
            raise registry.missing("rewards", known, error) from error
    else:
        reward = extension.make("rewards", known, **options)
    return reward


def _own(name: str) -> str:
    """A name of Journeyman's own may be written with hyphens."""
    word, colon, rest = name.partition(":")
    written = word.replace("-", "_")
    return f"{written}{colon}{rest}" if registry.known("rewards", written) else name


def defaults() -> list[RewardFunction]:
    """The default rewards, with their own settings."""
    return [load(name) for name in DEFAULTS]
