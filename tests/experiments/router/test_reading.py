"""Outcomes from files, logs and the store, and prices by model."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from journeyman.core.errors import InputError
from journeyman.core.policy import Card, Choice, Ending, Outcome
from journeyman.core.trace import ModelCall, Trace
from journeyman.optimizers.router import outcomes
from journeyman.optimizers.router.decisions import DecisionLog
from journeyman.stores import open_traces

SAMPLE = Path(__file__).parents[2] / "data" / "routellm" / "gsm8k.jsonl.gz"


def test_a_real_file_has_the_success_that_its_source_tells() -> None:
    table = outcomes.table(outcomes.rows_of_files([SAMPLE]))
    assert (len(table), table.workers) == (300, ("weak", "strong"))
    np.testing.assert_allclose(np.nanmean(table.success, axis=0), [0.6467, 0.8367], atol=1e-4)
    assert np.isnan(table.cost).all()


def test_answers_of_one_request_may_stand_in_several_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt") as file:
            file.write(json.dumps({"request": "Add.", "model": name, "success": 1}) + "\n")
    (row,) = outcomes.rows_of_files([tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"])
    assert set(row.outcomes) == {"a", "b"}


def test_a_log_of_decisions_is_a_file_of_outcomes(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log.jsonl")
    choice = Choice(worker="a", propensity=0.5, candidates=("a", "b"), policy="p")
    log.became(log.decided(choice, "Add.", type="sums"), Outcome(ending=Ending.RIGHT, success=1.0))
    log.decided(choice, "Nobody knows yet.")
    (row,) = outcomes.rows_of_files([log.path])
    assert (row.request, row.type, row.propensity, set(row.outcomes)) == ("Add.", "sums", 0.5, {"a"})


def test_all_that_is_wrong_with_files_is_said_at_once_or_left_out(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"request": "Add.", "model": "a", "success": 1}\n{"success": 1}\nno json\n')
    with pytest.raises(InputError, match=r"(?s)bad\.jsonl:2.*bad\.jsonl:3"):
        outcomes.rows_of_files([path])
    left_out: list[str] = []
    assert len(outcomes.rows_of_files([path], left_out)) == 1
    assert len(left_out) == 2


def test_a_file_without_outcomes_is_told_how_one_looks(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(InputError, match="holds no outcome; a line is"):
        outcomes.rows_of_files([tmp_path / "empty.jsonl"])


def test_the_store_gives_judged_traces_and_nothing_that_is_held_out() -> None:
    def trace(id: str, model: str, label: bool | None, split: str = "train") -> Trace:
        call = ModelCall(model=model, prompt="Add.", reply="3", started_at=datetime.now(UTC), response_id=id)
        return Trace(
            id=id, task_id="t", candidate_id="base", started_at=datetime.now(UTC), steps=(call,), input="Add.", label=label,
            raw={"split": split},
        )  # fmt: skip

    with open_traces("memory:") as store:
        store.add([trace("1", "a", True), trace("2", "b", False), trace("3", "c", None), trace("4", "d", True, "held_out")])
        (row,) = outcomes.rows_of_store(store)
    assert {name: outcome.success for name, outcome in row.outcomes.items()} == {"a": 1.0, "b": 0.0}


def test_prices_come_from_the_file_else_from_the_list_else_are_unknown(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"mine": {"input_token_price_per_million": 1, "output_price": 2.5, "feature": "quick"}}))
    found = outcomes.cards(["mine", "gpt-4o-mini", "unheard of"], path)
    assert found["mine"] == Card(name="mine", description="quick", input_price=1.0, output_price=2.5)
    assert found["gpt-4o-mini"].input_price == 0.15
    assert found["unheard of"] == Card(name="unheard of")


@pytest.mark.parametrize("text", ["[]", "{", '{"a": 3}', '{"a": {"input_price": -1}}', '{"a": {"output_price": "free"}}'])
def test_a_file_of_prices_that_is_none_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prices.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"prices\.json"):
        outcomes.cards(["a"], path)
