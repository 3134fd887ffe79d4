"""Which tokens are the agent's own: only those are learned from, whatever tools and people say between them.

A conversation is rendered by the model's chat template, and a stretch of text is the agent's from where the model is asked to
go on (the generation prompt) to the end of its turn. Where the template marks these stretches itself (`{% generation %}`), its
marks are taken; TRL has such templates for the usual models. Otherwise each turn is found by rendering the conversation up to
it, without it and with it, which holds for every template that never changes what it has already said.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError
from transformers.utils.chat_template_utils import render_jinja_template
from trl.chat_template_utils import (
    get_training_chat_template,
    has_generation_markers,
    is_chat_template_stop_token_trained,
)

from journeyman.core.errors import InputError
from journeyman.optimizers.weights.rows import TextOrMessages

Span = tuple[int, int]
"""From one character of a text to before another."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """A row as a model reads it: token ids, and whose they are."""

    prompt: tuple[int, ...]
    """All before the agent's first token; never learned from."""
    completion: tuple[int, ...]
    own: tuple[bool, ...]
    """For each token of the completion whether the agent wrote it."""

    def __len__(self) -> int:
        return len(self.prompt) + len(self.completion)


class RowEncoder:
    """Makes rows into tokens for one tokenizer and its chat template.

    What is too long is cut by rule. A prompt keeps its end, `max_prompt` tokens of it. A completion keeps the agent's turns
    that fit into `max_completion` whole; where not even the first does, the row is none.
    """

    def __init__(self, tokenizer: Any, max_prompt: int | None = None, max_completion: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._max_prompt = max_prompt
        self._max_completion = max_completion
        self._template = _template(tokenizer)
        self._marked = has_generation_markers(self._template) and is_chat_template_stop_token_trained(tokenizer, self._template)
        self._ends = frozenset(tokenizer.get_added_vocab().values()) | {tokenizer.eos_token_id}

    def encode(
        self, prompt: TextOrMessages, completion: TextOrMessages, tools: Sequence[Mapping[str, Any]] = ()
    ) -> Tokens | None:
        """The row's tokens, or `None` when its completion does not fit.

        Raises:
            InputError: The chat template cannot say it, leaves parts out, or does not tell whose words are whose.
        """
        if isinstance(prompt, str) and isinstance(completion, str):
            return self._truncated(self._plain(prompt, completion))
        return self._truncated(self._conversation(_messages(prompt, "user"), _messages(completion, "assistant"), tools))

    def prompt(self, prompt: TextOrMessages, tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """The tokens that the model is given before it writes, at most `max_prompt`, the end of them."""
        if isinstance(prompt, str):
            ids = list(self._tokenizer(prompt)["input_ids"])
        else:
            ids = self._ids(self._render(_messages(prompt, "user"), tools, generation=True))
        return ids[-self._max_prompt :] if self._max_prompt else ids

    def _plain(self, prompt: str, completion: str) -> Tokens:
        before = list(self._tokenizer(prompt)["input_ids"])
        whole = self._ids(prompt + completion, special=True)
        # Written after the prompt as the model would write it; together, where a word's first token depends on what
        # stands before it.
        after = whole[len(before) :] if whole[: len(before)] == before else self._ids(completion)
        end = self._tokenizer.eos_token_id
        if not after or after[-1] != end:
            after = [*after, end]
        return Tokens(tuple(before), tuple(after), (True,) * len(after))

    def _conversation(
        self, prompt: list[dict[str, Any]], completion: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> Tokens:
        if not completion or completion[0].get("role") != "assistant":
            raise InputError("a completion must begin with what the agent said: move what stands before that to the prompt")
        messages = [*prompt, *completion]
        text = self._render(messages, tools)
        before = self._render(prompt, tools, generation=True)
        if not text.startswith(before):
            raise InputError(
                "the model's chat template says a prompt otherwise when an answer follows it, so that whose words are whose "
                "cannot be told: name a model with another template, or give rows of plain text"
            )
        spans = [span for span in self._spans(messages, len(prompt), text, tools) if span[0] >= len(before)]
        _check_nothing_left_out(text, spans, [message for message in completion if message["role"] == "assistant"])
        ids, own = self._ids_and_mask(text, spans)
        if True not in own:
            raise InputError("the model's chat template writes nothing of what the agent says: name another model")
        first, last = own.index(True), len(own) - own[::-1].index(True)
        ids, own = ids[:last], own[:last]
        if ids[-1] not in self._ends:
            # A template that never ends the last turn: the model would not learn to stop.
            ids, own = [*ids, self._tokenizer.eos_token_id], [*own, True]
        return Tokens(tuple(ids[:first]), tuple(ids[first:]), tuple(own[first:]))

    def _spans(self, messages: list[dict[str, Any]], start: int, text: str, tools: Sequence[Mapping[str, Any]]) -> list[Span]:
        if self._marked:
            _, (spans,) = render_jinja_template(
                [messages],
                list(tools) or None,
                chat_template=self._template,
                return_assistant_tokens_mask=True,
                **self._special,
            )
            return [(int(a), int(b)) for a, b in spans]
        return list(self._rendered_turns(messages, start, text, tools))

    def _rendered_turns(
        self, messages: list[dict[str, Any]], start: int, text: str, tools: Sequence[Mapping[str, Any]]
    ) -> Iterator[Span]:
        for turn in range(start, len(messages)):
            if messages[turn]["role"] != "assistant":
                continue
            before = self._render(messages[:turn], tools, generation=True)
            after = self._render(messages[: turn + 1], tools)
            if not text.startswith(after):
                # Some end every conversation, and so a part of one, with a token more.
                after = after.removesuffix(self._tokenizer.eos_token)
            if not (after.startswith(before) and text.startswith(after)):
                raise InputError(
                    f"the model's chat template says message {turn + 1} otherwise when others follow it, so that whose words "
                    "are whose cannot be told: name a model with another template, or give rows of plain text"
                )
            yield len(before), len(after)

    def _ids_and_mask(self, text: str, spans: Sequence[Span]) -> tuple[list[int], list[bool]]:
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids, own = list(encoded["input_ids"]), [False] * len(encoded["input_ids"])
        for start, end in spans:
            inside = [n for n, (a, b) in enumerate(encoded["offset_mapping"]) if a < end and b > start and b > a]
            if any(not start <= encoded["offset_mapping"][n][0] or encoded["offset_mapping"][n][1] > end for n in inside):
                return self._encode_pieces(text, spans)
            for n in self._up_to_end_token(ids, inside):
                own[n] = True
        return ids, own

    def _encode_pieces(self, text: str, spans: Sequence[Span]) -> tuple[list[int], list[bool]]:
        """Where a token would be half the agent's: each stretch for itself, as a model that writes it sees it."""
        ids: list[int] = []
        own: list[bool] = []
        at = 0
        for start, end in [*spans, (len(text), len(text))]:
            for piece, whose in ((text[at:start], False), (text[start:end], True)):
                tokens = self._ids(piece)
                mine = set(self._up_to_end_token(tokens, range(len(tokens)))) if whose else set()
                ids += tokens
                own += [n in mine for n in range(len(tokens))]
            at = end
        if self._decode(ids) != self._decode(self._ids(text)):
            raise InputError(
                "the model's tokenizer joins what the agent wrote with what stands before it: give rows whose "
                "answers begin with a letter, or name another model"
            )
        return ids, own

    def _up_to_end_token(self, ids: Sequence[int], inside: Sequence[int]) -> Sequence[int]:
        """Without what follows the token that ends the turn: the line break there is the template's."""
        trimmed = list(inside)
        while trimmed and ids[trimmed[-1]] not in self._ends and not self._decode([ids[trimmed[-1]]]).strip():
            trimmed.pop()
        return trimmed if trimmed and ids[trimmed[-1]] in self._ends else inside

    def _truncated(self, tokens: Tokens) -> Tokens | None:
        prompt = tokens.prompt[-self._max_prompt :] if self._max_prompt else tokens.prompt
        limit = self._max_completion or len(tokens.completion)
        if len(tokens.completion) <= limit:
            end = len(tokens.completion)
        else:
            # After a turn of the agent's that ends within the limit.
            ends = [n + 1 for n in range(limit) if tokens.own[n] and not tokens.own[n + 1]]
            if not ends:
                return None
            end = ends[-1]
        return Tokens(prompt, tokens.completion[:end], tokens.own[:end])

    def _render(self, messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]], *, generation: bool = False) -> str:
        if not self._template:
            raise InputError("the model's tokenizer has no chat template: give rows of plain text, or name a chat model")
        try:
            (text,), _ = render_jinja_template(
                [messages], list(tools) or None, chat_template=self._template, add_generation_prompt=generation, **self._special
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise InputError(f"the model's chat template cannot say this conversation: {error}") from error
        return str(text)

    @property
    def _special(self) -> Mapping[str, Any]:
        return {name: value for name, value in self._tokenizer.special_tokens_map.items() if isinstance(value, str)}

    def _ids(self, text: str, *, special: bool = False) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=special)["input_ids"])

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _template(tokenizer: Any) -> str:
    own = tokenizer.chat_template
    if isinstance(own, dict):
        own = own.get("default")
    if not own:
        return ""
    try:
        return str(get_training_chat_template(tokenizer) or own)
    except (ValueError, TemplateError, TypeError):
        # TRL knows no marked form of it: the turns are found by rendering.
        return str(own)


def _messages(value: TextOrMessages, role: str) -> list[dict[str, Any]]:
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    return [_message(message) for message in value]


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Without fields that say nothing, and with the arguments of calls as objects: what templates are written for."""
    fields = {name: value for name, value in message.items() if value is not None}
    fields.setdefault("content", "")
    if calls := fields.get("tool_calls"):
        fields["tool_calls"] = [_call(call) for call in calls]
    return fields


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return dict(call)
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        # A call that was no JSON: it stays as it was said.
        return dict(call)
    return {**call, "function": {**function, "arguments": arguments}}


def _check_nothing_left_out(text: str, spans: Sequence[Span], turns: Sequence[Mapping[str, Any]]) -> None:
    """Templates drop what they do not know without a word: what is not there cannot be learned."""
    own = "".join(text[start:end] for start, end in spans)
    for turn in turns:
        parts = [turn["content"]] if isinstance(turn["content"], str) else []
        parts += [call["function"]["name"] for call in turn.get("tool_calls", ()) if "function" in call]
        for part in parts:
            if part.strip() not in own:
                what = "tool calls" if turn.get("tool_calls") else "part of what the agent says"
                raise InputError(
                    f"the model's chat template leaves out {what} ({part.strip()[:40]!r}): "
                    "name a model whose template can say it, or give rows of plain text"
                )
