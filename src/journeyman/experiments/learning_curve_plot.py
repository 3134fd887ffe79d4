"""A learning curve as a PNG: a panel for each measure, single tasks in grey, the rolling mean and the two parts on top."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from journeyman.experiments.learning_curve import CurveMeasure, MeasureChange, Point, amount, doubled, rolling, span

_INK, _GREY, _LINE = "#222222", "#80868b", "#1f5fa8"
_COLOURS = {"better": "#1a7f4b", "worse": "#b3261e"}
_LABELS = {"success": "Success", "score": "Score", "tokens": "Tokens per task", "cost": "Cost per task (US$)"}


def draw(points: Sequence[Point], changes: Sequence[MeasureChange], path: Path, *, window: int, title: str) -> None:
    """Write the picture. Measures that are not known of any task have no panel, nor have scores that only repeat success."""
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


def _panel(panel: Axes, points: Sequence[Point], change: MeasureChange, window: int) -> None:
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


def _parts(panel: Axes, change: MeasureChange, count: int) -> None:
    """The means of the two parts, as bars as wide as the parts are of the whole."""
    if change.first is None or change.last is None:
        return
    width = count * change.compared / (2 * change.known)
    for mean, start, end in ((change.first, 0.5, 0.5 + width), (change.last, count + 0.5 - width, count + 0.5)):
        panel.hlines(mean, start, end, color=_COLOURS.get(change.verdict, _GREY), linewidth=5, alpha=0.35, zorder=1)


def _says(panel: Axes, change: MeasureChange) -> None:
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
