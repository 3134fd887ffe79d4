"""What weights are trained on: a row for each labelled completion (KTO), or for each group of scored ones (GRPO).

Text is plain, or a conversation: messages in the form of chat completions, with tool calls and tool answers, and the schemas
of the tools beside it. Both are forms that TRL takes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from journeyman.core.errors import InputError

TextOrMessages = str | tuple[Mapping[str, Any], ...]
"""A prompt or completion: plain text, or messages `{"role", "content", "tool_calls"?, "tool_call_id"?}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledCompletion:
    """One completion that was good or bad: `{"prompt", "completion", "label"}`."""

    prompt: TextOrMessages
    completion: TextOrMessages
    """What the agent wrote; in a conversation also the tools' answers, which are read and not learned."""
    label: bool
    tools: tuple[Mapping[str, Any], ...] = ()
    """JSON schemas of the tools that it could call."""
    source: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Where it came from: `trace`, `task`, `agent`, `domain`, as far as known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionGroup:
    """Completions of one prompt with what each was worth: `{"prompt", "completions", "rewards"}`."""

    prompt: TextOrMessages
    completions: tuple[TextOrMessages, ...]
    rewards: tuple[float, ...]
    """Normalised to mean 0 and, where they differ, standard deviation 1: within the group, or among all attempts at its task
    where those had other prompts and are groups of their own."""
    scores: tuple[float, ...] = ()
    """The same before that, each from 0 to 1; none where a file does not tell."""
    logprobs: tuple[tuple[float, ...] | None, ...] = ()
    """For each completion the log-probability of each of its tokens under the policy that wrote it (natural logarithm), or
    `None` where it was not recorded. Without them they are recomputed under the model that training starts from."""
    tools: tuple[Mapping[str, Any], ...] = ()
    source: Mapping[str, str] = field(default_factory=dict, hash=False)


Row = LabelledCompletion | CompletionGroup

# How much a label weighs in the loss of KTO, so that neither side drowns the other.


def weights(good: int, bad: int, *, desirable: float | None = None, undesirable: float | None = None) -> tuple[float, float]:
    """Weights of desirable and undesirable completions in the loss of KTO, by their numbers.

    What is `None` is chosen so that neither side drowns the other: n_D·w_D : n_U·w_U is to lie between 1:1 and 4:3
    (Ethayarajh et al. 2024, arXiv 2402.01306, equation 8). Where it does with equal weights, they are 1; otherwise the side
    with fewer rows is raised to 1:1, and the other stays 1.

    Raises:
        InputError: One side has no rows: KTO learns from the contrast.
    """
    if not good or not bad:
        which = "good" if not good else "bad"
        raise InputError(f"KTO learns from good and bad completions alike, and none of {good + bad} rows is labelled {which}")
    if desirable is not None and undesirable is not None:
        return desirable, undesirable
    if desirable is not None:
        return desirable, desirable * good / bad
    if undesirable is not None:
        return undesirable * bad / good, undesirable
    if bad <= good <= bad * 4 / 3:
        return 1.0, 1.0
    return max(1.0, bad / good), max(1.0, good / bad)
