"""What a notebook does: data in memory, the options as keywords, results that show themselves, and a loop that runs already."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest

import journeyman
from journeyman.cli import evaluate, notebook, train_playbook
from journeyman.core.errors import InputError
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.task import Split, Task
from journeyman.experiments.playbook.config import TrainingConfig
from tests.e2e.first_hour import LESSON, model

pytestmark = pytest.mark.service
ROWS = [{"input": f"{n} + {n + 3}?", "target": 2 * n + 3} for n in range(60)]


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    with model() as name:
        yield name


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "not-needed")
    return tmp_path


def test_a_newcomers_seven_guesses_walk_from_rows_to_a_playbook_that_is_used(served: str, folder: Path) -> None:
    result = journeyman.train(ROWS, model=served, output="mine.json")
    assert (result.finished, result.playbook_size) == (True, 1)
    assert repr(result) == ("TrainingResult(1 bullet in mine.json, shadow; passed: 0.0% → 100.0% on 30 tasks)"), (
        "passed, and nobody asked for production"
    )
    playbook = journeyman.Playbook.load("mine.json")
    assert playbook.bullets == result.playbook.bullets
    assert LESSON in playbook.prompt("2 + 2?")
    assert LESSON in playbook.prompt(Task(id="1", question="2 + 2?"))
    assert [line.partition(" ")[2].partition(" (")[0] for line in Playbook().diff(playbook)] == ["is new"]
    assert playbook.diff("mine.json") == []
    playbook.save(folder / "copy.json")
    assert (folder / "copy.json").read_bytes() == (folder / "mine.json").read_bytes()
    report = journeyman.evaluate(
        playbook, held_out_input=[{"q": f"{n} + {n}?", "a": 2 * n} for n in range(70, 110)], model=served
    )
    assert (report.passed, report.tasks, report.baseline, report.candidate) == (True, 40, 0.0, 1.0)
    assert repr(report) == "EvaluationReport(passed: 0.0% → 100.0% on 40 tasks)"

    class Desk:
        def run(self, question: str) -> str:
            return playbook.prompt(question)

    desk = journeyman.watch(Desk(), store=folder / "watched.db")
    assert LESSON in desk.run("1 + 1?")
    collector = journeyman.TraceCollector(folder / "watched.db")
    for _ in range(50):
        if found := collector.get_unlabeled_traces():
            break
    assert [trace.task_id for trace in found] or found
    assert "1 + 1?" in repr(found)


def test_results_show_themselves_as_tables_in_which_what_a_model_wrote_is_only_text(served: str) -> None:
    result = journeyman.train(ROWS, model=served, output="mine.json", batch_size=5)
    shown = result._repr_html_()
    assert shown.count("<table>") == 3
    assert "<svg" in shown
    assert re.search(r"Right</td><td[^>]*>0\.0%</td><td[^>]*>100\.0%</td>", shown)
    assert len(result.curve) == len([row for row in result.curve if row is not None]) == result.metrics.total_examples
    hostile = Playbook(bullets=(Bullet(id="b-1", content="<script>alert('x')</script>", domain="<img src=x>"),))
    assert "<script" not in hostile._repr_html_()
    assert "<img" not in hostile._repr_html_()
    assert "&lt;script&gt;" in hostile._repr_html_()
    assert len(repr(hostile)) < 80


async def test_a_cell_of_a_notebook_is_within_a_loop_and_both_ways_of_calling_work_there(served: str) -> None:
    plain = journeyman.train(ROWS, model=served, output="plain.json", evaluate=False)
    awaited = await journeyman.atrain(ROWS, model=served, output="awaited.json", evaluate=False)
    assert [bullet.id for bullet in plain.playbook.bullets] == [bullet.id for bullet in awaited.playbook.bullets] != []
    again = await journeyman.aevaluate(awaited, ROWS, model=served)
    assert (again.passed, again.tasks) == (True, 30)
    assert journeyman.evaluate("awaited.json", ROWS, against="plain.json", model=served).gain == 0


async def test_a_training_that_is_cancelled_is_gone_on_with(served: str) -> None:
    work = asyncio.create_task(journeyman.atrain(ROWS, model=served, output="mine.json", progress=False))
    for _ in range(1000):
        await asyncio.sleep(0.005)
        if list(Path(".journeyman").glob("runs/*/config.json")):
            break
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    with pytest.raises(InputError, match="resume goes on under the settings of its run"):
        journeyman.train(ROWS, resume=True, model=served)
    result = journeyman.train(ROWS, resume=True)
    assert result.finished
    assert len(list(Path(".journeyman/runs").iterdir())) == 1


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "pairs", "tasks", "iterator", "path"])
def test_data_is_taken_as_a_notebook_has_it(kind: str, served: str, folder: Path) -> None:
    data: Any = {
        "pairs": [(row["input"], str(row["target"])) for row in ROWS],
        "tasks": [Task(id=str(n), question=str(row["input"]), answer=str(row["target"])) for n, row in enumerate(ROWS)],
        "iterator": iter(ROWS),
        "path": folder / "rows.csv",
    }.get(kind)
    (folder / "rows.csv").write_text("input,target\n" + "".join(f"{row['input']},{row['target']}\n" for row in ROWS))
    if kind == "pandas":
        data = pytest.importorskip("pandas", reason="a DataFrame is made with it").DataFrame(ROWS)
    if kind == "pyarrow":
        data = pytest.importorskip("pyarrow", reason="a table is made with it").Table.from_pylist(ROWS)
    trainer, _ = notebook._begun(data, None, False, {"model": served})
    assert len(trainer.dataset.split(Split.HELD_OUT)) == 30


def test_tasks_that_say_their_split_keep_it(served: str) -> None:
    tasks = [Task(id=str(n), question=f"{n}?", answer="1", split=Split.HELD_OUT if n >= 10 else Split.TRAIN) for n in range(50)]
    trainer, _ = notebook._begun(tasks, None, False, {"model": served})
    assert [len(trainer.dataset.split(each)) for each in Split] == [10, 0, 40]


def test_a_word_that_is_none_and_data_given_in_two_ways_are_refused_before_anything_is_spent(folder: Path) -> None:
    with pytest.raises(InputError, match=r"there is no option 'modle' here; .*did you mean model\?"):
        journeyman.train(ROWS, modle="embedded")  # type: ignore[call-arg]
    with pytest.raises(InputError, match="there is no option 'epochs' here; `journeyman evaluate --help` has all"):
        journeyman.evaluate(Playbook(), ROWS, epochs=2)  # type: ignore[call-overload]
    with pytest.raises(InputError, match="give both in one way"):
        journeyman.train(ROWS, held_out_input="test.csv")
    with pytest.raises(InputError, match="give both in one way"):
        journeyman.train("train.csv", held_out_input=ROWS)
    with pytest.raises(InputError, match="row 1: a str, and no mapping"):
        journeyman.train(["1 + 1?"] * 60)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="bullets of a, b; say which"):
        Playbook(bullets=tuple(Bullet(id=each, content=each, domain=each) for each in "ab")).prompt("?")
    assert not list(folder.rglob("config.json"))


def words(command: click.Command, *more: str) -> set[str]:
    """What can be typed of the settings of a training, as keywords: the first spelling of each."""
    known = {*(each.name for each in fields(TrainingConfig)), *more}
    return {each.opts[0].lstrip("-").replace("-", "_") for each in command.params if each.name in known}


def test_the_keywords_are_the_commands_words() -> None:
    assert set(notebook.TrainOptions.__annotations__) == {*words(train_playbook.command), "sandbox"}
    own = ("baseline_model", "any_domain")
    assert set(notebook.EvaluateOptions.__annotations__) == words(evaluate.command, *own)
