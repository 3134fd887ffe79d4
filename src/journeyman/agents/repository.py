"""The agent that works in a repository: it reads, searches, edits and runs, until it says that it is done.

Its tools are offered as functions to a model that takes them, and else are spoken as fenced blocks in replies, which every
model can write. Either way they are the same, and tools of MCP servers stand beside them. The files are kept here and not in a
sandbox that stays open: each command gets a fresh one with all of them, and what it changed comes back. So nothing outlives a
command, each has limits of its own, and what an attempt left is data at any moment.
"""

import json
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, cast

from journeyman.agents import answer
from journeyman.agents.answer import BETWEEN, CITE, Choose, call_of, cited, nothing, strategies
from journeyman.agents.coder import safe
from journeyman.agents.mcp import McpServer, McpServerError, McpSession, unused
from journeyman.agents.workshop import (
    Refused,
    RepositoryWorkshop,
    WorkLimits,
    edited,
    read,
    replaced,
    run_in,
    search,
    shortened,
    submitted,
)
from journeyman.core.candidate import BASE
from journeyman.core.messages import ToolUse
from journeyman.core.task import Task
from journeyman.core.trace import Step, ToolCall
from journeyman.io.markdown import Fence, fences
from journeyman.models.base import Model, ModelRequest, PromptMessage, Reply, ToolOffer, ToolsRefused, takes_tools
from journeyman.rewards.unit_tests import ended_by
from journeyman.tasks.repository import RepositoryTask
from journeyman.tasks.repository.tree import Tree

TOOLS = ("read", "search", "edit", "create", "delete", "run", "done")

# How it is put to a model.

SYSTEM = """\
You work in a repository of Python code. {tools}

`run` is a sandbox without network, {seconds:g} seconds of computing at most; nothing but files stays of it. `done` ends your \
work: what the files are then is what counts. You may change {allowed}. Tests that you cannot see decide. You have {rounds} \
replies."""
BY_CALLS = "Use its tools by calling them; several calls in one reply are fine, and are carried out in order."
BY_BLOCKS = """\
Use its tools by fenced blocks in your reply; each is carried out, in order, and you are told what came of it. Several in one \
reply are fine.

```read path=pkg/module.py lines=1-80
```
shows lines; of a folder (path=.) its files.

```search path=pkg
a text
```
finds lines and paths that hold a text (no pattern).

```edit path=pkg/module.py
<<<<<<< SEARCH
old lines, letter for letter, that occur once
=======
new lines
>>>>>>> REPLACE
```
```create path=pkg/new.py
the whole file
```
```delete path=pkg/old.py
```
```run
python -m pytest -q tests/test_module.py
```
runs a shell command in the repository.

```done
what you did
```
ends your work.{more}"""
_MORE = "\n\n```{name}\n(arguments as JSON, of this schema: {schema})\n```\n{description}"
NO_CALL = "You called no tool. Call one of {tools}; call done when you are done."
NO_BLOCK = "There is no block of a tool in that reply. Use one of {tools}, as in ```read path=.; say ```done when you are done."


@dataclass(slots=True, kw_only=True)
class _Work:
    """One attempt on its way."""

    task: RepositoryTask
    start: Tree
    files: dict[str, bytes]
    more: Mapping[str, tuple[McpSession, ToolOffer]]
    """Tools of MCP servers, by the names that the model knows them by."""
    by_calls: bool
    """Whether tools are called, and not written as blocks."""
    messages: tuple[PromptMessage, ...] = ()
    new: tuple[PromptMessage, ...] = ()
    """Of these, what was not sent yet."""
    without: int = 0
    """Replies that called no tool; -1 once one did."""
    said: str | None = None
    """The last word; `None` while it goes on."""

    @property
    def tools(self) -> str:
        return ", ".join((*TOOLS, *self.more))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """A tool that a reply asks for, with what it needs, or why that cannot be had."""

    tool: str
    arguments: Mapping[str, Any]
    fault: str = ""
    call_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryAgent:
    """Asks a model what to do next, and does it. Implements `attempt.Agent`."""

    model: Model
    workshop: RepositoryWorkshop
    choose: Choose = nothing
    """Which bullets stand in the prompt of a task."""
    candidate_id: str = BASE
    temperature: float | None = None
    seed: int | None = None
    limits: WorkLimits = field(default_factory=WorkLimits)
    calls: bool = True
    """Whether a model that takes tools is offered them. Otherwise, and to others, they are told as blocks."""
    mcp: tuple[McpServer, ...] = ()
    """Servers whose tools it has, too."""

    async def run(self, task: Task) -> AsyncIterator[Step]:
        own = self.workshop.of(task)
        start = own.start(self.workshop.tree(own))
        async with AsyncExitStack() as stack:
            sessions = [await stack.enter_async_context(McpSession(server)) for server in self.mcp]
            work = _Work(
                task=own,
                start=start,
                files=dict(start.files),
                more=_named(sessions),
                by_calls=self.calls and takes_tools(self.model),
            )
            async for step in self._rounds(task, work):
                yield step
        yield submitted(own, start, work.files, work.said or "")

    async def check(self) -> None:
        """See that its servers can be started, and end them.

        Raises:
            InputError: One cannot.
        """
        for server in self.mcp:
            async with McpSession(server):
                pass

    async def _rounds(self, task: Task, work: _Work) -> AsyncIterator[Step]:
        bullets = tuple(self.choose(task))
        work.messages = work.new = self._begin(task, work, bullets)
        spent = 0
        for number in range(1, self.limits.rounds + 1):
            try:
                request, reply = await self._asked(task, work)
            except ToolsRefused:
                if number > 1:
                    raise
                work.by_calls = False
                work.messages = work.new = self._begin(task, work, bullets)
                request, reply = await self._asked(task, work)
            # What was said before is on the trace already: whole prompts would make it grow with their square.
            call = call_of(replace(request, messages=work.new), reply, shown=bullets if number == 1 else ())
            wishes = [] if self.model.dialect == "terse" else self._wishes(reply, work)
            # Bullets stand in the first prompt, and are named where the work is done.
            named = cited(_words(reply, wishes), bullets)
            yield replace(call, id=f"call {number}", continues=f"call {number - 1}" if number > 1 else None, cited=named)
            if self.model.dialect == "terse":
                # It knows two formats, and neither has tools.
                return
            found: list[tuple[_Wish, ToolCall]] = []
            for wish in wishes:
                if work.said is None:
                    found.append((wish, await self._carried_out(wish, work)))
                    yield replace(found[-1][1], parent=f"call {number}")
            counted = (reply.input_tokens, reply.output_tokens)
            spent += sum(each for each in counted if each is not None) if None not in counted else len(request.text) // 4
            if work.said is not None or spent > self.limits.tokens:
                return
            self._tell(reply, found, work, self.limits.rounds - number)

    async def _asked(self, task: Task, work: _Work) -> tuple[ModelRequest, Reply]:
        more = tuple(replace(offer, name=name) for name, (_, offer) in work.more.items())
        request = ModelRequest(
            messages=work.messages,
            temperature=self.temperature,
            seed=self.seed,
            tools=(*OFFERS, *more) if work.by_calls else (),
            task_id=task.id,
        )
        return request, await self.model.complete(request)

    def _begin(self, task: Task, work: _Work, bullets: Sequence[Any]) -> tuple[PromptMessage, ...]:
        if self.model.dialect == "terse":
            return answer.answer(task, bullets, self.model.dialect)
        system = self._system(work)
        if bullets:
            system += BETWEEN.join(["", CITE, strategies(bullets)])
        return (PromptMessage("system", system), PromptMessage("user", task.question))

    def _system(self, work: _Work) -> str:
        limits = self.limits
        return SYSTEM.format(
            tools=BY_CALLS if work.by_calls else _by_blocks(work.more),
            seconds=limits.run_seconds,
            allowed=", ".join(work.task.may_change),
            rounds=limits.rounds,
        )

    def _wishes(self, reply: Reply, work: _Work) -> list[_Wish]:
        """The tools that a reply asks for. A model that is offered them and writes blocks all the same is taken at its word."""
        if reply.calls:
            work.without = -1
            return [_called(call, work) for call in reply.calls]
        if work.by_calls and work.without < 0:
            return []
        work.without += 1
        written = [each for block in fences(reply.text) if (each := _written_wish(block, work)) is not None]
        if work.by_calls and (written or work.without > 1):
            # Its server seems to pass no tools on: from here on it is told how to write them.
            before = self._system(work)
            work.by_calls = False
            first = work.messages[0]
            told = replace(first, content=first.content.replace(before, self._system(work)))
            work.messages = (told, *work.messages[1:])
        return written

    def _tell(self, reply: Reply, found: Sequence[tuple[_Wish, ToolCall]], work: _Work, left: int) -> None:
        """Go on with the conversation: what was said, and what came of it."""
        last = f"\n\n({left} replies are left)" if left <= 5 else ""
        if reply.calls:
            results = [PromptMessage("tool", step.result or "(nothing)", call_id=wish.call_id) for wish, step in found]
            work.new = (*results[:-1], replace(results[-1], content=f"{results[-1].content}{last}"))
            said = PromptMessage("assistant", reply.text, calls=reply.calls)
        else:
            told = BETWEEN.join(f"{step.tool}: {step.result}" for _, step in found)
            told = told or (NO_CALL if work.by_calls else NO_BLOCK).format(tools=work.tools)
            work.new = (PromptMessage("user", f"{told}{last}"),)
            said = PromptMessage("assistant", reply.text or "(nothing)")
        work.messages = (*work.messages, said, *work.new)

    async def _carried_out(self, wish: _Wish, work: _Work) -> ToolCall:
        try:
            if wish.fault:
                raise Refused(wish.fault)
            result, ok = await self._use(wish.tool, wish.arguments, work)
        except (Refused, McpServerError) as refusal:
            result, ok = str(refusal), False
        arguments = json.dumps(wish.arguments, ensure_ascii=False)
        return ToolCall(tool=wish.tool, arguments=arguments, result=shortened(result), ok=ok)

    async def _use(self, tool: str, told: Mapping[str, Any], work: _Work) -> tuple[str, bool]:
        """What came of it, and whether it went well."""
        path, body = told.get("path", "."), told.get("text", "")
        match tool:
            case "read":
                return read(work.files, path, told.get("lines", "")), True
            case "search":
                return search(work.files, body, path), True
            case "done":
                work.said = body.strip()
                return "", True
            case "run":
                outcome, work.files = await run_in(self.workshop, work.task, work.files, body, self.limits.run_seconds)
                return f"{ended_by(outcome)}\n{outcome.stdout}{outcome.stderr}".strip(), outcome.ok
        if tool in work.more:
            session, offer = work.more[tool]
            return await session.call(offer.name, told)
        return _written(tool, path, told, work), True


def _written(tool: str, path: str, told: Mapping[str, Any], work: _Work) -> str:
    """Change one file."""
    if not work.task.allows(path):
        raise Refused(f"{path} may not be changed; {', '.join(work.task.may_change)} may, and tests may not")
    if tool != "create" and path not in work.files:
        raise Refused(f"there is no {path}")
    if tool == "delete":
        del work.files[path]
        return f"{path} is gone"
    if tool == "create":
        text = told.get("text", "")
    else:
        before = work.files[path].decode(errors="replace")
        text = replaced(before, told["old"], told["new"]) if "old" in told else edited(before, told.get("text", ""))
    work.files[path] = text.encode(errors="replace")
    return f"{path} has {len(text.splitlines())} lines now"


# What a reply asks for: as calls, or as blocks.


def _offer(name: str, description: str, optional: Sequence[str] = (), **told: str) -> ToolOffer:
    properties = {key: {"type": "string", "description": said} for key, said in told.items()}
    required = [key for key in told if key not in optional]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return ToolOffer(name=name, description=description, parameters=schema)


_FILE = "From the repository's root, such as pkg/module.py"
OFFERS = (
    _offer("read", "Show lines of a file, with their numbers; of a folder its files.", ("lines",), path=_FILE, lines="As 1-80"),
    _offer("search", "Find lines and paths that hold a text (no pattern).", ("path",), text="The text", path="A folder"),
    _offer(
        "edit",
        "Replace lines of a file.",
        path=_FILE,
        old="Old lines, letter for letter as `read` shows them behind their numbers, that occur once",
        new="New lines",
    ),
    _offer("create", "Write a whole file.", path=_FILE, text="All of it"),
    _offer("delete", "Remove a file.", path=_FILE),
    _offer(
        "run", "Run a shell command in the repository.", text="The command, such as python -m pytest -q tests/test_module.py"
    ),
    _offer("done", "End your work.", text="What you did"),
)
"""The tools, as they are offered to a model that takes them."""
_NEEDED = {offer.name: cast(Sequence[str], offer.parameters["required"]) for offer in OFFERS}
_TAKEN = {offer.name: frozenset(cast(Mapping[str, object], offer.parameters["properties"])) for offer in OFFERS}


def _named(sessions: Sequence[McpSession]) -> dict[str, tuple[McpSession, ToolOffer]]:
    """The tools of servers by the names that a model is told: none hides another one."""
    found: dict[str, tuple[McpSession, ToolOffer]] = {}
    for session in sessions:
        for offer in session.offers:
            found[unused(offer.name, (*TOOLS, *found))] = session, offer
    return found


def _by_blocks(more: Mapping[str, tuple[McpSession, ToolOffer]]) -> str:
    others = [
        _MORE.format(name=name, schema=json.dumps(offer.parameters), description=offer.description)
        for name, (_, offer) in more.items()
    ]
    return BY_BLOCKS.replace("{more}", "".join(others))


def _words(reply: Reply, wishes: Sequence[_Wish]) -> str:
    """What a model says of its work, also where it says so by calling `done`."""
    return "\n".join([reply.text, *(str(wish.arguments.get("text", "")) for wish in wishes if wish.tool == "done")])


def _called(call: ToolUse, work: _Work) -> _Wish:
    """A call with its arguments, as far as they can be read."""
    tool, name = call.tool or "(no name)", call.id
    try:
        told = json.loads(call.arguments or "{}")
    except ValueError:
        told = None
    if not isinstance(told, dict):
        said = {"said": call.arguments}
        return _Wish(
            tool=tool, arguments=said, call_id=name, fault="the arguments are no JSON object; the reply may have been cut"
        )
    if tool in work.more:
        return _Wish(tool=tool, arguments=told, call_id=name)
    if tool not in TOOLS:
        return _Wish(tool=tool, arguments=told, call_id=name, fault=f"there is no tool {tool}; there are {work.tools}")
    found = {key: value for key, value in told.items() if key in _TAKEN[tool] and isinstance(value, str)}
    missing = [key for key in _NEEDED[tool] if key not in found]
    fault = f"{tool} needs {' and '.join(missing)}, as text" if missing else ""
    if not fault and found.get("path") not in (None, "", "."):
        found["path"], fault = safe(found["path"].removeprefix("./"))
    return _Wish(tool=tool, arguments=told if fault else found, call_id=name, fault=fault)


def _written_wish(block: Fence, work: _Work) -> _Wish | None:
    """A block that is a tool; `None` for any other."""
    tool, _, told = block.info.strip().partition(" ")
    if tool not in TOOLS and tool not in work.more:
        return None
    try:
        if tool in TOOLS:
            return _Wish(tool=tool, arguments=_arguments(tool, told, block))
        found = json.loads(block.text or "{}")
        if not isinstance(found, dict):
            raise Refused(f"the block of {tool} holds a JSON object")
        return _Wish(tool=tool, arguments=found)
    except (Refused, ValueError) as refusal:
        fault = str(refusal) if isinstance(refusal, Refused) else f"the block of {tool} is no JSON: {refusal}"
        return _Wish(tool=tool, arguments={"said": block.info}, fault=fault)


def _arguments(tool: str, told: str, block: Fence) -> dict[str, str]:
    """What stands behind the name of a tool, and in its block.

    Raises:
        Refused: It lacks what the tool needs.
    """
    if not block.closed:
        raise Refused("the block has no end, so the reply was cut off; write less at once")
    try:
        words = shlex.split(told)
    except ValueError:
        words = told.split()
    found = dict(word.split("=", 1) for word in words if "=" in word)
    bare = [word for word in words if "=" not in word]
    named = found.get("path") or (bare[0] if bare else "")
    if named not in ("", "."):
        found["path"], fault = safe(named.removeprefix("./"))
        if fault:
            raise Refused(fault)
    elif tool in ("edit", "create", "delete"):
        raise Refused(f"{tool} needs a path, as in ```{tool} path=pkg/module.py")
    if tool != "read" and tool != "delete":
        found["text"] = block.text
    return {key: found[key] for key in ("path", "lines", "text") if key in found}
