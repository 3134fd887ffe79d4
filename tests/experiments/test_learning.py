"""Whoever carries out turns: one at a time does, what it may spend is never exceeded, and nothing is lost by a kill."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from journeyman.core.errors import InputError
from journeyman.core.turn import LearnTurn, TurnSpent, TurnState
from journeyman.experiments.learning import DaemonState, LearnDaemon, Looked, opened
from journeyman.stores.turns import LEASE, LearnOrder
from tests.serving.gateway.test_process import until
from tests.support.learners import HandedClock, answers, learner, ran, recorded, slot

pytestmark = pytest.mark.service

AWAY = "postgresql://nobody:secret-word@127.0.0.1:9/none"


def looked(one: LearnDaemon) -> Looked:
    with opened(one.config.url) as stores:
        return one.look(stores, threading.Event())


def turns(folder: Path) -> list[LearnTurn]:
    with opened(f"sqlite:///{folder}/journeyman.db") as stores:
        return list(stores.turns.turns())


@contextmanager
def process(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "tests.support.learners", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as found:
        try:
            yield found
        finally:
            found.kill()
            found.wait(30)


def test_what_passes_is_kept_with_all_that_it_takes_to_do_it_again_and_the_same_data_cost_nothing_more(tmp_path: Path) -> None:
    recorded(tmp_path, "a", "b")
    answers(tmp_path, slot("checked"))
    one = learner(tmp_path)
    found = looked(one).turn
    assert found is not None
    assert (found.state, found.outcome.candidate, found.trigger, found.seen) == (TurnState.LEARNED, "c1", "2 new traces", 2)
    (command,) = ran(tmp_path)
    where = command.index("--until")
    assert datetime.fromisoformat(command.pop(where + 1)) <= found.began
    assert command[:where] == ["train", "playbook", "--from", "traces", "--agent", "desk", "--domain", "oslo"]
    assert command[where:] == ["--until", "--max-cost", "0.5", "--json"]
    assert found.before["files"] == {"playbooks/desk-oslo.json": None, "playbooks/desk-oslo.journal.jsonl": None}
    assert 0 < found.last.spent.cpu_seconds < 5
    assert (tmp_path / "playbooks/desk-oslo.json").read_text() == "learned"
    assert looked(one).turn is None
    assert turns(tmp_path) == [found]


@pytest.mark.parametrize("verdict", ["refused", "not_examinable", "unexamined"])
def test_of_what_does_not_pass_nothing_is_left_but_the_journal(tmp_path: Path, verdict: str) -> None:
    path = tmp_path / "playbooks/desk-oslo.json"
    path.parent.mkdir()
    path.write_bytes(b"as it was\xff")
    recorded(tmp_path, "a")
    answers(tmp_path, slot(verdict))
    found = looked(learner(tmp_path)).turn
    assert found is not None
    assert found.state is (TurnState.NOTHING if verdict == "unexamined" else TurnState.REFUSED)
    assert path.read_bytes() == b"as it was\xff"


@pytest.mark.parametrize(("served", "said"), [("c1", "the rollout r1 begins"), ("c2", "no rollout was begun: other weights")])
def test_weights_that_pass_are_deployed_before_their_rollout_begins_and_no_others(
    tmp_path: Path, served: str, said: str
) -> None:
    recorded(tmp_path, "a")
    by_command = {
        "train": {"run_id": "weights-1", "candidate_id": "c1", "passed": True},
        "deploy": {"served": {"candidate_id": served}},
        "releases": {"rollout": {"id": "r1"}},
    }
    answers(tmp_path, {}, by_command=by_command)
    deploy = "deploy llamacpp {run} --detach --release --replaces 'gpt-*'"
    found = looked(learner(tmp_path, kinds=("weights",), release="canary", deploy=deploy)).turn
    assert found is not None
    assert found.state is TurnState.LEARNED
    assert said in found.last.reason
    _, deployed, *released = ran(tmp_path)
    assert deployed[:7] == ["deploy", "llamacpp", "weights-1", "--detach", "--release", "--replaces", "gpt-*"]
    assert [words[:3] for words in released] == ([["releases", "start", "c1"]] if served == "c1" else [])


def test_a_deployment_that_gateways_are_not_told_of_is_refused_before_anything_is_learned(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"deploy llamacpp \{run\} --detach --release"):
        learner(tmp_path, deploy="deploy llamacpp {run}")


def test_a_command_that_fails_is_told_with_its_last_word_and_not_tried_again_at_once(tmp_path: Path) -> None:
    recorded(tmp_path, "a")
    answers(tmp_path, {}, ends=2)
    one = learner(tmp_path, every="1h")
    found = looked(one).turn
    assert found is not None
    assert (found.state, found.last.reason) == (TurnState.FAILED, "it ended with 2")
    again = looked(one)
    assert again.turn is None
    assert "again at" in again.plans[0].why_not


def test_a_turn_is_stopped_before_it_spends_more_than_the_day_has_left(tmp_path: Path) -> None:
    recorded(tmp_path, "a")
    answers(tmp_path, slot("checked"), burns=60)
    budget = {"cpu_seconds_per_day": 12.0}
    one = learner(tmp_path, budget=budget)
    found = looked(one).turn
    assert found is not None
    assert found.state is TurnState.STOPPED
    assert "the budget of CPU" in found.last.reason
    assert 8 < found.last.spent.cpu_seconds <= 12
    assert not (tmp_path / "playbooks/desk-oslo.json").exists()
    later = looked(one)
    assert later.turn is None
    assert "less than 10 s of CPU are left" in later.plans[0].why_not


def test_one_that_is_killed_has_a_turn_lost_and_the_next_goes_on_with_it(tmp_path: Path) -> None:
    recorded(tmp_path, "a")
    answers(tmp_path, slot("checked"), sleeps=60)
    with process(tmp_path):
        assert until(lambda: ran(tmp_path), 30)
        assert at_work(tmp_path)
    answers(tmp_path, slot("checked"))
    one = learner(tmp_path)
    # Until its lease is over somebody else waits.
    assert until(lambda: looked(one).turn is not None, 20)
    lost, after = turns(tmp_path)
    assert (lost.state, after.state, after.parent) == (TurnState.LOST, TurnState.LEARNED, lost.id)
    assert lost.last.spent == TurnSpent(cost=0.5, cpu_seconds=30.0, looks=1)
    assert "is gone" in lost.last.reason
    assert until(lambda: not at_work(tmp_path), 10), "its command ends with it"


def at_work(folder: Path) -> bool:
    """Whether a command of a turn runs."""
    done = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True)
    return str(folder / "program.py") in done.stdout


def test_of_two_one_carries_out_turns_and_the_other_says_which(tmp_path: Path) -> None:
    recorded(tmp_path, "a")
    answers(tmp_path, slot("checked"))
    said = list[str]()
    one = learner(tmp_path, said=said.append)
    with opened(one.config.url) as stores:
        stores.turns.lease(LEASE, "elsewhere/7", datetime.now(UTC), 60)
        assert one.look(stores, threading.Event()).elsewhere == "elsewhere/7"
    assert ran(tmp_path) == []


def test_a_pause_holds_and_an_order_to_stop_ends_it(tmp_path: Path) -> None:
    recorded(tmp_path, "a")
    answers(tmp_path, slot("checked"))
    one = learner(tmp_path)
    with opened(one.config.url) as stores:
        stores.turns.order(LearnOrder("pause", "ada", "a sale", datetime.now(UTC)))
        assert one.look(stores, threading.Event()).paused.startswith("paused by ada")
        thread = threading.Thread(target=one.run, args=(threading.Event(),))
        thread.start()
        assert until(lambda: (state := DaemonState.read(tmp_path / ".journeyman")) and state.state == "paused")
        stores.turns.order(LearnOrder("stop", "ada", "", datetime.now(UTC)))
        thread.join(20)
        assert not thread.is_alive()
        assert stores.turns.held_by(LEASE, datetime.now(UTC)) == ""
    assert ran(tmp_path) == []


def test_told_to_stop_it_ends_the_command_and_the_next_goes_on(tmp_path: Path) -> None:
    recorded(tmp_path, "a")
    answers(tmp_path, slot("checked"), sleeps=60)
    over, one = threading.Event(), learner(tmp_path)
    thread = threading.Thread(target=one.run, args=(over,))
    thread.start()
    assert until(lambda: ran(tmp_path), 20)
    over.set()
    thread.join(20)
    (stopped,) = turns(tmp_path)
    assert (stopped.state, stopped.last.reason) == (TurnState.STOPPED, "told to stop")
    assert DaemonState.read(tmp_path / ".journeyman").state == "stopped"  # type: ignore[union-attr]
    answers(tmp_path, slot("checked"))
    assert looked(one).turn.parent == stopped.id  # type: ignore[union-attr]


def test_a_store_that_is_away_is_waited_for_and_that_is_said(tmp_path: Path) -> None:
    over = threading.Event()
    said = list[str]()
    began, waits = datetime(2026, 3, 5, tzinfo=UTC), list[float]()

    class Counting(HandedClock):
        def wait(self, seconds: float, over: threading.Event) -> None:
            super().wait(seconds, over)
            waits.append(seconds)
            if len(waits) == 12:
                over.set()

    clock = Counting(began)
    one = learner(tmp_path, clock=clock, said=said.append)
    one.config = replace(one.config, url=AWAY)
    one.run(over)
    assert clock.at - began > timedelta(minutes=3)
    assert waits[0] <= 1 < max(waits) <= 60
    told = (tmp_path / ".journeyman/learn/daemon.json").read_text()
    assert "told to stop" in told
    assert any("the store is away" in each and "secret-word" not in each for each in said)
