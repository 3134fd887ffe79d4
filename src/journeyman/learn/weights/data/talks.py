"""What a trace gives to learn from: its conversations, each cut into what was asked and what the agent did."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from journeyman.agents.prompts import without_bullets, without_citation
from journeyman.capture.finetuning import UNASKED, Exchange, Losses, Transcript, conversations, with_messages
from journeyman.learn.weights.data.config import DatasetConfig
from journeyman.learn.weights.data.forms import ROLES, arguments_of, is_number
from journeyman.learn.weights.rows import TextOrMessages as Said
from journeyman.trace import ModelCall, Reasoning, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """One conversation."""

    prompt: Said
    completion: Said
    tools: tuple[Mapping[str, Any], ...] = ()
    logprobs: tuple[float, ...] | None = None
    """Of the tokens that the agent wrote, where the provider told them all."""
    instructions: str = ""
    """What the system messages say without bullets of a playbook: the same in all attempts at one task."""


def talks(trace: Trace, config: DatasetConfig, losses: Losses) -> Iterator[Talk]:
    """The conversations of a trace: one, or more where the agent had sub-agents or began anew. In the plain form, the one
    answer. What could not be told is counted."""
    trace = replace(trace, steps=tuple(with_messages(trace.steps)))
    found = [talk for thread in conversations(trace.steps) if (talk := _talk(trace, thread, config, losses)) is not None]
    if not trace.calls:
        losses.add("traces in which no model was called: left out")
    if config.form == "plain":
        yield from _plain(trace, found, config, losses)
        return
    losses.add("further conversations of a trace: rows of their own", max(0, len(found) - 1))
    yield from found


def _talk(trace: Trace, thread: Sequence[ModelCall], config: DatasetConfig, losses: Losses) -> Talk | None:
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
    return Talk(
        prompt=tuple(messages[:cut]),
        completion=tuple(messages[cut:]),
        tools=tools,
        logprobs=logprobs,
        instructions="\n\n".join(said),
    )


def _to_last_answer(exchanges: list[Exchange]) -> list[Exchange]:
    while exchanges and exchanges[-1].answer is None:
        exchanges.pop()
    return exchanges


def _first_own(exchanges: Sequence[Exchange]) -> int | None:
    """The exchange whose answer is the first to learn. What an assistant says that the model was sent, and did not write,
    belongs to the prompt, with all that was said before."""
    canned = (at for at, each in enumerate(exchanges) if any(said["role"] == "assistant" for said in each.heard))
    least = max(canned, default=0)
    return next((at for at, each in enumerate(exchanges) if at >= least and each.answer is not None), None)


def _messages(trace: Trace, exchange: Exchange, config: DatasetConfig) -> list[dict[str, Any]]:
    said = [*exchange.heard, *([exchange.answer] if exchange.answer is not None else ())]
    return [_told(trace, exchange, message, config) for message in said]


def _told(trace: Trace, exchange: Exchange, said: Mapping[str, Any], config: DatasetConfig) -> dict[str, Any]:
    """A message in TRL's form.

    Raises:
        ValueError: It has none; the message says what it is, in the plural.
    """
    role, content = said["role"], said["content"]
    if role not in ROLES:
        raise ValueError("conversations with a message of a role that is not known")
    if role == "system" and config.context == "drop":
        content = _bare(content, exchange.call)
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


def _bare(system: str, call: ModelCall) -> str:
    found = without_bullets(system)
    if found != system or not call.shown:
        return found
    if system.startswith("reply\n- "):
        return without_bullets(system, terse=True)
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
    for place in places:
        told = place.get("tools")
        if isinstance(told, list | tuple) and told and all(isinstance(tool, Mapping) for tool in told):
            return tuple(told)
    return ()


def _logprobs(own: Sequence[tuple[Exchange, Mapping[str, Any]]]) -> tuple[float, ...] | None:
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


def _plain(trace: Trace, found: Sequence[Talk], config: DatasetConfig, losses: Losses) -> Iterator[Talk]:
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
    yield Talk(prompt=f"User: {query}", completion=reply, logprobs=logprobs, instructions=found[0].instructions)


def _asked(talk: Talk) -> str:
    said = (str(message["content"]) for message in talk.prompt if isinstance(message, Mapping) and message["role"] == "user")
    return next(said, "")
