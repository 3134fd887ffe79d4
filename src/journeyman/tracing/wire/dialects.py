"""What passed between a client and a model server, and from its bytes to what they say."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from journeyman.core.messages import ROLES, UNCOUNTED, ToolUse, Turn, Usage, arguments_text
from journeyman.tracing import conversation
from journeyman.tracing.fields import as_json, count, mapping, objects, parsed, string, text, word

if TYPE_CHECKING:
    from journeyman.io.http_client import ServerSentEvent


class Dialect(StrEnum):
    """Whose API it is."""

    CHAT = "openai.chat"
    RESPONSES = "openai.responses"
    EMBEDDINGS = "openai.embeddings"
    MESSAGES = "anthropic.messages"

    @property
    def path(self) -> str:
        """How the address of a request ends; what stands before it, such as /v1, is the base URL."""
        return _PATHS[self]

    def address(self, base_url: str) -> str:
        """Where a server with this base URL takes such requests."""
        return versioned(base_url, is_anthropic=self is Dialect.MESSAGES) + self.path


def versioned(base_url: str, *, is_anthropic: bool) -> str:
    """A base URL with the API's version behind it.

    A client of OpenAI's API is given an address with `/v1`, one of Anthropic's an address without. Either is understood.
    """
    if is_anthropic:
        return base_url.removesuffix("/v1") + "/v1"
    return base_url if urlsplit(base_url).path else f"{base_url}/v1"


_PATHS = {
    Dialect.CHAT: "/chat/completions",
    Dialect.RESPONSES: "/responses",
    Dialect.EMBEDDINGS: "/embeddings",
    Dialect.MESSAGES: "/messages",
}


def dialect_of(path: str) -> Dialect | None:
    """Whose API a request to an address is in; `None` where it is none of those that are read."""
    return next((dialect for dialect, end in _PATHS.items() if path.endswith(end)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and its answer, as bytes. Credentials are never part of it."""

    id: str
    """Made by whoever recorded it; unique."""
    dialect: Dialect
    request: bytes
    """The body, as it was sent to the upstream, but for the model's name (content-encoding undone)."""
    response: bytes
    """The body as it came (content-encoding undone): also a stream of server-sent events, also only the beginning of one."""
    status: int | None
    """HTTP status; `None` when no upstream answered."""
    streamed: bool = False
    started_at: datetime
    first_byte_seconds: float | None = None
    """Until the first byte of the answer's body."""
    seconds: float
    upstream: str = ""
    """The name, in the settings, of the server that answered."""
    base_url: str = ""
    """Its address, without credentials: what the call costs depends on it."""
    error: str | None = None
    """Why the answer is missing or cut: the upstream broke off, or the client hung up."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What the client's headers say: task, session, agent, domain, parent, candidate, trace."""
    served: Mapping[str, Any] = field(default_factory=dict)
    """What was served for it, as its call keeps it: `release`, where its session is in each rollout, and `route`, what a policy
    chose for it, with its probability."""
    shown: tuple[str, ...] = ()
    """Ids of the bullets that were put into the request on its way."""


# What one exchange says, in the same words for every dialect.

NOTHING = Turn("assistant", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedExchange:
    """What was asked and answered. Everything that could not be read is missing, and `error` says why."""

    model: str = ""
    """As answered, else as asked for."""
    turns: tuple[Turn, ...] = ()
    """All that was sent, oldest first."""
    reply: Turn = NOTHING
    others: tuple[Turn, ...] = ()
    """Of several answers to one request, those behind the first."""
    reasoning: tuple[str, ...] = ()
    finish: str | None = None
    usage: Usage = UNCOUNTED
    response_id: str | None = None
    behind: str | None = None
    """The id of an earlier answer that the server was told to go on from."""
    thread: str | None = None
    """The id of a conversation that the server keeps."""
    error: str | None = None
    """`name: message` of what went wrong."""
    raw: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the request, the provider's own count of tokens, and other answers."""

    @property
    def answered(self) -> bool:
        """Whether there is anything that a conversation could go on from."""
        return bool(self.reply.text or self.reply.calls)


def beside(request: Mapping[str, Any], usage: Mapping[str, Any], *but: str) -> dict[str, Any]:
    """What is kept of an exchange beside its steps: the provider's own count of tokens, the parameters of the request, which
    are everything `but` what is kept elsewhere, and the definitions of its tools as one text: a store keeps each text once."""
    kept = {key: value for key, value in request.items() if key not in but and value is not None}
    told: dict[str, Any] = {"request": kept}
    for key in ("tools", "functions"):
        if found := objects(kept.get(key)):
            told["tools"] = as_json(found)
            kept[key] = [_tool_name(tool) for tool in found]
    return told | ({"usage": usage} if usage else {})


def _tool_name(tool: Mapping[str, Any]) -> str:
    return string(tool.get("name")) or string(mapping(tool.get("function")).get("name")) or string(tool.get("type"))


# OpenAI's chat completions, and what the many servers that speak it make of it.


def read_chat(request: dict[str, Any], answer: dict[str, Any], about: dict[str, Any]) -> ParsedExchange:
    """Raises nothing, whatever the two hold. `about` are the fields that are read alike in every dialect."""
    choices = sorted(objects(answer.get("choices")), key=lambda choice: count(choice.get("index")) or 0)
    said = [(choice, mapping(choice.get("message"))) for choice in choices]
    replies = [_turn(message, "assistant") for _, message in said]
    usage = mapping(answer.get("usage")) or mapping(mapping(answer.get("x_groq")).get("usage"))
    raw = beside(request, usage, "messages", "model")
    if logprobs := _logprobs(choices):
        raw["logprobs"] = logprobs
    if len(choices) > 1:
        raw["choices"] = [
            {"text": reply.text, "tool_calls": list(map(_call_record, reply.calls)), "finish": choice.get("finish_reason")}
            for (choice, _), reply in zip(said[1:], replies[1:], strict=True)
        ]
    return ParsedExchange(
        **about,
        turns=tuple(_turn(message, "user") for message in objects(request.get("messages"))),
        reply=replies[0] if replies else NOTHING,
        others=tuple(replies[1:]),
        reasoning=_reasoning(said[0][1]) if said else (),
        finish=word(choices[0].get("finish_reason")) if choices else None,
        usage=conversation.usage_of(usage),
        raw=raw,
    )


def _call_record(call: ToolUse) -> dict[str, Any]:
    told = call._asdict()
    return {name: told[name] for name in ("id", "tool", "arguments", "result", "error")}


def _logprobs(choices: list[dict[str, Any]]) -> list[float]:
    """Of each token of the first answer, where the provider was asked for them and told them all. Numbers alone: the tokens
    stand in the reply, and training weights on recorded answers needs what they were worth to the policy that wrote them."""
    told = objects(mapping(choices[0].get("logprobs")).get("content")) if choices else []
    values = [float(value) for each in told if isinstance(value := each.get("logprob"), int | float)]
    return values if len(values) == len(told) else []


def _turn(message: dict[str, Any], usual: str) -> Turn:
    role = string(message.get("role")) or usual
    role = ROLES.get(role, role)
    if role == "tool":
        said = conversation.content_text(message.get("content"))
        return Turn(role, said, answers=word(message.get("tool_call_id")), tool=word(message.get("name")))
    if role == "system":
        return _instructions(message.get("content"))
    if role != "assistant":
        return Turn(role, conversation.content_text(message.get("content")))
    text = conversation.content_text(message.get("content"), between="")
    return Turn(role, text or _text_instead(message), calls=tuple(_calls(message)))


def _instructions(content: Any) -> Turn:
    # What a system says to a model, it says in every call: the text is in memory once.
    turn = Turn("system", conversation.content_text(content))
    return _again(turn) if len(turn.text) <= _REMEMBERED else turn


@lru_cache(maxsize=64)
def _again(turn: Turn) -> Turn:
    return turn


_REMEMBERED = 100_000
"""Characters of instructions that are."""


def _text_instead(message: dict[str, Any]) -> str:
    """What stands for a reply that is no text."""
    if refusal := word(message.get("refusal")):
        return refusal
    return string(mapping(message.get("audio")).get("transcript"))


def _calls(message: dict[str, Any]) -> Iterator[ToolUse]:
    for call in objects(message.get("tool_calls")):
        does = mapping(call.get("function")) or mapping(call.get("custom"))
        arguments = arguments_text(does.get("arguments", does.get("input")))
        yield ToolUse(string(does.get("name")), arguments, string(call.get("id")))
    if old := mapping(message.get("function_call")):
        yield ToolUse(string(old.get("name")), arguments_text(old.get("arguments")))
    for call in objects(message.get("executed_tools")):
        name = string(call.get("name")) or string(call.get("type"))
        yield ToolUse(name, arguments_text(call.get("arguments")), result=conversation.content_text(call.get("output")))


def _reasoning(message: dict[str, Any]) -> tuple[str, ...]:
    for key in ("reasoning_content", "reasoning"):
        if found := conversation.content_text(message.get(key)):
            return (found,)
    return conversation.part_thoughts(message.get("content"))


def assembled(events: "Iterable[ServerSentEvent]") -> tuple[dict[str, Any], bool]:
    """A stream as the answer that would have come whole, and whether it came to its end."""
    answer: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    ended = False
    for event in events:
        if event.data.strip() == "[DONE]":
            ended = True
            break
        chunk = mapping(parsed(event.data))
        for key in ("id", "model", "usage", "error", "x_groq"):
            if chunk.get(key):
                answer[key] = chunk[key]
        for piece in objects(chunk.get("choices")):
            index = count(piece.get("index")) or 0
            choice = choices.setdefault(index, {"index": index, "message": {}})
            _grow(choice["message"], mapping(piece.get("delta")) or mapping(piece.get("message")))
            if told := objects(mapping(piece.get("logprobs")).get("content")):
                choice.setdefault("logprobs", {"content": []})["content"] += told
            if piece.get("finish_reason"):
                choice["finish_reason"] = piece["finish_reason"]
    for choice in choices.values():
        _close(choice["message"])
    answer["choices"] = list(choices.values())
    finished = bool(choices) and all(choice.get("finish_reason") for choice in choices.values())
    return answer, ended or finished


_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")


def _grow(message: dict[str, Any], delta: dict[str, Any]) -> None:
    """Lists of pieces are joined at the end: adding to a text ten thousand times would be slow."""
    if role := delta.get("role"):
        message["role"] = role
    for key in _TEXTS:
        value = delta.get(key)
        if isinstance(value, str):
            message.setdefault(key, []).append(value)
        elif isinstance(value, list):
            message.setdefault(key, []).extend(value)
    for piece in objects(delta.get("tool_calls")):
        _add_fragment(message.setdefault("tool_calls", []), piece)
    if old := mapping(delta.get("function_call")):
        known = message.setdefault("function_call", {"name": "", "arguments": ""})
        known["name"] += string(old.get("name"))
        known["arguments"] += string(old.get("arguments"))
    if audio := mapping(delta.get("audio")):
        known = message.setdefault("audio", {"transcript": ""})
        known["transcript"] += string(audio.get("transcript"))
    if isinstance(delta.get("executed_tools"), list):
        message["executed_tools"] = delta["executed_tools"]


def _add_fragment(calls: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    """A fragment of a tool call, put where it belongs: by index; servers that count wrongly are told by a new id."""
    does = mapping(piece.get("function"))
    index, id = count(piece.get("index")), string(piece.get("id"))
    place = next((call for call in reversed(calls) if call["index"] == index), None) if index is not None else None
    if index is None and calls and not id:
        place = calls[-1]
    if place is None or (id and place["id"] and id != place["id"] and does.get("name")):
        place = {"index": index, "id": "", "function": {"name": "", "arguments": []}}
        calls.append(place)
    place["id"] = place["id"] or id
    known = place["function"]
    known["name"] = known["name"] or string(does.get("name"))
    arguments = does.get("arguments")
    if arguments is not None:
        known["arguments"].append(arguments_text(arguments))


def _close(message: dict[str, Any]) -> None:
    for key in _TEXTS:
        pieces = message.get(key)
        if pieces is not None:
            message[key] = "".join(pieces) if all(isinstance(piece, str) for piece in pieces) else _blocks(pieces)
    for call in message.get("tool_calls", ()):
        call["function"]["arguments"] = "".join(call["function"]["arguments"])


def _blocks(pieces: list[Any]) -> list[Any]:
    """Texts and parts in one list; the fragments of one thought are one part."""
    parts: list[Any] = []
    for piece in pieces:
        part = {"type": "text", "text": piece} if isinstance(piece, str) else piece
        kind = mapping(part).get("type")
        if kind == "thinking" and parts and parts[-1].get("type") == "thinking":
            parts[-1] = {
                "type": "thinking",
                "thinking": conversation.content_text(parts[-1].get("thinking"))
                + conversation.content_text(part.get("thinking")),
            }
        elif isinstance(part, dict):
            parts.append(part)
    return parts


# OpenAI's embeddings. The numbers are not kept; how many there were is.


def read_embeddings(request: dict[str, Any], answer: dict[str, Any], about: dict[str, Any]) -> ParsedExchange:
    """Raises nothing, whatever the two hold. `about` are the fields that are read alike in every dialect."""
    usage = mapping(answer.get("usage"))
    sent = count(usage.get("prompt_tokens"))
    sent = count(usage.get("total_tokens")) if sent is None else sent
    return ParsedExchange(
        **about,
        turns=tuple(Turn("user", text) for text in _inputs(request.get("input"))),
        reply=Turn("assistant", _shape(objects(answer.get("data")))),
        # Numbers come back instead of tokens: none is known here, not unknown.
        usage=Usage(input=sent, output=None if sent is None else 0),
        raw=beside(request, usage, "input", "model"),
    )


def _inputs(given: Any) -> list[str]:
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not given:
        return []
    if all(isinstance(each, int) for each in given):
        return [f"[{len(given)} tokens]"]
    return [each if isinstance(each, str) else f"[{len(each)} tokens]" for each in given if isinstance(each, str | list)]


def _shape(data: list[dict[str, Any]]) -> str:
    if not data:
        return ""
    first = data[0].get("embedding")
    numbers = len(first) if isinstance(first, list) else len(string(first)) * 3 // 4 // 4
    return f"[{len(data)} × {numbers} numbers]"


# Anthropic's messages.

_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


def read_messages(request: dict[str, Any], answer: dict[str, Any], about: dict[str, Any]) -> ParsedExchange:
    """Raises nothing, whatever the two hold. `about` are the fields that are read alike in every dialect."""
    usage = mapping(answer.get("usage"))
    turns = [_instructions(request.get("system"))] if request.get("system") else []
    for message in objects(request.get("messages")):
        turns += _turns(message)
    said = answer.get("content")
    return ParsedExchange(
        **about,
        turns=tuple(turns),
        reply=_assistant_turn(said),
        reasoning=conversation.part_thoughts(said),
        finish=word(answer.get("stop_reason")),
        usage=message_tokens(usage),
        raw=beside(request, usage, "messages", "system", "model"),
    )


def message_tokens(usage: dict[str, Any]) -> Usage:
    """Anthropic counts what came from the cache, and what went there, apart from the rest of the input."""
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return Usage.beside_cache(*(count(usage.get(name)) for name in names))


def _turns(message: dict[str, Any]) -> Iterator[Turn]:
    """A message as one turn; each tool's answer in it is a turn of its own, before the rest."""
    said = message.get("content")
    if message.get("role") == "assistant":
        yield _assistant_turn(said)
        return
    rest = []
    for part in objects(said):
        if part.get("type") == "tool_result" and (answer := conversation.part_answer(part)):
            yield answer
        else:
            rest.append(part)
    if rest or not isinstance(said, list):
        yield Turn(string(message.get("role")) or "user", conversation.content_text(rest or said))


def _assistant_turn(said: Any) -> Turn:
    """What an assistant said: texts that follow each other are one sentence, cut where it cites."""
    if not isinstance(said, list):
        return Turn("assistant", conversation.content_text(said))
    results = {string(part.get("tool_use_id")): part for part in objects(said) if part.get("tool_use_id")}
    runs: list[list[str]] = [[]]
    calls = []
    for part in objects(said):
        kind = string(part.get("type"))
        if kind in _CALLS:
            calls.append(_call(part, results))
            runs.append([])
        elif kind.endswith("_tool_result"):
            runs.append([])
        else:
            runs[-1].append(conversation.part_text(part))
    text = "\n\n".join(filter(None, ("".join(run) for run in runs)))
    return Turn("assistant", text, calls=tuple(calls))


def _call(part: dict[str, Any], results: dict[str, dict[str, Any]]) -> ToolUse:
    call = ToolUse(string(part.get("name")), arguments_text(part.get("input")), string(part.get("id")))
    found = results.get(call.id) if part.get("type") != "tool_use" else None
    if found is None:
        return call
    result = found.get("content")
    code = string(mapping(result).get("error_code")) or ("error" if found.get("is_error") else "")
    return call._replace(result=arguments_text(result), error=code or None)


def assembled_message(events: "Iterable[ServerSentEvent]") -> tuple[dict[str, Any], bool]:
    """A stream as the answer that would have come whole, and whether it came to its end."""
    answer: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    ended = False
    for event in events:
        said = mapping(parsed(event.data))
        match said.get("type"):
            case "message_start":
                answer = dict(mapping(said.get("message")))
                answer["usage"] = dict(mapping(answer.get("usage")))
            case "content_block_start":
                blocks[count(said.get("index")) or 0] = {"block": dict(mapping(said.get("content_block"))), "pieces": {}}
            case "content_block_delta":
                _grow_messages(
                    blocks.setdefault(count(said.get("index")) or 0, {"block": {}, "pieces": {}}), mapping(said.get("delta"))
                )
            case "message_delta":
                answer.update({key: value for key, value in mapping(said.get("delta")).items() if value is not None})
                answer["usage"] = {**mapping(answer.get("usage")), **_known(mapping(said.get("usage")))}
            case "message_stop":
                ended = True
            case "error":
                answer["error"] = said.get("error") or said
    if blocks:
        answer["content"] = [_closed(block) for _, block in sorted(blocks.items())]
    return answer, ended


def _known(usage: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in usage.items() if value is not None}


_DELTAS = {
    "text_delta": ("text", "text", "text"),
    "thinking_delta": ("thinking", "thinking", "thinking"),
    "input_json_delta": ("tool_use", "input", "partial_json"),
}
"""By the kind of a delta: the kind of its block, the block's field, and the delta's."""


def _grow_messages(block: dict[str, Any], delta: dict[str, Any]) -> None:
    if (known := _DELTAS.get(string(delta.get("type")))) is None:
        return
    kind, to, field = known
    block["block"].setdefault("type", kind)
    block["pieces"].setdefault(to, []).append(string(delta.get(field)))


def _closed(block: dict[str, Any]) -> dict[str, Any]:
    whole: dict[str, Any] = block["block"]
    for name, pieces in block["pieces"].items():
        text = "".join(pieces)
        if name == "input":
            # Arguments that were cut stay as far as they came.
            whole[name] = text or whole.get(name)
        else:
            whole[name] = string(whole.get(name)) + text
    return whole


# OpenAI's responses.

_ANSWERS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "computer_call_output")
_PLAIN = ("id", "type", "status", "name", "arguments", "call_id", "output", "error", "result", "results", "outputs")
"""Fields of a server's tool call that are not its arguments."""


def read_response(request: dict[str, Any], answer: dict[str, Any], about: dict[str, Any]) -> ParsedExchange:
    """Raises nothing, whatever the two hold. `about` are the fields that are read alike in every dialect."""
    usage = mapping(answer.get("usage"))
    output = objects(answer.get("output"))
    turns = [told] if (told := _instructions(request.get("instructions"))).text else []
    sent = request.get("input")
    turns += [Turn("user", sent)] if isinstance(sent, str) else _turns_responses(objects(sent))
    replies = _turns_responses(output)
    reply = next((turn for turn in replies if turn.role == "assistant"), NOTHING)
    talk = request.get("conversation")
    return ParsedExchange(
        **about,
        turns=tuple(turns),
        reply=reply,
        reasoning=tuple(filter(None, (_thought(item) for item in output if item.get("type") == "reasoning"))),
        finish=_finish(answer),
        usage=conversation.usage_of(usage),
        behind=word(request.get("previous_response_id")),
        thread=word(talk) or word(mapping(talk).get("id")),
        raw=beside(request, usage, "input", "instructions", "model"),
    )


def _finish(answer: dict[str, Any]) -> str | None:
    return word(mapping(answer.get("incomplete_details")).get("reason")) or word(answer.get("status"))


def _thought(item: dict[str, Any]) -> str:
    return conversation.content_text(item.get("content"), between="\n\n") or conversation.content_text(
        item.get("summary"), between="\n\n"
    )


def _turns_responses(items: Iterable[dict[str, Any]]) -> list[Turn]:
    """Items as turns. What an assistant says and asks for in one go comes as several items, and is one turn."""
    turns: list[Turn] = []
    texts: list[str] = []
    calls: list[ToolUse] = []
    open_ = False

    def close() -> None:
        nonlocal open_
        if open_:
            turns.append(Turn("assistant", "\n\n".join(filter(None, texts)), calls=tuple(calls)))
            texts.clear()
            calls.clear()
            open_ = False

    for item in items:
        kind, role = string(item.get("type")), string(item.get("role"))
        if kind in _ANSWERS:
            close()
            turns.append(Turn("tool", conversation.content_text(item.get("output")), answers=word(item.get("call_id"))))
        elif role == "assistant":
            open_ = True
            texts.append(conversation.content_text(item.get("content"), between=""))
        elif role or kind in ("", "message"):
            close()
            turns.append(Turn(ROLES.get(role, role or "user"), conversation.content_text(item.get("content"))))
        elif kind == "reasoning":
            open_ = True
        else:
            open_ = True
            calls.extend(_calls_responses(item, kind))
    close()
    return turns


def _calls_responses(item: dict[str, Any], kind: str) -> Iterator[ToolUse]:
    """The tool call that an item is: the client's to do, or done by the server already."""
    id = string(item.get("call_id")) or string(item.get("id"))
    if kind == "function_call":
        yield ToolUse(string(item.get("name")), arguments_text(item.get("arguments")), id)
    elif kind == "custom_tool_call":
        yield ToolUse(string(item.get("name")), arguments_text(item.get("input")), id)
    elif kind in ("local_shell_call", "computer_call"):
        yield ToolUse(kind.removesuffix("_call"), arguments_text(item.get("action")), id)
    elif kind.endswith("_call"):
        yield _server_call(item, kind.removesuffix("_call"), id)


def _server_call(item: dict[str, Any], tool: str, id: str) -> ToolUse:
    """A call that the server made itself: web_search, file_search, code_interpreter, mcp, image_generation."""
    arguments = item.get("arguments")
    if arguments is None:
        arguments = {key: value for key, value in item.items() if key not in _PLAIN and value is not None}
    result = next((item[key] for key in ("output", "outputs", "results") if item.get(key) is not None), None)
    if result is None and isinstance(item.get("result"), str):
        result = conversation.bracketed({"data": item["result"]}, "picture")
    failed = item.get("error")
    error = string(mapping(failed).get("message")) or (arguments_text(failed) if failed else None)
    if error is None and item.get("status") == "failed":
        error = "failed"
    return ToolUse(string(item.get("name")) or tool, arguments_text(arguments), id, result=text(result), error=error)


def assembled_response(events: "Iterable[ServerSentEvent]") -> tuple[dict[str, Any], bool]:
    """A stream as the answer that would have come whole, and whether it came to its end.

    The last event holds the whole answer. Of a stream that was cut before, what its deltas tell.
    """
    answer: dict[str, Any] = {}
    items: dict[int, dict[str, Any]] = {}
    error: Any = None
    ended = False
    for event in events:
        said = mapping(parsed(event.data))
        kind = string(said.get("type")) or event.name
        if whole := mapping(said.get("response")):
            answer = whole
        if kind in ("response.completed", "response.failed", "response.incomplete", "response.done"):
            ended = True
        elif kind == "error":
            error = said.get("error") or said
        elif kind.startswith("response.") and "output_index" in said:
            _grow_responses(items, kind, said)
    if items and not objects(answer.get("output")):
        answer = {**answer, "output": [_closed_responses(item) for _, item in sorted(items.items())]}
    if error is not None:
        answer = {**answer, "error": error}
    return answer, ended


def _grow_responses(items: dict[int, dict[str, Any]], kind: str, said: dict[str, Any]) -> None:
    known = items.setdefault(count(said.get("output_index")) or 0, {"item": {}, "text": [], "arguments": [], "thought": []})
    if kind in ("response.output_item.added", "response.output_item.done"):
        known["item"] = mapping(said.get("item"))
        known["done"] = kind.endswith("done")
    elif kind in ("response.output_text.delta", "response.refusal.delta"):
        known["text"].append(string(said.get("delta")))
    elif kind in ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta"):
        known["arguments"].append(string(said.get("delta")))
    elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
        known["thought"].append(string(said.get("delta")))


def _closed_responses(known: dict[str, Any]) -> dict[str, Any]:
    item = dict(known["item"])
    if known.get("done"):
        return item
    if known["text"]:
        item.setdefault("type", "message")
        item["role"] = "assistant"
        item["content"] = [{"type": "output_text", "text": "".join(known["text"])}]
    if known["arguments"]:
        item["input" if item.get("type") == "custom_tool_call" else "arguments"] = "".join(known["arguments"])
    if known["thought"]:
        item["summary"] = [{"type": "summary_text", "text": "".join(known["thought"])}]
    return item


_READ: dict[Dialect, Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], ParsedExchange]] = {
    Dialect.CHAT: read_chat,
    Dialect.RESPONSES: read_response,
    Dialect.EMBEDDINGS: read_embeddings,
    Dialect.MESSAGES: read_messages,
}
_ASSEMBLED: "dict[Dialect, Callable[[Iterable[ServerSentEvent]], tuple[dict[str, Any], bool]]]" = {
    Dialect.CHAT: assembled,
    Dialect.RESPONSES: assembled_response,
    Dialect.MESSAGES: assembled_message,
}
_SHORT = 500
"""Characters of a message that is no JSON."""
CUT = "cut: the stream ended before the answer did"


def read_exchange(exchange: Exchange) -> ParsedExchange:
    """What an exchange says. Never raises: of what cannot be read there is an `error`, and all that could be read."""
    sent = parsed(exchange.request)
    answer, wrong = _answer(exchange)
    if wrong is None and not isinstance(sent, dict):
        wrong = "unreadable: the request is no JSON object"
    request = mapping(sent)
    about = {
        "model": word(answer.get("model")) or string(request.get("model")),
        "response_id": word(answer.get("id")),
        "error": wrong,
    }
    return _READ[exchange.dialect](request, answer, about)


def _answer(exchange: Exchange) -> tuple[dict[str, Any], str | None]:
    """The answer as if it had come whole, and what is wrong with it."""
    # With it comes all that a network needs, which a file of traces does not.
    from journeyman.io.http_client import is_event_stream, sent_events

    body = exchange.response
    ended = True
    if exchange.dialect in _ASSEMBLED and is_event_stream(body):
        answer, ended = _ASSEMBLED[exchange.dialect](sent_events(body))
        payload: Any = answer
    else:
        payload = parsed(body) if body else None
        answer = mapping(payload)
    wrong = _error_of(payload, body, exchange.status)
    if wrong is None and exchange.error is not None:
        wrong = exchange.error
    if wrong is None and not ended:
        wrong = CUT
    if wrong is None and not answer:
        wrong = "unreadable: the answer is no JSON object" if body else "empty: there was no answer"
    return answer, wrong


def _error_of(body: Any, raw: bytes, status: int | None) -> str | None:
    """What an answer says went wrong, as `name: message`; `None` for one that does not complain."""
    payload = mapping(body)
    complaint = payload.get("error") or payload.get("errors")
    bad = status is not None and status >= 400
    if not complaint and not bad:
        return None
    about = mapping(next(iter(objects(complaint)), None) if isinstance(complaint, list) else complaint)
    name = word(about.get("type")) or word(about.get("code")) or word(about.get("status")) or "error"
    message = word(about.get("message")) or word(complaint) or word(payload.get("message")) or _detail(payload)
    if message is None:
        message = (
            arguments_text(complaint) if complaint else raw[:_SHORT].decode(errors="replace").strip() or "no reason was given"
        )
    return f"{name}: {message}" + (f" (HTTP {status})" if bad else "")


def _detail(said: Mapping[str, Any]) -> str | None:
    detail = said.get("detail")
    return None if detail is None else arguments_text(detail)
