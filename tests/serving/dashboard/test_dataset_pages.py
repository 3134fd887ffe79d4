"""The pages of data sets: splits, what was trained on, and what can be seen with so many held-out rows."""

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from journeyman.core.gate import PlannedEvaluation
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.task import Split, fingerprints
from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.serving.dashboard.layout import Guard
from journeyman.stores import RunState, open_store
from journeyman.stores.traces.base import TraceStore
from journeyman.tasks import questions as asked
from tests.serving.dashboard.test_pages import words_of
from tests.support.furnished import questions
from tests.support.pages import Visitor, visitor
from tests.support.projects import NOON


@pytest.fixture
def pages(store: TraceStore, guard: Guard, tmp_path: Path) -> Visitor:
    return visitor(store, guard, project=ProjectStores(tmp_path / "journeyman.db", folder=tmp_path))


def cells(page: str, row: str) -> list[str]:
    """The cells of the row of a table that begins so, as they are read."""
    return next(
        [words_of(cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", each, re.DOTALL)]
        for each in re.findall(r"<tr>.*?</tr>", page, re.DOTALL)
        if row in each
    )


def test_a_data_set_is_known_by_the_runs_that_had_it_with_its_splits_and_what_they_can_show(
    pages: Visitor, tmp_path: Path
) -> None:
    assert "No data set yet" in pages.read("/datasets")
    questions(tmp_path / "journeyman.db", tmp_path)
    tasks = asked.custom(str(tmp_path / "questions.jsonl")).tasks
    sizes = [sum(task.split is split for task in tasks) for split in Split]
    least = PlannedEvaluation(changed=0.5).least_gain(sizes[-1])
    assert least is not None
    name, total, *splits, contaminated, gain, looks, runs, _ = cells(pages.read("/datasets"), "questions.jsonl")
    assert (name, total, splits) == ("questions.jsonl", "120", [str(size) for size in sizes])
    assert (contaminated, gain, looks, runs) == ("0", f"{100 * least:+.0f} points", "0", "1")
    one = pages.read("/datasets/questions.jsonl")
    assert f"gains below {100 * least:+.0f} points cannot be seen" in words_of(one)
    assert '<a class="id" href="/runs/asked">' in one


def test_held_out_rows_that_another_data_set_or_a_playbook_was_trained_on_are_counted_and_named(
    pages: Visitor, tmp_path: Path
) -> None:
    path = tmp_path / "journeyman.db"
    questions(path, tmp_path)
    held_out = [task for task in asked.custom(str(tmp_path / "questions.jsonl")).tasks if task.split is Split.HELD_OUT]
    questions(path, tmp_path, "more.jsonl", rows=1, run="again")
    lines = [{"question": task.question, "answer": task.answer, "split": "train"} for task in held_out[:2]]
    (tmp_path / "more.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    learned = Playbook(bullets=(Bullet(id="b", content="Add."),), trained_on=fingerprints([held_out[2].question]))
    learned.save(tmp_path / "mine.json")
    with open_store(path) as kept:
        kept.mark_run("again", RunState.FINISHED, NOON + timedelta(hours=2), {"playbook_path": "mine.json"})
    assert cells(pages.read("/datasets"), ">questions.jsonl<")[5] == "3"
    one = words_of(pages.read("/datasets/questions.jsonl"))
    assert all(task.question in one for task in held_out[:3])
    assert held_out[3].question not in one
    assert f"{len(held_out) - 3} held-out rows examine a candidate" in one


def test_what_cannot_be_read_is_said_beside_its_runs(pages: Visitor, tmp_path: Path) -> None:
    questions(tmp_path / "journeyman.db", tmp_path)
    (tmp_path / "questions.jsonl").write_text("no JSON\n")
    assert "cannot be read" in pages.read("/datasets")
    assert "cannot be read" in pages.read("/datasets/questions.jsonl")
    (tmp_path / "questions.jsonl").unlink()
    assert "cannot be read" in pages.read("/datasets")
    assert "No run here had such a data set" in pages.read("/datasets/elsewhere.jsonl", 404)
