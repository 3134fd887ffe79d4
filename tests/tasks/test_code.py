"""Tasks and samples in the formats of HumanEval and MBPP."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.errors import InputError, TaskError
from journeyman.core.task import Split, Task
from journeyman.tasks.code import CodeTests, answer, code_tests, load, read_samples, read_tasks

DATA = os.environ.get("JOURNEYMAN_DATA")
HUMANEVAL = {
    "task_id": "H/0",
    "prompt": 'from typing import List\n\ndef first(xs: List[int]) -> int:\n    """The first."""\n',
    "entry_point": "first",
    "canonical_solution": "    return xs[0]\n",
    "test": "def check(candidate):\n    assert candidate([1, 2]) == 1\n",
}
MBPP = {
    "task_id": 7,
    "text": "Write a function to double.",
    "code": "def double(x):\r\n  return 2 * x",
    "test_setup_code": "",
    "test_list": ["assert double(2) == 4", "assert double(0) == 0"],
    "challenge_test_list": ["assert double(-1) == -2"],
}


def file(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


def test_both_formats_become_tasks_whose_answers_hold_the_tests(tmp_path: Path) -> None:
    first, second = read_tasks(file(tmp_path / "t.jsonl", HUMANEVAL, MBPP))
    assert (first.id, second.id) == ("H/0", "7")
    assert "from solution import first" in code_tests(first).module()
    assert code_tests(first).module().rstrip().endswith("check(first)")
    assert "from solution import double" in code_tests(second).module()
    assert "assert double(-1) == -2" in code_tests(second).module()


def test_a_programming_task_may_say_which_repository_it_is_of(tmp_path: Path) -> None:
    (task,) = read_tasks(file(tmp_path / "t.jsonl", {**MBPP, "cluster": "acme/api"}))
    assert task.cluster == "acme/api"
    with pytest.raises(InputError, match=r"cluster is \[\], and must be a text or a number"):
        read_tasks(file(tmp_path / "t.jsonl", {**MBPP, "cluster": []}))


def test_the_tests_are_not_in_the_question(tmp_path: Path) -> None:
    first, second = read_tasks(file(tmp_path / "t.jsonl", HUMANEVAL, MBPP))
    assert "assert" not in first.question
    assert "double(0) == 0" not in second.question


def test_gzipped_files_and_lists_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(json.dumps([HUMANEVAL, MBPP]).encode()))
    assert len(read_tasks(path)) == 2


def test_everything_wrong_with_tasks_is_said_at_once(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": "x"},
        {**HUMANEVAL, "entry_point": "a b"},
        {**MBPP, "test_list": []},
        {**MBPP, "test_list": ["assert ("]},
    ]
    with pytest.raises(InputError) as error:
        read_tasks(file(tmp_path / "t.jsonl", *rows, MBPP, MBPP))
    for line in (1, 2, 3, 4, 6):
        assert f"t.jsonl:{line}: " in str(error.value)
    assert "t.jsonl:5" not in str(error.value)


def test_samples_are_found_by_id_or_prompt_and_lists_are_several(tmp_path: Path) -> None:
    tasks = read_tasks(file(tmp_path / "t.jsonl", HUMANEVAL, MBPP))
    rows: list[dict[str, Any]] = [
        {"task_id": "H/0", "completion": "    return xs[0]\n"},
        {"task_id": 7, "solution": "def double(x): return x"},
        {"prompt": HUMANEVAL["prompt"], "samples": ["first = 1", "first = 2"]},
    ]
    found = read_samples(file(tmp_path / "s.jsonl", *rows), tasks)
    assert [(each.task_id, each.continues) for each in found] == [("H/0", True), ("7", False), ("H/0", False), ("H/0", False)]


def test_everything_wrong_with_samples_is_said_at_once(tmp_path: Path) -> None:
    tasks = read_tasks(file(tmp_path / "t.jsonl", HUMANEVAL))
    rows: list[dict[str, Any]] = [
        {"task_id": "H/9", "completion": ""},
        {"completion": ""},
        {"task_id": "H/0"},
        {"task_id": "H/0", "completion": 3},
    ]
    with pytest.raises(InputError) as error:
        read_samples(file(tmp_path / "s.jsonl", *rows), tasks)
    for line in range(1, 5):
        assert f"s.jsonl:{line}: " in str(error.value)


def test_a_completion_goes_on_and_a_solution_stands_alone_with_the_prompts_imports(tmp_path: Path) -> None:
    (task,) = read_tasks(file(tmp_path / "t.jsonl", HUMANEVAL))
    tests = code_tests(task)
    assert tests.program("    return xs[0]\n", continues=True) == tests.prompt + "    return xs[0]\n"
    whole = tests.program("def first(xs: List[int]): return xs[0]", continues=False)
    assert whole.startswith("from typing import List")
    assert whole.count("def first") == 1
    assert tests.goes_on("    return xs[0]\n")
    assert not tests.goes_on("def first(xs): return xs[0]")


def test_what_most_solutions_of_a_file_are_all_are(tmp_path: Path) -> None:
    tasks = read_tasks(file(tmp_path / "t.jsonl", HUMANEVAL))
    body, whole = "    return xs[0]\n", "def first(xs): return xs[0]"
    bodies = [{"task_id": "H/0", "solution": text} for text in (body, body, whole)]
    assert all(each.continues for each in read_samples(file(tmp_path / "b.jsonl", *bodies), tasks))
    wholes = [{"task_id": "H/0", "solution": text} for text in (whole, whole, body)]
    assert not any(each.continues for each in read_samples(file(tmp_path / "w.jsonl", *wholes), tasks))


def test_a_solution_may_have_the_name_of_a_built_in_function() -> None:
    assert "from solution import sum" in CodeTests(test="assert sum(10, 15) == 6").module()
    assert "import set" not in CodeTests(test="assert set(f(1)) == {1}").module()


def test_a_module_that_the_tests_name_is_imported_and_not_asked_of_the_solution() -> None:
    module = CodeTests(test="assert size((1,)) == sys.getsizeof((1,))").module()
    assert "import sys\n" in module
    assert "from solution import size" in module


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("x = 1", "x = 1"),
        ("Text\n```python\nx = 1\n```\nmore", "x = 1\n"),
        ("```\nx = 0\n```\nbetter:\n```py\nx = 1\n```", "x = 1\n"),
    ],
)
def test_the_program_of_a_reply_is_its_last_block(reply: str, code: str) -> None:
    assert answer(reply) == code


def test_a_task_of_another_kind_is_refused() -> None:
    with pytest.raises(TaskError, match="no programming task"):
        code_tests(Task(id="a", question="q", answer="42"))


def test_a_task_is_not_both_held_out_and_learned_from(tmp_path: Path) -> None:
    path = file(tmp_path / "t.jsonl", HUMANEVAL)
    renamed = file(tmp_path / "renamed.jsonl", {**HUMANEVAL, "task_id": "N/7", "prompt": HUMANEVAL["prompt"] + "\n"})
    for held_out, name in ((path, "H/0"), (renamed, "N/7")):
        with pytest.raises(InputError, match=name):
            load(str(path), str(held_out))
    assert {task.split for task in load("", str(path))} == {Split.HELD_OUT}


@pytest.mark.skipif(not DATA, reason="JOURNEYMAN_DATA is not set")
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("HumanEval", 164),
        ("mbpp", 974),
        ("mbpp_sanitized_for_code_generation", 427),
        ("mbpp_ldb_500", 500),
        ("example_problem", 1),
    ],
)
def test_the_real_files_are_read_whole(name: str, count: int) -> None:
    assert len(read_tasks(f"{DATA}/code-exec/tasks/{name}.jsonl.gz")) == count
