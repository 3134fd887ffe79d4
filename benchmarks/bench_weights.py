"""What learning in the weights brings on the embedded model, by method, and what it takes.

    python benchmarks/bench_weights.py                  GRPO and KTO with three seeds, each with its interval
    python benchmarks/bench_weights.py --all            every method once, and the collapses that guards must stop
    python benchmarks/bench_weights.py --base-model embedded:small --seeds 1

Promised: GRPO gains at least 30 points in at most 8 minutes on two cores, KTO from 500 labelled attempts at least 20.
"""

import argparse
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from statistics import fmean

from journeyman.experiments.weights.pipeline import Comparison, MethodResult

PROMISED = {"GRPO": 0.30, "KTO": 0.20}


def seeds(base_model: str, domain: str, count: int) -> Iterator[tuple[int, MethodResult]]:
    for seed in range(count):
        with tempfile.TemporaryDirectory() as folder:
            comparison = Comparison(folder=Path(folder), domain=domain, base_model=base_model, seed=seed)
            comparison.learn_playbook()
            yield seed, comparison.kto()
            yield seed, comparison.grpo()


def show(line: MethodResult, seed: int | None = None) -> None:
    number = "" if seed is None else f"  seed {seed}"
    found = (
        "unknown" if line.gain is None else f"{line.right:6.1%}  gain {line.gain:+.3f} ({line.low:+.3f} to {line.high:+.3f})"
    )
    print(f"{line.name:28}{number}  {found}  CPU {line.cpu_seconds:.0f} s  wall {line.seconds:.0f} s  {line.note}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--domain", default="oslo")
    parser.add_argument("--base-model", default="embedded:base")
    given = parser.parse_args()
    if given.all:
        with tempfile.TemporaryDirectory() as folder:
            comparison = Comparison(folder=Path(folder), domain=given.domain, base_model=given.base_model)
            for line in chain(comparison.lines(), comparison.collapses()):
                show(line)
        return
    gains: dict[str, list[float]] = {name: [] for name in PROMISED}
    for seed, line in seeds(given.base_model, given.domain, given.seeds):
        show(line, seed)
        gains[line.name].append(line.gain or 0.0)
    for name, found in gains.items():
        kept = "kept" if min(found) >= PROMISED[name] else "BROKEN"
        print(f"{name}: mean gain {fmean(found):+.3f}, least {min(found):+.3f}; promised {PROMISED[name]:+.2f}: {kept}")


if __name__ == "__main__":
    main()
