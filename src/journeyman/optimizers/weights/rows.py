"""What weights are trained on: a row for each labelled completion (KTO), or for each group of scored ones (GRPO).

Text is plain, or a conversation: messages in the form of chat completions, with tool calls and tool answers, and the schemas
of the tools beside it. As JSON, in the forms that TRL takes:

    {"prompt": "User: hi", "completion": "Hello!", "label": true}
    {"prompt": [{"role": "user", "content": "hi"}], "completions": [[{"role": "assistant", "content": "Hello!"}], …],
     "rewards": [1.0, -1.0]}

`tools`, `source`, and of groups `scores` and `logprobs` may stand beside; TRL leaves alone what it does not know.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import fmean, pstdev
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


def kto_weights(
    good: int, bad: int, *, desirable: float | None = None, undesirable: float | None = None
) -> tuple[float, float]:
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


TOO_FEW = 0.05
"""Share of right completions from which KTO, and offline GRPO on the model's own attempts, learned nothing where it was
measured: on the embedded model, with `benchmarks/bench_methods.py`."""


def too_few_right(rows: Sequence[Row]) -> str:
    """How few completions are right, as the beginning of a sentence; empty where it is more than `TOO_FEW`, or not known."""
    known = [row.label for row in rows if isinstance(row, LabelledCompletion)]
    known += [score >= 1.0 for row in rows if isinstance(row, CompletionGroup) for score in row.scores]
    good = sum(known)
    if not known or good > TOO_FEW * len(known):
        return ""
    return f"{good} of {len(known)} completions are right ({good / len(known):.1%})"


# Rows as JSON: checked on the way in, and written so that they come back as they were.

ROLES = ("system", "developer", "user", "assistant", "tool")
_ASKING = ("user", "tool", "assistant")
"""Who may have the last word of a prompt."""
SPREAD = 1e-9
"""Scores whose standard deviation is smaller do not differ."""


def json_of(row: Row) -> dict[str, Any]:
    """A row as an object of JSON; what is empty and need not stand there is left out."""
    if isinstance(row, LabelledCompletion):
        fields: dict[str, Any] = {"prompt": row.prompt, "completion": row.completion, "label": row.label}
    else:
        fields = {"prompt": row.prompt, "completions": row.completions, "rewards": row.rewards}
        fields |= {name: value for name, value in (("scores", row.scores), ("logprobs", row.logprobs)) if value}
    return fields | {name: value for name, value in (("tools", row.tools), ("source", row.source)) if value}


def row_of(value: Any) -> Row:
    """The row that an object of JSON tells of. Columns that are not known are left alone.

    Arguments of a tool call that are written as a text of JSON, as OpenAI has them, become the object that chat templates
    want. Rewards that were plainly never normalised (none below 0, no `scores` beside them) are, and kept as `scores` where
    they lie between 0 and 1.

    Raises:
        ValueError: It is none; the message is the end of a sentence that begins with where it stands.
    """
    if not isinstance(value, Mapping):
        raise ValueError("is no object of JSON")
    row = {name: each for name, each in value.items() if each is not None}
    if "prompt" not in row:
        raise ValueError(f'has no "prompt"{_instead(row)}')
    if "completions" in row:
        return _group(row)
    if "completion" not in row:
        raise ValueError(f'has neither "completion" (KTO) nor "completions" (GRPO) beside its prompt{_instead(row)}')
    return _labelled(row)


def is_plain(row: Row) -> bool:
    """Whether it is text, and no conversation."""
    return isinstance(row.prompt, str)


def _instead(row: Mapping[str, Any]) -> str:
    for name, what in (("chosen", "a pair of preference"), ("messages", "a conversation without an end that is judged")):
        if name in row:
            return f": it is {what}; a row is a labelled completion or a group of scored ones"
    return ""


def _labelled(row: Mapping[str, Any]) -> LabelledCompletion:
    label = row.get("label")
    if not isinstance(label, bool):
        raise ValueError('needs a "label" that is true or false')
    prompt = _prompt(row["prompt"])
    completion = _completion(row["completion"], "completion", prompt)
    return LabelledCompletion(prompt=prompt, completion=completion, label=label, tools=_tools(row), source=_source(row))


def _group(row: Mapping[str, Any]) -> CompletionGroup:
    prompt = _prompt(row["prompt"])
    values = row["completions"]
    if not isinstance(values, list | tuple) or not values:
        raise ValueError('needs at least one completion in "completions"')
    completions = tuple(_completion(each, f"completions[{at}]", prompt) for at, each in enumerate(values))
    if "rewards" not in row:
        raise ValueError('has no "rewards" beside its completions')
    rewards = _numbers(row["rewards"], "rewards", len(completions))
    scores = _numbers(row["scores"], "scores", len(completions)) if "scores" in row else ()
    if any(not 0 <= score <= 1 for score in scores):
        raise ValueError('has "scores" that do not lie between 0 and 1')
    if not scores and any(rewards) and min(rewards) >= 0:
        scores = rewards if max(rewards) <= 1 else ()
        rewards = normalised(rewards)
    return CompletionGroup(
        prompt=prompt,
        completions=completions,
        rewards=rewards,
        scores=scores,
        logprobs=_logprobs(row["logprobs"], len(completions)) if "logprobs" in row else (),
        tools=_tools(row),
        source=_source(row),
    )


def normalised(scores: Sequence[float]) -> tuple[float, ...]:
    """Each score less their mean, over their standard deviation (of the population), as GRPO takes them (Shao et al.,
    arXiv 2402.03300). Scores that do not differ, by 1e-9, teach nothing and give zeros."""
    mean, spread = fmean(scores), pstdev(scores)
    return tuple(0.0 if spread < SPREAD else (score - mean) / spread for score in scores)


def _prompt(value: Any) -> TextOrMessages:
    if isinstance(value, str):
        return value
    messages = _messages(value, "prompt")
    if messages[-1]["role"] not in _ASKING:
        raise ValueError(f'has a prompt that ends with a message of role "{messages[-1]["role"]}": nobody asks for an answer')
    return messages


def _completion(value: Any, name: str, prompt: TextOrMessages) -> TextOrMessages:
    if isinstance(value, str) != isinstance(prompt, str):
        raise ValueError(f"has a prompt and {name} of which one is text, and the other a conversation")
    if isinstance(value, str):
        return value
    messages = _messages(value, name)
    if messages[0]["role"] != "assistant":
        raise ValueError(f'has {name} that begins with a message of role "{messages[0]["role"]}", and not with the answer')
    return messages


def _messages(value: Any, name: str) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"has {name} that is neither text nor a list of messages")
    return tuple(_message(each, f"{name}[{at}]") for at, each in enumerate(value))


def _message(value: Any, where: str) -> Mapping[str, Any]:
    role = value.get("role") if isinstance(value, Mapping) else None
    if role not in ROLES:
        raise ValueError(f"has {where}, which is no message: its role is one of {', '.join(ROLES)}")
    message = {name: each for name, each in value.items() if each is not None}
    if "tool_calls" in message:
        message["tool_calls"] = _tool_calls(message["tool_calls"], where)
        message.setdefault("content", "")
    content = message.get("content")
    if isinstance(content, list):
        raise ValueError(f"has {where}, whose content is a list of parts; weights learn from text alone")
    if not isinstance(content, str):
        raise ValueError(f'has {where}, whose "content" is no text')
    return message


def _tool_calls(value: Any, where: str) -> list[Mapping[str, Any]]:
    if not isinstance(value, list | tuple):
        raise ValueError(f'has {where}, whose "tool_calls" are no list')
    return [_tool_call(call, f"{where}.tool_calls[{at}]") for at, call in enumerate(value)]


def _tool_call(value: Any, where: str) -> Mapping[str, Any]:
    function = value.get("function") if isinstance(value, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ValueError(f'has {where}, which names no "function"')
    arguments = arguments_of(function.get("arguments"))
    if arguments is None:
        raise ValueError(f'has {where}, whose "arguments" are no object')
    call = {name: each for name, each in value.items() if each is not None}
    return {**call, "function": {**function, "arguments": arguments}}


def arguments_of(value: Any) -> Mapping[str, Any] | None:
    """The arguments of a tool call as an object; `None` where they are none, whatever they were meant to be."""
    if isinstance(value, str) and value.strip():
        try:
            value = loads(value)
        except (ValueError, RecursionError):
            return None
    if value is None or value == "":
        return {}
    return value if isinstance(value, Mapping) else None


def _numbers(values: Any, name: str, wanted: int) -> tuple[float, ...]:
    numbers = tuple(float(each) for each in values if is_number(each)) if isinstance(values, list | tuple) else ()
    if len(numbers) != wanted or len(values) != wanted:
        raise ValueError(f'needs a finite number in "{name}" for each of its {wanted} completions')
    return numbers


def loads(text: str | bytes) -> Any:
    """What a text of JSON holds.

    Raises:
        ValueError: It is none. A number that is none, as Python would read and JSON does not have, is none either.
        RecursionError: It is nested too deeply.
    """
    return json.loads(text, parse_constant=_refuse, parse_float=_finite)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text} is too large for a number")
    return value


def is_number(value: Any) -> bool:
    """Whether it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return isfinite(value)
    except OverflowError:
        return False


def _logprobs(values: Any, wanted: int) -> tuple[tuple[float, ...] | None, ...]:
    if not isinstance(values, list | tuple) or len(values) != wanted:
        raise ValueError(f'needs a list of log-probabilities, or null, in "logprobs" for each of its {wanted} completions')
    logprobs = []
    for at, each in enumerate(values):
        if each is not None and (not isinstance(each, list | tuple) or not all(is_number(one) for one in each)):
            raise ValueError(f"has logprobs[{at}], which is no list of finite numbers")
        logprobs.append(None if each is None else tuple(float(one) for one in each))
    return tuple(logprobs)


def _tools(row: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    value = row.get("tools", ())
    if isinstance(value, str):
        # TRL takes a text of JSON, too.
        try:
            value = loads(value) or ()
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, list | tuple) or not all(isinstance(each, Mapping) for each in value):
        raise ValueError('has "tools" that are no list of JSON schemas')
    return tuple(value)


def _source(row: Mapping[str, Any]) -> Mapping[str, str]:
    """A column of this name in a file of somebody else's may hold anything, and nothing depends on it."""
    value = row.get("source")
    return {k: v for k, v in value.items() if isinstance(v, str)} if isinstance(value, Mapping) else {}
