"""Rewards by name. Each is loaded when its name is said.

code_execution       the code blocks run, in a sandbox (binary, 2.0)
syntax_validation    the code blocks can be parsed (binary, 1.0)
tool_success         no tool call stays failed (binary, 2.0)
task_completion      the attempt came to its end, and did what was asked for where that is known (binary, 1.5)
efficiency           tokens and calls against a budget or the group's median (soft, 0.5)
format_compliance    no XML, plain text, or JSON (binary, 1.0)
learned:FILE         learned from labels (soft, 1.0)
development          the components for agents that develop software, together (soft, 1.0)
"""

from importlib import import_module
from typing import Any

from journeyman.core.errors import InputError, MissingExtra
from journeyman.rewards.base import RewardFunction, RewardResult

__all__ = ["DEFAULTS", "RewardFunction", "RewardResult", "defaults", "load"]

_REWARDS = {
    "code_execution": ("journeyman.rewards.code_execution", "CodeExecutionReward"),
    "syntax_validation": ("journeyman.rewards.syntax", "SyntaxValidationReward"),
    "tool_success": ("journeyman.rewards.tool_use", "ToolSuccessReward"),
    "task_completion": ("journeyman.rewards.completion", "TaskCompletionReward"),
    "efficiency": ("journeyman.rewards.efficiency", "EfficiencyReward"),
    "format_compliance": ("journeyman.rewards.format_compliance", "FormatComplianceReward"),
    "learned": ("journeyman.rewards.learned", "LearnedReward"),
    "development": ("journeyman.rewards.development", "DevelopmentReward"),
}
"""Strings cost nothing until somebody asks."""

_NAMED = frozenset({"learned"})
"""What is made of the text behind a colon instead of options."""

DEFAULTS = ("code_execution", "syntax_validation", "tool_success", "task_completion", "efficiency", "format_compliance")
"""What an engine takes where nothing is said. The learned one needs a model that was trained, so it is handed in."""
STATIC = tuple(name for name in DEFAULTS if name != "code_execution")
"""Those that run nothing."""


def load(name: str, **options: Any) -> RewardFunction:
    """The reward called `name`, with the options of its class; `learned:FILE` for the one in a file.

    Raises:
        InputError: There is no such reward, or it has no such option.
        MissingExtra: What it needs is not installed.
    """
    known, _, rest = name.strip().partition(":")
    known = known.replace("-", "_")
    if known not in _REWARDS:
        raise InputError(f"no reward {name!r}; there are {', '.join(_REWARDS)}")
    module, made = _REWARDS[known]
    try:
        kind = getattr(import_module(module), made)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[code]'") from error
    try:
        reward: RewardFunction = kind.named(rest) if known in _NAMED else kind(**options)
    except TypeError as error:
        raise InputError(f"the reward {known!r} cannot be made so: {error}") from None
    return reward


def defaults() -> list[RewardFunction]:
    """The default rewards, with their own settings."""
    return [load(name) for name in DEFAULTS]
