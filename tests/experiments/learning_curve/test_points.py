import json
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.errors import InputError
from journeyman.experiments.learning_curve import Point, read


def written(path: Path, *rows: Any) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def test_a_file_of_results_is_read_as_other_programs_write_it(tmp_path: Path) -> None:
    row = {
        "timestamp": "2025-12-08T14:30:25",
        "scenario": {"name": "Email Validation API", "goal": "Build …", "category": "micro_saas"},
        "success": True,
        "output_preview": "from fastapi import FastAPI...",
        "metadata": {"cost_usd": 0.001234, "tokens_used": 456, "performance_score": 0.87, "skills_used": 3},
    }
    path = tmp_path / "training_results_1.json"
    path.write_text(json.dumps({"session_id": "1", "total_scenarios": 1, "results": [row]}, indent=2))
    assert read(path) == (
        Point(name="Email Validation API", group="micro_saas", success=True, score=0.87, tokens=456, cost=0.001234),
    )


def test_rows_that_compare_reads_are_read_too(tmp_path: Path) -> None:
    path = written(
        tmp_path / "rows.jsonl",
        {"task_id": 1, "score": 1, "domain": "oslo"},
        {"task_id": 2, "score": 0.5, "input_tokens": 7, "output_tokens": 3},
        {"task_id": 3, "score": None, "input_tokens": 7},
    )
    assert read(path) == (
        Point(name="1", group="oslo", success=True, score=1.0),
        Point(name="2", success=False, score=0.5, tokens=10),
        Point(name="3"),
    )


def test_what_is_unknown_stays_unknown(tmp_path: Path) -> None:
    unknown = {"scenario": {"name": "a"}, "success": None, "metadata": {"cost_usd": None, "tokens_used": None}}
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"results": [unknown]}))
    assert read(path) == (Point(name="a"),)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"score": 1}, "rows.jsonl:1: no task_id"),
        ({"task_id": 1, "score": 2}, "score is 2, and must be between 0 and 1"),
        ({"task_id": 1, "tokens": -1}, "tokens is -1, and must be a number from 0 on"),
        ({"task_id": 1, "cost": "dear"}, "cost is 'dear', and must be a number"),
        ({"task_id": 1, "cost": float("nan")}, "cost is nan, and must be a number"),
        ({"task_id": 1, "success": "yes"}, "success is 'yes', and must be true, false or null"),
        ([1], "not a JSON object"),
    ],
)
def test_a_row_that_cannot_be_used_is_named_by_its_line(tmp_path: Path, row: object, said: str) -> None:
    with pytest.raises(InputError) as error:
        read(written(tmp_path / "rows.jsonl", row))
    assert said in str(error.value)


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("")
    with pytest.raises(InputError, match="there is nothing to draw"):
        read(tmp_path / "rows.jsonl")
