"""What Alembic runs to migrate. The connection comes from `journeyman.stores.engine`, which has locked the database."""

from alembic import context

from journeyman.stores.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    # SQLite can undo DDL as well; Alembic only does not expect it to.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
