"""What is kept of captured traces, and what a store of them promises."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from journeyman.core.feedback import Feedback, TargetKind
from journeyman.core.reward import RECORDER as RECORDER
from journeyman.core.reward import Reward, Source
from journeyman.core.trace import Trace

AUTO = Source.LABELER.value
"""Who gave a label that no person gave."""
TRUTH = "ground-truth"
"""Whose word a label is that tells what turned out later: it goes before every person's."""
USERS = ("end-user", Source.USER.value)
"""Whose word a label is that those who were served have given: it goes behind checks."""


AGENTS = "agents"
"""As a query's source: all that agents did, and no attempt that Journeyman made itself in a training or an examination."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which traces are meant: those for which everything that is named holds."""

    agent: str | None = None
    """Empty for traces that name none."""
    model: str | None = None
    """Called at least once."""
    tool: str | None = None
    """Used at least once."""
    task_id: str | None = None
    session: str | None = None
    domain: str | None = None
    source: str | None = None
    """As in a trace, or `AGENTS`."""
    candidate_id: str | None = None
    label: bool | None = None
    """Labelled so, by a person or else by the auto-labeler."""
    labelled: bool | None = None
    """Whether it has a person's label."""
    min_reward: float | None = None
    max_reward: float | None = None
    """Bounds of the mean reward, both included. A trace whose reward is unknown is in no range."""
    failed: bool | None = None
    """Whether the trace, or one of its steps, ended in an error."""
    ended_in_error: bool | None = None
    """Whether the trace itself did, or a call of a model or an agent in it: what statistics count as an error."""
    scored: bool | None = None
    """Whether its reward is known."""
    text: str | None = None
    """Words that all stand in it; `"in quotes"` for a phrase. The last word may be a beginning of three letters or more, unless
    a blank follows. Never a query language that can be wrong."""
    since: datetime | None = None
    until: datetime | None = None
    """Bounds of the beginning: from `since`, and before `until`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """A trace as a list shows it. `None` is unknown."""

    id: str
    title: str
    """The beginning of what was asked, in one line."""
    agent: str | None
    session: str | None
    task_id: str
    domain: str
    source: str
    models: tuple[str, ...]
    started_at: datetime
    seconds: float | None
    model_calls: int
    tool_calls: int
    failed_tool_calls: int
    input_tokens: int | None
    output_tokens: int | None
    cost: float | None
    error: str | None
    """The trace's own error, else that of its first failed step that is not a tool call."""
    reward: float | None
    """The weighted mean of its rewards; `None` as soon as one of them is unknown, or when there are none."""
    label: bool | None
    labelled_by: str | None
    """A person, or one of `TRUTH`, `USERS` and `AUTO`; `RECORDER` for the label that a trace came with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some traces, newest first."""

    lines: tuple[TraceSummary, ...]
    next: str | None
    """Where the next page begins, for `page(after=…)`; `None` when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """Somebody's word on a trace. Rows are added, never changed: of one person the latest holds."""

    trace_id: str
    good: bool | None
    """`None` takes back what the same person said before."""
    who: str
    at: datetime
    probability: float | None = None
    """Of an auto-labeler, the calibrated probability of `good` being right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A reward that a trace was given after it came in."""

    reward: Reward
    by: str
    """What computed it, with its version."""
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSession:
    """Traces that belong together."""

    id: str
    title: str
    traces: int
    agents: tuple[str, ...]
    started_at: datetime
    last_at: datetime
    input_tokens: int | None
    output_tokens: int | None
    cost: float | None
    errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsGroup:
    """Statistics of the traces that have something in common: an agent, a model, a day, or all of them.

    Sums and means are over what is known; `unpriced` and `uncounted` say how many calls are not in them.
    """

    name: str
    traces: int
    model_calls: int
    tool_calls: int
    failed_tool_calls: int
    errors: int
    good: int
    bad: int
    mean_reward: float | None
    rewarded: int
    """How many of the traces `mean_reward` is of."""
    reward_low: float | None
    reward_high: float | None
    """Ends of its 95 % interval; `None` where no trace has a reward."""
    input_tokens: int | None
    output_tokens: int | None
    """`None` where nobody counted any call."""
    uncounted: int
    cost: float | None
    """US dollars; `None` where no call has a price."""
    unpriced: int
    timed: int
    """How many of the traces the times are of."""
    median_seconds: float | None
    p95_seconds: float | None
    p99_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStatistics:
    """How often a tool was used, and how often it failed."""

    tool: str
    calls: int
    failures: int
    mean_seconds: float | None


MOST_STEPS = 40
"""Of time, that a chart tells apart. Four charts of so many are half of what a page may weigh."""
STEPS_FROM = datetime(1970, 1, 5, tzinfo=UTC)
"""A Monday: weeks begin with theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    all: StatisticsGroup
    by_agent: tuple[StatisticsGroup, ...]
    by_model: tuple[StatisticsGroup, ...]
    by_day: tuple[StatisticsGroup, ...]
    """Oldest day first (UTC); the others come with the most traces first."""
    by_candidate: tuple[StatisticsGroup, ...]
    """Of the traces that each candidate was served to; those of most traces."""
    tools: tuple[ToolStatistics, ...]
    by_time: tuple[StatisticsGroup, ...]
    """As `by_day`, in steps of `every` from `STEPS_FROM` on, named by their beginnings (UTC); without those that had no time
    where that is not a day."""
    every: timedelta
    """The smallest step of which there are at most `MOST_STEPS`; less than a day for less than three days alone."""


class SpanRow(NamedTuple):
    """A reported span as it came, so that it can be read anew later. The store does not look into `body`."""

    trace_id: str
    span_id: str
    at: datetime
    body: bytes
    scope: bytes = b""
    """What the span shares with others (resource and scope); kept once by its digest."""
    packed: bytes = b""
    """The body as it is kept, where whoever hands it over has compressed it; empty of what was read, and of a changed body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What went, or with a dry run would go."""

    traces: int
    spans: int
    bytes: int
    """Of contents that nothing refers to any more; 0 in a dry run where that is not known."""
    kept: int = 0
    """Of the traces that were named, those that stay: a run attempted them, and they go with it."""


class TraceStore(Protocol):
    """Keeps traces. May be used by several threads and processes at once. Raises `StoreError`, never a library's own error.

    A call that adds is whole or not at all, and is on disk when it returns. Adding twice is adding once. Times must have a
    zone. Texts may hold anything, also what a database refuses (NUL, lone surrogates).
    """

    # -- writing

    def add(self, traces: Iterable[Trace]) -> int:
        """Keep traces; how many were new or changed. A trace that is known by its id is replaced by what is given now, but
        keeps the labels and rewards that it was given here. Its own `label` and `rewards` are kept as the recorder's word.

        A trace whose every model call (by `response_id`) is in another trace of the same time too was reported twice: of the
        two the one with fewer steps is kept, and found by its id, but neither listed nor counted. An id that two traces
        of the gateway have at the same time tells nothing: it sees each call once.
        """

    def add_spans(self, spans: Sequence[SpanRow]) -> None:
        """Keep raw spans, and remember that their traces are to be made anew."""

    def pending(self, limit: int = 100) -> Sequence[str]:
        """Ids of traces of which spans came that were not yet `settled`, longest waiting first."""

    def spans(self, trace_ids: Sequence[str]) -> Mapping[str, Sequence[SpanRow]]:
        """The raw spans of traces, in the order of their time."""

    def settle(self, read: Mapping[str, int], traces: Iterable[Trace]) -> None:
        """Keep what was made of the spans. `read` says of how many spans of each trace: where more have come meanwhile, the
        trace stays pending."""

    def rebuild(self) -> int:
        """Mark every trace that has raw spans as pending; how many there are."""

    def label(self, trace_id: str, good: bool | None, *, who: str, at: datetime, probability: float | None = None) -> None:
        """Add somebody's word on a trace: as `add_feedback` keeps it, but for what an auto-labeler proposes.

        Raises:
            StoreError: There is no such trace.
        """

    def add_feedback(
        self, words: Sequence[Feedback], *, now: datetime, told: Callable[[int], None] | None = None
    ) -> Sequence[bool]:
        """As `stores.feedback` keeps it."""

    def reward(self, trace_id: str, rewards: Iterable[Reward], *, by: str, at: datetime) -> None:
        """Add rewards. Of one name the latest holds."""

    def prune(
        self,
        *,
        before: datetime,
        keep_labelled: bool,
        dry_run: bool = False,
        told: Callable[[int], None] = lambda _: None,
    ) -> Pruned:
        """Forget traces that began before, with their spans and contents.

        In transactions of a moment each: others write in between, and what is broken off has forgotten whole traces, and the
        same call goes on with it. `told` hears how many are forgotten so far.
        """

    def forget(self, trace_ids: Iterable[str], *, dry_run: bool = False) -> Pruned:
        """Forget traces by their ids, with their spans and contents, with what was said of them, of their requests, and of
        sessions that have no other trace, and with traces that tell the same calls. One that a run attempted stays."""

    # -- reading

    def get(self, trace_id: str) -> Trace | None:
        """The whole trace, with its label and all its rewards."""

    def line(self, trace_id: str) -> TraceSummary | None:
        """The trace as a list shows it: with the label that holds, and whose it is."""

    def starting(self, prefix: str, *, limit: int = 2) -> Sequence[str]:
        """The ids that begin so, in the order of the alphabet: people type as much of an id as tells it apart."""

    def page(self, query: Query, *, limit: int = 50, after: str | None = None) -> Page: ...

    def count(self, query: Query, *, most: int = 10_000) -> int:
        """How many there are; counting stops at `most`."""

    def traces(self, query: Query = Query()) -> Iterator[Trace]:
        """The whole traces, oldest first."""

    def neighbours(self, trace_id: str, query: Query) -> tuple[str | None, str | None]:
        """The ids of the next newer and the next older trace of the same list."""

    def labels(self, trace_id: str | None = None, *, by_several: bool = False) -> Sequence[Label]:
        """Every word ever given, oldest first; `by_several` leaves those of traces that two or more gave one."""

    def rewards(self, trace_id: str) -> Sequence[Given]: ...

    def feedback_of(self, targets: Iterable[tuple[TargetKind, str]], *, whole: bool = False) -> Sequence[Feedback]:
        """As `stores.feedback` finds it."""

    def ratings_by_people(self) -> Sequence[Feedback]:
        """What counts of the numbers and names that people with a name gave traces, oldest first: no labels, notes, answers."""

    def unlabelled(self, limit: int, query: Query = Query()) -> Sequence[TraceSummary]:
        """Traces without a person's label, newest first."""

    def sessions(self, *, limit: int = 50, after: str | None = None) -> tuple[Sequence[TraceSession], str | None]:
        """Sessions with the latest first, and where the next page begins."""

    def statistics(self, query: Query = Query()) -> Statistics: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...
