"""What is served live: rollouts with their events, slots, assignments, feedback, evidence, leases and the audit; and
which trace a request is in."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True)


def _texts(*names: str, nullable: bool = False) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=nullable) for name in names]


def _column(name: str, kind: sa.types.TypeEngine[Any], *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=nullable)


def _table(name: str, *columns: sa.schema.SchemaItem, unique: tuple[str, ...] = ()) -> None:
    keys = [sa.UniqueConstraint(*unique)] if unique else []
    op.create_table(name, sa.Column("seq", NUMBER, primary_key=True), *columns, *keys)


def upgrade() -> None:
    whole = sa.Integer()
    _table("rollouts", *_texts("id", "slot"), _column("body", JSON), _column("created_at", NUMBER), unique=("id",))
    op.create_index("ix_rollouts_slot", "rollouts", ["slot"])
    _table(
        "rollout_events",
        sa.Column("rollout_id", sa.Text, sa.ForeignKey("rollouts.id"), nullable=False),
        _column("number", whole),
        *_texts("kind"),
        _column("shares", JSON),
        *_texts("reason", "actor"),
        _column("evidence", JSON),
        _column("forced", sa.Boolean()),
        _column("at", NUMBER),
        unique=("rollout_id", "number"),
    )
    _table(
        "slot_moves",
        *_texts("slot"),
        _column("number", whole),
        *_texts("candidate_id", "digest"),
        *_texts("rollout_id", nullable=True),
        *_texts("reason", "actor"),
        _column("at", NUMBER),
        unique=("slot", "number"),
    )
    _table(
        "assignments",
        *_texts("rollout_id", "unit", "arm"),
        _column("event", whole),
        *_texts("why"),
        _column("at", NUMBER),
        unique=("rollout_id", "unit"),
    )
    _sessions()
    _table(
        "trace_calls",
        sa.Column("trace", NUMBER, sa.ForeignKey("traces.seq", ondelete="CASCADE"), nullable=False),
        *_texts("call_id"),
        unique=("trace", "call_id"),
    )
    op.create_index("ix_trace_calls_call_id", "trace_calls", ["call_id"])
    _table("leases", *_texts("name", "holder"), _column("generation", whole), _column("until", NUMBER), unique=("name",))
    _table(
        "audit",
        *_texts("actor", "action", "target"),
        _column("before", JSON, nullable=True),
        _column("after", JSON, nullable=True),
        *_texts("reason"),
        _column("at", NUMBER),
        *_texts("previous", "hash"),
        unique=("previous",),
    )


def _sessions() -> None:
    """What came of sessions, and what follows from it."""
    whole, real = sa.Integer(), sa.Float()
    _table(
        "served_calls",
        *_texts("rollout_id", "unit", "call_id", "trace_id"),
        _column("failed", sa.Boolean()),
        _column("seconds", real, nullable=True),
        _column("cost", real, nullable=True),
        _column("tokens", NUMBER, nullable=True),
        _column("at", NUMBER),
        unique=("rollout_id", "call_id"),
    )
    op.create_index("ix_served_calls_unit", "served_calls", ["rollout_id", "unit"])
    op.create_index("ix_served_calls_trace_id", "served_calls", ["trace_id"])
    _table(
        "feedback",
        *_texts("id", "target_kind", "target", "metric"),
        _column("value", real, nullable=True),
        *_texts("text", nullable=True),
        *_texts("source"),
        *_texts("rater", nullable=True),
        _column("tags", JSON),
        _column("at", NUMBER),
        _column("received_at", NUMBER),
        unique=("id",),
    )
    op.create_index("ix_feedback_target", "feedback", ["target_kind", "target", "metric"])
    _table(
        "session_scores",
        *_texts("rollout_id", "unit", "metric"),
        _column("version", whole),
        _column("value", real, nullable=True),
        _column("sources", JSON),
        _column("at", NUMBER),
        unique=("rollout_id", "unit", "metric", "version"),
    )
    _table(
        "evidence",
        *_texts("rollout_id"),
        _column("number", whole),
        _column("upto", NUMBER),
        _column("state", JSON),
        _column("summary", JSON),
        _column("at", NUMBER),
        unique=("rollout_id", "number"),
    )
