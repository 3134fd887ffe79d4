"""The tables as this version of the code reads and writes them. How a database got there is told by `migrations`.

Every table has a `seq` that grows, so that what is listed comes in the order in which it was added.
"""

import re
from datetime import UTC, datetime, timedelta
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


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNKEEPABLE = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPED = re.compile("\x1a([0-9a-f]{4})")


def micros(at: datetime) -> int:
    """A time with a zone, as microseconds since 1970: exact, and the same day in both databases by division."""
    return (at - _EPOCH) // _MICROSECOND


def moment(micros: int) -> datetime:
    return _EPOCH + micros * _MICROSECOND


def escaped(text: str) -> str:
    """Text that a database keeps: PostgreSQL refuses NUL, and neither keeps half a surrogate pair."""
    return _UNKEEPABLE.sub(lambda found: f"\x1a{ord(found[0]):04x}", text) if _UNKEEPABLE.search(text) else text


def unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text) if "\x1a" in text else text


class Micros(sa.types.TypeDecorator[datetime]):
    """A time with a zone, kept as microseconds since 1970."""

    impl = NUMBER
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> int | None:
        return None if value is None else micros(value)

    def process_result_value(self, value: int | None, dialect: sa.Dialect) -> datetime | None:
        return None if value is None else moment(value)


class Verbatim(sa.types.TypeDecorator[str]):
    """Any text at all, and the same again when it is read."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else escaped(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else unescaped(value)


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


# What is served live, and the rollouts that bring it there. Rows are added, never changed.


def _any_text(name: str, **options: Any) -> sa.Column[str]:
    """A text from outside."""
    return sa.Column(name, Verbatim, nullable=False, **options)


def _at(name: str = "at") -> sa.Column[datetime]:
    return sa.Column(name, Micros, nullable=False)


ROLLOUTS = sa.Table(
    "rollouts",
    METADATA,
    _seq(),
    _text("id", unique=True),
    _text("slot", index=True),
    sa.Column("body", JSON, nullable=False),
    _at("created_at"),
)
"""`body` is all of a rollout that is fixed when it begins: arms, baseline, salt, plan, the gate's verdict."""

ROLLOUT_EVENTS = sa.Table(
    "rollout_events",
    METADATA,
    _seq(),
    sa.Column("rollout_id", sa.Text, sa.ForeignKey("rollouts.id"), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    _text("kind"),
    sa.Column("shares", JSON, nullable=False),
    _any_text("reason"),
    _any_text("actor"),
    sa.Column("evidence", JSON, nullable=False),
    sa.Column("forced", sa.Boolean, nullable=False),
    _at(),
    sa.UniqueConstraint("rollout_id", "number"),
)
"""Two who decide at once are one decision: the number of the second is taken."""

SLOT_MOVES = sa.Table(
    "slot_moves",
    METADATA,
    _seq(),
    _text("slot"),
    sa.Column("number", sa.Integer, nullable=False),
    _text("candidate_id"),
    _text("digest"),
    sa.Column("rollout_id", sa.Text),
    _any_text("reason"),
    _any_text("actor"),
    _at(),
    sa.UniqueConstraint("slot", "number"),
)
"""What came into production of a slot; what is there is the last row. `base` is nothing."""

ASSIGNMENTS = sa.Table(
    "assignments",
    METADATA,
    _seq(),
    _text("rollout_id"),
    _text("unit"),
    _text("arm"),
    sa.Column("event", sa.Integer, nullable=False),
    _text("why"),
    _at(),
    sa.UniqueConstraint("rollout_id", "unit"),
)
"""Which arm a session is on: the first row, whoever wrote it. `event` is the number of the event whose shares drew it."""


def _compared_call() -> tuple[sa.Column[Any], ...]:
    """What the arms of a rollout are compared by, of one call."""
    return (
        _any_text("trace_id", index=True),
        sa.Column("failed", sa.Boolean, nullable=False),
        sa.Column("seconds", sa.Float),
        sa.Column("cost", sa.Float),
        sa.Column("tokens", NUMBER),
        _at(),
    )


SERVED_CALLS = sa.Table(
    "served_calls",
    METADATA,
    _seq(),
    _text("rollout_id"),
    _text("unit"),
    _any_text("call_id"),
    *_compared_call(),
    sa.Column("recorded_at", Micros),
    sa.UniqueConstraint("rollout_id", "call_id"),
    sa.Index("ix_served_calls_unit", "rollout_id", "unit"),
)
"""The answers that a session got while it was on an arm, kept with their traces. `recorded_at` is when they came here; null in
rows of before it was kept."""

MIRRORED_CALLS = sa.Table(
    "mirrored_calls",
    METADATA,
    _seq(),
    _text("rollout_id"),
    _text("pair"),
    _text("arm"),
    _text("unit"),
    *_compared_call(),
    sa.UniqueConstraint("rollout_id", "pair", "arm"),
)
"""The two answers of one request that was mirrored, kept with their traces: production's, which the client was given, and the
candidate's, which nobody was. `pair` is the id of the request."""

SERVED_MODELS = sa.Table(
    "served_models",
    METADATA,
    _seq(),
    _text("candidate_id", index=True),
    _any_text("url"),
    _any_text("model"),
    _text("digest"),
    _any_text("file"),
    sa.Column("replaces", JSON, nullable=False),
    _at(),
)
"""Where learned weights answer: of each candidate the last row, which has no URL where they do no longer."""

FEEDBACK = sa.Table(
    "feedback",
    METADATA,
    _seq(),
    _any_text("id", unique=True),
    _text("target_kind"),
    _any_text("target"),
    _any_text("metric"),
    sa.Column("value", sa.Float),
    sa.Column("text", Verbatim),
    _text("source"),
    sa.Column("rater", Verbatim),
    sa.Column("tags", JSON, nullable=False),
    _at(),
    _at("received_at"),
    sa.Index("ix_feedback_target", "target_kind", "target", "metric"),
)
"""What was said of a request, a trace, a task or a session, before or after it was recorded. Of several words of one rater on
one metric the last counts."""

SESSION_SCORES = sa.Table(
    "session_scores",
    METADATA,
    _seq(),
    _text("rollout_id"),
    _text("unit"),
    _text("metric"),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("value", sa.Float),
    sa.Column("sources", JSON, nullable=False),
    _at(),
    sa.UniqueConstraint("rollout_id", "unit", "metric", "version"),
)
"""What entered the test, exactly. `value` is NULL where nobody knows; a correction that came later is another version."""

EVIDENCE = sa.Table(
    "evidence",
    METADATA,
    _seq(),
    _text("rollout_id"),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("upto", NUMBER, nullable=False),
    sa.Column("state", JSON, nullable=False),
    sa.Column("summary", JSON, nullable=False),
    _at(),
    sa.UniqueConstraint("rollout_id", "number"),
)
"""`upto` is the `seq` of the last assignment that is in it."""

LEASES = sa.Table(
    "leases",
    METADATA,
    _seq(),
    _text("name", unique=True),
    _text("holder"),
    sa.Column("generation", sa.Integer, nullable=False),
    _at("until"),
)
"""Who does what only one may do. Its rows, and those of `source_states`, are changed; no others are."""

AUDIT = sa.Table(
    "audit",
    METADATA,
    _seq(),
    _any_text("actor"),
    _text("action"),
    _any_text("target"),
    sa.Column("before", JSON),
    sa.Column("after", JSON),
    _any_text("reason"),
    _at(),
    _text("previous", unique=True),
    _text("hash"),
)
"""Who or what changed what is served, when and why. `hash` is over the row and the hash of the one before it."""


# Alerts.

ALERTS = sa.Table(
    "alerts",
    METADATA,
    _seq(),
    _text("fingerprint"),
    sa.Column("number", sa.Integer, nullable=False),
    _text("rule"),
    _any_text("subject"),
    _any_text("slot"),
    _text("severity"),
    _text("state"),
    _text("change"),
    sa.Column("tells", sa.Boolean, nullable=False),
    sa.Column("value", sa.Float),
    sa.Column("bound", sa.Float),
    _any_text("says"),
    sa.Column("evidence", JSON, nullable=False),
    _at("began_at"),
    sa.Column("fired_at", Micros),
    sa.Column("told_at", Micros),
    _any_text("acknowledged_by"),
    _at(),
    _any_text("who"),
    sa.UniqueConstraint("fingerprint", "number"),
    sa.Index("ix_alerts_at", "at"),
)
"""What happened to alerts; one is as its last row says."""

SILENCES = sa.Table(
    "silences",
    METADATA,
    _seq(),
    _text("id"),
    sa.Column("number", sa.Integer, nullable=False),
    _any_text("rule"),
    _any_text("about"),
    _at("until"),
    _any_text("who"),
    _any_text("why"),
    _at(),
    _any_text("lifted_by"),
    sa.UniqueConstraint("id", "number"),
)

OUTBOX = sa.Table(
    "outbox",
    METADATA,
    _seq(),
    _text("fingerprint"),
    sa.Column("number", sa.Integer, nullable=False),
    _any_text("channel"),
    sa.Column("attempt", sa.Integer, nullable=False),
    _text("status"),
    _any_text("detail"),
    _at("due_at"),
    _at(),
    sa.UniqueConstraint("fingerprint", "number", "channel", "attempt", "status"),
)
"""What a channel is to be told, and each try. Whoever adds the claim of a try makes it: of two, one."""

SAMPLES = sa.Table(
    "samples",
    METADATA,
    _seq(),
    _any_text("host"),
    _text("process"),
    sa.Column("cpu", sa.Float),
    sa.Column("memory", sa.Float),
    sa.Column("memory_bytes", NUMBER),
    sa.Column("gpu", sa.Float),
    sa.Column("gpu_memory", sa.Float),
    sa.Column("disk", sa.Float),
    _at(),
    sa.Index("ix_samples_at", "at"),
)
"""How busy machine and processes were, as shares of what there is; NULL where nobody can tell. Old rows are thinned out."""


# What a team wrote, and how far each source of it was read.

DOCUMENTS = sa.Table(
    "documents",
    METADATA,
    _seq(),
    _any_text("id", unique=True),
    _text("source"),
    _any_text("place"),
    _any_text("key"),
    _text("kind"),
    _any_text("title"),
    sa.Column("author", Verbatim),
    sa.Column("at", Micros),
    sa.Column("raw", JSON, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    _at("collected_at"),
    sa.Index("ix_documents_key", "source", "place", "key", "seq"),
)
"""Of several rows with one source, place and key the last is what holds; the others are what it said before. `body` is the
text, packed; its words are in `document_words`, at the same number."""

SOURCE_STATES = sa.Table(
    "source_states",
    METADATA,
    _seq(),
    _text("source"),
    _any_text("key"),
    sa.Column("state", JSON, nullable=False),
    _at(),
    sa.UniqueConstraint("source", "key"),
)
"""How far what stands under a key of a source was read: written in the transaction that keeps what was read up to there."""


# Turns of learning that nobody asked for.

TURNS = sa.Table(
    "turns",
    METADATA,
    _seq(),
    _text("id", unique=True),
    _text("kind"),
    _any_text("agent"),
    _any_text("domain"),
    _at("began"),
    _text("parent"),
    _any_text("trigger"),
    _text("data_digest"),
    sa.Column("seen", NUMBER, nullable=False),
    sa.Column("before", JSON, nullable=False),
)

TURN_EVENTS = sa.Table(
    "turn_events",
    METADATA,
    _seq(),
    _text("turn_id"),
    sa.Column("number", sa.Integer, nullable=False),
    _text("state"),
    _at(),
    sa.Column("cost", sa.Float),
    sa.Column("cpu_seconds", sa.Float, nullable=False),
    sa.Column("looks", sa.Integer, nullable=False),
    _text("candidate"),
    _any_text("reason"),
    sa.Column("report", JSON, nullable=False),
    sa.UniqueConstraint("turn_id", "number"),
)
"""What became of a turn: its last row holds. `cost` is NULL where nobody knows."""

LEARN_ORDERS = sa.Table("learn_orders", METADATA, _seq(), _text("verb"), _any_text("who"), _any_text("reason"), _at())
"""What people told whoever carries out turns: `stop`, `pause` and `resume`."""
