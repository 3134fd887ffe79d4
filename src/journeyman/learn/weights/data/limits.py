"""Rows that are too long: cut behind an answer, and never in the middle of a message or between a tool call and its answers."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from journeyman.learn.weights.data.config import DatasetConfig
from journeyman.learn.weights.data.talks import Talk
from journeyman.learn.weights.rows import TextOrMessages

CHARACTERS_PER_TOKEN = 4
"""Of English text under the tokenizers of today, about. The trainer counts exactly, and has limits of its own."""


def max_characters(config: DatasetConfig) -> int | None:
    """Characters that a row may have."""
    limits = (config.max_characters, None if config.max_tokens is None else config.max_tokens * CHARACTERS_PER_TOKEN)
    return min((limit for limit in limits if limit is not None), default=None)


def count_characters(text: TextOrMessages) -> int:
    """Characters of a text, or of what messages say: texts, thoughts and tool calls."""
    return len(text) if isinstance(text, str) else sum(map(_message_length, text))


def truncated(talk: Talk, max_characters: int | None, lost: Callable[[str], None]) -> Talk | None:
    """The talk, within so many characters: later answers go, with what was said to them, until it fits. `None` where not even
    the first answer does, or text is too long: half an answer would teach to stop in the middle."""
    if max_characters is None or count_characters(talk.prompt) + count_characters(talk.completion) <= max_characters:
        return talk
    completion = (
        None
        if isinstance(talk.completion, str)
        else _leading_answers(talk.completion, max_characters - count_characters(talk.prompt))
    )
    if completion is None:
        lost("longer than allowed with the first answer alone: left out")
        return None
    lost("cut behind an earlier answer, being longer than allowed")
    # The recorded log-probabilities are of the whole.
    return replace(talk, completion=completion, logprobs=None)


def _leading_answers(messages: Sequence[Mapping[str, Any]], max_characters: int) -> tuple[Mapping[str, Any], ...] | None:
    left, end = max_characters, None
    for at, message in enumerate(messages):
        left -= _message_length(message)
        if left < 0:
            break
        if message["role"] == "assistant":
            end = at + 1
    return None if end is None else tuple(messages[:end])


def _message_length(message: Mapping[str, Any]) -> int:
    calls = message.get("tool_calls")
    characters = len(message["content"]) + len(message.get("reasoning_content", ""))
    return characters + (len(json.dumps([call["function"] for call in calls], ensure_ascii=False)) if calls else 0)
