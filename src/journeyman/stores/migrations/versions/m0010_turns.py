"""Turns of learning that nobody asked for, what became of each, and what people told whoever carries them out."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    op.create_table(
        "turns",
        sa.Column("seq", NUMBER, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("kind", "agent", "domain")),
        sa.Column("began", NUMBER, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("parent", "trigger", "data_digest")),
        sa.Column("seen", NUMBER, nullable=False),
        sa.Column("before", JSON, nullable=False),
    )
    op.create_table(
        "turn_events",
        sa.Column("seq", NUMBER, primary_key=True),
        sa.Column("turn_id", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("at", NUMBER, nullable=False),
        sa.Column("cost", sa.Float),
        sa.Column("cpu_seconds", sa.Float, nullable=False),
        sa.Column("looks", sa.Integer, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("candidate", "reason")),
        sa.Column("report", JSON, nullable=False),
        sa.UniqueConstraint("turn_id", "number"),
    )
    op.create_table(
        "learn_orders",
        sa.Column("seq", NUMBER, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("verb", "who", "reason")),
        sa.Column("at", NUMBER, nullable=False),
    )
