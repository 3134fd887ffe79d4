"""One's own data: tables, rows in memory, and columns that are called otherwise."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.core.task import Split
from journeyman.experiments.playbook.training import create_offline_trainer
from journeyman.tasks import rows
from journeyman.tasks.questions import LONGEST, QuestionColumns, custom, guessed


def table(path: Path, *lines: tuple[str, ...], delimiter: str = ",") -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows(lines)
    return str(path)


def asked(input: Any, **more: Any) -> list[tuple[str, str]]:
    return [(task.question, task.answer) for task in custom(input, **more).tasks]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("question", "answer"), ("input", "target"), ("prompt", "completion"), ("input", "ideal"), ("instruction", "output"),
        ("Problem", "Solution"), ("query", "response"), ("input", "expected output"), ("text", "label"),
    ],
)  # fmt: skip
def test_the_names_of_others_are_known(tmp_path: Path, question: str, answer: str) -> None:
    path = table(tmp_path / "mine.csv", ("nr", question, answer), ("1", "2 + 2?", "4"), ("2", "Of France?", "Paris"))
    assert asked(path) == [("2 + 2?", "4"), ("Of France?", "Paris")]
    lines = tmp_path / "mine.jsonl"
    lines.write_text(json.dumps({question: "2 + 2?", answer: 4}) + "\n")
    assert asked(str(lines)) == [("2 + 2?", "4")]


def test_columns_of_any_name_can_be_said_and_a_domain_with_them(tmp_path: Path) -> None:
    path = table(tmp_path / "mails.csv", ("id", "body", "department", "site"), ("7", "My tap drips", "plumbing", "oslo"))
    (task,) = custom(path, columns=QuestionColumns(question="body", answer="department", domain="site")).tasks
    assert (task.id, task.question, task.answer, task.domain) == ("7", "My tap drips", "plumbing", "oslo")


@pytest.mark.parametrize(
    ("columns", "said", "message"),
    [
        (("body", "team"), QuestionColumns(), "none is plainly the question; say which one is: --question COLUMN (there are"),
        (("input", "prompt", "answer"), QuestionColumns(), "input and prompt could each be the question"),
        (("question", "team"), QuestionColumns(), "none is plainly the answer; say which one is: --answer COLUMN"),
        (("question", "answer"), QuestionColumns(answer="Answer"), "has no column 'Answer', which --answer names; there are"),
    ],
)  # fmt: skip
def test_what_the_names_do_not_tell_is_asked_for_with_the_columns_that_were_seen(
    tmp_path: Path, columns: tuple[str, ...], said: QuestionColumns, message: str
) -> None:
    path = table(tmp_path / "mine.csv", columns, tuple("x" for _ in columns))
    with pytest.raises(InputError) as caught:
        custom(path, columns=said)
    assert message in str(caught.value)
    assert f"the columns {', '.join(columns)}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_column_with_the_very_name_is_it_whatever_stands_beside(tmp_path: Path) -> None:
    path = table(tmp_path / "mine.csv", ("question", "text", "answer", "label"), ("Who?", "no", "Ada", "no"))
    assert asked(path) == [("Who?", "Ada")]


def test_rows_of_chat_messages_are_asked_by_what_came_before_the_last_answer() -> None:
    told = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "4"},
    ]
    assert asked([{"messages": told}]) == [("Be brief.\n\n2 + 2?", "4")]
    assert asked([{"input": told[:2], "target": ["4"]}]) == [("Be brief.\n\n2 + 2?", "4")]
    assert asked([{"input": "Which?", "choices": ["a cat", "a dog"], "target": "B"}]) == [("Which?\nA) a cat\nB) a dog", "B")]
    with pytest.raises(InputError, match="row 1: no messages"):
        custom([{"messages": told[:2]}])


def test_rows_in_memory_and_a_data_frame_are_read_as_a_file_is() -> None:
    assert asked([{"prompt": "2 + 2?", "completion": 4}]) == [("2 + 2?", "4")]

    class Frame:
        """What pandas gives, with its word for what is missing."""

        iloc = None  # by which a DataFrame of pandas is known

        def to_dict(self, orient: str) -> list[dict[str, Any]]:
            assert orient == "records"
            return [{"question": "2 + 2?", "answer": 4, "id": float("nan")}]

        def __bool__(self) -> bool:
            raise ValueError("the truth value of a DataFrame is ambiguous")

        def __iter__(self) -> Any:
            return iter(("question", "answer", "id"))

    assert asked(Frame()) == [("2 + 2?", "4")]
    mixed: list[Any] = [{"question": "2 + 2?", "answer": 4}, "2 + 2?"]
    with pytest.raises(InputError, match="row 2: a str, and no mapping"):
        custom(mixed)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_a_table_may_be_delimited_in_any_usual_way(tmp_path: Path, delimiter: str) -> None:
    name = "mine.tsv" if delimiter == "\t" else "mine.csv"
    lines = ("question", "answer"), ("Say: 1, 2; 3", "yes|no"), ("two\nlines", "3"), ("", "")
    assert asked(table(tmp_path / name, *lines, delimiter=delimiter)) == [("Say: 1, 2; 3", "yes|no"), ("two\nlines", "3")]


def test_every_fault_of_a_table_is_named_by_its_line(tmp_path: Path) -> None:
    path = table(tmp_path / "mine.csv", ("question", "answer"), ("two\nlines", ""), ("1, 2?", "3", "4"), ("", "5"))
    with pytest.raises(InputError) as caught:
        custom(path)
    assert str(caught.value).splitlines()[1:] == [
        f"  {path}:2: no answer",
        f"  {path}:4: 3 cells, and there are 2 columns; put a text with ',' into quotes",
        f"  {path}:5: no question",
    ]
    with pytest.raises(InputError, match="two columns are called 'a'"):
        custom(table(tmp_path / "twice.csv", ("a", "a"), ("1", "2")))


@given(
    st.lists(
        st.tuples(
            *[st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\r"), min_size=1, max_size=40)] * 2
        )
    )
)
def test_whatever_a_table_was_written_with_is_read_from_it(
    tmp_path_factory: pytest.TempPathFactory, cells: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("tables") / "mine.csv"
    written = io.StringIO(newline="")
    csv.writer(written).writerows([("question", "answer"), *cells])
    path.write_text(written.getvalue(), encoding="utf-8", newline="")
    bad = rows.Complaints("")
    found = [(row.value.get("question", ""), row.value.get("answer", "")) for row in rows.read(path, bad)]
    wanted = [tuple(cell if cell.strip() else "" for cell in line) for line in cells]
    assert found == wanted
    assert bad.found == []


def test_parquet_is_read_by_its_content(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "mine.bin"
    parquet.write_table(pyarrow.table({"input": ["2 + 2?", "3 + 3?"], "target": [4, 6], "id": [None, None]}), path)
    assert asked(str(path)) == [("2 + 2?", "4"), ("3 + 3?", "6")]
    path.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(InputError, match=r"mine\.bin is no Parquet: "):
        custom(str(path))


def test_a_question_that_no_model_can_read_is_refused_with_its_line(tmp_path: Path) -> None:
    path = table(tmp_path / "mine.csv", ("question", "answer"), ("short", "1"), ("x" * (LONGEST + 1), "2"))
    with pytest.raises(InputError, match=r"mine\.csv:3: the question has 4,000,001 characters, and no model reads more"):
        custom(path)


def test_which_data_set_a_file_is_follows_from_its_rows(tmp_path: Path) -> None:
    def of(**row: Any) -> str:
        (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
        return guessed(str(tmp_path / "rows.jsonl"))

    assert of(question="2 + 2?", answer="so it is\n#### 4") == "gsm8k"
    assert of(question="2 + 2?", answer="4") == "custom"
    assert of(input="2 + 2?", target="4") == "custom"
    assert of(task_id="a", prompt="def f():", test="def check(f): ...", entry_point="f") == "humaneval"
    assert of(task_id=1, text="Write f", code="", test_list=["assert f()"]) == "mbpp"
    assert guessed(table(tmp_path / "mine.csv", ("q", "a"), ("x", "y"))) == "custom"
    assert guessed(str(tmp_path)) == "gsm8k"


def test_sixty_rows_leave_enough_held_out_for_a_gate(tmp_path: Path) -> None:
    path = table(tmp_path / "mine.csv", ("input", "target"), *((f"{n} + 1?", str(n + 1)) for n in range(60)))
    assert len(custom(path).split(Split.HELD_OUT)) == 30


def test_a_program_trains_on_rows_that_it_has_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows_ = [{"input": f"{n} + 1?", "target": n + 1} for n in range(60)]
    trainer = create_offline_trainer(data=rows_, generator_model="scripted:4", evaluate=False)
    result = trainer.train()
    assert result.finished
    assert result.metrics.total_examples == trainer.there_are[Split.TRAIN]
