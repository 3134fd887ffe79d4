import json
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from journeyman import rewards
from journeyman.core.errors import InputError, SandboxError, StoreError
from journeyman.core.trace import Trace
from journeyman.experiments import scoring
from journeyman.experiments.compare import read_results
from journeyman.experiments.scoring import ScoreCache, digest, keys, read_traces, reports, score_all, summary
from journeyman.io import executors
from journeyman.rewards.base import RewardResult
from journeyman.rewards.code_execution import CodeExecutionReward
from journeyman.rewards.engine import RewardEngine, Verdicts
from journeyman.sandbox.base import Sandbox
from journeyman.tracing.importers.jsonl import line
from tests.support import jobs
from tests.support.traces import done, reply, said, used

SAMPLE = Path(__file__).parent / "data" / "tau-bench" / "gpt-4o-airline-sample.jsonl"


@dataclass(kw_only=True)
class Counting:
    """A reward that counts how often it is asked."""

    version: str = "1"
    name: str = "counting"
    weight: float = 1.0
    asked: list[str] = field(default_factory=list)

    def compute(self, trace: Trace) -> RewardResult:
        self.asked.append(trace.id)
        return RewardResult(score=1.0, is_binary=True, details={"evidence": "counted"})


def gone() -> Sandbox:
    raise SandboxError("no sandbox")


def static() -> RewardEngine:
    return RewardEngine([rewards.load(name) for name in rewards.STATIC])


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ScoreCache]:
    made = ScoreCache(tmp_path / "folder" / "scores.db")
    yield made
    made.close()


def many(number: int) -> list[Trace]:
    return [replace(done(used("a", "Error" if i % 3 else "fine"), reply(f"x{i}")), id=str(i)) for i in range(number)]


def without(verdicts: list[Verdicts], name: str) -> list[Verdicts]:
    return [replace(one, results={key: each for key, each in one.results.items() if key != name}) for one in verdicts]


@pytest.mark.service
def test_verdicts_come_in_the_order_of_the_traces_whoever_computes_them() -> None:
    traces = many(200)
    engine = RewardEngine([*static().rewards, jobs.Whereabouts()])
    alone = score_all(traces, engine)
    with executors.load("local:2") as pool:
        together = score_all(traces, engine, workers=pool)
    assert [one.trace_id for one in together] == [str(i) for i in range(200)]
    assert without(together, "whereabouts") == without(alone, "whereabouts")
    told = [one.results["whereabouts"].details for one in together]
    assert [each["trace"] for each in told] == [str(i) for i in range(200)]
    assert os.getpid() not in {each["process"] for each in told}


class Elsewhere(executors.Here):
    """Workers that take JSON alone; how many traces came at once."""

    plain = True

    def __init__(self) -> None:
        self.pieces: list[int] = []

    def map(self, function: Any, items: Any, **more: Any) -> Iterator[Any]:
        for item in items:
            self.pieces.append(len(item["rows"]))
            yield json.loads(json.dumps(function(json.loads(json.dumps(item)))))


def test_what_takes_less_than_to_hand_a_trace_over_is_done_here_whoever_the_workers_are() -> None:
    nobody = Elsewhere()
    assert score_all(many(200), static(), workers=nobody, by_task=True) == score_all(many(200), static(), by_task=True)
    assert nobody.pieces == []


def test_static_rewards_that_take_long_cross_and_say_the_same_of_each_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "_PATIENCE", -1.0)
    traces = [replace(said("x", tokens=10 * i), id=str(i), task_id=str(i // 3)) for i in range(1, 200)]
    elsewhere = Elsewhere()
    assert score_all(traces, static(), workers=elsewhere, by_task=True) == score_all(traces, static(), by_task=True)
    assert sum(elsewhere.pieces) == len(traces)


def test_pieces_are_as_large_as_they_are_quick_and_are_not_cut_by_tasks() -> None:
    traces = [replace(trace, task_id=trace.id) for trace in many(2100)]
    sizes = []
    for seconds in (0.0, 0.2):
        at_once: list[int] = []
        engine = RewardEngine([jobs.Whereabouts(seconds=seconds)])
        score_all(traces[: 2100 if not seconds else 4], engine, by_task=True, done=at_once.append)
        sizes.append(at_once)
    assert sizes[0][:4] == [1, 2, 4, 8]
    assert max(sizes[0]) == 64
    assert sizes[1] == [1, 1, 1, 1]


def test_each_trace_is_scored_once(cache: ScoreCache) -> None:
    reward = Counting()
    first = score_all(many(70), RewardEngine([reward]), cache=cache)
    again = score_all(many(71), RewardEngine([reward]), cache=cache)
    assert len(reward.asked) == 71
    assert again[:70] == first


def test_another_version_of_a_reward_or_other_content_of_a_trace_is_scored_anew(cache: ScoreCache) -> None:
    score_all(many(2), RewardEngine([Counting()]), cache=cache)
    newer, other = Counting(version="2"), Counting()
    score_all(many(2), RewardEngine([newer]), cache=cache)
    score_all([replace(trace, error="x") for trace in many(2)], RewardEngine([other]), cache=cache)
    assert (len(newer.asked), len(other.asked)) == (2, 2)


def test_another_weight_needs_no_new_verdict(cache: ScoreCache) -> None:
    score_all(many(2), RewardEngine([Counting()]), cache=cache)
    heavier = Counting(weight=5.0)
    found = score_all(many(2), RewardEngine([heavier]), cache=cache)
    assert heavier.asked == []
    assert found[0].weights == {"counting": 5.0}


def test_only_the_rewards_that_are_new_are_asked(cache: ScoreCache) -> None:
    old = Counting()
    score_all(many(3), RewardEngine([old]), cache=cache)
    found = score_all(many(3), RewardEngine([old, rewards.load("tool_success")]), cache=cache)
    assert len(old.asked) == 3
    assert list(found[0].results) == ["counting", "tool_success"]


def test_a_verdict_that_a_broken_sandbox_prevented_is_sought_again(cache: ScoreCache) -> None:
    trace = said("```python\nprint(1)\n```")
    (first,) = score_all([trace], RewardEngine([CodeExecutionReward(gone)]), cache=cache)
    assert first.combined is None
    assert cache.get(digest(trace), keys([CodeExecutionReward(gone)])) == {}
    assert summary(RewardEngine([CodeExecutionReward(gone)]), [first])["rewards"]["code_execution"]["unreachable"] == 1


def test_a_version_is_asked_for_once_however_many_traces_there_are(cache: ScoreCache) -> None:
    class Slow(Counting):
        asked_version = 0

        def __getattribute__(self, name: str) -> Any:
            if name == "version":
                Slow.asked_version += 1
            return super().__getattribute__(name)

    score_all(many(100), RewardEngine([Slow()]), cache=cache)
    assert Slow.asked_version == 1


def test_verdicts_that_cannot_be_kept_leave_the_cache_as_it_was(cache: ScoreCache) -> None:
    good = RewardResult(score=1.0)
    with pytest.raises(StoreError, match=r"scores\.db cannot be used"):
        cache.add([(b"one", "counting 1", good), (b"two", None, good)])  # type: ignore[list-item]
    cache.add([(b"two", "counting 1", good)])
    assert (cache.get(b"one", {"counting": "counting 1"}), len(cache.get(b"two", {"counting": "counting 1"}))) == ({}, 1)


def test_two_may_use_one_cache_at_once(tmp_path: Path) -> None:
    one, two = ScoreCache(tmp_path / "scores.db"), ScoreCache(tmp_path / "scores.db")
    reward = Counting()
    score_all(many(5), RewardEngine([reward]), cache=one)
    score_all(many(5), RewardEngine([reward]), cache=two)
    one.close()
    two.close()
    assert len(reward.asked) == 5


def test_a_file_that_is_no_cache_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "scores.db").write_text("not a database, and long enough to be looked at by SQLite" * 20)
    with pytest.raises(StoreError, match=r"scores\.db cannot be used; delete it"):
        ScoreCache(tmp_path / "scores.db")


def test_the_cache_holds_no_more_than_digests_and_verdicts(cache: ScoreCache) -> None:
    score_all([said("a secret reply")], static(), cache=cache)
    with sqlite3.connect(cache.path) as db:
        kept = str(list(db.execute("select * from verdict")))
    db.close()
    assert "secret" not in kept


def test_attempts_at_one_task_are_measured_by_each_other() -> None:
    group = [replace(said("x", tokens=tokens), id=str(tokens)) for tokens in (10, 20, 80)]
    alone = replace(said("x", tokens=5), task_id="other", id="5")
    found = score_all([group[0], alone, *group[1:]], static(), by_task=True)
    assert [one.results["efficiency"].score for one in found] == [1.0, None, 1.0, 0.625]


def test_every_bad_line_is_named_at_once(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    file.write_text("\n".join([line(said("x")), "{", '{"messages": 1}', '"text"', line(said("y")), '{"x": 1}']))
    with pytest.raises(InputError) as error:
        read_traces([file])
    assert all(f"traces.jsonl:{number}: " in str(error.value) for number in (2, 3, 4, 6))


def test_the_rows_of_a_report_are_what_compare_reads_several_attempts_at_a_task_included(tmp_path: Path) -> None:
    runs = [run.trace for run in read_traces([SAMPLE, SAMPLE])]
    engine = static()
    rows = reports(runs, score_all(runs, engine), engine)
    (tmp_path / "scores.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(list(read_results(tmp_path / "scores.jsonl"))) == 8


def test_the_summary_counts_what_is_unknown_apart() -> None:
    engine = static()
    found = summary(engine, score_all([*many(3), said("words")], engine))
    assert found["traces"] == 4
    assert found["rewards"]["tool_success"] == {
        "mean": 1 / 3,
        "known": 3,
        "unknown": 1,
        "weight": 2.0,
        "unreachable": 0,
        "broken": 0,
    }
    assert (found["good"], found["bad"], found["unlabelled"]) == (1, 2, 1)
