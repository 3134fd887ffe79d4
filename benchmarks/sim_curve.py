"""How often the interval of `journeyman curve` covers the true change, beside a percentile bootstrap's. Deterministic.

python benchmarks/sim_curve.py
"""

from collections.abc import Callable

import numpy as np

from journeyman.experiments.learning_curve import Point, changes

Draw = Callable[[np.random.Generator, int], np.ndarray]
ROUNDS = 2000
RESAMPLES = 1000


def coin(chance: float) -> Draw:
    return lambda rng, size: (rng.random(size) < chance).astype(float)


def skewed(mean: float) -> Draw:
    return lambda rng, size: rng.lognormal(np.log(mean) - 0.32, 0.8, size)


CASES: tuple[tuple[str, str, Draw, Draw, float], ...] = (
    ("success", "0.5 to 0.5", coin(0.5), coin(0.5), 0.0),
    ("success", "0.2 to 0.6", coin(0.2), coin(0.6), 0.4),
    ("success", "0.9 to 1.0", coin(0.9), coin(1.0), 0.1),
    ("tokens", "1000 to 1000", skewed(1000), skewed(1000), 0.0),
    ("tokens", "1000 to 600", skewed(1000), skewed(600), -400.0),
)


def ours(name: str, first: np.ndarray, last: np.ndarray) -> tuple[float, float]:
    values = [*first, *last]
    points = [
        Point(name=str(n), success=bool(value) if name == "success" else None, tokens=value if name == "tokens" else None)
        for n, value in enumerate(values)
    ]
    change = next(change for change in changes(points, part=0.5) if change.measure.name == name)
    assert change.interval is not None
    return change.interval


def bootstrap(rng: np.random.Generator, first: np.ndarray, last: np.ndarray) -> tuple[float, float]:
    draws = [values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(axis=1) for values in (first, last)]
    low, high = np.quantile(draws[1] - draws[0], [0.025, 0.975])
    return float(low), float(high)


def main() -> None:
    print(f"{'measure':8} {'from and to':14} {'tasks a part':>12} {'ours':>7} {'bootstrap':>10}")
    for name, label, before, after, truth in CASES:
        for size in (5, 10, 30):
            rng = np.random.default_rng(7)
            hits = np.zeros(2)
            for _ in range(ROUNDS):
                first, last = before(rng, size), after(rng, size)
                for at, (low, high) in enumerate((ours(name, first, last), bootstrap(rng, first, last))):
                    hits[at] += low - 1e-9 <= truth <= high + 1e-9
            print(f"{name:8} {label:14} {size:12} {hits[0] / ROUNDS:7.1%} {hits[1] / ROUNDS:10.1%}")


if __name__ == "__main__":
    main()
