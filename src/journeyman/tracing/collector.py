"""Recording in the process where an agent works, and where the traces of it come together.

    with collector.trace("Where is order 7?", agent="desk") as trace:
        trace.model_call(model="small", prompt="Where is order 7?", reply="I look it up.")
        with trace.tool("find", {"order": 7}) as call:
            call.result = find(order=7)
        with trace.agent("writer") as writer:
            writer.model_call(model="small", prompt="Write it.", reply="It is in Oslo.")
        trace.output = "It is in Oslo."

What is begun inside something else is a step below it, also in tasks and in `asyncio.to_thread`, which carry the context; for
threads of your own, `carried(function)` does. An exception is recorded, and goes on unchanged. Nothing here waits for a store.
"""

import itertools
import json
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar, Token, copy_context
from dataclasses import asdict, fields, is_dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, Self, TypeVar
from uuid import uuid4

from journeyman.core.trace import PROGRAM, AgentCall, Message, ModelCall, Reasoning, Step, ToolCall, Trace, spoken

if TYPE_CHECKING:
    from journeyman.tracing.wire.assembler import ConversationAssembler, Price
    from journeyman.tracing.wire.dialects import Exchange

# Values of somebody's program, as text. Nothing here raises, whatever their own code does.

LONGEST_TEXT = 200_000
"""Characters of one text."""


def as_text(value: Any) -> str:
    """A text as it is, and anything else as JSON; what JSON does not know is written as its `repr`."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else _cut(value)
    if value is None:
        return ""
    try:
        return _cut(json.dumps(value, ensure_ascii=False, default=_plain))
    except Exception:  # noqa: BLE001 - the host's own code runs here, and recording must not stop it
        return _cut(_repr(value))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return _repr(value)


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - the host's own code runs here
        return f"<{type(value).__name__} that cannot be shown>"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}… [{len(text) - LONGEST_TEXT} characters more]"


def failure(error: BaseException) -> str:
    """An exception as `ErrorName: message`."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the host's own code runs here
        message = "a message that cannot be shown"
    return _cut(f"{type(error).__name__}: {message}")


_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class Position(NamedTuple):
    """Where in which trace something happens."""

    tree: "OpenTrace"
    step: str | None
    owner: Hashable = None
    """Whose work it is, where a hook says so."""


CURRENT: ContextVar[Position | None] = ContextVar("journeyman recording", default=None)


def carried(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """The function, for another thread: what it records belongs where this was called. Each thread needs one of its own."""
    context = copy_context()

    def run(*args: _Given.args, **given: _Given.kwargs) -> _Result:
        return context.run(function, *args, **given)

    return run


def restore(token: Token[Position | None] | None) -> None:
    """Go back to where something began. A generator may be closed in another context than it was begun in: then it is left."""
    if token is not None:
        with suppress(ValueError):
            CURRENT.reset(token)


class OpenTrace:
    """The steps of one trace, as they come. Threads may add at once: all of it is one append."""

    def __init__(self, id: str, keep: Callable[["OpenTrace"], None], about: Mapping[str, Any]) -> None:
        self.id = id
        self.about = about
        self.begun = datetime.now(UTC)
        self.ended: datetime | None = None
        self.input: str | None = None
        self.output: str | None = None
        self.error: str | None = None
        self.keeper = keep
        self._steps: list[Step | Span] = []
        self._numbers = itertools.count(1)
        self._hearing = threading.Lock()
        self._conversations: ConversationAssembler | None = None
        self._heard: tuple[Step, ...] = ()

    def id_of_next(self) -> str:
        return f"{self.id}/{next(self._numbers)}"

    def add(self, step: "Step | Span") -> str:
        """Add a step, and give its id."""
        self._steps.append(step)
        self.changed()
        return step.id

    def hear(self, exchange: "Exchange", price: "Price") -> None:
        """Add what passed between the agent and a model server. Its labels `trace` and `parent` say where it belongs."""
        # Late: whoever tells of its calls itself needs none of it.
        from journeyman.tracing.wire.assembler import ConversationAssembler

        with self._hearing:
            if self._conversations is None:
                self._conversations = ConversationAssembler(price=price)
            self._heard = self._conversations.join(exchange).steps
        self.changed()

    def close(self, output: str | None, error: str | None) -> None:
        self.output = output if self.output is None else self.output
        self.error = error
        self.ended = datetime.now(UTC)
        self.keeper(self)

    def changed(self) -> None:
        """What a task adds after its agent has answered belongs to the trace as well."""
        if self.ended is not None:
            self.keeper(self)

    def trace(self) -> Trace:
        """What there is by now."""
        return Trace(
            id=self.id,
            started_at=self.begun,
            ended_at=self.ended,
            steps=_joined(tuple(step.step if isinstance(step, Span) else step for step in self._steps), self._heard),
            error=self.error,
            input=self.input,
            output=self.output,
            source="hook",
            **self.about,
        )


def _joined(told: tuple[Step, ...], heard: tuple[Step, ...]) -> tuple[Step, ...]:
    """What an agent's program tells of and what was heard at its HTTP client, each thing once, oldest first."""
    if not heard:
        return told
    left = {step.id: step for step in heard}
    steps: list[Step] = []
    for step in told:
        if isinstance(step, ModelCall) and (same := _first(left, step, _same_call)) is not None:
            parts = {field.name: getattr(same, field.name) for field in fields(step) if getattr(step, field.name) is None}
            left = {id: replace(each, parent=step.id) if each.parent == same.id else each for id, each in left.items()}
            steps.append(replace(step, **{**parts, "parent": step.parent}))
        elif isinstance(step, ToolCall) and (asked := _first(left, step, _same_tool)) is not None:
            steps.append(replace(step, arguments=asked.arguments, parent=asked.parent, raw={**asked.raw, **step.raw}))
        elif isinstance(step, ToolCall):
            # No model asked for it: none may be taught that it did.
            steps.append(replace(step, raw={"by": PROGRAM, **step.raw}))
        else:
            steps.append(step)
    first = min(step.started_at for step in heard if step.started_at)
    return tuple(sorted((*steps, *left.values()), key=lambda step: step.started_at or first))


_Kind = TypeVar("_Kind", ModelCall, ToolCall)


def _first(left: dict[str, Step], told: _Kind, same: Callable[[_Kind, _Kind], bool]) -> _Kind | None:
    """Take the oldest that is the same as what was told of, and began no later."""
    for id, step in left.items():
        if isinstance(step, type(told)) and _not_after(step, told) and same(told, step):
            del left[id]
            return step
    return None


def _not_after(step: Step, other: Step) -> bool:
    return step.started_at is None or other.started_at is None or step.started_at <= other.started_at


def _same_call(told: ModelCall, heard: ModelCall) -> bool:
    return told.reply.strip() == heard.reply.strip() and (not told.model or told.model == heard.model)


def _same_tool(used: ToolCall, asked: ToolCall) -> bool:
    """A tool that a model asks for has the name of the function, or that without what makes the function a tool."""
    return used.tool.rpartition(".")[2].removeprefix("tool_") == asked.tool.removeprefix("tool_")


class _Open(ABC):
    """Something in which other things happen. Use it in a `with`, also in asynchronous code."""

    _token: Token[Position | None] | None = None

    @property
    @abstractmethod
    def _position(self) -> Position:
        """Where what happens inside belongs."""

    def begin(self) -> None:
        """What happens from here on in this context belongs here. `with` does it."""
        self._token = CURRENT.set(self._position)

    def pause(self) -> None:
        """What happens from here on belongs where it did before."""
        restore(self._token)
        self._token = None

    @abstractmethod
    def end(self, output: Any = None, error: BaseException | None = None) -> None:
        """It is over. `with` does it."""

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.pause()
        self.end(error=error)


class Span(_Open):
    """Something that takes a while: the use of a tool, or the work of an agent."""

    def __init__(self, tree: OpenTrace, parent: str | None, name: str, input: Any) -> None:
        self._tree = tree
        self._parent = parent
        self._name = name
        self._input = as_text(input)
        self._output: str | None = None
        self._at = datetime.now(UTC)
        self._clock = time.perf_counter()
        self._seconds: float | None = None
        self._error: str | None = None
        self.id = tree.id_of_next()

    @property
    def output(self) -> str | None:
        """What came of it; what is no text is written as JSON."""
        return self._output

    @output.setter
    def output(self, value: Any) -> None:
        self._output = as_text(value)

    @property
    @abstractmethod
    def step(self) -> Step:
        """What is known of it by now."""

    @property
    def _known(self) -> dict[str, Any]:
        """What steps of every kind have."""
        at, took = self._at, self._seconds
        return {"error": self._error, "started_at": at, "seconds": took, "id": self.id, "parent": self._parent}

    @property
    def _position(self) -> Position:
        return Position(self._tree, self.id)

    def end(self, output: Any = None, error: BaseException | None = None) -> None:
        self._seconds = time.perf_counter() - self._clock
        self._error = failure(error) if error is not None else None
        if self._output is None and output is not None:
            self.output = output
        self._tree.changed()


class ToolSpan(Span):
    """The use of a tool: set its `result`."""

    result = Span.output

    @property
    def step(self) -> ToolCall:
        done = self._error is None
        return ToolCall(tool=self._name, arguments=self._input, result=self._output or "", ok=done, **self._known)


class AgentSpan(Span):
    """The work of an agent."""

    @property
    def step(self) -> AgentCall:
        return AgentCall(agent=self._name, input=self._input, output=self._output or "", **self._known)


class Recording(_Open):
    """A trace, or the work of an agent in it, that is being recorded. `collector.trace` and `agent` make them."""

    def __init__(self, tree: OpenTrace, span: AgentSpan | None = None) -> None:
        self._tree = tree
        self._span = span
        self.owner: Hashable = None

    @property
    def id(self) -> str:
        """The id of the trace."""
        return self._tree.id

    @property
    def step_id(self) -> str | None:
        """The id of the agent's step; `None` for the trace itself."""
        return self._span.id if self._span else None

    @property
    def output(self) -> str | None:
        return self._span.output if self._span else self._tree.output

    @output.setter
    def output(self, value: Any) -> None:
        """What the agent answered; what is no text is written as JSON."""
        (self._span or self._tree).output = as_text(value)

    def model_call(
        self,
        *,
        model: str = "",
        prompt: str = "",
        messages: Sequence[Message | Mapping[str, Any]] = (),
        reply: Any = "",
        **known: Any,
    ) -> str:
        """Add a call of a model that has ended, and give its id.

        Args:
            prompt: What was new to the model; made of the messages where there are some.
            messages: The same, message by message; of mappings, `role` and `content` are read.
            known: Other fields of `ModelCall`: tokens, cost, seconds, error, shown, …
        """
        said = tuple(message if isinstance(message, Message) else _message(message) for message in messages)
        fields = self._fields(known)
        return self._tree.add(
            ModelCall(model=model, prompt=prompt or spoken(said), messages=said, reply=as_text(reply), **fields)
        )

    def tool_call(self, tool: str, arguments: Any = None, result: Any = "", **known: Any) -> str:
        """Add the use of a tool that has ended, and give its id. `known` are other fields of `ToolCall`."""
        fields = self._fields(known)
        return self._tree.add(
            ToolCall(tool=tool, arguments=as_text({} if arguments is None else arguments), result=as_text(result), **fields)
        )

    def reasoning(self, text: str, **known: Any) -> str:
        """Add what the agent said to itself, and give the step's id."""
        fields = self._fields(known)
        return self._tree.add(Reasoning(text=as_text(text), **fields))

    def tool(self, tool: str, arguments: Any = None) -> ToolSpan:
        """The use of a tool that begins now, for a `with`."""
        span = ToolSpan(self._tree, self._above(), tool, {} if arguments is None else arguments)
        self._tree.add(span)
        return span

    def agent(self, name: str, input: Any = "") -> "Recording":
        """Work that is handed to an agent now, for a `with`. What is recorded with it, or inside it, is below it."""
        span = AgentSpan(self._tree, self._above(), name, input)
        self._tree.add(span)
        return Recording(self._tree, span)

    @property
    def _position(self) -> Position:
        return Position(self._tree, self.step_id, self.owner)

    def end(self, output: Any = None, error: BaseException | None = None) -> None:
        if self._span is not None:
            self._span.end(output, error)
        else:
            self._tree.close(None if output is None else as_text(output), failure(error) if error is not None else None)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.__exit__(kind, error, tb)

    def _fields(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """What a step has of itself, unless it is told."""
        return {"started_at": datetime.now(UTC), "parent": self._above(), "id": self._tree.id_of_next(), **known}

    def _above(self) -> str | None:
        """The innermost thing that is open in this trace, here."""
        here = CURRENT.get()
        return here.step if here is not None and here.tree is self._tree else self.step_id


def _message(given: Mapping[str, Any]) -> Message:
    return Message(role=as_text(given.get("role", "user")), text=as_text(given.get("content") or ""))


_ABOUT = frozenset(
    {
        "id", "task_id", "candidate_id", "other_candidates", "domain", "session", "tasks_created", "tasks_completed",
        "tasks_failed", "label", "rewards", "raw",
    }
)  # fmt: skip
"""What whoever begins a trace can say of it."""


def open_recording(keep: Callable[[OpenTrace], None], input: Any, *, agent: str | None, about: Mapping[str, Any]) -> Recording:
    """A trace that begins now; inside one that is open for the same keeper, work of an agent in that one."""
    here = CURRENT.get()
    if here is not None and here.tree.ended is None and here.tree.keeper == keep:
        return Recording(here.tree).agent(agent or "agent", input)
    if wrong := set(about) - _ABOUT:
        raise TypeError(f"a trace that is recorded has no {sorted(wrong)[0]!r}; it can be told {', '.join(sorted(_ABOUT))}")
    id = uuid4().hex
    fields = {"task_id": id, "candidate_id": "base", "agent": agent, **about}
    tree = OpenTrace(str(fields.pop("id", id)), keep, fields)
    tree.input = None if input is None else as_text(input)
    return Recording(tree)


# Where they come together.

log = logging.getLogger(__name__)

KEPT = 10_000
"""Traces that a collector holds in memory; older ones are in the store alone."""


class Sink(Protocol):
    """Where traces go that shall last. A store of traces is one."""

    def add(self, traces: Iterable[Trace]) -> object: ...

    def label(self, trace_id: str, good: bool | None, *, who: str, at: datetime) -> None: ...


class Collector:
    """Collects traces. May be used by several threads. What its sink makes of them never reaches the agent that is recorded."""

    def __init__(
        self, sink: Sink | None = None, *, agent: str | None = None, session: str | None = None, kept: int = KEPT
    ) -> None:
        """
        Args:
            sink: Gets every trace when it ends, in the thread that ended it; `None` keeps them in memory alone.
            agent: Who makes the attempts, where a trace does not say.
            session: What the traces have in common.
            kept: Traces that are held in memory.
        """
        self._sink = sink
        self._agent = agent
        self._session = session
        self._kept = kept
        self._traces: OrderedDict[str, Trace] = OrderedDict()
        self._lock = threading.Lock()
        self._lost = 0

    def trace(self, input: Any = None, *, agent: str | None = None, **about: Any) -> Recording:
        """A trace that begins now, for a `with`. Inside another one of this collector it is the work of a sub-agent there.

        Args:
            input: What is asked.
            about: Other fields of `Trace`: id, task_id, candidate_id, domain, session, raw, …
        """
        if self._session is not None:
            about.setdefault("session", self._session)
        return open_recording(self._keep, input, agent=agent or self._agent, about=about)

    @property
    def traces(self) -> tuple[Trace, ...]:
        """Those that ended and are in memory, oldest first."""
        with self._lock:
            return tuple(self._traces.values())

    def get_unlabeled_traces(self, limit: int | None = None) -> list[Trace]:
        """Those that nobody has judged, newest first."""
        return [trace for trace in reversed(self.traces) if trace.label is None][:limit]

    def label_trace(self, trace_id: str, good: bool | None, *, who: str = "user") -> None:
        """Say whether a trace was good; `None` takes it back.

        Raises:
            KeyError: The collector has no such trace, and neither has its store.
            StoreError: The store could not keep it.
        """
        with self._lock:
            held = self._traces.get(trace_id)
            if held is not None:
                self._traces[trace_id] = replace(held, label=good)
        if self._sink is not None:
            self._sink.label(trace_id, good, who=who, at=datetime.now(UTC))
        elif held is None:
            raise KeyError(f"no trace {trace_id!r} was collected")

    def get_statistics(self) -> Mapping[str, int]:
        """Counts over the traces in memory; `lost` counts those that the store did not take."""
        traces = self.traces
        labels = [trace.label for trace in traces]
        return {
            "total": len(traces),
            "labeled": len(labels) - labels.count(None),
            "unlabeled": labels.count(None),
            "good": labels.count(True),
            "bad": labels.count(False),
            "failed": sum(trace.error is not None for trace in traces),
            "model_calls": sum(len(trace.calls) for trace in traces),
            "tool_calls": sum(len(trace.tool_calls) for trace in traces),
            "lost": self._lost,
        }

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until all that ended is in the store; whether that came in time."""
        wait = getattr(self._sink, "flush", None)
        return True if wait is None else bool(wait(timeout))

    def keep(self, trace: Trace) -> None:
        """Take a trace that is ready, or one that was given before and has grown. Never raises: an agent goes on, whatever a
        store says."""
        self._store_safely(lambda: trace)

    def _keep(self, tree: OpenTrace) -> None:
        self._store_safely(tree.trace)

    def _store_safely(self, made: Callable[[], Trace]) -> None:
        try:
            trace = made()
            with self._lock:
                known = self._traces.get(trace.id)
                self._traces[trace.id] = replace(trace, label=known.label) if known else trace
                while len(self._traces) > self._kept:
                    self._traces.popitem(last=False)
            if self._sink is not None:
                self._sink.add([trace])
        except Exception as error:  # noqa: BLE001 - the boundary to the agent that is recorded
            self._lost += 1
            log.warning("a trace could not be kept: %s", type(error).__name__)
