"""Documents that a team wrote, with an index of their words, and how far each source was read."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True)


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def upgrade() -> None:
    op.create_table(
        "documents",
        sa.Column("seq", NUMBER, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        *_texts("source", "place", "key", "kind", "title"),
        sa.Column("author", sa.Text),
        sa.Column("at", NUMBER),
        sa.Column("raw", JSON, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("collected_at", NUMBER, nullable=False),
    )
    op.create_index("ix_documents_key", "documents", ["source", "place", "key", "seq"])
    op.create_table(
        "source_states",
        sa.Column("seq", NUMBER, primary_key=True),
        *_texts("source", "key"),
        sa.Column("state", JSON, nullable=False),
        sa.Column("at", NUMBER, nullable=False),
        sa.UniqueConstraint("source", "key"),
    )
    if op.get_context().dialect.name == "sqlite":
        op.execute(
            "create virtual table document_words using fts5(words, content = '', tokenize = 'unicode61 remove_diacritics 2')"
        )
    else:
        op.execute("create table document_words (rowid bigserial primary key, words tsvector not null)")
        op.execute("create index ix_document_words_words on document_words using gin (words)")
