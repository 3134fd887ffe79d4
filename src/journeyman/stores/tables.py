"""The tables as this version of the code reads and writes them. How a database got there is told by `migrations`.

Every table has a `seq` that grows, so that what is listed comes in the order in which it was added.
"""

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

METADATA = sa.MetaData()
JSON = sa.JSON(none_as_null=True)
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""SQLite only counts up a key whose type is spelled INTEGER."""


class Moment(sa.types.TypeDecorator[datetime]):
    """A time with a zone, kept in UTC. SQLite has no zones, and PostgreSQL answers in its own: reading puts it right."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _seq() -> sa.Column[int]:
    return sa.Column("seq", NUMBER, primary_key=True)


def _text(name: str, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False, **options)


RUNS = sa.Table(
    "runs",
    METADATA,
    _seq(),
    _text("id", unique=True),
    _text("kind"),
    sa.Column("config", JSON, nullable=False),
    sa.Column("started_at", Moment, nullable=False),
)

RUN_MARKS = sa.Table(
    "run_marks",
    METADATA,
    _seq(),
    sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id"), nullable=False),
    _text("state"),
    sa.Column("at", Moment, nullable=False),
    sa.Column("result", JSON),
    sa.UniqueConstraint("run_id", "at", "state"),
)
"""What became of a run. The state of a run is its latest mark, and is never written over."""

ATTEMPTS = sa.Table(
    "attempts",
    METADATA,
    _seq(),
    sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id"), nullable=False),
    _text("id"),
    _text("task_id", index=True),
    _text("candidate_id", index=True),
    _text("domain", index=True),
    _text("split"),
    sa.Column("total", sa.Float),
    sa.Column("tokens", NUMBER),
    sa.Column("cost", sa.Float),
    sa.Column("started_at", Moment, nullable=False, index=True),
    sa.Column("trace", NUMBER, sa.ForeignKey("traces.seq"), index=True),
    sa.Column("changed", JSON),
    sa.Column("unread", JSON),
    sa.Column("score", JSON, nullable=False),
    sa.UniqueConstraint("run_id", "id"),
)
"""`trace` is a `seq` of the traces; `changed` is what of it is told otherwise there: its source, and its `raw` of a run.
`unread` is what stood in the place of a trace in a store of before, where that could not be read; then there is no `trace`.

`total`, `tokens` and `cost` are NULL when unknown: unknown is not zero, and SQL's `avg` and `sum` skip it."""

CANDIDATES = sa.Table(
    "candidates",
    METADATA,
    _seq(),
    _text("id", unique=True),
    _text("kind"),
    _text("body"),
    sa.Column("parents", JSON, nullable=False),
)

EVALUATIONS = sa.Table(
    "evaluations",
    METADATA,
    _seq(),
    _text("id", unique=True),
    _text("candidate_id", index=True),
    _text("baseline_id"),
    _text("held_out_id", index=True),
    sa.Column("passed", sa.Boolean, nullable=False),
    _text("reason"),
    sa.Column("report", JSON, nullable=False),
    sa.Column("at", Moment, nullable=False),
)

LOOKS = sa.Table(
    "looks",
    METADATA,
    _seq(),
    _text("held_out_id"),
    sa.Column("number", sa.Integer, nullable=False),
    _text("candidate_id"),
    _text("evaluation_id"),
    sa.Column("at", Moment, nullable=False),
    sa.UniqueConstraint("held_out_id", "number"),
    sa.UniqueConstraint("held_out_id", "candidate_id", "evaluation_id"),
)

MOVES = sa.Table(
    "moves",
    METADATA,
    _seq(),
    _text("candidate_id"),
    sa.Column("number", sa.Integer, nullable=False),
    _text("stage"),
    _text("reason"),
    sa.Column("forced", sa.Boolean, nullable=False),
    sa.Column("at", Moment, nullable=False),
    sa.UniqueConstraint("candidate_id", "number"),
)
"""The moves of all releases; a release is its moves in order."""
