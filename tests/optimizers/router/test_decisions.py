"""The log of decisions: what was written is read back, also after a kill, and by many writers at once."""

import json
import stat
import threading
from pathlib import Path

import pytest

from journeyman.core.errors import InputError
from journeyman.core.policy import Choice, Ending, Forecast, Outcome
from journeyman.optimizers.router import decisions
from journeyman.optimizers.router.decisions import DecisionLog
from tests.support.full_disk import no_file_larger_than

FORECAST = Forecast(worker="small", success=0.8, cost=None, p50=0.5, p95=None)
CHOICE = Choice(
    worker="small",
    propensity=0.95,
    candidates=("large", "small"),
    policy="p1",
    forecasts=(FORECAST,),
    reason="cheap",
    explored=True,
)
OUTCOME = Outcome(ending=Ending.RIGHT, success=1.0, cost=0.01, seconds=0.4, input_tokens=3, output_tokens=4)


def test_a_decision_and_what_became_of_it_are_read_back_as_they_were(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "new" / "log.jsonl")
    id = log.decided(CHOICE, "Add 1 and 2.", type="sums", session="s")
    log.decided(CHOICE, "Add 3 and 4.")
    log.became(id, OUTCOME)
    first, second = decisions.read(log.path)
    assert (first.choice, first.outcome, first.request, first.type, first.session) == (
        CHOICE,
        OUTCOME,
        "Add 1 and 2.",
        "sums",
        "s",
    )
    assert second.outcome is None
    (row,) = decisions.rows([first, second])
    assert (row.outcomes, row.propensity) == ({"small": OUTCOME}, 0.95)


def test_without_texts_only_digests_are_kept(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log.jsonl", texts=False)
    log.decided(CHOICE, "My secret.")
    assert "secret" not in log.path.read_text()
    (found,) = decisions.read(log.path)
    assert (found.request, found.digest) == (None, decisions.digest("My secret."))


def test_half_a_line_of_one_who_was_killed_costs_that_line_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = DecisionLog(tmp_path / "log.jsonl")
    log.decided(CHOICE, "first")
    whole = log.path.read_bytes()
    log.path.write_bytes(whole + whole[: len(whole) // 2])
    assert [each.request for each in decisions.read(log.path)] == ["first"]
    log.decided(CHOICE, "second")
    assert [each.request for each in decisions.read(log.path)] == ["first", "second"]
    assert "log.jsonl:2 is half a line" in caplog.text


def test_threads_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    def write() -> None:
        log = DecisionLog(tmp_path / "log.jsonl")
        for number in range(50):
            log.became(log.decided(CHOICE, f"{number}" * 500), OUTCOME)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = decisions.read(tmp_path / "log.jsonl")
    assert len(found) == 200
    assert all(each.outcome == OUTCOME for each in found)


def test_a_log_is_its_owners_alone_and_is_told_from_a_file_of_outcomes(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log.jsonl")
    log.decided(CHOICE, "Add.")
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
    other = tmp_path / "outcomes.jsonl"
    other.write_text('{"request": "Add.", "model": "a", "success": 1}\n')
    assert decisions.is_log(log.path)
    assert not decisions.is_log(other)
    assert not decisions.is_log(tmp_path / "missing")


@pytest.mark.parametrize(
    "change", [{"propensity": 0}, {"propensity": 1.5}, {"worker": "unheard of"}, {"at": "soon"}, {"at": None}]
)
def test_a_whole_line_that_is_no_decision_is_named(tmp_path: Path, change: dict[str, object]) -> None:
    log = DecisionLog(tmp_path / "log.jsonl")
    log.decided(CHOICE, "Add.")
    line = {**json.loads(log.path.read_text()), **change}
    log.path.write_text(f"{json.dumps(line)}\n")
    with pytest.raises(InputError, match=r"log\.jsonl:1: no decision"):
        decisions.read(log.path)


def test_a_log_that_cannot_be_written_or_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        DecisionLog(tmp_path).decided(CHOICE, "Add.")
    with pytest.raises(InputError, match="is not there; name a log of decisions"):
        decisions.read(tmp_path / "missing.jsonl")
    with pytest.raises(InputError, match="could not be read"):
        decisions.read(tmp_path)


def test_a_decision_that_a_full_disk_cuts_off_is_refused_and_those_before_and_after_it_are_there(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log.jsonl")
    log.decided(CHOICE, "first")
    with no_file_larger_than(log.path.stat().st_size + 20), pytest.raises(InputError, match="No space left"):
        log.decided(CHOICE, "second")
    log.decided(CHOICE, "third")
    assert [each.request for each in decisions.read(log.path)] == ["first", "third"]
