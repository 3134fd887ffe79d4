"""Rewards that run nothing: they read what an attempt said and did, and what its tools answered."""

import json
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal, Self

from journeyman.core.reward import Source
from journeyman.core.trace import ModelCall, ToolCall, Trace, total
from journeyman.rewards.base import UNREACHABLE, RewardResult, binary, short, soft, unknown, version
from journeyman.rewards.blocks import blocks, last_blocks, parsed
from journeyman.tracing.base import failed

# Is it well-formed? Read by a parser, never run.

_SECONDS = 10.0
_MODULE = re.compile(r"^\s*(?:import\b(?!\s*\()|export\b)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntaxValidationReward:
    """1 when every code block of the last reply that holds any can be parsed; binary.

    Python by `ast`, JSON by `json`, shell by `bash -n`, JavaScript by `node --check`. Unknown without blocks in these
    languages, and where the program that parses them is not installed.
    """

    name: str = "syntax_validation"
    weight: float = 1.0

    @property
    def version(self) -> str:
        return version(1)

    def compute(self, trace: Trace) -> RewardResult:
        found = last_blocks(trace, PARSERS)
        if not found:
            return unknown("no code block in a language that can be parsed")
        missing = {}
        for block in found:
            try:
                fault = PARSERS[block.language](block.code)
            except _CannotTell as error:
                missing[block.language] = str(error)
                continue
            if fault:
                return binary(
                    False, f"the {block.language} code is not well-formed: {short(fault, 200)}", language=block.language
                )
        if missing:
            return unknown("; ".join(missing.values()), **{UNREACHABLE: True})
        languages = ", ".join(sorted({block.language for block in found}))
        return binary(True, f"the code is well-formed ({languages})", blocks=len(found))


class _CannotTell(Exception):
    """Why nobody could look."""


def python_fault(code: str) -> str:
    """What is wrong with it as Python, or nothing."""
    try:
        parsed(code)
    except ValueError as error:
        return str(error)
    return ""


def json_fault(text: str) -> str:
    """What is wrong with it as JSON, or nothing."""
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        return str(error)
    return ""


def shell_fault(code: str) -> str:
    """What is wrong with it as a program for bash, or nothing."""
    return _run_parser("bash", ["--norc", "--noprofile", "-n"], code, given=True)


def javascript_fault(code: str) -> str:
    """What is wrong with it as JavaScript, or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        # Only a module may import and export.
        file = Path(folder) / ("code.mjs" if _MODULE.search(code) else "code.cjs")
        file.write_text(code, encoding="utf-8", errors="replace")
        return _run_parser("node", ["--check", str(file)], "", given=False)


PARSERS: Mapping[str, Callable[[str], str]] = {
    "python": python_fault,
    "json": json_fault,
    "shell": shell_fault,
    "javascript": javascript_fault,
}


def _run_parser(program: str, arguments: list[str], code: str, *, given: bool) -> str:
    path = shutil.which(program)
    if path is None:
        raise _CannotTell(f"{program} is not installed")
    try:
        # With an empty environment: BASH_ENV and NODE_OPTIONS could have other code run.
        run = subprocess.run(
            [path, *arguments],
            input=code.encode(errors="replace") if given else b"",
            env={"LC_ALL": "C.UTF-8"},
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _CannotTell(f"{program} could not be asked: {error}") from None
    if run.returncode == 0:
        return ""
    said = [line for line in run.stderr.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in said if "Error" in line or "rror:" in line]
    return (errors or said or [f"{program} refused it"])[0]


# Has the answer the form that was asked for?

_TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*)(?:\s[^<>]*?)?(/?)>")
_FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n.*?(?:^[ \t]*\1|\Z)", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`[^`\n]*`")
_MARKDOWN = re.compile(r"^ {0,3}(?:#{1,6}\s|>\s)|^[ \t]*(?:```|~~~)|\*\*[^*\n]+\*\*|^[ \t]*\|.*\|[ \t]*$", re.MULTILINE)

Form = Literal["no_xml", "plain", "json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatComplianceReward:
    """1 when the last reply has the form that was asked for; binary. Says nothing of what stands in it.

    Unknown when there is no reply, and when the last one is empty, as beside a tool call.
    """

    name: str = "format_compliance"
    weight: float = 1.0
    form: Form = "no_xml"
    """no_xml: no tag of XML outside of code; plain: neither that nor Markdown; json: one JSON value and nothing else, in a
    fenced block or bare."""
    pattern: str = ""
    """A regular expression that must match somewhere as well; `(?s)\\A…\\Z` for the whole reply."""

    @property
    def version(self) -> str:
        return version(1, self.form, self.pattern)

    def compute(self, trace: Trace) -> RewardResult:
        reply = trace.reply
        if not reply.strip():
            return unknown("there is no last reply")
        fault = _FAULTS[self.form](reply)
        if not fault and self.pattern and not re.search(self.pattern, reply):
            fault = f"the reply does not match {self.pattern!r}"
        return binary(not fault, fault or "the reply has the form that was asked for")


def xml_fault(text: str) -> str:
    """The first tag outside of code that is closed or closes, or nothing. `List<int>` is no tag."""
    if "<" not in text:
        return ""
    outside = _INLINE.sub("", _FENCED.sub("", text))
    opened = set()
    for tag in _TAG.finditer(outside):
        closing, name, empty = tag.groups()
        if empty or (closing and name in opened):
            return f"the reply holds the XML tag <{name}>"
        if not closing:
            opened.add(name)
    return ""


def plain_fault(text: str) -> str:
    """The first mark-up in the text, or nothing."""
    found = _MARKDOWN.search(text)
    return xml_fault(text) or (f"the reply holds Markdown: {short(found[0], 60)}" if found else "")


def bare_json_fault(text: str) -> str:
    """Why the text is not one JSON value, or nothing."""
    fenced = blocks(text)
    fault = json_fault(fenced[0].code if len(fenced) == 1 and not _FENCED.sub("", text).strip() else text)
    return f"the reply is not JSON: {fault}" if fault else ""


_FAULTS = {"no_xml": xml_fault, "plain": plain_fault, "json": bare_json_fault}


# Did the tools do what they were called for?


def went_well(call: ToolCall) -> bool:
    """Whether the tool did what it was called for, by its own answer: recorders often mark every call as well done."""
    return call.ok and not failed(call.result)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSuccessReward:
    """1 when no tool call stays failed; binary.

    A failed call whose tool was called again later and went well is mended: trying again is what an agent should do. Only the
    tools' own answers count, not what the agent says about them. Unknown without a tool call.
    """

    name: str = "tool_success"
    weight: float = 2.0
    mending: bool = True
    """Whether a later success mends a failure. Without it every call must go well."""

    @property
    def version(self) -> str:
        return version(1, self.mending)

    def compute(self, trace: Trace) -> RewardResult:
        calls = [step for step in trace.steps if isinstance(step, ToolCall)]
        if not calls:
            return unknown("no tool was called")
        failures, open_failures = 0, dict[str, ToolCall]()
        for call in calls:
            if not went_well(call):
                failures += 1
                open_failures[call.tool if self.mending else str(failures)] = call
            elif self.mending:
                open_failures.pop(call.tool, None)
        counts = {"calls": len(calls), "failed": failures, "unmended": len(open_failures)}
        if open_failures:
            worst = next(iter(open_failures.values()))
            return binary(False, f"{worst.tool} failed: {short(worst.result, 160) or 'no result'}", **counts)
        mended = f", {failures} after another try" if failures else ""
        return binary(True, f"all of {len(calls)} tool calls went well{mended}", **counts)


# Was the task brought to its end?

_NOT_THE_AGENT = frozenset(
    {"ModelError", "ModelBusy", "ModelRefused", "SandboxError", "StoreError", "TaskError", "MissingExtra", "ConnectionError"}
)
"""Errors that say nothing about the attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What must have been done at the end of a task. Written by the task's author."""

    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Tool calls, by name and arguments, that must have been made and gone well."""
    only: frozenset[str] = frozenset()
    """Tools that may be called for nothing else: those that change the world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCompletionReward:
    """1 when the attempt came to its end by itself, and did what the task's goal asks for where one is known; binary.

    Where a goal is known, it is reached or not. Else the attempt came to its end when nothing broke it off (a limit of steps,
    an error of its own, a reply cut at its length), its last tool call went well, and a reply or a tool call stands at the
    end. That an agent says it is done counts for nothing, and neither does a reward that somebody recorded. Unknown when
    something else than the agent broke it off, such as a model server that was down, when nothing was done, and when there is
    no more to see than a reply, of which no goal is known.
    """

    name: str = "task_completion"
    weight: float = 1.5
    goals: Mapping[str, Goal] = field(default_factory=dict, repr=False)
    """By task id. Tasks without one are judged by how they ended."""

    @property
    def version(self) -> str:
        return version(2, self.goals) if self.goals else version(2)

    def compute(self, trace: Trace) -> RewardResult:
        if trace.error is not None:
            elsewhere = trace.error.partition(":")[0] in _NOT_THE_AGENT
            evidence = f"it broke off: {short(trace.error, 160)}"
            return unknown(evidence) if elsewhere else binary(False, evidence)
        steps = [step for step in trace.steps if isinstance(step, ModelCall | ToolCall)]
        if not steps:
            return unknown("nothing was done")
        goal = self.goals.get(trace.task_id)
        if goal is not None:
            fault = _missed(steps, goal)
            return binary(not fault, fault or "it did what was asked for", goal=True, source=Source.CHECK)
        fault = _unfinished(steps)
        if not fault and not any(isinstance(step, ToolCall) for step in steps):
            return unknown("it ended by itself, with a reply; no goal is known that the reply could be held against")
        return binary(not fault, fault or "it ended by itself", goal=False)


def _unfinished(steps: list[ModelCall | ToolCall]) -> str:
    """Why the end is none, or nothing."""
    last = steps[-1]
    if isinstance(last, ModelCall):
        if last.finish == "length":
            return "the last reply was cut at its length"
        if not last.reply.strip():
            return "the last reply is empty"
    calls = [step for step in steps if isinstance(step, ToolCall)]
    if calls and not went_well(calls[-1]):
        return f"the last tool call, {calls[-1].tool}, failed: {short(calls[-1].result, 120) or 'no result'}"
    return ""


def _missed(steps: list[ModelCall | ToolCall], goal: Goal) -> str:
    """What the goal asks for and was not done, or what was done that it forbids; nothing when all is right."""
    made = Counter(_made(step) for step in steps if isinstance(step, ToolCall) and went_well(step))
    asked = Counter(_key(tool, arguments) for tool, arguments in goal.calls)
    for tool, arguments in goal.calls:
        if not made[_key(tool, arguments)]:
            return f"{tool} was not called with {short(json.dumps(arguments, ensure_ascii=False), 160)}"
    for call, times in made.items():
        if call[0] in goal.only and times > asked[call]:
            return f"{call[0]} was called with {short(call[1], 160)}, which nobody asked for"
    return ""


def _made(call: ToolCall) -> tuple[str, str]:
    try:
        return _key(call.tool, json.loads(call.arguments))
    except (ValueError, RecursionError):
        return call.tool, call.arguments


def _key(tool: str, arguments: object) -> tuple[str, str]:
    """The same for the same call, whatever the order of its arguments, and 1.0 being 1."""
    return tool, json.dumps(_plain(arguments), sort_keys=True, ensure_ascii=False)


def _plain(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _plain(part) for key, part in value.items()}
        case list():
            return [_plain(part) for part in value]
    return value


# What did it take?


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencyReward:
    """The share of a budget that was needed: for tokens and for calls min(1, budget / used), and the mean of the two; soft.

    To stay below the budget earns nothing more: an agent is not paid for doing less than the task needs. What was not counted
    is left out. Unknown without a budget, and for an attempt that did nothing. In a group the budget that is not set is the
    group's median.
    """

    name: str = "efficiency"
    weight: float = 0.5
    tokens: float | None = None
    """In and out, of the whole attempt."""
    calls: float | None = None
    """Of models and tools."""

    @property
    def version(self) -> str:
        return version(1, self.tokens, self.calls)

    def for_group(self, traces: Sequence[Trace]) -> Self:
        """The same reward with what the group's attempts needed, in the median, for the budgets that are not set."""
        tokens = [used for used in map(_tokens, traces) if used]
        calls = [used for used in map(_calls, traces) if used]
        return replace(
            self,
            tokens=median(tokens) if self.tokens is None and tokens else self.tokens,
            calls=median(calls) if self.calls is None and calls else self.calls,
        )

    def compute(self, trace: Trace) -> RewardResult:
        used = {"calls": (_calls(trace), self.calls), "tokens": (_tokens(trace), self.tokens)}
        known = {what: (spent, budget) for what, (spent, budget) in used.items() if spent and budget is not None}
        if not known:
            return unknown("no budget was given, or nothing was counted", is_binary=False)
        parts = [min(1.0, budget / spent) for spent, budget in known.values()]
        evidence = ", ".join(f"{spent} {what} of a budget of {budget:g}" for what, (spent, budget) in known.items())
        return soft(sum(parts) / len(parts), evidence)


def _tokens(trace: Trace) -> int | None:
    return total((trace.input_tokens, trace.output_tokens))


def _calls(trace: Trace) -> int:
    return sum(isinstance(step, ModelCall | ToolCall) for step in trace.steps)
