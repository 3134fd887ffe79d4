"""What a candidate answered to requests that were mirrored to it, beside production's answers."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "mirrored_calls",
        sa.Column("seq", NUMBER, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("rollout_id", "pair", "arm", "unit", "trace_id")),
        sa.Column("failed", sa.Boolean, nullable=False),
        sa.Column("seconds", sa.Float),
        sa.Column("cost", sa.Float),
        sa.Column("tokens", NUMBER),
        sa.Column("at", NUMBER, nullable=False),
        sa.UniqueConstraint("rollout_id", "pair", "arm"),
    )
    op.create_index("ix_mirrored_calls_trace_id", "mirrored_calls", ["trace_id"])
