"""What weights are trained on: a row for each labelled completion (KTO), or for each group of scored ones (GRPO).

Text is plain, or a conversation: messages in the form of chat completions, with tool calls and tool answers, and the schemas
of the tools beside it. Both are forms that TRL takes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
