"""Alerts, what is silenced, what is still to be told, and samples of the machine."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True)


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def _column(name: str, kind: sa.types.TypeEngine[Any], *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=nullable)


def _table(name: str, *columns: sa.schema.SchemaItem, unique: tuple[str, ...] = ()) -> None:
    keys = [sa.UniqueConstraint(*unique)] if unique else []
    op.create_table(name, sa.Column("seq", NUMBER, primary_key=True), *columns, *keys)


def upgrade() -> None:
    whole, real = sa.Integer(), sa.Float()
    _table(
        "alerts",
        *_texts("fingerprint"),
        _column("number", whole),
        *_texts("rule", "subject", "slot", "severity", "state", "change"),
        _column("tells", sa.Boolean()),
        *(_column(name, real, nullable=True) for name in ("value", "bound")),
        *_texts("says"),
        _column("evidence", JSON),
        _column("began_at", NUMBER),
        *(_column(name, NUMBER, nullable=True) for name in ("fired_at", "told_at")),
        *_texts("acknowledged_by"),
        _column("at", NUMBER),
        *_texts("who"),
        unique=("fingerprint", "number"),
    )
    op.create_index("ix_alerts_at", "alerts", ["at"])
    _table(
        "silences",
        *_texts("id"),
        _column("number", whole),
        *_texts("rule", "about"),
        _column("until", NUMBER),
        *_texts("who", "why"),
        _column("at", NUMBER),
        *_texts("lifted_by"),
        unique=("id", "number"),
    )
    _table(
        "outbox",
        *_texts("fingerprint"),
        _column("number", whole),
        *_texts("channel"),
        _column("attempt", whole),
        *_texts("status", "detail"),
        _column("due_at", NUMBER),
        _column("at", NUMBER),
        unique=("fingerprint", "number", "channel", "attempt", "status"),
    )
    _table(
        "samples",
        *_texts("host", "process"),
        *(_column(name, real, nullable=True) for name in ("cpu", "memory")),
        _column("memory_bytes", NUMBER, nullable=True),
        *(_column(name, real, nullable=True) for name in ("gpu", "gpu_memory", "disk")),
        _column("at", NUMBER),
    )
    op.create_index("ix_samples_at", "samples", ["at"])
