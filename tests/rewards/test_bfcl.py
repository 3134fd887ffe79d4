"""Our verdicts on tool calls beside those of the Berkeley Function Calling Leaderboard."""

import gzip
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from journeyman.rewards.answers import FunctionCall, mismatch, parse_call

SAMPLE = Path(__file__).parents[1] / "data" / "bfcl" / "sample.jsonl"
DATA = os.environ.get("JOURNEYMAN_DATA", "")
needs_data = pytest.mark.skipif(not DATA, reason="set JOURNEYMAN_DATA to the folder of the data sets")

MODELS = {
    "claude-sonnet-4-5": ("result_claude_fix__", "eval_claude_fix__claude-sonnet-4-5-20250929-FC__non_live__", 392),
    "DeepSeek-V3.1-Terminus": ("result_deepseek__", "eval_deepseek__DeepSeek-V3.1-Terminus-FC__non_live__", 241),
}
"""Where each one's results and scores are, and the published number of right ones of 400."""

CATEGORIES = {
    "simple_python": 0, "multiple": 0, "parallel": 0, "parallel_multiple": 2, "live_simple": 2, "live_multiple": 3,
    "live_parallel": 0, "live_parallel_multiple": 0,
}  # fmt: skip
"""How many possible answers contradict their own tool's description: they name an argument it does not have, or leave out
one that it requires. By the leaderboard's rules nobody can be right there."""


def rows(name: str) -> list[dict[str, Any]]:
    with gzip.open(Path(DATA) / "bfcl" / name, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def made(result: Any) -> list[FunctionCall]:
    """The calls of a result; a text in their place is no call."""
    calls = [parse_call(*pair) for call in result if isinstance(call, dict) for pair in call.items()]
    return [call for call in calls if call is not None]


def gold(allowed: Mapping[str, list[Any]]) -> dict[str, Any]:
    """One right call: of every argument the last value that is one."""
    return {key: built(values) for key, values in chosen(allowed).items()}


def chosen(allowed: Mapping[str, list[Any]]) -> dict[str, Any]:
    present = {key: [value for value in values if value != ""] for key, values in allowed.items()}
    return {key: values[-1] for key, values in present.items() if values}


def built(value: Any) -> Any:
    """In an object, and in a list of objects, each key has its allowed values again; no deeper."""
    if isinstance(value, dict):
        return chosen(value)
    if isinstance(value, list) and value and all(isinstance(part, dict) for part in value):
        return [chosen(part) for part in value]
    return value


def right_calls(truth: list[dict[str, Any]]) -> list[FunctionCall]:
    return [FunctionCall(name, gold(allowed)) for call in truth for name, allowed in call.items()]


def mutants(calls: list[FunctionCall]) -> Iterator[list[FunctionCall]]:
    """Calls that are wrong in one way each."""
    first, *rest = calls
    yield rest
    yield [*calls, first]
    yield [FunctionCall(f"not_{first.name}", first.arguments), *rest]
    yield [FunctionCall(first.name, {**first.arguments, "no_such_argument": 1}), *rest]
    for key, value in first.arguments.items():
        changed = f"{value} and not that" if isinstance(value, str) else {"not": "that"}
        yield [FunctionCall(first.name, {**first.arguments, key: changed}), *rest]


@pytest.mark.parametrize("row", [json.loads(line) for line in SAMPLE.read_text().splitlines()], ids=lambda row: row["id"])
def test_verdicts_on_the_sample_agree_and_right_calls_are_right(row: dict[str, Any]) -> None:
    if "result" in row:
        found = made(row["result"]) if isinstance(row["result"], list) else []
        assert (mismatch(row["ground_truth"], found, row["function"]) == "") is row["valid"]
    calls = right_calls(row["ground_truth"])
    assert mismatch(row["ground_truth"], calls[::-1], row["function"]) == ""
    assert all(mismatch(row["ground_truth"], wrong, row["function"]) for wrong in mutants(calls))


@needs_data
@pytest.mark.parametrize("model", MODELS)
def test_every_recorded_verdict_of_the_leaderboard_is_ours(model: str) -> None:
    results, scores, published = MODELS[model]
    questions = {row["id"]: row for row in rows("v4/BFCL_v4_simple_python.jsonl.gz")}
    truths = {row["id"]: row["ground_truth"] for row in rows("v4/possible_answer/BFCL_v4_simple_python.jsonl.gz")}
    header, *refused = rows(f"v4_runs_pr/{scores}BFCL_v4_simple_python_score.jsonl.gz")
    assert (header["correct_count"], header["total_count"]) == (published, 400)
    ours = set()
    for row in rows(f"v4_runs_pr/{results}BFCL_v4_simple_python_result.jsonl.gz"):
        found = made(row["result"]) if isinstance(row["result"], list) else []
        if mismatch(truths[row["id"]], found, questions[row["id"]]["function"]):
            ours.add(row["id"])
    assert 400 - len(ours) == published
    assert ours == {row["id"] for row in refused}


@needs_data
@pytest.mark.parametrize("category", CATEGORIES)
def test_possible_answers_are_right_and_changed_ones_wrong(category: str) -> None:
    questions = {row["id"]: row for row in rows(f"v4/BFCL_v4_{category}.jsonl.gz")}
    contradictions = []
    for row in rows(f"v4/possible_answer/BFCL_v4_{category}.jsonl.gz"):
        truth, tools = row["ground_truth"], questions[row["id"]]["function"]
        calls = right_calls(truth)
        fault = mismatch(truth, calls[::-1], tools)
        if fault:
            assert "is one too many" in fault or "is missing" in fault
            contradictions.append(row["id"])
        unseen = [wrong for wrong in mutants(calls) if not mismatch(truth, wrong, tools)]
        assert unseen == [], row["id"]
    assert len(contradictions) == CATEGORIES[category]
