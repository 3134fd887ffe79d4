"""Captured traces with their labels and rewards, raw spans, and the full-text search."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_FTS5 = "create virtual table {} using fts5(words, content = '', tokenize = 'unicode61 remove_diacritics 2')"
_FORGET = """
create trigger forget_digest_{event} after {event} on traces
begin delete from trace_digests where block = {row}.seq >> 10; end
"""
_FORGETS = """
create function forget_digest() returns trigger language plpgsql as $$
begin
    delete from trace_digests where block = (case when tg_op = 'DELETE' then old.seq else new.seq end) >> 10;
    return null;
end $$
"""


def _seq() -> sa.Column[int]:
    return sa.Column("seq", NUMBER, primary_key=True)


def _texts(*names: str, nullable: bool = False) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=nullable) for name in names]


def _numbers(*names: str, nullable: bool = False) -> list[sa.Column[int]]:
    return [sa.Column(name, NUMBER, nullable=nullable) for name in names]


def _floats(*names: str, nullable: bool = True) -> list[sa.Column[float]]:
    return [sa.Column(name, sa.Float, nullable=nullable) for name in names]


def _flags(*names: str, nullable: bool = True) -> list[sa.Column[bool]]:
    return [sa.Column(name, sa.Boolean, nullable=nullable) for name in names]


def _bytes(*names: str) -> list[sa.Column[bytes]]:
    return [sa.Column(name, sa.LargeBinary, nullable=False) for name in names]


def _points_to(name: str, table: str, *, ondelete: str | None = None) -> sa.Column[int]:
    return sa.Column(name, NUMBER, sa.ForeignKey(f"{table}.seq", ondelete=ondelete), nullable=False)


def _of_trace(table: str, *columns: sa.schema.SchemaItem) -> None:
    op.create_table(table, _seq(), _points_to("trace", "traces", ondelete="CASCADE"), *columns)


def upgrade() -> None:
    _traces()
    _pieces()
    _of_each()
    _said_afterwards()
    _digests()
    _spans()
    for name in ("part_words", "content_words"):
        _words(name)


def _traces() -> None:
    op.create_table(
        "traces",
        _seq(),
        *_texts("id", "title"),
        *_texts("agent", "session", nullable=True),
        *_texts("task_id", "domain", "source", "candidate_id"),
        sa.Column("models", sa.JSON, nullable=False),
        *_numbers("started_at"),
        *_floats("seconds"),
        *_numbers("model_calls", "tool_calls", "failed_tool_calls"),
        *_numbers("input_tokens", "output_tokens", nullable=True),
        *_floats("cost"),
        *_texts("error", nullable=True),
        *_flags("failed", nullable=False),
        *_flags("own_label", "label"),
        *_texts("labelled_by", nullable=True),
        *_floats("reward"),
        *_numbers("steps", "identified"),
        *_numbers("duplicate_of", nullable=True),
        sa.UniqueConstraint("id"),
    )
    listed = ["started_at", "seq", "duplicate_of", "agent", "session", "task_id", "domain", "source", "candidate_id", "failed"]
    op.create_index("ix_traces_list", "traces", [*listed, "label", "labelled_by", "reward"])
    op.create_index("ix_traces_session", "traces", ["session", "started_at", "duplicate_of"])
    op.create_index("ix_traces_agent", "traces", ["agent", "started_at"])
    op.create_index("ix_traces_task_id", "traces", ["task_id"])


def _pieces() -> None:
    _of_trace("trace_parts", *_numbers("position"), *_bytes("digest", "body"), sa.UniqueConstraint("trace", "position"))
    op.create_table(
        "contents",
        _seq(),
        *_texts("digest"),
        *_numbers("size"),
        *_flags("indexed", nullable=False),
        *_bytes("body"),
        sa.UniqueConstraint("digest"),
    )
    _of_trace("trace_contents", _points_to("content", "contents"), sa.UniqueConstraint("trace", "content"))
    op.create_index("ix_trace_contents_content", "trace_contents", ["content"])


def _of_each() -> None:
    _of_trace(
        "trace_models",
        *_texts("model"),
        *_numbers("calls", "input_tokens", "output_tokens", "uncounted"),
        *_floats("cost", nullable=False),
        *_numbers("unpriced"),
        *_floats("seconds"),
        sa.UniqueConstraint("trace", "model"),
    )
    _of_trace(
        "trace_tools",
        *_texts("tool"),
        *_numbers("calls", "failures", "timed"),
        *_floats("seconds", nullable=False),
        sa.UniqueConstraint("trace", "tool"),
    )
    _of_trace("trace_candidates", *_texts("candidate_id"), sa.UniqueConstraint("trace", "candidate_id"))
    _of_trace("trace_responses", *_texts("response_id"), sa.UniqueConstraint("trace", "response_id"))
    for table, column in (("models", "model"), ("tools", "tool"), ("candidates", "candidate_id"), ("responses", "response_id")):
        op.create_index(f"ix_trace_{table}_{column}", f"trace_{table}", [column, "trace"])


def _said_afterwards() -> None:
    _of_trace("trace_labels", *_flags("good"), *_texts("who"), *_numbers("at"), *_floats("probability"))
    _of_trace(
        "trace_rewards",
        *_texts("name"),
        *_floats("value"),
        *_texts("evidence"),
        *_floats("weight", nullable=False),
        *_texts("by"),
        *_numbers("at"),
    )
    for table in ("trace_labels", "trace_rewards"):
        op.create_index(f"ix_{table}_trace", table, ["trace"])


def _digests() -> None:
    """Kept from one question to the next; a block of which a trace is written is thrown away."""
    block = sa.Column("block", NUMBER, primary_key=True, autoincrement=False)
    op.create_table("trace_digests", block, *_numbers("format"), *_bytes("body"))
    if op.get_bind().dialect.name == "sqlite":
        for event, row in (("insert", "new"), ("update", "new"), ("delete", "old")):
            op.execute(_FORGET.format(event=event, row=row))
        return
    op.execute(_FORGETS)
    op.execute(
        "create trigger forget_digest after insert or update or delete on traces for each row execute function forget_digest()"
    )


def _spans() -> None:
    counts = _numbers("kept", "read", "began", "since")
    op.create_table("span_traces", _seq(), *_texts("id"), *counts, sa.UniqueConstraint("id"))
    pending = sa.text("kept > read")
    op.create_index("ix_span_traces_pending", "span_traces", ["since"], sqlite_where=pending, postgresql_where=pending)
    op.create_table("scopes", _seq(), *_texts("digest"), *_bytes("body"), sa.UniqueConstraint("digest"))
    op.create_table(
        "spans",
        _seq(),
        _points_to("trace", "span_traces", ondelete="CASCADE"),
        *_texts("span_id"),
        *_numbers("at"),
        _points_to("scope", "scopes"),
        *_bytes("body"),
        sa.UniqueConstraint("trace", "span_id"),
    )
    op.create_index("ix_spans_scope", "spans", ["scope"])


def _words(name: str) -> None:
    """An index without the texts themselves: these are kept once already, compressed."""
    if op.get_bind().dialect.name == "sqlite":
        op.execute(_FTS5.format(name))
        return
    from sqlalchemy.dialects.postgresql import TSVECTOR

    op.create_table(name, sa.Column("rowid", sa.BigInteger, primary_key=True), sa.Column("words", TSVECTOR, nullable=False))
    op.create_index(f"ix_{name}_words", name, ["words"], postgresql_using="gin")
