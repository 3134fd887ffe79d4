"""A day of learning by itself in minutes: kills, two at once, budgets, memory; and what the gate makes of poison.

    python -m benchmarks.sim_learn kills      # 24 hours and 200 turns by a clock 300 times as fast, two at once, 20 killed
    python -m benchmarks.sim_learn tight      # the same hours with a budget that is soon spent
    python -m benchmarks.sim_learn memory     # 200 turns of one process: how much it grows
    python -m benchmarks.sim_learn gate       # 50 candidates from labels of which 30 % are flipped, and 300 that are equal

The store, the processes and the kills are real; only the command of a turn is a small program, which uses CPU, says what it
cost, or nothing, and writes down itself what it used, so that the journal is held against somebody else's word. Each bar that
is missed is said, and the exit code is 1.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from journeyman.core.evaluation import Decision, Evaluation, Pair
from journeyman.core.gate import BetterOnHeldOut
from journeyman.core.task import Split, Task
from journeyman.core.trace import ModelCall, Trace
from journeyman.core.turn import GOES_ON, LearnTurn, TurnState
from journeyman.experiments.evaluator import HeldOutEvaluator, Look, Subject
from journeyman.experiments.learning import LearnDaemon, LearnerConfig, opened
from journeyman.experiments.pipeline.stages import PipelineStage
from journeyman.experiments.settings import LearnSettings
from journeyman.stores import open_store
from journeyman.stores.traces import open_traces

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)
DAY, DOMAINS, EVERY = timedelta(hours=24), ("oslo", "lima", "rome", "cairo"), "20m"
FASTER = 300.0
"""How many seconds of the clock that is handed to them pass in one."""
TURNS = 200
LEASE = 1.5
"""Real seconds."""
WIDE = {"cost_per_day": 100.0, "cost_per_turn": 0.1, "cpu_seconds_per_day": 1500.0, "looks_per_month": 100_000.0}
TIGHT = {"cost_per_day": 2.0, "cost_per_turn": 0.1, "cpu_seconds_per_day": 60.0, "looks_per_month": 100_000.0}
PROGRAM = """
import json, os, random, sys, time
asked, chance = sys.argv[1:], random.Random(os.getpid())
most = float(asked[asked.index("--max-cost") + 1])
about = {"agent": "desk", "domain": asked[asked.index("--domain") + 1]}
cost, ends = most * chance.random(), time.process_time() + 0.25 * chance.random()
log = open("used.jsonl", "a")
while True:
    # Its own word on what it used so far, also where it is killed.
    log.write(json.dumps([os.getpid(), time.time(), time.process_time(), cost]) + "\\n")
    log.flush()
    if time.process_time() >= ends:
        break
    until = time.process_time() + 0.02
    while time.process_time() < until:
        pass
    time.sleep(0.02)
verdict = chance.choice(["checked", "refused", "unexamined"])
said = {**about, "verdict": verdict, "reason": verdict, "candidate": f"c{os.getpid()}", "examination": {}}
print(json.dumps({"slots": [{**said, "cost": cost if chance.random() < 0.8 else None}]}))
"""


class FastClock:
    """The system's from a moment on, so many times as fast. Implements `LearnClock`."""

    def __init__(self, began: float) -> None:
        self.began = began

    def now(self) -> datetime:
        return NOON + timedelta(seconds=(time.time() - self.began) * FASTER)

    def wait(self, seconds: float, over: threading.Event) -> None:
        over.wait(seconds / FASTER)


def learner(folder: Path, began: float, budget: dict[str, float], **more: Any) -> LearnDaemon:
    stage = PipelineStage(name="playbook", command=("train", "playbook"), arguments=("--from", "traces"), bounded=True)
    config = LearnerConfig(
        url=f"sqlite:///{folder}/journeyman.db",
        root=folder,
        folder=folder / ".journeyman",
        artifacts=folder / "artifacts",
        settings=LearnSettings(every=EVERY, min_new=1, budget=budget),  # type: ignore[arg-type]
        commands={"playbook": stage},
        program=(sys.executable, str(folder / "program.py")),
        every=30.0,
        lease_seconds=LEASE * FASTER,
        **more,
    )
    return LearnDaemon(config, clock=FastClock(began))


def child(folder: Path, began: float, budget: dict[str, float]) -> None:
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    learner(folder, began, budget).run(over)


@dataclass(slots=True)
class Day:
    """One simulated day."""

    folder: Path
    budget: dict[str, float]
    began: float = 0.0
    number: int = 0

    def start(self) -> "subprocess.Popen[bytes]":
        told = [str(self.folder), str(self.began), json.dumps(self.budget)]
        return subprocess.Popen([sys.executable, "-m", "benchmarks.sim_learn", "child", *told])

    def record(self) -> None:
        """A new trace in each domain: there is always something to learn."""
        self.number += 1
        call = ModelCall(model="m", prompt="user: Hi", reply="Hello")
        with open_traces(f"sqlite:///{self.folder}/journeyman.db") as store:
            store.add(
                Trace(id=f"{self.number}-{domain}", task_id="t", candidate_id="base", started_at=NOON, steps=(call,),
                      agent="desk", domain=domain, source="gateway")
                for domain in DOMAINS
            )  # fmt: skip

    def turns(self) -> list[LearnTurn]:
        with opened(f"sqlite:///{self.folder}/journeyman.db") as stores:
            return list(stores.turns.turns())

    def wait_for_turn(self, seconds: float) -> None:
        """Until one is at work, or so long."""
        until = time.monotonic() + seconds
        with opened(f"sqlite:///{self.folder}/journeyman.db") as stores:
            while time.monotonic() < until and all(each.is_over for each in stores.turns.turns(since=NOON + DAY)):
                time.sleep(0.05)

    def holder(self) -> int | None:
        now = FastClock(self.began).now()
        with opened(f"sqlite:///{self.folder}/journeyman.db") as stores:
            held = stores.turns.held_by("learn", now)
        return int(held.rpartition("/")[2]) if held else None


def lived(
    folder: Path, budget: dict[str, float], kills: int, count: int = 2, least: int = 0, days: float = 1.0
) -> tuple[Day, list[int]]:
    """A day, or as many as it takes to so many turns; the memory of the first process from minute to minute, in kB."""
    (folder / "program.py").write_text(PROGRAM)
    day, chance = Day(folder, budget), random.Random(7)
    day.record()
    day.began = time.time()
    at_work = [day.start() for _ in range(count)]
    moments = sorted(chance.uniform(0.05, 0.9) for _ in range(kills))
    memory = list[int]()
    try:
        while (passed := (time.time() - day.began) * FASTER / DAY.total_seconds()) < 1 or (
            passed < days and len(day.turns()) < least
        ):
            day.record()
            memory += [kb for kb in [_memory(at_work[0].pid)] if kb]
            if moments and passed > moments[0]:
                moments.pop(0)
                # Whoever is at work, and mostly within a turn.
                day.wait_for_turn(3.0)
                time.sleep(chance.uniform(0, 0.2))
                victim = day.holder()
                for place, process in enumerate(at_work):
                    if process.pid == victim:
                        process.kill()
                        process.wait()
                        at_work[place] = day.start()
            time.sleep(0.5)
    finally:
        for process in at_work:
            process.terminate()
        for process in at_work:
            process.wait(60)
    return day, memory


def _memory(pid: int) -> int:
    """kB that a process has in memory of its own."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)


def held_against(day: Day) -> list[str]:
    """What is wrong with a day, by the journal and by the programs' own word."""
    turns, wrong = day.turns(), list[str]()
    states = Counter(turn.state.value for turn in turns)
    over = [turn for turn in turns if turn.is_over]
    wrong += [f"{turn.id} has not ended" for turn in turns if not turn.is_over]
    wrong += [
        f"{turn.id} has two ends" for turn in turns if sum(each.state is not TurnState.RUNNING for each in turn.events) != 1
    ]
    done = Counter((turn.subject, turn.data_digest) for turn in over if turn.state not in GOES_ON)
    wrong += [f"{subject}: the same data {count} times" for (subject, _), count in done.items() if count > 1]
    parents = {turn.parent for turn in turns if turn.parent}
    last = {turn.subject: turn for turn in turns}
    wrong += [
        f"{turn.id} was {turn.state}, and nobody went on with it"
        for turn in turns
        if turn.state in GOES_ON and turn.id not in parents and last[turn.subject] is not turn
    ]
    used: dict[int, tuple[float, float]] = {}
    for line in (day.folder / "used.jsonl").read_text().splitlines():
        pid, _, cpu, cost = json.loads(line)
        used[pid] = (max(cpu, used.get(pid, (0.0, 0.0))[0]), cost)
    cpu, cost = sum(each[0] for each in used.values()), sum(each[1] for each in used.values())
    booked = sum(turn.outcome.spent.cpu_seconds for turn in turns)
    for name, value in (("cpu_seconds_per_day", cpu), ("cost_per_day", cost)):
        wrong += [f"{value:.2f} of {name} were used, of {day.budget[name]:g}"] if value > day.budget[name] else []
    wrong += [f"the journal knows of {booked:.1f} s of CPU, and {cpu:.1f} s were used"] if booked < cpu else []
    wrong += [f"{len(used)} commands were run in {len(turns)} turns"] if len(used) > len(turns) else []
    print(f"{len(turns)} turns ({dict(states)}), {len(used)} commands, {cpu:.1f} s of CPU and ${cost:.2f} by their own word, "
          f"{booked:.1f} s by the journal, of {day.budget}")  # fmt: skip
    return wrong


def kills() -> list[str]:
    with tempfile.TemporaryDirectory() as place:
        day, _ = lived(Path(place), WIDE, 20)
        wrong, turns = held_against(day), day.turns()
    lost = sum(turn.state is TurnState.LOST for turn in turns)
    print(f"20 killed, {lost} of them within a turn")
    return wrong + ([f"only {len(turns)} turns"] if len(turns) < TURNS else [])


def tight() -> list[str]:
    with tempfile.TemporaryDirectory() as place:
        day, _ = lived(Path(place), TIGHT, 2)
        return held_against(day)


def memory() -> list[str]:
    with tempfile.TemporaryDirectory() as place:
        # On a busy machine a day has fewer turns.
        day, kb = lived(Path(place), WIDE, 0, count=1, least=TURNS, days=4.0)
        wrong, turns = held_against(day), len(day.turns())
    first, most = kb[len(kb) // 10], max(kb[len(kb) // 10 :])
    print(
        f"{turns} turns: {first / 1024:.1f} MB after a tenth of them, {most / 1024:.1f} MB at most, {kb[-1] / 1024:.1f} at last"
    )
    wrong += [f"only {turns} turns"] if turns < TURNS else []
    return wrong + (["it grew by 20 MB or more"] if most - first >= 20 * 1024 else [])


# What the gate makes of poison.


def points(chance: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Cases of two kinds whose ways cross: what is right can be learned, and nobody is always right."""
    kind = chance.integers(0, 2, count)
    return chance.normal(0, 1, (count, 4)) + 1.6 * kind[:, None], kind


def nearest(cases: Any, labels: Any, asked: Any) -> Any:
    """The label of the nearest case that was learned from."""
    return labels[((asked[:, None, :] - cases[None]) ** 2).sum(-1).argmin(1)]


@dataclass(frozen=True, slots=True)
class Found:
    """Implements `Recorded`."""

    decision: Decision

    @property
    def passed(self) -> bool:
        return self.decision.passed

    @property
    def reason(self) -> str:
        return self.decision.reason

    def record(self) -> dict[str, Any]:
        return {"passed": self.passed}


def examined(store: Any, seed: int, flipped: float) -> bool:
    """Whether a candidate that learned from other cases than production did passes on held-out ones of this month."""
    chance = np.random.default_rng(seed)
    (ours, right), (cases, labels), (asked, truth) = points(chance, 200), points(chance, 200), points(chance, 100)
    labels = np.where(chance.random(200) < flipped, 1 - labels, labels)
    before, after = (nearest(*learned, asked) == truth for learned in ((ours, right), (cases, labels)))
    about: dict[str, Any] = {"domain": "d", "split": Split.HELD_OUT}
    tasks = [Task(id=f"{seed}-{n}", question=f"case {seed} {n}", answer=str(truth[n]), **about) for n in range(100)]
    subject = Subject(candidate=f"c{seed}-{flipped}", baseline="base", tasks=tasks, settings={})

    def measure(look: Look) -> Found:
        pairs = tuple(
            Pair(task_id=task.id, baseline=float(before[n]), candidate=float(after[n])) for n, task in enumerate(tasks)
        )
        return Found(BetterOnHeldOut().decide(look.at(Evaluation(pairs=pairs))))

    looking = HeldOutEvaluator(store=store).evaluate(
        subject, measure, id=f"turn-{seed}-{flipped}", records=lambda found: [("base", found)]
    )
    return asyncio.run(looking).passed


def gate() -> list[str]:
    with tempfile.TemporaryDirectory() as place, open_store(f"sqlite:///{place}/journeyman.db") as store:
        poisoned = sum(examined(store, seed, 0.3) for seed in range(50))
        equal = sum(examined(store, 1000 + seed, 0.0) for seed in range(300))
    print(
        f"of labels with 30 % flipped: {50 - poisoned} of 50 refused; of equal ones {equal} of 300 passed ({equal / 300:.1%})"
    )
    return (["a poisoned one passed"] if poisoned else []) + (["more than 5 % of equal ones passed"] if equal > 15 else [])


def main() -> int:
    if sys.argv[1:2] == ["child"]:
        child(Path(sys.argv[2]), float(sys.argv[3]), json.loads(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="kills, tight, memory or gate; all of them without one")
    parts = {"kills": kills, "tight": tight, "memory": memory, "gate": gate}
    missed = list[str]()
    for name in parser.parse_args().parts or parts:
        began, used = time.monotonic(), os.times()
        print(f"== {name}", flush=True)
        missed += parts[name]()
        now = os.times()
        cpu = now.user + now.system + now.children_user + now.children_system
        cpu -= used.user + used.system + used.children_user + used.children_system
        print(f"{time.monotonic() - began:.0f} s, {cpu:.0f} s of CPU", flush=True)
    print(*(f"MISSED: {each}" for each in missed), sep="\n") if missed else print("as it should be")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
