"""Charts as SVG, drawn on the server: no script, no style in the page, and the same bytes for the same numbers.

A chart has one y-axis. What is missing is a gap, and never 0; an estimate is drawn with its interval. Each is drawn twice, for
a wide screen and for a narrow one, and the style sheet shows one of them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise

from markupsafe import Markup, escape

from journeyman.serving.dashboard.layout import mark, visible

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
    """All of it in words, for whoever points at it or has it read out; empty where the point of another series says it."""
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

    @property
    def id(self) -> str:
        """Of its shapes in the page."""
        return mark(self.title)


# What a template draws: numbers that are ready, in SVG's units.


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A place that can be pointed at."""

    x: float
    says: str
    link: str
    hit: tuple[float, float]
    """Where the place begins, and how wide it is."""

    def svg(self, bottom: float) -> Markup:
        """As it lies below what is drawn, down to the line of the x-axis. There are hundreds on a page: a template would take
        most of its time, and what each says of itself most of its weight."""
        said = f'<title>{_text(self.says)}</title><rect x="{self.hit[0]:g}" width="{self.hit[1]:g}" height="{bottom:g}"/>'
        return Markup(f'<a href="{_text(self.link)}" tabindex="-1">{said}</a>' if self.link else f"<g>{said}</g>")  # noqa: S704 - escaped


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
    shapes: tuple[tuple[str, str], ...]
    """Class and path of bands and lines, bars, whiskers and dots: all of one kind and style are one path, which is a fifth of
    what an element each would weigh. Of the narrow one they are those of the wide one, moved as `move` says."""
    move: str
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
        return round(self.begin + share * (self.end - self.begin), 1)


def _drawn(chart: Chart, width: int) -> Drawing:
    ticks = nice_ticks(*_extent(chart), least=1.0 if chart.whole else 0.0)
    room = _RIGHT if len(chart.series) > 1 else 14
    y = _Scale(low=ticks[0], high=ticks[-1], begin=HEIGHT - _BOTTOM, end=_TOP)
    places = sorted({point.x for point in chart.points})
    x, wide = (_x_scale(chart, places, each - room) for each in (width, WIDE))
    step = (WIDE - _LEFT - room) / max(len(places), 1)
    shapes = [shape for series in chart.series for shape in _shapes(chart, series, wide, y, step)]
    ends = [(series.style, known[-1].y, series.name) for series in chart.series if (known := _known(series))]
    by = (x.end - x.begin) / (wide.end - wide.begin) if wide.end > wide.begin else 1.0
    return Drawing(
        width=width,
        height=HEIGHT,
        narrow=width == NARROW,
        left=_LEFT,
        right=width - room,
        bottom=HEIGHT - _BOTTOM,
        ys=tuple(Tick(at=y(value), text=chart.label(value)) for value in ticks),
        xs=tuple(_x_ticks(places, x, chart.x_label, width - _LEFT - room)),
        shapes=tuple((kind, path) for kind, path in sorted(shapes, key=lambda each: _ABOVE.index(each[0].split()[0])) if path),
        move=f"matrix({by:.4g} 0 0 1 {x.begin - by * wide.begin:.4g} 0)",
        spots=tuple(spot for series in chart.series for spot in _spots(chart, series, x, step)),
        rules=tuple((rule.style, Tick(at=y(rule.at), text=rule.name)) for rule in chart.rules),
        ends=_apart([(style, y(last or 0.0), name) for style, last, name in ends]) if len(ends) > 1 else (),
    )


def _x_scale(chart: Chart, places: Sequence[float], right: float) -> _Scale:
    # Bars and lone points need room to both sides.
    pad = (right - _LEFT) / len(places) / 2 if chart.kind != "line" or len(places) < 2 else 0.0
    return _Scale(low=places[0], high=places[-1], begin=_LEFT + pad, end=right - pad)


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
    """Round numbers from at most `low` to at least `high`, apart by `least` or a multiple of it."""
    if high <= low:
        high = low + (abs(low) or 1.0)
    rough = max((high - low) / (most - 1), least)
    power = 10.0 ** math.floor(math.log10(rough))
    for step in (power, 2 * power, 2.5 * power, 5 * power, 10 * power, 20 * power):
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        if last - first < most and (not least or (step >= least and not step % least)):
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


_Place = tuple[float, float]


def _from_to(place: _Place, to: _Place) -> str:
    """From one place to another as a path says it: how far, which is shorter than where, and the same again and again."""
    across, down = (round(there - here, 1) for here, there in zip(place, to, strict=True))
    return f"{across:g}{down:g}" if down < 0 else f"{across:g} {down:g}"


def line(places: Sequence[_Place]) -> str:
    """A path through all places; nothing where there is but one."""
    if len(places) < 2:
        return ""
    return f"M{places[0][0]:g} {places[0][1]:g}l" + " ".join(_from_to(*each) for each in pairwise(places))


def _band(run: Sequence[ChartPoint], x: _Scale, y: _Scale) -> str:
    known = [(x(p.x), y(p.low), y(p.high)) for p in run if p.low is not None and p.high is not None]
    around = [*((at, high) for at, _, high in known), *((at, low) for at, low, _ in reversed(known))]
    return line(around) + "z" if len(known) > 1 else ""


_ABOVE = ("band", "line", "bar", "part", "whisker", "dots")
"""What lies above what."""


def _shapes(chart: Chart, series: Series, x: _Scale, y: _Scale, step: float) -> Iterator[tuple[str, str]]:
    """Class and path of all that is drawn of a series; what is not known has none."""
    if chart.kind == "bars":
        yield f"bar {series.style}", _bars([(x(each.x), each.y) for each in series.points], y, step)
        yield "part", _bars([(x(each.x), each.part) for each in series.points], y, step)
        return
    if chart.kind == "line":
        yield f"band {series.style}", "".join(_band(run, x, y) for run in _runs(series))
        yield f"line {series.style}", "".join(line([(x(p.x), y(p.y or 0.0)) for p in run]) for run in _runs(series))
    seen = [point for point in _pointed_at(chart, series, x) if point.y is not None]
    if chart.kind == "whiskers":
        ends = ((x(p.x), y(p.low), y(p.high)) for p in seen if p.low is not None and p.high is not None)
        yield f"whisker {series.style}", "".join(f"M{at:g} {high:g}V{low:g}" for at, low, high in ends)
    dots = [(0.0, 0.0), *((x(p.x), y(p.y or 0.0)) for p in seen)]
    yield f"dots {series.style}", "".join(f"m{_from_to(*each)}h0" for each in pairwise(dots))


def _bars(values: Sequence[tuple[float, float | None]], y: _Scale, step: float) -> str:
    """Where each stands, and how high it is; one of nothing is none. One line goes round all of them."""
    base, wide = y(max(y.low, 0.0)), round(min(step * 0.8, 48), 1)
    at, found = 0.0, [f"M0 {base:g}"]
    for middle, value in values:
        if value:
            left = round(middle - wide / 2, 1)
            found.append(f"h{round(left - at, 1):g}V{min(y(value), base - 1.5):g}h{wide:g}V{base:g}")
            at = round(left + wide, 1)
    return "".join(found) if len(found) > 1 else ""


def _pointed_at(chart: Chart, series: Series, x: _Scale) -> Iterator[ChartPoint]:
    """The points that are far enough from each other, and what it has come to: the last."""
    apart, free = 0 if chart.kind == "bars" else _APART, -math.inf
    for number, point in enumerate(series.points, start=1):
        if (point.y is None and not point.says) or (x(point.x) < free and number < len(series.points)):
            continue
        free = x(point.x) + apart
        yield point


def _spots(chart: Chart, series: Series, x: _Scale, step: float) -> Iterator[Spot]:
    wide = round(max(step, 0 if chart.kind == "bars" else _APART), 1)
    for point in _pointed_at(chart, series, x):
        # Of two lines one says both, where both are known of the same steps.
        if point.says:
            yield Spot(x=x(point.x), says=point.says, link=point.link, hit=(round(x(point.x) - wide / 2, 1), wide))


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
