"""The tables of captured traces, of their labels and rewards, and of the raw spans that some of them are made of.

traces ─┬─ trace_parts        what a trace is, in pieces: the header, then a row for each step
        ├─ trace_contents ─── contents        large texts, each kept once, whoever says it
        ├─ trace_models, trace_tools, trace_candidates        what filters and statistics ask for
        ├─ trace_calls        which trace a request of the gateway is in
        ├─ trace_responses        whose calls are whose: the same one reported twice counts once
        ├─ trace_labels, trace_rewards        what was said of it afterwards; rows are added, and changed only
  │                         where a word that came late changes what one taken back had left standing
        └─ trace_digests        all that statistics add up, a block of traces a row
span_traces ─ spans ─ scopes        what OpenTelemetry reported, as it came
part_words, content_words        the index of the full-text search; see `words`. `document_words` is that of documents
"""

from datetime import datetime

import sqlalchemy as sa

from journeyman.stores.tables import JSON, METADATA, NUMBER, Micros, Verbatim


def _seq() -> sa.Column[int]:
    return sa.Column("seq", NUMBER, primary_key=True)


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, NUMBER, nullable=False)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, Verbatim, nullable=False)


def _at(name: str = "at") -> sa.Column[datetime]:
    return sa.Column(name, Micros, nullable=False)


def _of_trace() -> sa.Column[int]:
    return sa.Column("trace", NUMBER, sa.ForeignKey("traces.seq", ondelete="CASCADE"), nullable=False)


TRACES = sa.Table(
    "traces",
    METADATA,
    _seq(),
    sa.Column("id", Verbatim, nullable=False, unique=True),
    _text("title"),
    sa.Column("agent", Verbatim),
    sa.Column("session", Verbatim),
    _text("task_id"),
    _text("domain"),
    _text("source"),
    _text("candidate_id"),
    sa.Column("models", JSON, nullable=False),
    _at("started_at"),
    sa.Column("seconds", sa.Float),
    _count("model_calls"),
    _count("tool_calls"),
    _count("failed_tool_calls"),
    sa.Column("input_tokens", NUMBER),
    sa.Column("output_tokens", NUMBER),
    sa.Column("cost", sa.Float),
    sa.Column("error", Verbatim),
    sa.Column("failed", sa.Boolean, nullable=False),
    sa.Column("own_label", sa.Boolean),
    sa.Column("label", sa.Boolean),
    sa.Column("labelled_by", Verbatim),
    sa.Column("reward", sa.Float),
    _count("steps"),
    _count("identified"),
    sa.Column("duplicate_of", NUMBER),
)
"""A row is what a list shows, and what it is filtered by; the words of `Line` and `Query` mean the same here.

`failed`: the trace or any step ended in an error, a failed tool call among them. `error` is the one that a list shows.
`own_label` is the recorder's; `label`, `labelled_by` and `reward` are what holds now, all things considered.
`identified` counts the different response ids of its model calls; 0 when one of them has none.
`duplicate_of` is the `seq` of the trace that tells the same and more. Such a trace is neither listed nor counted.
"""

sa.Index(
    "ix_traces_list",
    *(TRACES.c[name] for name in ("started_at", "seq", "duplicate_of", "agent", "session", "task_id", "domain", "source")),
    *(TRACES.c[name] for name in ("candidate_id", "failed", "label", "labelled_by", "reward")),
)
"""A list is read from this alone, in its order; only the lines that are shown are then fetched."""
sa.Index("ix_traces_session", TRACES.c.session, TRACES.c.started_at, TRACES.c.duplicate_of)
sa.Index("ix_traces_agent", TRACES.c.agent, TRACES.c.started_at)
sa.Index("ix_traces_task_id", TRACES.c.task_id)

PARTS = sa.Table(
    "trace_parts",
    METADATA,
    _seq(),
    _of_trace(),
    _count("position"),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("trace", "position"),
)
"""Position 0 is the header, the steps follow. A part whose digest is the same is not written again."""

CONTENTS = sa.Table(
    "contents",
    METADATA,
    _seq(),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    _count("size"),
    sa.Column("indexed", sa.Boolean, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
"""`size` is that of the body as it is kept, in bytes. What stands in a recorder's `raw` alone is not `indexed`."""

TRACE_CONTENTS = sa.Table(
    "trace_contents",
    METADATA,
    _seq(),
    _of_trace(),
    sa.Column("content", NUMBER, sa.ForeignKey("contents.seq"), nullable=False, index=True),
    sa.UniqueConstraint("trace", "content"),
)
"""Which traces a content stands in: for the search, and to know when nobody needs it any more."""

TRACE_MODELS = sa.Table(
    "trace_models",
    METADATA,
    _seq(),
    _of_trace(),
    _text("model"),
    _count("calls"),
    _count("input_tokens"),
    _count("output_tokens"),
    _count("uncounted"),
    sa.Column("cost", sa.Float, nullable=False),
    _count("unpriced"),
    sa.Column("seconds", sa.Float),
    sa.UniqueConstraint("trace", "model"),
    sa.Index("ix_trace_models_model", "model", "trace"),
)
"""Sums over the calls whose number is known. `uncounted` calls lack input or output tokens, `unpriced` ones the cost."""

TRACE_TOOLS = sa.Table(
    "trace_tools",
    METADATA,
    _seq(),
    _of_trace(),
    _text("tool"),
    _count("calls"),
    _count("failures"),
    _count("timed"),
    sa.Column("seconds", sa.Float, nullable=False),
    sa.UniqueConstraint("trace", "tool"),
    sa.Index("ix_trace_tools_tool", "tool", "trace"),
)
"""`seconds` is the sum over the `timed` calls."""

TRACE_CANDIDATES = sa.Table(
    "trace_candidates",
    METADATA,
    _seq(),
    _of_trace(),
    _text("candidate_id"),
    sa.UniqueConstraint("trace", "candidate_id"),
    sa.Index("ix_trace_candidates_candidate_id", "candidate_id", "trace"),
)
"""The other candidates in force; the first stands in `traces`."""

TRACE_RESPONSES = sa.Table(
    "trace_responses",
    METADATA,
    _seq(),
    _of_trace(),
    _text("response_id"),
    sa.UniqueConstraint("trace", "response_id"),
    sa.Index("ix_trace_responses_response_id", "response_id", "trace"),
)

TRACE_CALLS = sa.Table(
    "trace_calls",
    METADATA,
    _seq(),
    _of_trace(),
    _text("call_id"),
    sa.UniqueConstraint("trace", "call_id"),
    sa.Index("ix_trace_calls_call_id", "call_id"),
)
"""The requests of the gateway that are in a trace of another id: whoever made one knows no more than its id."""

TRACE_LABELS = sa.Table(
    "trace_labels",
    METADATA,
    _seq(),
    _of_trace(),
    sa.Column("good", sa.Boolean),
    _text("who"),
    _at(),
    sa.Column("probability", sa.Float),
    sa.Index("ix_trace_labels_trace", "trace"),
)

TRACE_REWARDS = sa.Table(
    "trace_rewards",
    METADATA,
    _seq(),
    _of_trace(),
    _text("name"),
    sa.Column("value", sa.Float),
    _text("evidence"),
    sa.Column("weight", sa.Float, nullable=False),
    _text("by"),
    _at(),
    sa.Index("ix_trace_rewards_trace", "trace"),
)
"""Rewards that were given here. Those that a trace came with are in its header."""

DIGEST_BLOCK = 10
"""Bits of a `seq` that tell the place in a block of digests: `seq >> DIGEST_BLOCK` is the block."""

TRACE_DIGESTS = sa.Table(
    "trace_digests",
    METADATA,
    sa.Column("block", NUMBER, primary_key=True, autoincrement=False),
    _count("format"),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
"""What statistics add up, see `digests`. A trigger deletes the row of a block when any of its `traces` is written. Whoever
changes what else a digest is made of (models, tools) writes the row of the trace in the same transaction."""

SPAN_TRACES = sa.Table(
    "span_traces",
    METADATA,
    _seq(),
    sa.Column("id", Verbatim, nullable=False, unique=True),
    _count("kept"),
    _count("read"),
    _at("began"),
    _at("since"),
)
"""How many spans of a trace are kept, and of how many it was last made; while these differ it is pending, `since` then."""

_PENDING = sa.Index("ix_span_traces_pending", SPAN_TRACES.c.since)


def make_partial(dialect: str) -> None:
    """Say of which rows an index is, in the words of a dialect: each that is named here is loaded, with all its drivers."""
    _PENDING.dialect_kwargs[f"{dialect}_where"] = SPAN_TRACES.c.kept > SPAN_TRACES.c.read


SCOPES = sa.Table(
    "scopes",
    METADATA,
    _seq(),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

SPANS = sa.Table(
    "spans",
    METADATA,
    _seq(),
    sa.Column("trace", NUMBER, sa.ForeignKey("span_traces.seq", ondelete="CASCADE"), nullable=False),
    _text("span_id"),
    _at(),
    sa.Column("scope", NUMBER, sa.ForeignKey("scopes.seq"), nullable=False, index=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("trace", "span_id"),
)
"""`trace` is a `seq` of `span_traces`."""

WORD_INDEXES = ("part_words", "content_words", "document_words")
"""The tables of the full-text search, without the texts themselves: these are kept once already, compressed."""
_FTS5 = "create virtual table {} using fts5(words, content = '', tokenize = 'unicode61 remove_diacritics 2')"
_FORGET = """
create trigger forget_digest_{event} after {event} on traces
begin delete from trace_digests where block = {row}.seq >> 10; end
"""
_EVENTS = ("insert", "update", "delete")
_TSVECTOR = (
    "create table {} (rowid bigserial primary key, words tsvector not null)",
    "create index ix_{0}_words on {0} using gin (words)",
)
_FORGETS = (
    """
create function forget_digest() returns trigger language plpgsql as $$
begin
    delete from trace_digests where block = (case when tg_op = 'DELETE' then old.seq else new.seq end) >> 10;
    return null;
end $$
""",
    "create trigger forget_digest after insert or update or delete on traces for each row execute function forget_digest()",
)


def create_search_and_triggers(connection: sa.Connection) -> None:
    """Make what SQLAlchemy has no words for: the full-text index, and what throws digests away that are out of date."""
    if connection.dialect.name == "sqlite":
        index = [_FTS5.format(name) for name in WORD_INDEXES]
        triggers = [_FORGET.format(event=event, row="old" if event == "delete" else "new") for event in _EVENTS]
    else:
        index = [sql.format(name) for name in WORD_INDEXES for sql in _TSVECTOR]
        triggers = list(_FORGETS)
    for statement in (*index, *triggers):
        connection.exec_driver_sql(statement)
