"""Tasks from recorded requests, and what verifies an answer to one: the tool call that is made, never what a tool makes of it.

A refusal that names a field and what it should be is an exact verifier, but only if it is read from both sides: what it names
is mended, and what it does not name is as it was. One that asks for "another call than the refused one" lets nonsense pass.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from journeyman.core.errors import TaskError
from journeyman.core.reward import Reward
from journeyman.core.task import Task
from journeyman.core.trace import ToolCall, Trace
from journeyman.io.json_schema import schema_faults
from journeyman.tasks.answers import json_leaves, judge_answer


class TaskKind(StrEnum):
    """What a recorded request can be examined by."""

    ANSWERED = "answered"
    """One question, and an answer that truth, a person or a check calls right, or has put right."""
    CALL = "call"
    """A tool call whose refusal named its fields: they must be as it said, and all else as it was."""
    ACCEPTED = "accepted"
    """A tool call that was accepted: it must still be made."""
    FORM = "form"
    """A tool call of which is known only how its arguments are declared."""
    UNVERIFIABLE = "unverifiable"
    """Nobody can say what would be right."""


class FaultKind(StrEnum):
    """What a refusal says of a field."""

    VALUE = "value"
    """It should hold something else."""
    RENAMED = "renamed"
    """It should have another name."""
    MISSING = "missing"
    UNKNOWN = "unknown"
    """It should not be there."""
    TOOL = "tool"
    """Another tool should have been called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFault:
    """A fault that a tool's refusal names."""

    argument: str
    """A path with dots where it is within another."""
    problem: FaultKind
    expected_value: str | None = None
    """As the refusal writes it; `None` where it does not say."""
    expected_name: str | None = None
    allowed: tuple[str, ...] = ()
    """The values that it names, where any of several will do."""

    @property
    def is_exact(self) -> bool:
        """Whether it tells what is right, and not only what is wrong."""
        return self.problem is not FaultKind.VALUE or self.expected_value is not None or bool(self.allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAnswer:
    """What is known of the right answer to a recorded request. A task's `answer` holds it as JSON."""

    kind: TaskKind
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """As recorded."""
    faults: tuple[NamedFault, ...] = ()
    repaired: Mapping[str, Any] | None = field(default=None, hash=False)
    """The arguments with which the same attempt's next call of the tool was accepted, where one was."""
    schema: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """As the request declared the tool's arguments; empty where it was not recorded."""
    calls: int = 1
    """How many calls the recorded answer made: more are no way to be right with one of them."""
    text: str = ""
    """The right answer of one that is no call."""

    def dumps(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True, default=str)

    @classmethod
    def loads(cls, text: str) -> "RecordedAnswer":
        """
        Raises:
            TaskError: It is none.
        """
        try:
            told = json.loads(text)
            faults = tuple(
                NamedFault(**{**each, "problem": FaultKind(each["problem"]), "allowed": tuple(each["allowed"])})
                for each in told["faults"]
            )
            return cls(**{**told, "kind": TaskKind(told["kind"]), "faults": faults})
        except (ValueError, KeyError, TypeError) as error:
            raise TaskError(f"no answer of a recorded request ({error}); draw the tasks from traces again") from None

    @property
    def expected_tool(self) -> str:
        return next((each.expected_value or "" for each in self.faults if each.problem is FaultKind.TOOL), self.tool)


# What an answer says: the calls that it asks for, which nobody makes.


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCall:
    """A tool call that a model asks for."""

    tool: str
    arguments: Mapping[str, Any] | None = field(hash=False)
    """`None` where they are no JSON object."""

    @classmethod
    def of(cls, step: ToolCall) -> "AskedCall":
        try:
            found = json.loads(step.arguments or "{}")
        except (ValueError, RecursionError):
            found = None
        return cls(tool=step.tool, arguments=found if isinstance(found, dict) else None)


class RecordedVerifier:
    """Verifies the answer to a recorded request from both sides."""

    deterministic = True

    async def verify(self, task: Task, trace: Trace) -> Reward:
        answer = RecordedAnswer.loads(task.answer)
        match answer.kind:
            case TaskKind.UNVERIFIABLE:
                return Reward(name="recorded", value=None, evidence="nobody can say what would be right here")
            case TaskKind.ANSWERED:
                return judge_answer(answer.text, trace.reply)
            case TaskKind.FORM:
                return _reward(form_faults(answer, calls_of(trace)))
            case _:
                return _reward(differences(answer, calls_of(trace)))


def not_rejected(task: Task, trace: Trace) -> bool | None:
    """The one-sided question: is another call made than the refused one, or the accepted one again? It decides nothing, as
    nonsense passes it; it is shown beside what decides. `None` for kinds of which it cannot be asked."""
    answer, calls = RecordedAnswer.loads(task.answer), calls_of(trace)
    same = any(call.tool == answer.tool and call.arguments == answer.arguments for call in calls)
    if answer.kind is TaskKind.ACCEPTED:
        return same
    return bool(calls) and not same if answer.kind is TaskKind.CALL else None


def is_well_formed(task: Task, trace: Trace) -> bool | None:
    """Whether the calls of an answer are as the request's tools declare them; `None` where that is not known."""
    answer = RecordedAnswer.loads(task.answer)
    known = [call for call in calls_of(trace) if call.tool == answer.expected_tool]
    if not answer.schema or not known or answer.expected_tool != answer.tool:
        return None
    return not any(schema_faults(call.arguments, answer.schema, strict=False) for call in known)


def calls_of(trace: Trace) -> list[AskedCall]:
    """The calls that an answer asks for."""
    return [AskedCall.of(step) for step in trace.tool_calls]


def _reward(wrong: Sequence[str]) -> Reward:
    return Reward(name="recorded", value=0.0 if wrong else 1.0, evidence="\n".join(wrong))


def differences(answer: RecordedAnswer, calls: Sequence[AskedCall]) -> list[str]:
    """In what an answer differs from the right one, a line for each field; nothing where one of its calls is right."""
    if not calls:
        return [f"{answer.expected_tool}: not called"]
    if len(calls) > max(1, answer.calls):
        return [f"{len(calls)} calls were made, and {max(1, answer.calls)} recorded"]
    found = [_of_call(answer, call) for call in calls]
    return min(found, key=len)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What another answer changes of what is known of a request, field by field."""

    mended: int = 0
    """Fields that were not as they should be, and are."""
    spoiled: int = 0
    """Fields that were changed and are not as they should be: they were right, or are wrong in another way."""

    @property
    def sign(self) -> int:
        """1 for more mended than spoiled, -1 for less, 0 for neither."""
        return (self.mended > self.spoiled) - (self.mended < self.spoiled)


def effect(answer: RecordedAnswer, before: Sequence[AskedCall], after: Sequence[AskedCall]) -> Effect:
    """What an answer changes of another one, as far as the recorded one tells what is right.

    A wrong field that becomes wrong in another way leaves `differences` as many as they were; here it speaks against whatever
    changed it.
    """
    was, now = _fields(answer, before), _fields(answer, after)
    absent = _Field(value=None, right=True)
    pairs = [(was.get(name, absent), now.get(name, absent)) for name in dict.fromkeys((*was, *now))]
    return Effect(
        mended=sum(there.right and not then.right for then, there in pairs),
        spoiled=sum(not there.right and there.value != then.value for then, there in pairs),
    )


class _Field(NamedTuple):
    value: Any
    right: bool


def _fields(answer: RecordedAnswer, calls: Sequence[AskedCall]) -> dict[str, _Field]:
    """What a call holds of all that a recorded one, and its refusal, speak of; a new name apart from what stands under it."""
    call = min(calls, key=lambda each: len(_of_call(answer, each)), default=AskedCall(tool="", arguments=None))
    recorded, got = json_leaves(answer.arguments), json_leaves(call.arguments or {})
    repaired = None if answer.repaired is None else json_leaves(answer.repaired)
    found = {"": _Field(call.tool, call.tool == answer.expected_tool)}
    faults = [each for each in answer.faults if each.problem is not FaultKind.TOOL]
    old = {each.expected_name: each.argument for each in faults if each.problem is FaultKind.RENAMED}
    for fault in faults:
        name, there = fault.argument, _below(got, fault.argument)
        if fault.problem is FaultKind.RENAMED:
            names = bool(there), bool(_below(got, fault.expected_name or ""))
            found[f"{name} as {fault.expected_name}"] = _Field(names, names == (False, True))
        elif fault.problem is FaultKind.UNKNOWN:
            found[name] = _Field(there, not there)
        else:
            # What is right under the old name is right, and only its name is wrong.
            there = there or _below(got, old.get(name, name))
            after = None if repaired is None else _below(repaired, name)
            found[name] = _Field(there, not list(_unmended_value(fault, there, after)))
    for new, name in old.items():
        if new and new not in found:
            there = _below(got, new) or _below(got, name)
            kept = [_below(recorded, name), *([] if repaired is None else [_below(repaired, new)])]
            found[new] = _Field(there, there in kept)
    named = [name for each in faults for name in (each.argument, each.expected_name) if name]
    for path in dict.fromkeys((*recorded, *got)):
        if not any(_within(path, name) for name in named):
            value, accepted = got.get(path), None if repaired is None else repaired.get(path)
            found[path] = _Field(value, value == recorded.get(path) or (repaired is not None and value == accepted))
    return found


def form_faults(answer: RecordedAnswer, calls: Sequence[AskedCall]) -> list[str]:
    """What is wrong with the form of an answer's calls, as their tool is declared; a line for each fault."""
    if not calls:
        return [f"{answer.tool}: not called"]
    return [
        line
        for call in calls
        if call.tool == answer.tool
        for line in schema_faults(call.arguments, answer.schema, strict=False)
    ]


def _of_call(answer: RecordedAnswer, call: AskedCall) -> list[str]:
    if call.tool != answer.expected_tool:
        return [f'tool: expected "{answer.expected_tool}", got "{call.tool}"']
    if call.arguments is None:
        return ["arguments: no JSON object"]
    recorded, got = json_leaves(answer.arguments), json_leaves(call.arguments)
    repaired = None if answer.repaired is None else json_leaves(answer.repaired)
    faults = [each for each in answer.faults if each.problem is not FaultKind.TOOL]
    wrong = [line for each in faults for line in _unmended(each, faults, recorded, got, repaired)]
    named = [name for each in faults for name in (each.argument, each.expected_name) if name]
    for path in dict.fromkeys((*recorded, *got)):
        if any(_within(path, name) for name in named) or recorded.get(path) == got.get(path):
            continue
        # An API that tells of one fault at a time: what was accepted in the end is right too.
        if repaired is not None and repaired.get(path) == got.get(path):
            continue
        wrong.append(_differs(path, recorded.get(path), got.get(path)))
    return wrong


def _unmended(
    fault: NamedFault,
    faults: Collection[NamedFault],
    recorded: Mapping[str, str],
    got: Mapping[str, str],
    repaired: Mapping[str, str] | None,
) -> Iterator[str]:
    """What is left of one fault."""
    name, there = fault.argument, _below(got, fault.argument)
    match fault.problem:
        case FaultKind.UNKNOWN:
            if there:
                yield f"{name}: unknown field, and still there"
        case FaultKind.RENAMED:
            new = fault.expected_name or ""
            if there:
                yield f'{name}: expected under the name "{new}"'
            valued = any(each.argument == new and each.problem is FaultKind.VALUE for each in faults)
            accepted = [_below(recorded, name), *([] if repaired is None else [_below(repaired, new)])]
            if not _below(got, new):
                yield f"{new}: missing"
            elif not valued and _below(got, new) not in accepted:
                yield _differs(new, _below(recorded, name).get(""), _below(got, new).get(""))
        case _:
            yield from _unmended_value(fault, there, None if repaired is None else _below(repaired, name))


def _unmended_value(fault: NamedFault, there: Mapping[str, str], repaired: Mapping[str, str] | None) -> Iterator[str]:
    name, got = fault.argument, there.get("")
    wanted = fault.allowed if fault.expected_value is None else (fault.expected_value,)
    if not there:
        yield f"{name}: missing"
    elif wanted:
        if got is None or _plain(got) not in map(_plain, wanted):
            yield _differs(name, " or ".join(wanted), got)
    elif repaired:
        if there != repaired:
            yield _differs(name, repaired.get(""), got)
    elif fault.problem is FaultKind.VALUE:
        yield f"{name}: refused, and nobody said what would be right"


def _differs(path: str, expected: str | None, got: str | None) -> str:
    def said(value: str | None) -> str:
        return "nothing" if value is None else f'"{_plain(value)}"'

    return f"{path}: expected {said(expected)}, got {said(got)}"


def _within(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}.")


def _below(flat: Mapping[str, str], name: str) -> dict[str, str]:
    """The leaves at and below a path, by what follows it."""
    return {path[len(name) :]: value for path, value in flat.items() if _within(path, name)}


def _plain(value: str) -> str:
    """A value as an error would write it: a text without the quotes of JSON, a number as it is."""
    try:
        found = json.loads(value)
    except ValueError:
        return value
    return found if isinstance(found, str) else value


# What a refusal names. Tools write it in many ways; what cannot be read names nothing.

_QUOTED = r"""["'`‘“]([^"'`’”\n]*)["'`’”]"""
_PATH = r"[A-Za-z_][\w.\[\]-]*"
_PREFIX = re.compile(r"^\s*(?:error|exception|\w+(?:Error|Exception))\s*:\s*", re.IGNORECASE)
_LINE = re.compile(rf"^[\s\-*•]*[\"'`]?({_PATH})[\"'`]?\s*:\s*(\S.*)$")
_ON_TWO_LINES = re.compile(rf"^({_PATH})\n[ \t]+(\S)", re.MULTILINE)
"""As pydantic writes it."""
_ENDING = re.compile(r"\s*\[type=.*$|\s*For further information visit.*$")
_HEADING = re.compile(r":$|^\d+ (?:validation )?errors?\b", re.IGNORECASE)
_SHORT = 60
"""Characters of what is said of a field that nobody declared."""
_UNKNOWN = re.compile(
    r"\b(?:unknown|unexpected|unrecogni[sz]ed|unsupported|undeclared|no such|extra|additional|invalid)\s+"
    r"(?:keyword\s+)?(?:arguments?|fields?|parameters?|propert(?:y|ies)|keys?|inputs?|attributes?)\b"
    r"|\bnot permitted\b|\b(?:is|are) not allowed\b|\bwas unexpected\b|\bunrecogni[sz]ed_keys\b|\bextra_forbidden\b",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r"\b(?:missing|required|must be (?:given|provided|present|specified)|needs to be (?:given|provided))\b", re.IGNORECASE
)
_ONE_OF = re.compile(
    r"\b(?:one of|permitted(?: values)?(?: are)?|allowed(?: values)?(?: are)?|valid (?:values|options)(?: are)?|choose from)"
    r"\s*:?\s*"
    r"(?:the following\s*:?\s*)?[\[({]?([^\])}\n]+)[\])}]?",
    re.IGNORECASE,
)
_EXPECTED = re.compile(
    rf"\b(?:expected|expects|should (?:be|have been|equal)|must (?:be|equal)|did you mean|use|instead of .* use)\s*:?\s*"
    rf"(?:(?:a |the )?(?:value|name|field|input)\s*:?\s*)?{_QUOTED}",
    re.IGNORECASE,
)
_SEVERAL = re.compile(rf"\bshould be ((?:{_QUOTED}(?:, | or )?)+)", re.IGNORECASE)
_GOT = re.compile(rf",?\s*(?:but )?(?:got|received|was given|found)\s*:?\s*{_QUOTED}", re.IGNORECASE)
_OF_NAMED = (
    re.compile(rf"(?:argument|field|parameter|property|key|input)s?\s*:?\s*\(?{_QUOTED}", re.IGNORECASE),
    re.compile(
        rf"{_QUOTED}\s+(?:is a required|is required|is missing|was unexpected|is not (?:permitted|allowed)|must|should)"
    ),
    re.compile(rf"\(?{_QUOTED} (?:was|were) unexpected"),
    re.compile(rf"\b(?:argument|field|parameter|property)\s+({_PATH})\s+(?:is|was|must|should|has)\b", re.IGNORECASE),
    re.compile(rf"\b({_PATH})\s+(?:is required|is missing|must be|should be|is not (?:permitted|allowed))"),
    re.compile(rf"(?:invalid value|invalid|wrong value|bad value) for\s+[\"'`]?({_PATH})[\"'`]?", re.IGNORECASE),
)
_PLACES = frozenset({"body", "query", "path", "header", "arguments", "args", "kwargs", "input", "params", "parameters"})
"""Where in a request a field stands, as FastAPI and its like put before its name."""
_ALWAYS = frozenset({"error", "errors", "detail", "details", "message", "msg", "status", "code", "type", "call", "success"})


def named_faults(
    refusal: str, tool: str = "", arguments: Mapping[str, Any] | None = None, declared: Collection[str] = ()
) -> tuple[NamedFault, ...]:
    """The faults that a tool's refusal names, each once; empty where it names none, or one that cannot be read.

    Args:
        tool: That refused.
        arguments: It was called with.
        declared: The arguments that it is declared to have.
    """
    known = {*(arguments or ()), *declared}
    found: dict[tuple[str, FaultKind], NamedFault] = {}
    for name, said in _named(refusal, known):
        argument = _path(name)
        if not argument:
            continue
        fault = _tool_fault(argument, said, tool, known) or _fault(argument, said)
        found.setdefault((fault.argument, fault.problem), fault)
    return tuple(found.values())


def _tool_fault(argument: str, said: str, tool: str, known: Collection[str]) -> NamedFault | None:
    """Where what is wrong is the name of the tool."""
    got, expected = _GOT.search(said), _EXPECTED.search(said)
    if argument not in ("name", "tool") or argument in known or expected is None or (got is not None and got[1] != tool):
        return None
    return NamedFault(argument=argument, problem=FaultKind.TOOL, expected_value=expected[1])


def _fault(argument: str, said: str) -> NamedFault:
    """What is said of one field."""
    before = said[: found.start()] if (found := _GOT.search(said)) else said
    expected = next((each[1] for each in [_EXPECTED.search(before)] if each), None)
    if _UNKNOWN.search(before):
        renamed = FaultKind.UNKNOWN if expected is None else FaultKind.RENAMED
        return NamedFault(argument=argument, problem=renamed, expected_name=expected)
    problem = FaultKind.MISSING if _MISSING.search(before) else FaultKind.VALUE
    if allowed := _allowed(before):
        return NamedFault(argument=argument, problem=problem, allowed=allowed)
    return NamedFault(argument=argument, problem=problem, expected_value=expected)


def _allowed(said: str) -> tuple[str, ...]:
    """The values of which any will do."""
    if found := _SEVERAL.search(said):
        several = re.findall(_QUOTED, found[1])
        return tuple(several) if len(several) > 1 else ()
    if not (found := _ONE_OF.search(said)):
        return ()
    quoted = re.findall(_QUOTED, found[1])
    words = quoted or [each.strip(" .") for each in re.split(r",|\bor\b|\|", found[1])]
    return tuple(each for each in words if each)


def _named(refusal: str, known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Each field that a refusal names, and what it says of it."""
    told = _parsed(refusal.strip())
    if isinstance(told, dict | list):
        listed = list(_of_json(told, known))
        if listed:
            yield from listed
            return
        refusal = _message(told)
    text = _ON_TWO_LINES.sub(r"\1: \2", _PREFIX.sub("", refusal.strip()))
    lines = [line for each in text.splitlines() if (line := _ENDING.sub("", each).strip()) and not _HEADING.search(line)]
    found = [list(_of_line(line, known)) for line in lines]
    # What a program printed may hold anything; a refusal speaks of little else than faults.
    if 2 * sum(map(bool, found)) >= len(lines):
        yield from (each for of_line in found for each in of_line)


def _of_line(line: str, known: Collection[str]) -> Iterator[tuple[str, str]]:
    if (found := _LINE.match(line)) and _path(found[1]) and found[1].lower() not in _ALWAYS - set(known):
        if _path(found[1]) in known or _speaks_of_a_field(found[1], found[2]):
            yield found[1], found[2]
        return
    names: list[str] = []
    for pattern in _OF_NAMED:
        if found := pattern.search(line):
            names = [found[1]]
            # missing 2 required positional arguments: 'city' and 'date'
            names += re.findall(rf"^(?:\s*(?:,|and|or)\s*)*{_QUOTED}", line[found.end() :]) if _MISSING.search(line) else []
            break
    names = [name for name in names if re.fullmatch(_PATH, name)]
    if not names:
        words = set(re.findall(r"\w+", line))
        several = [name for name in known if name in words]
        names = several if len(several) == 1 else []
    for name in names:
        yield name, line


def _speaks_of_a_field(name: str, said: str) -> bool:
    """Whether a line is of a field, although no such argument was given or is declared."""
    if name.endswith(("Error", "Exception", "Warning")):
        return False
    return _EXPECTED.search(said) is not None or (len(said) <= _SHORT and bool(_MISSING.search(said) or _UNKNOWN.search(said)))


def _of_json(told: Any, known: Collection[str]) -> Iterator[tuple[str, str]]:
    """From an answer in JSON: lists of faults with their places, or an object of fields."""
    if isinstance(told, list):
        for each in told:
            if isinstance(each, dict) and (where := _where(each)):
                yield where, _said(each)
        return
    if not isinstance(told, dict):
        return
    for key in ("detail", "details", "errors", "issues", "error", "fields"):
        inner = told.get(key)
        inner = _parsed(inner) if isinstance(inner, str) else inner
        if not isinstance(inner, dict | list):
            continue
        found = list(_of_json(inner, known))
        if not found and isinstance(inner, dict):
            found = [(name, said) for name, said in _of_fields(inner) if key in ("errors", "fields", "detail") or name in known]
        if found:
            yield from found
            return
    if where := _where(told):
        yield where, _said(told)
        return
    yield from ((name, said) for name, said in _of_fields(told) if name in known)


def _of_fields(told: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Such as {"date": ["This field is required."]}."""
    for name, said in told.items():
        texts = [said] if isinstance(said, str) else said
        if isinstance(texts, list) and texts and all(isinstance(each, str) for each in texts) and name not in _ALWAYS:
            yield name, " ".join(texts)


def _where(fault: Mapping[str, Any]) -> str:
    for key in ("loc", "path", "field", "param", "parameter", "argument", "property"):
        where = fault.get(key)
        if isinstance(where, list) and where:
            return ".".join(map(str, where))
        if isinstance(where, str) and where:
            return where.lstrip("$/.").replace("/", ".")
    return ""


def _said(fault: Mapping[str, Any]) -> str:
    texts = [fault.get(key) for key in ("msg", "message", "error", "description", "type", "code")]
    allowed = fault.get("options") or fault.get("allowed") or fault.get("enum")
    listed = [f"one of {json.dumps(allowed)}"] if isinstance(allowed, list) and allowed else []
    return "; ".join([*(each for each in texts if isinstance(each, str)), *listed])


def _message(told: Any) -> str:
    """The words in an answer that is JSON."""
    if not isinstance(told, dict):
        return ""
    for key in ("error", "message", "detail", "msg"):
        found = told.get(key)
        if isinstance(found, dict):
            return _message(found)
        if isinstance(found, str) and found.strip():
            return found
    return ""


def _path(name: str) -> str:
    """A field's path within the arguments, with dots."""
    parts = [part for part in re.split(r"[.\[\]]+", name) if part]
    while len(parts) > 1 and parts[0] in _PLACES:
        parts = parts[1:]
    return ".".join(parts)


def _parsed(text: str) -> Any:
    if text[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def is_exact(faults: Iterable[NamedFault], repaired: Mapping[str, Any] | None) -> bool:
    """Whether faults tell what is right: each by itself, or by the call that was accepted in the end."""
    found = list(faults)
    return bool(found) and all(each.is_exact or repaired is not None for each in found)
