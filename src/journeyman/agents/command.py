"""Anybody's agent: a command that works in the repository, behind the same walls, with one model server and nothing else.

The sandbox has no network. What the agent asks of its model goes to a server within, from there to the host by a tool of the
sandbox, and from the host to the one upstream, with the key that the agent never sees. What passed is its trace.
"""

import base64
import json
import shlex
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.resources import files as package_files
from typing import Any
from urllib.parse import urlsplit

from journeyman.agents.replay import CallBudget
from journeyman.agents.workshop import (
    LONGEST,
    PLACE,
    RepositoryWorkshop,
    WorkLimits,
    placed,
    submitted,
    taken_back,
)
from journeyman.core.candidate import BASE
from journeyman.core.errors import InputError, ModelError, ModelRefused, SandboxError, TaskError
from journeyman.core.messages import Usage
from journeyman.core.task import Task
from journeyman.core.trace import Step, ToolCall
from journeyman.io.http_client import Broken, Connections, HttpAnswer, Unreachable
from journeyman.models import pricing
from journeyman.rewards.repository.suite import limits_for
from journeyman.rewards.unit_tests import ended_by
from journeyman.sandbox.base import MIB, Interpreter, Program
from journeyman.sandbox.fork_server_host import shown
from journeyman.tasks.repository.tree import Tree
from journeyman.tracing.wire.assembler import ConversationAssembler
from journeyman.tracing.wire.dialects import Dialect, Exchange, read_exchange

TOOL = "command"
"""The step of a trace that holds the command, and what it said."""
MODELS = "/models"
"""What an agent may ask of its server besides calls of models: which there are."""
LARGEST_BODY = 32 * MIB
MOST_OPEN = 32
"""Requests of one agent that are under way at once."""
_LONGEST_ANSWER = 4096
"""Tokens that an answer is taken to have where costs are limited and the request does not say how many."""
_CAPS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
_PROGRAM = """\
import json
from forwarder import run
with open("job.json", encoding="utf-8") as file:
    job = json.load(file)
raise SystemExit(run(tools.model, job))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentUpstream:
    """The one server that a foreign agent's calls of models go to: a gateway, or any with OpenAI's or Anthropic's API."""

    base_url: str
    key: str = field(default="", repr=False)


@dataclass(slots=True, kw_only=True)
class _Request:
    """One on its way."""

    id: str
    method: str
    path: str
    began: float
    started_at: datetime
    body: bytearray = field(default_factory=bytearray)
    answer: HttpAnswer | None = None
    pieces: AsyncIterator[bytes] | None = None
    heard: bytearray = field(default_factory=bytearray)
    first: float | None = None
    reserved: float | None = None
    over: bool = False
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)


class ModelForwarder:
    """The host's end: passes requests on, and keeps what passed. For one attempt."""

    def __init__(self, upstream: AgentUpstream, budget: CallBudget, labels: Mapping[str, str]) -> None:
        """
        Args:
            labels: What a gateway is to know of the attempt: task, agent, domain, session.
        """
        self.exchanges: list[Exchange] = []
        self.refused = ""
        """Why a call was not made, where the budget had nothing left for it."""
        self._upstream, self._budget, self._labels = upstream, budget, dict(labels)
        self._servers: dict[bool, Connections] = {}
        self._open: dict[int, _Request] = {}
        self._count = 0

    async def tool(self, told: Mapping[str, Any]) -> Any:
        """What the sandbox calls. It comes from where the agent is, and may be anything."""
        match told["op"]:
            case "begin":
                return self._begin(str(told["method"]), str(told["path"]))
            case "send":
                request = self._open[int(told["id"])]
                request.body += base64.b64decode(told["data"])
                if len(request.body) > LARGEST_BODY:
                    raise TaskError(f"a request of more than {LARGEST_BODY >> 20} MB is passed on to no model")
                return None
            case "answer":
                return await self._answered(self._open[int(told["id"])])
            case "read":
                return await self._read(self._open[int(told["id"])])
            case "end":
                await self._end(int(told["id"]), "the agent hung up")
                return None
        raise TaskError(f"there is no such operation: {told['op']!r:.40}")

    async def close(self) -> None:
        for number in list(self._open):
            await self._end(number, "the attempt was over")
        for server in self._servers.values():
            await server.close()

    def _begin(self, method: str, path: str) -> int:
        if len(self._open) >= MOST_OPEN:
            raise TaskError(f"an agent has at most {MOST_OPEN} requests under way at once")
        self._count += 1
        self._open[self._count] = _Request(
            id=f"{self._labels.get('session', 'attempt')}-{self._count}",
            method=method,
            path=urlsplit(path).path.removeprefix("/v1"),
            began=time.perf_counter(),
            started_at=datetime.now(UTC),
        )
        return self._count

    async def _answered(self, request: _Request) -> dict[str, Any]:
        dialect = _dialect(request)
        if dialect is None and (request.method, request.path) != ("GET", MODELS):
            return self._said(request, 404, "an agent may call models here, and nothing else")
        try:
            if dialect is not None:
                request.reserved = await self._budget.taken(self._price(request))
            asked = self._server(dialect).asked(request.method, request.path, bytes(request.body) or None)
            request.answer = await request.closing.enter_async_context(asked)
        except ModelRefused as refused:
            self.refused = str(refused)
            return self._said(request, 402, self.refused)
        except (Unreachable, Broken, OSError) as error:
            return self._said(request, 502, f"the model's server did not answer ({error})")
        request.pieces = request.answer.pieces()
        kept = {"content-type": request.answer.headers.get("content-type", "application/json")}
        return {"status": request.answer.status, "headers": kept}

    def _said(self, request: _Request, status: int, message: str) -> dict[str, Any]:
        """An answer of our own, in the form of OpenAI's API."""
        body = json.dumps({"error": {"message": message, "type": "journeyman", "code": status}}).encode()

        async def pieces() -> AsyncIterator[bytes]:
            yield body

        request.pieces = pieces()
        return {"status": status, "headers": {"content-type": "application/json"}}

    async def _read(self, request: _Request) -> str:
        """The next piece; empty at the end."""
        if request.pieces is None:
            return ""
        try:
            piece = await anext(request.pieces, b"")
        except (Broken, OSError, EOFError):
            return ""
        if not piece:
            request.over = True
        request.first = request.first or time.perf_counter() - request.began
        request.heard += piece
        return base64.b64encode(piece).decode()

    async def _end(self, number: int, why: str) -> None:
        request = self._open.pop(number, None)
        if request is None:
            return
        try:
            await request.closing.aclose()
        except (Broken, OSError):
            request.over = False
        dialect = _dialect(request)
        if dialect is None:
            return
        exchange = Exchange(
            id=request.id,
            dialect=dialect,
            request=bytes(request.body),
            response=bytes(request.heard),
            status=request.answer.status if request.answer else None,
            streamed="event-stream" in (request.answer.headers.get("content-type", "") if request.answer else ""),
            started_at=request.started_at,
            first_byte_seconds=request.first,
            seconds=time.perf_counter() - request.began,
            base_url=self._upstream.base_url,
            error=None if request.over else why,
            labels=self._labels,
        )
        self.exchanges.append(exchange)
        if request.reserved is not None:
            self._budget.paid(request.reserved, self._cost(exchange))

    def _cost(self, exchange: Exchange) -> float | None:
        """US dollars. Who says no writes no bill."""
        if exchange.status is None or exchange.status >= 400:
            return 0.0
        read = read_exchange(exchange)
        return price_of(exchange.base_url, read.model, read.usage)

    def _price(self, request: _Request) -> float | None:
        """US dollars that a call may cost at most; no token is shorter than a byte."""
        try:
            told = json.loads(bytes(request.body))
            cap = next((told[name] for name in _CAPS if isinstance(told.get(name), int)), _LONGEST_ANSWER)
            return pricing.cost(self._upstream.base_url, str(told["model"]), len(request.body), cap)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def _server(self, dialect: Dialect | None) -> Connections:
        anthropic = dialect is Dialect.MESSAGES
        if anthropic not in self._servers:
            headers = {"accept": "*/*", **{f"x-journeyman-{name}": value for name, value in self._labels.items()}}
            key = self._upstream.key
            if anthropic:
                headers |= {"anthropic-version": "2023-06-01"} | ({"x-api-key": key} if key else {})
            elif key:
                headers["authorization"] = f"Bearer {key}"
            address = Dialect.MESSAGES if anthropic else Dialect.CHAT
            self._servers[anthropic] = Connections(address.address(self._upstream.base_url).removesuffix(address.path), headers)
        return self._servers[anthropic]


def price_of(base_url: str, model: str, usage: Usage) -> float | None:
    """What a call costs, as an assembler asks."""
    return pricing.cost(base_url, model, usage.input, usage.output, usage.cached)


def _dialect(request: _Request) -> Dialect | None:
    """That of a call of a model, and `None` for anything else: an agent may not use the rest of an API with a key of ours."""
    if request.method != "POST":
        return None
    return next((each for each in Dialect if each.path == request.path), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAgent:
    """Runs a command in the workspace. Implements `attempt.Agent`.

    In the command, {workspace} is the repository's folder, {task} the statement, {task_file} a file that holds it, and {model}
    the model's name. The command begins in the repository, and finds the statement on its standard input as well.
    """

    workshop: RepositoryWorkshop
    command: str
    upstream: AgentUpstream
    model: str = ""
    environment: Interpreter | None = None
    """The agent's own Python, which the workshop's sandboxes show beside the task's."""
    candidate_id: str = BASE
    limits: WorkLimits = field(default_factory=WorkLimits)
    budget: CallBudget = field(default_factory=CallBudget)

    def check(self) -> None:
        """See that a model can answer within the walls, once they stand.

        Raises:
            SandboxError: They let nothing listen, not even on loopback.
        """
        if any(self.workshop.box(task).level.name == "landlock" for task in self.workshop.tasks):
            raise SandboxError(
                "a command's model answers on the sandbox's own loopback, which landlock does not have; bubblewrap has: apt "
                "install bubblewrap, and where this machine forbids it, evaluate agents by the names of their models"
            )

    async def run(self, task: Task) -> AsyncIterator[Step]:
        own = self.workshop.of(task)
        start = own.start(self.workshop.tree(own))
        labels = {"task": task.id, "agent": label(self.command), "domain": task.domain}
        forwarder = ModelForwarder(self.upstream, self.budget, labels)
        began = time.perf_counter()
        try:
            async with self.workshop.turn:
                outcome = await self.workshop.box(own).run(self._program(task, start), tools={"model": forwarder.tool})
        finally:
            await forwarder.close()
        if forwarder.refused:
            raise ModelRefused(forwarder.refused)
        said = f"{ended_by(outcome)}\n{outcome.stdout[-LONGEST:]}{outcome.stderr[-LONGEST:]}".strip()
        answered = [each for each in forwarder.exchanges if each.status is not None and each.status < 400]
        if not answered and not outcome.ok:
            # It was not wrong: it never came to work.
            lost = f"none of its {len(forwarder.exchanges)} calls was answered" if forwarder.exchanges else "it asked nothing"
            kind = ModelError if forwarder.exchanges else TaskError
            raise kind(f"the agent's command ended ({ended_by(outcome)}), and {lost}: {said[-500:]}")
        for step in _steps(forwarder.exchanges):
            yield step
        arguments = json.dumps({"command": self.command}, ensure_ascii=False)
        yield ToolCall(tool=TOOL, arguments=arguments, result=said, ok=outcome.ok, seconds=time.perf_counter() - began)
        yield submitted(own, start, taken_back(start.files, outcome.files))

    def _program(self, task: Task, start: Tree) -> Program:
        job = {
            "command": self.command,
            "place": PLACE,
            "statement": task.question,
            "model": self.model,
            "homes": homes(self.environment),
            "roots": list(dict.fromkeys((start.root, ""))),
        }
        usual = limits_for(start, self.limits.wall_seconds)
        return Program(
            code=_PROGRAM,
            files={
                **placed(start.files),
                "forwarder.py": (package_files(f"{__package__}.inside") / "forwarder.py").read_bytes(),
                "job.json": json.dumps(job).encode(),
            },
            limits=replace(usual, wall_seconds=self.limits.wall_seconds, memory=usual.memory + 1024 * MIB, output=2 * LONGEST),
            collect=(f"{PLACE}/**",),
        )


def homes(environment: Interpreter | None) -> list[str]:
    """Where in a sandbox an agent's own Python may lie: each kind of sandbox shows it in its own place."""
    if environment is None:
        return []
    beside = Interpreter(beside=(environment.prefix,))
    return list(dict.fromkeys((shown(environment.prefix, beside), environment.prefix)))


def beside(*environments: Interpreter | None) -> tuple[str, ...]:
    """The folders that sandboxes must show for agents' own Pythons."""
    own = Interpreter()
    found = [each for environment in environments if environment for each in (environment.prefix, environment.base_prefix)]
    return tuple(dict.fromkeys(each for each in found if each != own.base_prefix))


def checked(command: str) -> str:
    """A command, where it is one.

    Raises:
        InputError: It is empty, or its quotes do not close.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"cmd:{command} is no command ({error}); quote it as a shell wants it") from None
    if not words:
        raise InputError('cmd: names no command; write one behind it, as in cmd:"my_agent {workspace}"')
    return command


def label(command: str) -> str:
    """The agent's name for a gateway: the program that its command runs, without what is set before it."""
    words = shlex.split(command)
    named = next((word for word in words if word != "env" and "=" not in word), words[0])
    return named.rpartition("/")[2][:64]


def _steps(exchanges: list[Exchange]) -> list[Step]:
    """What passed, as the steps of one trace."""
    assembler = ConversationAssembler(price=price_of)
    traces = {trace.id: trace for trace in map(assembler.join, exchanges)}
    return [step for trace in traces.values() for step in trace.steps]
