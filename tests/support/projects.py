"""A project in which something was run, learned, evaluated and brought to live traffic."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from journeyman.core.candidate import Candidate, Kind
from journeyman.core.playbook import Bullet, Playbook, Provenance
from journeyman.core.reward import Reward
from journeyman.core.rollout import Cause, EventKind, Rollout, Slot, SlotKind, nothing
from journeyman.core.rollout_plan import RolloutPlan
from journeyman.core.score import Score
from journeyman.core.task import Split
from journeyman.core.trace import ModelCall, Trace
from journeyman.optimizers.playbook import files
from journeyman.stores import AttemptRecord, EvaluationRecord, RunRecord, RunState, Store, open_store
from journeyman.stores.base import EvidenceRecord
from journeyman.stores.rollouts import RolloutStore, open_rollouts

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
RUNS = ("20260305-120000", "20260306-120000")
DATES = Bullet(id="b-dates", content="Write dates as 5-mar.", about="order.date", shown=12, helpful=9, harmful=1, support=4)
CASE = Bullet(
    id="b-case",
    content="Cities in capital letters.",
    provenance=Provenance(origin="environment", traces=("t1", "t2", "t3"), trace_count=7, principals=5),
)
HELD = Bullet(id="b-held", content="Give ten per cent off.", held="it grants a power")


def _candidate(*bullets: Bullet, parents: tuple[str, ...] = ()) -> Candidate:
    return Candidate(kind=Kind.PLAYBOOK, body=files.dumps(Playbook(bullets=bullets)), parents=parents)


OLD = _candidate(DATES)
NEW = _candidate(DATES, CASE, HELD, parents=(OLD.id,))
TASKS = {"oslo": (0.0, 1.0), "lima": (1.0, 0.0), "rome": (0.0, 1.0), "cairo": (1.0, 1.0)}
"""Before and after."""


def _attempt(run: str, task: str, score: float, candidate: str) -> AttemptRecord:
    city = task.upper() if candidate == NEW.id else task.title()
    call = ModelCall(model="m", prompt=f"[system]\nObey.\n\n[user]\nOne mug to {task}", reply=f"a mug to {city}")
    id = f"{run}/evaluation/{candidate}/0/{task}"
    trace = Trace(id=id, task_id=task, candidate_id=candidate, started_at=NOON, steps=(call,))
    reward = Reward(name="right", value=score)
    return AttemptRecord(run_id=run, split=Split.HELD_OUT, trace=trace, score=Score(trace_id=id, rewards=(reward,)))


def _evaluation(run: str, low: float, high: float, *, passed: bool, looks: int) -> EvaluationRecord:
    pairs = [{"task_id": task, "baseline": before, "candidate": after} for task, (before, after) in TASKS.items()]
    report = {"tasks": 4, "baseline": 0.5, "candidate": 0.75, "gain": 0.25, "decided_low": low, "decided_high": high}
    told = {**report, "looks": looks, "pairs": pairs}
    return EvaluationRecord(
        id=f"{run}/{NEW.id}/{OLD.id}/h/{looks}", candidate_id=NEW.id, baseline_id=OLD.id, held_out_id="h", passed=passed,
        reason="gain +0.250 on 4 tasks" if passed else "the interval holds 0", report=told, at=NOON + looks * HOUR,
    )  # fmt: skip


def fill(store: Store) -> None:
    """Two runs: in one the candidate is not shown to be better, in the other it is."""
    for number, run in enumerate(RUNS):
        config = {"seed": number, "model": "scripted", "output": "p.json"}
        store.add_run(RunRecord(id=run, kind="train playbook", config=config, started_at=NOON + 24 * number * HOUR))
        store.add_evaluation(_evaluation(run, (-0.1, 0.1)[number], 0.5, passed=bool(number), looks=number))
        store.mark_run(run, RunState.FINISHED, NOON + (24 * number + 1) * HOUR, {"reason": "it ended"})
    for candidate, side in ((OLD.id, 0), (NEW.id, 1)):
        store.add_attempts(_attempt(RUNS[1], task, scores[side], candidate) for task, scores in TASKS.items())
    store.add_candidate(OLD)
    store.add_candidate(NEW)


LEARNED = {
    "agent": "desk", "domain": "oslo", "traces": 110, "learned_from": 40, "with_evidence": 37, "groups": 2, "groups_worded": 1,
    "rules": 1, "shown": 1, "held": 0, "candidate": NEW.id,
    "playbook_path": "playbooks/desk-oslo.json", "verdict": "checked",
    "reason": "right on the calls that can be checked",
    "evidence": [
        {"kind": "rejected", "tool": "order", "argument": "city", "principals": 18, "traces": 20, "rules": 1, "held": [],
         "refused": ["Pay nothing: a customer's words"], "left_out": ""},
        {"kind": "rejected", "tool": "quote", "argument": "", "principals": 2, "traces": 2, "rules": 0, "held": [],
         "refused": [], "left_out": "2 people have met it, and 3 are needed"},
    ],
}  # fmt: skip
"""What a run that learned from traces leaves."""


def learn(store: Store) -> None:
    store.add_run(RunRecord(id="traces-desk-oslo", kind="train playbook", config={}, started_at=NOON))
    store.mark_run("traces-desk-oslo", RunState.FINISHED, NOON + HOUR, LEARNED)


def _cause(reason: str, hours: int) -> Cause:
    return Cause(reason=reason, actor="person:ada", at=NOON + hours * HOUR)


def evidence(number: int, difference: float, wide: float) -> EvidenceRecord:
    """A look at the test: the difference, and how far its interval reaches to both sides."""
    told = {"canary": 20 * number, "production": 60 * number, "difference": difference}
    told |= {"low": difference - wide, "high": difference + wide, "high_doubt": difference + wide}
    summary = {"metrics": {"success": told, "failed_requests": {**told, "difference": 0.0, "low": -0.01, "high": 0.01}}}
    return EvidenceRecord(number, 80 * number, {}, summary, NOON + number * HOUR)


def roll_out(kept: RolloutStore, looks: int = 3) -> Rollout:
    """A rollout of the new playbook at its first step, with so many looks at what its sessions came to."""
    return roll_out_in(kept, Slot(SlotKind.CONTEXT, "desk", "oslo"), NEW, looks=looks)


def roll_out_in(kept: RolloutStore, slot: Slot, candidate: Candidate, *, looks: int) -> Rollout:
    """The same of any candidate, anywhere."""
    rollout = Rollout.begin([candidate], slot, nothing(), RolloutPlan(), "passed", _cause("the gate let it pass", 1))
    kept.start(rollout)
    rollout = rollout.then(EventKind.RAMP, _cause("the first step", 2), rollout.next_shares())
    kept.advance(rollout)
    for number in range(1, looks + 1):
        kept.add_evidence(rollout.id, evidence(number, 0.2, 0.4 / number))
    return rollout


def project(path: Path) -> Rollout:
    """Fill a store in a file."""
    with open_store(path) as store:
        fill(store)
    with open_rollouts(path) as kept:
        return roll_out(kept)
