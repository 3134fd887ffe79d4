"""What a recorded attempt can teach: its tool calls, what the tools made of them, and on whose behalf it was made.

Read from a trace alone, whoever recorded it: the gateway in any dialect, spans, the hook, imported files. Nothing is asked of
a model, and no tool is run.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from journeyman.core.trace import AgentCall, ModelCall, Step, ToolCall, Trace
from journeyman.tracing.base import failed
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
    shown: frozenset[str] = frozenset()
    """Ids of the bullets that stood in that call's prompt."""

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

    def accepted_after(self, call: CallEvidence) -> CallEvidence | None:
        """The next call of the same tool that was taken: where it is the same call, the refusal was a flake."""
        later = (each for each in self.calls if each.place > call.place and each.tool == call.tool and each.ok)
        return next(later, None)

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
    by_call: dict[str, tuple[Mapping[str, ToolDefinition], tuple[str, ...]]] = {}
    if trace.input is not None and not any(message.role == "user" for call in trace.calls for message in call.messages):
        words.append(trace.input)
    for place, step in enumerate(trace.steps):
        if isinstance(step, ModelCall):
            words += [message.text for message in step.messages if message.role == "user"]
            tools = tool_definitions(step.raw) or tools
            by_call[step.id] = tools, step.shown
        elif isinstance(step, ToolCall):
            declared, shown = by_call.get(step.parent or "", (tools, ()))
            calls.append(
                CallEvidence(
                    id=step.id,
                    trace_id=trace.id,
                    place=place,
                    principal=principal,
                    tool=step.tool,
                    arguments=_arguments(step.arguments),
                    # Files of others hold what a tool said, and rarely whether that was a refusal.
                    ok=None if step.raw.get("answered") is False else step.ok and not _refuses(step.result),
                    answer=step.result or step.error or "",
                    definition=declared.get(step.tool),
                    words=tuple(words),
                    model_call=step.parent,
                    shown=frozenset(shown),
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
    if told := _principal_told(trace):
        return principal_named(told), True
    return _digest("session", trace.session) if trace.session else _digest("trace", trace.id), False


def _principal_told(trace: Trace) -> str:
    """On whose behalf it was made, in the recorder's word; empty where nobody says."""
    for place in (*(call.raw for call in trace.calls), trace.raw):
        request = mapping(place.get("request"))
        told = place.get("principal") or next((request[name] for name in _PRINCIPALS if request.get(name)), None)
        told = told or mapping(request.get("metadata")).get("user_id") or place.get("user.id") or place.get("enduser.id")
        if isinstance(told, str | int) and str(told).strip():
            return str(told)
    return ""


def by_role(trace: Trace) -> tuple[Trace, ...]:
    """An episode of several agents as one attempt of each: of whoever made the trace, then of each agent that was handed work
    in it, with that agent's own steps alone.

    So a refusal counts for the agent whose call it was. What was said of the whole (label, rewards) stays with whoever made the
    trace, as nobody knows which step it is of. All have the trace's id, session and principal: an episode is one vote however
    many took part. Work of which no step was recorded is no attempt.
    """
    handed = {step.id: step for step in trace.steps if isinstance(step, AgentCall) and step.id}
    above = {step.id: step.parent for step in trace.steps if step.id}
    steps: dict[str | None, list[Step]] = {trace.agent: []}
    for step in trace.steps:
        at, seen = step.parent, set[str]()
        while at is not None and at not in handed:
            seen.add(at)
            at = above.get(at)
            at = None if at in seen else at
        steps.setdefault(trace.agent if at is None else handed[at].agent, []).append(step)
    if len(steps) == 1:
        return (trace,)
    told = _principal_told(trace)
    own = replace(trace, steps=tuple(steps.pop(trace.agent)), raw={**trace.raw, "principal": told} if told else trace.raw)
    works = {agent: [work for work in handed.values() if work.agent == agent] for agent in steps}
    nothing: dict[str, Any] = {"label": None, "labelled_by": None, "rewards": (), "output": None}
    parts = (
        replace(
            own,
            agent=agent,
            steps=tuple(steps[agent]),
            input=works[agent][0].input or None,
            error=next((work.error for work in works[agent] if work.error), None),
            **nothing,
        )
        for agent in works
    )
    return (own, *parts)


def principal_named(name: str) -> str:
    """The digest of a principal whose name is known."""
    return _digest("principal", name)


def _digest(kind: str, of: str) -> str:
    return blake2b(of.encode(errors="surrogatepass"), digest_size=8, person=kind.encode()).hexdigest()


def tool_definitions(raw: Mapping[str, Any]) -> Mapping[str, ToolDefinition]:
    """The tools that a request declared, by name; empty where their definitions were not recorded."""
    found = (tool_definition(each) for each in recorded_tools(raw))
    return {each.name: each for each in found if each is not None}


def tool_definition(told: Mapping[str, Any]) -> ToolDefinition | None:
    """A tool, in whichever dialect it is declared; `None` where that declares no arguments."""
    inner = mapping(told.get("function")) or told
    schema = next((inner[name] for name in ("parameters", "input_schema", "inputSchema") if name in inner), None)
    name = string(inner.get("name"))
    if not name or schema is None:
        return None
    return ToolDefinition(name=name, description=string(inner.get("description")), parameters=mapping(schema))


_RAISED = re.compile(r"^(?:- \w+ )?([A-Z]\w*(?:Error|Exception): .*)$", re.MULTILINE)
"""A line that tells of an exception, as a linter or an interpreter writes it."""


def _refuses(answer: str) -> bool:
    return failed(answer) or _RAISED.search(answer, 0, _MOST_READ) is not None


# What a tool said, with what is of one case alone taken out: errors that say the same are one template.

_TEXT = re.compile(r'"[^"\n]*"|`[^`\n]*`|(?<!\w)\'[^\'\n]*\'(?!\w)')
_OF_ONE_CASE = re.compile(r"https?://\S+|[\w.+-]+@[\w-]+\.[\w.-]+|#?\b[\w-]*\d[\w.,:/-]*")
_FAULT = re.compile(r"^([a-z_][\w.\[\]-]*): \S")
_MESSAGES = ("error", "message", "detail", "reason", "msg")
_PREFIX = re.compile(r"^\s*(?:error|exception)\s*:\s*", re.IGNORECASE)
_PYDANTIC = re.compile(r"\[type=\w+, input_value=.*?(?:input_type=\w+\]|$)|\s*For further information visit \S+", re.DOTALL)
_SHORTEST, _LONGEST, _MOST_READ = 4, 300, 20_000


def faults_of(call: CallEvidence) -> Iterator[tuple[str, str]]:
    """What a tool's refusal says: its text, and the argument that it names; one pair for each line where every line names a
    field, as "date: expected …" does, else one for the whole."""
    text = _PREFIX.sub("", _message(call.answer)).strip()
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and all(_FAULT.match(line) for line in lines):
        yield from ((line, line.partition(":")[0]) for line in lines)
    elif text:
        yield text, _named(text, call)


def template(text: str, arguments: Mapping[str, Any] | None = None) -> str:
    """A text without what is of one case alone: quotations, ids, numbers, addresses, and the values of the call's arguments."""
    text = _PYDANTIC.sub("", text)
    for value in sorted(_values(arguments), key=len, reverse=True):
        text = text.replace(value, "<value>")
    shown = _OF_ONE_CASE.sub("<id>", _TEXT.sub("<text>", text))
    return " ".join(shown.split())[:_LONGEST]


def _values(told: Any) -> set[str]:
    """The texts among the values of arguments that are long enough to be told from words."""
    if isinstance(told, str):
        return {told} if _SHORTEST <= len(told) <= _LONGEST else set()
    inside = told.values() if isinstance(told, Mapping) else told if isinstance(told, list) else ()
    return {text for each in inside for text in _values(each)}


def _message(answer: str) -> str:
    """The words in an answer: of one that tells of an exception the last such line, of JSON what it calls a message."""
    if raised := _RAISED.findall(answer, 0, _MOST_READ):
        return str(raised[-1])
    told = parsed_if_json(answer) if answer.lstrip()[:1] == "{" else None
    return _spoken(told) or answer


def _spoken(told: Any) -> str:
    """The first text below a key that names one; of errors by their codes, the first."""
    if not isinstance(told, Mapping):
        return ""
    texts = (told[name] for name in _MESSAGES if isinstance(told.get(name), str) and told[name].strip())
    coded = (text for text in mapping(told.get("errors")).values() if isinstance(text, str))
    return next(texts, "") or next(coded, "") or next((found for each in told.values() if (found := _spoken(each))), "")


def _named(text: str, call: CallEvidence) -> str:
    """The one argument that a text names, where it is one."""
    known: Sequence[str] = [*(call.arguments or ()), *(call.definition.arguments if call.definition else ())]
    words = set(re.findall(r"\w+", text))
    found = [name for name in dict.fromkeys(known) if name in words]
    return found[0] if len(found) == 1 else ""
