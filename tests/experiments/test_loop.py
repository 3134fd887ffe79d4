"""The one loop: learn, evaluate, decide, release; and what a run leaves in the store however it ends."""

import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from journeyman.core.candidate import Candidate, Kind
from journeyman.core.evaluation import Result
from journeyman.core.release import Stage
from journeyman.experiments.compare import EvaluationReport, compare
from journeyman.experiments.loop import Finding, Iteration, Unproven, improve
from journeyman.experiments.release_policy import ReleasePolicy
from journeyman.experiments.run import Run, blocking
from journeyman.stores import RunState, Store, open_store
from journeyman.stores.registry import Registry

OLD, NEW = (Candidate(kind=Kind.PLAYBOOK, body=body) for body in ("old", "new"))
SHADOW = ReleasePolicy()
NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)


def verdict(gain: int) -> EvaluationReport:
    baseline = [Result(task_id=f"t{n}", score=0.0) for n in range(40)]
    return compare(baseline, [Result(task_id=f"t{n}", score=float(n < gain)) for n in range(40)])


@dataclass
class Learner:
    """Has learned already."""

    learned: Candidate | None
    done: list[str] = field(default_factory=list)
    name: str = "playbook"

    async def optimize(self, baseline: Candidate | None, run: Run) -> Candidate | None:
        self.done.append("learn")
        return self.learned


def run_in(store: Store) -> Run:
    return Run(id="run-1", kind="train playbook", config={"seed": 1}, store=store)


async def gone_round(
    baseline: Candidate | None,
    learned: Candidate | None,
    finding: Finding,
    releases: ReleasePolicy = SHADOW,
    store: Store | None = None,
) -> tuple[Iteration, list[str]]:
    learner = Learner(learned)

    async def evaluate(candidate: Candidate, against: Candidate | None) -> Finding:
        learner.done.append(f"evaluate {candidate.body} against {against.body if against else 'nothing'}")
        return finding

    with run_in(store or open_store("memory:")).tracked() as run:
        found = await improve(
            learner,
            baseline=baseline,
            run=run,
            evaluate=evaluate,
            releases=releases,
            settle=lambda each: learner.done.append(f"settle {each.stage}"),
        )
    return found, learner.done


async def test_what_passes_is_released_into_shadow() -> None:
    found, done = await gone_round(OLD, NEW, verdict(40))
    assert done == ["learn", "evaluate new against old", "settle shadow"]
    assert found.release is not None
    assert (found.release.stage, found.release.candidate_id) == (Stage.SHADOW, NEW.id)
    assert found.release.moves[0].reason == f"{found.reason} (run-1)"
    assert "gain +1.000" in found.reason


async def test_what_fails_is_not_released_and_says_why() -> None:
    found, _ = await gone_round(None, NEW, verdict(1))
    assert (found.release, found.candidate) == (None, NEW)
    assert "whose low end is not above" in found.reason


async def test_nothing_learned_is_not_evaluated() -> None:
    for baseline, learned in ((None, None), (OLD, None), (OLD, OLD)):
        found, done = await gone_round(baseline, learned, verdict(40))
        assert done == ["learn", "settle shadow"]
        assert (found.reason, found.candidate, found.finding, found.release) == ("nothing was learned", None, None, None)


@pytest.mark.parametrize(
    ("target", "force", "gain", "stage", "forced", "moves"),
    [
        (Stage.PRODUCTION, False, 40, Stage.PRODUCTION, False, 3),
        (Stage.PRODUCTION, True, 40, Stage.PRODUCTION, False, 3),
        (Stage.PRODUCTION, False, 0, Stage.SHADOW, False, 0),
        (Stage.PRODUCTION, True, 0, Stage.PRODUCTION, True, 3),
        (Stage.SHADOW, True, 0, Stage.SHADOW, False, 0),
        (Stage.SHADOW, False, 40, Stage.SHADOW, False, 1),
    ],
)
async def test_there_is_one_rule_of_stage_and_force(
    target: Stage, force: bool, gain: int, stage: Stage, forced: bool, moves: int
) -> None:
    store = open_store("memory:")
    found, _ = await gone_round(None, NEW, verdict(gain), ReleasePolicy(target=target, force=force), store)
    assert (found.stage, found.forced) == (stage, forced)
    release = store.release(NEW.id)
    assert len(release.moves if release else ()) == moves
    assert all(move.forced == forced for move in (release.moves if release else ()))


async def test_what_stands_in_shadow_goes_to_production_when_a_later_run_asks_for_it() -> None:
    store, production = open_store("memory:"), ReleasePolicy(target=Stage.PRODUCTION)
    first, _ = await gone_round(None, NEW, verdict(40), store=store)
    assert first.release is not None
    later, _ = await gone_round(None, NEW, verdict(40), production, store)
    assert (later.stage, store.release(NEW.id)) == (Stage.PRODUCTION, later.release)
    assert later.release is not None
    assert [move.stage for move in later.release.moves] == [Stage.SHADOW, Stage.CANARY, Stage.PRODUCTION]
    assert "gain +1.000" in later.release.moves[1].reason, "it says by which verdict it went on"
    again, _ = await gone_round(None, NEW, verdict(40), production, store)
    assert again.release == later.release
    rolled_back = later.release.to(Stage.ROLLED_BACK, "it failed at work", NOON)
    store.add_release(rolled_back)
    once_more, _ = await gone_round(None, NEW, verdict(40), production, store)
    assert (once_more.release, once_more.stage) == (rolled_back, Stage.SHADOW), "what is said is what is so"
    assert once_more.reason.endswith("; the same was rolled back on 2026-03-05 (it failed at work), and stays so")


async def test_who_was_not_asked_lets_nothing_pass_but_a_person_may() -> None:
    store, unproven = open_store("memory:"), Unproven("not evaluated, so not proven")
    found, _ = await gone_round(None, NEW, unproven, ReleasePolicy(target=Stage.PRODUCTION), store)
    assert (found.passed, found.release, found.reason) == (False, None, "not evaluated, so not proven")
    found, _ = await gone_round(None, NEW, unproven, ReleasePolicy(target=Stage.PRODUCTION, force=True), store)
    assert found.release is not None
    assert (found.forced, found.release.stage) == (True, Stage.PRODUCTION)


@pytest.mark.parametrize("broken", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_a_run_that_breaks_off_is_stopped_and_can_run_again(broken: type[BaseException]) -> None:
    store = open_store("memory:")
    run = run_in(store)
    with pytest.raises(broken), run.tracked():
        raise broken
    found = store.run("run-1")
    assert found is not None
    assert found.state is RunState.STOPPED
    with run.tracked():
        again = store.run("run-1")
        assert again is not None
        assert again.state is RunState.RUNNING
        run.end({"passed": True})
    ended = store.run("run-1")
    assert ended is not None
    assert (ended.state, ended.result, ended.config) == (RunState.FINISHED, {"passed": True}, {"seed": 1})


@pytest.mark.service
def test_a_run_whose_process_was_killed_does_not_run(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    program = f"""
import os, signal
from journeyman.experiments.run import Run
from journeyman.stores import open_store
with open_store("sqlite:///{store}") as store, Run(id="run-1", kind="train playbook", config={{}}, store=store).tracked():
    print("begun", flush=True)
    signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            with Registry.open(f"sqlite:///{store}") as registry:
                assert registry.run("run-1").run.state is RunState.RUNNING
        finally:
            process.kill()
        process.wait(10)
    with Registry.open(f"sqlite:///{store}") as registry:
        (run,) = registry.runs(state=RunState.KILLED)
        assert (run.id, run.ended_at, registry.runs(state=RunState.RUNNING)) == ("run-1", None, [])
    with open_store(f"sqlite:///{store}") as again, run_in(again).tracked(), Registry.open(f"sqlite:///{store}") as registry:
        assert registry.run("run-1").run.state is RunState.RUNNING


def test_what_never_waits_needs_no_event_loop() -> None:
    async def waits() -> None:
        import asyncio

        await asyncio.sleep(0)

    found, _ = blocking(gone_round(OLD, NEW, verdict(40)))
    assert found.passed
    with pytest.raises(RuntimeError, match="waits for something"):
        blocking(waits())
