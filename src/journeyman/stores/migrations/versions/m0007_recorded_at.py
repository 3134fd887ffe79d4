"""When the answers of a session came into the store, so that whoever looks later counts no more of them."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.add_column("served_calls", sa.Column("recorded_at", number))
