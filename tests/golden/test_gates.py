"""What the gates say to evaluations that are always the same, and how looks are counted."""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from journeyman.core.evaluation import Evaluation, Pair
from journeyman.core.gate import All, BetterAsPlanned, BetterAtAnyTime, BetterOnHeldOut, Gate
from journeyman.stores import MEMORY, open_store

LOOKS = range(6)
GATES: dict[str, Gate] = {
    "BetterOnHeldOut": BetterOnHeldOut(),
    "BetterOnHeldOut strict": BetterOnHeldOut(min_gain=0.1, min_tasks=50, most_unknown=0.02, alpha=0.01),
    "BetterAtAnyTime": BetterAtAnyTime(),
    "BetterAtAnyTime strict": BetterAtAnyTime(min_gain=0.1, min_tasks=50, most_unknown=0.02, alpha=0.01),
    "BetterAsPlanned": BetterAsPlanned(planned_tasks=100),
    "All": All((BetterOnHeldOut(), BetterAtAnyTime(min_gain=0.05))),
    "All of nothing": All(()),
}
WORLDS = {
    # name: tasks, the chance to be right before and after, attempts at a task, tasks without a verdict
    "nothing": (0, 0.0, 0.0, 1, 0),
    "too few": (29, 0.1, 0.9, 1, 0),
    "just enough": (30, 0.1, 0.9, 1, 0),
    "equal": (60, 0.5, 0.5, 1, 0),
    "a little better": (60, 0.5, 0.65, 1, 0),
    "better": (80, 0.3, 0.7, 1, 0),
    "worse": (60, 0.7, 0.4, 1, 0),
    "better, three attempts": (60, 0.4, 0.6, 3, 0),
    "better, some unknown": (60, 0.2, 0.9, 1, 2),
    "better, many unknown": (60, 0.2, 0.9, 1, 9),
    "perfect": (100, 0.0, 1.0, 1, 0),
}


def evaluation(world: str, looks: int) -> Evaluation:
    tasks, before, after, attempts, unknown = WORLDS[world]
    chance = random.Random(world)

    def score(right: float) -> float:
        return sum(chance.random() < right for _ in range(attempts)) / attempts

    pairs = tuple(Pair(task_id=f"t{n:03d}", baseline=score(before), candidate=score(after)) for n in range(tasks))
    return Evaluation(pairs=pairs, unknown=unknown, looks=looks)


def decisions() -> Iterator[str]:
    for name, gate in GATES.items():
        for world in WORLDS:
            for looks in LOOKS:
                decision = gate.decide(evaluation(world, looks))
                yield f"{name} | {world} | {looks} | {'passed' if decision.passed else 'refused'} | {decision.reason}"


def test_what_the_gates_decide_is_what_they_decided(golden: Callable[[str, str], None]) -> None:
    golden("gates.txt", "\n".join(decisions()) + "\n")


def history(url: str) -> Iterator[str]:
    """Three candidates, two of them looked at twice over, on two sets of held-out tasks."""
    chance = random.Random(7)
    with open_store(url) as store:
        for _ in range(24):
            held_out, candidate = chance.choice(["h-1", "h-2"]), chance.choice(["c-1", "c-2", "c-3"])
            evaluation_id = chance.choice(["", "e-1", "e-2"])
            number = store.record_look(held_out, candidate, datetime(2026, 1, 1, tzinfo=UTC), evaluation_id)
            yield f"{held_out} {candidate} {evaluation_id or '-'} is look {number} of {store.looks(held_out)}"


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_looks_are_counted_as_they_were(golden: Callable[[str, str], None], tmp_path: Path, kind: str) -> None:
    url = MEMORY if kind == "memory" else f"sqlite:///{tmp_path}/journeyman.db"
    golden("looks.txt", "\n".join(history(url)) + "\n")
