"""Learning curves: how success, score, tokens and cost went from task to task, and whether they got better."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from journeyman.core.errors import InputError, MissingExtra
from journeyman.core.task import Split
from journeyman.core.trace import average_known
from journeyman.stores.base import AttemptRecord
from journeyman.tasks import rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What became of each task of a run, in order, from whatever it was recorded in.

_TOKENS = ("tokens", "tokens_used", "total_tokens")
_COST = ("cost", "cost_usd")
_SCORE = ("score", "performance_score")
_GROUP = ("category", "domain")
_HINT = 'a row is {"task_id": …, "score": 0 to 1 or null, "tokens": …, "cost": …, "category": …}, each but the first optional'


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One task. What is not known of it is `None`."""

    name: str
    group: str = ""
    """Its kind: like is compared with like."""
    success: bool | None = None
    score: float | None = None
    """0 to 1."""
    tokens: float | None = None
    """In and out."""
    cost: float | None = None
    """US dollars."""


def of_attempts(attempts: Iterable[AttemptRecord]) -> tuple[Point, ...]:
    """The attempts of a run in the order in which they began, without those at held-out tasks: nothing was learned there."""
    learning = sorted((a for a in attempts if a.split is not Split.HELD_OUT), key=lambda a: a.trace.started_at)
    return tuple(
        Point(
            name=attempt.trace.task_id,
            group=attempt.trace.domain,
            success=attempt.score.verdict.good,
            score=attempt.score.total,
            tokens=attempt.tokens if attempt.trace.calls else None,
            cost=attempt.trace.cost if attempt.trace.calls else None,
        )
        for attempt in learning
    )


def read(path: Path) -> tuple[Point, ...]:
    """The points in a file: a `training_results_*.json`, or rows as JSON lines or a JSON list, in the order of the file.

    Raises:
        InputError: It is neither, or rows of it cannot be used; they are named.
    """
    bad = rows.Complaints(f"{path} holds rows that cannot be used; {_HINT}")
    results = rows_of(path)
    if results is None:
        found = [(row.where, row.value) for row in rows.read(path, bad)]
    else:
        found = [(f"{path}: results[{number}]", row) for number, row in enumerate(results)]
    points = [_point(row, where, bad) for where, row in found]
    bad.check()
    if not points:
        raise InputError(f"{path} holds no tasks: there is nothing to draw")
    return tuple(points)


def rows_of(path: Path) -> Sequence[Any] | None:
    """The rows of a results file, flat; `None` when it is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        # Told better by who reads it line by line.
        return None
    listed = found.get("results") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        return None
    return [_flat(row) if isinstance(row, dict) else {} for row in listed]


def _flat(row: Mapping[str, Any]) -> Mapping[str, Any]:
    scenario, metadata = row.get("scenario"), row.get("metadata")
    named = {"task_id": scenario.get("name"), "category": scenario.get("category")} if isinstance(scenario, dict) else {}
    return {**row, **named, **(metadata if isinstance(metadata, dict) else {})}


def _point(row: Mapping[str, Any], where: str, bad: rows.Complaints) -> Point:
    score = _number(row, _SCORE, where, bad)
    if score is not None and score > 1:
        bad.add(where, f"score is {score:g}, and must be between 0 and 1, or null")
    success = row.get("success")
    if success is None:
        success = None if score is None else score >= 1
    elif not isinstance(success, bool):
        bad.add(where, f"success is {success!r}, and must be true, false or null")
    name = row.get("task_id")
    if not isinstance(name, str | int) or name == "":
        bad.add(where, "no task_id")
    return Point(
        name=str(name),
        group=str(_first(row, _GROUP) or ""),
        success=success,
        score=score,
        tokens=_tokens(row, where, bad),
        cost=_number(row, _COST, where, bad),
    )


def _tokens(row: Mapping[str, Any], where: str, bad: rows.Complaints) -> float | None:
    if _first(row, _TOKENS) is not None:
        return _number(row, _TOKENS, where, bad)
    both = [_number(row, (name,), where, bad) for name in ("input_tokens", "output_tokens")]
    known = [count for count in both if count is not None]
    return sum(known) if len(known) == len(both) else None


def _number(row: Mapping[str, Any], names: Sequence[str], where: str, bad: rows.Complaints) -> float | None:
    value = _first(row, names)
    if value is None:
        return None
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        bad.add(where, f"{names[0]} is {value!r}, and must be a number from 0 on, or null")
        return None
    return float(value)


def _first(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


# Whether the last tasks of a run went better than the first, with the interval that says how sure that is.

LEAST = 3
"""Known values that the first and the last part of a group need each, to be compared."""
Verdict = Literal["better", "worse", "not shown", "too few"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveMeasure:
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
    CurveMeasure(name="success", unit="share of tasks", higher_is_better=True, share=True),
    CurveMeasure(name="score", unit="0 to 1", higher_is_better=True, share=True),
    CurveMeasure(name="tokens", unit="tokens a task", higher_is_better=False, share=False),
    CurveMeasure(name="cost", unit="US dollars a task", higher_is_better=False, share=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureChange:
    """One measure, in the first and the last part of a run."""

    measure: CurveMeasure
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


def changes(
    points: Sequence[Point], *, part: float = 1 / 3, alike: bool = False, alpha: float = 0.05
) -> tuple[MeasureChange, ...]:
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


def _change(measure: CurveMeasure, points: Sequence[Point], part: float, alpha: float, *, alike: bool) -> MeasureChange:
    known = [(("" if alike else point.group), value) for point in points if (value := measure.of(point)) is not None]
    sides = list(_sides(known, part))
    enough = [side for side in sides if len(side.first) >= LEAST]
    common = MeasureChange(
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
    return MeasureChange(
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
    # Takes longer to load than everything else here, and whoever only reads attempts needs none of it.
    from scipy import stats

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


# A learning curve in plain text: a plot for each measure, and one honest sentence below it.

WIDTH, HEIGHT = 60, 7
MARK = "•"


def amount(measure: CurveMeasure, value: float, *, signed: bool = False) -> str:
    """A value with its unit, as short as it can be read."""
    sign = "+" if signed else ""
    match measure.name:
        case "success":
            return f"{100 * value:{sign}.0f} {'points' if signed else '%'}"
        case "score":
            return f"{value:{sign}.2f}"
        case "tokens":
            return f"{value:{sign},.0f}"
        case "cost":
            lead, digits = ("-" if value < 0 else sign), 4 if abs(value) >= 0.01 else 6
            return f"{lead}${abs(value):.{digits}f}" if value else "$0"


def span(measure: CurveMeasure, interval: tuple[float, float]) -> str:
    """An interval of differences."""
    low, high = (amount(measure, end, signed=True) for end in interval)
    return f"{low.removesuffix(' points')} to {high}"


def sentence(change: MeasureChange) -> str:
    """What is shown of one measure, and what is not."""
    measure = change.measure
    if not change.known:
        return f"{measure.name}: not known of any of {change.unknown} tasks"
    aside = f" ({change.unknown} unknown, left out)" if change.unknown else ""
    if change.first is None or change.last is None or change.interval is None or change.difference is None:
        return (
            f"{measure.name}: not shown: {change.known} known tasks{aside} are too few; "
            f"the first and the last part need {LEAST} each of one kind"
        )
    share = f", {change.relative:+.0%}" if change.relative is not None and not measure.share else ""
    moved = f"{amount(measure, change.first)} → {amount(measure, change.last)}"
    by = f"{amount(measure, change.difference, signed=True)}{share}, 95 % interval {span(measure, change.interval)}"
    said = {"better": "better", "worse": "WORSE"}.get(change.verdict, "not shown: the interval includes 0")
    return f"{measure.name}: {moved} ({by}; n = {change.compared}): {said}{aside}"


def lines(points: Sequence[Point], changes: Sequence[MeasureChange], *, window: int, part: float) -> Iterator[str]:
    """The whole report."""
    yield f"{len(points)} tasks; each mark is the mean of the last {window} known values"
    for change in changes:
        yield ""
        if doubled(change.measure, points):
            yield f"{change.measure.name}: 1 where a task succeeded and 0 where not, so there is no more to it than success"
            continue
        if change.known:
            yield from plot(change.measure, points, window)
        yield sentence(change)
    yield ""
    yield f"First and last part: {part:.0%} of the tasks of each kind, compared with their own."
    if left := sorted({group or "(no kind)" for change in changes for group in change.left_out if change.known}):
        yield f"Too few tasks to be compared with themselves, so left out somewhere: {', '.join(left)}."
    if any(change.verdict in ("better", "worse") for change in changes):
        yield "A curve shows that it changed, not why: `journeyman evaluate` shows on held-out tasks whether a playbook is why."


def doubled(measure: CurveMeasure, points: Sequence[Point]) -> bool:
    """Whether the scores say nothing but success."""
    same = all(point.score == (None if point.success is None else float(point.success)) for point in points)
    return measure.name == "score" and same and any(point.score is not None for point in points)


def plot(measure: CurveMeasure, points: Sequence[Point], window: int) -> Iterator[str]:
    """The rolling mean as rows of marks; columns hold as many tasks as it takes to keep within the width."""
    means = rolling([measure.of(point) for point in points], window)
    columns = min(WIDTH, len(means))
    drawn = [average_known(means[at * len(means) // columns : (at + 1) * len(means) // columns]) for at in range(columns)]
    known = [value for value in drawn if value is not None]
    bottom, top = (0.0, 1.0) if measure.share else (0.0, max(known, default=0.0) or 1.0)
    rows = [None if value is None else round((value - bottom) / (top - bottom) * (HEIGHT - 1)) for value in drawn]
    labels = {HEIGHT - 1: amount(measure, top), 0: amount(measure, bottom)}
    margin = max(map(len, labels.values()))
    yield f"{measure.name}, {measure.unit}"
    for row in reversed(range(HEIGHT)):
        marks = "".join(MARK if at == row else " " for at in rows).rstrip()
        yield f"{labels.get(row, ''):>{margin}} ┤{marks}".rstrip()
    yield f"{'':>{margin}} └{'─' * columns}"
    first, last = "1", str(len(points))
    yield f"{'':>{margin}}  {first}{last:>{max(columns - len(first), len(last) + 1)}}"


# The same as a picture in a page, in which nothing is but numbers.


_SMOOTHED = 10
"""Attempts whose mean is a point, at least."""


def picture(values: Sequence[bool | None]) -> str:
    """The rolling share of attempts that went well, as an SVG; nothing where fewer than ten are known."""
    if sum(value is not None for value in values) < _SMOOTHED:
        return ""
    window = max(_SMOOTHED, len(values) // 10)
    means = rolling([None if value is None else float(value) for value in values], window)
    wide, high = 360, 90
    steps = max(1, len(means) - 1)
    at = [f"{wide * n / steps:.1f},{high * (1 - value):.1f}" for n, value in enumerate(means) if value is not None]
    label = f"Share of the last {window} attempts that went well, over {len(values)} attempts; the frame is from 0 to 100 %"
    return (
        f"<figure><svg viewBox='-2 -2 {wide + 4} {high + 4}' width='{wide}' role='img' aria-label='{label}'>"
        f"<rect width='{wide}' height='{high}' fill='none' stroke='{_GREY}'/>"
        f"<polyline points='{' '.join(at)}' fill='none' stroke='{_LINE}' stroke-width='2'/></svg>"
        f"<figcaption>{label}</figcaption></figure>"
    )


# A curve as a PNG: a panel for each measure, single tasks in grey, the rolling mean and the two parts on top.

_INK, _GREY, _LINE = "#222222", "#80868b", "#1f5fa8"
_COLOURS = {"better": "#1a7f4b", "worse": "#b3261e"}
_LABELS = {"success": "Success", "score": "Score", "tokens": "Tokens per task", "cost": "Cost per task (US$)"}


def check_drawable() -> None:
    """Find out whether `draw` can, before anything is measured.

    Raises:
        MissingExtra: matplotlib, or what it needs, is not installed.
    """
    try:
        import matplotlib.backends.backend_agg  # noqa: F401
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        raise MissingExtra(f"{name} is missing: pip install 'journeyman[plot]'") from error


def draw(points: Sequence[Point], changes: Sequence[MeasureChange], path: Path, *, window: int, title: str) -> None:
    """Write the picture. Measures that are not known of any task have no panel, nor have scores that only repeat success."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [change for change in changes if change.known and not doubled(change.measure, points)]
    rows = (len(shown) + 1) // 2
    figure = Figure(
        figsize=(10.5 if len(shown) > 1 else 6.0, 1.1 + 3.1 * rows), dpi=150, facecolor="white", layout="constrained"
    )
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, min(2, len(shown)), squeeze=False, sharex=True).flatten()
    for panel, change in zip(panels, shown, strict=False):
        _panel(panel, points, change, window)
    for spare in panels[len(shown) :]:
        spare.set_visible(False)
    figure.suptitle(
        title if len(title) <= 80 else f"{title[:79]}…", x=0.012, ha="left", fontsize=13, fontweight="bold", color=_INK
    )
    note = (
        f"Dots: single tasks. Line: mean of the last {window} known values. Bars: first and last part, compared kind by kind."
    )
    figure.supxlabel(note, x=0.012, ha="left", fontsize=8, color=_GREY)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png")


def _panel(panel: "Axes", points: Sequence[Point], change: MeasureChange, window: int) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    measure = change.measure
    values = [measure.of(point) for point in points]
    at = [number for number, value in enumerate(values, start=1) if value is not None]
    known = [value for value in values if value is not None]
    means = rolling(values, window)
    panel.scatter(at, known, s=9, color=_GREY, alpha=0.5, linewidths=0, zorder=2)
    panel.plot(
        range(1, len(means) + 1), [float("nan") if m is None else m for m in means], color=_LINE, linewidth=1.8, zorder=3
    )
    _parts(panel, change, len(points))
    top = 1.0 if measure.share else max(known) or 1.0
    panel.set_ylim(-0.04 * top, 1.08 * top)
    panel.set_xlim(0.5, max(len(points), 2) + 0.5)
    panel.set_title(_LABELS[measure.name], loc="left", fontsize=10.5, color=_INK, pad=30)
    _says(panel, change)
    panel.set_xlabel("Task, in the order of the run", fontsize=8.5, color=_INK)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(measure, value)))
    panel.yaxis.set_major_locator(MaxNLocator(5, integer=measure.name == "tokens"))
    panel.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    panel.tick_params(labelsize=8, colors=_INK, length=0, labelbottom=True)
    panel.grid(axis="y", color="#e6e8eb", linewidth=0.7)
    panel.set_axisbelow(True)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.spines["bottom"].set_color(_GREY)


def _parts(panel: "Axes", change: MeasureChange, count: int) -> None:
    """The means of the two parts, as bars as wide as the parts are of the whole."""
    if change.first is None or change.last is None:
        return
    width = count * change.compared / (2 * change.known)
    for mean, start, end in ((change.first, 0.5, 0.5 + width), (change.last, count + 0.5 - width, count + 0.5)):
        panel.hlines(mean, start, end, color=_COLOURS.get(change.verdict, _GREY), linewidth=5, alpha=0.35, zorder=1)


def _says(panel: "Axes", change: MeasureChange) -> None:
    """Two lines below the panel's title: what changed, and how sure that is."""
    aside = f", {change.unknown} unknown" if change.unknown else ""
    if change.first is None or change.last is None or change.interval is None:
        found, sure = "", f"too few tasks to compare (n = {change.known}{aside})"
    else:
        said = {"not shown": "no change shown"}.get(change.verdict, change.verdict)
        found = f"{amount(change.measure, change.first)} → {amount(change.measure, change.last)}: {said}"
        sure = f"95 % interval of the change {span(change.measure, change.interval)}, n = {change.compared}{aside}"
    for text, height, colour in ((found, 15, _COLOURS.get(change.verdict, _INK)), (sure, 4, _GREY)):
        panel.annotate(
            text.replace("-", "−"),
            (0, 1),
            xytext=(0, height),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=8.2,
            color=colour,
            parse_math=False,
        ).set_in_layout(False)


def _tick(measure: CurveMeasure, value: float) -> str:
    if measure.name == "cost":
        return f"{value:.4g}"
    return amount(measure, value)
