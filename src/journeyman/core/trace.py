"""The record of one attempt."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from journeyman.core.reward import RECORDER, Reward, Verdict, decide, label
from journeyman.core.task import Split

OWN_AGENT = "journeyman"
"""The agent that Journeyman's own calls of models name, where they pass a gateway: nobody learns from them."""


OWN = "run"
"""The source of what Journeyman attempted itself, in a training, an examination or the Playground."""
MIRROR = "mirror"
"""The source of answers that nobody was given: a candidate's, to a request that was mirrored. Whoever does not ask for these by
their source does not see them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation with a model."""

    role: str
    """"system", "user", "assistant" or "tool"."""
    text: str
    """What is not text (a picture, a file) is named in brackets: `[image/png, 3 kB]`."""
    answers: str | None = None
    """Of a tool's answer, the id of the tool call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One exchange with a model."""

    model: str
    prompt: str
    """What was new to the model, as text: each message under its role. `spoken` writes it."""
    reply: str
    """The text of the answer; the tool calls that it asks for are steps of their own, with this one as parent."""
    messages: tuple[Message, ...] = ()
    """What was new to the model, message by message, where that is known. See `Trace.conversation`."""
    continues: str | None = None
    """The id of the call whose messages and reply stood before these: a conversation is sent whole each time, and kept once."""
    input_tokens: int | None = None
    """With those that came from the provider's cache."""
    output_tokens: int | None = None
    """`None` when the provider did not count: unknown is not zero."""
    cached_tokens: int | None = None
    """How many of the input tokens came from the provider's cache."""
    cost: float | None = None
    """US dollars; `None` when the model has no known price."""
    started_at: datetime | None = None
    seconds: float | None = None
    """Wall time of the call, queueing included."""
    first_token_seconds: float | None = None
    """Time to the first piece of a streamed answer."""
    finish: str | None = None
    """Why the model stopped, in the provider's word ("stop", "length", …)."""
    error: str | None = None
    """Why there is no answer, or only a part of one."""
    response_id: str | None = None
    """The provider's id of the answer. Whoever else recorded the same call has the same."""
    shown: tuple[str, ...] = ()
    """Ids of the bullets that stood in the prompt."""
    cited: tuple[str, ...] = ()
    """Ids of those that the model says it used."""
    id: str = ""
    parent: str | None = None
    """The id of the step that caused this one: sub-agents make a tree."""
    raw: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What else was recorded, in the recorder's words: parameters of the request, attributes of the span."""


PROGRAM = "program"
"""Who asked for a tool that no model asked for, in its step's `raw["by"]`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One use of a tool."""

    tool: str
    arguments: str
    """JSON, as the model wrote it."""
    result: str
    ok: bool = True
    error: str | None = None
    """What went wrong, where it is told apart from the result."""
    cost: float | None = None
    """US dollars, for tools that cost."""
    started_at: datetime | None = None
    seconds: float | None = None
    id: str = ""
    parent: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, hash=False)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Names that rewards written for earlier systems use."""
            if name not in _OLDER_OF_TOOLS:
                raise AttributeError(f"a tool call has no {name!r}")
            return getattr(self, _OLDER_OF_TOOLS[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning:
    """What the agent said to itself, where it is recorded apart from the reply."""

    text: str
    started_at: datetime | None = None
    seconds: float | None = None
    id: str = ""
    parent: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCall:
    """Work that was handed to an agent, or one named part of the work. What was done there names it as parent."""

    agent: str
    input: str = ""
    output: str = ""
    error: str | None = None
    started_at: datetime | None = None
    seconds: float | None = None
    id: str = ""
    parent: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, hash=False)


_Amount = TypeVar("_Amount", int, float)

Step = ModelCall | ToolCall | Reasoning | AgentCall

KINDS: Mapping[str, type[Step]] = {"model": ModelCall, "tool": ToolCall, "reasoning": Reasoning, "agent": AgentCall}
"""What a step is called where it is written down. Kept for good: files and stores hold these words."""
KIND_OF: Mapping[type[Step], str] = {made: kind for kind, made in KINDS.items()}


_TURN = re.compile(r"(?:\A|\n\n)\[(system|developer|user|assistant|tool)\]\n")
"""How a prompt that is kept as one text tells its turns apart."""


def asked_in(calls: Sequence[ModelCall]) -> str:
    """The first thing that the user said in these calls; where no turn is the user's, the first prompt."""
    said = next((message.text for call in calls for message in call.messages if message.role == "user"), None)
    if said is not None or not calls:
        return said or ""
    before, *turns = _TURN.split(calls[0].prompt)
    if before or not turns:
        return calls[0].prompt
    return next((text for role, text in zip(turns[::2], turns[1::2], strict=True) if role == "user"), calls[0].prompt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One attempt at one task, oldest step first. A failed attempt is a trace too."""

    id: str
    task_id: str
    candidate_id: str
    """The playbook, policy or adapter in force; "base" when there was none."""
    started_at: datetime
    steps: tuple[Step, ...] = ()
    error: str | None = None
    """Why it stopped early, as `ErrorName: message`."""
    domain: str = "general"
    other_candidates: tuple[str, ...] = ()
    """What else was in force: a policy beside a playbook, an adapter beside both."""
    session: str | None = None
    """Traces of one conversation, or of one user's visit, have the same."""
    agent: str | None = None
    """Who made the attempt."""
    ended_at: datetime | None = None
    input: str | None = None
    """What was asked, where it is recorded apart from the first prompt."""
    output: str | None = None
    """What the agent answered, where it is recorded apart from the last reply."""
    tasks_created: tuple[str, ...] = ()
    """Sub-tasks that the agent set itself."""
    tasks_completed: tuple[str, ...] = ()
    tasks_failed: tuple[str, ...] = ()
    label: bool | None = None
    """What a person says of it; `None` while nobody has."""
    labelled_by: str | None = None
    """Whose word the label is, where that is known: a person's name, `ground-truth`, `end-user` or `auto-labeler`."""
    rewards: tuple[Reward, ...] = ()
    """What its recorder, or Journeyman, found it worth. No reward of ours reads them."""
    source: str = ""
    """How it came in: "gateway", "mirror", "otlp", "hook", "run", or the format of a file."""
    raw: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What else was recorded of the whole, in the recorder's words."""

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        return tuple(step for step in self.steps if isinstance(step, ModelCall))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(step for step in self.steps if isinstance(step, ToolCall))

    @property
    def reasoning_steps(self) -> tuple[Reasoning, ...]:
        return tuple(step for step in self.steps if isinstance(step, Reasoning))

    @property
    def worth(self) -> float | None:
        """The weighted mean of the rewards that decide, 0 to 1; unknown as soon as one of them is, and where there are none."""
        return decide(self.rewards).value

    @property
    def said(self) -> tuple[Reward, ...]:
        """All that was said of it: the label as a verdict of whoever gave it, and the rewards."""
        return self.rewards if self.label is None else (label(self.label, self.labelled_by or RECORDER), *self.rewards)

    @property
    def verdict(self) -> Verdict:
        """Whether it was a good attempt, and by whose word."""
        return decide(self.said)

    @property
    def candidate_ids(self) -> tuple[str, ...]:
        """All that was in force."""
        return (self.candidate_id, *self.other_candidates)

    @property
    def query(self) -> str:
        """What was asked: as recorded, else the first thing that the user said, else the first prompt."""
        if self.input is not None:
            return self.input
        return asked_in(self.calls)

    @property
    def reply(self) -> str:
        """The agent's last word, or nothing."""
        if self.output is not None:
            return self.output
        return self.calls[-1].reply if self.calls else ""

    @property
    def held_out(self) -> bool:
        """Whether it was made at a held-out task: then nobody may learn from it."""
        return self.raw.get("split") == Split.HELD_OUT

    @property
    def shown(self) -> frozenset[str]:
        """Every bullet that stood in a prompt of this attempt."""
        return frozenset(id for call in self.calls for id in call.shown)

    @property
    def cited(self) -> frozenset[str]:
        return frozenset(id for call in self.calls for id in call.cited)

    @property
    def input_tokens(self) -> int | None:
        """The sum over calls; unknown as soon as one call's are, and where no call was seen."""
        return self._sum(call.input_tokens for call in self.calls)

    @property
    def output_tokens(self) -> int | None:
        return self._sum(call.output_tokens for call in self.calls)

    @property
    def cost(self) -> float | None:
        """US dollars; unknown as soon as one call's cost is, and where no call was seen."""
        return self._sum(call.cost for call in self.calls)

    def _sum(self, parts: Iterable[_Amount | None]) -> _Amount | None:
        # Journeyman's own attempts hold every call that was made. Of others, one that shows none may have made some.
        return total(parts) if self.calls or self.source == OWN else None

    @property
    def seconds(self) -> float | None:
        """Wall time from beginning to end."""
        return None if self.ended_at is None else (self.ended_at - self.started_at).total_seconds()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Names that rewards written for earlier systems use."""
            if name not in _OLDER:
                raise AttributeError(f"a trace has no {name!r}")
            return getattr(self, _OLDER[name])

    def conversation(self, call: ModelCall) -> tuple[Message, ...]:
        """All that a model was sent in a call, oldest first: what it continues, and what was new."""
        by_id = {each.id: each for each in self.calls if each.id}
        parts: list[Sequence[Message]] = [call.messages]
        seen = {call.id}
        while call.continues is not None and call.continues not in seen and call.continues in by_id:
            call = by_id[call.continues]
            seen.add(call.id)
            parts += [(Message(role="assistant", text=call.reply),), call.messages]
        return tuple(message for part in reversed(parts) for message in part)


_OLDER = {
    "trace_id": "id",
    "session_id": "session",
    "user_query": "query",
    "final_response": "reply",
    "total_tokens_in": "input_tokens",
    "total_tokens_out": "output_tokens",
    "total_cost": "cost",
    "reward_score": "worth",
}
_OLDER_OF_TOOLS = {"tool_name": "tool", "success": "ok"}


def spoken(messages: Iterable[Message]) -> str:
    """Messages as the text of a prompt."""
    return "\n\n".join(f"{message.role}: {message.text}" for message in messages)


def children(steps: Iterable[Step]) -> Mapping[str | None, Sequence[Step]]:
    """The steps by the id of their parent; `None` for those without one, or whose parent is not among them."""
    found = list(steps)
    known = {step.id for step in found if step.id}
    tree: dict[str | None, list[Step]] = {}
    for step in found:
        above = step.parent if step.parent in known and step.parent != step.id else None
        tree.setdefault(above, []).append(step)
    return tree


def walk(steps: Sequence[Step]) -> Iterator[tuple[int, Step]]:
    """Every step with its depth in the tree, each below its parent. Steps whose parents make a ring come last, at depth 0."""
    tree = children(steps)
    seen: set[int] = set()

    def below(root: Step, depth: int) -> Iterator[tuple[int, Step]]:
        stack = [(depth, root)]
        while stack:
            at, step = stack.pop()
            if id(step) in seen:
                continue
            seen.add(id(step))
            yield at, step
            stack += [(at + 1, child) for child in reversed(tree.get(step.id, ()) if step.id else ())]

    for root in (*tree.get(None, ()), *steps):
        yield from below(root, 0)


def total(parts: Iterable[_Amount | None]) -> _Amount | None:
    """The sum, or `None` as soon as one part is unknown."""
    found = list(parts)
    known = [part for part in found if part is not None]
    return sum(known) if len(known) == len(found) else None


def average(parts: Sequence[float | None]) -> float | None:
    """The mean, or `None` as soon as one part is unknown, and where there are none."""
    whole = total(parts) if parts else None
    return None if whole is None else whole / len(parts)


def average_known(parts: Iterable[float | None]) -> float | None:
    """The mean of what is known, or `None` where nothing is."""
    return average([part for part in parts if part is not None])
