import gzip
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError, ModelError
from journeyman.models import load
from journeyman.models.base import ModelRequest, PromptMessage
from journeyman.models.recorded import RecordedModel
from tests.support.examples import examples

DATA = Path(__file__).parent.parent / "data"
SOLUTIONS = DATA / "gsm8k" / "example_model_solutions.jsonl"
ROBE = "A robe takes 2 bolts of blue fiber and half that much white fiber. How many bolts in total does it take?"


def ask(text: str) -> ModelRequest:
    return ModelRequest(messages=(PromptMessage("system", "solve it"), PromptMessage("user", text)))


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


async def test_openais_solutions_are_replayed_by_column() -> None:
    model = load(f"recorded:{SOLUTIONS}#175b_verification")
    reply = await model.complete(ask(ROBE))
    assert reply.text.endswith("A: 3")
    assert (model.deterministic, model.dialect) == (True, "full")
    assert reply.input_tokens is None


async def test_outputs_by_row_number_find_their_questions_next_door() -> None:
    reply = await RecordedModel(str(DATA / "zeroeval" / "gpt-4o-mini.jsonl")).complete(ask(ROBE))
    assert '"answer": "3"' in reply.text


async def test_the_file_of_questions_can_be_named(tmp_path: Path) -> None:
    outputs = write(tmp_path / "o.jsonl", {"i": 1, "output": "second"})
    questions = write(tmp_path / "q.jsonl", {"question": "one?"}, {"question": "two?"})
    assert (await RecordedModel(f"{outputs}#{questions}").complete(ask("two?"))).text == "second"


async def test_anybodys_own_outputs_are_replayed_gzipped_or_not(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "o.jsonl.gz", "wt", encoding="utf-8") as out:
        out.write(json.dumps({"question": "two and\n two?", "output": "4"}) + "\n\n")
    assert (await RecordedModel(str(tmp_path / "o.jsonl.gz")).complete(ask("two  and two?"))).text == "4"


async def test_the_question_is_found_inside_a_prompt_and_the_longest_one_wins(tmp_path: Path) -> None:
    rows = [{"question": q, "output": q.upper()} for q in ("how many?", "of ten, how many?", "else")]
    model = RecordedModel(str(write(tmp_path / "o.jsonl", *rows)))
    assert (await model.complete(ask("Use the rules.\n\nof ten,\n how many?\nThink."))).text == "OF TEN, HOW MANY?"
    assert (await model.complete(ask("how many?"))).text == "HOW MANY?"


async def test_an_unknown_question_is_an_error_that_quotes_it(tmp_path: Path) -> None:
    model = RecordedModel(str(write(tmp_path / "o.jsonl", {"question": "a?", "output": "b"})))
    with pytest.raises(ModelError, match="holds no answer to 'Which way"):
        await model.complete(ask("Which way is north?"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is empty"),
        ("nonsense\n", "o.jsonl:1: no JSON"),
        ("[1]\n", "o.jsonl:1: not a JSON object"),
        ('{"question": "a"}\n', "o.jsonl:1: no outputs here"),
        ('{"question": "a", "output": "b"}\n{"question": "", "output": "b"}\n', "o.jsonl:2: no question"),
        ('{"question": "a", "output": "b"}\n{"question": "c", "output": 1}\n', "o.jsonl:2: no text under 'output'"),
        ('{"i": 0, "output": "b"}\n', "the questions were not found"),
        ('{"question": "a", "x": {"solution": "1"}, "y": {"solution": "2"}}\n', "write one of #x, #y after the path"),
    ],
)
def test_a_file_that_cannot_be_used_says_where_and_why(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "o.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        RecordedModel(str(path))


def test_all_bad_rows_are_named_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "o.jsonl", {"question": "a", "output": "b"}, {"question": "c"}, {"output": "d"})
    with pytest.raises(InputError, match=r"o\.jsonl:2: no text under 'output'; .*o\.jsonl:3: no question"):
        RecordedModel(str(path))


def test_a_column_or_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no column '900b'; write one of #6b_finetuning"):
        RecordedModel(f"{SOLUTIONS}#900b")
    with pytest.raises(InputError, match=r"nowhere\.jsonl is not there"):
        RecordedModel(str(tmp_path / "nowhere.jsonl"))


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(SOLUTIONS.read_bytes())
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="could not be read"):
        RecordedModel(str(tmp_path / "cut.jsonl.gz") + "#6b_finetuning")


@examples(one_fixture=True)
@given(st.dictionaries(st.text(min_size=1, max_size=30).filter(str.strip), st.text(max_size=20), min_size=1, max_size=8))
async def test_every_question_gets_its_own_output_back(tmp_path: Path, outputs: dict[str, str]) -> None:
    distinct = {" ".join(question.split()): (question, output) for question, output in outputs.items()}
    rows = [{"question": question, "output": output} for question, output in distinct.values()]
    model = RecordedModel(str(write(tmp_path / "o.jsonl", *rows)))
    for question, output in distinct.values():
        assert (await model.complete(ask(question))).text == output


async def test_the_published_solutions_are_replayed_whole() -> None:
    data = os.environ.get("JOURNEYMAN_DATA")
    if not data:
        pytest.skip("JOURNEYMAN_DATA does not name the folder of data sets")
    files = sorted((Path(data) / "zeroeval-gsm8k-outputs").glob("*.jsonl.gz"))
    assert len(files) == 14
    for file in files:
        assert len(RecordedModel(str(file)).questions) == 1319
    source = Path(data) / "gsm8k" / "example_model_solutions.jsonl.gz"
    model = RecordedModel(f"{source}#175b_verification")
    with gzip.open(source, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            reply = await model.complete(ask(f"Solve this.\n\n{row['question']}\n\nEnd with the number."))
            assert reply.text == row["175b_verification"]["solution"]
