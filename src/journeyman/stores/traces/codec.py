"""A trace as what is kept of it: a header and its steps, as JSON; long texts apart, each once; bytes, compressed.

What is as it is by default is left out, and so is a prompt that its messages tell. Times are kept in UTC.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any

from journeyman.core.reward import Reward, Source
from journeyman.core.trace import KIND_OF, KINDS, Message, ModelCall, Reasoning, Step, ToolCall, Trace, asked_in, spoken, total
from journeyman.stores.base import utc
from journeyman.stores.traces.base import RECORDER

LARGE = 1024
"""Characters from which on a text is kept apart."""
_REMEMBERED = 100_000
"""Characters of such a text whose digest is remembered."""
_SMALL = 400
"""Bytes below which compressing costs more than it saves."""
_SMALL_WINDOW = 4096
_REFERENCE = "\x1a"
"""Begins a string that stands for a text kept apart. A real string that begins so has it twice."""

_PLAIN = frozenset({int, float, bool, type(None)})
"""Types of what is told as it is."""

_SEARCHED = ("agent", "model", "tool", "prompt", "reply", "arguments", "result", "text", "input", "output", "error")
_OF_HEADERS = ("id", "task_id", "session")


def _fields(cls: type[Any], *without: str) -> tuple[tuple[str, ...], tuple[Any, ...], Callable[[Any], tuple[Any, ...]]]:
    """The names of the fields, what they are by default, and what gets them all."""
    told = [each for each in fields(cls) if each.name not in without]
    names = tuple(each.name for each in told)
    defaults = (each.default if each.default_factory is MISSING else each.default_factory() for each in told)
    return names, tuple(defaults), attrgetter(*names)


_FIELDS = {cls: _fields(cls) for cls in KIND_OF} | {Trace: _fields(Trace, "steps")}


@dataclass(frozen=True, slots=True)
class StoredPart:
    """The header or a step, ready to be kept."""

    body: bytes
    """JSON, not compressed."""
    digest: bytes
    words: str
    """What the full-text search finds here, without what is kept apart."""
    apart: Mapping[str, tuple[str, bool]]
    """Texts kept apart by their digest, and whether the search finds them."""


def parts(trace: Trace) -> list[StoredPart]:
    """The header, then the steps.

    Raises:
        StoreError: A time has no zone.
        TypeError, ValueError: Something in `raw` is not JSON and cannot be made so.
    """
    return [_part(_told(trace)), *(_part({"kind": KIND_OF[type(step)], **_told(step)}) for step in trace.steps)]


def trace(bodies: Sequence[bytes], contents: Mapping[str, str]) -> Trace:
    """The trace that `parts` told. `contents` are the texts kept apart, by digest."""
    header, *steps = (_restored(json.loads(body.decode("utf-8", "surrogatepass")), contents) for body in bodies)
    return Trace(steps=tuple(_step(step) for step in steps), **_given(Trace, header))


def own_rewards(header: bytes) -> tuple[Reward, ...]:
    """The rewards that a trace came with, from its header alone; evidence that is kept apart stays a reference."""
    return _rewards(json.loads(header.decode("utf-8", "surrogatepass")).get("rewards", []))


def references(body: bytes) -> set[str]:
    """The digests of the texts kept apart that a part needs."""
    if b"\\u001a" not in body:
        return set()
    told = json.loads(body.decode("utf-8", "surrogatepass"))
    return {text[1:] for text in _strings(told) if text[:1] == _REFERENCE and text[1:2] != _REFERENCE}


def words(value: Mapping[str, Any]) -> str:
    """What the search finds in a part. Whoever takes a part out of the index must tell the same words as when it went in."""
    names = _SEARCHED if "kind" in value else _OF_HEADERS + _SEARCHED
    said = [message[1] for message in value.get("messages", ())]
    said += [value[name] for name in names if isinstance(value.get(name), str)]
    return "\n".join(text for text in said if text[:1] != _REFERENCE)


def words_of(body: bytes) -> str:
    return words(json.loads(body.decode("utf-8", "surrogatepass")))


def pack(body: bytes) -> bytes:
    """Bytes as they are kept: compressed where that pays, after a byte that says so."""
    if len(body) < _SMALL:
        return b"=" + body
    # Setting up a full window of 32 kB takes longer than compressing a short text.
    window, memory = (-12, 5) if len(body) <= _SMALL_WINDOW else (-15, 8)
    squeeze = zlib.compressobj(1, zlib.DEFLATED, window, memory)
    return b"z" + squeeze.compress(body) + squeeze.flush()


def unpack(kept: bytes) -> bytes:
    return kept[1:] if kept[:1] == b"=" else zlib.decompress(kept[1:], -15)


def pack_text(text: str) -> bytes:
    return pack(text.encode("utf-8", "surrogatepass"))


def unpack_text(kept: bytes) -> str:
    return unpack(kept).decode("utf-8", "surrogatepass")


def _told(thing: Any) -> dict[str, Any]:
    names, defaults, values = _FIELDS[type(thing)]
    told = {
        name: value
        for name, value, default in zip(names, values(thing), defaults, strict=True)
        if value is not default and value != default
    }
    for name in ("started_at", "ended_at"):
        if (at := told.get(name)) is not None:
            told[name] = utc(at).isoformat()
    if rewards := told.get("rewards"):
        told["rewards"] = [
            [each.name, each.value, each.evidence, each.weight, *([] if each.source is None else [each.source])]
            for each in rewards
        ]
    if messages := told.get("messages"):
        if told["prompt"] == spoken(messages):
            del told["prompt"]
        told["messages"] = [[each.role, each.text, *([] if each.answers is None else [each.answers])] for each in messages]
    return told


def _part(told: dict[str, Any]) -> StoredPart:
    apart: dict[str, tuple[str, bool]] = {}
    for name, value in told.items():
        if type(value) not in _PLAIN:
            told[name] = _lifted(value, apart, name != "raw")
    body = _encode(told)
    return StoredPart(body, blake2b(body, digest_size=12).digest(), words(told), apart)


def _encode(told: dict[str, Any]) -> bytes:
    # Only who writes pays for loading it.
    from pydantic_core import to_json

    try:
        return to_json(told, inf_nan_mode="constants", fallback=str)
    except (ValueError, TypeError):
        # Half a surrogate pair, or a key that is no text.
        return _encode_anything(told).encode("utf-8", "surrogatepass")


def _plain(value: object) -> object:
    """What JSON has no word for."""
    return dict(value) if isinstance(value, Mapping) else str(value)


_encode_anything: Callable[[object], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain).encode


def _lifted(value: Any, apart: dict[str, tuple[str, bool]], found: bool) -> Any:
    """The same with long texts taken out."""
    if type(value) is str and len(value) < LARGE and value[:1] != _REFERENCE:
        return value
    if isinstance(value, str):
        if len(value) >= LARGE:
            digest = (_digest_again if len(value) <= _REMEMBERED else _digest)(value)
            apart[digest] = (value, found or apart.get(digest, ("", False))[1])
            return _REFERENCE + digest
        return _REFERENCE + value if value[:1] == _REFERENCE else value
    if isinstance(value, list | tuple):
        return [
            each
            if type(each) in _PLAIN or (type(each) is str and len(each) < LARGE and each[:1] != _REFERENCE)
            else _lifted(each, apart, found)
            for each in value
        ]
    # A dict is one without asking the abstract class, which takes longer than all the rest.
    if isinstance(value, dict | Mapping):
        return {key: each if type(each) in _PLAIN else _lifted(each, apart, found) for key, each in value.items()}
    return sorted(map(str, value)) if isinstance(value, set | frozenset) else value


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


_digest_again = lru_cache(maxsize=64)(_digest)
"""What a system says to a model, it says in every call."""


def _restored(value: Any, contents: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        if value[:1] != _REFERENCE:
            return value
        return value[1:] if value[1:2] == _REFERENCE else contents[value[1:]]
    if isinstance(value, list):
        return [_restored(each, contents) for each in value]
    if isinstance(value, dict):
        return {key: _restored(each, contents) for key, each in value.items()}
    return value


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _strings(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)


def _step(told: dict[str, Any]) -> Step:
    cls = KINDS[told["kind"]]
    given = _given(cls, told)
    if cls is ModelCall and "prompt" not in given:
        given["prompt"] = spoken(given["messages"])
    return cls(**given)


def _given(cls: type[Any], told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _READ.get(name, _same)(told[name]) for name in _FIELDS[cls][0] if name in told}


def _same(value: Any) -> Any:
    return value


def _rewards(told: list[list[Any]]) -> tuple[Reward, ...]:
    return tuple(
        Reward(name=name, value=value, evidence=said, weight=weight, source=Source(source[0]) if source else None)
        for name, value, said, weight, *source in told
    )


def _messages(told: list[list[Any]]) -> tuple[Message, ...]:
    return tuple(Message(role=role, text=text, answers=answers[0] if answers else None) for role, text, *answers in told)


_READ: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("started_at", "ended_at"), datetime.fromisoformat),
    **dict.fromkeys(("shown", "cited", "other_candidates", "tasks_created", "tasks_completed", "tasks_failed"), tuple),
    "messages": _messages,
    "rewards": _rewards,
}

# A trace as rows: what a list shows, what it is filtered by, and what statistics add up.

_TITLE = 200
_ERROR = 1000
"""Characters of a title and of an error that a list is given; the whole is in the trace."""

Row = dict[str, Any]


def line(trace: Trace) -> Row:
    """The row of a trace as if nothing had been said of it here yet.

    Raises:
        StoreError: A time has no zone.
    """
    calls, tools, error, began = trace.calls, trace.tool_calls, _error(trace), utc(trace.started_at)
    return {
        "id": trace.id,
        "title": " ".join(_title(trace, calls)[: 2 * _TITLE].split())[:_TITLE],
        "agent": trace.agent,
        "session": trace.session,
        "task_id": trace.task_id,
        "domain": trace.domain,
        "source": trace.source,
        "candidate_id": trace.candidate_id,
        "models": list(dict.fromkeys(call.model for call in calls)),
        "started_at": began,
        "seconds": None if trace.ended_at is None else (utc(trace.ended_at) - began).total_seconds(),
        "model_calls": len(calls),
        "tool_calls": len(tools),
        "failed_tool_calls": sum(not call.ok for call in tools),
        "input_tokens": trace.input_tokens,
        "output_tokens": trace.output_tokens,
        "cost": trace.cost,
        "error": None if error is None else error[:_ERROR],
        "failed": error is not None or any(not call.ok or call.error is not None for call in tools),
        "own_label": trace.label,
        "label": trace.label,
        "labelled_by": None if trace.label is None else RECORDER,
        "reward": trace.worth,
        "steps": len(trace.steps),
        "identified": len(responses(calls)) if all(call.response_id for call in calls) else 0,
        "duplicate_of": None,
    }


_UNWRAPPED = 100_000
"""Characters of JSON that is looked into for what was said."""
_SAID_UNDER = (
    "input", "query", "question", "prompt", "contents", "content", "text", "new_message", "messages", "parts", "message",
)  # fmt: skip
"""Keys under which clients send what a person said, the plainest first."""


def _title(trace: Trace, calls: Sequence[ModelCall]) -> str:
    """What was asked; of a client that sends JSON, what a person says in it."""
    asked = trace.input if trace.input is not None else asked_in(calls)
    if asked.lstrip()[:1] not in ("{", "[") or len(asked) > _UNWRAPPED:
        return asked
    try:
        return _said_in(json.loads(asked)) or asked
    except (ValueError, RecursionError):
        return asked


def _said_in(value: object) -> str:
    """The last words in a list of turns or parts; of a mapping, those under the plainest key."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list):
        return next((said for each in reversed(value) if (said := _said_in(each))), "")
    if isinstance(value, dict):
        return next((said for key in _SAID_UNDER if (said := _said_in(value.get(key)))), "")
    return ""


def responses(calls: Iterable[ModelCall]) -> frozenset[str]:
    """The ids of their answers, as far as they have one."""
    return frozenset(call.response_id for call in calls if call.response_id)


def served(trace: Trace) -> list[Row]:
    """The calls that were made while a rollout had their session on an arm."""
    return [
        {
            **_compared(trace, call, where),
            "call_id": call.id,
            # Production's answer to a request that its arm did not answer is the arm's failure.
            "failed": call.error is not None or bool(where.get("fell_back")),
        }
        for call in trace.calls
        if call.id
        for where in _places(call.raw.get("release"))
    ]


def mirrored(trace: Trace) -> list[Row]:
    """The calls that were made of a request that was mirrored: production's, or a candidate's."""
    return [
        {**_compared(trace, call, where), **{name: str(where.get(name)) for name in ("pair", "arm")}}
        for call in trace.calls
        if isinstance(where := call.raw.get("mirror"), Mapping)
    ]


def _compared(trace: Trace, call: ModelCall, where: Mapping[str, Any]) -> Row:
    """What the arms of a rollout are compared by."""
    return {
        "rollout_id": str(where.get("rollout")),
        "unit": str(where.get("unit")),
        "trace_id": trace.id,
        "failed": call.error is not None,
        "seconds": call.seconds,
        "cost": call.cost,
        "tokens": total((call.input_tokens, call.output_tokens)),
        "at": utc(call.started_at or trace.started_at),
    }


def _places(told: object) -> list[Mapping[str, Any]]:
    """Where a call's session was in rollouts; recordings of before know of one."""
    return [each for each in (told if isinstance(told, list | tuple) else [told]) if isinstance(each, Mapping)]


def of_models(calls: Iterable[ModelCall]) -> list[Row]:
    rows: dict[str, Row] = {}
    for call in calls:
        row = rows.setdefault(call.model, _nothing(call.model))
        row["calls"] += 1
        row["input_tokens"] += call.input_tokens or 0
        row["output_tokens"] += call.output_tokens or 0
        row["uncounted"] += call.input_tokens is None or call.output_tokens is None
        row["cost"] += call.cost or 0.0
        row["unpriced"] += call.cost is None
        if call.seconds is not None:
            row["seconds"] = (row["seconds"] or 0.0) + call.seconds
    return list(rows.values())


def _nothing(model: str) -> Row:
    counts = dict.fromkeys(("calls", "input_tokens", "output_tokens", "uncounted", "unpriced"), 0)
    return {"model": model, **counts, "cost": 0.0, "seconds": None}


def of_tools(trace: Trace) -> list[Row]:
    rows: dict[str, Row] = {}
    for call in trace.tool_calls:
        row = rows.setdefault(call.tool, {"tool": call.tool, "calls": 0, "failures": 0, "timed": 0, "seconds": 0.0})
        row["calls"] += 1
        row["failures"] += not call.ok
        row["timed"] += call.seconds is not None
        row["seconds"] += call.seconds or 0.0
    return list(rows.values())


def in_force(own: Sequence[Reward], given: Sequence[Reward]) -> tuple[Reward, ...]:
    """All rewards of a trace: those it came with and those it was given that hold, oldest first. What was given goes
    before what it came with under the same name."""
    names = {reward.name for reward in given}
    return (*(reward for reward in own if reward.name not in names), *given)


def _error(trace: Trace) -> str | None:
    if trace.error is not None:
        return trace.error
    return next((found for step in trace.steps if (found := _said(step)) is not None), None)


def _said(step: Step) -> str | None:
    return None if isinstance(step, ToolCall | Reasoning) else step.error
