"""An attempt points to its trace among the traces, instead of keeping a second copy.

What was kept is renamed to `told` here. `journeyman.stores.traces.attempts.move` then puts it among the traces, and drops it.
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    number = "integer" if op.get_bind().dialect.name == "sqlite" else "bigint"
    op.execute("alter table attempts rename column trace to told")
    op.execute(f"alter table attempts add column trace {number} references traces (seq)")
    op.execute("alter table attempts add column changed json")
    op.execute("alter table attempts add column unread json")
    op.create_index("ix_attempts_trace", "attempts", ["trace"])
