"""Every look counts, for every kind of optimizer: what is no better hardly ever passes, however often it is examined."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.core.errors import InputError
from journeyman.core.evaluation import Result
from journeyman.core.task import Split, Task, fingerprint, fingerprints, packed, unpacked
from journeyman.experiments.compare import EvaluationReport, compare
from journeyman.experiments.evaluator import HeldOutEvaluator, Look, Subject
from journeyman.experiments.run import blocking
from journeyman.stores import Store, open_store

TASKS = [Task(id=str(n), question=f"question {n}", split=Split.HELD_OUT) for n in range(40)]
SUBJECT = Subject(
    candidate="new", baseline="old", tasks=TASKS, settings={"model": "one", "gate": "strict", "trials": 1}, deterministic=True
)


def looked(store: Store, subject: Subject = SUBJECT, *, id: str = "run", **more: Any) -> EvaluationReport:
    def measure(look: Look) -> EvaluationReport:
        before = [Result(task_id=task.id, score=0.0) for task in look.tasks]
        found = compare(before, [Result(task_id=task.id, score=1.0) for task in look.tasks], looks=look.before)
        return replace(found, evaluation=look.at(found.evaluation))

    evaluator = HeldOutEvaluator(store=store)
    found: EvaluationReport = blocking(
        evaluator.evaluate(subject, measure, id=id, records=lambda found: [("old", found)], **more)
    )
    return found


@pytest.mark.parametrize(
    "other",
    [
        replace(SUBJECT, candidate="newer"),
        replace(SUBJECT, baseline="older"),
        replace(SUBJECT, tasks=TASKS[1:]),
        replace(SUBJECT, tasks=[replace(TASKS[0], answer="2"), *TASKS[1:]]),
        replace(SUBJECT, settings={**SUBJECT.settings, "model": "two"}),
        replace(SUBJECT, settings={**SUBJECT.settings, "gate": "loose"}),
        replace(SUBJECT, settings={**SUBJECT.settings, "utility": "2 dollars"}),
        replace(SUBJECT, deterministic=False),
    ],
)
def test_whatever_can_change_the_answer_makes_another_look(other: Subject) -> None:
    store = open_store("memory:")
    looked(store)
    assert looked(store, other).evaluation.looks == 1
    assert looked(store).evaluation.looks == 0, "the very same is the same look"


def test_other_blanks_and_another_case_are_no_way_to_look_anew() -> None:
    store = open_store("memory:")
    looked(store)
    spaced = [replace(task, question=f"  {task.question.upper()} ") for task in TASKS]
    assert looked(store, replace(SUBJECT, candidate="newer", tasks=spaced)).evaluation.looks == 1


def test_what_is_not_known_to_be_deterministic_looks_anew_each_time() -> None:
    store = open_store("memory:")
    assert [looked(store, replace(SUBJECT, deterministic=False)).evaluation.looks for _ in range(4)] == [0, 1, 2, 3]
    assert len(list(store.evaluations())) == 4


def test_a_run_that_is_gone_on_with_takes_its_kept_evaluation_and_another_run_does_not() -> None:
    store, chance = open_store("memory:"), replace(SUBJECT, deterministic=False)
    first = looked(store, chance)
    again = looked(store, chance, restore=EvaluationReport.restored)
    assert again.json() == first.json()
    assert (again.evaluation.pairs, again.decision) == (first.evaluation.pairs, first.decision)
    assert looked(store, chance, id="run-2", restore=EvaluationReport.restored).evaluation.looks == 1
    assert looked(store, replace(chance, settings={}), restore=EvaluationReport.restored).evaluation.looks == 2


def test_held_out_tasks_that_were_trained_on_are_left_out_and_all_of_them_are_refused() -> None:
    store = open_store("memory:")
    some = replace(SUBJECT, trained_on=fingerprints(f"Question  {n}" for n in range(5)))
    found = looked(store, some)
    assert (found.tasks, found.evaluation.contaminated, found["contaminated"]) == (35, tuple("01234"), list("01234"))
    with pytest.raises(InputError, match="all 40 held-out tasks were trained on"):
        looked(store, replace(SUBJECT, trained_on=fingerprints(task.question for task in TASKS)))
    assert store.looks("none") == 0


def test_fingerprints_are_kept_in_a_text_and_come_back() -> None:
    found = fingerprints(["one", "two", "three"])
    assert unpacked(packed(found)) == found
    assert (packed([]), unpacked("")) == ("", frozenset())
    assert len(fingerprint("one")) == 16


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JOURNEYMAN_STORE", raising=False)
    return tmp_path


def results(path: str, right: int) -> str:
    lines = [json.dumps({"task_id": f"t{n}", "score": float(n < right)}) for n in range(40)]
    Path(path).write_text("\n".join(lines))
    return path


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_comparisons_are_looks_where_the_project_has_a_store(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = results("a.jsonl", 0), results("b.jsonl", 20)
    assert main(["compare", old, new, "--json"]) == 0
    assert not Path(".journeyman").exists(), "to compare is no reason to begin a project"
    open_store(".journeyman/journeyman.db").close()
    capsys.readouterr()
    seen = []
    for right in (20, 21, 20, 22):
        main(["compare", old, results("b.jsonl", right), "--json"])
        seen.append(told(capsys)["looks"])
    assert seen == [0, 1, 0, 2]
    main(["compare", old, new, "--looks", "9", "--json"])
    assert told(capsys)["looks"] == 9
    with open_store(".journeyman/journeyman.db") as store:
        assert len(list(store.evaluations())) >= 3


def test_peeking_at_one_candidate_batch_by_batch_is_one_look(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_store(".journeyman/journeyman.db").close()
    for right in (20, 21, 22):
        main(["compare", results("a.jsonl", 0), results("b.jsonl", right), "--any-time", "--json"])
        assert told(capsys)["looks"] == 0
