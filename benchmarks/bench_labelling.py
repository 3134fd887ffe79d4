"""How many of a person's labels make how many contrasts, in four orders? And what may an auto-labeler say of the rest?

    JOURNEYMAN_DATA=data python -m benchmarks.bench_labelling [--runs 20] [--seconds 30] [--json]
    JOURNEYMAN_DATA=data python -m benchmarks.bench_labelling --part guarantee [--seeds 6] [--repeats 200] [--desk FILE]

A contrast is a failed attempt beside a right one at the same request, both judged. The recorded rewards of 200 airline runs of
tau-bench (50 tasks, 4 attempts each) and of 344 of tau2-bench (50 tasks, 7 agents) are the person. Traces come in any order;
orders that depend on what was labelled are made anew every 20 labels. Beside it stands what an auto-labeler learns from 60
labels, by its AUC on a third of the tasks that nobody is asked about: an order should not buy contrasts with that.

The guarantee: 50 labels (and 100 of the airline's) of attempts drawn at random, from 500 that the embedded model made at the
order desk with a playbook that is half learned (`--desk` keeps them in a file), and from tau-bench's airline. Of each seed the
share of the rest that is labelled and how much of it is right; over the repeats, how often the guarantee was given and was
wrong, which is to be 10 % of all draws at most. Last, what withdraws in an audit of ten labels, simulated: the bound over all
that was counted, a test of the audit by itself, and either, which is ours.
"""

import argparse
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean

import numpy as np

from benchmarks.bench_signals import recorded
from journeyman.core.trace import Trace
from journeyman.experiments.weights.pipeline import Comparison
from journeyman.rewards import signals
from journeyman.rewards.auto_labeler import AutoLabeler, SeenAttempt, by_turns, contested, learn, most_telling, see, taught
from journeyman.rewards.calibration import Guarantee, auc
from journeyman.tracing.importers import Problem, read

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
    return taught(known, {trace.id: right(trace) for trace in known})


def newest(known: Labelled, waiting: Sequence[Trace]) -> Sequence[Trace]:
    return waiting


def telling(known: Labelled, waiting: Sequence[Trace]) -> Sequence[Trace]:
    return most_telling(labeler(known), known, waiting, BATCH)


def by_disagreement(known: Labelled, waiting: Sequence[Trace]) -> Sequence[Trace]:
    first = contested(known, waiting)[:BATCH]
    chosen = {trace.id for trace in first}
    rest = [trace for trace in waiting if trace.id not in chosen]
    return [*first, *(most_telling(labeler(known), [*known, *first], rest, BATCH - len(first)) if len(first) < BATCH else [])]


def asked_for(known: Labelled, waiting: Sequence[Trace]) -> Sequence[Trace]:
    """What `journeyman traces label --telling` asks for: the two by turns."""
    return by_turns(labeler(known), known, waiting, BATCH)


ORDERS: dict[str, Order] = {
    "newest first": newest,
    "most telling": telling,
    "by disagreement": by_disagreement,
    "by turns": asked_for,
}
DEAR = (telling, asked_for)
"""Orders for which a labeler is taught before every batch."""


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
    model, unseen = labeler(known), [trace for trace in traces if trace.task_id in others]
    scores = np.array([model.probability(trace) for trace in unseen])
    return auc(scores, np.array([right(trace) for trace in unseen], np.float64))


# What may be said of the rest, and how often that is wrong.

Judged = Mapping[str, bool]
RESTS: Mapping[str, Sequence[int]] = {"desk": (50,), "tau airline": (50, 100)}
"""How many labels of which set."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """One draw of labels, and what came of it."""

    labels: int
    seed: int
    labelled: float
    """Share of the attempts without a label."""
    agreement: float | None
    upper: float | None
    """The bound that was promised of what is wrong."""
    needed: int | None

    @property
    def broken(self) -> bool:
        return self.agreement is not None and self.agreement < Guarantee().least


def at_the_desk(kept: Path | None) -> list[Trace]:
    """500 attempts, from the file where they are in one."""
    if kept is None or not kept.is_file():
        with tempfile.TemporaryDirectory() as folder:
            comparison = Comparison(folder=Path(folder))
            comparison.learn_playbook()
            comparison._rows()
            lines = (Path(folder) / "traces.jsonl").read_text("utf-8")
        kept = kept or Path(tempfile.mkdtemp()) / "desk.jsonl"
        kept.write_text(lines, "utf-8")
    return [found.trace for found in read(kept) if not isinstance(found, Problem)]


def drawn(seen: Sequence[SeenAttempt], truth: Judged, labels: int, seed: int) -> Round:
    """Labels of attempts drawn at random, and what the labeler says of the others."""
    known = set(random.Random(seed).sample(sorted(truth), labels))
    model = learn(seen, {id: truth[id] for id in known})
    rest = [each for each in seen if each.id not in known]
    right = np.zeros(0, np.bool_)
    if model.selection is not None and model.reader is not None:
        good = model.reader.probabilities(rest)
        spoken = np.maximum(good, 1 - good) >= model.least
        right = ((good >= 0.5) == np.array([truth[each.id] for each in rest]))[spoken]
    return Round(
        labels=labels,
        seed=seed,
        labelled=len(right) / len(rest),
        agreement=float(right.mean()) if len(right) else None,
        upper=model.upper if model.selection is not None else None,
        needed=model.needed if model.selection is None else None,
    )


def guarantees(options: argparse.Namespace, airline: Sequence[Trace]) -> bool:
    """Whether no guarantee was wrong more often than in one draw of ten."""
    kept = True
    for name, counts in ((name, counts) for name, counts in RESTS.items() if name in options.sets):
        traces = at_the_desk(options.desk) if name == "desk" else airline
        truth = {trace.id: bool(signals.truth_of(trace)) for trace in traces}
        seen = [see(replace(trace, label=None, rewards=()), None) for trace in traces]
        print(f"{name}: {len(seen)} attempts, {sum(truth.values())} right")
        for labels in counts:
            rounds = list[Round]()
            for seed in range(max(options.seeds, options.repeats)):
                rounds.append(each := drawn(seen, truth, labels, seed))
                if seed < options.seeds:
                    print(json.dumps({"set": name, **asdict(each)}) if options.json else said_of(each), flush=True)
            spoke = [each for each in rounds if each.agreement is not None]
            wrong = sum(each.broken for each in spoke)
            kept = kept and wrong <= 0.1 * len(rounds)
            share, agreed = (mean([getattr(each, name) for each in spoke] or [0.0]) for name in ("labelled", "agreement"))
            print(
                f"  {labels} labels, {len(rounds)} draws: speaks in {len(spoke)}, labels {share:.1%} of the rest then, "
                f"agreement {agreed:.3f}; below .9 in {wrong} ({wrong / len(rounds):.1%} of the draws)",
                flush=True,
            )
    return kept


def said_of(each: Round) -> str:
    if each.agreement is None:
        return f"    {each.labels} labels, seed {each.seed}: silent, needs about {each.needed}"
    return (
        f"    {each.labels} labels, seed {each.seed}: {each.labelled:.1%} labelled, agreement {each.agreement:.3f}, at most "
        f"{each.upper or 1:.1%} wrong promised"
    )


def audits(repeats: int = 400, count: int = 10) -> None:
    """How often a labeler that was shown by 0 of 22 or 1 of 60 falls in an audit, looked at after each word."""
    promise, chance = Guarantee(), np.random.default_rng(0)
    for wrong, said in ((0, 22), (1, 60)):
        for risk in (0.0, 0.02, 0.05, 0.1, 0.2, 0.4):
            rows = np.cumsum(chance.random((repeats, count)) < risk, axis=1).tolist()
            together = [[promise.upper(k + wrong, n + said) > promise.risk for n, k in enumerate(row, 1)] for row in rows]
            alone = [[promise.is_refuted(k, n) for n, k in enumerate(row, 1)] for row in rows]
            either = [any(one) or any(other) for one, other in zip(together, alone, strict=True)]
            print(
                f"  shown by {wrong} wrong of {said}, {risk:.0%} wrong in truth: together {mean(map(any, together)):.1%}, "
                f"alone {mean(map(any, alone)):.1%}, either {mean(either):.1%}"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default=os.environ.get("JOURNEYMAN_DATA", ""), required=not os.environ.get("JOURNEYMAN_DATA"))
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30, help="that a label takes")
    parser.add_argument("--part", choices=("orders", "guarantee"), default="orders")
    parser.add_argument("--sets", nargs="+", choices=tuple(RESTS), default=tuple(RESTS), help="of the guarantee")
    parser.add_argument("--seeds", type=int, default=6, help="of the guarantee, each shown")
    parser.add_argument("--repeats", type=int, default=200, help="draws of labels in all")
    parser.add_argument("--desk", type=Path, help="keep the attempts at the desk in this file, or read them from it")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    every = recorded(Path(options.data))
    if options.part == "guarantee":
        kept = guarantees(options, [trace for trace, _ in every["tau airline"]])
        audits()
        return int(not kept)
    for name in SETS:
        traces = [replace(trace, label=signals.truth_of(trace), rewards=()) for trace, _ in every[name]]
        print(f"{name}: {len(traces)} attempts, {contrasts(traces)} contrasts in all")
        for order, chosen in ORDERS.items():
            few = max(1, options.runs // SLOWER)
            runs = [
                list(labelled(traces, chosen, random.Random(seed))) for seed in range(few if chosen in DEAR else options.runs)
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
