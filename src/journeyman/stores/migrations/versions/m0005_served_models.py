"""Where learned weights answer."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    texts = [sa.Column(name, sa.Text, nullable=False) for name in ("candidate_id", "url", "model", "digest", "file")]
    json = sa.Column("replaces", sa.JSON(none_as_null=True), nullable=False)
    seq, at = sa.Column("seq", NUMBER, primary_key=True), sa.Column("at", NUMBER, nullable=False)
    op.create_table("served_models", seq, *texts, json, at)
    op.create_index("ix_served_models_candidate_id", "served_models", ["candidate_id"])
