"""Secrets are taken out of what was captured, before it is kept.

    redactor = Redactor(("ACME-[0-9]{6}",))
    redactor.text("Authorization: Bearer sk-proj-4f…")   # Authorization: Bearer [redacted openai key]

What is found, and how: `tracing.secrets`. Each secret is replaced by a marker that says what it was; the rest of the text stays
as it is. Redacting twice is redacting once.
"""

import builtins
import importlib
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeVar

from journeyman.core.errors import InputError
from journeyman.core.reward import Reward
from journeyman.core.trace import AgentCall, Message, ModelCall, Reasoning, Step, ToolCall, Trace, spoken
from journeyman.tracing import secrets
from journeyman.tracing.personal import Personal
from journeyman.tracing.wire.dialects import Exchange

# Regular expressions of a user: checked when they are read, bounded while they work.
#
# Python's regular expressions can take time without end on a text that fits badly, and cannot be interrupted. So a repetition
# within a repetition is refused where both could take the same characters, texts are looked at in pieces, and what takes too
# long
# for its size is taken out whole: what could not be looked through is not kept.

PIECE = 1024
"""Characters that are looked at together."""
OVERLAP = 256
"""Of them, those that the next piece has too: what is longer than this may be found in part."""
PATIENCE = 0.05
"""Seconds for a text, and as much again for every million characters of it."""
_TRIAL = 0.02
"""Seconds that a pattern may need for a piece that fits as badly as can be."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One that has been checked."""

    expression: re.Pattern[str]

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Where it matches, and from where on nobody knows because it took too long."""
        if len(text) <= PIECE:
            yield from (found.span() for found in self.expression.finditer(text) if found.end() > found.start())
            return
        began = time.perf_counter()
        patience = PATIENCE * (1 + len(text) / 1_000_000)
        start = 0
        while start < len(text):
            for found in self.expression.finditer(text, start, min(len(text), start + PIECE)):
                if found.end() > found.start():
                    yield found.span()
            if time.perf_counter() - began > patience:
                yield min(len(text), start + PIECE), len(text)
                return
            start += PIECE - OVERLAP


def check(patterns: Sequence[str]) -> tuple[Pattern, ...]:
    """Patterns that can be used.

    Raises:
        InputError: One of them is no regular expression, matches nothing at all, or could take without end.
    """
    return tuple(_checked(pattern) for pattern in patterns)


def _checked(pattern: str) -> Pattern:
    try:
        compiled = re.compile(pattern)
        tree = _parse(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(f"the pattern {pattern!r} is no regular expression: {error}") from None
    if compiled.match("") is not None:
        raise InputError(f"the pattern {pattern!r} matches where nothing stands; write one that needs at least a character")
    if _nested(tree):
        raise InputError(
            f"the pattern {pattern!r} repeats what can itself be read in several ways, which can take without end; repeat one"
            " class of characters, or let every repetition begin or end with a character that cannot stand elsewhere in it"
        )
    if sum(1 for _, most, _ in _repeats(tree) if most > _FEW) > _LOOSE:
        raise InputError(
            f"the pattern {pattern!r} has more than {_LOOSE} repetitions without a bound, which can take very long; say how"
            " often at most, as in {1,50}"
        )
    for char in (*sorted(set(_letters(tree)))[:_SAMPLES], " ", "a", "0"):
        if _slow(compiled, char):
            raise InputError(f"the pattern {pattern!r} takes too long on many {char!r}; say how often at most, as in {{1,50}}")
    return Pattern(compiled)


def _slow(compiled: re.Pattern[str], char: str) -> bool:
    for length in (PIECE // 16, PIECE // 8, PIECE // 4, PIECE // 2, PIECE):
        began = time.thread_time()
        compiled.search(char * (length - 1) + "\0")
        if time.thread_time() - began > _TRIAL:
            return True
    return False


# What Python parses a pattern into: pairs of an operation's name and what it works on.
_Tree = list[tuple[str, Any]]
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT")
_FEW = 64
_LOOSE = 3
_SAMPLES = 8


def _parse(pattern: str) -> _Tree:
    parser = importlib.import_module("re._parser")
    tree: _Tree = _plain(parser.parse(pattern), parser.SubPattern)
    return tree


def _plain(value: Any, subpattern: Any) -> Any:
    """Names and numbers instead of the parser's own classes; categories as the letters that stand for them."""
    if isinstance(value, subpattern):
        return [(str(operation), _plain(argument, subpattern)) for operation, argument in value]
    if isinstance(value, list):
        return [_plain(each, subpattern) for each in value]
    if isinstance(value, tuple):
        return tuple(_plain(each, subpattern) for each in value)
    return value if value is None or type(value) is int else int(value) if str(value) == "MAXREPEAT" else str(value)


def _below(argument: Any) -> Iterator[_Tree]:
    """The patterns within what an operation works on."""
    if isinstance(argument, list):
        if argument and isinstance(argument[0], tuple):
            yield argument
        else:
            for each in argument:
                yield from _below(each)
    elif isinstance(argument, tuple):
        for each in argument:
            yield from _below(each)


def _repeats(tree: _Tree) -> Iterator[tuple[int, int, _Tree]]:
    """Every repetition that can be read in several ways: how often at least, at most, and what."""
    for operation, argument in tree:
        if operation in _REPEATS and argument[0] != argument[1]:
            yield argument
        if operation != "IN":
            for each in _below(argument):
                yield from _repeats(each)


def _branches(tree: _Tree) -> bool:
    return any(
        operation in ("BRANCH", "GROUPREF", "GROUPREF_EXISTS") or (operation != "IN" and any(map(_branches, _below(argument))))
        for operation, argument in tree
    )


def _nested(tree: _Tree) -> bool:
    for operation, argument in tree:
        if operation == "IN":
            continue
        if operation in _REPEATS and argument[1] > 4 and not _plain_enough(argument[2]):
            return True
        if any(map(_nested, _below(argument))):
            return True
    return False


def _plain_enough(body: _Tree) -> bool:
    """Whether many of it in a row can be read in one way only."""
    inner = list(_repeats(body))
    if _branches(body):
        return False
    if not inner:
        return True
    flat = list(_flat(body))
    return len(inner) == 1 and any(
        operation == "LITERAL" and not _takes(inner[0][2], argument) for operation, argument in (flat[0], flat[-1])
    )


def _flat(tree: _Tree) -> Iterator[tuple[str, Any]]:
    for operation, argument in tree:
        if operation == "SUBPATTERN":
            yield from _flat(argument[-1])
        else:
            yield operation, argument


def _takes(tree: _Tree, char: int) -> bool:
    """Whether some single character of the pattern can be this one; in doubt it can."""
    return any(_takes_one(operation, argument, char) for operation, argument in _flat(tree))


def _takes_one(operation: str, argument: Any, char: int) -> bool:
    match operation:
        case "LITERAL":
            return chr(argument).lower() == chr(char).lower()
        case "IN":
            negated = bool(argument) and argument[0][0] == "NEGATE"
            return any(_takes_one(name, each, char) for name, each in argument[negated:]) != negated
        case "RANGE":
            return any(
                argument[0] <= ord(each) <= argument[1] for each in {chr(char), chr(char).lower(), chr(char).upper()[:1]}
            )
        case "CATEGORY":
            letter = argument.removeprefix("CATEGORY_").removeprefix("NOT_")[0].lower()
            return (re.match("\\" + letter, chr(char)) is not None) != ("_NOT_" in argument)
    return True


def _letters(tree: _Tree) -> Iterator[str]:
    for operation, argument in tree:
        if operation == "LITERAL":
            yield chr(argument)
        elif operation == "IN":
            yield from (
                chr(each[1] if each[0] == "LITERAL" else each[1][0]) for each in argument if each[0] in ("LITERAL", "RANGE")
            )
        else:
            for each in _below(argument):
                yield from _letters(each)


DEEPEST = 100
"""Levels of a mapping that are looked through; what lies deeper is taken out whole."""
_Record = TypeVar("_Record", bound=Step | Trace | Reward | Message)
_Shaped = TypeVar("_Shaped", bound=Step | Trace)
OWN = "pattern"
"""What a marker calls that which a pattern of the user found."""

_TEXTS: Mapping[type, Sequence[str]] = {
    ModelCall: ("model", "prompt", "reply", "finish", "error"),
    ToolCall: ("tool", "arguments", "result", "error"),
    Reasoning: ("text",),
    AgentCall: ("agent", "input", "output", "error"),
    Trace: ("task_id", "error", "domain", "session", "agent", "input", "output"),
}
"""The fields that hold text, by class."""
_IDS: Mapping[type, Sequence[str]] = {
    ModelCall: ("id", "parent", "continues", "response_id"),
    ToolCall: ("id", "parent"),
    Reasoning: ("id", "parent"),
    AgentCall: ("id", "parent"),
    Trace: ("id", "candidate_id"),
}
"""The fields by which one record names another, by class. Clients and servers can write anything into them."""


_LONG, _LONGEST = 1_000, 100_000
"""Characters of a text that is remembered when it was looked through."""
_REMEMBERED = 64
_ENDS = 200
"""Characters at the ends of such a text that are looked at together with what stands beside them."""


def _is_long(text: str) -> bool:
    return _LONG <= len(text) <= _LONGEST


class Redactor:
    """Takes secrets out. May be used by several threads."""

    def __init__(self, patterns: Sequence[str] = (), personal: Personal | None = None) -> None:
        """
        Args:
            patterns: Regular expressions of the user; what they match goes too.
            personal: Puts names in place of personal data, but in ids.

        Raises:
            InputError: A pattern cannot be used.
        """
        self._own = check(patterns)
        self._personal = personal
        self._looks_everywhere = bool(self._own) or personal is not None
        self.found: Counter[str] = Counter()
        """How often something of each kind was taken out. Of a text that is said again and again, it may be told once."""
        # What a system says to a model, it says in every call.
        self._again = lru_cache(maxsize=_REMEMBERED)(self._cleaned)

    def text(self, text: str) -> str:
        """The text without its secrets; the same object where there are none."""
        if not _is_long(text):
            return self._cleaned(text)
        clean = self._again(text)
        return text if clean == text else clean

    def _cleaned(self, text: str) -> str:
        clean = self._without_secrets(text)
        return clean if self._personal is None else self._personal.text(clean)

    def _without_secrets(self, text: str) -> str:
        spans = list(secrets.find(text))
        for pattern in self._own:
            spans += [(start, end, OWN) for start, end in pattern.find(text)]
        self.found.update(kind for _, _, kind in spans)
        return _without(text, spans) if spans else text

    def id(self, id: str) -> str:
        """The id without secrets: the same for the same, so that a tree stays one, and another one for another."""
        clean = self._without_secrets(id)
        return id if clean is id else f"{clean} {blake2b(id.encode(errors='surrogatepass'), digest_size=8).hexdigest()}"

    def bytes(self, body: "builtins.bytes") -> "builtins.bytes":
        """The same, of text in UTF-8; of what is none, too."""
        text = body.decode(errors="surrogateescape")
        clean = self.text(text)
        return body if clean is text else clean.encode(errors="surrogateescape")

    def suspects(self, body: "builtins.bytes") -> bool:
        """Whether anything in it might be a secret, also by the name that stands before it; `False` is certain, also where
        texts stand between other things, as in protobuf."""
        return bool(self._own) or secrets.suspected(body)

    def exchange(self, exchange: Exchange) -> Exchange:
        """The exchange without secrets. Those that a stream brought in pieces stay: redact the trace as well."""
        return replace(
            exchange,
            request=self.bytes(exchange.request),
            response=self.bytes(exchange.response),
            error=exchange.error and self.text(exchange.error),
            labels={name: self.text(value) for name, value in exchange.labels.items()},
        )

    def trace(self, trace: Trace) -> Trace:
        """The trace without secrets: in all texts, and in `raw` also what stands under a secret's name."""
        steps = self.steps(trace.steps)
        found = self._whole(trace)
        if found is trace and steps is trace.steps:
            return trace
        return replace(found, steps=steps)

    def steps(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """The same, of steps; the same object where there is nothing."""
        clean = tuple(map(self._step, steps))
        return steps if all(new is old for new, old in zip(clean, steps, strict=True)) else clean

    def _step(self, step: Step) -> Step:
        if not self._looks_everywhere and not self._has(self._texts(step), _ids(step)):
            return step
        if not isinstance(step, ModelCall) or not step.messages:
            return _changed(step, self._fields(step))
        messages = tuple(map(self._message, step.messages))
        if not self._own and self._personal is not None and step.prompt == spoken(step.messages):
            # Of the same words it would be the same, and looking for personal data costs.
            prompt = spoken(messages)
            step = replace(step, prompt=prompt) if prompt != step.prompt else step
            return _changed(step, {**self._fields(step, "prompt"), "messages": messages})
        return _changed(step, {**self._fields(step), "messages": messages})

    def _message(self, message: Message) -> Message:
        answers = message.answers and self.id(message.answers)
        return _changed(message, {"role": self.text(message.role), "text": self.text(message.text), "answers": answers})

    def _whole(self, trace: Trace) -> Trace:
        if not self._looks_everywhere and not self._has(_texts_of_whole(trace), _ids(trace)):
            return trace
        changed = self._fields(trace)
        for name in ("tasks_created", "tasks_completed", "tasks_failed"):
            changed[name] = tuple(map(self.text, getattr(trace, name)))
        changed["other_candidates"] = tuple(map(self.id, trace.other_candidates))
        changed["rewards"] = tuple(self._reward(reward) for reward in trace.rewards)
        return _changed(trace, changed)

    def _reward(self, reward: Reward) -> Reward:
        return _changed(reward, {"evidence": self.text(reward.evidence)})

    def _fields(self, record: Step | Trace, but: str = "") -> dict[str, Any]:
        texts = ((name, getattr(record, name)) for name in _TEXTS[type(record)] if name != but)
        changed: dict[str, Any] = {name: self.text(value) for name, value in texts if value}
        ids = ((name, getattr(record, name)) for name in _IDS[type(record)])
        changed |= {name: self.id(value) for name, value in ids if value}
        if record.raw:
            changed["raw"] = self.mapping(record.raw)
        return changed

    def _has(self, texts: Iterable[str], ids: Iterable[str]) -> bool:
        # One look at all of them together: most of what a look costs is its beginning.
        return next(secrets.find("\0".join(texts)), None) is not None or secrets.begins("\0".join(ids))

    def _texts(self, step: Step) -> Iterator[str]:
        """Texts in which a secret is found where there is one in a step. A long message stands there twice, alone and in the
        prompt, and was often looked through for an earlier call."""
        messages = step.messages if isinstance(step, ModelCall) else ()
        if any(_is_long(each.text) for each in messages) and isinstance(step, ModelCall) and step.prompt == spoken(messages):
            messages = tuple(
                Message(role=each.role, text=self._ends(each.text)) if _is_long(each.text) else each for each in messages
            )
            yield spoken(messages)
            yield from _fields_of(step, "prompt")
        else:
            yield from _fields_of(step)
        for message in messages:
            yield message.text
            if len(message.role) >= _SHORTEST:
                yield message.role

    def _ends(self, text: str) -> str:
        return f"{text[:_ENDS]}\0{text[-_ENDS:]}" if self._again(text) == text else _CERTAIN

    def mapping(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """A mapping as from JSON, without secrets; what stands under a secret's name goes, unless it is a number."""
        clean: Mapping[str, Any] = self._value(values, 0)
        return clean

    def _value(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            if depth > DEEPEST:
                return {}
            return {self.text(str(name)): self._named(str(name), each, depth) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [] if depth > DEEPEST else [self._value(each, depth + 1) for each in value]
        return value

    def _named(self, name: str, value: Any, depth: int) -> Any:
        if value is None or isinstance(value, bool | int | float) or not (kind := _secret(name)):
            return self._value(value, depth + 1)
        if isinstance(value, str) and (secrets.is_placeholder(value) or (kind == "token" and not secrets.looks_random(value))):
            return self._value(value, depth + 1)
        return {} if isinstance(value, Mapping) and not value else f"[redacted {kind}]"


def _without(text: str, spans: list[secrets.Span]) -> str:
    """The text with each group of overlapping spans replaced by the marker of the longest."""
    spans.sort()
    parts, done = [], 0
    at = 0
    while at < len(spans):
        start, end, kind = spans[at]
        longest = end - start
        at += 1
        while at < len(spans) and spans[at][0] < end:
            if spans[at][1] - spans[at][0] > longest:
                longest, kind = spans[at][1] - spans[at][0], spans[at][2]
            end = max(end, spans[at][1])
            at += 1
        parts += [text[done:start], f"[redacted {kind}]"]
        done = end
    return "".join([*parts, text[done:]])


@lru_cache(maxsize=4096)
def _secret(name: str) -> str | None:
    """What a name says that its value is: "token" for a name that is also used for words of a text; `None` for no secret."""
    if len(name) > 200 or not secrets.is_secret_name(name):
        return None
    return "token" if name.lower() == "token" else "secret"


def _texts_of_whole(trace: Trace) -> Iterator[str]:
    yield from _fields_of(trace)
    yield from (*trace.tasks_created, *trace.tasks_completed, *trace.tasks_failed)
    yield from (reward.evidence for reward in trace.rewards)


def _fields_of(record: Step | Trace, but: str = "") -> Iterator[str]:
    for name in _TEXTS[type(record)]:
        if name != but and (value := getattr(record, name)):
            yield value
    if record.raw:
        yield from _leaves(record.raw, 0)


def _ids(record: Step | Trace) -> Iterator[str]:
    yield from (value for name in _IDS[type(record)] if (value := getattr(record, name)))
    if isinstance(record, Trace):
        yield from record.other_candidates
    elif isinstance(record, ModelCall):
        yield from (message.answers for message in record.messages if message.answers)


def _leaves(value: Any, depth: int) -> Iterator[str]:
    """Every text in a mapping; for what the mapping alone tells to be a secret, one that anybody takes for one."""
    if isinstance(value, str):
        yield value
    elif depth > DEEPEST:
        yield _CERTAIN
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield str(name)
            if type(each) in _NUMBERS and depth < DEEPEST:
                continue
            if _secret(str(name)) and not isinstance(each, bool | int | float | None):
                yield _CERTAIN
            elif type(each) is str:
                yield each
            else:
                yield from _leaves(each, depth + 1)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each, depth + 1)


_NUMBERS = frozenset({bool, int, float, type(None)})
_SHORTEST = 12
"""Characters of a secret that can be told without its name."""
_CERTAIN = "\0password: 'p4ssw0rd'\0"


def _changed(record: _Record, values: Mapping[str, Any]) -> _Record:
    """The record with other values; itself where none is other."""
    new = {name: value for name, value in values.items() if value is not getattr(record, name)}
    return replace(record, **new) if new else record


LONGEST = 100
"""Characters of a name. What is longer is taken for somebody's words."""
_NAMES = frozenset(
    {
        "model",
        "system",
        "provider",
        "operation",
        "role",
        "type",
        "kind",
        "status",
        "finish",
        "finish_reason",
        "finish_reasons",
        "stop_reason",
        "response_model",
        "service_tier",
        "dialect",
        "upstream",
        "format",
        "object",
        "name",
        "tool",
        "tool_choice",
        "reasoning_effort",
        "version",
        "encoding_format",
        "run_id",
        "split",
    }
)
"""What stays of the texts in `raw`: those under such a name, where they are short and in one piece."""


def shapes_only(trace: Trace) -> Trace:
    """What `--no-content` keeps.

    What stays: ids, the names of task, domain, candidate, session, agent, models and tools; roles; the order and tree of steps;
    times, tokens, costs; why the model stopped; whether a tool failed; labels; the names, values and weights of rewards. Of an
    error its kind stays. In place of a text stands its length, as in `[120 characters]`; an empty one stays empty. Of `raw`
    stay numbers, truth values, and short texts under names that say "model", "type" and the like.

    What goes: every prompt, message, reply, argument, result, thought, evidence and error message.
    """
    return _shape(
        trace,
        steps=tuple(map(_step_shape, trace.steps)),
        tasks_created=tuple(map(_text, trace.tasks_created)),
        tasks_completed=tuple(map(_text, trace.tasks_completed)),
        tasks_failed=tuple(map(_text, trace.tasks_failed)),
        rewards=tuple(replace(reward, evidence=_text(reward.evidence)) for reward in trace.rewards),
    )


_CONTENT: Mapping[type, Sequence[str]] = {
    ModelCall: ("prompt", "reply"),
    ToolCall: ("arguments", "result"),
    Reasoning: ("text",),
    AgentCall: ("input", "output"),
    Trace: ("input", "output"),
}
"""The fields that hold what was said, by class."""


def _step_shape(step: Step) -> Step:
    if isinstance(step, ModelCall):
        return _shape(step, messages=tuple(replace(message, text=_text(message.text)) for message in step.messages))
    return _shape(step)


def _shape(record: _Shaped, **shorter: Any) -> _Shaped:
    """The record with lengths in place of texts, and with other fields that are shorter already."""
    for name in _CONTENT[type(record)]:
        shorter[name] = _length(getattr(record, name))
    if not isinstance(record, Reasoning):
        shorter["error"] = _error(record.error)
    return replace(record, raw=_mapping(record.raw), **shorter)


def _text(text: str) -> str:
    # Doing it twice is doing it once: a length stays the length of what was said.
    return text if not text or is_length(text) else f"[{len(text)} characters]"


def is_length(text: str) -> bool:
    """Whether it is what stands in place of a text."""
    return text.startswith("[") and text.endswith(" characters]") and text[1:-12].isdigit()


def is_shape(trace: Trace) -> bool:
    """Whether no words were kept of a trace, but their lengths."""
    texts = [message.text for call in trace.calls for message in call.messages]
    texts += [text for step in trace.steps for name in _CONTENT[type(step)] if (text := getattr(step, name))]
    return any(texts) and all(is_length(text) for text in texts if text)


def _length(text: str | None) -> str | None:
    return None if text is None else _text(text)


def _error(error: str | None) -> str | None:
    """The kind of an error: what stands before the first colon, where that is one word; else a word for it."""
    if not error:
        return error
    kind = error.partition(":")[0].strip()
    return kind if kind.isidentifier() and len(kind) <= LONGEST else "Error"


def _mapping(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    # A name with blanks in it is somebody's words as well.
    kept = ((name, _value(name, value)) for name, value in raw.items() if len(name) <= LONGEST and " " not in name)
    return {name: value for name, value in kept if value is not None}


def _value(name: str, value: Any) -> Any:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        last = name.rpartition(".")[2].lower()
        return value if last in _NAMES and len(value) <= LONGEST and " " not in value else None
    if isinstance(value, Mapping):
        return _mapping(value) or None
    return None
