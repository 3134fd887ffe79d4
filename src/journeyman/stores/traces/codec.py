"""A trace as what is kept of it: a header and its steps, as JSON; long texts apart, each once; bytes, compressed.

What is as it is by default is left out, and so is a prompt that its messages tell. Times are kept in UTC.
"""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from datetime import datetime
from hashlib import blake2b
from operator import attrgetter
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from journeyman.reward import Reward
from journeyman.stores.base import utc
from journeyman.trace import KIND_OF, KINDS, Message, ModelCall, Step, Trace, spoken

LARGE = 1024
"""Characters from which on a text is kept apart."""
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
class Part:
    """The header or a step, ready to be kept."""

    body: bytes
    """JSON, not compressed."""
    digest: bytes
    words: str
    """What the full-text search finds here, without what is kept apart."""
    apart: Mapping[str, tuple[str, bool]]
    """Texts kept apart by their digest, and whether the search finds them."""


def parts(trace: Trace) -> list[Part]:
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
        told["rewards"] = [[each.name, each.value, each.evidence, each.weight] for each in rewards]
    if messages := told.get("messages"):
        if told["prompt"] == spoken(messages):
            del told["prompt"]
        told["messages"] = [[each.role, each.text, *([] if each.answers is None else [each.answers])] for each in messages]
    return told


def _part(told: dict[str, Any]) -> Part:
    apart: dict[str, tuple[str, bool]] = {}
    for name, value in told.items():
        if type(value) not in _PLAIN:
            told[name] = _lifted(value, apart, name != "raw")
    body = _encode(told)
    return Part(body, blake2b(body, digest_size=12).digest(), words(told), apart)


def _encode(told: dict[str, Any]) -> bytes:
    try:
        return to_json(told, inf_nan_mode="constants", fallback=str)
    except (PydanticSerializationError, UnicodeError, TypeError):
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
            digest = blake2b(value.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
            apart[digest] = (value, found or apart.get(digest, ("", False))[1])
            return _REFERENCE + digest
        return _REFERENCE + value if value[:1] == _REFERENCE else value
    if isinstance(value, list | tuple):
        return [each if type(each) in _PLAIN else _lifted(each, apart, found) for each in value]
    # A dict is one without asking the abstract class, which takes longer than all the rest.
    if isinstance(value, dict | Mapping):
        return {key: each if type(each) in _PLAIN else _lifted(each, apart, found) for key, each in value.items()}
    return sorted(map(str, value)) if isinstance(value, set | frozenset) else value


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
    return tuple(Reward(name=name, value=value, evidence=said, weight=weight) for name, value, said, weight in told)


def _messages(told: list[list[Any]]) -> tuple[Message, ...]:
    return tuple(Message(role=role, text=text, answers=answers[0] if answers else None) for role, text, *answers in told)


_READ: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("started_at", "ended_at"), datetime.fromisoformat),
    **dict.fromkeys(("shown", "cited", "other_candidates", "tasks_created", "tasks_completed", "tasks_failed"), tuple),
    "messages": _messages,
    "rewards": _rewards,
}
