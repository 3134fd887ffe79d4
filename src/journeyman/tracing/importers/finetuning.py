"""Traces as OpenAI's fine-tuning takes them: a conversation a line, `{"messages": […]}`, tool calls and all.

The format is narrower than a trace. What it has no place for is counted, so that whoever exports can be told.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from journeyman.core.feedback import corrected_answer
from journeyman.core.messages import Turn
from journeyman.core.trace import PROGRAM, AgentCall, Message, ModelCall, Reasoning, Step, ToolCall, Trace, spoken
from journeyman.tracing.fields import parsed_if_json, recorded_tools

# Tool calls that were not seen when they were asked for stand in a recorded message in brackets: `[find {"id": 7}]`. Where
# their answers follow, they are found again.

_CALL = re.compile(r"\[(?:calls )?([\w.:/-]{1,200}) (?=[{\]])")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class BracketedPart:
    """Messages, behind one in which the assistant asked for tools, but for the first part."""

    text: str = ""
    """What it said beside that."""
    calls: tuple[ToolCall, ...] = ()
    rest: tuple[Message, ...] = ()


def as_message(turn: Turn) -> Message:
    """A turn as a message, with the tool calls in it that it asks for."""
    asked = (f"[{call.tool} {call.arguments}]" for call in turn.calls)
    return Message(role=turn.role, text="\n".join(filter(None, (turn.text, *asked))), answers=turn.answers)


def parts(messages: Sequence[Message]) -> Iterator[BracketedPart]:
    """The messages in their order, cut before each that asks for tools and is answered."""
    text, calls, begin = "", tuple[ToolCall, ...](), 0
    for at, message in enumerate(messages):
        answers = list(takewhile(lambda said: said.role == "tool", messages[at + 1 :]))
        found = _bracketed_calls(message.text) if answers and message.role == "assistant" else None
        if found is None:
            continue
        yield BracketedPart(text=text, calls=calls, rest=tuple(messages[begin:at]))
        text, asked = found
        ids = [said.answers or "" for said in answers] + [""] * len(asked)
        calls = tuple(
            ToolCall(tool=tool, arguments=arguments, result="", id=id)
            for (tool, arguments), id in zip(asked, ids, strict=False)
        )
        begin = at + 1
    yield BracketedPart(text=text, calls=calls, rest=tuple(messages[begin:]))


def _bracketed_calls(text: str) -> tuple[str, list[tuple[str, str]]] | None:
    """What stands before the calls at the end of a text, and the calls; `None` where there are none."""
    for start in (match.start() for match in _CALL.finditer(text)):
        if start == 0 or text[start - 1] == "\n":
            calls = _calls(text, start)
            if calls:
                return text[: max(start - 1, 0)], calls
    return None


def _calls(text: str, at: int) -> list[tuple[str, str]]:
    """The calls from a place on; none where anything else is there, too."""
    calls: list[tuple[str, str]] = []
    while at < len(text):
        match = _CALL.match(text, at)
        end = None if match is None else _end(text, match.end())
        if match is None or end is None or text[end : end + 1] != "]" or text[end + 1 : end + 2] not in ("", "\n"):
            return []
        calls.append((match[1], text[match.end() : end]))
        at = end + 2
    return calls


def _end(text: str, at: int) -> int | None:
    """Where the arguments end that begin here."""
    if text[at] == "]":
        return at
    try:
        return _DECODER.raw_decode(text, at)[1]
    except (ValueError, RecursionError):
        return None


_SPOKEN = re.compile(r"(?:\A|\n\n)(system|developer|user|assistant|tool|function): ")
_MARKED = re.compile(r"(?:\A|\n\n)\[(system|user|assistant)\]\n")
_ROLES = {"developer": "system", "function": "tool"}

UNASKED = "answers of tools that no call asked for: left out"


class Losses:
    """What could not be carried, and how often."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, what: str, count: int = 1) -> None:
        if count:
            self.counts[what] += count

    def update(self, other: "Losses") -> None:
        self.counts.update(other.counts)

    def __iter__(self) -> Iterator[str]:
        """A line for each kind, as a person would say it."""
        ordered = sorted(self.counts.items(), key=lambda each: (-each[1], each[0]))
        return (f"{count} {what}" for what, count in ordered)


def lines(trace: Trace, losses: Losses, format: str = "chat") -> Iterator[str]:
    """The conversations of a trace as lines of JSON without their ends: one, or more where the agent had sub-agents or began
    anew. None when nothing was asked or answered.

    Args:
        format: One of `FORMATS`.
    """
    for record in _records(trace, losses):
        if (row := FORMATS[format](trace, record, losses)) is not None:
            yield json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def _records(trace: Trace, losses: Losses) -> Iterator[dict[str, Any]]:
    """The conversations of a trace in OpenAI's shape."""
    if trace.held_out:
        losses.add("attempts at held-out tasks, from which nobody may learn: left out")
        return
    steps = with_messages(trace, losses)
    threads = list(conversations(steps))
    losses.add("further conversations of a trace: lines of their own", len(threads) - 1)
    losses.add("thoughts that were recorded apart", sum(isinstance(step, Reasoning) for step in trace.steps))
    losses.add("agents' names, inputs and outputs", sum(isinstance(step, AgentCall) for step in trace.steps))
    for thread in threads:
        messages = _trimmed(Transcript(steps, losses).messages(thread), losses)
        if not messages:
            losses.add("conversations without an answer: left out")
            continue
        record: dict[str, Any] = {"messages": messages}
        if tools := next((found for call in thread if (found := recorded_tools(call.raw))), None):
            record["tools"] = tools
        elif any("tool_calls" in message for message in messages):
            losses.add("conversations with tools whose definitions were not recorded")
        yield record


_EVALS = "traces that are not known to be good: left out, as what would be right is not known"
_UNEVEN = "conversations in which two of a side speak in turn, or the agent speaks first: left out"
_WHO = {"user": "human", "tool": "observation", "assistant": "gpt"}


def _as_eval(trace: Trace, record: dict[str, Any], losses: Losses) -> dict[str, Any] | None:
    """A sample of openai/evals: what was said before the last answer, and that answer, where it is known to be right."""
    *before, last = record["messages"]
    if trace.verdict.good is not True:
        losses.add(_EVALS)
        return None
    if not last["content"] or not before:
        losses.add("conversations that end in a tool call: left out")
        return None
    return {"input": before, "ideal": last["content"]}


_UNCORRECTED = "traces whose answer nobody corrected: left out, as nothing else is known to be preferred to it"


def _as_pair(trace: Trace, record: dict[str, Any], losses: Losses) -> dict[str, Any] | None:
    """A row of preferences as TRL's DPO, ORPO and CPO take it: what should have been answered before what was."""
    *before, last = record["messages"]
    wanted = corrected_answer(trace.rewards)
    if wanted is None:
        losses.add(_UNCORRECTED)
        return None
    if not before or not last["content"] or last.get("tool_calls"):
        losses.add("conversations that end in a tool call: left out")
        return None
    if wanted.evidence == last["content"]:
        losses.add("corrections that say what was answered: left out")
        return None
    chosen, rejected = ([{"role": "assistant", "content": text}] for text in (wanted.evidence, last["content"]))
    tools = {"tools": record["tools"]} if record.get("tools") else {}
    return {"prompt": before, "chosen": chosen, "rejected": rejected, **tools}


def _as_axolotl_pair(trace: Trace, record: dict[str, Any], losses: Losses) -> dict[str, Any] | None:
    """The same as axolotl's `chat_template.default` has it."""
    row = _as_pair(trace, record, losses)
    return row and {"messages": row["prompt"], "chosen": row["chosen"][0], "rejected": row["rejected"][0]}


def _as_sharegpt_pair(trace: Trace, record: dict[str, Any], losses: Losses) -> dict[str, Any] | None:
    """The same as LLaMA-Factory has it, a data set of the formatting `sharegpt` with `ranking`."""
    row = _as_pair(trace, record, losses)
    whole = row and _as_sharegpt(trace, record, losses)
    if not row or not whole:
        return None
    said = {side: {"from": "gpt", "value": row[side][0]["content"]} for side in ("chosen", "rejected")}
    return {**whole, "conversations": whole["conversations"][:-1], **said}


def _as_sharegpt(_: Trace, record: dict[str, Any], losses: Losses) -> dict[str, Any] | None:
    """A conversation as LLaMA-Factory's `sharegpt` has it: human and observation take turns with gpt and function_call."""
    messages = record["messages"]
    leading = list(takewhile(lambda message: message["role"] == "system", messages))
    said: list[dict[str, str]] = []
    for message in messages[len(leading) :]:
        if message["role"] == "system":
            losses.add("system messages in the midst of a conversation: left out")
            continue
        who, value = _WHO.get(message["role"], message["role"]), message["content"]
        if calls := message.get("tool_calls"):
            losses.add("words beside tool calls: left out", bool(value))
            who, value = "function_call", _as_function_call(calls)
        if said and said[-1]["from"] == who and who in ("human", "observation"):
            said[-1]["value"] += f"\n\n{value}"
        else:
            said.append({"from": who, "value": value})
    asks = [each["from"] in ("human", "observation") for each in said]
    if asks != [number % 2 == 0 for number in range(len(said))] or len(said) % 2:
        losses.add(_UNEVEN)
        return None
    row: dict[str, Any] = {"conversations": said, "system": "\n\n".join(message["content"] for message in leading)}
    if tools := record.get("tools"):
        row["tools"] = json.dumps([tool.get("function", tool) for tool in tools], ensure_ascii=False)
    return row


def _as_function_call(calls: Sequence[Mapping[str, Any]]) -> str:
    """One as an object, several as a list."""
    asked = [{"name": call["function"]["name"], "arguments": parsed_if_json(call["function"]["arguments"])} for call in calls]
    return json.dumps(asked[0] if len(asked) == 1 else asked, ensure_ascii=False)


FORMATS: Mapping[str, Callable[[Trace, dict[str, Any], Losses], dict[str, Any] | None]] = {
    "chat": lambda _, record, __: record,
    "sharegpt": _as_sharegpt,
    "evals": _as_eval,
    "dpo": _as_pair,
    "dpo-axolotl": _as_axolotl_pair,
    "dpo-sharegpt": _as_sharegpt_pair,
}
"""What a conversation becomes, by the name of a format: `chat` is read by OpenAI, TRL, axolotl and LLaMA-Factory."""


def with_messages(trace: Trace, losses: Losses) -> Sequence[Step]:
    """The steps, where the calls of our own agents have their messages: they are recorded with the whole prompt as one text,
    `[system]`, `[user]` and `[assistant]` before what was said. One that repeats the call before it goes on with that.

    A trace in which no call of a model was seen is one exchange: what was asked, and what was answered."""
    if not trace.calls:
        if not trace.query.strip() or not trace.reply.strip():
            losses.add("traces in which no model was called: left out")
            return ()
        losses.add("traces in which no call of a model was seen: what was asked and answered is all that is told")
        asked = Message(role="user", text=trace.query)
        return (ModelCall(model="", prompt=spoken((asked,)), messages=(asked,), reply=trace.reply, id=trace.id),)
    steps_with_messages: list[Step] = []
    before: ModelCall | None = None
    for number, step in enumerate(trace.steps, start=1):
        if not isinstance(step, ModelCall) or step.messages or not _MARKED.match(step.prompt):
            steps_with_messages.append(step)
            continue
        start = "" if before is None else f"{before.prompt}\n\n[assistant]\n{before.reply or '(nothing)'}\n\n"
        goes_on = before is not None and step.prompt.startswith(start)
        pieces = _MARKED.split(step.prompt[len(start) :] if goes_on else step.prompt)
        messages = tuple(Message(role=role, text=text) for role, text in zip(pieces[1::2], pieces[2::2], strict=True))
        call = replace(step, id=step.id or f"call {number}", messages=messages)
        steps_with_messages.append(replace(call, continues=before.id) if before is not None and goes_on else call)
        before = replace(call, messages=())
    return steps_with_messages


def conversations(steps: Sequence[Step]) -> Sequence[Sequence[ModelCall]]:
    """The calls that make a conversation each, oldest first, in the order of their beginnings.

    A call goes on with the one that it `continues`; where that is not known, with the one before, unless its messages begin a
    conversation. A conversation that was taken up twice is two.
    """
    threads: list[list[ModelCall]] = []
    for call in (step for step in steps if isinstance(step, ModelCall)):
        continued = _continued(call, threads)
        if continued is None:
            threads.append([call])
            continue
        thread, length = continued
        if length == len(thread):
            thread.append(call)
        else:
            threads.append([*thread[:length], call])
    return threads


def _continued(call: ModelCall, threads: Sequence[list[ModelCall]]) -> tuple[list[ModelCall], int] | None:
    """The conversation that this call goes on with, and after how many calls; `None` when it begins one."""
    if call.continues is not None:
        places = ((thread, at) for thread in threads for at, earlier in enumerate(thread, 1) if earlier.id == call.continues)
        return next(places, None)
    goes_on = not call.messages or call.messages[0].role in ("assistant", "tool")
    return (threads[-1], len(threads[-1])) if threads and goes_on else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetuningCall:
    """One call of a conversation, as messages."""

    call: ModelCall
    heard: Sequence[dict[str, Any]]
    """What was new to the model, answers of tools first."""
    answer: dict[str, Any] | None
    """What it wrote; `None` where nothing came."""


class Transcript:
    """Writes one conversation. A tool call is answered once: by the message that names it, else by its own result."""

    def __init__(self, steps: Sequence[Step], losses: Losses) -> None:
        self._losses = losses
        self._asked = _calls_by_owner(steps)
        self._open: dict[str, ToolCall] = {}
        self._numbered = 0

    def messages(self, thread: Iterable[ModelCall]) -> list[dict[str, Any]]:
        """All that was said."""
        written: list[dict[str, Any]] = []
        for exchange in self.exchanges(thread):
            written += exchange.heard
            if exchange.answer is not None:
                written.append(exchange.answer)
        return [*written, *self._unanswered()]

    def exchanges(self, thread: Iterable[ModelCall]) -> Iterator[FinetuningCall]:
        """The same, call by call: what the model wrote is told from what it was sent."""
        for call in thread:
            heard = self._new(call)
            answer: dict[str, Any] = {"role": "assistant", "content": call.reply}
            if tools := self._asked.get(id(call), ()):
                answer["tool_calls"] = [self._tool_call(tool) for tool in tools]
            if not call.reply and not tools:
                self._losses.add("calls without an answer")
            yield FinetuningCall(call=call, heard=heard, answer=answer if call.reply or tools else None)

    def _new(self, call: ModelCall) -> list[dict[str, Any]]:
        if not call.messages and call.prompt:
            self._losses.add("prompts that were recorded as one text: taken apart at their roles")
        said = call.messages or tuple(_split_at_roles(call.prompt))
        written: list[dict[str, Any]] = []
        for part in parts(said):
            if part.calls:
                calls = [self._tool_call(tool) for tool in part.calls]
                written.append({"role": "assistant", "content": part.text, "tool_calls": calls})
            written += self._as_messages(part.rest)
        return written

    def _as_messages(self, said: Sequence[Message]) -> list[dict[str, Any]]:
        answers = [self._answer(message) for message in said if message.role == "tool"]
        others = (message for message in said if message.role != "tool")
        rest = [{"role": _ROLES.get(message.role, message.role), "content": message.text} for message in others]
        # Every tool call must be answered before anything else is said.
        return [*(answer for answer in answers if answer), *self._unanswered(), *rest]

    def _tool_call(self, tool: ToolCall) -> dict[str, Any]:
        self._numbered += 1
        id = tool.id or f"call_{self._numbered}"
        self._open[id] = tool
        if not tool.ok:
            self._losses.add("tool calls that failed: the format says only what they answered")
        return {"id": id, "type": "function", "function": {"name": tool.tool, "arguments": tool.arguments}}

    def _answer(self, message: Message) -> dict[str, Any] | None:
        id = message.answers if message.answers in self._open else next(iter(self._open), None)
        if id is None:
            self._losses.add(UNASKED)
            return None
        del self._open[id]
        return {"role": "tool", "tool_call_id": id, "content": message.text}

    def _unanswered(self) -> list[dict[str, Any]]:
        left = [
            {"role": "tool", "tool_call_id": id, "content": tool.result or tool.error or ""} for id, tool in self._open.items()
        ]
        self._open.clear()
        return left


def _calls_by_owner(steps: Sequence[Step]) -> Mapping[int, Sequence[ToolCall]]:
    """The tool calls that each model call asked for, by the identity of the call: by parent, else those that came after it, but
    for those of which it is known that no model asked for them."""
    calls = {step.id: step for step in steps if isinstance(step, ModelCall) and step.id}
    by_owner: dict[int, list[ToolCall]] = {}
    latest: ModelCall | None = None
    for step in steps:
        if isinstance(step, ModelCall):
            latest = step
        elif isinstance(step, ToolCall) and step.raw.get("by") != PROGRAM:
            owner = calls.get(step.parent, latest) if step.parent else latest
            if owner is not None:
                by_owner.setdefault(id(owner), []).append(step)
    return by_owner


def _split_at_roles(prompt: str) -> Iterator[Message]:
    """`spoken` read backwards. What does not begin with a role was said by the user."""
    parts = _SPOKEN.split(prompt)
    if parts[0]:
        yield Message(role="user", text=parts[0])
    for role, text in zip(parts[1::2], parts[2::2], strict=True):
        yield Message(role=_ROLES.get(role, role), text=text)


def _trimmed(messages: list[dict[str, Any]], losses: Losses) -> list[dict[str, Any]]:
    """What comes after the last answer has nothing to teach."""
    last = max((at for at, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
    losses.add("messages after the last answer", len(messages) - last - 1 if last >= 0 else 0)
    return messages[: last + 1]
