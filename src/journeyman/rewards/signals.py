"""What in a recorded trace might say whether it went well, and how much each of these signals counts: said once, in `SIGNALS`.

Read from a trace alone: nothing is asked of a model, and no tool is run. What words can show is measured, never believed: over
four recorded sets no signal of words kept its sign, so none of them has a vote (`signal_examination`, docs/from-traces.md).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from journeyman.core.reward import Source, decide, source_of
from journeyman.core.trace import Trace
from journeyman.stores.traces.base import Label
from journeyman.tracing.evidence import AttemptEvidence, CallEvidence
from journeyman.tracing.fields import mapping


class Granularity(StrEnum):
    """What a signal speaks of. A tool's error says much of its call, and next to nothing of the session."""

    CALL = "call"
    TURN = "turn"
    SESSION = "session"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One thing in a trace that might say whether it went well."""

    name: str
    granularity: Granularity
    weight: float
    """Of its vote where nothing was examined, 0 to 1; 0: it has none."""
    why: str
    """Why it counts so much, with what was measured."""
    at_least: float | None = 1.0
    """The value from which it fires; `None`: in the highest tenth."""


_CALL, _TURN, _SESSION = Granularity.CALL, Granularity.TURN, Granularity.SESSION

TRUTH = Signal(name="truth", granularity=_SESSION, weight=1.0, why="what turned out later is what is meant by right")
PERSON = Signal(name="person", granularity=_SESSION, weight=1.0, why="somebody with a name looked at it")
CHECK_FAILED = Signal(
    name="check_failed", granularity=_SESSION, weight=1.0, why="of attempts that fail a check .88 to 1.00 failed, over 12 runs"
)
CHECK_PASSED = Signal(
    name="check_passed", granularity=_SESSION, weight=0.8, why="of attempts that pass visible checks .80 to .99 are right"
)
SCHEMA = Signal(
    name="schema_faults",
    granularity=_CALL,
    weight=1.0,
    why="an API refuses what its schema forbids; 3 % of a leaderboard's right calls do, where its schemas are wrong",
)
REJECTED = Signal(
    name="repaired",
    granularity=_CALL,
    weight=1.0,
    why="a refused call, and the same tool accepted later with another argument, show a wrong call beside a right one",
)
FLAKE = Signal(
    name="repeated_until_accepted",
    granularity=_CALL,
    weight=0.0,
    why="the same call accepted later shows that the tool was down: 91 of 125 repairs in one shop",
)
STOPPED = Signal(name="stopped", granularity=_SESSION, weight=0.8, why="all 11 that were cut off in two sets count as failed")
RIGHT_TWIN = Signal(
    name="differs_from_right",
    granularity=_SESSION,
    weight=0.8,
    why="what an attempt at the same request that is known to be right did not do: AUC .97 and .81",
)
DISAGREES = Signal(
    name="disagrees",
    granularity=_SESSION,
    weight=0.0,
    at_least=0.75,
    why="agreement of an agent with itself ranks whom to ask and is no label: with writes .41 of the agreed are right",
)
JUDGE = Signal(
    name="judge",
    granularity=_SESSION,
    weight=0.0,
    why="three of four recorded judges were no better than a coin: a judge earns its vote on this agent's labelled sessions",
)
_SIGN = "its sign changes from agent to agent: "
SIGNALS: tuple[Signal, ...] = (
    TRUTH,
    PERSON,
    CHECK_FAILED,
    CHECK_PASSED,
    SCHEMA,
    REJECTED,
    FLAKE,
    STOPPED,
    RIGHT_TWIN,
    DISAGREES,
    JUDGE,
    Signal(
        name="tool_errors",
        granularity=_CALL,
        weight=0.0,
        why="72 to 85 % are repaired in the same trace; of its end they say little (AUC .54 to .64)",
    ),
    Signal(name="unrepaired_errors", granularity=_SESSION, weight=0.0, why=_SIGN + "AUC .50 to .62, and rare"),
    Signal(name="same_call_twice", granularity=_SESSION, weight=0.0, why=_SIGN + "AUC .45 to .57"),
    Signal(name="user_corrects", granularity=_TURN, weight=0.0, why=_SIGN + "AUC .42 to .51; whoever corrects is listened to"),
    Signal(name="frustration", granularity=_TURN, weight=0.0, why=_SIGN + "AUC .44 to .62"),
    Signal(name="no_thanks", granularity=_SESSION, weight=0.0, why=_SIGN + "AUC .47 to .57"),
    Signal(name="user_repeats", granularity=_TURN, weight=0.0, at_least=0.6, why="it says next to nothing: AUC .50 to .63"),
    Signal(
        name="transfer",
        granularity=_SESSION,
        weight=0.0,
        why=_SIGN + "success in one shop and failure in the next, AUC .35 and .65",
    ),
    Signal(name="refusal_words", granularity=_SESSION, weight=0.0, why=_SIGN + "AUC .37 to .66"),
    Signal(
        name="messages",
        granularity=_SESSION,
        weight=0.0,
        at_least=None,
        why="hard requests are long ones: within a request AUC .43 to .63",
    ),
    Signal(
        name="end_user",
        granularity=_SESSION,
        weight=0.0,
        at_least=0.5,
        why="who was served says whether he is pleased; it counts where no better word does, and is examined like the others",
    ),
)
"""Every signal, with the vote that it has by default: the one place where that is said."""
BY_NAME: Mapping[str, Signal] = {signal.name: signal for signal in SIGNALS}

_KNOW = frozenset({Source.TRUTH, Source.PERSON, Source.CHECK})


def truth_of(trace: Trace, by: frozenset[Source] = _KNOW) -> bool | None:
    """Whether an attempt was right, by ground truth, a person or a check alone; `None` where none of them says so."""
    return decide(reward for reward in trace.said if reward.told_by in by).good


def without_disputed(traces: Iterable[Trace], labels: Iterable[Label]) -> Iterator[Trace]:
    """The traces, without the label where two people disagree on it: then nobody knows.

    Args:
        labels: Every word that was given, oldest first, as a store keeps them.
    """
    # Whoever only reads signals need not wait for a database's library.
    from journeyman.stores.traces.labels import said

    words: dict[str, set[bool]] = defaultdict(set)
    for who, word in said(labels).items():
        for trace_id, good in word.items() if source_of(who) is Source.PERSON else ():
            words[trace_id].add(good)
    for trace in traces:
        by_person = trace.labelled_by is not None and source_of(trace.labelled_by) is Source.PERSON
        disputed = by_person and len(words.get(trace.id, ())) > 1
        yield replace(trace, label=None, labelled_by=None) if disputed else trace


def request_of(attempt: AttemptEvidence) -> str | None:
    """What attempts at the same request share: the task. `None` where the trace names no task but itself."""
    trace = attempt.trace
    return f"{trace.domain}\0{trace.task_id}" if trace.task_id not in ("", trace.id) else None


def cluster_of(attempt: AttemptEvidence) -> str:
    """What attempts that go well or badly together share: the request, else whom they were made for."""
    return request_of(attempt) or attempt.principal


# What a tool changes. An attempt is compared with another by what it did, not by what it looked up.

_LOOKS = frozenset(
    {
        "get", "list", "search", "find", "read", "fetch", "lookup", "look", "calculate", "compute", "think", "check", "show",
        "describe", "query", "view", "count", "is", "has", "can", "browse", "open", "select", "retrieve", "load", "verify",
        "validate", "estimate", "convert", "summarize", "explain", "help", "ls", "cat", "grep", "glob", "head", "tail",
    }
)  # fmt: skip
_HANDS_OVER = re.compile(r"transfer.*(human|agent|person|support)|escalate|hand_?(off|over)", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def changes(tool: str) -> bool:
    """Whether a tool, by its name, changes something: not where its verb only looks, or it hands over to a person."""
    words = _WORD.findall(re.split(r"[.:/]|__", tool)[-1])
    return not (words and words[0].lower() in _LOOKS) and not _HANDS_OVER.search(tool)


def writes(attempt: AttemptEvidence) -> "Writes":
    """The set of accepted calls that change something; attempts at one request are compared by it, as their order differs."""
    return frozenset(effect for effect in attempt.effects if changes(effect[0]))


# Signals that stand in one trace. The words are English ones.

_CORRECTS = re.compile(
    r"\bno,|\bthat'?s not (what|right|correct)|\bnot what i\b|\bi meant\b"
    r"|\bi (already|just) (told|said|gave|provided|mentioned)|\bwrong\b|\bincorrect\b|\bmistake|\bmisunderst|\byou said\b"
    r"|\bas i (said|mentioned)|\bi didn'?t (ask|say|want)|\bactually,|\bplease (re-?check|double.?check|check again)"
    r"|\bare you sure\b",
    re.IGNORECASE,
)
_FRUSTRATED = re.compile(
    r"frustrat|unacceptable|ridiculous|disappoint|annoy|terrible|speak (to|with) (a )?(human|manager|supervisor|agent|someone)"
    r"|\bhuman agent|this is not acceptable",
    re.IGNORECASE,
)
_THANKS = re.compile(r"thank|thanks|great|perfect|appreciate|that'?s all|wonderful", re.IGNORECASE)
_REFUSES = re.compile(
    r"unable to|cannot|can'?t|not able to|not allowed|not eligible|isn'?t possible|not possible|against (our|the) policy",
    re.IGNORECASE,
)
_CUT = frozenset({"length", "max_tokens", "max_output_tokens"})
_FEW_WORDS = 4
"""A message of no more words repeats nothing: "yes, please" is said often."""
_COMPARED = 100
"""Messages of a user, the latest, among which repetitions are looked for."""


def values(attempt: AttemptEvidence) -> Mapping[str, float]:
    """The signals of one attempt by name: the higher, the worse it should be. Missing where there is nothing to tell by."""
    trace, users = attempt.trace, attempt.words
    replies = [call.reply for call in trace.calls]
    asked = Counter((call.tool, call.written) for call in attempt.calls)
    refused = [call for call in attempt.calls if call.ok is False]
    repaired = {repair.refused.place for repair in repairs(attempt)}
    found = {
        "tool_errors": len(refused),
        "unrepaired_errors": sum(call.place not in repaired for call in refused),
        "repaired": sum(not repair.flake for repair in repairs(attempt)),
        "repeated_until_accepted": sum(repair.flake for repair in repairs(attempt)),
        "same_call_twice": sum(asked.values()) - len(asked),
        "stopped": float(stopped(trace)),
        "transfer": float(any(_HANDS_OVER.search(call.tool) for call in attempt.calls)),
        "refusal_words": sum(bool(_REFUSES.search(reply)) for reply in replies),
        "messages": len(replies) + sum(message.role != "system" for call in trace.calls for message in call.messages),
    }
    if users:
        found["user_corrects"] = sum(bool(_CORRECTS.search(each)) for each in users[1:])
        found["frustration"] = sum(bool(_FRUSTRATED.search(each)) for each in users)
        found["no_thanks"] = float(not _THANKS.search(" ".join(users[-2:])))
        found["user_repeats"] = _repeated(users[1:])
    if any(call.definition for call in attempt.calls):
        found["schema_faults"] = sum(bool(schema_faults(call)) for call in attempt.calls)
    ratings = [reward.value for reward in trace.said if reward.told_by is Source.USER and reward.value is not None]
    if ratings:
        found["end_user"] = 1 - sum(ratings) / len(ratings)
    return found


def stopped(trace: Trace) -> bool:
    """Whether an attempt was cut off: by a limit or an error, in the middle of an answer, or without any."""
    if trace.error is not None:
        return True
    if not trace.calls:
        return False
    last = trace.calls[-1]
    asks = any(step.parent == last.id for step in trace.tool_calls)
    return last.finish in _CUT or not (trace.reply.strip() or asks)


def _repeated(messages: Sequence[str]) -> float:
    """The largest overlap of a message with an earlier one (Jaccard, of words)."""
    words = [frozenset(re.findall(r"[a-z0-9]+", each.lower())) for each in messages[-_COMPARED:]]
    pairs = ((one, other) for place, one in enumerate(words) if len(one) > _FEW_WORDS for other in words[:place])
    return max((len(one & other) / len(one | other) for one, other in pairs), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A refused call, and the first later call of the same tool that was accepted."""

    refused: CallEvidence
    accepted: CallEvidence

    @property
    def flake(self) -> bool:
        """Whether no argument changed: then the tool had been down, and nothing was learned."""
        return self.refused.written == self.accepted.written


def repairs(attempt: AttemptEvidence) -> Sequence[Repair]:
    """The refused calls of an attempt that were repaired in it, in order."""
    found = []
    for place, call in enumerate(attempt.calls):
        if call.ok is False:
            later = (each for each in attempt.calls[place + 1 :] if each.tool == call.tool and each.ok)
            if (accepted := next(later, None)) is not None:
                found.append(Repair(refused=call, accepted=accepted))
    return found


# Signals that stand in several attempts at the same request.

RequestOf = Callable[[AttemptEvidence], Hashable | None]
"""What attempts at the same request share; `None` where nobody knows of another one."""
Writes = frozenset[tuple[str, str]]


def disagreement(written: Sequence[Writes], requests: Sequence[Hashable | None]) -> Sequence[float | None]:
    """Of each attempt the share of the others at the same request that wrote something else; `None` where there are none."""
    found: list[float | None] = [None] * len(written)
    for places in places_of(requests).values():
        times = Counter(written[place] for place in places)
        for place in places if len(places) > 1 else ():
            found[place] = (len(places) - times[written[place]]) / (len(places) - 1)
    return found


def places_of(requests: Sequence[Hashable | None]) -> Mapping[Hashable, list[int]]:
    """By request, where its attempts stand."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    for place, asked in enumerate(requests):
        if asked is not None:
            found[asked].append(place)
    return found


Right = Mapping[Hashable, Mapping[str, Writes]]
"""By request and trace, what attempts wrote that are known to be right."""


def differs_from_right(trace_id: str, written: Writes, request: Hashable | None, right: Right) -> bool | None:
    """Whether an attempt wrote what no other attempt did that is known to be right; `None` where none is."""
    twins = [done for id, done in right.get(request, {}).items() if id != trace_id]
    return written not in twins if twins else None


# Arguments against the schema that the request itself declared.

_IS: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: not isinstance(value, bool) and (isinstance(value, int) or _whole(value)),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, Mapping),
    "null": lambda value: value is None,
}
_ALSO = {"float": "number", "double": "number", "int": "integer", "long": "integer", "str": "string", "bool": "boolean",
         "dict": "object", "hashmap": "object", "list": "array", "tuple": "array"}  # fmt: skip
"""Words that others write for a type of JSON Schema. A word that nobody knows forbids nothing."""
_DEEPEST = 20


def _whole(value: object) -> bool:
    return isinstance(value, float) and value.is_integer()


def schema_faults(call: CallEvidence) -> list[str]:
    """What is wrong with a call's arguments by the schema that its own request declared; empty where nothing is, or none was
    recorded. What a schema says in words that are not read here (`oneOf`, `pattern`, …) counts for the call, and so does a null
    in place of an argument that may be left out."""
    if call.definition is None:
        return []
    if call.arguments is None:
        return ["the arguments are no JSON object"]
    schema = call.definition.parameters
    return list(_faults(call.arguments, schema, "", strict="properties" in schema))


def _faults(value: Any, schema: Mapping[str, Any], where: str, *, strict: bool = False, depth: int = 0) -> Iterable[str]:
    """
    Args:
        strict: An argument that is not declared is a fault, although the schema does not forbid it: no tool has it.
    """
    if depth > _DEEPEST:
        return
    at = where or "the arguments"
    types = _types(schema)
    if types and not any(_IS[each](value) for each in types):
        yield f"{at}: expected {' or '.join(types)}, got {_kind(value)}"
        return
    if isinstance(options := schema.get("enum"), list) and not _one_of(value, options):
        yield f"{at}: not one of the {len(options)} values that are allowed"
    if isinstance(value, Mapping):
        yield from _object_faults(value, schema, where, strict=strict, depth=depth)
    elif isinstance(value, list) and isinstance(inner := schema.get("items"), Mapping):
        for place, each in enumerate(value):
            yield from _faults(each, inner, f"{where}[{place}]", depth=depth + 1)


def _object_faults(
    value: Mapping[str, Any], schema: Mapping[str, Any], where: str, *, strict: bool, depth: int
) -> Iterable[str]:
    declared = mapping(schema.get("properties"))
    required = schema.get("required")
    begin = f"{where}." if where else ""
    needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    yield from (f"{begin}{name}: required, and missing" for name in sorted(needed - value.keys()))
    others = schema.get("additionalProperties", not (strict and declared))
    for name, each in value.items():
        if name in declared and (each is not None or name in needed):
            yield from _faults(each, mapping(declared[name]), f"{begin}{name}", depth=depth + 1)
        elif name not in declared and others is False and "patternProperties" not in schema:
            yield f"{begin}{name}: not declared"


def _types(schema: Mapping[str, Any]) -> list[str]:
    """The types that a schema allows; empty where it allows any, or speaks of one that nobody knows."""
    told = schema.get("type")
    named = [each for each in told if isinstance(each, str)] if isinstance(told, list) else [told] if told else []
    types = [_ALSO.get(str(each).lower(), str(each).lower()) for each in named]
    if schema.get("nullable") is True and types:
        types.append("null")
    return types if all(each in _IS for each in types) else []


def _kind(value: object) -> str:
    return next((name for name in ("boolean", "integer", "number", *_IS) if _IS[name](value)), type(value).__name__)


def _one_of(value: object, options: Sequence[object]) -> bool:
    """Equal as JSON, where `true` is not 1. Many write beside an array what its items may be."""
    if isinstance(value, list) and not any(isinstance(each, list) for each in options):
        return all(_one_of(each, options) for each in value)
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in options)
