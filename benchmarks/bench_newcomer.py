"""How well a few answers place a new model, each model of a set in turn being the new one.

    python benchmarks/bench_newcomer.py --data DIR             # 14 models on GSM8K, 9 models on 14 tasks; a minute
    python benchmarks/bench_newcomer.py --data DIR --json      # one object

DIR holds `zeroeval-gsm8k-outputs`, `gsm8k` and `llmrouter_ulab` (of which 2,000 of the 6,108 requests are drawn). Difficulties
are learned from all other models. Compared are the new model's mean over n random questions; item response theory on the same
questions; and the same on n anchors that were chosen. Told are the error of its accuracy (with 1.96 standard errors over
models), the log-loss of its success on 400 questions that are never asked, and how often the 95 % interval held the true
accuracy, each the mean over models and five draws. Exit code 1 where a target is missed.
"""

import argparse
import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from journeyman.core.errors import InputError
from journeyman.optimizers.router.cold_start import Newcomer, anchors, fit, place
from journeyman.stats import Floats
from journeyman.tasks.answers import judge_number

ASKED = (5, 20, 50)
DRAWS = 5
NEVER_ASKED = 400
LOG_LOSS = 0.8
"""Target: of the log-loss of the mean, at most this share is left with 20 anchors, on both sets."""


def zeroeval(data: Path) -> Floats:
    """(1319, 14)"""
    with gzip.open(data / "gsm8k" / "test.jsonl.gz", "rt", encoding="utf-8") as file:
        truths = [json.loads(line)["answer"] for line in file]
    paths = sorted((data / "zeroeval-gsm8k-outputs").glob("*.jsonl.gz"))
    if not paths:
        raise InputError(f"{data} holds no zeroeval-gsm8k-outputs")
    found = np.full((len(truths), len(paths)), np.nan)
    for column, path in enumerate(paths):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for row in map(json.loads, file):
                found[row["i"], column] = judge_number(truths[row["i"]], row["output"]).value
    return found


def llmrouter(data: Path) -> Floats:
    """(2000, 9)"""
    with gzip.open(data / "llmrouter_ulab" / "rows.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line)["scores"] for line in file]
    models = sorted({model for row in rows for model in row})
    found = np.array([[row.get(model, np.nan) for model in models] for row in rows], np.float64)
    return found[np.random.default_rng(0).choice(len(found), 2000, replace=False)]


def log_loss(probabilities: Floats, outcomes: Floats) -> float:
    p = np.clip(probabilities, 1e-3, 1 - 1e-3)
    return float(-np.mean(outcomes * np.log(p) + (1 - outcomes) * np.log(1 - p)))


def held(newcomer: Newcomer, accuracy: float) -> float:
    low, high = newcomer.accuracy_interval
    return float(low <= accuracy <= high)


def measure(success: Floats) -> dict[tuple[int, str], Floats]:
    """By number of questions and way, (models, 3): error of the accuracy, log-loss, whether the interval held."""
    n, models = success.shape
    found: dict[tuple[int, str], Floats] = {}
    for new in range(models):
        rng = np.random.default_rng(new)
        bank, outcomes = fit(np.delete(success, new, axis=1)), success[:, new]
        mixed = rng.permutation(n)
        tested, free = mixed[:NEVER_ASKED], mixed[NEVER_ASKED:]
        accuracy = float(outcomes.mean())
        for number in ASKED:
            draws = [rng.choice(free, number, replace=False) for _ in range(DRAWS)]
            chosen = anchors(bank, number, free.tolist())
            tried: dict[str, list[tuple[float, float, float]]] = {"mean": [], "irt, random": [], "irt, anchors": []}
            for rows in draws:
                mean = float(outcomes[rows].mean())
                likely = np.full(NEVER_ASKED, (outcomes[rows].sum() + 0.5) / (number + 1))
                tried["mean"].append((abs(mean - accuracy), log_loss(likely, outcomes[tested]), np.nan))
            for way, rows in [*(("irt, random", rows) for rows in draws), ("irt, anchors", chosen)]:
                placed = place(bank, rows, outcomes[rows])
                loss = log_loss(placed.success[tested], outcomes[tested])
                tried[way].append((abs(placed.accuracy - accuracy), loss, held(placed, accuracy)))
            for way, values in tried.items():
                found.setdefault((number, way), np.zeros((models, 3)))[new] = np.mean(values, axis=0)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default=os.environ.get("JOURNEYMAN_DATA", ""))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    data = Path(options.data)
    table: list[dict[str, Any]] = []
    passed = True
    for name, success in {"zeroeval": zeroeval(data), "llmrouter_ulab": llmrouter(data)}.items():
        found = measure(success)
        passed &= found[20, "irt, anchors"][:, 1].mean() <= LOG_LOSS * found[20, "mean"][:, 1].mean()
        for (number, way), values in found.items():
            error, loss, kept = values.mean(axis=0).tolist()
            margin = 1.96 * float(values[:, 0].std(ddof=1)) / len(values) ** 0.5
            row = {"set": name, "asked": number, "way": way, "error": error, "margin": margin, "log_loss": loss}
            table.append(row | {"held": None if np.isnan(kept) else kept})
    if options.json:
        print(json.dumps({"table": table, "passed": bool(passed)}))
        return 0 if passed else 1
    print("set             asked  way           error of accuracy   log-loss  interval held")
    for row in table:
        kept = "" if row["held"] is None else f"{row['held']:.2f}"
        error = f"{row['error']:.4f} ± {row['margin']:.4f}"
        print(f"{row['set']:15} {row['asked']:5}  {row['way']:13} {error:18}  {row['log_loss']:.4f}    {kept}")
    print(f"target, {1 - LOG_LOSS:.0%} less log-loss than the mean from 20 anchors: {'reached' if passed else 'missed'}")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
