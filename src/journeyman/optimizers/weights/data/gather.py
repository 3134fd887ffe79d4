"""Traces become candidates for rows. What they say waits in a file: a store of any size fits into memory."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from journeyman.agents.answer import CHARACTERS_PER_TOKEN, without_bullets, without_citation
from journeyman.core.feedback import corrected_answer
from journeyman.core.reward import Reward, Source, decide
from journeyman.core.score import Experience
from journeyman.core.task import Split
from journeyman.core.trace import ModelCall, Reasoning, Trace
from journeyman.optimizers.weights.data.config import DatasetConfig
from journeyman.optimizers.weights.rows import ROLES, TextOrMessages, arguments_of, is_number
from journeyman.tracing.evidence import evidence_of
from journeyman.tracing.fields import recorded_tools
from journeyman.tracing.importers.finetuning import UNASKED, FinetuningCall, Losses, Transcript, conversations, with_messages

# What rows are made of: traces, and what is known of their worth.


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTrace:
    """A trace with the verdicts on it."""

    trace: Trace
    said: tuple[Reward, ...] = ()
    """All that was said of it: labels, rewards, what an auto-labeler proposes."""
    split: Split | None = None

    @classmethod
    def of(cls, trace: Trace) -> "JudgedTrace":
        """By what stands on the trace itself."""
        value = trace.raw.get("split")
        split = Split(value) if value in tuple(Split) else None
        return cls(trace=trace, said=trace.said, split=split)

    @classmethod
    def of_experience(cls, experience: Experience) -> "JudgedTrace":
        said = replace(experience.trace, rewards=experience.score.rewards).said
        return cls(trace=experience.trace, said=said, split=experience.task.split)


@dataclass(frozen=True, slots=True)
class LabelVerdict:
    """A label, and by what rule."""

    good: bool
    source: Source
    """Of two verdicts on the same completion, the one whose source goes before the other's holds."""
    reason: str
    """Who decided, in one sentence."""
    value: float
    """For a group: the mean of what decided, 0 to 1."""

    @property
    def rank(self) -> int:
        return list(Source).index(self.source)


def verdict(judged: JudgedTrace, threshold: float, *, proposals: bool) -> LabelVerdict | None:
    """By the one rule, `core.reward.decide`; the auto-labeler's word only where it is asked for. `None` where nobody knows.

    What somebody says should have been answered is ground truth of the answer that was given, where nobody of the same standing
    judged it: another one is wrong.
    """
    found = decide(
        (each for each in judged.said if proposals or each.told_by is not Source.LABELER),
        threshold=threshold,
    )
    correction, order = corrected_answer(judged.said), list(Source)
    if correction is not None and (
        found.good is None or found.source is None or order.index(found.source) > order.index(correction.told_by)
    ):
        same = _folded(judged.trace.reply) == _folded(correction.evidence)
        why = f"the {correction.told_by} says that {'this' if same else 'something else'} should have been answered"
        return LabelVerdict(same, correction.told_by, why, float(same))
    if found.good is None or found.source is None or found.worth is None:
        return None
    return LabelVerdict(found.good, found.source, found.reason, found.worth)


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def exclusion_reason(judged: JudgedTrace) -> str | None:
    """Why nobody may learn from it."""
    if judged.split is Split.HELD_OUT or judged.trace.held_out:
        return "attempts at held-out tasks, from which nobody may learn"
    if judged.split is Split.VALIDATION:
        return "attempts at validation tasks, which are to choose by"
    return None


# What a trace gives to learn from: its conversations, each cut into what was asked and what the agent did.


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One conversation."""

    prompt: TextOrMessages
    completion: TextOrMessages
    tools: tuple[Mapping[str, Any], ...] = ()
    logprobs: tuple[float, ...] | None = None
    """Of the tokens that the agent wrote, where the provider told them all."""
    instructions: str = ""
    """What the system messages say without bullets of a playbook: the same in all attempts at one task."""


def conversations_of(trace: Trace, config: DatasetConfig, losses: Losses) -> Iterator[Conversation]:
    """The conversations of a trace: one, or more where the agent had sub-agents or began anew. In the plain form, the one
    answer. What could not be told is counted."""
    trace = replace(trace, steps=tuple(with_messages(trace, losses)))
    found = [
        chat for thread in conversations(trace.steps) if (chat := _conversation(trace, thread, config, losses)) is not None
    ]
    if config.form == "plain":
        yield from _plain(trace, found, config, losses)
        return
    losses.add("further conversations of a trace: rows of their own", max(0, len(found) - 1))
    yield from found


def _conversation(trace: Trace, thread: Sequence[ModelCall], config: DatasetConfig, losses: Losses) -> Conversation | None:
    lost = Losses()
    exchanges = _to_last_answer(list(Transcript(trace.steps, lost).exchanges(thread)))
    if lost.counts[UNASKED]:
        # An answer without what it rests on teaches to make things up.
        losses.add("conversations with an answer of a tool whose call was not recorded: left out")
        return None
    losses.update(lost)
    first = _first_own(exchanges)
    if first is None:
        losses.add("conversations without an answer: left out")
        return None
    try:
        told = [_messages(trace, exchange, config) for exchange in exchanges]
    except ValueError as error:
        losses.add(f"{error}: left out")
        return None
    answer = told[first][-1]
    messages = [message for each in told for message in each]
    cut = next(at for at, message in enumerate(messages) if message is answer)
    if cut == 0 or messages[cut - 1]["role"] == "system":
        losses.add("conversations in which nothing was asked: left out")
        return None
    tools = _tools(trace, thread)
    if not tools and any("tool_calls" in message for message in messages):
        losses.add("conversations with tools whose definitions were not recorded")
    logprobs = _logprobs([(each, said[-1]) for each, said in zip(exchanges, told, strict=True)][first:])
    said = (without_bullets(message["content"]) for message in messages[:cut] if message["role"] == "system")
    return Conversation(
        prompt=tuple(messages[:cut]),
        completion=tuple(messages[cut:]),
        tools=tools,
        logprobs=logprobs,
        instructions="\n\n".join(said),
    )


def _to_last_answer(exchanges: list[FinetuningCall]) -> list[FinetuningCall]:
    while exchanges and exchanges[-1].answer is None:
        exchanges.pop()
    return exchanges


def _first_own(exchanges: Sequence[FinetuningCall]) -> int | None:
    """The exchange whose answer is the first to learn. What an assistant says that the model was sent, and did not write,
    belongs to the prompt, with all that was said before."""
    canned = (at for at, each in enumerate(exchanges) if any(said["role"] == "assistant" for said in each.heard))
    least = max(canned, default=0)
    return next((at for at, each in enumerate(exchanges) if at >= least and each.answer is not None), None)


def _messages(trace: Trace, exchange: FinetuningCall, config: DatasetConfig) -> list[dict[str, Any]]:
    said = [*exchange.heard, *([exchange.answer] if exchange.answer is not None else ())]
    told = [(message, _told(trace, exchange, message, config)) for message in said]
    # A message that was put in for the bullets alone goes with them.
    return [mine for theirs, mine in told if mine["role"] != "system" or mine["content"] or not theirs["content"]]


def _told(trace: Trace, exchange: FinetuningCall, said: Mapping[str, Any], config: DatasetConfig) -> dict[str, Any]:
    """A message in TRL's form.

    Raises:
        ValueError: It has none; the message says what it is, in the plural.
    """
    role, content = said["role"], said["content"]
    if role not in ROLES:
        raise ValueError("conversations with a message of a role that is not known")
    if role in ("system", "user") and config.context == "drop":
        content = _bare(said, exchange)
    if said is not exchange.answer:
        return {**said, "content": content}
    if config.context == "drop" and exchange.call.cited:
        content = without_citation(content)
    told: dict[str, Any] = {"role": role, "content": content}
    if config.reasoning == "keep" and (thought := _thought(trace, exchange.call)):
        told["reasoning_content"] = thought
    if calls := said.get("tool_calls"):
        told["tool_calls"] = [_tool_call(call) for call in calls]
    return told


def _bare(said: Mapping[str, Any], exchange: FinetuningCall) -> str:
    """A message without the bullets that were put in: as a rule into what the system says, else before the user's words."""
    content: str = said["content"]
    shown = bool(exchange.call.shown)
    if said["role"] == "user" and not shown:
        return content
    found = without_bullets(content)
    if found != content or not shown:
        return found
    others = (each["content"] for each in exchange.heard if each["role"] in ("system", "user"))
    if said["role"] == "user" or any(without_bullets(each) != each for each in others):
        return content
    if content.startswith("reply\n- "):
        return without_bullets(content, terse=True)
    raise ValueError("conversations whose prompt had bullets in it that could not be found in the text")


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = arguments_of(call["function"]["arguments"])
    if arguments is None:
        raise ValueError("conversations with a tool call whose arguments are no object, which no chat template can write")
    return {**call, "function": {**call["function"], "arguments": arguments}}


def _thought(trace: Trace, call: ModelCall) -> str:
    return "\n\n".join(step.text for step in trace.steps if isinstance(step, Reasoning) and call.id and step.parent == call.id)


def _tools(trace: Trace, thread: Sequence[ModelCall]) -> tuple[Mapping[str, Any], ...]:
    """The schemas of the tools, where the recorder kept them; of some only the names are known."""
    places = [*(call.raw for call in thread), trace.raw]
    return next((told for place in places if (told := tuple(recorded_tools(place)))), ())


def _logprobs(own: Sequence[tuple[FinetuningCall, Mapping[str, Any]]]) -> tuple[float, ...] | None:
    """Of all tokens that were written, where what is told is what was written. A provider tells those of the text and not
    those of tool calls."""
    found: list[float] = []
    for exchange, told in own:
        if exchange.answer is None:
            continue
        known = logprobs_of(exchange.call) if told == exchange.answer and "tool_calls" not in told else None
        if known is None:
            return None
        found += known
    return tuple(found) or None


def logprobs_of(call: ModelCall) -> Sequence[float] | None:
    """What the provider told of each token of the reply: natural logarithms, in OpenAI's form or as bare numbers."""
    told = call.raw.get("logprobs")
    if isinstance(told, Mapping):
        told = told.get("content")
    if not isinstance(told, list | tuple):
        return None
    found: list[Any] = [token.get("logprob") if isinstance(token, Mapping) else token for token in told]
    return [float(value) for value in found] if found and all(map(is_number, found)) else None


def _plain(trace: Trace, found: Sequence[Conversation], config: DatasetConfig, losses: Losses) -> Iterator[Conversation]:
    if not found:
        return
    query, reply = trace.input or _asked(found[0]) or trace.query, trace.reply
    if config.context == "drop":
        reply = without_citation(reply)
    if not query or not reply:
        losses.add("traces without a question or an answer in text: left out")
        return
    losses.add("tool calls, which plain text has no place for", len(trace.tool_calls))
    alone = len(trace.calls) == 1 and reply == trace.calls[0].reply
    logprobs = found[0].logprobs if alone else None
    yield Conversation(prompt=f"User: {query}", completion=reply, logprobs=logprobs, instructions=found[0].instructions)


def _asked(chat: Conversation) -> str:
    said = (str(message["content"]) for message in chat.prompt if isinstance(message, Mapping) and message["role"] == "user")
    return next(said, "")


# Rows that are too long: cut behind an answer, and never in the middle of a message or between a tool call and its answers.


def max_characters(config: DatasetConfig) -> int | None:
    """Characters that a row may have."""
    limits = (config.max_characters, None if config.max_tokens is None else config.max_tokens * CHARACTERS_PER_TOKEN)
    return min((limit for limit in limits if limit is not None), default=None)


def count_characters(text: TextOrMessages) -> int:
    """Characters of a text, or of what messages say: texts, thoughts and tool calls."""
    return len(text) if isinstance(text, str) else sum(map(_message_length, text))


def truncated(chat: Conversation, max_characters: int | None, lost: Callable[[str], None]) -> Conversation | None:
    """The chat, within so many characters: later answers go, with what was said to them, until it fits. `None` where not even
    the first answer does, or text is too long: half an answer would teach to stop in the middle."""
    if max_characters is None or count_characters(chat.prompt) + count_characters(chat.completion) <= max_characters:
        return chat
    completion = (
        None
        if isinstance(chat.completion, str)
        else _leading_answers(chat.completion, max_characters - count_characters(chat.prompt))
    )
    if completion is None:
        lost("longer than allowed with the first answer alone: left out")
        return None
    lost("cut behind an earlier answer, being longer than allowed")
    # The recorded log-probabilities are of the whole.
    return replace(chat, completion=completion, logprobs=None)


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


UNKNOWN = "traces of which nobody knows what they were worth"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRow:
    """What is known in memory of a candidate for a row."""

    key: tuple[datetime, str, int, bytes]
    """By which they are put in order, whatever the order in which they came: time, id of the trace, number in it, all else."""
    offset: int
    """Bytes from the beginning of the spool to its payload."""
    content: bytes
    """Digest of prompt, completion and tools."""
    prompt: bytes
    """Digest of prompt and tools."""
    task: bytes
    """Digest of the task's domain and id, and of the agent's instructions and tools: of two sets of tasks with the same ids,
    that tells them apart."""
    verdict: LabelVerdict
    reward: float
    agent: str
    domain: str
    source: str
    task_id: str
    prompt_length: int
    completion_length: int

    @property
    def trace(self) -> str:
        return self.key[1]


class Spool:
    """Prompts and completions of the candidates, in a temporary file: one JSON payload a line, found by its offset in bytes."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - `close` closes it

    def add(self, payload: Mapping[str, Any]) -> int:
        """Write a payload; its offset. Half a surrogate pair, which is no text, becomes a question mark."""
        offset = self._file.seek(0, 2)
        self._file.write(json.dumps(payload, ensure_ascii=False, default=str).encode(errors="replace") + b"\n")
        return offset

    def get(self, offset: int) -> dict[str, Any]:
        self._file.seek(offset)
        payload: dict[str, Any] = json.loads(self._file.readline())
        return payload

    def close(self) -> None:
        self._file.close()


def gather(
    judged: Iterable[JudgedTrace],
    config: DatasetConfig,
    spool: Spool,
    losses: Losses,
    done: Callable[[int], None] = lambda _: None,
) -> list[CandidateRow]:
    """The candidates that traces give, in the order of their keys; what is left out is counted.

    Args:
        done: Told after each trace that it is one more.
    """
    candidates: list[CandidateRow] = []
    for one in judged:
        candidates += _of(one, config, spool, losses)
        done(1)
    return sorted(candidates, key=lambda each: each.key)


def _of(judged: JudgedTrace, config: DatasetConfig, spool: Spool, losses: Losses) -> Iterable[CandidateRow]:
    if why := exclusion_reason(judged):
        losses.add(f"{why}: left out")
        return
    label = verdict(judged, config.threshold, proposals=config.auto_labels)
    if label is None and config.calls:
        yield from _of_calls(judged, config, spool, losses)
        return
    if label is None:
        losses.add(f"{UNKNOWN}: left out")
        return
    chats = list(conversations_of(judged.trace, config, losses))
    task = _task(judged, chats[0]) if chats else b""
    labelled = [(chat, label) for chat in chats]
    if (corrected := _corrected(judged, chats)) is not None and config.method == "grpo":
        losses.add("corrected answers: no attempt wrote them, so that they are in no group")
    elif corrected is not None:
        labelled.append(corrected)
    for number, (chat, verdict_on_it) in enumerate(labelled):
        fit = truncated(chat, max_characters(config), lambda what: losses.add(f"rows {what}"))
        if fit is not None:
            yield _candidate(judged, fit, number, (task, verdict_on_it), spool)


def _corrected(judged: JudgedTrace, chats: Sequence[Conversation]) -> tuple[Conversation, LabelVerdict] | None:
    """The conversation with the answer that somebody says should have been given, where that is another one."""
    correction, reply = corrected_answer(judged.said), _folded(judged.trace.reply)
    if correction is None or _folded(correction.evidence) == reply:
        return None
    text = correction.evidence.strip()
    why = f"the {correction.told_by} says that this should have been answered"
    label = LabelVerdict(good=True, source=correction.told_by, reason=why, value=1.0)
    for chat in chats:
        if isinstance(chat.completion, str):
            return replace(chat, completion=text, logprobs=None), label
        *before, last = chat.completion
        # Of sub-agents, the conversation whose answer the agent gave.
        if last["role"] == "assistant" and _folded(last["content"]) == reply:
            asked = (*chat.prompt, *before)
            return replace(chat, prompt=asked, completion=({"role": "assistant", "content": text},), logprobs=None), label
    return None


def _of_calls(judged: JudgedTrace, config: DatasetConfig, spool: Spool, losses: Losses) -> Iterator[CandidateRow]:
    """The calls that a tool refused, and what it took instead, each as an answer to what had been said before the first."""
    attempt = evidence_of(judged.trace)
    answers = {
        exchange.call.id: (prompt, exchange.answer)
        for thread in conversations(judged.trace.steps)
        for prompt, exchange in _with_prompts(judged.trace, thread)
    }
    tools = tuple(dict(told) for call in judged.trace.calls[:1] for told in recorded_tools(call.raw))
    number = 0
    for call in attempt.calls:
        after = attempt.accepted_after(call) if call.ok is False else None
        if after is None or after.written == call.written or call.model_call not in answers:
            continue
        prompt, refused = answers[call.model_call]
        _, taken = answers.get(after.model_call or "", ((), None))
        for answer, good in ((refused, False), (taken, True)):
            if answer is None or not prompt:
                continue
            why = f"{call.tool} took the call" if good else f"{call.tool} refused the call, and took it with other arguments"
            label = LabelVerdict(good=good, source=Source.CHECK, reason=why, value=float(good))
            chat = Conversation(prompt=prompt, completion=(answer,), tools=tools)
            yield _candidate(judged, chat, number, (_task(judged, chat), label), spool)
            number += 1
    if not number:
        losses.add(f"{UNKNOWN}, and in which no tool took a call that it had refused: left out")


def _with_prompts(trace: Trace, thread: Sequence[ModelCall]) -> Iterator[tuple[tuple[Mapping[str, Any], ...], FinetuningCall]]:
    """Each exchange of a conversation with all that had been said before its answer."""
    said: list[Mapping[str, Any]] = []
    for exchange in Transcript(trace.steps, Losses()).exchanges(thread):
        said += exchange.heard
        yield tuple(said), exchange
        if exchange.answer is not None:
            said.append(exchange.answer)


def _candidate(
    judged: JudgedTrace, chat: Conversation, number: int, known: tuple[bytes, LabelVerdict], spool: Spool
) -> CandidateRow:
    trace, (task, label) = judged.trace, known
    content = _digest([chat.prompt, chat.completion, chat.tools])
    of = (trace.agent, trace.domain, trace.source, trace.task_id)
    payload = {"prompt": chat.prompt, "completion": chat.completion, "tools": chat.tools, "logprobs": chat.logprobs}
    return CandidateRow(
        key=(
            trace.started_at,
            trace.id,
            number,
            _digest([content.hex(), *of, label.value, [label.good, label.source]]),
        ),
        offset=spool.add(payload),
        content=content,
        prompt=_digest([chat.prompt, chat.tools]),
        task=task,
        verdict=label,
        reward=label.value,
        agent=trace.agent or "",
        domain=trace.domain,
        source=trace.source,
        task_id=trace.task_id,
        prompt_length=count_characters(chat.prompt),
        completion_length=count_characters(chat.completion),
    )


def _task(judged: JudgedTrace, chat: Conversation) -> bytes:
    return _digest([judged.trace.domain, judged.trace.task_id, chat.instructions, chat.tools])


def _digest(value: Any) -> bytes:
    return hashlib.blake2b(json.dumps(value, sort_keys=True, default=str).encode(), digest_size=16).digest()
