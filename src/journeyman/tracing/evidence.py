"""What a recorded attempt can teach: its tool calls, what the tools made of them, and on whose behalf it was made.

Read from a trace alone, whoever recorded it: the gateway in any dialect, spans, the hook, imported files. Nothing is asked of
a model, and no tool is run.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from journeyman.core.trace import ModelCall, ToolCall, Trace
from journeyman.tracing.fields import mapping, parsed_if_json, recorded_tools, string

_PRINCIPALS = ("user", "safety_identifier", "end_user", "user_id")
"""Parameters of a request that say on whose behalf it is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """A tool as a request declares it, in whichever dialect."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """JSON Schema of its arguments."""

    @property
    def arguments(self) -> Mapping[str, Mapping[str, Any]]:
        """The schema of each argument that is declared."""
        return {name: mapping(schema) for name, schema in mapping(self.parameters.get("properties")).items()}

    @property
    def digest(self) -> str:
        """Of name and schema: what was learned of another shape may not hold for this one."""
        said = json.dumps([self.name, self.parameters], sort_keys=True, default=str)
        return blake2b(said.encode(errors="surrogatepass"), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEvidence:
    """One tool call that a model asked for, and what the tool made of it."""

    id: str
    """Of its step."""
    trace_id: str
    place: int
    """Among the steps of its trace: order is told by it, and never by clocks."""
    principal: str
    tool: str
    arguments: Mapping[str, Any] | None
    """`None` where the model wrote no JSON object."""
    ok: bool | None
    """Whether the tool took it; `None` while no answer is recorded."""
    answer: str
    """What the tool said."""
    definition: ToolDefinition | None = None
    """`None` where the request's tools were not recorded."""
    words: tuple[str, ...] = ()
    """All that the customer had said up to then."""
    model_call: str | None = None
    """The id of the model call that asked for it."""

    @property
    def written(self) -> str:
        """Its arguments as compared: equal calls have equal texts."""
        return json.dumps(self.arguments, sort_keys=True, default=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEvidence:
    """A trace, as far as something can be learned from it."""

    trace: Trace
    principal: str
    """A digest of whom it was made for; of the session, else of the trace, where nobody says."""
    principal_known: bool
    words: tuple[str, ...]
    """All that the customer said."""
    calls: tuple[CallEvidence, ...]
    tools: Mapping[str, ToolDefinition]
    """As the last request declared them."""

    @property
    def effects(self) -> frozenset[tuple[str, str]]:
        """The set of accepted calls: what attempts at the same request are compared by, as their order differs."""
        return frozenset((call.tool, call.written) for call in self.calls if call.ok)


def evidence_of(trace: Trace) -> AttemptEvidence:
    """The evidence in a trace; raises nothing, whatever it holds."""
    principal, known = principal_of(trace)
    words: list[str] = []
    calls: list[CallEvidence] = []
    tools: Mapping[str, ToolDefinition] = tool_definitions(trace.raw)
    by_call: dict[str, Mapping[str, ToolDefinition]] = {}
    if trace.input is not None and not any(message.role == "user" for call in trace.calls for message in call.messages):
        words.append(trace.input)
    for place, step in enumerate(trace.steps):
        if isinstance(step, ModelCall):
            words += [message.text for message in step.messages if message.role == "user"]
            tools = tool_definitions(step.raw) or tools
            by_call[step.id] = tools
        elif isinstance(step, ToolCall):
            declared = by_call.get(step.parent or "", tools)
            calls.append(
                CallEvidence(
                    id=step.id,
                    trace_id=trace.id,
                    place=place,
                    principal=principal,
                    tool=step.tool,
                    arguments=_arguments(step.arguments),
                    ok=None if step.raw.get("answered") is False else step.ok,
                    answer=step.result or step.error or "",
                    definition=declared.get(step.tool),
                    words=tuple(words),
                    model_call=step.parent,
                )
            )
    return AttemptEvidence(
        trace=trace, principal=principal, principal_known=known, words=tuple(words), calls=tuple(calls), tools=tools
    )


def _arguments(text: str) -> Mapping[str, Any] | None:
    found = parsed_if_json(text) if text.strip() else {}
    return found if isinstance(found, dict) else None


def principal_of(trace: Trace) -> tuple[str, bool]:
    """A digest of whom an attempt was made for, and whether anybody said so.

    Where nobody does, a session counts as one principal, and a trace without a session as one: whoever can open sessions at
    will can then have as many votes as he likes, so what is learned so is never let loose without a person.
    """
    for place in (*(call.raw for call in trace.calls), trace.raw):
        request = mapping(place.get("request"))
        told = place.get("principal") or next((request[name] for name in _PRINCIPALS if request.get(name)), None)
        told = told or mapping(request.get("metadata")).get("user_id") or place.get("user.id") or place.get("enduser.id")
        if isinstance(told, str | int) and str(told).strip():
            return _digest("principal", str(told)), True
    return _digest("session", trace.session) if trace.session else _digest("trace", trace.id), False


def _digest(kind: str, of: str) -> str:
    return blake2b(of.encode(errors="surrogatepass"), digest_size=8, person=kind.encode()).hexdigest()


def tool_definitions(raw: Mapping[str, Any]) -> Mapping[str, ToolDefinition]:
    """The tools that a request declared, by name; empty where their definitions were not recorded."""
    found = (_definition(each) for each in recorded_tools(raw))
    return {each.name: each for each in found if each is not None}


def _definition(told: Mapping[str, Any]) -> ToolDefinition | None:
    inner = mapping(told.get("function")) or told
    schema = next((inner[name] for name in ("parameters", "input_schema", "inputSchema") if name in inner), None)
    name = string(inner.get("name"))
    if not name or schema is None:
        return None
    return ToolDefinition(name=name, description=string(inner.get("description")), parameters=mapping(schema))


# What a tool said, with what is of one case alone taken out: errors that say the same are one template.

_TEXT = re.compile(r'"[^"\n]*"|`[^`\n]*`|(?<!\w)\'[^\'\n]*\'(?!\w)')
_OF_ONE_CASE = re.compile(r"https?://\S+|[\w.+-]+@[\w-]+\.[\w.-]+|#?\b[\w-]*\d[\w.,:/-]*")
_FAULT = re.compile(r"^([A-Za-z_][\w.\[\]-]*): \S")
_PREFIX = re.compile(r"^\s*(?:error|exception)\s*:\s*", re.IGNORECASE)
_LONGEST = 300


def faults_of(call: CallEvidence) -> Iterator[tuple[str, str]]:
    """What a tool's refusal says: its text, and the argument that it names; one pair for each line where every line names a
    field, as "date: expected …" does, else one for the whole."""
    text = _PREFIX.sub("", _message(call.answer)).strip()
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and all(_FAULT.match(line) for line in lines):
        yield from ((line, line.partition(":")[0]) for line in lines)
    elif text:
        yield text, _named(text, call)


def template(text: str) -> str:
    """A text without what is of one case alone: quotations, ids, numbers, addresses."""
    shown = _OF_ONE_CASE.sub("<id>", _TEXT.sub("<text>", text))
    return " ".join(shown.split())[:_LONGEST]


def _message(answer: str) -> str:
    """The words in an answer that may be JSON."""
    told = mapping(parsed_if_json(answer)) if answer.lstrip()[:1] == "{" else {}
    for name in ("error", "message", "detail"):
        found = told.get(name)
        found = found.get("message") if isinstance(found, Mapping) else found
        if isinstance(found, str) and found.strip():
            return found
    return answer


def _named(text: str, call: CallEvidence) -> str:
    """The one argument that a text names, where it is one."""
    known: Sequence[str] = [*(call.arguments or ()), *(call.definition.arguments if call.definition else ())]
    words = set(re.findall(r"\w+", text))
    found = [name for name in dict.fromkeys(known) if name in words]
    return found[0] if len(found) == 1 else ""
