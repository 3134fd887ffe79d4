"""What every store promises, whatever it keeps things in."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from journeyman.core.candidate import Candidate, Kind
from journeyman.core.errors import StoreError
from journeyman.core.release import Move, Release, Stage
from journeyman.core.score import Reward, Score
from journeyman.core.task import Split
from journeyman.core.trace import ModelCall, Reasoning, ToolCall, Trace
from journeyman.stores import AttemptRecord, EvaluationRecord, RunRecord, RunState, Store, open_store
from journeyman.stores.base import AttemptTotals
from tests.support import postgres

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield open_store("memory:")
    elif request.param == "sqlite":
        with open_store(tmp_path / "deep" / "journeyman.db") as opened:
            yield opened
    else:
        with postgres.database() as url, open_store(url) as opened:
            yield opened


def make_run(id: str = "run", kind: str = "train playbook", at: datetime = NOON) -> RunRecord:
    return RunRecord(id=id, kind=kind, config={"seed": 0, "model": "scripted", "deep": {"list": [1, None, "ü"]}}, started_at=at)


def make_attempt(
    id: str,
    *,
    run: str = "run",
    task: str = "add",
    candidate: str = "base",
    value: float | None = 1.0,
    split: Split = Split.TRAIN,
) -> AttemptRecord:
    call = ModelCall(model="m", prompt="1+1", reply="2", input_tokens=3, output_tokens=1, cost=0.25, shown=("b1",), id="s1")
    tool = ToolCall(tool="calculator", arguments="1+1", result="2", ok=False, parent="s1")
    steps = (Reasoning(text="adding"), call, tool)
    trace = Trace(id=id, task_id=task, candidate_id=candidate, started_at=NOON, steps=steps, domain=f"of {task}")
    return AttemptRecord(
        run_id=run, split=split, trace=trace, score=Score(trace_id=id, rewards=(Reward(name="exact", value=value),))
    )


def make_evaluation(id: str, candidate: str = "b") -> EvaluationRecord:
    told = {"gain": 0.25, "low": None, "tasks": 40}
    return EvaluationRecord(
        id=id, candidate_id=candidate, baseline_id="a", held_out_id="h", passed=True, reason="gain", report=told, at=NOON
    )


def test_a_run_comes_back_as_it_was(store: Store) -> None:
    store.add_run(make_run())
    assert store.run("run") == make_run()
    assert store.run("other") is None


def test_runs_are_found_by_kind_in_the_order_they_were_added(store: Store) -> None:
    for id, kind in [("b", "train"), ("a", "evaluate"), ("c", "train")]:
        store.add_run(make_run(id, kind))
    assert [run.id for run in store.runs()] == ["b", "a", "c"]
    assert [run.id for run in store.runs("train")] == ["b", "c"]


def test_the_latest_word_on_a_run_holds(store: Store) -> None:
    store.add_run(make_run())
    store.mark_run("run", RunState.FINISHED, NOON + timedelta(hours=2), {"gain": 0.5})
    store.mark_run("run", RunState.STOPPED, NOON + timedelta(hours=1), {"gain": 0.1})
    run = store.run("run")
    assert run is not None
    assert (run.state, run.ended_at, run.result) == (RunState.FINISHED, NOON + timedelta(hours=2), {"gain": 0.5})


def test_a_resumed_run_is_running_again(store: Store) -> None:
    store.add_run(make_run())
    store.mark_run("run", RunState.STOPPED, NOON + timedelta(hours=1), {"batches": 3})
    store.mark_run("run", RunState.RUNNING, NOON + timedelta(hours=2))
    assert store.run("run") == make_run()


def test_of_two_words_at_one_moment_the_later_holds_and_repeating_the_first_changes_nothing(store: Store) -> None:
    store.add_run(make_run())
    for state in (RunState.RUNNING, RunState.FINISHED, RunState.RUNNING):
        store.mark_run("run", state, NOON)
    run = store.run("run")
    assert run is not None
    assert run.state is RunState.FINISHED


def test_lists_come_newest_first_where_that_is_asked_for(store: Store) -> None:
    for number in range(600):
        store.add_run(make_run(f"{number:03d}"))
    for id in "ab":
        store.add_candidate(Candidate(kind=Kind.POLICY, body=id))
        store.add_evaluation(make_evaluation(id))
    assert [run.id for run in store.runs(newest_first=True)] == [f"{number:03d}" for number in reversed(range(600))]
    assert [candidate.body for candidate in store.candidates(newest_first=True)] == ["b", "a"]
    assert [evaluation.id for evaluation in store.evaluations(newest_first=True)] == ["b", "a"]


def test_ids_are_found_by_how_they_begin(store: Store) -> None:
    for id in ("b%1", "b_2", "B%3", "ä"):
        store.add_run(make_run(id))
    assert sorted(store.starting("runs", "b", limit=9)) == ["b%1", "b_2"]
    assert store.starting("runs", "b%", limit=9) == ["b%1"]
    assert len(store.starting("runs", "", limit=3)) == 3
    assert store.starting("runs", "c") == []
    store.add_evaluation(make_evaluation("run/b"))
    release = Release(candidate_id="cc", moves=(Move(Stage.SHADOW, "", NOON),))
    store.add_release(release.to(Stage.CANARY, "", NOON))
    assert store.starting("evaluations", "run/") == ["run/b"]
    assert store.starting("releases", "c") == ["cc"]


def test_the_attempts_of_a_run_are_added_up_by_split_and_what_is_unknown_is_not_zero(store: Store) -> None:
    store.add_run(make_run())
    store.add_run(make_run("other"))
    silent = make_attempt("d", split=Split.HELD_OUT, value=None)
    silent = replace(silent, trace=replace(silent.trace, steps=(ModelCall(model="m", prompt="", reply=""),)))
    trained = [make_attempt("a"), make_attempt("b", value=0.5), make_attempt("x", run="other")]
    store.add_attempts([*trained, silent, make_attempt("e", split=Split.HELD_OUT)])
    store.add_attempts([make_attempt("f", split=Split.HELD_OUT, candidate="other", value=0.25)])
    held_out, other, train = store.attempt_totals("run")
    assert train == AttemptTotals(split=Split.TRAIN, attempts=2, unscored=0, mean_score=0.75, tokens=8, cost=0.5)
    assert held_out == AttemptTotals(split=Split.HELD_OUT, attempts=2, unscored=1, mean_score=1.0, tokens=None, cost=None,
                                      candidate_id="base")  # fmt: skip
    assert (other.candidate_id, other.attempts, other.mean_score) == ("other", 1, 0.25)
    assert store.attempt_totals("nobody") == []


def test_a_run_is_forgotten_with_its_attempts_and_evaluations_and_no_other_run_is(store: Store) -> None:
    for id in ("run", "run2"):
        store.add_run(make_run(id))
        store.mark_run(id, RunState.FINISHED, NOON)
        store.add_attempts([make_attempt("a", run=id), make_attempt("b", run=id)])
        store.add_evaluation(make_evaluation(f"{id}/b/a/h/1"))
    store.record_look("h", "b", NOON)
    assert store.remove_run("run") == 2
    assert [run.id for run in store.runs()] == ["run2"]
    assert [attempt.run_id for attempt in store.attempts()] == ["run2", "run2"]
    assert [evaluation.run_id for evaluation in store.evaluations()] == ["run2"]
    assert store.evaluation("run/b/a/h/1") is None
    assert store.looks("h") == 1, "a look is not undone"
    with pytest.raises(StoreError, match="no run 'run' is in the store"):
        store.remove_run("run")
    store.add_run(make_run("run"))
    store.add_attempts([make_attempt("a")])
    assert len(list(store.attempts(run_id="run"))) == 1


def test_a_run_stays_when_a_release_stands_on_its_evaluation(store: Store) -> None:
    store.add_run(make_run())
    store.add_attempts([make_attempt("a")])
    store.add_evaluation(make_evaluation("run/b/a/h/1"))
    store.add_release(Release(candidate_id="b", moves=(Move(Stage.SHADOW, "", NOON),)))
    with pytest.raises(StoreError, match="run stays: the release of b stands on its evaluation"):
        store.remove_run("run")
    assert store.evaluation("run/b/a/h/1") == make_evaluation("run/b/a/h/1")
    assert len(list(store.attempts())) == 1


def test_a_run_that_is_over_can_be_added_with_its_end(store: Store) -> None:
    over = RunRecord(id="run", kind="k", config={}, started_at=NOON, state=RunState.FAILED, ended_at=NOON, result={"why": "no"})
    store.add_run(over)
    store.add_run(over)
    assert store.run("run") == over


def test_nothing_is_marked_or_kept_for_a_run_nobody_knows(store: Store) -> None:
    with pytest.raises(StoreError, match="no run 'ghost' is in the store"):
        store.mark_run("ghost", RunState.FINISHED, NOON)
    store.add_run(make_run())
    with pytest.raises(StoreError, match="no run 'ghost'"):
        store.add_attempts([make_attempt("a"), make_attempt("b", run="ghost")])
    assert list(store.attempts()) == []


def test_an_attempt_comes_back_with_every_step_and_reward(store: Store) -> None:
    store.add_run(make_run())
    attempts = [make_attempt("a"), make_attempt("b", value=None)]
    store.add_attempts(attempts)
    assert list(store.attempts()) == attempts


@pytest.mark.parametrize("text", ["", "\x00", "\ud800 half a pair", "🙂 ünï ' \" \\ %s :x", "\u2028"])
def test_whatever_a_model_says_can_be_kept(store: Store, text: str) -> None:
    store.add_run(make_run())
    trace = Trace(
        id="t", task_id="q", candidate_id="base", started_at=NOON, steps=(ModelCall(model="m", prompt=text, reply=text),)
    )
    attempt = AttemptRecord(run_id="run", split=Split.TRAIN, trace=trace, score=Score(trace_id="t", rewards=()))
    store.add_attempts([attempt])
    assert list(store.attempts()) == [attempt]


def test_adding_twice_is_adding_once_and_the_first_stays(store: Store) -> None:
    store.add_run(make_run())
    store.add_run(make_run(kind="another"))
    store.add_attempts([make_attempt("a"), make_attempt("a", value=0.0)])
    store.add_attempts([make_attempt("a", value=0.5), make_attempt("b")])
    for _ in range(2):
        store.add_candidate(Candidate(kind=Kind.PLAYBOOK, body="rules"))
        store.add_evaluation(make_evaluation("e"))
    assert [run.kind for run in store.runs()] == ["train playbook"]
    assert [(attempt.id, attempt.score.total) for attempt in store.attempts()] == [("a", 1.0), ("b", 1.0)]
    assert len(list(store.candidates())) == 1
    assert len(list(store.evaluations())) == 1


def test_two_runs_may_attempt_under_the_same_id(store: Store) -> None:
    store.add_run(make_run("one"))
    store.add_run(make_run("two"))
    store.add_attempts([make_attempt("a", run="one"), make_attempt("a", run="two")])
    assert [attempt.run_id for attempt in store.attempts()] == ["one", "two"]


def test_attempts_are_found_by_everything_that_is_named(store: Store) -> None:
    store.add_run(make_run())
    store.add_attempts(
        [
            make_attempt("a", task="sort", candidate="x"),
            make_attempt("b", task="add", candidate="x", split=Split.HELD_OUT),
            make_attempt("c", task="add"),
        ]
    )
    found = {
        "run": store.attempts(run_id="run"),
        "task": store.attempts(task_id="add"),
        "candidate": store.attempts(candidate_id="x"),
        "domain": store.attempts(domain="of sort"),
        "split": store.attempts(split=Split.HELD_OUT),
        "two": store.attempts(task_id="add", candidate_id="x"),
        "none": store.attempts(run_id="run", domain="other"),
    }
    ids = {name: "".join(attempt.id for attempt in attempts) for name, attempts in found.items()}
    assert ids == {"run": "abc", "task": "bc", "candidate": "ab", "domain": "a", "split": "b", "two": "b", "none": ""}


def test_more_attempts_than_one_page_come_in_order_and_once(store: Store) -> None:
    store.add_run(make_run())
    ids = [f"{number:05d}" for number in range(1201)]
    store.add_attempts(make_attempt(id) for id in ids)
    assert [attempt.id for attempt in store.attempts()] == ids


def test_a_list_may_be_left_half_read_and_added_to_meanwhile(store: Store) -> None:
    store.add_run(make_run())
    store.add_attempts([make_attempt("a"), make_attempt("b")])
    listed = store.attempts()
    assert next(listed).id == "a"
    store.add_attempts([make_attempt("c")])
    assert next(listed).id == "b"


def test_no_attempts_are_a_batch_as_well(store: Store) -> None:
    store.add_attempts([])
    assert list(store.attempts()) == []


def test_a_candidate_comes_back_with_its_parents(store: Store) -> None:
    first = Candidate(kind=Kind.PLAYBOOK, body="rules")
    second = Candidate(kind=Kind.ADAPTER, body="digest", parents=(first.id,))
    store.add_candidate(first)
    store.add_candidate(second)
    assert store.candidate(second.id) == second
    assert store.candidate("nobody") is None
    assert list(store.candidates(Kind.PLAYBOOK)) == [first]


def test_evaluations_are_found_by_candidate_by_held_out_tasks_and_by_run(store: Store) -> None:
    for id, candidate in [("e1", "b"), ("e2", "c")]:
        store.add_evaluation(make_evaluation(id, candidate))
    assert list(store.evaluations(candidate_id="c")) == [make_evaluation("e2", "c")]
    assert [found.id for found in store.evaluations(held_out_id="h")] == ["e1", "e2"]
    assert list(store.evaluations(held_out_id="other")) == []
    store.add_evaluation(make_evaluation("e1/two", "b"))
    store.add_evaluation(make_evaluation("e1x", "b"))
    assert [found.id for found in store.evaluations(run_id="e1")] == ["e1", "e1/two"]


def test_looks_are_counted_for_each_set_of_held_out_tasks(store: Store) -> None:
    assert store.looks("h") == 0
    assert [store.record_look("h", candidate, NOON) for candidate in "abc"] == [1, 2, 3]
    assert store.record_look("other", "a", NOON) == 1
    assert (store.looks("h"), store.looks("other")) == (3, 1)


def test_the_same_look_recorded_again_is_no_new_look_but_another_evaluation_is(store: Store) -> None:
    assert store.record_look("h", "a", NOON, "e1") == 1
    assert store.record_look("h", "a", NOON, "e2") == 2
    assert store.record_look("h", "a", NOON + timedelta(days=1), "e1") == 1
    assert store.looks("h") == 2


def test_a_release_is_all_its_moves_and_who_forced_them(store: Store) -> None:
    release = Release(candidate_id="c", moves=(Move(Stage.SHADOW, "gain +0.1", NOON),))
    store.add_release(release)
    release = release.to(Stage.CANARY, "asked for", NOON + timedelta(days=1), forced=True)
    store.add_release(release)
    store.add_release(release)
    assert store.release("c") == release
    assert store.release("other") is None


def test_a_release_that_somebody_else_moved_is_refused(store: Store) -> None:
    shadow = Release(candidate_id="c", moves=(Move(Stage.SHADOW, "gain", NOON),))
    store.add_release(shadow.to(Stage.CANARY, "first", NOON))
    with pytest.raises(StoreError, match="moved by somebody else"):
        store.add_release(shadow.to(Stage.ROLLED_BACK, "second", NOON))
    store.add_release(shadow)
    kept = store.release("c")
    assert kept is not None
    assert kept.stage is Stage.CANARY


def test_releases_are_found_by_where_they_are_now_in_the_order_of_their_birth(store: Store) -> None:
    for id in "ba":
        store.add_release(Release(candidate_id=id, moves=(Move(Stage.SHADOW, "", NOON),)))
    moved = Release(candidate_id="b", moves=(Move(Stage.SHADOW, "", NOON),)).to(Stage.CANARY, "", NOON)
    store.add_release(moved)
    assert [release.candidate_id for release in store.releases()] == ["b", "a"]
    assert list(store.releases(Stage.CANARY)) == [moved]


def test_a_moment_is_kept_whatever_its_zone_and_refused_without_one(store: Store) -> None:
    there = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    store.add_run(make_run(at=there))
    run = store.run("run")
    assert run is not None
    assert run.started_at == NOON
    with pytest.raises(StoreError, match="has no zone"):
        store.add_run(make_run("naive", at=datetime(2026, 3, 5)))
    with pytest.raises(StoreError, match="has no zone"):
        store.record_look("h", "c", datetime(2026, 3, 5))
