"""Questions from files: read whole, split without leaks, refused with every reason."""

import json
import logging
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError, MissingExtra
from journeyman.core.installation import installing
from journeyman.core.task import Split
from journeyman.experiments.playbook.config import TrainingConfig
from journeyman.experiments.wiring import load_dataset
from journeyman.tasks.base import Dataset
from journeyman.tasks.questions import DatasetLoader, custom, gsm8k, split_named

SAMPLE = Path(__file__).parents[1] / "data" / "gsm8k" / "test.jsonl"
DATA = os.environ.get("JOURNEYMAN_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="JOURNEYMAN_DATA names no folder of recorded data")


def written(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return str(path)


def questions(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"question": name, "answer": "4", **more} for name in names]


def test_the_documented_file_is_read(tmp_path: Path) -> None:
    rows = [
        {"question": "What is 2+2?", "answer": "4", "domain": "arithmetic"},
        {"question": "What is the capital of France?", "answer": "Paris"},
        {"question": "What is 2.5+2?", "answer": 4.5, "id": 7},
    ]
    (tmp_path / "mine.json").write_text(json.dumps(rows, indent=2), encoding="utf-8")
    found = DatasetLoader("custom").load_from_json(tmp_path / "mine.json")
    assert [(task.question, task.answer, task.domain) for task in found] == [
        ("What is 2+2?", "4", "arithmetic"),
        ("What is the capital of France?", "Paris", "general"),
        ("What is 2.5+2?", "4.5", "general"),
    ]
    assert {task.split for task in found} == {Split.TRAIN}
    assert found[2].id == "7"
    assert len(DatasetLoader("custom").load_from_json(tmp_path / "mine.json", num_examples=2)) == 2


def test_all_bad_rows_are_named_in_one_error(tmp_path: Path) -> None:
    path = written(
        tmp_path / "mine.jsonl",
        {"question": "good?", "answer": "yes"},
        {"question": "  ", "answer": "4"},
        {"answer": True, "domain": ""},
        {"question": "q", "answer": "a", "split": "exam", "id": []},
    )
    with pytest.raises(InputError) as caught:
        custom(path)
    assert str(caught.value) == (
        f"{path} holds rows that cannot be used:\n  {path}:2: the question is empty\n"
        f"  {path}:3: no question, the answer is no text, the domain is empty\n"
        f"  {path}:4: there is no split 'exam' (there are train, validation and test), the id is [] and not a text or a number"
    )


def test_gsm8k_rows_must_end_in_a_number(tmp_path: Path) -> None:
    path = written(tmp_path / "train.jsonl", {"question": "q", "answer": "4"}, {"question": "r", "answer": "2+2 #### four"})
    with pytest.raises(InputError, match=r"train\.jsonl:1: the answer does not end in '#### number'\n.*train\.jsonl:2"):
        gsm8k(path)


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is empty"):
        custom(written(tmp_path / "mine.json"))


def test_a_question_says_which_cluster_it_is_of_or_none_does(tmp_path: Path) -> None:
    path = written(tmp_path / "q.jsonl", *questions("a", "b", cluster="acme/api"), *questions("c", cluster=7))
    assert {task.question: task.cluster for task in custom(path).tasks} == {"a": "acme/api", "b": "acme/api", "c": "7"}
    with pytest.raises(InputError, match=r":1: the cluster is '' and not a text or a number"):
        custom(written(tmp_path / "r.jsonl", *questions("c", cluster="")))
    with pytest.raises(InputError, match=r":2: no cluster, though other rows have one"):
        custom(written(tmp_path / "s.jsonl", *questions("a", cluster="x"), *questions("b")))


@given(st.sets(st.text("abcdefgh ", min_size=1).filter(str.strip), min_size=1, max_size=30))
def test_splits_are_disjoint_and_depend_on_the_question_alone(
    tmp_path_factory: pytest.TempPathFactory, names: set[str]
) -> None:
    folder = tmp_path_factory.mktemp("split")
    whole = custom(written(folder / "a.jsonl", *questions(*sorted(names))))
    alone = {task.question: task.split for task in whole.tasks}
    by_words: dict[str, Split] = {}
    for question, split in alone.items():
        assert by_words.setdefault(" ".join(question.split()), split) is split
    one = min(alone)
    assert custom(written(folder / "b.jsonl", *questions(one))).tasks[0].split is alone[one]


def test_shares_are_60_10_30(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", *questions(*(f"question {n}" for n in range(2000))))
    counts = Counter(task.split for task in custom(path).tasks)
    assert counts[Split.TRAIN] == pytest.approx(1200, abs=80)
    assert counts[Split.VALIDATION] == pytest.approx(200, abs=50)
    assert custom(path).tasks == custom(path).tasks


@pytest.mark.parametrize(
    ("rows", "least", "held_out"), [(60, 30, 30), (80, 30, 30), (59, 30, 14), (20, 10, 10), (2000, 30, 600), (60, 5, 14)]
)
def test_as_many_are_held_out_as_the_gate_needs_where_there_are_twice_as_many(
    tmp_path: Path, rows: int, least: int, held_out: int
) -> None:
    path = written(tmp_path / "a.jsonl", *questions(*(f"question {n}" for n in range(rows))))
    found = custom(path, least=least)
    assert len(found.split(Split.HELD_OUT)) == pytest.approx(held_out, rel=0.3 if held_out not in (10, 30) else 0)
    assert found.tasks == custom(path, least=least).tasks
    usual = {task.question: task.split for task in custom(path, least=1).tasks}
    gone = [t for t in found.tasks if usual[t.question] is Split.HELD_OUT and t.split is not Split.HELD_OUT]
    assert not gone, "what is held out in a longer file is in a shorter one too"
    if held_out == 30:
        assert found.split(Split.VALIDATION)


def test_splits_that_are_given_are_kept_and_must_be_given_to_all(tmp_path: Path) -> None:
    rows = [*questions("a", split="train"), *questions("b", split="test"), *questions("c", split="validation")]
    assert [task.split for task in custom(written(tmp_path / "a.jsonl", *rows)).tasks] == [
        Split.TRAIN,
        Split.HELD_OUT,
        Split.VALIDATION,
    ]
    with pytest.raises(InputError, match=r"b\.jsonl:4: no split, though other rows have one"):
        custom(written(tmp_path / "b.jsonl", *rows, *questions("d")))


def test_a_question_in_two_splits_is_a_leak_and_refused(tmp_path: Path) -> None:
    train = written(tmp_path / "train.jsonl", *questions("a", "How  many?", "b"))
    test = written(tmp_path / "exam.jsonl", *questions("c", "how many?"))
    with pytest.raises(InputError, match=r"exam\.jsonl:2: held_out question is in .* at .*train\.jsonl:2"):
        custom(train, test)


def test_a_question_that_stands_twice_is_taken_once_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path / "a.jsonl", *questions("a", "b"), {"question": "A", "answer": "5"})
    with caplog.at_level(logging.WARNING):
        assert len(custom(path).tasks) == 2
    assert "a.jsonl:3: this question stands at" in caplog.text
    assert "with another answer" in caplog.text


def test_many_questions_that_stand_twice_are_counted_and_those_that_contradict_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    again = [{"question": "a", "answer": "7" if n == 90 else questions("a")[0]["answer"]} for n in range(100)]
    with caplog.at_level(logging.WARNING):
        assert len(custom(written(tmp_path / "a.jsonl", *questions("a", "b"), *again)).tasks) == 2
    assert len(caplog.records) < 10
    assert "a.jsonl:93: this question stands at" in caplog.text
    assert "in all 100 questions stand there already and are left out, 1 of them with another answer" in caplog.text


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_table_in_another_encoding_is_told_how_to_save_it(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("question,answer\nWo ist Köln?,da\n", encoding=encoding)
    with pytest.raises(InputError, match=r"a\.csv is not text in UTF-8; .* as 'CSV UTF-8', .* iconv -f"):
        custom(str(path))


def test_two_questions_cannot_have_one_id(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.jsonl:2: the id '1' stands at"):
        custom(written(tmp_path / "a.jsonl", *questions("a", "b", id=1)))


def test_a_held_out_file_leaves_the_other_to_training(tmp_path: Path) -> None:
    train = written(tmp_path / "a.jsonl", *questions(*(f"question {n}" for n in range(100))))
    exam = written(tmp_path / "b.jsonl", *questions("x", "y"))
    found = custom(train, exam)
    assert [task.question for task in found.split(Split.HELD_OUT)] == ["x", "y"]
    assert len(found.split(Split.TRAIN)) > 70


def test_a_file_called_test_is_held_out_whole() -> None:
    assert {task.split for task in gsm8k(str(SAMPLE)).tasks} == {Split.HELD_OUT}
    assert {task.split for task in gsm8k(held_out=str(SAMPLE)).tasks} == {Split.HELD_OUT}


def test_a_folder_of_gsm8k_is_read_in_its_splits(tmp_path: Path) -> None:
    written(tmp_path / "train.jsonl", {"question": "q", "answer": "#### 4"})
    with pytest.raises(InputError, match=r"holds no test\.jsonl"):
        gsm8k(str(tmp_path))
    (tmp_path / "test.jsonl").write_bytes(SAMPLE.read_bytes())
    assert len(gsm8k(str(tmp_path)).split(Split.HELD_OUT)) == 20


@needs_data
def test_all_of_gsm8k_is_read_without_a_leak() -> None:
    counts = Counter(task.split for task in gsm8k(f"{DATA}/gsm8k").tasks)
    assert counts[Split.HELD_OUT] == 1319
    assert counts[Split.TRAIN] + counts[Split.VALIDATION] == 7473


def test_without_the_library_the_download_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=re.escape(f"{installing('datasets')}; or give its files")):
        gsm8k()


def test_without_a_network_the_download_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "datasets.py").write_text("def load_dataset(*a, **k):\n    raise OSError('no network\\nlong story')\n")
    monkeypatch.delitem(sys.modules, "datasets", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=r"could not be downloaded \(OSError: no network\); give its files"):
        gsm8k()
    monkeypatch.delitem(sys.modules, "datasets")


def test_splits_have_the_names_that_users_know() -> None:
    assert [split_named(name) for name in ("train", "Test", "held_out", "validation")] == [
        Split.TRAIN,
        Split.HELD_OUT,
        Split.HELD_OUT,
        Split.VALIDATION,
    ]
    with pytest.raises(InputError, match="no split 'exam'"):
        split_named("exam")


def test_the_loader_gives_the_first_of_a_split(tmp_path: Path) -> None:
    loader = DatasetLoader("gsm8k")
    assert len(loader.load("test", 5, input=str(SAMPLE))) == 5
    assert loader.load("train", input=str(SAMPLE)) == []
    with pytest.raises(InputError, match="no data set 'mmlu'"):
        DatasetLoader("mmlu")


def test_data_sets_are_loaded_by_name(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", *questions("a"), *questions("b", domain="maps"))

    def loaded(name: str, **settings: Any) -> Dataset:
        return load_dataset(TrainingConfig(dataset_name=name, **settings))

    assert [task.question for task in loaded("custom", input_path=str(path), domain="maps").tasks] == ["b"]
    with pytest.raises(InputError, match="there are general, maps"):
        loaded("custom", input_path=str(path), domain="cooking")
    with pytest.raises(InputError, match="no data set 'mmlu'; there are bfcl, custom, desk, gsm8k"):
        loaded("mmlu")
    with pytest.raises(InputError, match="--input FILE"):
        loaded("custom")
    for file in ("input_path", "held_out_path"):
        with pytest.raises(InputError, match="reads no file"):
            loaded("desk", domain="oslo", **{file: str(path)})
    assert {task.domain for task in loaded("desk", domain="oslo").tasks} == {"oslo"}
