"""Charts as SVG, drawn on the server: no script, no style in the page, and the same bytes for the same numbers.

A chart has one y-axis. What is missing is a gap, and never 0; an estimate is drawn with its interval. Each is drawn twice, for
a wide screen and for a narrow one, and the style sheet shows one of them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from markupsafe import Markup, escape

from journeyman.serving.dashboard.layout import visible

WIDE, NARROW = 640, 340
"""Widths in which each chart is drawn."""
HEIGHT = 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 74, 12, 24
"""Room for the labels of the axes, and for those at the end of a line."""
_TICKS = 5
"""At most, on the y-axis."""
_APART = 4
"""Points of a line that are nearer to each other cannot be pointed at one by one: the table below the chart has them all."""
_LETTER = 6.2
"""Of a tick's label, in width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartPoint:
    """What is known at one place of the x-axis."""

    x: float
    y: float | None
    """`None` is not known: a gap."""
    low: float | None = None
    high: float | None = None
    """Ends of its interval, where it is an estimate."""
    part: float | None = None
    """Of a bar, how much of it is marked."""
    says: str = ""
    """All of it in words, for whoever points at it or has it read out."""
    link: str = ""
    """To what it is of."""
    count: int | None = None
    """How many traces that is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    name: str
    points: tuple[ChartPoint, ...]
    style: str = "candidate"
    """baseline, candidate, third or fourth: colour and dashes go together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartRule:
    """A line across the chart: where there is no difference, or a limit."""

    at: float
    name: str
    style: str = "limit"


@dataclass(frozen=True, kw_only=True)
class Chart:
    """What is to be drawn."""

    title: str
    says: str
    """Its verdict in a sentence: what somebody hears who does not see it."""
    series: tuple[Series, ...]
    kind: str = "line"
    """line (with bands where there are intervals), bars, or whiskers."""
    label: Callable[[float], str] = "{:g}".format
    """How a value is written."""
    x_label: Callable[[float], str] = "{:g}".format
    rules: tuple[ChartRule, ...] = ()
    low: float | None = None
    """Where the y-axis begins; by the values where nothing is said."""
    high: float | None = None
    whole: bool = False
    """Whether its values are whole numbers, and so are the ticks."""
    note: str = ""
    """Stands below it."""

    @property
    def points(self) -> list[ChartPoint]:
        return [point for series in self.series for point in series.points]

    @cached_property
    def drawings(self) -> tuple["Drawing", ...]:
        """Once for each width; none where nothing is known."""
        known = any(point.y is not None for point in self.points)
        return tuple(_drawn(self, width) for width in (WIDE, NARROW)) if known else ()


# What a template draws: numbers that are ready, in SVG's units.


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A place that can be pointed at."""

    x: float
    y: float
    says: str
    link: str
    style: str
    hit: tuple[float, float]
    """Where the place begins, and how wide it is."""
    box: tuple[float, float, float] | None = None
    """Of a bar: its left end, its width, its height."""
    part: float = 0.0
    """Height of the bar that is marked."""
    whisker: tuple[float, float] | None = None

    def svg(self, bottom: float, *, narrow: bool = False) -> Markup:
        """As it is drawn above the line of the x-axis. There are hundreds on a page: a template would take most of its time.

        Args:
            narrow: On a telephone none is wide enough for a finger: it leads nowhere, and the table below the chart does.
        """
        if narrow:
            return Markup("".join(self._shapes(bottom)))  # noqa: S704 - numbers, and names of styles
        hit = f'<rect class="hit" x="{self.hit[0]}" width="{self.hit[1]}" y="0" height="{bottom}"/>'
        drawn = f"<g><title>{_text(self.says)}</title>{hit}{''.join(self._shapes(bottom))}</g>"
        return Markup(f'<a href="{_text(self.link)}" tabindex="-1">{drawn}</a>' if self.link else drawn)  # noqa: S704 - escaped

    def _shapes(self, bottom: float) -> Iterator[str]:
        if self.box:
            at = f'x="{self.box[0]}" width="{self.box[1]}"'
            for style, height in ((self.style, self.box[2]), *((("part", self.part),) if self.part else ())):
                yield f'<rect class="bar {style}" {at} y="{round(bottom - height, 2)}" height="{height}"/>'
        elif self.style != "gap":
            if self.whisker:
                ends = f'y1="{self.whisker[0]}" y2="{self.whisker[1]}"'
                yield f'<line class="whisker {self.style}" x1="{self.x}" x2="{self.x}" {ends}/>'
            yield f'<circle class="dot {self.style}" cx="{self.x}" cy="{self.y}" r="2.5"/>'


def _text(text: str) -> Markup:
    return escape(visible(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    width: int
    height: int
    narrow: bool
    left: float
    right: float
    bottom: float
    ys: tuple[Tick, ...]
    xs: tuple[Tick, ...]
    bands: tuple[tuple[str, str], ...]
    """Style and path."""
    lines: tuple[tuple[str, str], ...]
    spots: tuple[Spot, ...]
    rules: tuple[tuple[str, Tick], ...]
    ends: tuple[tuple[str, Tick], ...]
    """The names of the series, where their lines end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """From values to places."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(self.begin + share * (self.end - self.begin), 2)


def _drawn(chart: Chart, width: int) -> Drawing:
    ticks = nice_ticks(*_extent(chart), least=1.0 if chart.whole else 0.0)
    room = _RIGHT if len(chart.series) > 1 else 14
    y = _Scale(low=ticks[0], high=ticks[-1], begin=HEIGHT - _BOTTOM, end=_TOP)
    places = sorted({point.x for point in chart.points})
    # Bars and lone points need room to both sides.
    step = (width - _LEFT - room) / max(len(places), 1)
    pad = step / 2 if chart.kind != "line" or len(places) < 2 else 0.0
    x = _Scale(low=places[0], high=places[-1], begin=_LEFT + pad, end=width - room - pad)
    ends = [(series.style, known[-1].y, series.name) for series in chart.series if (known := _known(series))]
    return Drawing(
        width=width,
        height=HEIGHT,
        narrow=width == NARROW,
        left=_LEFT,
        right=width - room,
        bottom=HEIGHT - _BOTTOM,
        ys=tuple(Tick(at=y(value), text=chart.label(value)) for value in ticks),
        xs=tuple(_x_ticks(places, x, chart.x_label, width - _LEFT - room)),
        bands=tuple((s.style, path) for s in chart.series for path in _bands(s, x, y)) if chart.kind == "line" else (),
        lines=tuple((s.style, path) for s in chart.series for path in _lines(s, x, y)) if chart.kind == "line" else (),
        spots=tuple(spot for series in chart.series for spot in _spots(chart, series, x, y, step)),
        rules=tuple((rule.style, Tick(at=y(rule.at), text=rule.name)) for rule in chart.rules),
        ends=_apart([(style, y(last or 0.0), name) for style, last, name in ends]) if len(ends) > 1 else (),
    )


def _extent(chart: Chart) -> tuple[float, float]:
    values = [value for point in chart.points for value in (point.y, point.low, point.high) if value is not None]
    values += [rule.at for rule in chart.rules]
    low = chart.low if chart.low is not None else min(values)
    high = chart.high if chart.high is not None else max(values)
    if chart.kind == "bars":
        # The length of a bar is what it says, so it begins at nothing.
        low, high = min(low, 0.0), max(high, 0.0)
    return low, high


def nice_ticks(low: float, high: float, most: int = _TICKS, least: float = 0.0) -> list[float]:
    """Round numbers from at most `low` to at least `high`, `least` apart or more."""
    if high <= low:
        high = low + (abs(low) or 1.0)
    rough = max((high - low) / (most - 1), least)
    power = 10.0 ** math.floor(math.log10(rough))
    for step in (power, 2 * power, 2.5 * power, 5 * power, 10 * power, 20 * power):
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        if last - first < most and step >= least:
            break
    return [round(number * step, 12) for number in range(first, last + 1)]


def _x_ticks(places: Sequence[float], x: _Scale, label: Callable[[float], str], room: float) -> Iterator[Tick]:
    """As many as have room beside each other, the first and the last among them."""
    letters = max(len(label(place)) for place in places)
    most = max(2, int(room / (_LETTER * letters + 16)))
    every = max(1, math.ceil((len(places) - 1) / max(most - 1, 1)))
    for place in places[::every]:
        yield Tick(at=x(place), text=label(place))


def _known(series: Series) -> list[ChartPoint]:
    return [point for point in series.points if point.y is not None]


def _runs(series: Series) -> Iterator[list[ChartPoint]]:
    """What lies between gaps."""
    for known, run in groupby(series.points, lambda point: point.y is not None):
        if known:
            yield list(run)


def _lines(series: Series, x: _Scale, y: _Scale) -> Iterator[str]:
    for run in _runs(series):
        if len(run) > 1:
            yield "M" + "L".join(f"{x(point.x):g} {y(point.y or 0.0):g}" for point in run)


def _bands(series: Series, x: _Scale, y: _Scale) -> Iterator[str]:
    for run in _runs(series):
        upper = [f"{x(p.x):g} {y(p.high):g}" for p in run if p.high is not None and p.low is not None]
        lower = [f"{x(p.x):g} {y(p.low):g}" for p in run if p.high is not None and p.low is not None]
        if len(upper) > 1:
            yield "M" + "L".join([*upper, *reversed(lower)]) + "Z"


def _spots(chart: Chart, series: Series, x: _Scale, y: _Scale, step: float) -> Iterator[Spot]:
    base, wide = y(max(y.low, 0.0)), round(min(step * 0.8, 48), 2)
    apart, free = 0 if chart.kind == "bars" else _APART, -math.inf
    step = max(step, apart)
    for number, point in enumerate(series.points, start=1):
        at, height = x(point.x), y(point.y) if point.y is not None else base
        # The last is what it has come to.
        if (point.y is None and not point.says) or (at < free and number < len(series.points)):
            continue
        free = at + apart
        is_bar = chart.kind == "bars" and point.y is not None
        tall = max(1.5, base - height) if is_bar and point.y else 0.0
        ends = (point.low, point.high)
        yield Spot(
            x=at,
            y=height,
            says=point.says,
            link=point.link,
            style=series.style if point.y is not None else "gap",
            hit=(round(at - step / 2, 2), round(step, 2)),
            box=(round(at - wide / 2, 2), wide, round(tall, 2)) if is_bar else None,
            part=round(max(1.5, base - y(point.part)), 2) if is_bar and point.part else 0.0,
            whisker=(y(ends[1]), y(ends[0])) if chart.kind == "whiskers" and None not in ends else None,  # type: ignore[arg-type]
        )


def _apart(ends: Sequence[tuple[str, float, str]]) -> tuple[tuple[str, Tick], ...]:
    """Labels at the ends of lines, moved so that none stands on another."""
    found: list[tuple[str, Tick]] = []
    free = -math.inf
    for style, at, name in sorted(ends, key=lambda end: end[1]):
        free = max(at, free + 13)
        found.append((style, Tick(at=round(free, 2), text=name)))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Whisker:
    """An estimate with its interval on a scale that all rows of a table share."""

    low: float
    estimate: float
    high: float
    zero: float
    limit: float | None = None
    """Where harm begins."""


def whiskers(rows: Sequence[tuple[float, float, float]], limits: Sequence[float | None] = ()) -> list[Whisker]:
    """Intervals `(low, estimate, high)` drawn on one scale, with 0 on it."""
    known = [limit for limit in limits if limit is not None]
    reach = max([abs(value) for row in rows for value in row] + [abs(limit) for limit in known], default=1.0) or 1.0
    scale = _Scale(low=-reach, high=reach, begin=4, end=116)
    places = [*limits, *[None] * (len(rows) - len(limits))]
    return [
        Whisker(
            low=scale(low),
            estimate=scale(estimate),
            high=scale(high),
            zero=scale(0.0),
            limit=None if limit is None else scale(limit),
        )
        for (low, estimate, high), limit in zip(rows, places, strict=True)
    ]
