"""Whether the last tasks of a run went better than the first, with the interval that says how sure that is."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import stats

from journeyman.curve.points import Point
from journeyman.errors import InputError

LEAST = 3
"""Known values that the first and the last part of a group need each, to be compared."""
Verdict = Literal["better", "worse", "not shown", "too few"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One thing that is followed from task to task."""

    name: Literal["success", "score", "tokens", "cost"]
    unit: str
    higher_is_better: bool
    share: bool
    """Whether it lies between 0 and 1."""

    def of(self, point: Point) -> float | None:
        value = getattr(point, self.name)
        return None if value is None else float(value)


MEASURES = (
    Measure(name="success", unit="share of tasks", higher_is_better=True, share=True),
    Measure(name="score", unit="0 to 1", higher_is_better=True, share=True),
    Measure(name="tokens", unit="tokens a task", higher_is_better=False, share=False),
    Measure(name="cost", unit="US dollars a task", higher_is_better=False, share=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One measure, in the first and the last part of a run."""

    measure: Measure
    known: int
    unknown: int
    """Tasks whose value is not known. They are left out."""
    compared: int = 0
    """Tasks in the two parts together."""
    left_out: tuple[str, ...] = ()
    """Groups that have too few tasks to be compared with themselves."""
    first: float | None = None
    """The mean of the first part; over several groups, the mean of theirs, weighted by their size."""
    last: float | None = None
    interval: tuple[float, float] | None = None
    """Of `last - first`."""

    @property
    def difference(self) -> float | None:
        return None if self.first is None or self.last is None else self.last - self.first

    @property
    def relative(self) -> float | None:
        """The difference as a share of the first mean."""
        return None if self.difference is None or not self.first else self.difference / self.first

    @property
    def verdict(self) -> Verdict:
        if self.interval is None:
            return "too few"
        low, high = self.interval
        if low <= 0 <= high:
            return "not shown"
        return "better" if (low > 0) == self.measure.higher_is_better else "worse"

    def json(self) -> dict[str, Any]:
        return {
            "known": self.known,
            "unknown": self.unknown,
            "compared": self.compared,
            "left_out": list(self.left_out),
            "first": self.first,
            "last": self.last,
            "difference": self.difference,
            "relative": self.relative,
            "interval": None if self.interval is None else list(self.interval),
            "verdict": self.verdict,
        }


def changes(points: Sequence[Point], *, part: float = 1 / 3, alike: bool = False, alpha: float = 0.05) -> tuple[Change, ...]:
    """What changed from the first part of a run to the last, in each measure.

    Each kind of task is compared with itself, its own first part with its own last, and the differences are weighted by the
    kinds' sizes: a run that began with one kind and ended with another shows no change for that alone.

    Args:
        part: The share of the tasks that is the first part, and the last; at most a half.
        alike: All tasks are of one kind, whatever their groups.
        alpha: One minus the level of the intervals.

    Raises:
        InputError: `part` cannot be.
    """
    if not 0 < part <= 0.5:
        raise InputError(f"a part of {part:g} cannot be; it lies above 0 and at most at 0.5")
    return tuple(_change(measure, points, part, alpha, alike=alike) for measure in MEASURES)


@dataclass(frozen=True, slots=True)
class _Sides:
    """The two parts of one group."""

    group: str
    first: Sequence[float]
    last: Sequence[float]


def _change(measure: Measure, points: Sequence[Point], part: float, alpha: float, *, alike: bool) -> Change:
    known = [(("" if alike else point.group), value) for point in points if (value := measure.of(point)) is not None]
    sides = list(_sides(known, part))
    enough = [side for side in sides if len(side.first) >= LEAST]
    common = Change(
        measure=measure,
        known=len(known),
        unknown=len(points) - len(known),
        left_out=tuple(side.group for side in sides if len(side.first) < LEAST),
    )
    if not enough:
        return common
    sizes = np.array([len(side.first) for side in enough], dtype=float)
    weights = sizes / sizes.sum()
    first = float(weights @ [np.mean(side.first) for side in enough])
    last = float(weights @ [np.mean(side.last) for side in enough])
    return Change(
        measure=measure,
        known=common.known,
        unknown=common.unknown,
        left_out=common.left_out,
        compared=int(2 * sizes.sum()),
        first=first,
        last=last,
        interval=_interval(enough, weights, share=measure.share, alpha=alpha),
    )


def _sides(known: Sequence[tuple[str, float]], part: float) -> Iterator[_Sides]:
    for group in dict.fromkeys(group for group, _ in known):
        values = [value for of, value in known if of == group]
        # A third of nine is three, whatever floating point makes of it.
        size = math.floor(len(values) * part + 1e-9)
        yield _Sides(group, values[:size], values[len(values) - size :])


def _interval(sides: Sequence[_Sides], weights: np.ndarray[Any, Any], *, share: bool, alpha: float) -> tuple[float, float]:
    """Welch's t-interval for the weighted difference of means, with Satterthwaite's degrees of freedom.

    Welch 1947, "The generalization of Student's problem when several different population variances are involved". Shares
    get a 0 and a 1 more on either side, as Agresti and Caffo do for proportions (The American Statistician 54, 2000):
    otherwise three failures followed by three successes would have no variance at all, and count as certain. Preferred to the
    percentile bootstrap, whose 95 % intervals cover less: see `benchmarks/sim_curve.py`.
    """
    middle, variances = 0.0, []
    for side, weight in zip(sides, weights, strict=True):
        means = []
        for values in (side.first, side.last):
            urn = np.array([*values, 0.0, 1.0] if share else values)
            means.append(urn.mean())
            variances.append((weight**2 * urn.var(ddof=1) / len(urn), len(urn) - 1))
        middle += weight * (means[1] - means[0])
    total = sum(variance for variance, _ in variances)
    if total == 0:
        return float(middle), float(middle)
    freedom = total**2 / sum(variance**2 / (size) for variance, size in variances)
    half = stats.t.ppf(1 - alpha / 2, freedom) * math.sqrt(total)
    low, high = float(middle - half), float(middle + half)
    return (max(low, -1.0), min(high, 1.0)) if share else (low, high)


def rolling(values: Sequence[float | None], window: int) -> list[float | None]:
    """For each task the mean of the known values among it and those before it, `window` in all.

    `None` where fewer than half of `window` are known: a mean of one or two would be read as a peak.
    """
    found: list[float | None] = []
    for at in range(len(values)):
        known = [value for value in values[max(0, at + 1 - window) : at + 1] if value is not None]
        found.append(sum(known) / len(known) if 2 * len(known) >= window else None)
    return found
