"""The file of results that a training run on scenarios leaves: one row for each attempt, and sums.

The fields that users of older systems know keep their names; what is not known is null, never 0.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from journeyman import app
from journeyman.agents.workshop import CHECKS, last_files
from journeyman.errors import InputError, boundary
from journeyman.learn.playbook.progress import Spent
from journeyman.learn.playbook.runs import Run, write_json
from journeyman.rollout import Attempt
from journeyman.tasks.scenarios import Scenario
from journeyman.trace import total

Row = Mapping[str, Any]
"""One attempt, as it stands in the file; see docs/scenarios.md."""
PREVIEW = 500
"""Characters of the work."""


def row_of(attempt: Attempt, scenario: Scenario, *, at: datetime) -> Row:
    """One attempt as a row."""
    trace, reward = attempt.trace, attempt.score.rewards[0]
    checked = bool(scenario.checks)
    proven = reward.value is not None and reward.name == CHECKS
    success = reward.value >= 1 if reward.value is not None and proven else None
    work = "\n".join(last_files(trace).values()) or trace.reply
    return {
        "id": trace.id,
        "timestamp": at.isoformat(timespec="seconds"),
        "scenario": {"name": scenario.name, "goal": scenario.goal, "category": scenario.category},
        "success": success,
        "verified": success is True,
        "scored_by": "checks" if checked else "reading",
        "output_preview": work[:PREVIEW],
        "evidence": reward.evidence,
        "metadata": {
            "cost_usd": trace.cost if trace.calls else None,
            "tokens_used": total((trace.input_tokens, trace.output_tokens)) if trace.calls else None,
            "performance_score": reward.value,
            "skills_used": len(trace.shown),
            "skills_cited": len(trace.cited),
            "rounds": len(trace.calls),
        },
    }


class Results:
    """The rows of one run, written whole after each of them."""

    def __init__(self, path: Path, session_id: str, *, planned: int, skills: int) -> None:
        self.path = path
        self.session_id = session_id
        self.planned = planned
        self.skills = {"initial": skills, "final": skills}
        self.reflection = Spent()
        self._rows: dict[str, Row] = {}

    @classmethod
    def of_run(cls, run: Run, folder: Path, *, planned: int) -> "Results":
        """Those of a run: begun, or, where the run was interrupted, gone on with in the same file.

        Raises:
            InputError: The file of an interrupted run is not what was written.
        """
        note = run.folder / "results.json"
        begun = not note.exists()
        if begun:
            path, session_id = _reserved(folder)
        else:
            with boundary(InputError, f"{note} is not what was written; restore it, or begin a new run"):
                said = json.loads(note.read_text(encoding="utf-8"))
                path, session_id = Path(said["path"]), str(said["session_id"])
        results = cls(path, session_id, planned=planned, skills=len(run.initial.active))
        results._rows = {} if begun else {row["id"]: row for row in _rows(path)}
        results.learned(len(run.playbook.active), run.progress.reflector)
        if begun:
            # Whole, since the run may be gone on with from another folder.
            write_json(note, {"session_id": session_id, "path": str(path.absolute())})
        return results

    @property
    def rows(self) -> Sequence[Row]:
        return tuple(self._rows.values())

    def add(self, row: Row) -> None:
        """Add one and write the file. An attempt that is made again, after an interruption, takes its own place."""
        self._rows[row["id"]] = row
        self._write()

    def learned(self, skills: int, reflection: Spent) -> None:
        """What the run has learned up to now, and what reflecting has cost in all."""
        self.skills["final"] = skills
        self.reflection = reflection
        self._write()

    def json(self) -> dict[str, Any]:
        """The whole file."""
        rows = self.rows
        return {"session_id": self.session_id, **summary(rows), **self._sums(), "results": list(rows)}

    def _sums(self) -> dict[str, Any]:
        rows = self.rows
        cost = total(
            [*(row["metadata"]["cost_usd"] for row in rows), None if self.reflection.unpriced else self.reflection.cost]
        )
        known = None if self.reflection.uncounted else self.reflection.input_tokens + self.reflection.output_tokens
        return {
            "planned": self.planned,
            "skills": dict(self.skills),
            "total_cost_usd": cost,
            "total_tokens": total([*(row["metadata"]["tokens_used"] for row in rows), known]),
            "avg_cost_usd": cost / len(rows) if cost is not None and rows else None,
            "reflection": {"cost_usd": None if self.reflection.unpriced else self.reflection.cost, "tokens_used": known},
        }

    def _write(self) -> None:
        write_json(self.path, self.json())


def _reserved(folder: Path) -> tuple[Path, str]:
    """A file of one's own, and the session that it is called after: two runs may begin in one second."""
    session_id = app.now().strftime("%Y%m%d_%H%M%S")
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        path = folder / f"training_results_{session_id}.json"
        try:
            path.open("x").close()
        except FileExistsError:
            session_id += "_2"
        else:
            return path, session_id


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Counts over rows, and over those of each category. Only what checks have proven is successful."""
    categories = dict.fromkeys(row["scenario"]["category"] for row in rows)
    return {
        "total_scenarios": len(rows),
        **_counts(rows),
        "by_category": {
            name: {"total": len(of), **_counts(of)}
            for name in categories
            for of in [[row for row in rows if row["scenario"]["category"] == name]]
        },
    }


def _counts(rows: Sequence[Row]) -> dict[str, int]:
    """They add up to the number of rows; `verified` is how many of the successful ones were proven, which is all of them."""
    reading = sum(row["scored_by"] == "reading" for row in rows)
    return {
        "successful": sum(row["success"] is True for row in rows),
        "failed": sum(row["success"] is False for row in rows),
        "unverified": reading,
        "unknown": sum(row["success"] is None for row in rows) - reading,
        "verified": sum(row["verified"] for row in rows),
    }


def _rows(path: Path) -> list[Row]:
    try:
        found: list[Row] = json.loads(path.read_text(encoding="utf-8"))["results"]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path} is not what was written; restore it, or move it away to go on without its rows") from None
    return found
