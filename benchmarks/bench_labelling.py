"""How many of a person's labels make how many contrasts, in three orders?

    JOURNEYMAN_DATA=data python benchmarks/bench_labelling.py [--runs 20] [--seconds 30] [--json]

A contrast is a failed attempt beside a right one at the same request, both judged. The recorded rewards of 200 airline runs of
tau-bench (50 tasks, 4 attempts each) and of 344 of tau2-bench (50 tasks, 7 agents) are the person. Traces come in any order;
orders that depend on what was labelled are made anew every 20 labels. Beside it stands what an auto-labeler learns from 60
labels, by its AUC on a third of the tasks that nobody is asked about: an order should not buy contrasts with that.
"""

import argparse
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean

import numpy as np

from benchmarks.bench_signals import recorded
from journeyman.core.trace import Trace
from journeyman.rewards import signals
from journeyman.rewards.calibration import auc
from journeyman.rewards.train_learned import AutoLabeler, LabelledAttempt, contested, most_telling, train

SETS = ("tau airline", "tau2 airline")
LABELS = (20, 40, 60, 100, 160)
BATCH, TAUGHT, SLOWER = 20, 60, 5

Labelled = Sequence[Trace]
Order = Callable[[Labelled, Sequence[Trace]], Sequence[Trace]]
"""What to ask for next, of what was judged and what was not."""


def right(trace: Trace) -> bool:
    """What the person says."""
    return bool(trace.label)


def hidden(trace: Trace) -> Trace:
    """As it is before anybody judged it."""
    return replace(trace, label=None)


def labeler(known: Labelled) -> AutoLabeler:
    return AutoLabeler(train([LabelledAttempt(trace, right(trace), trace.task_id) for trace in known]))


def newest(known: Labelled, waiting: Sequence[Trace]) -> Sequence[Trace]:
    return waiting


def telling(known: Labelled, waiting: Sequence[Trace]) -> Sequence[Trace]:
    return most_telling(labeler(known), known, waiting, BATCH)


def by_disagreement(known: Labelled, waiting: Sequence[Trace]) -> Sequence[Trace]:
    first = contested(known, waiting)[:BATCH]
    chosen = {trace.id for trace in first}
    rest = [trace for trace in waiting if trace.id not in chosen]
    return [*first, *(most_telling(labeler(known), [*known, *first], rest, BATCH - len(first)) if len(first) < BATCH else [])]


ORDERS: dict[str, Order] = {"newest first": newest, "most telling": telling, "by disagreement": by_disagreement}


def labelled(traces: Sequence[Trace], order: Order, chance: random.Random, most: int = max(LABELS)) -> Iterator[Labelled]:
    """What was judged after each batch."""
    truth = {trace.id: trace for trace in traces}
    waiting = [hidden(trace) for trace in traces]
    chance.shuffle(waiting)
    known: list[Trace] = []
    while waiting and len(known) < most:
        asked = list(order(known, waiting))[:BATCH]
        known += [truth[trace.id] for trace in asked]
        gone = {trace.id for trace in asked}
        waiting = [trace for trace in waiting if trace.id not in gone]
        yield tuple(known)


def contrasts(known: Labelled) -> int:
    """Judged failures with a judged right attempt at the same request."""
    solved = {trace.task_id for trace in known if right(trace)}
    return sum(not right(trace) and trace.task_id in solved for trace in known)


def generalises(traces: Sequence[Trace], order: Order, seed: int) -> float:
    """The AUC of a labeler that 60 labels taught, on a third of the tasks that nobody was asked about."""
    chance = random.Random(seed)
    tasks = sorted({trace.task_id for trace in traces})
    others = set(chance.sample(tasks, len(tasks) // 3))
    *_, known = labelled([trace for trace in traces if trace.task_id not in others], order, chance, TAUGHT)
    model, unseen = labeler(known).model, [trace for trace in traces if trace.task_id in others]
    scores = np.array([model.probability(trace, None) for trace in unseen])
    return auc(scores, np.array([right(trace) for trace in unseen], np.float64))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default=os.environ.get("JOURNEYMAN_DATA", ""), required=not os.environ.get("JOURNEYMAN_DATA"))
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30, help="that a label takes")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    every = recorded(Path(options.data))
    for name in SETS:
        traces = [replace(trace, label=signals.truth_of(trace), rewards=()) for trace, _ in every[name]]
        print(f"{name}: {len(traces)} attempts, {contrasts(traces)} contrasts in all")
        for order, chosen in ORDERS.items():
            # Teaching a labeler before every batch is dear.
            few = max(1, options.runs // SLOWER)
            runs = [
                list(labelled(traces, chosen, random.Random(seed)))
                for seed in range(few if chosen is telling else options.runs)
            ]
            found = {many: round(mean(contrasts(run[many // BATCH - 1]) for run in runs), 1) for many in LABELS}
            told = [generalises(traces, chosen, seed) for seed in range(2 * few)]
            row = {"order": order, "contrasts": found, "labeler_auc": round(mean(told), 3)}
            print(json.dumps({"set": name, **row}) if options.json else line(row, options.seconds), flush=True)
    return 0


def line(row: Mapping[str, object], seconds: float) -> str:
    found = row["contrasts"]
    assert isinstance(found, dict)
    counts = ", ".join(f"{each:5.1f} after {many} ({many * seconds / 60:.0f} min)" for many, each in found.items())
    return f"  {row['order']:16} {counts}; AUC of a labeler {row['labeler_auc']}"


if __name__ == "__main__":
    raise SystemExit(main())
