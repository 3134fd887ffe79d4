"""The answer check: what it finds, what it refuses, and that it agrees with what others recorded."""

import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.score import Reward
from journeyman.core.task import Task
from journeyman.core.trace import ModelCall, Trace
from journeyman.tasks import answers
from journeyman.tasks.answers import Exact, ExactOrNear, Number, final_number, final_text, judge_number, truth, whole_number

pytestmark = pytest.mark.service

SAMPLES = Path(__file__).parents[1] / "data"
DATA = os.environ.get("JOURNEYMAN_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="JOURNEYMAN_DATA names no folder of recorded data")


def trace(reply: str) -> Trace:
    call = ModelCall(model="m", prompt="p", reply=reply)
    return Trace(id="t", task_id="t", candidate_id="base", started_at=datetime(2026, 1, 1, tzinfo=UTC), steps=(call,))


async def exact(answer: str, reply: str) -> Reward:
    return await Exact().verify(Task(id="t", question="q", answer=answer), trace(reply))


@pytest.mark.parametrize(
    ("reply", "number"),
    [
        ("16 - 3 - 4 = 9\n#### 9", "9"),
        ("9 * 2 = 18\nA: 18", "18"),
        ("The answer is 5. No, wait.\nAnswer: 6", "6"),
        ("**Answer:** $1,234.50", "1234.50"),
        ("## Final Answer\nThe final answer is: $\\boxed{-\\frac{3}{4}}$", "-0.75"),
        ("Answer:\n\n42 apples", "42"),
        ('{"reasoning": "2 + 2 = 4, so 4", "answer": "4 apples"}', "4"),
        ('{"reasoning": "…", "answer": 12.0}', "12"),
        ('{"answer": "30 + 15 = 45", "note": "5 left"}', "45"),
        ("the answer is x = 0", "0"),
        ("Answer: x = 0", "0"),
        ("so she has 90 - 67.5 left, which is 22.5", "22.5"),
        ("20% of them, that is 8-4", "4"),
        ("Answer: -$10,000", "-10000"),
        ("Answer: $-5", "-5"),
        ("Answer: 3 1/3", "3.333333333333333333333333333"),
        ("Answer: 50%", "50"),
        ("Answer: 18.", "18"),
        ("Answer: .5", "0.5"),
        ("FINAL ANSWER:\n<answer>\n55\n</answer>", "55"),
        ("FINAL ANSWER:\n<answer>\n$m + n = 116$\n</answer>\n\nSolved in 3 steps.", "116"),
        ("<answer>7</answer> No: <answer>8</answer>", "8"),
        ("It is <answer>9", "9"),
        ("Answer: eighteen", "18"),
        ("Answer: 5 + 13 = eighteen", "18"),
        ("5 + 13 = eighteen.", "18"),
        ("She sold 5 and 13 of them, which makes **one hundred and five** dollars.", "105"),
        ("The answer is minus twenty-one.", "-21"),
        ("Answer: two thousand three hundred and six eggs", "2306"),
        ("Two of them left, so there are 16.", "16"),
        ("There are 16, and that is one of the ways.", "16"),
        ("Answer: it takes five months", "5"),
        ("Answer: 1.5e3", "1500"),
        ("Answer: \\(1{,}000\\)", "1000"),
        ("Answer: \\$7", "7"),
        ("Used: B001, B002\nAnswer: 7", "7"),
        ("a = 5\nb = 6\nThe answer is 11 of 20.", "11"),
        ("Let A: be the set.\nA: 3", "3"),
    ],
)
def test_the_final_number_is_found_whatever_stands_around_it(reply: str, number: str) -> None:
    assert final_number(reply) == Decimal(number)


@pytest.mark.parametrize(
    "reply",
    ["", "I cannot tell.", "Answer: none", '{"r": "5 + 5", "answer": "unknown"}', "#### ?", "A: 1/0", "<answer>\n</answer>"]
    + [f"Answer: {words}" for words in ("one third", "one-half", "two and a half", "three point five", "two dozen", "someone")],
)
def test_where_no_number_is_given_none_is_invented(reply: str) -> None:
    assert final_number(reply) is None


def test_an_announced_answer_that_is_no_number_is_not_replaced_by_another_number() -> None:
    assert final_number("3 + 4 = 7\nAnswer: cannot be determined") is None


@given(st.text())
def test_no_reply_breaks_it(reply: str) -> None:
    final_number(reply)
    final_text(reply)


@given(
    st.integers(-(10**9), 10**9),
    st.sampled_from(["#### {}", "A: {}", "So the answer is {}.", "\\boxed{{{}}}", "**Answer**: ${}"]),
)
def test_every_number_comes_back_from_every_form(number: int, form: str) -> None:
    assert final_number("2 + 2 = 4\n" + form.format(f"{number:,}")) == number
    assert final_number("2 + 2 = 4\n" + form.format(number)) == number


def test_endless_digits_take_no_time_and_break_nothing() -> None:
    assert final_number("9" * 100_000) is not None
    final_number("1," * 50_000)
    final_number("- " * 50_000 + "\\boxed{" * 1000)


def test_the_evidence_says_what_was_expected_and_what_came() -> None:
    assert judge_number("… #### 18", "A: 26") == Reward(name="answer", value=0.0, evidence='answer: expected "18", got "26"')
    assert judge_number("… #### 18", "I do not know").evidence == 'answer: expected "18", got no number'
    assert judge_number("… #### 18", "A: 18.00") == Reward(name="answer", value=1.0)


def test_a_truth_without_a_number_makes_the_verdict_unknown() -> None:
    assert judge_number("eighteen", "18").value is None


async def test_an_empty_attempt_is_wrong_and_not_unknown() -> None:
    silent = Trace(id="t", task_id="t", candidate_id="base", started_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert (await Number().verify(Task(id="t", question="q", answer="#### 1"), silent)).value == 0.0


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        ("Paris", "The capital of France is a city.\nAnswer: **paris**."),
        ("Paris", "The answer is Paris."),
        ("The Nile", "nile"),
        ("C++", "Answer: `C++`"),
        ("(B)", "Answer: B"),
        ("4", "It is 4.0 all in all"),
        ("1,000", "Answer: $1000"),
        ("Yes, it is", "answer: yes,  it is"),
        ("thinking … #### Oslo", "Answer: Oslo"),
        ("Paris", "FINAL ANSWER: <answer>Paris</answer>"),
        ("B", "Answer: B) Paris"),
        ("(b)", "The answer is B."),
        ("B", "<answer>\nb. Paris, the capital\n</answer>"),
        ("B) Paris", "Answer: (B)"),
        ("B) Paris", "Answer: B: **paris**"),
        ('{"sku": "mug-blue", "amount": 3}', 'Here it is:\n```json\n{\n  "amount": 3,\n  "sku": "mug-blue"\n}\n```'),
        ("[1, 2]", "[1,2]"),
        ("[3]", "Answer: 3"),
    ],
)
async def test_a_custom_answer_is_compared_by_what_it_says(answer: str, reply: str) -> None:
    assert (await exact(answer, reply)).value == 1.0


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        ("Paris", "not Paris"),
        ("C++", "Answer: C"),
        ("Paris", ""),
        ("4", "five"),
        ("-4", "4"),
        ("B", "Answer: C) Paris"),
        ("B) Paris", "Answer: B) London"),
        ("B", "Answer: Berlin"),
        ('{"city": "OSLO"}', '{"city": "Oslo"}'),
        ('{"city": "OSLO"}', '{\n  "town": "OSLO"\n}'),
        ('{"amount": 1}', '{"amount": true}'),
    ],
)
async def test_another_custom_answer_is_wrong_and_the_evidence_says_so(answer: str, reply: str) -> None:
    verdict = await exact(answer, reply)
    assert verdict.value == 0.0
    assert f'expected "{answer}", got' in verdict.evidence


async def graded(answer: str, reply: str) -> float:
    value = (await ExactOrNear().grade(Task(id="t", question="q", answer=answer), trace(reply))).value
    assert value is not None
    return value


async def test_an_answer_in_json_is_the_nearer_the_more_of_its_fields_are_right() -> None:
    right = '{"name": "order", "arguments": {"place": "OSLO", "price": "700"}}'
    told = [
        "I do not know.",
        '{"name": "quote", "arguments": {"city": "Oslo", "price": "7.00"}}',
        '{"name": "order", "arguments": {"city": "Oslo", "price": "700"}}',
        '{"name": "order", "arguments": {"place": "Oslo", "price": "700"}}',
        '{"name": "order", "arguments": {"place": "OSLO", "price": "700", "rush": "no"}}',
        '{"arguments": {"price": "700", "place": "OSLO"}, "name": "order"}',
    ]
    found = [await graded(right, reply) for reply in told]
    assert found == sorted(set(found))
    assert (found[0], found[-1]) == (0.0, 1.0)
    assert (await graded("Paris", "paris."), await graded("Paris", "Rome")) == (1.0, 0.0)


@given(st.text(), st.text())
async def test_only_what_is_right_is_graded_as_right(answer: str, reply: str) -> None:
    assert (await graded(f'{{"a": {json.dumps(answer)}}}', f'{{"a": {json.dumps(reply)}}}') == 1.0) == (answer == reply)


def test_a_text_with_a_number_in_it_is_no_number() -> None:
    assert whole_number("4 apples") is None
    assert whole_number("$1,234") == 1234


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def verdicts(path: Path) -> Iterator[tuple[str, bool, bool]]:
    """Model, what was recorded, what is found."""
    for row in rows(path):
        for model, made in row.items():
            if isinstance(made, dict):
                # The ground truth ends in `A: N` here, not in `#### N`.
                found = judge_number(str(row["ground_truth"]).replace("\nA: ", "\n#### "), made["solution"])
                yield model, made["is_correct"], found.value == 1.0


def test_it_agrees_with_the_recorded_verdicts_on_a_sample() -> None:
    found = list(verdicts(SAMPLES / "gsm8k" / "example_model_solutions.jsonl"))
    assert len(found) == 80
    assert all(recorded == ours for _, recorded, ours in found)


@needs_data
def test_it_agrees_with_all_5276_recorded_verdicts() -> None:
    found = list(verdicts(Path(str(DATA)) / "gsm8k" / "example_model_solutions.jsonl.gz"))
    assert sum(recorded == ours for _, recorded, ours in found) == len(found) == 5276
    right = Counter(model for model, _, ours in found if ours)
    assert right == {"6b_finetuning": 286, "6b_verification": 515, "175b_finetuning": 458, "175b_verification": 742}


@needs_data
@pytest.mark.parametrize(
    ("model", "right"),
    [
        ("Meta-Llama-3-8B-Instruct", 1036),
        ("Meta-Llama-3.1-70B-Instruct", 1243),
        ("Meta-Llama-3.1-8B-Instruct", 1108),
        ("Mixtral-8x7B-Instruct-v0.1", 927),
        ("Qwen2-7B-Instruct", 1056),
        ("claude-3-5-sonnet-20241022", 1275),
        ("claude-3-haiku-20240307", 1171),
        ("command-r", 703),
        ("gemma-2-2b-it", 698),
        ("gemma-2-9b-it", 1153),
        ("gpt-3.5-turbo-0125", 1061),
        ("gpt-4o-2024-08-06", 1269),
        ("gpt-4o-mini-2024-07-18", 1243),
        ("o1-mini-2024-09-12", 1267),
    ],
)
def test_zeroeval_outputs_are_judged_as_published_but_for_answers_that_are_sums(model: str, right: int) -> None:
    """ZeroEval takes the first number of "30 + 15 = 45"; LOG.md lists where that makes a difference."""
    folder = Path(str(DATA))
    answers = [row["answer"] for row in rows(folder / "gsm8k" / "test.jsonl.gz")]
    outputs = rows(folder / "zeroeval-gsm8k-outputs" / f"{model}.jsonl.gz")
    found = [
        judge_number(answers[row["i"]], row["output"] if isinstance(row["output"], str) else row["output"][0])
        for row in outputs
    ]
    assert sum(reward.value == 1.0 for reward in found) == right
    assert truth(answers[0]) == "18"


AIME = {
    # As published for 30 problems, in per cent.
    "claude-3-5-sonnet_Baseline": 23.3,
    "claude-3-5-sonnet_EmptyCheatsheet": 36.7,
    "claude-3-5-sonnet_Dynamic_Retrieval": 43.3,
    "claude-3-5-sonnet_DynamicCheatsheet_Cumulative": 50.0,
    "claude-3-5-sonnet_DynamicCheatsheet_RetrievalSynthesis": 46.7,
    "gpt-4o_Baseline": 20.0,
    "gpt-4o_EmptyCheatsheet": 36.7,
    "gpt-4o_Dynamic_Retrieval": 26.7,
    "gpt-4o_DynamicCheatsheet_Cumulative": 36.7,
    "gpt-4o_DynamicCheatsheet_RetrievalSynthesis": 40.0,
}


@needs_data
@pytest.mark.parametrize(("run", "published"), AIME.items())
def test_recorded_runs_on_aime_are_judged_as_published(run: str, published: float) -> None:
    found = list(rows(Path(str(DATA)) / "dynamic-cheatsheet" / f"AIME_2024__{run}.jsonl.gz"))
    right = [row for row in found if judge_number(str(row["target"]), row["final_output"]).value == 1.0]
    assert 100 * len(right) / len(found) == pytest.approx(published, abs=0.05)


def recorded_replies() -> Iterator[tuple[str, str, str]]:
    """Question, right answer, reply."""
    folder = Path(str(DATA))
    for row in rows(folder / "gsm8k" / "example_model_solutions.jsonl.gz"):
        for made in row.values():
            if isinstance(made, dict):
                yield row["question"], str(row["ground_truth"]).rpartition("A: ")[2], made["solution"]
    tasks = list(rows(folder / "gsm8k" / "test.jsonl.gz"))
    for row in rows(folder / "zeroeval-gsm8k-outputs" / "claude-3-haiku-20240307.jsonl.gz"):
        task = tasks[row["i"]]
        yield task["question"], truth(task["answer"]), row["output"] if isinstance(row["output"], str) else row["output"][0]
    for run in AIME:
        for row in rows(folder / "dynamic-cheatsheet" / f"AIME_2024__{run}.jsonl.gz"):
            yield row["raw_input"], str(row["target"]), row["final_output"]


@needs_data
def test_what_is_right_is_right_for_one_number_only() -> None:
    """Not for the next one, not ten times it, not its negative, and not for another number of the question."""
    judged = 0
    for question, answer, reply in recorded_replies():
        if judge_number(answer, reply).value != 1.0:
            continue
        right = whole_number(answer)
        assert right is not None
        others = {right + 1, right * 10, -right, *map(Decimal, re.findall(r"\d+", question))} - {right}
        assert not any(judge_number(f"{other:f}", reply).value for other in others), (answer, reply)
        judged += 1
    assert judged > 3000


MILLION = 1_000_000


@pytest.mark.parametrize(
    "reply",
    ["\n" * MILLION, "1," + "111," * MILLION + "1111", "answer is " * MILLION, "the " * MILLION, '"answer" ' * MILLION],
    ids=["lines", "commas", "marks", "words", "keys"],
)
def test_a_reply_that_goes_round_in_circles_is_judged_in_one_pass(reply: str) -> None:
    assert judge_number("#### 3", reply).value == 0.0


def test_what_stands_behind_a_mark_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    first_line = answers._first_line

    def counted(text: str) -> str:
        read.append(len(text))
        return first_line(text)

    monkeypatch.setattr(answers, "_first_line", counted)
    reply = "The answer is 3. " + "answer is " * 5000
    assert final_number(reply) == 3
    assert sum(read) <= len(reply)


@given(st.lists(st.sampled_from(["answer is", "answer:x", "\n", " ", "7", "12", "so"]), max_size=12).map(" ".join))
def test_of_weak_marks_the_last_with_a_number_behind_it_counts(text: str) -> None:
    marks = reversed(list(answers._WEAK.finditer(text)))
    found = (answers.first_number(answers._first_line(text[mark.end() :])) for mark in marks)
    expected = next((number for number in found if number is not None), None)
    if expected is not None and answers._announced(text) is None:
        assert final_number(text) == expected
