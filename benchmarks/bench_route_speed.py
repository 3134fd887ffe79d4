"""What routing one request costs in CPU time: the choice itself, with the hashing embedder, and with MiniLM.

    python benchmarks/bench_route_speed.py [--rows 4000] [--workers 9] [--requests 500] [--rounds 15] [--no-sentence]

A router is fitted to synthetic outcomes of the size given, and asked one new request after the other, in one thread. Stated
bounds, in milliseconds of CPU a request (the median over blocks of 25): 0.2 for the choice alone (its embedding is known), 2
with hashing, 40 with MiniLM. Exit code 1 if one is missed. What the choice alone takes is the best of `--rounds` such medians:
a neighbour on the machine takes caches and clock away, and gives nothing.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median, quantiles
from tempfile import TemporaryDirectory

os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path

import numpy as np

from journeyman.core.policy import Card, Ending, Outcome
from journeyman.models import embedders
from journeyman.optimizers.outcome_table import OutcomeRow
from journeyman.optimizers.router import fit, outcomes
from journeyman.optimizers.router.artifact import Policy
from journeyman.optimizers.router.objective import parse
from journeyman.optimizers.router.predict import load, save
from journeyman.serving.router import Router

_TEXT = """summarise the quarterly report of sales in Norway and draw a trend line prove that there are infinitely many primes
write a function which parses dates translate this letter into French book a table for four people by the harbour find a bug"""
_WORDS = list(dict.fromkeys(_TEXT.split()))
_BLOCK = 25


def requests(count: int, seed: int) -> list[str]:
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(_WORDS, size=int(draw.integers(12, 60)))) for _ in range(count)]


def router(embedder: str, rows: int, workers: int, folder: Path) -> Router:
    """Fitted to outcomes that depend on the words of a request, and read back from its file."""
    draw = np.random.default_rng(0)
    names = [f"model-{at}" for at in range(workers)]
    likes = draw.normal(size=(len(_WORDS), workers))
    asked = requests(rows, 1)
    made = []
    for at, text in enumerate(asked):
        chance = 1 / (1 + np.exp(-likes[[_WORDS.index(word) for word in text.split()]].mean(0) * 6))
        answers = {
            name: Outcome(ending=Ending.RIGHT if right else Ending.WRONG, success=float(right), cost=float(cost), seconds=1.0)
            for name, right, cost in zip(names, draw.random(workers) < chance, draw.lognormal(-7, 0.3, workers), strict=True)
        }
        made.append(OutcomeRow(id=str(at), request=text, type=f"type-{at % 14}", outcomes=answers))
    table = outcomes.table(made, {name: Card(name=name) for name in names})
    vectors = embedders.load(embedder).embed(asked)
    save(fit.fit(table, vectors, embedder=embedders.load(embedder).name), folder / "predictor.safetensors")
    fitted = load(folder / "predictor.safetensors")
    return Router(Policy(fitted=fitted, predictor="", objective=parse("quality - 20*cost"), singles=(names[0],)))


def cpu(call: Callable[[str], object], texts: Sequence[str]) -> tuple[float, float]:
    """Milliseconds of CPU for a call: the median over blocks, and the slowest tenth's."""
    for text in texts[:_BLOCK]:
        call(text)
    found = []
    for start in range(_BLOCK, len(texts) - _BLOCK + 1, _BLOCK):
        before = time.process_time()
        for text in texts[start : start + _BLOCK]:
            call(text)
        found.append((time.process_time() - before) / _BLOCK * 1000)
    return median(found), quantiles(found, n=10)[-1]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=4000)
    options.add_argument("--workers", type=int, default=9)
    options.add_argument("--requests", type=int, default=500)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--no-sentence", action="store_true")
    given = options.parse_args()
    asked = requests(given.requests, 2)
    found: list[tuple[str, float, float, float]] = []
    with TemporaryDirectory() as folder:
        hashing = router("hashing", given.rows, given.workers, Path(folder))
        found.append(("with hashing", *cpu(hashing.route, asked), 2.0))
        # The same requests again: their vectors are remembered, so this is everything but the embedding.
        found.insert(0, ("embedding apart", *min(cpu(hashing.route, asked) for _ in range(given.rounds)), 0.2))
        if not given.no_sentence:
            sentence = router("sentence", min(given.rows, 600), given.workers, Path(folder))
            found.append(("with MiniLM", *cpu(sentence.route, asked[:150]), 40.0))
    print(f"{given.rows} rows, {given.workers} workers, one thread; milliseconds of CPU a request")
    print(f"{'':<18}{'median':>9}{'p90':>9}{'bound':>9}")
    for name, middle, slow, bound in found:
        print(f"{name:<18}{middle:>9.3f}{slow:>9.3f}{bound:>9.1f}{'' if middle < bound else '   MISSED'}")
    return int(any(middle >= bound for _, middle, _, bound in found))


if __name__ == "__main__":
    sys.exit(main())
