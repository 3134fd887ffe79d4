"""Tasks made of repositories: what there is, how much of what was tried became one, and who is good at them."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from journeyman.cli import main
from journeyman.core.task import Split
from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.serving.dashboard.layout import Guard
from journeyman.stores import EvaluationRecord, RunRecord, open_store
from journeyman.stores.traces.base import TraceStore
from journeyman.tasks import repository
from journeyman.tasks.repository import Checks, RepositoryTask
from tests.serving.dashboard.test_pages import words_of
from tests.serving.dashboard.test_project_pages import title
from tests.support.pages import Visitor, visitor

HIDDEN = "assert zone('no') == 1 and zone('<NO>') == 4"
AT = datetime(2026, 3, 5, 14, 30, tzinfo=UTC)


def task(number: int, category: str, split: Split) -> RepositoryTask:
    return RepositoryTask(
        category=category,
        repository="parcels",
        tree="0" * 16,
        environment="1" * 16,
        statement=f"Number {number}: `zone` answers <4> where it should answer 1.",
        reference={"parcels/rates.py": "RIGHT = 1\n"},
        checks=Checks(tests={"tests/test_rates.py": HIDDEN}, fail_to_pass=("tests/test_rates.py::test_zone",)),
        source=f"parcels.rates:zone{number}",
        made_by="ast 1, seed 0",
        split=split,
    )


TASKS = [task(n, "bug_fix" if n % 3 else "docs", Split.HELD_OUT if n % 2 else Split.TRAIN) for n in range(120)]
MADE = {"bug_fix": {"wanted": 90, "made": 80, "tried": 100, "fell": {"no test fails": 15, "the start does <not> run": 5}}}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    repository.write(tmp_path / "ours.jsonl", TASKS)
    (tmp_path / "ours.stats.json").write_text(json.dumps({"repository": "parcels", "seed": 0, "categories": MADE}))
    return tmp_path


@pytest.fixture
def pages(store: TraceStore, guard: Guard, tmp_path: Path) -> Visitor:
    return visitor(store, guard, project=ProjectStores(tmp_path / "journeyman.db", folder=tmp_path))


def examined(folder: Path, path: str) -> None:
    """An evaluation of agents as it is kept, of which one category has no interval."""
    known = {"category": "bug_fix", "tasks": 80, "baseline": 0.25, "candidate": 0.75, "gain": 0.5, "low": 0.4, "high": 0.6}
    unknown = {"category": "docs", "tasks": 0, "baseline": None, "candidate": None, "gain": None, "low": None, "high": None}
    rows = [{**each, "unknown": 3, "clusters": None, "cost": {}} for each in (known, unknown)]
    with open_store(folder / "journeyman.db") as kept:
        kept.add_run(RunRecord(id="agents-1", kind="evaluate agent", config={"tasks": path}, started_at=AT))
        kept.add_evaluation(
            EvaluationRecord(
                id="agents-1/evaluation",
                candidate_id="base@small",
                baseline_id="nothing",
                held_out_id="h",
                passed=True,
                reason="gain +0.500",
                report={"categories": rows},
                at=AT,
            )
        )


def test_without_tasks_the_page_says_how_some_are_made(pages: Visitor) -> None:
    text = words_of(pages.read("/tasks"))
    assert "No tasks yet." in text
    assert "journeyman tasks generate" in text


def test_a_file_of_tasks_is_told_by_category_with_why_candidates_fell(here: Path, pages: Visitor) -> None:
    listed = pages.read("/tasks")
    assert 'href="/tasks/ours.jsonl"' in listed
    assert "ours.jsonl 120 60 bug fix, docs parcels" in words_of(listed)
    page = pages.read("/tasks/ours.jsonl")
    text = words_of(page)
    assert "bug fix 80 40 80 1 80 of 100 tried 80% no test fails: 15; the start does &lt;not&gt; run: 5" in text
    assert "docs 40 20 40 1 unknown unknown nobody kept it" in text
    assert "Nobody was examined on these tasks yet" in text
    assert "?category=docs" in page
    assert "bug fix parcels" not in words_of(pages.read("/tasks/ours.jsonl?category=docs")).partition("Tasks of docs")[2]


def test_more_tasks_than_a_page_holds_are_on_the_next(here: Path, pages: Visitor) -> None:
    first = pages.read("/tasks/ours.jsonl")
    assert "1 to 50 of 120" in first
    shown = {each.id for each in TASKS if each.id in first}
    following = f"/tasks/ours.jsonl?after={len(shown)}"
    assert f'href="{following}"' in first
    assert not shown & {each.id for each in TASKS if each.id in pages.read(following)}


def test_evaluations_of_a_file_are_told_by_category_with_their_intervals(here: Path, pages: Visitor) -> None:
    examined(here, "ours.jsonl")
    text = words_of(pages.read("/tasks/ours.jsonl"))
    assert "base@small against nothing" in text
    assert "bug fix 80 25% 75% +0.50 +0.40 … +0.60 3" in text
    assert "docs 0 unknown unknown unknown unknown 3" in text


def test_a_file_that_a_run_was_given_is_a_set_wherever_it_lies(here: Path, pages: Visitor, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    repository.write(tmp_path / "elsewhere" / "theirs.jsonl", TASKS[:3])
    pages.read("/tasks/elsewhere/theirs.jsonl", status=404)
    examined(here, "elsewhere/theirs.jsonl")
    assert "base@small against nothing" in words_of(pages.read("/tasks/elsewhere/theirs.jsonl"))
    assert "Nobody was examined" in words_of(pages.read("/tasks/ours.jsonl"))


def test_what_decides_about_a_task_is_shown_only_to_whoever_asks_and_what_is_right_never(here: Path, pages: Visitor) -> None:
    one = TASKS[0]
    page = pages.read(f"/tasks/ours.jsonl?task={one.id}")
    assert title(page) == f"{one.id} · Tasks"
    assert "Number 0: `zone` answers &lt;4&gt; where it should answer 1." in page
    assert "zone(" not in page
    assert "test_zone" not in page
    asked = pages.read(f"/tasks/ours.jsonl?task={one.id}&show=tests")
    assert "zone(&#39;&lt;NO&gt;&#39;)" in asked
    assert all("RIGHT" not in each for each in (page, asked))
    pages.read("/tasks/ours.jsonl?task=t-none", status=404)


@pytest.mark.parametrize("path", ["journeyman.db", "../ours.jsonl", "/etc/passwd", "none.jsonl"])
def test_no_other_file_is_read(here: Path, pages: Visitor, path: str) -> None:
    pages.read(f"/tasks/{path}", status=404)


def test_a_file_that_cannot_be_read_is_named_with_its_line(here: Path, pages: Visitor) -> None:
    (here / "ours.jsonl").write_text('{"category": "docs"}\n')
    assert "ours.jsonl:1" in words_of(pages.read("/tasks"))
    assert "ours.jsonl:1" in words_of(pages.read("/tasks/ours.jsonl", status=400))


def test_the_command_says_the_same_of_a_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "stats", str(here / "ours.jsonl"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["categories"]["docs"] == {"tasks": 40, "held_out": 20, "sources": 40, "median_failing": 1}
    assert told["made"]["categories"] == MADE
