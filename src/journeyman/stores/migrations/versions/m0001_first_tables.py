"""Runs, attempts, candidates, evaluations, looks and moves."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)


def _seq() -> sa.Column[int]:
    return sa.Column("seq", NUMBER, primary_key=True)


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def _json(name: str, *, nullable: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.JSON, nullable=nullable)


def _at(name: str = "at") -> sa.Column[object]:
    return sa.Column(name, MOMENT, nullable=False)


def _of_run() -> sa.Column[str]:
    return sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id"), nullable=False)


def upgrade() -> None:
    _runs_and_attempts()
    op.create_table("candidates", _seq(), *_texts("id", "kind", "body"), _json("parents"), sa.UniqueConstraint("id"))
    op.create_table(
        "evaluations",
        _seq(),
        *_texts("id", "candidate_id", "baseline_id", "held_out_id"),
        sa.Column("passed", sa.Boolean, nullable=False),
        *_texts("reason"),
        _json("report"),
        _at(),
        sa.UniqueConstraint("id"),
    )
    op.create_table(
        "looks",
        _seq(),
        *_texts("held_out_id"),
        sa.Column("number", sa.Integer, nullable=False),
        *_texts("candidate_id", "evaluation_id"),
        _at(),
        sa.UniqueConstraint("held_out_id", "number"),
        sa.UniqueConstraint("held_out_id", "candidate_id", "evaluation_id"),
    )
    op.create_table(
        "moves",
        _seq(),
        *_texts("candidate_id"),
        sa.Column("number", sa.Integer, nullable=False),
        *_texts("stage", "reason"),
        sa.Column("forced", sa.Boolean, nullable=False),
        _at(),
        sa.UniqueConstraint("candidate_id", "number"),
    )
    _index("attempts", "task_id", "candidate_id", "domain", "started_at")
    _index("evaluations", "candidate_id", "held_out_id")


def _runs_and_attempts() -> None:
    op.create_table("runs", _seq(), *_texts("id", "kind"), _json("config"), _at("started_at"), sa.UniqueConstraint("id"))
    op.create_table(
        "run_marks",
        _seq(),
        _of_run(),
        *_texts("state"),
        _at(),
        _json("result", nullable=True),
        sa.UniqueConstraint("run_id", "at", "state"),
    )
    op.create_table(
        "attempts",
        _seq(),
        _of_run(),
        *_texts("id", "task_id", "candidate_id", "domain", "split"),
        sa.Column("total", sa.Float),
        sa.Column("tokens", NUMBER),
        sa.Column("cost", sa.Float),
        _at("started_at"),
        _json("trace"),
        _json("score"),
        sa.UniqueConstraint("run_id", "id"),
    )


def _index(table: str, *columns: str) -> None:
    for column in columns:
        op.create_index(f"ix_{table}_{column}", table, [column])
